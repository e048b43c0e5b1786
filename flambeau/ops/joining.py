"""Joining, cutting and placing: the h/v/d/column stacks and splits, at-least-n-d, block diagonals, products, `*_scatter`.

Most functions are made of public operations, so views stay views and gradients need nothing more; those that place (`*_scatter`) are operations.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from flambeau import dtypes
from flambeau.ops import primitives as prim
from flambeau.ops.concatenated import cat, stack
from flambeau.ops.named import public
from flambeau.ops.promotion import convert
from flambeau.ops.registry import operation
from flambeau.ops.remembered import remembered, remembered_with_axis
from flambeau.ops.shape import (
    checked_index,
    dim_of,
    elements_of_memory,
    flip,
    one_of,
    selected,
    sizes_of,
    sliced,
    strided,
    tensor_split,
    transpose,
    two_dims,
    unsafe_parts,
)  # fmt: skip
from flambeau.ops.tied import tied_to
from flambeau.ops.wrapper import MISSING
from flambeau.queries import contiguous_format
from flambeau.trace.recorder import OffsetNeeded
from flambeau.trace.strides import like_strides

if TYPE_CHECKING:
    from flambeau.ops.registry import Number
    from flambeau.tensor import Tensor


def _each(function: Any, tensors: tuple[Any, ...]) -> Any:
    """`function` of one tensor, or of each of several (PyTorch gives a tuple then)."""
    if len(tensors) == 1 and hasattr(tensors[0], "_meta"):
        return function(tensors[0])
    if len(tensors) == 1:
        tensors = tuple(tensors[0])
    return tuple([function(x) for x in tensors])


def _at_least(x: Tensor, n: int) -> Any:
    ndim = x.ndim
    if ndim >= n:
        return x
    if n == 3 and ndim == 2:
        return x.unsqueeze(2)
    if n == 3 and ndim == 1:
        return x.unsqueeze(0).unsqueeze(2)
    return x.reshape((1,) * n) if ndim == 0 else x.unsqueeze(0)


def atleast_1d(*tensors: Any) -> Any:
    """Each tensor with at least 1 dimension: a view."""
    return _each(lambda x: _at_least(x, 1), tensors)


def atleast_2d(*tensors: Any) -> Any:
    """Each tensor with at least 2 dimensions, a vector as one row: a view."""
    return _each(lambda x: _at_least(x, 2), tensors)


def atleast_3d(*tensors: Any) -> Any:
    """Each tensor with at least 3 dimensions, a vector as (1, n, 1) and a matrix as (m, n, 1): a view."""
    return _each(lambda x: _at_least(x, 3), tensors)


def _some(tensors: Any, name: str) -> None:
    if hasattr(tensors, "_meta"):
        raise TypeError(f"{name}(): argument 'tensors' (position 1) must be tuple of Tensors, not Tensor")
    if not tensors:
        raise RuntimeError(f"{name} expects a non-empty TensorList")


@remembered
def hstack(tensors: Sequence[Tensor], *, out: Any = None) -> Tensor:
    """The tensors side by side: cat along dim 1, or along dim 0 for vectors."""
    _some(tensors, "hstack")
    parts = atleast_1d(list(tensors))
    return cat(parts, 0 if parts[0].ndim == 1 else 1, out=out)  # type: ignore[no-any-return]


@remembered
def vstack(tensors: Sequence[Tensor], *, out: Any = None) -> Tensor:
    """The tensors one below the other: cat along dim 0, vectors as rows."""
    _some(tensors, "vstack")
    return cat(atleast_2d(list(tensors)), 0, out=out)  # type: ignore[no-any-return]


@remembered
def dstack(tensors: Sequence[Tensor], *, out: Any = None) -> Tensor:
    """The tensors behind one another: cat along dim 2, after at-least-3-d."""
    _some(tensors, "dstack")
    return cat(atleast_3d(list(tensors)), 2, out=out)  # type: ignore[no-any-return]


@remembered
def column_stack(tensors: Sequence[Tensor], *, out: Any = None) -> Tensor:
    """cat along dim 1, vectors and numbers as columns."""
    _some(tensors, "column_stack")
    return cat([x.reshape(x.numel(), 1) if x.ndim <= 1 else x for x in tensors], 1, out=out)  # type: ignore[no-any-return]


row_stack = vstack


def _cut(input: Tensor, where: Any, dim: int, name: str) -> tuple[Tensor, ...]:
    if not isinstance(where, (int, list, tuple)) and not hasattr(where, "_meta"):
        raise TypeError(f"{name}(): argument 'indices_or_sections' must be int or a sequence of ints, not {type(where).__name__}")
    if isinstance(where, int) and (where <= 0 or input.shape[dim] % where):
        raise RuntimeError(
            f"torch.{name} attempted to split along dimension {dim}, but the size of the dimension {input.shape[dim]} "
            f"is not divisible by the split_size {where}!"
        )
    return tensor_split(input, where, dim)


def hsplit(input: Tensor, *indices_or_sections: Any, sections: Any = MISSING, indices: Any = MISSING) -> tuple[Tensor, ...]:
    """tensor_split along dim 1 (dim 0 of a vector), into equal parts or at indices."""
    if input.ndim < 1:
        raise RuntimeError("torch.hsplit requires a tensor with at least 1 dimension, but got a tensor with 0 dimensions!")
    return _cut(input, _where("hsplit", indices_or_sections, sections, indices), 0 if input.ndim == 1 else 1, "hsplit")


def vsplit(input: Tensor, *indices_or_sections: Any, sections: Any = MISSING, indices: Any = MISSING) -> tuple[Tensor, ...]:
    """tensor_split along dim 0, into equal parts or at indices."""
    if input.ndim < 2:
        raise RuntimeError(f"torch.vsplit requires a tensor with at least 2 dimension, but got a tensor with {input.ndim} dimensions!")
    return _cut(input, _where("vsplit", indices_or_sections, sections, indices), 0, "vsplit")


def dsplit(input: Tensor, *indices_or_sections: Any, sections: Any = MISSING, indices: Any = MISSING) -> tuple[Tensor, ...]:
    """tensor_split along dim 2, into equal parts or at indices."""
    if input.ndim < 3:
        raise RuntimeError(f"torch.dsplit requires a tensor with at least 3 dimension, but got a tensor with {input.ndim} dimensions!")
    return _cut(input, _where("dsplit", indices_or_sections, sections, indices), 2, "dsplit")


def _where(function: str, given: tuple[Any, ...], sections: Any, indices: Any) -> Any:
    listed = MISSING if not given else given[0] if len(given) == 1 else given
    return one_of(function, indices_or_sections=listed, sections=sections, indices=indices)


def block_diag(*tensors: Any) -> Any:
    """The matrices (vectors as rows) as blocks on the diagonal of a matrix of zeros."""
    parts = [atleast_2d(x) for x in tensors]
    for i, x in enumerate(parts):
        if x.ndim > 2:
            raise RuntimeError(f"torch.block_diag: Input tensors must have 2 or fewer dimensions. Input {i} has {x.ndim} dimensions")
    width = sum(x.shape[1] for x in parts)
    rows, left = [], 0
    for x in parts:
        right = width - left - x.shape[1]
        rows.append(cat([x.new_zeros((x.shape[0], left)), x, x.new_zeros((x.shape[0], right))], 1))
        left += x.shape[1]
    return cat(rows, 0)


def cartesian_prod(*tensors: Tensor) -> Any:
    """All combinations of one element of each vector, one a row; the vector itself if there is but one."""
    from flambeau.ops.sorting import meshgrid

    for x in tensors:
        if x.ndim != 1:
            raise RuntimeError(f"Expect a 1D vector, but got shape {list(x.shape)}")
    if len(tensors) == 1:
        return tensors[0]
    return stack([g.reshape(-1) for g in meshgrid(*tensors, indexing="ij")], 1)


def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Any:
    """All choices of r elements of a vector, in its order, one a row."""
    from flambeau.ops.creation import check_memory
    from flambeau.ops.from_data import tensor

    if input.ndim != 1:
        raise RuntimeError(f"combinations(): Expect a 1D vector, but got shape {list(input.shape)}")
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    if r == 0:
        return input.new_empty((0,))
    n = input.shape[0]
    count = math.comb(n + r - 1, r) if with_replacement and n else math.comb(n, r)
    check_memory((max(count, 1), r), input.dtype)
    if not count:
        return tied_to(input.new_empty((0, r)), input)
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(choose(range(input.shape[0]), r))
    return input.index_select(0, tensor([i for row in rows for i in row], device=input.device)).reshape(len(rows), r)


def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Any:
    """Turned k times by 90 degrees in the plane of two dims, from the first towards the second."""
    if len(dims) != 2:
        raise RuntimeError(f"rot90(): expected total rotation dims == 2, but got dims = {len(dims)}")
    if input.ndim < 2:
        raise RuntimeError(f"rot90(): expected total dims >= 2, but got total dims = {input.ndim}")
    a, b = dim_of(dims[0], input.ndim), dim_of(dims[1], input.ndim)
    if a == b:
        raise RuntimeError(f"rot90(): expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}")
    turns = k % 4
    if turns == 1:
        return transpose(flip(input, b), a, b)
    if turns == 2:
        return flip(input, a, b)
    if turns == 3:
        return transpose(flip(input, a), a, b)
    return input.clone(memory_format=contiguous_format)


def diagflat(input: Tensor, offset: int = 0) -> Any:
    """The flattened tensor as a diagonal of a matrix."""
    return input.reshape(-1).diag(offset)


def _placed(input: Tensor, src: Tensor, view: Callable[[Any], Any], name: str, everything: bool = False) -> Any:
    """A copy of input with its very strides, in which `view` of it is replaced by src. `everything`: of all the memory that it is a part of, as PyTorch's.

    A body, and no write in place: PyTorch's node of it keeps nothing, where one of a write by a view keeps what the view was of.
    """
    m = input._meta
    back = None
    if (m.is_dense and not everything) or any(s == 0 and n > 1 for s, n in zip(m.strides, m.shape, strict=True)):
        base = prim.copy(input, strides=like_strides(m.shape, m.strides))
    else:  # gaps between its elements are kept, too
        start, offset = (0, m.offset) if everything else (m.offset, 0)
        length = elements_of_memory(input) if everything else 1 + sum([(n - 1) * s for n, s in zip(m.shape, m.strides, strict=True)])
        if m.dynamic:
            raise OffsetNeeded
        base = prim.copy(prim.as_strided(input, shape=(max(length, 0),), strides=(1,), offset=start), strides=(1,))
        back = {"shape": tuple(m.shape), "strides": m.strides, "offset": offset}
    target = view(base if back is None else prim.as_strided(base, **back))
    if tuple(target._meta.shape) != tuple(src._meta.shape):
        raise RuntimeError(
            f"{name}: expected src to have a size equal to the slice of self. src size = {list(src.shape)}, slice size = {list(target._meta.shape)}"
        )
    written = prim.scatter_view(base, convert(src, m.dtype), target)
    return written if back is None else prim.as_strided(written, **back)


@operation(name="select_scatter")
def _select_scatter(input: Tensor, src: Tensor, index: Number, dim: int) -> Tensor:
    return _placed(input, src, lambda x: selected(x, index, dim), "select_scatter")  # type: ignore[no-any-return]


@remembered_with_axis
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Any:
    """A copy with `src` at one index of a dim. A changing index compiles nothing."""
    d, i = checked_index(input, dim, index)
    return _select_scatter(input, src, i, d)


@operation(name="slice_scatter")
def _slice_scatter(input: Tensor, src: Tensor, start: Number, dim: int, length: int, step: int) -> Tensor:
    return _placed(input, src, lambda x: sliced(x, dim, start, length, step), "slice_scatter")  # type: ignore[no-any-return]


@public("slice_scatter")
@remembered
def slice_scatter(input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    """A copy with `src` in the slice start:end:step of a dim."""
    d = dim_of(dim, input.ndim)
    if step <= 0:
        raise RuntimeError(f"slice_scatter(): step must be positive, got {step}")
    first, last, _ = slice(start, end, step).indices(input._meta.shape[d])
    return _slice_scatter(input, src, first, d, len(range(first, last, step)), step)


@operation(method=True)
def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A copy with `src` on a diagonal."""
    a, b = two_dims(input._meta.ndim, dim1, dim2)
    return _placed(input, src, lambda x: prim.diagonal(x, offset=offset, dim1=a, dim2=b), "diagonal_scatter")  # type: ignore[no-any-return]


