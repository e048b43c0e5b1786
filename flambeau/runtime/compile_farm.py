"""Compiling many modules at once: other processes compile beside this one, because llvmlite serialises LLVM's calls.

A worker is `python -m flambeau.runtime.compile_farm`: it reads texts from its standard input and writes object code to its
standard output, each behind its length in eight bytes, until its input ends. Length 0 in an answer: LLVM refused the text.
A key stands before each text, which may be empty. A negative length of the key asks for no answer: the code goes into the cache, as it does
where nobody takes the answer any more.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Final

from flambeau.runtime import resources

# A worker needs 0.4 s of processor time before its first object; a module takes 50 ms (measured). Fewer are not worth it.
FEWEST_MODULES: Final = 10
MOST_WORKERS: Final = 7
_NICE: Final = 5  # of a worker that compiles behind the program: it is short, and what it makes is ten times as fast
_LAST_SECONDS: Final = 30.0  # that it goes on for when the program has ended
_MOST_SECONDS_TO_WRITE: Final = 1.0
_LENGTH: Final = struct.Struct("=q")


def workers_for(modules: int) -> int:
    """How many processes help to compile so many modules. FLAMBEAU_COMPILE_PROCESSES limits them, this one included."""
    if modules < FEWEST_MODULES or not sys.executable:
        return 0
    return max(0, min(processes_allowed() - 1, MOST_WORKERS, modules // FEWEST_MODULES))


def processes_allowed() -> int:
    """How many processes may compile, this one included: FLAMBEAU_COMPILE_PROCESSES, or as many as there are processors."""
    given = os.environ.get("FLAMBEAU_COMPILE_PROCESSES", "")
    return int(given) if given.isdigit() else resources.usable_processors()


class Worker:
    """A process that compiles. OSError, EOFError or ValueError from its methods: it is there no more.

    `behind`: it lets others go first, and signals from the terminal do not reach it.
    """

    def __init__(self, behind: bool = False) -> None:
        root = str(Path(__file__).resolve().parents[2])
        paths = os.pathsep.join([root, *[p for p in sys.path if p]])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "flambeau.runtime.compile_farm", *(["behind"] if behind else [])], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": paths, "PYTHONSAFEPATH": "1"}, start_new_session=behind,
        )  # fmt: skip
        assert self._process.stdin is not None and self._process.stdout is not None
        self._to, self._from = self._process.stdin, self._process.stdout
        self._writing = threading.Lock()

    def compile(self, text: str, key: str = "") -> bytes:
        """Object code of a text; empty if LLVM refuses it. `key`: under which the worker stores it if this process ends meanwhile."""
        with self._writing:
            _write(self._to, key.encode())
            _write(self._to, text.encode())
        return _read(self._from)

    def leave(self, items: Sequence[tuple[str, str]]) -> None:
        """(key, text) of what it shall put into the cache while this process ends."""
        self._process.returncode = 0  # nobody waits for it: no warning
        if not self._writing.acquire(timeout=_MOST_SECONDS_TO_WRITE):  # it takes nothing: somebody has stopped it
            return
        for key, text in items:
            name = key.encode()
            self._to.write(_LENGTH.pack(-len(name)) + name)
            _write(self._to, text.encode())
        self._to.close()

    def close(self) -> None:
        """Let it end, and wait for that."""
        with suppress(OSError):
            self._to.close()
            self._from.close()
        self._process.wait()

    def forget(self) -> None:
        """In a child of this process: it is not the child's."""
        self._process.returncode = 0
        for stream in (self._to, self._from):
            with suppress(OSError):
                os.close(stream.fileno())


def compile_all(texts: Sequence[str], compile_text: Callable[[str], bytes], workers: int) -> list[bytes]:
    """Object code of all texts, by this process and some workers. A worker that fails leaves its text to this process, so that
    errors are those of `compile_text`."""
    results: list[bytes | None] = [None] * len(texts)
    left = deque(range(len(texts)))
    helpers = [threading.Thread(target=_feed, args=(texts, left, results), daemon=True) for _ in range(workers)]
    for helper in helpers:
        helper.start()
    try:
        while left:
            with suppress(IndexError):
                index = left.pop()
                results[index] = compile_text(texts[index])
    finally:
        left.clear()  # after an error nobody wants the rest
    for helper in helpers:
        helper.join()
    return [compile_text(text) if result is None else result for text, result in zip(texts, results, strict=True)]


def _feed(texts: Sequence[str], left: deque[int], results: list[bytes | None]) -> None:
    """Have one worker compile texts from the front until none is left."""
    try:
        worker = Worker()
    except OSError:
        return
    with suppress(OSError, EOFError, ValueError):  # a dead worker: whoever waits compiles the text
        while left:
            try:
                index = left.popleft()
            except IndexError:
                break
            content = worker.compile(texts[index])
            if content:
                results[index] = content
    worker.close()


def _write(stream: IO[bytes], content: bytes) -> None:
    stream.write(_LENGTH.pack(len(content)) + content)
    stream.flush()


def _read(stream: IO[bytes]) -> bytes:
    return _exactly(stream, _LENGTH.unpack(_exactly(stream, _LENGTH.size))[0])


def _exactly(stream: IO[bytes], size: int) -> bytes:
    content: bytes = stream.read(size)
    if len(content) < size:
        raise EOFError
    return content


def main() -> None:
    """A worker's life. What it is given is read at once, so that nobody waits to hand it over."""
    from flambeau.runtime import claims, object_cache
    from flambeau.runtime.jit import compile_text

    if sys.argv[1:] == ["behind"] and hasattr(os, "nice"):
        os.nice(_NICE)
    given: SimpleQueue[tuple[bool, str, str] | None] = SimpleQueue()
    threading.Thread(target=_take, args=(sys.stdin.buffer, given), daemon=True).start()
    until = float("inf")
    while (item := given.get()) is not None and time.monotonic() < until:
        answers, key, text = item
        if not answers and not _is_wanted(key):
            continue
        try:
            content = compile_text(text)
        except RuntimeError:
            content = b""
        if answers:
            try:
                _write(sys.stdout.buffer, content)
                continue
            except OSError:  # who asked has ended
                answers = False
        if until == float("inf"):
            until = time.monotonic() + _LAST_SECONDS
        where = object_cache.folder()
        if key and content and where is not None and where.is_dir():  # not if the cache has been deleted since
            object_cache.store(key, content)
        claims.release(key)
    os._exit(0)  # the thread may still read


def _is_wanted(key: str) -> bool:
    """Whether what a process has left is to be made here: other ranks of the program had the same to leave. If so it is claimed."""
    from flambeau.runtime import claims, object_cache

    where = object_cache.folder()
    return where is not None and where.is_dir() and object_cache.load(key) is None and claims.claim(key)


def _take(stream: IO[bytes], given: SimpleQueue[tuple[bool, str, str] | None]) -> None:
    """Read what is to be compiled: (whether to answer, key, text); None at the end."""
    with suppress(EOFError, OSError):
        while True:
            size = _LENGTH.unpack(_exactly(stream, _LENGTH.size))[0]
            key = _exactly(stream, abs(size)).decode()
            given.put((size >= 0, key, _read(stream).decode()))
    given.put(None)


if __name__ == "__main__":
    main()
