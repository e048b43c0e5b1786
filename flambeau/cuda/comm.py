"""torch.cuda.comm: copies between CUDA devices, which are not here. torch.nn.parallel's scatter and gather work on one device."""

from __future__ import annotations

from flambeau import absent
from flambeau.names import answering as _answering

_TABLE = """
broadcast(tensor, devices=None, *, out=None) !
broadcast_coalesced(tensors, devices, buffer_size=10485760) !
reduce_add(inputs, destination=None) !
reduce_add_coalesced(inputs, destination=None, buffer_size=10485760) !
scatter(tensor, devices=None, chunk_sizes=None, dim=0, streams=None, *, out=None) !
gather(tensors, dim=0, destination=None, *, out=None) !
"""
__all__ = absent.define(globals(), _TABLE, absent.not_compiled("CUDA"), "CUDA")

__getattr__ = _answering("torch.cuda.comm", globals())
