"""torch.cuda.nccl: NVIDIA's collectives, which are not here."""

from __future__ import annotations

from flambeau import absent
from flambeau.names import answering as _answering

_TABLE = """
is_available(tensors) = False
version() !
unique_id() !
all_reduce(inputs, outputs=None, op=0, streams=None, comms=None) !
reduce(inputs, output=None, root=0, op=0, streams=None, comms=None, *, outputs=None) !
broadcast(inputs, root=0, streams=None, comms=None) !
all_gather(inputs, outputs, streams=None, comms=None) !
reduce_scatter(inputs, outputs, op=0, streams=None, comms=None) !
"""
__all__ = absent.define(globals(), _TABLE, absent.refusal(RuntimeError, "NCCL requires CUDA"), "CUDA")

__getattr__ = _answering("torch.cuda.nccl", globals())
