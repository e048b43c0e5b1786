"""The indices of sparse tensors: order, duplicates, conversion between layouts, selection by index.

Indices are looked at when they are needed, as `unique` and `nonzero` are; values only ever move by recorded operations, so gradients
follow. An element's *key* is the row-major number of its place among the sparse dims.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeVar, cast

import flambeau as torch
from flambeau import layouts
from flambeau.compiler.graph import contiguous_strides
from flambeau.ops.registry import operation
from flambeau.sparse.tensor import CompressedTensor, CooTensor, SparseTensor, compressed, coo
from flambeau.tensor import Tensor

Body = TypeVar("Body", bound=Callable[..., Any])


def recorded(body: Body) -> Body:
    """Make a composition over dense tensors one recorded edge."""
    return cast(Body, operation(body, name=f"sparse.{body.__name__.lstrip('_')}", public=False))


def keys_of(index: Tensor, sizes: Sequence[int]) -> Tensor:
    """The key of each element: index (sparse dims, nnz) -> (nnz,)."""
    if not sizes:
        return torch.zeros(index.shape[1], dtype=torch.int64)
    return _keys(index, tuple(contiguous_strides(tuple(sizes))))  # type: ignore[no-any-return]


@recorded
def _keys(index: Tensor, strides: tuple[int, ...]) -> Tensor:
    total = index[0] * strides[0]
    for d in range(1, len(strides)):
        total = total + index[d] * strides[d]
    return total  # type: ignore[no-any-return]


@recorded
def places(keys: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """The inverse of keys_of: (nnz,) -> (sparse dims, nnz)."""
    if not sizes:
        return torch.zeros((0, keys.shape[0]), dtype=torch.int64)
    strides = contiguous_strides(sizes)
    return torch.stack([torch.div(keys, max(stride, 1), rounding_mode="floor") % max(size, 1) for size, stride in zip(sizes, strides, strict=True)])


@recorded
def add_groups(data: Tensor, group: Tensor, count: int) -> Tensor:
    """The sums of the rows of `data` in each of `count` groups."""
    if data.dtype is torch.bool:
        return torch.zeros((count, *data.shape[1:]), dtype=torch.uint8).index_add(0, group, data.to(torch.uint8)) > 0
    return torch.zeros((count, *data.shape[1:]), dtype=data.dtype).index_add(0, group, data)  # type: ignore[no-any-return]


def sparse_sizes(t: SparseTensor) -> tuple[int, ...]:
    """The sizes of the sparse dims."""
    return tuple(t.shape)[: t.sparse_dim()]


def dense_sizes(t: SparseTensor) -> tuple[int, ...]:
    """The sizes of the dense dims."""
    return tuple(t.shape)[t.sparse_dim() :]


def merge(index: Tensor, data: Tensor, shape: tuple[int, ...], sparse_dim: int) -> CooTensor:
    """A coalesced tensor: sorted, equal places added up."""
    if data.shape[0] == 0:
        return coo(index, data, shape, True)
    sizes = shape[:sparse_dim]
    keys, inverse = torch.unique(keys_of(index, sizes), return_inverse=True)
    return coo(places(keys, sizes), add_groups(data, inverse, keys.shape[0]), shape, True)


def coalesce(t: Any) -> CooTensor:
    """The same tensor, sorted and without duplicates; `t` itself if it is."""
    if not isinstance(t, CooTensor):
        raise RuntimeError(f"coalesce expected sparse coordinate tensor layout but got {getattr(t, '_kind', 'Strided')}")
    if t._coalesced:
        return t
    return merge(t._index, t._data, tuple(t.shape), t.sparse_dim())


def as_coo(t: SparseTensor) -> CooTensor:
    """Any layout as COO, with the same values in the same order."""
    if isinstance(t, CooTensor):
        return t
    assert isinstance(t, CompressedTensor)
    by_row = t.layout is layouts.sparse_csr
    index = torch.stack((t.major(), t._col) if by_row else (t._col, t.major()))
    return coo(index, t._data, tuple(t.shape), by_row)


def pointers(major: Tensor, count: int) -> Tensor:
    """Sorted row numbers as pointers: where each of `count` rows starts, and the end."""
    return torch.searchsorted(major, torch.arange(count + 1))


def as_compressed(t: SparseTensor, layout: layouts.layout) -> CompressedTensor:
    """A matrix (of numbers, or of dense tensors) as CSR or CSC."""
    if t.layout is layout:
        assert isinstance(t, CompressedTensor)
        return t
    if t.sparse_dim() != 2:
        raise RuntimeError(f"to_{layout.name}: expected two sparse dims, got {t.sparse_dim()} of shape {tuple(t.shape)}; flatten, or stay with COO")
    by_row = layout is layouts.sparse_csr
    c = as_coo(t) if by_row else transposed(as_coo(t), 0, 1)
    c = coalesce(c)
    crow = pointers(c._index[0], c.shape[0])
    return compressed(layout, crow, c._index[1], c._data, tuple(t.shape))


def to_dense(t: SparseTensor) -> Tensor:
    """All elements, zeros included."""
    c = as_coo(t)
    sizes = sparse_sizes(c)
    return add_groups(c._data, keys_of(c._index, sizes), prod(sizes)).reshape(tuple(c.shape))


def from_dense(x: Tensor, sparse_dim: int | None = None) -> CooTensor:
    """The nonzero elements (or, with fewer sparse dims, the slices that are not all zero)."""
    n = x.ndim if sparse_dim is None else sparse_dim
    if not 0 <= n <= x.ndim:
        raise IndexError(f"to_sparse: sparse_dim must be in [0, {x.ndim}], got {n}")
    mask = torch.ne(x.detach(), 0)
    if n < x.ndim:
        mask = mask.flatten(n).any(-1)
    index = torch.nonzero(mask).t().contiguous()
    return coo(index, at(x, index), tuple(x.shape), True)


def at(x: Tensor, index: Tensor) -> Tensor:
    """The elements (or slices) of a dense tensor at the places of an index tensor (dims, nnz)."""
    n = index.shape[0]
    flat = x.reshape((-1, *x.shape[n:]))
    return flat.index_select(0, keys_of(index, tuple(x.shape)[:n]))  # type: ignore[no-any-return]


def masked(x: Tensor, mask: SparseTensor) -> SparseTensor:
    """The elements of `x`, dense or sparse, where `mask` keeps elements."""
    if tuple(x.shape) != tuple(mask.shape):
        raise RuntimeError(f"sparse_mask(): expected self to have the mask's shape {tuple(mask.shape)}, got {tuple(x.shape)}")
    if not isinstance(x, SparseTensor):
        return mask._with(at(x, as_coo(mask)._index))
    own, wanted = coalesce(as_coo(x)), as_coo(mask)
    found, where = look_up(own, wanted._index)
    data = own._data.index_select(0, where) if own._nnz() else torch.zeros((wanted._nnz(), *dense_sizes(own)), dtype=own.dtype)
    keep = found.reshape((-1,) + (1,) * (data.ndim - 1))
    return mask._with(torch.where(keep, data, torch.zeros((), dtype=data.dtype)))


def look_up(t: CooTensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """For each place of `index`: whether the coalesced `t` has an element there, and which."""
    sizes = sparse_sizes(t)
    own, wanted = keys_of(t._index, sizes), keys_of(index, sizes)
    if own.shape[0] == 0:
        return torch.zeros(wanted.shape[0], dtype=torch.bool), torch.zeros(wanted.shape[0], dtype=torch.int64)
    where = torch.searchsorted(own, wanted).clamp(max=own.shape[0] - 1)
    return own.index_select(0, where) == wanted, where


def transposed(t: CooTensor, dim0: int, dim1: int) -> CooTensor:
    """Two dims swapped, both sparse or both dense."""
    from flambeau.tensor import normalize_dim

    order = list(range(t.ndim))
    a, b = normalize_dim(dim0, t.ndim), normalize_dim(dim1, t.ndim)
    if a == b:
        return t
    order[a], order[b] = order[b], order[a]
    return permuted(t, order)


def permuted(t: CooTensor, order: Sequence[int]) -> CooTensor:
    """Dims in another order; sparse dims stay before dense ones."""
    n = t.sparse_dim()
    if sorted(d % t.ndim for d in order) != list(range(t.ndim)):
        raise RuntimeError(f"permute(sparse_coo): {tuple(order)} is no order of {t.ndim} dims")
    order = [d % t.ndim for d in order]
    if any(d >= n for d in order[:n]):
        raise RuntimeError("transpose, permute: transposed dimensions must be both sparse or both dense dims of a sparse tensor")
    index = t._index if order[:n] == list(range(n)) else t._index[order[:n]]
    data = t._data if order[n:] == list(range(n, t.ndim)) else t._data.permute([0, *[d - n + 1 for d in order[n:]]])
    kept = t._coalesced and order[:n] == list(range(n))
    return coo(index, data, tuple(t.shape[d] for d in order), kept)


def ranges(starts: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """All numbers of several ranges, one after the other: (which range, the number)."""
    which = torch.repeat_interleave(torch.arange(counts.shape[0]), counts)
    before = (counts.cumsum(0) - counts - starts).index_select(0, which)
    return which, torch.arange(which.shape[0]) - before


def picked(t: CooTensor, dim: int, index: Tensor) -> CooTensor:
    """index_select: the slices at `index` along a dim, in that order."""
    from flambeau.tensor import normalize_dim

    d, n = normalize_dim(dim, t.ndim), t.sparse_dim()
    shape = list(t.shape)
    shape[d] = index.shape[0]
    if d >= n:
        return coo(t._index, t._data.index_select(d - n + 1, index), tuple(shape), t._coalesced)
    if index.numel() and (int(index.min()) < -t.shape[d] or int(index.max()) >= t.shape[d]):
        raise IndexError(f"index_select(): index out of range for dim {d} of size {t.shape[d]}")
    wanted = torch.where(index < 0, index + t.shape[d], index)
    order = torch.argsort(t._index[d], stable=True)
    starts = pointers(t._index[d].index_select(0, order), t.shape[d])
    first = starts.index_select(0, wanted)
    slot, position = ranges(first, starts.index_select(0, wanted + 1) - first)
    taken = order.index_select(0, position)
    rows = list(t._index.index_select(1, taken).unbind(0))
    rows[d] = slot
    result = coo(torch.stack(rows), t._data.index_select(0, taken), tuple(shape))
    return coalesce(result) if t._coalesced else result


def selected(t: CooTensor, dim: int, position: int) -> Tensor:
    """select: one slice, without the dim. Of a vector's elements, a dense number."""
    from flambeau.tensor import normalize_dim

    t = coalesce(t)
    d, n = normalize_dim(dim, t.ndim), t.sparse_dim()
    size = t.shape[d]
    if not -size <= position < size:
        raise IndexError(f"select(): index {position} out of range for tensor of size {list(t.shape)} at dimension {d}")
    position %= size
    shape = tuple(t.shape[:d]) + tuple(t.shape[d + 1 :])
    if d >= n:
        return coo(t._index, t._data.select(d - n + 1, position), shape, t._coalesced)
    kept = torch.nonzero(t._index[d] == position).view(-1)
    data = t._data.index_select(0, kept)
    if n == 1:
        return data.sum(0)  # type: ignore[no-any-return]
    rows = [row for i, row in enumerate(t._index.unbind(0)) if i != d]
    return coo(torch.stack(rows).index_select(1, kept), data, shape, t._coalesced)


