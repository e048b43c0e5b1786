"""The thread team: Python threads that live in native code, without the GIL; after each phase they spin, then sleep.

The team starts at the first parallel phase; a forked child starts its own. Its memory is described in `native.py`.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import platform
import struct
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from flambeau.runtime import native, resources

# Spin-wait hints before a thread sleeps: about 100 us where a hint takes 11 ns (measured on Granite Rapids), 350 us
# where it takes 45 ns (Skylake; Intel, Optimization Reference Manual, PAUSE). To be woken costs some 20 us; the
# serial phases between parallel ones are shorter than that, too.
SPINS: Final = 8000

_count = min(resources.usable_processors(), native.MOST_LANES)
_team: Team | None = None
_lock = threading.Lock()


def count() -> int:
    """The number of threads a plan may use, the calling one included."""
    return _count


get_num_threads = count


def set_num_threads(n: int) -> None:
    """Use at most `n` threads (64 at most) from now on. Results do not depend on it.

    Plans that exist keep their scratch memory and run with at most as many threads as they were made for: the public
    function has those made again that are for fewer (trace/replan.py).
    """
    global _count
    if not isinstance(n, int) or isinstance(n, bool):
        raise TypeError(f"set_num_threads expects an int, but got {type(n).__name__}")
    if n < 1:
        raise RuntimeError(f"set_num_threads expects a positive integer, got {n}")
    _count = min(n, native.MOST_LANES)
    if _team is not None:
        _team.limit()


def module() -> tuple[str, Callable[[], str]]:
    """(key, emit) of the runtime's native code, for `jit.function`."""
    from flambeau.runtime.jit import symbol

    machine = platform.machine()
    key = f"flambeau runner {machine}"
    return key, lambda: native.text(symbol(key), machine)


@cache
def native_function(keep_gil: bool) -> Any:
    """The native runner as a ctypes function of the packed words (program, team, io ...), which releases the GIL or keeps it.

    It has no argument types, which saves 30 ns a call: give it bytes.
    """
    make = ctypes.PYFUNCTYPE if keep_gil else ctypes.CFUNCTYPE
    return make(ctypes.c_int64)(native_address())


@cache
def native_address() -> int:
    """The address of the native runner."""
    from flambeau.runtime import jit

    return jit.function(*module())


class Team:
    """The shared memory and the worker threads."""

    def __init__(self) -> None:
        self.memory = ctypes.create_string_buffer(native.TEAM_BYTES + 64)
        self.address = (ctypes.addressof(self.memory) + 63) & -64
        self.workers: list[threading.Thread] = []
        self._libc = ctypes.CDLL(None)
        for thread in range(native.MOST_LANES):
            self._libc.sem_init(ctypes.c_void_p(self._semaphore(thread)), 0, 0)
        self._write("SPINS", SPINS)
        self.limit()

    def _semaphore(self, thread: int) -> int:
        return self.address + native.FIELDS["THREADS_AT"] + 64 * thread + native.SEMAPHORE

    def _write(self, field: str, value: int) -> None:
        ctypes.memmove(self.address + native.FIELDS[field], struct.pack("=q", value), 8)

    def limit(self) -> None:
        """Let as many threads work as there are and as are allowed."""
        self._write("LIMIT", min(_count, 1 + len(self.workers)))

    def grow(self, lanes: int) -> None:
        """Have a worker for each lane but the caller's."""
        worker = native_function(keep_gil=False)
        while len(self.workers) < lanes - 1:
            lane = len(self.workers) + 1
            call = struct.pack("=3q", 0, self.address, lane)
            thread = threading.Thread(target=worker, args=(call,), name=f"flambeau-{lane}", daemon=True)
            thread.start()
            self.workers.append(thread)
        self.limit()

    def stop(self) -> None:
        """End the threads. The memory stays as long as this object, which must outlive every native call."""
        self._write("STOP", 1)
        for lane in range(1, len(self.workers) + 1):
            self._libc.sem_post(ctypes.c_void_p(self._semaphore(lane)))
        for thread in self.workers:
            thread.join(1.0)


def team(lanes: int) -> int:
    """The address of the team, grown to at least `lanes` lanes; 0: run alone."""
    global _team
    if lanes < 2 or _count < 2 or platform.system() != "Linux":  # elsewhere there are no semaphores in memory
        return 0
    found = _team
    if found is None or len(found.workers) < lanes - 1:
        with _lock:
            found = _team or Team()
            found.grow(lanes)
            _team = found
    return found.address


def _after_fork() -> None:
    """A child has none of the parent's threads; the next parallel phase makes new ones."""
    global _team, _lock
    _team = None
    _lock = threading.Lock()


def _at_exit() -> None:
    global _count
    _count = 1  # what runs later, in destructors, runs alone
    if _team is not None:
        _team.stop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
