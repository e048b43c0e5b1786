"""torch.distributed in one process.

Several processes are not there yet. Questions are answered as before initialisation (`is_initialized()` is False), collectives raise
PyTorch's error for a missing process group. A group of one process can be made (`init_process_group` with world_size 1): in it
collectives are copies, so that a program written for many runs as one.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from flambeau.distributed.collectives import (
    P2POp,
    ReduceOp,
    Work,
    all_gather,
    all_gather_coalesced,
    all_gather_into_tensor,
    all_gather_object,
    all_reduce,
    all_reduce_coalesced,
    all_to_all,
    all_to_all_single,
    barrier,
    batch_isend_irecv,
    broadcast,
    broadcast_object_list,
    gather,
    gather_object,
    irecv,
    isend,
    monitored_barrier,
    recv,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
    scatter_object_list,
    send,
)
from flambeau.distributed.group import (
    Backend,
    DistBackendError,
    DistError,
    DistNetworkError,
    DistStoreError,
    GroupMember,
    ProcessGroup,
    default_pg_timeout,
    destroy_process_group,
    get_backend,
    get_global_rank,
    get_group_rank,
    get_node_local_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    group,
    init_process_group,
    is_initialized,
    new_group,
)

_all_gather_base = all_gather_into_tensor
_reduce_scatter_base = reduce_scatter_tensor
reduce_op = ReduceOp


def is_available() -> bool:
    """True: this module is there, for one process."""
    return True


def is_mpi_available() -> bool:
    """False."""
    return False


def is_nccl_available() -> bool:
    """False."""
    return False


def is_gloo_available() -> bool:
    """False."""
    return False


def is_ucc_available() -> bool:
    """False."""
    return False


def is_xccl_available() -> bool:
    """False."""
    return False


def is_backend_available(backend: str) -> bool:
    """False: there is only the group of one process, whatever the name of its backend."""
    return False


def is_torchelastic_launched() -> bool:
    """Whether torchrun has started this process."""
    return os.environ.get("TORCHELASTIC_RUN_ID") is not None


def get_default_backend_for_device(device: Any) -> str:
    """ "gloo": the CPU's."""
    return "gloo"


# Imported when they are asked for: programs that run in one process need none of them.
_LAZY_MODULES = frozenset(
    "_composable _functional_collectives _tensor algorithms checkpoint constants device_mesh distributed_c10d elastic fsdp launcher nn optim pipelining "
    "rpc run tensor utils".split()
)


def __getattr__(name: str) -> Any:
    if name in _LAZY_MODULES:
        return importlib.import_module(f"flambeau.distributed.{name}")
    if name in ("DeviceMesh", "init_device_mesh"):
        return getattr(importlib.import_module("flambeau.distributed.device_mesh"), name)
    raise AttributeError(f"module 'torch.distributed' has no attribute {name!r} in flambeau, which runs in one process so far", name=name)