@operation(method=True)
def as_strided_scatter(input: Tensor, src: Tensor, size: tuple[int, ...], stride: tuple[int, ...], storage_offset: int | None = None) -> Tensor:
    """A copy with `src` in as_strided of it, over all the memory that it is a part of."""
    if input._meta.dynamic:
        raise OffsetNeeded
    offset = input._meta.offset if storage_offset is None else storage_offset
    return _placed(input, src, lambda x: strided(x, size, stride, offset), "as_strided_scatter", everything=True)  # type: ignore[no-any-return]


def unravel_index(indices: Tensor, shape: Any) -> tuple[Any, ...]:
    """Flat indices into an array of `shape` (row-major) as one tensor of coordinates a dimension."""
    if indices.dtype.category != 1:
        raise TypeError(f"unravel_index(): expected 'indices' to be integer dtype, but got {indices.dtype}")
    if not isinstance(shape, (int, Sequence)) or isinstance(shape, str):
        raise TypeError(f"unravel_index(): expected 'shape' to be int or sequence of ints, but got {type(shape)}")
    for s in () if isinstance(shape, int) else shape:
        if not isinstance(s, int):
            raise TypeError(f"unravel_index(): expected 'shape' sequence to only contain ints, but got {type(s)}")
    sizes = sizes_of((shape,)) if not isinstance(shape, int) else (shape,)
    if any(s < 0 for s in sizes):
        raise ValueError(f"unravel_index(): 'shape' cannot have negative values, but got {shape}")
    indices, found = indices.to(dtypes.int64), []
    for i, size in enumerate(sizes):
        inner = math.prod(sizes[i + 1 :])
        found.append(indices.floor_divide(inner).remainder(size))
    return stack(found, -1).unbind(-1) if found else ()  # type: ignore[no-any-return]


