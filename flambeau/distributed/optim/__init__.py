"""torch.distributed.optim: optimizers whose state is spread over processes."""

from __future__ import annotations

from flambeau.distributed.several import define as _define

_define(globals(), "", "DistributedOptimizer PostLocalSGDOptimizer ZeroRedundancyOptimizer")
