"""torch.cuda.profiler: NVIDIA's profiler, which is not here. torch.profiler is flambeau's."""

from __future__ import annotations

from typing import Any

from flambeau import absent

_TABLE = """
init(output_file, flags=None, output_mode='key_value') !
start() !
stop() !
profile() !
"""
__all__ = absent.define(globals(), _TABLE, absent.refusal(AssertionError, "Torch not compiled with CUDA enabled"), "CUDA")


def __getattr__(name: str) -> Any:
    from flambeau.names import missing

    raise missing("torch.cuda.profiler", name, globals())
