"""Signals that are caught for the length of a block: afterwards their handlers are what they were, in this process and in those that it forks."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any


@contextlib.contextmanager
def caught(numbers: Iterable[int], handler: Callable[[int, Any], object]) -> Iterator[None]:
    """A block in which `handler(number, frame)` is called when one of these signals comes. Only the main thread can catch any: elsewhere nothing changes."""
    before: dict[int, Any] = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for number in numbers:
                before[number] = signal.signal(number, handler)
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, signal.SIG_DFL if old is None else old)  # None: it was not Python that had set it
