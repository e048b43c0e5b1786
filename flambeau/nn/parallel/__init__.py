"""torch.nn.parallel on one device: the wrappers call the module that they hold; tensors are scattered to, and gathered from, one place."""

from __future__ import annotations

from flambeau.nn.parallel.data_parallel import DataParallel, data_parallel
from flambeau.nn.parallel.distributed import DistributedDataParallel
from flambeau.nn.parallel.parallel_apply import parallel_apply
from flambeau.nn.parallel.replicate import replicate
from flambeau.nn.parallel.scatter_gather import gather, scatter

DistributedDataParallelCPU = DistributedDataParallel

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel", "gather", "parallel_apply", "replicate", "scatter"]
