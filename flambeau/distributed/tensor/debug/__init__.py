"""torch.distributed.tensor.debug: which collectives a program with DTensors makes, module by module."""

from __future__ import annotations

from flambeau.distributed.tensor.debug._comm_mode import CommDebugMode
from flambeau.names import answering as _answering

CommDebugMode.__module__ = "torch.distributed.tensor.debug"
__all__ = ["CommDebugMode"]
__getattr__ = _answering("torch.distributed.tensor.debug", globals())
