"""torch.distributed._composable.fsdp: the older place of fully_shard."""

from __future__ import annotations

from flambeau.distributed.fsdp._fully_shard import *  # noqa: F403
