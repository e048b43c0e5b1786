"""Shapes, joining, indexing by arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau.tensor import Tensor

Axis = int | tuple[int, ...] | None


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """Views of one common shape."""
    return list(torch.broadcast_tensors(*arrays))


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that arrays of these shapes have in common. ValueError if there is none."""
    try:
        return tuple(torch.broadcast_shapes(*shapes))
    except RuntimeError as error:
        raise ValueError(str(error)) from None


def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Tensor:
    """A view of this shape."""
    return torch.broadcast_to(x, shape)


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """Arrays joined along an axis, or flattened and joined."""
    return torch.cat(list(arrays), axis) if axis is not None else torch.cat([x.flatten() for x in arrays])


def expand_dims(x: Tensor, /, axis: int | tuple[int, ...] = 0) -> Tensor:
    """A view with an axis, or several, of size 1 at `axis` of the result. IndexError if it is outside of the result."""
    axes = axis if isinstance(axis, tuple) else (axis,)
    ndim = x.ndim + len(axes)
    if any(not -ndim <= a < ndim for a in axes):
        raise IndexError(f"expand_dims: axis {axis} is outside of a result of {ndim} dimensions (x has shape {tuple(x.shape)})")
    for a in sorted(a % ndim for a in axes):
        x = x.unsqueeze(a)
    return x


def flip(x: Tensor, /, *, axis: Axis = None) -> Tensor:
    """The order of elements along axes (all by default) turned around."""
    axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    return torch.flip(x, tuple(axes))


def moveaxis(x: Tensor, source: Any, destination: Any, /) -> Tensor:
    """A view with axes moved to other places."""
    return torch.moveaxis(x, source, destination)


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """A view with the axes in another order."""
    return torch.permute(x, axes)


def repeat(x: Tensor, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Each element `repeats` times, along an axis or of the flattened array."""
    counts = repeats if isinstance(repeats, (int, Tensor)) else torch.tensor(repeats)
    return torch.repeat_interleave(x, counts, dim=axis)


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Tensor:
    """The elements in another shape; `copy=False` raises ValueError where that needs a copy."""
    if copy:
        return x.clone().reshape(shape)
    if copy is False:
        try:
            return x.view(shape)
        except RuntimeError as error:
            raise ValueError(str(error)) from None
    return x.reshape(shape)


def roll(x: Tensor, /, shift: int | tuple[int, ...], *, axis: Axis = None) -> Tensor:
    """Elements moved around an axis, or around the flattened array."""
    return torch.roll(x, shift, axis)


def squeeze(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """A view without axes of size 1. ValueError for another size."""
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    if any(x.shape[a] != 1 for a in axes):
        raise ValueError(f"squeeze: axes {axes} of shape {tuple(x.shape)} are not all of size 1")
    return torch.squeeze(x, axes)


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """Arrays of one shape joined along a new axis."""
    return torch.stack(list(arrays), axis)


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """The array repeated along its axes."""
    return torch.tile(x, repetitions)


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices along an axis."""
    return tuple(torch.unbind(x, axis))


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """The slices that a vector of indices names; without an axis x is a vector."""
    at = 0 if axis is None else axis
    size = x.shape[at]
    return torch.index_select(x, at, torch.where(indices < 0, indices + size, indices))


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """One element of each row along an axis for each index."""
    size = x.shape[axis]
    return torch.take_along_dim(x, torch.where(indices < 0, indices + size, indices), axis)


def where(condition: Tensor, x1: Any, x2: Any, /) -> Tensor:
    """Elements of x1 where the condition is True, else of x2."""
    return torch.where(condition, x1, x2)


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """The indices of what is not zero, one vector for each axis."""
    return tuple(torch.nonzero(x, as_tuple=True))


__all__ = [
    "broadcast_arrays", "broadcast_shapes", "broadcast_to", "concat", "expand_dims", "flip", "moveaxis", "nonzero", "permute_dims", "repeat",
    "reshape", "roll", "squeeze", "stack", "take", "take_along_axis", "tile", "unstack", "where",
]  # fmt: skip
