"""torch.distributed.tensor._ops.utils: dims, and questions about how a tensor lies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from flambeau.distributed.tensor._dtensor_spec import DTensorSpec


def normalize_dim(dim: int, ndim: int) -> int:
    """The dim, counted from the front."""
    return dim if dim >= 0 else dim + ndim


def normalize_dims(dims: int | Sequence[int], ndim: int) -> Sequence[int]:
    """The dims, counted from the front."""
    return (normalize_dim(dims, ndim),) if isinstance(dims, int) else type(dims)([normalize_dim(dim, ndim) for dim in dims])  # type: ignore[call-arg]


def prod(xs: Iterable[int]) -> int:
    """The product."""
    return math.prod(xs)


def as_list(x: Any) -> list[Any]:
    """A list of what is in a list or tuple, or of the one thing."""
    return list(x) if isinstance(x, (list, tuple)) else [x]


def is_tensor_shardable(shape: Sequence[int], spec: DTensorSpec) -> bool:
    """Whether each process gets something of each dim that is cut."""
    counts = _counts(len(shape), spec)
    return all(size >= count for size, count in zip(shape, counts, strict=True) if count > 1)


def is_tensor_evenly_shardable(shape: Sequence[int], spec: DTensorSpec) -> bool:
    """Whether the parts have one size."""
    counts = _counts(len(shape), spec)
    return all(size % count == 0 for size, count in zip(shape, counts, strict=True))


def _counts(ndim: int, spec: DTensorSpec) -> list[int]:
    counts = [1] * ndim
    for size, placement in zip(spec.mesh.shape, spec.placements, strict=True):
        if placement.is_shard():
            counts[placement.dim] *= size  # type: ignore[attr-defined]
    return counts


def is_tensor_dim_sharded(spec: DTensorSpec, dim: int) -> bool:
    """Whether a dim is cut."""
    return any(p.is_shard(dim) for p in spec.placements)


def is_tensor_partial(spec: DTensorSpec) -> bool:
    """Whether processes have parts of a sum."""
    return any(p.is_partial() for p in spec.placements)
