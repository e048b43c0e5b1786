"""Threads of tests: they are waited for with a time limit, an error in one fails the test, and none outlives its test's failure."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

LIMIT = 120.0  # seconds


class Thread(threading.Thread):
    """A thread that never keeps the process alive, and that remembers its error for `join`."""

    def __init__(self, target: Callable[..., Any], args: Sequence[Any] = ()) -> None:
        super().__init__(daemon=True)
        self.work, self.arguments = target, args
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self.work(*self.arguments)
        except BaseException as error:
            self.error = error
        finally:
            del self.work, self.arguments  # nothing of the test's is held by a thread that has ended


def join(*threads: Thread, timeout: float = LIMIT) -> list[Any]:
    """Wait for threads: their results. Fails, with where they stand, if they have not ended in these seconds. Raises the first error of one."""
    deadline = time.monotonic() + timeout
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0))
    frames = sys._current_frames()
    stacks = ["".join(traceback.format_stack(frames[t.ident])) for t in threads if t.is_alive() and t.ident in frames]
    if any(t.is_alive() for t in threads):
        pytest.fail(f"{len(stacks)} of {len(threads)} threads did not end in {timeout:g} s:\n" + "\n".join(stacks))
    for thread in threads:
        if thread.error is not None:
            raise thread.error
    return [thread.result for thread in threads]


@contextlib.contextmanager
def beside(*functions: Callable[[threading.Event], Any], timeout: float = LIMIT) -> Iterator[None]:
    """Threads that run these while the block does. Each gets an event, which is set when the block ends, also by an error: then it must end soon."""
    ended = threading.Event()
    threads = [Thread(function, (ended,)) for function in functions]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join(timeout)  # here no failure: it would take the place of the block's own
    join(*threads, timeout=0)
