"""Queues and contexts whose `put` pickles in the calling thread.

Python's queues pickle in a thread of their own, where sharing a tensor's memory in place could meet what the caller does next.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.queues
from multiprocessing.context import BaseContext
from multiprocessing.reduction import ForkingPickler
from typing import Any


class _Packed:
    """An object that has been pickled already; whoever receives it gets the object."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __reduce__(self) -> Any:
        return ForkingPickler.loads, (self.data,)


def _packed(obj: Any) -> _Packed:
    return _Packed(bytes(ForkingPickler.dumps(obj)))


class _Queue(multiprocessing.queues.Queue):  # type: ignore[type-arg]
    def put(self, obj: Any, block: bool = True, timeout: float | None = None) -> None:
        super().put(_packed(obj), block, timeout)


class _JoinableQueue(multiprocessing.queues.JoinableQueue):  # type: ignore[type-arg]
    def put(self, obj: Any, block: bool = True, timeout: float | None = None) -> None:
        super().put(_packed(obj), block, timeout)


class _Queues:
    """The part of a context that makes queues."""

    def Queue(self, maxsize: int = 0) -> Any:
        """A queue of objects between processes."""
        return _Queue(maxsize, ctx=self.get_context())  # type: ignore[attr-defined]

    def JoinableQueue(self, maxsize: int = 0) -> Any:
        """A queue with task_done and join."""
        return _JoinableQueue(maxsize, ctx=self.get_context())  # type: ignore[attr-defined]


_CONTEXTS: dict[type, Any] = {}


def get_context(method: str | None = None) -> Any:
    """The context of a start method ("fork", "spawn", "forkserver"; the present one if None), with queues for tensors."""
    context: BaseContext = multiprocessing.get_context(method)
    kind = type(context)
    if kind not in _CONTEXTS:
        _CONTEXTS[kind] = type(kind.__name__, (_Queues, kind), {})()
    return _CONTEXTS[kind]


def Queue(maxsize: int = 0) -> Any:
    """A queue of objects between processes; the memory of tensors in it is shared."""
    return get_context().Queue(maxsize)


def JoinableQueue(maxsize: int = 0) -> Any:
    """A queue with task_done and join; the memory of tensors in it is shared."""
    return get_context().JoinableQueue(maxsize)
