"""torch._C._distributed_c10d: where PyTorch has the classes of torch.distributed that are in C++."""

from __future__ import annotations

from typing import Any

from flambeau.distributed.algorithms.ddp_comm_hooks import BuiltinCommHookType as BuiltinCommHookType
from flambeau.distributed.buckets import Reducer as Reducer
from flambeau.distributed.buckets import _broadcast_coalesced as _broadcast_coalesced
from flambeau.distributed.buckets import _compute_bucket_assignment_by_size as _compute_bucket_assignment_by_size
from flambeau.distributed.buckets import _verify_params_across_processes as _verify_params_across_processes
from flambeau.distributed.debug import DebugLevel as DebugLevel
from flambeau.distributed.debug import get_debug_level as get_debug_level
from flambeau.distributed.debug import set_debug_level as set_debug_level
from flambeau.distributed.debug import set_debug_level_from_env as set_debug_level_from_env
from flambeau.distributed.fake import FakeStore as FakeStore
from flambeau.distributed.file_store import FileStore as FileStore
from flambeau.distributed.gloo import ProcessGroupGloo as ProcessGroupGloo
from flambeau.distributed.group import ProcessGroup as ProcessGroup
from flambeau.distributed.group import group_named as _resolve_process_group  # noqa: F401
from flambeau.distributed.options import AllgatherOptions as AllgatherOptions
from flambeau.distributed.options import AllreduceCoalescedOptions as AllreduceCoalescedOptions
from flambeau.distributed.options import AllreduceOptions as AllreduceOptions
from flambeau.distributed.options import AllToAllOptions as AllToAllOptions
from flambeau.distributed.options import BarrierOptions as BarrierOptions
from flambeau.distributed.options import BroadcastOptions as BroadcastOptions
from flambeau.distributed.options import GatherOptions as GatherOptions
from flambeau.distributed.options import ReduceOptions as ReduceOptions
from flambeau.distributed.options import ReduceScatterOptions as ReduceScatterOptions
from flambeau.distributed.options import ScatterOptions as ScatterOptions
from flambeau.distributed.reduce_op import ReduceOp as ReduceOp
from flambeau.distributed.reduce_op import _make_nccl_premul_sum as _make_nccl_premul_sum
from flambeau.distributed.reducer import GradBucket as GradBucket
from flambeau.distributed.store import HashStore as HashStore
from flambeau.distributed.store import PrefixStore as PrefixStore
from flambeau.distributed.store import Store as Store
from flambeau.distributed.store_collectives import _ControlCollectives as _ControlCollectives
from flambeau.distributed.store_collectives import _StoreCollectives as _StoreCollectives
from flambeau.distributed.tcp_store import TCPStore as TCPStore
from flambeau.distributed.work import Work as Work


def __getattr__(name: str) -> Any:
    from flambeau.names import otherwise

    return otherwise("torch._C._distributed_c10d", name, globals())
