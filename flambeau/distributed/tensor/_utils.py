"""torch.distributed.tensor._utils: which part of a tensor a process has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.distributed.tensor.placement_types import Shard, _StridedShard


def order_of_cuts(placements: Sequence[Any]) -> list[int]:
    """The dims of the mesh that cut the tensor, in the order in which they do. A _StridedShard cuts what the dims after it have left."""
    cuts = [d for d, p in enumerate(placements) if isinstance(p, Shard)]
    strided = [d for d in cuts if isinstance(placements[d], _StridedShard)]
    return [d for d in cuts if d not in strided] + strided[::-1]


def compute_local_shape_and_global_offset(global_shape: Sequence[int], mesh: Any, placements: Sequence[Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(shape, offset) of this process's part, over a mesh whose dims have these placements; nothing of it where it is not in the mesh."""
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return (0,), (0,)
    shape, offset = list(global_shape), [0] * len(global_shape)
    for d in order_of_cuts(placements):
        dim = placements[d].dim
        shape[dim], start = Shard.local_shard_size_and_offset(shape[dim], mesh.shape[d], coordinate[d])
        offset[dim] += start
    return tuple(shape), tuple(offset)


def compute_local_shape(global_shape: Sequence[int], mesh: Any, placements: Sequence[Any]) -> tuple[int, ...]:
    """The shape of this process's part."""
    return compute_local_shape_and_global_offset(global_shape, mesh, placements)[0]
