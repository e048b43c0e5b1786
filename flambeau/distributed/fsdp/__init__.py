"""torch.distributed.fsdp: modules whose parameters are spread over processes: fully_shard, and FullyShardedDataParallel over it."""

from __future__ import annotations

from flambeau.distributed.fsdp.api import (
    BackwardPrefetch,
    CPUOffload,
    CPUOffloadPolicy,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    LocalOptimStateDictConfig,
    LocalStateDictConfig,
    MixedPrecision,
    MixedPrecisionPolicy,
    OffloadPolicy,
    OptimStateDictConfig,
    OptimStateKeyType,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictConfig,
    StateDictSettings,
    StateDictType,
)
from flambeau.distributed.fsdp.fully_sharded_data_parallel import (
    FSDPModule,
    FullyShardedDataParallel,
    UnshardHandle,
    fully_shard,
    register_fsdp_forward_method,
)
from flambeau.names import answering as _answering

__getattr__ = _answering("torch.distributed.fsdp", globals())
