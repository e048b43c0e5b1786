"""torch.distributed: several processes of one machine that train together, over memory that they share."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from flambeau.distributed.collectives import (
    all_gather,
    all_gather_coalesced,
    all_gather_into_tensor,
    all_reduce,
    all_reduce_coalesced,
    all_to_all,
    all_to_all_single,
    barrier,
    broadcast,
    gather,
    monitored_barrier,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
)
from flambeau.distributed.errors import DistBackendError, DistError, DistNetworkError, DistQueueEmptyError, DistStoreError, QueueEmptyError
from flambeau.distributed.group import (
    Backend,
    BackendConfig,
    GroupMember,
    ProcessGroup,
    _rank_not_in_group,
    default_pg_timeout,
    destroy_process_group,
    get_backend,
    get_backend_config,
    get_global_rank,
    get_group_rank,
    get_node_local_rank,
    get_pg_count,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    group,
    init_process_group,
    is_initialized,
    new_group,
    new_subgroups,
    new_subgroups_by_enumeration,
)
from flambeau.distributed.messages import P2POp, batch_isend_irecv, irecv, isend, recv, send
from flambeau.distributed.objects import (
    all_gather_object,
    broadcast_object_list,
    gather_object,
    recv_object_list,
    scatter_object_list,
    send_object_list,
)
from flambeau.distributed.reduce_op import ReduceOp, _make_nccl_premul_sum, supports_complex
from flambeau.distributed.rendezvous import register_rendezvous_handler, rendezvous
from flambeau.distributed.store import HashStore, PrefixStore, Store
from flambeau.distributed.work import Work

if TYPE_CHECKING:
    from flambeau.distributed.algorithms.ddp_comm_hooks import BuiltinCommHookType as BuiltinCommHookType
    from flambeau.distributed.debug import DebugLevel as DebugLevel
    from flambeau.distributed.debug import get_debug_level as get_debug_level
    from flambeau.distributed.debug import set_debug_level as set_debug_level
    from flambeau.distributed.debug import set_debug_level_from_env as set_debug_level_from_env
    from flambeau.distributed.file_store import FileStore as FileStore
    from flambeau.distributed.reducer import GradBucket as GradBucket
    from flambeau.distributed.regroup import shrink_group as shrink_group
    from flambeau.distributed.regroup import split_group as split_group
    from flambeau.distributed.tcp_store import TCPStore as TCPStore

_all_gather_base = all_gather_into_tensor
_reduce_scatter_base = reduce_scatter_tensor
all_gather_single, reduce_scatter_single = all_gather_into_tensor, reduce_scatter_tensor  # their newest names
reduce_op = ReduceOp
_Work = Work  # its older name


def is_available() -> bool:
    """True."""
    return True


def is_mpi_available() -> bool:
    """True: "mpi" is a name of the memory that ranks of one machine share."""
    return True


def is_nccl_available() -> bool:
    """False."""
    return False


def is_gloo_available() -> bool:
    """True: "gloo" is a name of the memory that ranks of one machine share."""
    return True


def is_ucc_available() -> bool:
    """False."""
    return False


def is_xccl_available() -> bool:
    """False."""
    return False


def is_backend_available(backend: str) -> bool:
    """Whether there is a backend of this name: "gloo" and "mpi", which are the same, "fake", and those of one's own."""
    return backend.lower() in ("gloo", "mpi", "fake") or backend.upper() in Backend._plugins


def is_torchelastic_launched() -> bool:
    """Whether torchrun has started this process."""
    return os.environ.get("TORCHELASTIC_RUN_ID") is not None


def get_default_backend_for_device(device: Any) -> str:
    """ "gloo": the CPU's."""
    return "gloo"


# Imported when they are asked for: programs that run in one process need none of them.
_LAZY_MODULES = frozenset(
    "_composable _functional_collectives _shard _tensor _tools algorithms checkpoint collective_utils constants device_mesh distributed_c10d elastic fsdp "
    "launch launcher nn optim pipelining remote_device rpc run tensor utils".split()
)


_LAZY_NAMES = {
    "FileStore": "file_store", "TCPStore": "tcp_store", "GradBucket": "reducer", "BuiltinCommHookType": "algorithms.ddp_comm_hooks",
    "DebugLevel": "debug", "get_debug_level": "debug", "set_debug_level": "debug", "set_debug_level_from_env": "debug", "_remote_device": "remote_device",
    **dict.fromkeys(
        "BroadcastOptions AllreduceOptions AllreduceCoalescedOptions ReduceOptions AllgatherOptions GatherOptions ScatterOptions ReduceScatterOptions "
        "BarrierOptions AllToAllOptions".split(), "options"
    ),
    **dict.fromkeys(
        "_DEFAULT_FIRST_BUCKET_BYTES _compute_bucket_assignment_by_size Reducer _broadcast_coalesced _verify_params_across_processes".split(), "buckets"
    ),
    "_StoreCollectives": "store_collectives", "_ControlCollectives": "store_collectives", "ProcessGroupGloo": "gloo",
    "split_group": "regroup", "shrink_group": "regroup",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _LAZY_MODULES:
        return importlib.import_module(f"flambeau.distributed.{name}")
    if name in _LAZY_NAMES:
        return getattr(importlib.import_module(f"flambeau.distributed.{_LAZY_NAMES[name]}"), name)
    if name in ("DeviceMesh", "init_device_mesh"):
        return getattr(importlib.import_module("flambeau.distributed.device_mesh"), name)
    from flambeau.names import otherwise

    return otherwise("torch.distributed", name, globals())
