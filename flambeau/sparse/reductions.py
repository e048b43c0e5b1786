"""Sums, softmax and norms of sparse tensors: over values, grouped by the indices that remain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau.sparse.structure import add_groups, as_coo, coalesce, keys_of, places, recorded
from flambeau.sparse.tensor import CooTensor, SparseTensor, coo
from flambeau.tensor import Tensor, normalize_dim

Dims = int | Sequence[int] | None


def sum(input: Tensor, dim: Dims = None, dtype: Any = None) -> Tensor:
    """The sum over all elements (dense), or over some dims: sparse while a sparse dim remains."""
    return summed(input, dim, False, dtype)


def summed(input: Any, dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """sum with `keepdim`."""
    if not isinstance(input, SparseTensor):
        return torch.sum(input, dim, keepdim, dtype=dtype) if dim is not None else torch.sum(input, dtype=dtype)
    data = input._data if dtype is None else input._data.to(dtype)
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return data.sum()  # type: ignore[no-any-return]
    c = coalesce(as_coo(input._with(data)))
    n = c.sparse_dim()
    dims = {normalize_dim(d, c.ndim) for d in ((dim,) if isinstance(dim, int) else dim)}
    over = [d - n + 1 for d in sorted(dims) if d >= n]
    data = c._data.sum(over, keepdim=keepdim) if over else c._data
    kept = [d for d in range(n) if d not in dims]
    shape = tuple([1 if d in dims else c.shape[d] for d in range(c.ndim) if keepdim or d not in dims])
    if not kept and not keepdim:
        return data.sum(0)  # type: ignore[no-any-return]
    if len(kept) == n:
        return coo(c._index, data, shape, True)
    sizes = tuple(c.shape[d] for d in kept)
    keys, inverse = torch.unique(keys_of(c._index[kept], sizes), return_inverse=True)
    rows = list(places(keys, sizes).unbind(0))
    if keepdim:
        zero = torch.zeros_like(keys)
        rows = [zero if d in dims else rows[kept.index(d)] for d in range(n)]
    return coo(torch.stack(rows), add_groups(data, inverse, keys.shape[0]), shape, True)


@recorded
def _normalised(data: Tensor, group: Tensor, count: int, logarithm: bool) -> Tensor:
    """softmax (or its logarithm) of the rows of `data` within each group, column by column."""
    wide = group.reshape((-1,) + (1,) * (data.ndim - 1)).expand(data.shape)
    lowest = torch.full((count, *data.shape[1:]), float("-inf"), dtype=data.dtype)
    highest = lowest.scatter_reduce(0, wide, data.detach(), "amax")
    shifted = data - highest.index_select(0, group)
    exponential = shifted.exp()
    total = torch.zeros((count, *data.shape[1:]), dtype=data.dtype).index_add(0, group, exponential)
    if logarithm:
        return shifted - total.log().index_select(0, group)  # type: ignore[no-any-return]
    return exponential / total.index_select(0, group)  # type: ignore[no-any-return]


def _softmax(input: Any, dim: int, dtype: Any, logarithm: bool) -> Tensor:
    if not isinstance(input, SparseTensor):
        raise RuntimeError(f"torch.sparse.softmax: expected a sparse tensor, got layout {input.layout}; use torch.softmax")
    c: CooTensor = coalesce(as_coo(input if dtype is None else input._with(input._data.to(dtype))))
    d, n = normalize_dim(dim, c.ndim), c.sparse_dim()
    if d >= n:
        function = torch.log_softmax if logarithm else torch.softmax
        return c._with(function(c._data, d - n + 1))
    rest = [i for i in range(n) if i != d]
    keys, inverse = torch.unique(keys_of(c._index[rest] if rest else c._index[:0], [c.shape[i] for i in rest]), return_inverse=True)
    return c._with(_normalised(c._data, inverse, keys.shape[0], logarithm))


def softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """softmax over the elements that are there: what is not counts as minus infinity. The result is sparse and coalesced."""
    return _softmax(input, dim, dtype, False)


def log_softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """The logarithm of `softmax`."""
    return _softmax(input, dim, dtype, True)


def norm(input: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """The norm of all values of the coalesced tensor."""
    if dim is not None:
        raise NotImplementedError("norm: of a sparse tensor over all dims only; use to_dense() or torch.sparse.sum")
    c = coalesce(as_coo(input))
    return torch.norm(c._data.reshape(-1), 2 if p == "fro" else p, dtype=dtype)
