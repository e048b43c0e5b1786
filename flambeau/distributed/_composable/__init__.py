"""torch.distributed._composable: wrappers as functions of a module."""

from __future__ import annotations

from flambeau.distributed._composable import fsdp as fsdp
from flambeau.distributed._composable.contract import _get_registry as _get_registry
from flambeau.distributed._composable.contract import contract as contract
from flambeau.distributed._composable.replicate import replicate as replicate
from flambeau.distributed.fsdp import fully_shard as fully_shard
