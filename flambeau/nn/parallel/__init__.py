"""torch.nn.parallel on one device: the wrappers call the module that they hold; tensors are scattered to, and gathered from, one place."""

from __future__ import annotations

from flambeau.nn.parallel.data_parallel import DataParallel, data_parallel, gather, parallel_apply, replicate, scatter
from flambeau.nn.parallel.distributed import DistributedDataParallel

DistributedDataParallelCPU = DistributedDataParallel

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel", "gather", "parallel_apply", "replicate", "scatter"]
