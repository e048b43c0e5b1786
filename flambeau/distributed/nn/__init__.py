"""torch.distributed.nn: collectives with gradients."""

from __future__ import annotations

from flambeau.distributed import several as _several
from flambeau.distributed.nn import functional as functional
from flambeau.distributed.nn.functional import all_gather, all_reduce, all_to_all, all_to_all_single, broadcast, gather, reduce, reduce_scatter, scatter

_several.define(globals(), classes="RemoteModule")
