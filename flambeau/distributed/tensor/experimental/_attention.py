"""torch.distributed.tensor.experimental._attention: context parallelism's settings."""

from __future__ import annotations

from flambeau.distributed.several import define as _define

_define(globals(), "set_rotate_method(rotate_method) !\ncontext_parallel_unshard(mesh, buffers, seq_dims) !")
