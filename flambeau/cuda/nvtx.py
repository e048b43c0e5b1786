"""torch.cuda.nvtx: ranges for NVIDIA's tools, which are not here. torch.profiler.record_function names a range of flambeau's profile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flambeau import absent
from flambeau.names import answering as _answering

_TABLE = """
range_push(msg) !
range_pop() !
range_start(msg) !
range_end(range_id) !
mark(msg) !
"""
_MESSAGE = "NVTX functions not installed. Are you sure you have a CUDA build? torch.profiler.record_function names ranges here"
__all__ = [*absent.define(globals(), _TABLE, absent.refusal(RuntimeError, _MESSAGE), "CUDA"), "range"]


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """A range as a context manager or a decorator; it refuses when it is entered, not when it is made."""
    globals()["range_push"](msg.format(*args, **kwargs))
    yield


__getattr__ = _answering("torch.cuda.nvtx", globals())
