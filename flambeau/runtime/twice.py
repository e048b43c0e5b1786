"""Code that is made twice: quickly, for its first runs, and well, by another process meanwhile.

LLVM's code generator takes four times as long for good code as for plain code of the same bits (60 kernels of a network: 2.6 seconds and 0.7).
So a kernel that is new and has little to do gets plain code at once. Another process makes the good one. It is linked when it
comes, and written over the plain one's address wherever a program calls it. The plain code stays: a run may be inside it.

The address of the plain code remains the kernel's name in plans: `table` tells what to call instead.
The other process stores what it makes in the cache, and ends its work by itself when this process ends.
Native code that calls can do without for a while, such as the recorder's, is made there only (`ahead`).
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from flambeau.runtime import claims, compile_farm, forking, object_cache, target
from flambeau.statistics import counters

# A kernel that one core needs longer for, when its code is good, gets good code at once: plain code takes some ten times as long.
LONGEST_NANOSECONDS: Final = 1_000_000.0
_IDLE_SECONDS: Final = 3.0  # after so long without work the other process ends
_LINKED_TOGETHER: Final = 8  # each link maps memory of its own
_PATIENCE: Final = 120.0  # seconds that `settle` waits at most


class Waiting:
    """A kernel with plain code: its text, and where programs have the address of that code."""

    __slots__ = ("address", "calls", "key", "places", "text")

    def __init__(self, key: str, text: str, address: int) -> None:
        self.key = key
        self.text = text
        self.address = address
        self.places: list[tuple[weakref.ref[array[int]], int]] = []
        self.calls: list[Callable[[], object]] = []


lock: Final = threading.RLock()
table: Final[dict[int, int | Waiting]] = {}  # address of plain code -> that of good code, or who waits for it
_by_key: Final[dict[str, Waiting]] = {}
_ahead: Final[dict[str, bytes]] = {}  # code that was made before somebody links it
ahead_left = 0  # how much of that is not made yet
_queue: Final[deque[Waiting]] = deque()
_worker: compile_farm.Worker | None = None
_thread: threading.Thread | None = None
_wake = threading.Event()
_ended = False


def usable() -> bool:
    """Whether another process may compile beside this one, and good code is wanted at all."""
    return not _ended and bool(sys.executable) and target.code_level() == 3 and compile_farm.processes_allowed() > 1


def submit(key: str, text: str, address: int) -> None:
    """There is plain code at `address`: have good code made of the text."""
    with lock:
        table[address] = waiting = Waiting(key, text, address)
        _submit(waiting)


def _submit(waiting: Waiting) -> None:
    global _thread
    _by_key[waiting.key] = waiting
    _queue.append(waiting)
    _wake.set()
    if _thread is None or not _thread.is_alive():
        _thread = threading.Thread(target=_work, name="flambeau-compiles", daemon=True)
        _thread.start()


def ahead(items: Sequence[tuple[str, Callable[[], str]]]) -> bool:
    """Whether the code of some (key, emit) is at hand, in the cache or here. What is not is made from now on; `ahead_left` tells when it is."""
    global ahead_left
    with lock:
        for key, emit in items if usable() else ():
            if key not in _ahead and key not in _by_key:
                content = object_cache.load(key)
                if content is None:
                    ahead_left += 1
                    _submit(Waiting(key, emit(), 0))
                else:
                    _ahead[key] = content
        return not any(key in _by_key for key, _ in items)


def taken(key: str) -> bytes | None:
    """The code of a key that was made ahead; the caller keeps it from now on."""
    return _ahead.pop(key, None)


def best(address: int) -> int:
    """The address of the best code there is, for that of plain code."""
    found = table.get(address, address)
    return found if found.__class__ is int else address  # type: ignore[return-value]


def waits() -> bool:
    """Whether any kernel has plain code so far."""
    return bool(_by_key)


def is_waiting(key: str) -> bool:
    """Whether the function of this key has plain code so far."""
    return key in _by_key


def place(tasks: array[int], rows: Sequence[int], words: array[int], positions: Sequence[int]) -> None:
    """Put the addresses of the best code there is into a program's tables, and see that better ones get there later.

    `rows`: where `tasks` has addresses; `positions`: where `words` has some.
    """
    with lock:
        for block, indices in ((tasks, rows), (words, positions)):
            for index in indices:
                found = table.get(block[index])
                if found.__class__ is int:
                    block[index] = found  # type: ignore[assignment]
                elif found is not None:
                    found.places.append((weakref.ref(block), index))  # type: ignore[union-attr]


def when_replaced(key: str, call: Callable[[], object]) -> None:
    """Call this, in another thread, when there is good code of a key that has plain code."""
    with lock:
        waiting = _by_key.get(key)
        if waiting is not None:
            waiting.calls.append(call)


def replace(contents: dict[str, bytes], link: Callable[[dict[str, bytes]], dict[str, int]]) -> None:
    """Link good code and have it called from now on."""
    global ahead_left
    with lock:
        contents = {key: content for key, content in contents.items() if key in _by_key}
        for key in [key for key in contents if not _by_key[key].address]:
            _ahead[key] = contents.pop(key)
            del _by_key[key]
            ahead_left -= 1
        for key, address in link(contents).items() if contents else ():
            waiting = _by_key.pop(key)
            for reference, index in waiting.places:
                block = reference()
                if block is not None:
                    block[index] = address  # one aligned store: a run that reads it meanwhile gets the old one or the new one
            table[waiting.address] = address
            for call in waiting.calls:
                call()
            counters.kernels_replaced += 1


def settle() -> None:
    """Wait until good code is everywhere: before something is measured."""
    waited = threading.Event()
    for _ in range(int(_PATIENCE / 0.01)):
        with lock:
            if not _by_key or _thread is None:
                return
        waited.wait(0.01)


def _work() -> None:
    """The thread's life."""
    try:
        while True:
            _feed()
            with lock:
                if not _queue:
                    _end()
                    return
    except BaseException:
        _end()
        raise