def cut(t: CooTensor, dim: int, start: int, length: int) -> CooTensor:
    """narrow: `length` slices along a dim from `start` on."""
    from flambeau.tensor import normalize_dim

    d, n = normalize_dim(dim, t.ndim), t.sparse_dim()
    if start < 0:
        start += t.shape[d]
    if length < 0 or not 0 <= start <= t.shape[d] - length:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({t.shape[d]}).")
    shape = (*t.shape[:d], length, *t.shape[d + 1 :])
    if d >= n:
        return coo(t._index, t._data.narrow(d - n + 1, start, length), shape, t._coalesced)
    along = t._index[d]
    kept = torch.nonzero((along >= start) & (along < start + length)).view(-1)
    rows = list(t._index.index_select(1, kept).unbind(0))
    rows[d] = rows[d] - start
    return coo(torch.stack(rows), t._data.index_select(0, kept), shape, t._coalesced)


def with_dim(t: CooTensor, dim: int) -> CooTensor:
    """unsqueeze: a dim of size 1, sparse where it comes before or just behind the sparse dims."""
    from flambeau.tensor import normalize_dim

    d, n = normalize_dim(dim, t.ndim + 1), t.sparse_dim()
    shape = (*t.shape[:d], 1, *t.shape[d:])
    if d > n:
        return coo(t._index, t._data.unsqueeze(d - n + 1), shape, t._coalesced)
    zero = torch.zeros((1, t._nnz()), dtype=torch.int64)
    return coo(torch.cat((t._index[:d], zero, t._index[d:])), t._data, shape, t._coalesced)


