"""torch.distributed._shard.metadata: a part of a tensor, and on which rank it lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flambeau.distributed.remote_device import _remote_device


@dataclass
class ShardMetadata:
    """Where a part begins, its sizes, and where it is: "rank:0/cpu"."""

    shard_offsets: list[int]
    shard_sizes: list[int]
    placement: Any = None

    def __post_init__(self) -> None:
        if isinstance(self.placement, str):
            self.placement = _remote_device(self.placement)
        if len(self.shard_offsets) != len(self.shard_sizes):
            raise ValueError(
                f"shard_offsets and shard_sizes should have the same number of elements, found {len(self.shard_offsets)} and {self.shard_sizes} respectively"
            )
        for name, numbers in (("shard_offsets", self.shard_offsets), ("shard_sizes", self.shard_sizes)):
            if any(n < 0 for n in numbers):
                raise ValueError(f"{name} should be >= 0, got {numbers}")

    def __hash__(self) -> int:
        return hash((tuple(self.shard_offsets), tuple(self.shard_sizes), self.placement))


def overlapping(parts: Sequence[ShardMetadata]) -> tuple[int, int] | None:
    """Two parts (their places in the list) that share elements, if there are such."""
    for i, a in enumerate(parts):
        for j in range(i):
            b = parts[j]
            spans = zip(a.shard_offsets, a.shard_sizes, b.shard_offsets, b.shard_sizes, strict=True)
            if all(max(s, t) < min(s + n, t + m) for s, n, t, m in spans):
                return j, i
    return None
