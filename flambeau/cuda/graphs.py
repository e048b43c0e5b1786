"""torch.cuda.graphs: CUDA graphs cannot be made here. flambeau replays what it has recorded by itself."""

from __future__ import annotations

from flambeau import absent
from flambeau.names import answering as _answering

_refuse = absent.refusal(RuntimeError, "CUDA graphs require CUDA")
_TABLE = """
graph_pool_handle is_current_stream_capturing make_graphed_callables
"""
_NAMES = absent.define(globals(), _TABLE, _refuse, "CUDA")
_CLASSES = absent.classes(globals(), ("CUDAGraph", "GreenContext", "graph"), _refuse, "CUDA")

__getattr__ = _answering("torch.cuda.graphs", globals())
