"""torch.distributed.optim: optimizers whose state is spread over processes."""

from __future__ import annotations

from flambeau.distributed.optim.post_localSGD_optimizer import PostLocalSGDOptimizer as PostLocalSGDOptimizer
from flambeau.distributed.optim.zero_redundancy_optimizer import ZeroRedundancyOptimizer as ZeroRedundancyOptimizer
from flambeau.distributed.several import define as _define

_define(globals(), "", "DistributedOptimizer")
