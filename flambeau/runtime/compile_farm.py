"""Compiling many modules at once: other processes compile beside this one, because llvmlite serialises LLVM's calls.

A worker is `python -m flambeau.runtime.compile_farm`: it reads texts from its standard input and writes object code to its
standard output, each behind its length in eight bytes, until its input ends. Length 0 in an answer: LLVM refused the text.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from flambeau.runtime import target
from flambeau.statistics import counters

# A worker needs 0.4 s of processor time before its first object; a module takes 50 ms (measured). Fewer are not worth it.
FEWEST_MODULES: Final = 10
MOST_WORKERS: Final = 7
_LENGTH: Final = struct.Struct("=q")


def workers_for(modules: int) -> int:
    """How many processes help to compile so many modules. FLAMBEAU_COMPILE_PROCESSES limits them, this one included."""
    given = os.environ.get("FLAMBEAU_COMPILE_PROCESSES", "")
    allowed = int(given) if given.isdigit() else target.usable_processors()
    if modules < FEWEST_MODULES or not sys.executable:
        return 0
    return max(0, min(allowed - 1, MOST_WORKERS, modules // FEWEST_MODULES))


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
    root = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join([root, *[p for p in sys.path if p]])
    try:
        worker = subprocess.Popen(
            [sys.executable, "-m", "flambeau.runtime.compile_farm"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": paths, "PYTHONSAFEPATH": "1"},
        )  # fmt: skip
    except OSError:
        return
    assert worker.stdin is not None and worker.stdout is not None
    with suppress(OSError, EOFError), worker:  # a dead worker: whoever waits compiles the text
        while left:
            try:
                index = left.popleft()
            except IndexError:
                break
            _write(worker.stdin, texts[index].encode())
            content = _read(worker.stdout)
            if content:
                results[index] = content
                counters.kernels_compiled += 1


def _write(stream: IO[bytes], content: bytes) -> None:
    stream.write(_LENGTH.pack(len(content)) + content)
    stream.flush()


def _read(stream: IO[bytes]) -> bytes:
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    size = _LENGTH.unpack(head)[0]
    content: bytes = stream.read(size)
    if len(content) < size:
        raise EOFError
    return content


def main() -> None:
    """A worker's life."""
    from flambeau.runtime.jit import compile_text

    incoming, outgoing = sys.stdin.buffer, sys.stdout.buffer
    with suppress(EOFError, BrokenPipeError):
        while True:
            text = _read(incoming).decode()
            try:
                content = compile_text(text)
            except RuntimeError:
                content = b""
            _write(outgoing, content)


if __name__ == "__main__":
    main()