def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> Any:
    """chunk, whose parts may be written to with gradients; they are as safe as those of slices."""
    return unsafe_parts(input, input.chunk(chunks, dim), dim)


def unsafe_split(input: Tensor, split_size: int, dim: int = 0) -> Any:
    """split, whose parts may be written to with gradients; they are as safe as those of slices."""
    return unsafe_parts(input, input.split(split_size, dim), dim)


def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Any:
    """The first `size` rows of nonzero, filled up with rows of fill_value."""
    from flambeau.ops.selection import nonzero

    if size < 0:
        raise RuntimeError(f"nonzero_static: 'size' must be a non-negative integer, got {size}")
    if input.is_meta:
        return input.new_empty((size, input.ndim), dtype=dtypes.int64)
    found = nonzero(input)[:size]
    missing = size - found.shape[0]
    if not missing:
        return found.clone(memory_format=contiguous_format)
    return cat([found, found.new_full((missing, input.ndim), fill_value)], 0)


def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Any:
    """A copy with elements, found by their index in the flattened tensor, replaced by (or increased by) source's."""
    if index.dtype is not dtypes.int64:
        raise IndexError(f"put_(): Expected a long tensor for index, but got {index.dtype}")
    if index.numel() != source.numel():
        raise IndexError(
            f"put_(): Expected source and index to have the same number of elements, but got source.numel() = {source.numel()}, index.numel() = {index.numel()}"
        )
    target = input.clone()
    flat = target.reshape(-1).index_put((index.reshape(-1),), source.reshape(-1), accumulate)
    return target.copy_(flat.reshape(input.shape))


METHODS = (
    hsplit, vsplit, dsplit, rot90, diagflat, select_scatter, slice_scatter, unsafe_chunk, unsafe_split, nonzero_static, put,
)  # fmt: skip
FUNCTIONS = (
    *METHODS, atleast_1d, atleast_2d, atleast_3d, hstack, vstack, dstack, column_stack, block_diag, cartesian_prod,
    combinations, unravel_index,
)  # fmt: skip
