"""Reductions, sorting, searching and sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import flambeau as torch
from flambeau.tensor import Tensor

Axis = int | tuple[int, ...] | None


def _axes(x: Tensor, axis: Axis) -> tuple[int, ...]:
    return tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)


def _widened(x: Tensor, dtype: Any) -> Tensor:
    """As a sum or a product sees x: in `dtype`; whole numbers and bools in int64, unless it is given."""
    return x.to(dtype) if dtype is not None else x if x.dtype.is_floating_point or x.dtype.is_complex else x.to(torch.int64)


def _each_axis(function: Callable[..., Tensor], x: Tensor, axis: Axis, keepdims: bool) -> Tensor:
    """A reduction over one axis, done over several."""
    axes = sorted([a % x.ndim for a in _axes(x, axis)], reverse=True)
    for a in axes:
        x = function(x, a, keepdim=keepdims)
    return x


def max(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The largest elements."""
    return torch.amax(x, _axes(x, axis), keepdims)


def min(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The smallest elements."""
    return torch.amin(x, _axes(x, axis), keepdims)


def sum(x: Tensor, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Sums; of small whole numbers in int64."""
    x = _widened(x, dtype)
    return torch.sum(x, _axes(x, axis), keepdims) if _axes(x, axis) else x.clone()


def prod(x: Tensor, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Products; of small whole numbers in int64."""
    x = _widened(x, dtype)
    return _each_axis(torch.prod, x, axis, keepdims) if _axes(x, axis) else x.clone()


def mean(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Means."""
    return torch.mean(x, _axes(x, axis), keepdims) if _axes(x, axis) else x.clone()


def var(x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Variances: squares about the mean over (their number - correction)."""
    return torch.var(x, _axes(x, axis), correction=correction, keepdim=keepdims) if _axes(x, axis) else torch.zeros_like(x)


def std(x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Standard deviations: the roots of `var`."""
    return torch.sqrt(var(x, axis=axis, correction=correction, keepdims=keepdims))


def all(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether all elements are true."""
    return _each_axis(torch.all, x.to(torch.bool), axis, keepdims)


def any(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether one element is true."""
    return _each_axis(torch.any, x.to(torch.bool), axis, keepdims)


def count_nonzero(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """How many elements are not zero."""
    return sum(x.ne(0).to(torch.int64), axis=axis, keepdims=keepdims)


def cumulative_sum(x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Tensor:
    """Running sums, after a 0 if `include_initial`."""
    return _cumulative(torch.cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Tensor:
    """Running products, after a 1 if `include_initial`."""
    return _cumulative(torch.cumprod, 1, x, axis, dtype, include_initial)


def _cumulative(function: Callable[..., Tensor], start: int, x: Tensor, axis: int | None, dtype: Any, include_initial: bool) -> Tensor:
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"cumulative sums and products need an axis where x is not one-dimensional; it has shape {tuple(x.shape)}")
        axis = 0
    result = function(_widened(x, dtype), axis)
    if include_initial:
        shape = list(x.shape)
        shape[axis] = 1
        result = torch.cat([torch.full(shape, start, dtype=result.dtype), result], axis)
    return result


def diff(x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None) -> Tensor:
    """The n-th differences along an axis."""
    return torch.diff(x, n, axis, prepend, append)


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Where the first of the largest elements is."""
    return torch.argmax(x, axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Where the first of the smallest elements is."""
    return torch.argmin(x, axis, keepdims)


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The indices that sort along an axis."""
    return torch.sort(x, dim=axis, descending=descending, stable=stable).indices  # type: ignore[no-any-return]


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Sorted along an axis."""
    return torch.sort(x, dim=axis, descending=descending, stable=stable).values  # type: ignore[no-any-return]


def searchsorted(x1: Tensor, x2: Any, /, *, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    """Where each of x2 goes into the sorted vector x1."""
    return torch.searchsorted(x1, torch.as_tensor(x2), side=side, sorter=sorter)


def isin(x1: Any, x2: Any, /, *, invert: bool = False) -> Tensor:
    """Whether each element of x1 is among those of x2."""
    return torch.isin(torch.as_tensor(x1), torch.as_tensor(x2), invert=invert)


class UniqueAll(NamedTuple):
    """Distinct values in order, where each was first, which of them each element is, and how often each was there."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """Distinct values and how often each was there."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """Distinct values, and which of them each element is."""

    values: Tensor
    inverse_indices: Tensor


def unique_all(x: Tensor, /) -> UniqueAll:
    """Distinct values with all that is known of them."""
    values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
    flat = inverse.flatten()
    first = torch.full((values.shape[0],), flat.numel(), dtype=torch.int64).scatter_reduce(0, flat, torch.arange(flat.numel()), "amin")
    return UniqueAll(values, first, inverse.reshape(x.shape), counts)


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """Distinct values and their numbers."""
    return UniqueCounts(*torch.unique(x, return_counts=True))


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """Distinct values, and which of them each element is."""
    values, inverse = torch.unique(x, return_inverse=True)
    return UniqueInverse(values, inverse.reshape(x.shape))


def unique_values(x: Tensor, /) -> Tensor:
    """Distinct values, in order."""
    return torch.unique(x)


__all__ = [
    "all", "any", "argmax", "argmin", "argsort", "count_nonzero", "cumulative_prod", "cumulative_sum", "diff", "isin", "max", "mean", "min",
    "prod", "searchsorted", "sort", "std", "sum", "unique_all", "unique_counts", "unique_inverse", "unique_values", "var",
]  # fmt: skip
