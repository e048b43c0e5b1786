"""torch.distributed.tensor.experimental: context parallelism, for several processes."""

from __future__ import annotations

from flambeau.distributed.several import define as _define

_define(globals(), """
context_parallel(mesh, *, buffers=None, buffer_seq_dims=None, no_restore_buffers=None) !
implicit_replication() !
local_map(func, *args, **options) !
""")
