"""torch.cuda.graphs: CUDA graphs cannot be made here. flambeau replays what it has recorded by itself."""

from __future__ import annotations

from typing import Any

from flambeau import absent

_refuse = absent.refusal(RuntimeError, "CUDA graphs require CUDA")
_TABLE = """
graph_pool_handle() !
is_current_stream_capturing() = False
make_graphed_callables(callables, sample_args, num_warmup_iters=3, allow_unused_input=False, pool=None) !
"""
_NAMES = absent.define(globals(), _TABLE, _refuse, "CUDA")
_CLASSES = absent.classes(globals(), ("CUDAGraph", "GreenContext", "graph"), _refuse, "CUDA")


def __getattr__(name: str) -> Any:
    from flambeau.names import missing

    raise missing("torch.cuda.graphs", name, globals())
