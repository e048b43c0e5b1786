"""torch.distributed.fsdp._fully_shard: where PyTorch defines fully_shard."""

from __future__ import annotations

from flambeau.distributed.fsdp.api import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy
from flambeau.distributed.fsdp.fully_sharded_data_parallel import FSDPModule, UnshardHandle, fully_shard, register_fsdp_forward_method

__all__ = [
    "CPUOffloadPolicy", "FSDPModule", "MixedPrecisionPolicy", "OffloadPolicy", "UnshardHandle", "fully_shard", "register_fsdp_forward_method",
]  # fmt: skip
