"""torch.nn.parallel on one device: the wrappers call the module that they hold; tensors are scattered to, and gathered from, one place."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from flambeau.nn.parallel.data_parallel import DataParallel, data_parallel
from flambeau.nn.parallel.parallel_apply import parallel_apply
from flambeau.nn.parallel.replicate import replicate
from flambeau.nn.parallel.scatter_gather import gather, scatter

if TYPE_CHECKING:
    from flambeau.nn.parallel.distributed import DistributedDataParallel as DistributedDataParallel

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel", "gather", "parallel_apply", "replicate", "scatter"]


def __getattr__(name: str) -> Any:
    if name in ("DistributedDataParallel", "DistributedDataParallelCPU"):  # programs that run in one process need none of it
        return import_module("flambeau.nn.parallel.distributed").DistributedDataParallel
    if name == "distributed":
        return import_module("flambeau.nn.parallel.distributed")
    from flambeau.names import otherwise

    return otherwise("torch.nn.parallel", name, globals())