def _end() -> None:
    global _thread
    with lock:
        _thread = None
        _close()


def _feed() -> None:
    """Feed the other process and link what comes back, until there has been nothing to do for a while."""
    from flambeau.runtime import jit

    made: dict[str, bytes] = {}
    while True:
        waiting = _next()
        if waiting is not None:
            try:
                if is_waiting(waiting.key):
                    made[waiting.key] = object_cache.load(waiting.key) or _compiled(waiting, jit.compile_text)
            finally:
                claims.release(waiting.key)
        if made and (len(made) >= _LINKED_TOGETHER or not _queue):
            with suppress(RuntimeError):  # refused, or no memory: the plain code goes on
                replace(made, jit.link)
            for key in made:
                _by_key.pop(key, None)
            made = {}
        if waiting is None:
            _wake.clear()
            if not _queue and not _wake.wait(_IDLE_SECONDS):
                return


def _next() -> Waiting | None:
    """The next kernel to make, claimed for this process: one that no other process makes just now, if there is any."""
    for _ in range(len(_queue)):
        try:
            waiting = _queue.popleft()
        except IndexError:
            break
        if claims.claim(waiting.key):
            return waiting
        _queue.append(waiting)
    try:
        waiting = _queue.popleft()
    except IndexError:
        return None
    claims.wait(waiting.key)
    return waiting


def _compiled(waiting: Waiting, compile_text: Callable[[str], bytes]) -> bytes:
    """Good code, from the other process; from this one if there is none."""
    global _worker
    for _ in range(2):  # it may have been ended by somebody
        try:
            if _worker is None:
                _worker = compile_farm.Worker(behind=True)
            content = _worker.compile(waiting.text, waiting.key)
            if content:
                object_cache.store(waiting.key, content)
                return content
            break
        except (OSError, EOFError, ValueError):
            _close()
    with lock:  # at its end a process waits for this: nobody may be inside LLVM then
        content = compile_text(waiting.text)
    object_cache.store(waiting.key, content)
    return content


def _close() -> None:
    global _worker
    worker, _worker = _worker, None
    if worker is not None:
        worker.close()


def _at_exit() -> None:
    """Leave what is not compiled yet to the other process: the next run of the program finds it in the cache."""
    global _ended
    _ended = True
    lock.acquire()  # for good: the thread links nothing more
    worker = _worker
    if worker is not None:
        with suppress(OSError, ValueError):
            object_cache.make_folder()  # the worker makes none: a program may delete its cache at its end
            worker.leave([(w.key, w.text) for w in list(_queue)])


def _after_fork() -> None:
    """A child has neither the thread nor the process: it starts its own when something is submitted."""
    global _worker, _thread, _wake
    if _worker is not None:
        _worker.forget()
    _worker, _thread, _wake = None, None, threading.Event()
    _queue.clear()
    _queue.extend(_by_key.values())  # also what the thread had in hand


atexit.register(_at_exit)
forking.keep_out(lock)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

__all__ = [
    "LONGEST_NANOSECONDS", "ahead", "best", "is_waiting", "lock", "place", "replace", "settle", "submit", "table", "taken", "usable", "waits",
    "when_replaced",
]  # fmt: skip