def joined(tensors: Sequence[Any], dim: int) -> CooTensor:
    """cat along a dim."""
    from flambeau.tensor import normalize_dim

    parts = [as_coo(t) if isinstance(t, SparseTensor) else None for t in tensors]
    first = next(p for p in parts if p is not None)
    for i, p in enumerate(parts):
        if p is None or p.sparse_dim() != first.sparse_dim():
            raise RuntimeError(f"Concatenating sparse tensors, but a dense tensor, or one with other sparse dims, was found at position {i}.")
    d, n = normalize_dim(dim, first.ndim), first.sparse_dim()
    offset, rows, data = 0, [], []
    for p in parts:
        assert p is not None
        if tuple(p.shape[:d]) != tuple(first.shape[:d]) or tuple(p.shape[d + 1 :]) != tuple(first.shape[d + 1 :]):
            raise RuntimeError(f"All tensors must have the same shape: {list(first.shape)} (except in the concatenating dimension), got {list(p.shape)}")
        if d < n:
            shift = torch.tensor([offset if i == d else 0 for i in range(n)]).unsqueeze(1)
            rows.append(p._index + shift)
            data.append(p._data)
        else:
            rows.append(p._index)
            before, after = offset, sum(t.shape[d] for t in tensors) - offset - p.shape[d]
            data.append(_padded(p._data, d - n + 1, before, after))
        offset += p.shape[d]
    shape = (*first.shape[:d], offset, *first.shape[d + 1 :])
    return coo(torch.cat(rows, 1), torch.cat(data), shape)


def _padded(data: Tensor, dim: int, before: int, after: int) -> Tensor:
    """Zeros before and after along a dim."""

    def zeros(count: int) -> Tensor:
        return torch.zeros((*data.shape[:dim], count, *data.shape[dim + 1 :]), dtype=data.dtype)

    return torch.cat((zeros(before), data, zeros(after)), dim)
