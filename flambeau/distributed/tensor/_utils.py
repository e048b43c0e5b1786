"""torch.distributed.tensor._utils: which part of a tensor a process has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.distributed.tensor.placement_types import Shard


def compute_local_shape_and_global_offset(global_shape: Sequence[int], mesh: Any, placements: Sequence[Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(shape, offset) of this process's part, over a mesh whose dims have these placements; nothing of it where it is not in the mesh."""
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return (0,), (0,)
    shape, offset = list(global_shape), [0] * len(global_shape)
    for size, rank, placement in zip(mesh.shape, coordinate, placements, strict=True):
        if isinstance(placement, Shard):
            shape[placement.dim], start = Shard.local_shard_size_and_offset(shape[placement.dim], size, rank)
            offset[placement.dim] += start
    return tuple(shape), tuple(offset)


def compute_local_shape(global_shape: Sequence[int], mesh: Any, placements: Sequence[Any]) -> tuple[int, ...]:
    """The shape of this process's part."""
    return compute_local_shape_and_global_offset(global_shape, mesh, placements)[0]
