"""torch.distributed._shard.sharding_spec: how a ShardedTensor is cut."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from math import prod
from typing import Any

from flambeau.distributed._shard.metadata import ShardMetadata as ShardMetadata
from flambeau.distributed._shard.metadata import overlapping
from flambeau.distributed._shard.sharded_tensor.metadata import ShardedTensorMetadata, TensorProperties
from flambeau.distributed.remote_device import _remote_device
from flambeau.trace.meta import Size


class ShardingSpec(abc.ABC):
    """How a tensor is cut."""

    @abc.abstractmethod
    def build_metadata(self, tensor_sizes: Any, tensor_properties: TensorProperties) -> ShardedTensorMetadata:
        """The parts of a tensor of these sizes."""


@dataclass
class ChunkShardingSpec(ShardingSpec):
    """Cut along a dim into as many equal parts as there are placements, as torch.chunk cuts."""

    dim: Any
    placements: list[Any]

    def __post_init__(self) -> None:
        if isinstance(self.dim, str):
            raise NotImplementedError("ChunkShardingSpec does not support named dimension yet!")
        if not isinstance(self.dim, int):
            raise ValueError(f"Sharding dim needs to be an integer, found: {self.dim}")
        self.placements = [p if isinstance(p, _remote_device) else _remote_device(p) for p in self.placements]

    def build_metadata(self, tensor_sizes: Any, tensor_properties: TensorProperties) -> ShardedTensorMetadata:
        """The parts; those of the last ranks are shorter, or empty. ValueError for a dim that the tensor has not."""
        sizes = list(tensor_sizes)
        if not -len(sizes) <= self.dim < len(sizes):
            raise ValueError(f"Invalid sharding dim: {self.dim}")
        dim, count = self.dim % len(sizes), len(self.placements)
        whole = sizes[dim]
        step = -(-whole // count)
        parts = []
        for i, placement in enumerate(self.placements):
            offsets, lengths = [0] * len(sizes), list(sizes)
            offsets[dim], lengths[dim] = step * i, max(min(whole, step * (i + 1)) - step * i, 0)
            parts.append(ShardMetadata(offsets, lengths, placement))
        return ShardedTensorMetadata(parts, Size(tuple(sizes)), tensor_properties)


@dataclass
class EnumerableShardingSpec(ShardingSpec):
    """Cut into parts that are listed. ValueError where two of them share elements."""

    shards: list[ShardMetadata]

    def __post_init__(self) -> None:
        if not self.shards:
            raise ValueError(f"Empty shard list provided: {self.shards}")
        if len({len(s.shard_offsets) for s in self.shards}) > 1:
            raise ValueError("Found inconsistent ranks for shards: their offsets have different numbers of dims")
        pair = overlapping(self.shards)
        if pair is not None:
            raise ValueError(f"Shards {self.shards[pair[0]]} and {self.shards[pair[1]]} overlap")

    def build_metadata(self, tensor_sizes: Any, tensor_properties: TensorProperties) -> ShardedTensorMetadata:
        """The parts. ValueError where they are not all of the tensor."""
        sizes = tuple(tensor_sizes)
        inside = all(
            len(s.shard_offsets) == len(sizes) and all(o + n <= m for o, n, m in zip(s.shard_offsets, s.shard_sizes, sizes, strict=True)) for s in self.shards
        )
        if not inside or sum(prod(s.shard_sizes) for s in self.shards) != prod(sizes):
            raise ValueError(f"Total volume of shards does not match tensor volume: the shards {self.shards} are not all of a tensor of sizes {sizes}")
        return ShardedTensorMetadata(self.shards, Size(sizes), tensor_properties)
