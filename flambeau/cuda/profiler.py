"""torch.cuda.profiler: NVIDIA's profiler, which is not here. torch.profiler is flambeau's."""

from __future__ import annotations

from flambeau import absent
from flambeau.names import answering as _answering

_TABLE = """
init(output_file, flags=None, output_mode='key_value') !
start() !
stop() !
profile() !
"""
__all__ = absent.define(globals(), _TABLE, absent.not_compiled("CUDA"), "CUDA")

__getattr__ = _answering("torch.cuda.profiler", globals())
