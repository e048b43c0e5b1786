"""torch.cuda.nvtx: ranges for NVIDIA's tools, which are not here. torch.profiler.record_function names a range of flambeau's profile."""

from __future__ import annotations

from flambeau import absent
from flambeau.names import answering as _answering

_TABLE = """
range_push(msg) !
range_pop() !
range_start(msg) !
range_end(range_id) !
mark(msg) !
range(msg, *args, **kwargs) !
"""
_MESSAGE = "NVTX functions not installed. Are you sure you have a CUDA build? torch.profiler.record_function names ranges here"
__all__ = absent.define(globals(), _TABLE, absent.refusal(RuntimeError, _MESSAGE), "CUDA")

__getattr__ = _answering("torch.cuda.nvtx", globals())
