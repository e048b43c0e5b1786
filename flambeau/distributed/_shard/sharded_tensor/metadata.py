"""torch.distributed._shard.sharded_tensor.metadata: what a ShardedTensor is as a whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from flambeau.distributed._shard.metadata import ShardMetadata
from flambeau.distributed.tensor_properties import TensorProperties as TensorProperties
from flambeau.trace.meta import Size


@dataclass
class ShardedTensorMetadata:
    """Its parts, its size, and what it is beside."""

    shards_metadata: list[ShardMetadata] = field(default_factory=list)
    size: Any = field(default_factory=lambda: Size(()))
    tensor_properties: TensorProperties = field(default_factory=TensorProperties)
