"""Sorting and searching. Results whose size depends on values (nonzero, unique, ...) are in selection.py."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from flambeau import dtypes
from flambeau.compiler.graph import contiguous_strides
from flambeau.ops import primitives as prim
from flambeau.ops.at_hand import at_hand, within
from flambeau.ops.dtype_rules import refuse_dtype
from flambeau.ops.named import public
from flambeau.ops.primitive import laid_out
from flambeau.ops.promotion import convert, need_order, promote_float
from flambeau.ops.reductions import _pair, kthvalue_result, median_result, mode_result, nanmedian_result
from flambeau.ops.registry import operation
from flambeau.ops.remembered import remembered, remembered_with_axis
from flambeau.ops.result_strides import like_input
from flambeau.ops.selection import (
    argwhere,
    bincount,
    histc,
    masked_select,
    nonzero,
    repeat_interleave,
    unique,
    unique_consecutive,
)  # fmt: skip
from flambeau.ops.shape import as_shape, contiguous_of, dim_of, one_of
from flambeau.ops.tied import tied
from flambeau.ops.wrapper import MISSING, numpy_names
from flambeau.queries import iinfo
from flambeau.trace.blank import no_data
from flambeau.trace.mutation import into
from flambeau.trace.once import warn_once
from flambeau.trace.strides import like_strides

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

sort_result, topk_result = _pair("sort"), _pair("topk")


def _sorted(x: Any, dim: int, descending: bool) -> tuple[Any, Any]:
    m = x._meta
    d = dim_of(dim, m.ndim)
    need_order("sort", x, RuntimeError)
    if m.ndim == 0:
        return prim.copy(x, strides=()), prim.zeros_of((), dtypes.int64)
    return prim.sort(x, dim=d, descending=descending)  # type: ignore[no-any-return]


@operation(name="sort_values")
@like_input
def _sort(input: Tensor, dim: int, descending: bool) -> tuple[Tensor, Tensor]:
    return sort_result(*_sorted(input, dim, descending))  # type: ignore[no-any-return]


@numpy_names
def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False, *, out: Any = None) -> Any:
    """Values in order along a dim, and where they came from. Always stable; NaN counts as the largest."""
    return into(out, _sort(input, dim, bool(descending)), _sort.operation.name)


@operation(method=True)
@like_input
def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """The indices that sort along a dim."""
    return _sorted(input, dim, descending)[1]  # type: ignore[no-any-return]


@operation(method=True, out=True)
@like_input
def msort(input: Tensor) -> Tensor:
    """Sorted along the first dim."""
    return _sorted(input, 0, False)[0]  # type: ignore[no-any-return]


@operation(method=True, out=True)
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, Tensor]:
    """The k largest (or smallest) values along a dim, in order, and their indices."""
    m = input._meta
    d = dim_of(dim, m.ndim)
    size = m.shape[d] if m.ndim else 1
    if not 0 <= k <= size:
        raise RuntimeError(f"selected index k out of range: topk of k={k} on a dimension of size {size} (shape {tuple(m.shape)})")
    need_order("topk", input, RuntimeError)
    if m.ndim == 0:
        return topk_result(prim.copy(input, strides=()), prim.zeros_of((), dtypes.int64))  # type: ignore[no-any-return]
    return topk_result(*prim.topk(input, dim=d, k=k, largest=largest))  # type: ignore[no-any-return]


def _at(x: Any, d: int, i: int, keepdim: bool) -> Any:
    part = prim.slice(x, dim=d, start=i, length=1, step=1)
    if keepdim:
        return contiguous_of(part) if not part._meta.is_contiguous else prim.copy(part, strides=contiguous_strides(part._meta.shape))
    shape = tuple([s for j, s in enumerate(x._meta.shape) if j != d])
    return as_shape(prim.copy(part, strides=contiguous_strides(part._meta.shape)), shape)


@operation(method=True, out=True)
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The k-th smallest value along a dim (k from 1) and its index."""
    m = input._meta
    d = dim_of(dim, m.ndim)
    _need_elements("kthvalue", input, dim)
    if m.ndim == 0 and k == 1:
        return kthvalue_result(prim.copy(input, strides=()), prim.zeros_of((), dtypes.int64))  # type: ignore[no-any-return]
    size = m.shape[d] if m.ndim else 1
    if not 1 <= k <= size:
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {d}: k={k}, size {size}")
    need_order("kthvalue", input)
    values, indices = prim.sort(input, dim=d, descending=False)
    return kthvalue_result(_at(values, d, k - 1, keepdim), _at(indices, d, k - 1, keepdim))  # type: ignore[no-any-return]


def _need_elements(name: str, input: Tensor, dim: int) -> None:
    """PyTorch's IndexError where a dim without elements is to be searched; it looks at nothing else before."""
    m = input._meta
    d = dim_of(dim, m.ndim)
    if m.ndim and not m.shape[d]:
        raise IndexError(f"{name}(): Expected reduction dim {d} to have non-zero size, got shape {tuple(m.shape)}")


@operation(name="median_over")
def _median_over(input: Tensor, dim: int, keepdim: bool, ignore_nan: bool) -> tuple[Tensor, Tensor]:
    m = input._meta
    d = dim_of(dim, m.ndim)
    if m.ndim == 0:
        return (nanmedian_result if ignore_nan else median_result)(prim.copy(input, strides=()), prim.zeros_of((), dtypes.int64))  # type: ignore[no-any-return]
    need_order("nanmedian" if ignore_nan else "median", input)
    values, indices = prim.sort(input, dim=d, descending=False)
    size = m.shape[d]
    wide = tuple([1 if j == d else s for j, s in enumerate(m.shape)])
    middle = (size - 1) // 2
    where_ = prim.full_of(wide, prim.constant(middle, dtypes.int64))
    if m.dtype.is_floating_point:
        bad = prim.isnan(input)
        count = as_shape(prim.sum(convert(bad, dtypes.int64), dims=(d,)), wide)
        if ignore_nan:
            left = prim.sub(prim.constant(size - 1, dtypes.int64), count)
            where_ = prim.div_trunc(prim.maximum(left, prim.constant(0, dtypes.int64)), prim.constant(2, dtypes.int64))
        else:  # NaN sorts last: with one in the row the median is the first NaN
            first = prim.sub(prim.constant(size, dtypes.int64), count)
            where_ = prim.where(prim.gt(count, prim.constant(0, dtypes.int64)), first, where_)
    chosen = prim.gather(values, where_, dim=d), prim.gather(indices, where_, dim=d)
    if not keepdim:
        shape = tuple([s for j, s in enumerate(m.shape) if j != d])
        chosen = as_shape(chosen[0], shape), as_shape(chosen[1], shape)
    return (nanmedian_result if ignore_nan else median_result)(*chosen)  # type: ignore[no-any-return]


@operation(name="median_all")
def _median_all(input: Tensor, ignore_nan: bool) -> Tensor:
    """Of all elements. The gradient is shared by the elements that equal it, as in PyTorch: the value goes on as an extreme of those."""
    m = input._meta
    if not m.numel:  # PyTorch's NaN, in a dtype that has none what the processor makes of it
        least = math.nan if m.dtype.category > 1 else iinfo(m.dtype).min if m.dtype.itemsize >= 4 else 0
        return tied(prim.full_of((), prim.constant(least, m.dtype)), input)  # type: ignore[no-any-return]
    value = _median_over(as_shape(input, (m.numel,)), 0, False, ignore_nan)[0]
    if not input.requires_grad:
        return value  # type: ignore[no-any-return]
    value = prim.detach(value)
    same = prim.bitwise_or(prim.eq(input, value), prim.bitwise_and(prim.isnan(input), prim.isnan(value)))
    dims = tuple(range(m.ndim))
    low, high = (prim.constant(sign * math.inf, m.dtype) for sign in (-1, 1))
    greatest, least_ = prim.amax(prim.where(same, input, low), dims=dims), prim.amin(prim.where(same, input, high), dims=dims)
    return prim.where(prim.eq(value, low), least_, greatest)  # type: ignore[no-any-return]


@remembered_with_axis
def median(input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """The lower median: of all elements, or along a dim with its indices. NaN wins."""
    if dim is None:
        if out is not None:
            raise TypeError("median() received an invalid combination of arguments: out= takes the values and the indices along a 'dim', which is not given")
        return _median_all(input, False)
    _need_elements("median", input, dim)
    return into(out, _median_over(input, dim, keepdim, False), "median")


@numpy_names
def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """The lower median of what is not NaN."""
    if dim is None:
        if out is not None:
            raise TypeError("nanmedian() received an invalid combination of arguments: out= takes the values and the indices along a 'dim', which is not given")
        return _median_all(input, True)
    _need_elements("nanmedian", input, dim)
    return into(out, _median_over(input, dim, keepdim, True), "nanmedian")


@operation(method=True, out=True)
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The most frequent value along a dim (the smallest of equally frequent ones) and the index of its last occurrence."""
    m = input._meta
    d = dim_of(dim, m.ndim)
    _need_elements("mode", input, dim)
    if m.ndim == 0:
        return mode_result(prim.copy(input, strides=()), prim.zeros_of((), dtypes.int64))  # type: ignore[no-any-return]
    need_order("mode", input)
    values, indices = prim.sort(input, dim=d, descending=False)
    size = m.shape[d]
    shape = tuple(m.shape)
    index = prim.expand(as_shape(prim.iota(shape=(size,), dim=0), tuple([size if j == d else 1 for j in range(m.ndim)])), shape=shape)
    if size > 1:
        one = tuple([1 if j == d else s for j, s in enumerate(shape)])
        head = prim.slice(values, dim=d, start=0, length=size - 1, step=1)
        tail = prim.slice(values, dim=d, start=1, length=size - 1, step=1)
        starts = prim.concatenate(prim.full_of(one, prim.constant(True, dtypes.bool_)), prim.ne(head, tail), dim=d)
        begin, _ = prim.cummax(prim.where(starts, index, 0), dim=d)
    else:
        begin = prim.copy(prim.sub(index, index), strides=contiguous_strides(shape))
    run = prim.sub(index, begin)
    best = prim.argmax(run, dims=(d,))
    best = as_shape(best, tuple([1 if j == d else s for j, s in enumerate(shape)]))
    found = prim.gather(values, best, dim=d), prim.gather(indices, best, dim=d)
    if not keepdim:
        squeezed = tuple([s for j, s in enumerate(shape) if j != d])
        found = as_shape(found[0], squeezed), as_shape(found[1], squeezed)
    return mode_result(*found)  # type: ignore[no-any-return]


@operation(name="quantile_values")
def _quantile(input: Tensor, q: Tensor, dim: int | None, keepdim: bool, interpolation: str, ignore_nan: bool) -> Tensor:
    x = as_shape(input, (input._meta.numel,)) if dim is None or input._meta.ndim == 0 else input
    d = dim_of(0 if dim is None else dim, x._meta.ndim)
    order = [j for j in range(x._meta.ndim) if j != d] + [d]
    rows = prim.permute(x, dims=tuple(order))
    values, _ = prim.sort(rows, dim=rows._meta.ndim - 1, descending=False)
    size = values._meta.shape[-1]
    lead = tuple(values._meta.shape[:-1])
    count = q._meta.numel
    ranks = as_shape(q, (count,) + (1,) * len(lead))
    bad = prim.sum(convert(prim.isnan(values), dtypes.int64), dims=(len(lead),))
    if ignore_nan:
        last = convert(prim.maximum(prim.sub(prim.constant(size - 1, dtypes.int64), bad), prim.constant(0, dtypes.int64)), x.dtype)
        position = prim.mul(ranks, last)
    else:
        position = prim.mul(prim.expand(ranks, shape=(count, *lead)), prim.constant(size - 1, x.dtype))
        position = prim.where(prim.gt(bad, prim.constant(0, dtypes.int64)), float(size - 1), position)
    position = prim.expand(position, shape=(count, *lead)) if tuple(position._meta.shape) != (count, *lead) else position
    below = prim.floor(position)
    if interpolation == "nearest":
        below = prim.round(position)
    elif interpolation == "higher":
        below = prim.ceil(position)
    to_last = (*range(1, len(lead) + 1), 0)
    at = convert(prim.permute(below, dims=to_last), dtypes.int64)
    low = prim.gather(values, at, dim=len(lead))
    result = low
    if interpolation in ("linear", "midpoint"):
        above = convert(prim.permute(prim.ceil(position), dims=to_last), dtypes.int64)
        high = prim.gather(values, above, dim=len(lead))
        weight = prim.permute(prim.sub(position, below), dims=to_last)
        if interpolation == "midpoint":
            weight = prim.where(prim.gt(weight, 0), 0.5, weight)
        result = prim.where(
            prim.lt(weight, 0.5), prim.add(low, prim.mul(weight, prim.sub(high, low))),
            prim.sub(high, prim.mul(prim.sub(high, low), prim.sub(prim.constant(1, x.dtype), weight))),
        )  # fmt: skip
    result = prim.permute(result, dims=(len(lead), *range(len(lead))))
    if keepdim:
        wide = [1] * input._meta.ndim if dim is None or input._meta.ndim == 0 else [1 if j == d else s for j, s in enumerate(x._meta.shape)]
        result = as_shape(result, (count, *wide))
    else:
        result = as_shape(result, (count, *lead))
    if not q._meta.ndim:
        return as_shape(result, tuple(result._meta.shape[1:]))
    inner = contiguous_strides((*result._meta.shape[1:], count))  # PyTorch has the quantiles of one row side by side
    return laid_out(result, (inner[-1], *inner[:-1]))  # type: ignore[no-any-return]


def _quantiles(input: Tensor, q: Any, dim: int | None, keepdim: bool, interpolation: str, ignore_nan: bool, name: str) -> Tensor:
    from flambeau.ops.autocast_lists import float32_under_autocast
    from flambeau.ops.from_data import tensor

    input = float32_under_autocast(input)
    if interpolation not in ("linear", "lower", "higher", "midpoint", "nearest"):
        raise RuntimeError(f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, but got {interpolation}")
    if not hasattr(q, "_meta"):
        if not 0 <= q <= 1:
            raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {q}")
        q = tensor(q, dtype=input.dtype, device=input.device)
    if q.ndim > 1:
        raise RuntimeError(f"{name}() q must be a scalar or 1D tensor, got shape {tuple(q.shape)}")
    if input.dtype not in (dtypes.float32, dtypes.float64):
        raise RuntimeError(f"{name}() input tensor must be either float or double dtype")
    if q.dtype is not input.dtype:
        raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor, got {q.dtype} and {input.dtype}")
    if q.device != input.device:
        raise RuntimeError(f"{name}() q tensor must be on the same device as the input tensor, got {q.device} and {input.device}")
    if input.numel() == 0:
        raise RuntimeError(f"{name}() input tensor must be non-empty")
    if at_hand(q) and not within(q, 0.0, 1.0):
        raise RuntimeError(f"{name}() q values must be in the range [0, 1]")
    return _quantile(input, q, dim, keepdim, interpolation, ignore_nan)  # type: ignore[no-any-return]


@numpy_names
def quantile(input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear", out: Any = None) -> Tensor:
    """The q-quantiles of all elements or along a dim. NaN wins."""
    return into(out, _quantiles(input, q, dim, keepdim, interpolation, False, "quantile"), "quantile")


@numpy_names
def nanquantile(input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear", out: Any = None) -> Tensor:
    """The q-quantiles of what is not NaN."""
    return into(out, _quantiles(input, q, dim, keepdim, interpolation, True, "nanquantile"), "nanquantile")


@operation(name="searchsorted_values")
def _searchsorted(sorted_sequence: Tensor, values: Tensor, right: bool) -> Tensor:
    return prim.searchsorted(contiguous_of(sorted_sequence), values, right=right)


@remembered
def searchsorted(sorted_sequence: Tensor, input: Tensor | Any, *, out_int32: bool = False, right: bool = False, side: str | None = None,
                 sorter: Tensor | None = None, out: Any = None) -> Tensor:  # fmt: skip
    """Where values would be inserted into sorted rows: before equals, or after them with right=True."""
    from flambeau.ops.from_data import tensor

    if side not in (None, "left", "right"):
        raise RuntimeError(f"searchsorted(): side can only be 'left' or 'right' but got {side}")
    if side == "left" and right:
        raise RuntimeError("searchsorted(): side and right can't be set to opposites, got side of left while right was True")
    if sorter is not None:
        sorted_sequence = sorted_sequence.gather(-1, sorter)  # type: ignore[attr-defined]
    if isinstance(input, complex) or (hasattr(input, "_meta") and input.is_complex()) or sorted_sequence.is_complex():
        raise NotImplementedError("searchsorted() is not implemented for complex numbers: they have no order")
    values = input if hasattr(input, "_meta") else tensor(input, dtype=sorted_sequence.dtype)
    if sorted_sequence.ndim == 0 or (sorted_sequence.ndim > 1 and values.ndim == 0):
        raise RuntimeError(
            f"searchsorted(): boundaries tensor should have positive dimension, and input value can be a scalar only when boundaries tensor dimension is 1, "
            f"but we got boundaries tensor {list(sorted_sequence.shape)} and input value {list(values.shape)}"
        )
    if sorted_sequence.ndim > 1 and tuple(values.shape[:-1]) != tuple(sorted_sequence.shape[:-1]):
        raise RuntimeError(
            f"searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor and input "
            f"value tensor must match, but we got boundaries tensor {list(sorted_sequence.shape)} and input value tensor {list(values.shape)}"
        )
    kind = dtypes.promote_types(sorted_sequence.dtype, values.dtype)
    result = _searchsorted(sorted_sequence.to(kind), values.to(kind), right or side == "right")  # type: ignore[attr-defined]
    return into(out, result.to(dtypes.int32) if out_int32 else result, "searchsorted")


def bucketize(input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False, out: Any = None) -> Tensor:
    """The index of the bucket between boundaries (1-d, sorted) that each element falls into."""
    if boundaries.ndim != 1:
        raise RuntimeError(f"bucketize(): boundaries tensor must be 1 dimension, but got dim({boundaries.ndim}) (shape {tuple(boundaries.shape)})")
    return searchsorted(boundaries, input, out_int32=out_int32, right=right, out=out)


# -- membership and grids --------------------------------------------------------------------------------------------


@operation(name="isin", public=False)
def _isin(elements: Tensor, test_elements: Tensor, invert: bool) -> Tensor:
    refuse_dtype("isin", test_elements.dtype)
    kind = dtypes.promote_types(elements.dtype, test_elements.dtype)
    values = as_shape(convert(test_elements, kind), (test_elements._meta.numel,))
    x = as_shape(convert(elements, kind), (*elements._meta.shape, 1))
    if test_elements._meta.numel == 0:
        found = prim.full_of(tuple(elements._meta.shape), prim.constant(False, dtypes.bool_))
    else:
        found = prim.amax(prim.eq(x, values), dims=(elements._meta.ndim,))
    return prim.bitwise_not(found) if invert else found


@public("isin")
def isin(
    elements: Any = MISSING, test_elements: Any = MISSING, *, assume_unique: bool = False, invert: bool = False, element: Any = MISSING,
    test_element: Any = MISSING,
) -> Tensor:  # fmt: skip
    """Whether each element is among the test elements; either may be a number, then also called `element` or `test_element`."""
    from flambeau.ops.from_data import tensor

    given = one_of("isin", elements=elements, element=element), one_of("isin", test_elements=test_elements, test_element=test_element)
    if not any(hasattr(x, "_meta") for x in given):
        raise TypeError(f"isin() received an invalid combination of arguments: elements or test_elements must be a Tensor, got {given}")
    return _isin(*[x if hasattr(x, "_meta") else tensor(x) for x in given], invert)  # type: ignore[no-any-return]


@operation(name="one_hot_values")
def _one_hot(input: Tensor, classes: int) -> Tensor:
    index = as_shape(convert(input, dtypes.int64), (*input._meta.shape, 1))
    return convert(prim.eq(index, prim.iota(shape=(classes,), dim=0)), dtypes.int64)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """A new last dim with 1 at the class of each element (int64), else 0."""
    if tensor.dtype is not dtypes.int64:
        raise RuntimeError(f"one_hot is only applicable to index tensor of type LongTensor, got {tensor.dtype}; convert it with .long()")
    if tensor.numel() == 0:
        if num_classes <= 0:
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        return _one_hot(tensor, num_classes)  # type: ignore[no-any-return]
    if int(tensor.min().item()) < 0:  # type: ignore[attr-defined]
        raise RuntimeError("Class values must be non-negative.")
    largest = int(tensor.max().item())  # type: ignore[attr-defined]
    if num_classes == -1:
        num_classes = largest + 1
    elif largest >= num_classes:
        raise RuntimeError("Class values must be smaller than num_classes.")
    return _one_hot(tensor, num_classes)  # type: ignore[no-any-return]


@remembered
def meshgrid(*tensors: Tensor | Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    """Coordinate grids of vectors: views, with matrix ("ij", default) or Cartesian ("xy") order of the first two dims."""
    parts = list(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else list(tensors)
    if indexing not in (None, "ij", "xy"):
        raise RuntimeError(f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    elif indexing is None:
        warn_once("torch.meshgrid: in an upcoming release, it will be required to pass the indexing argument.")
    if not parts:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    for x in parts:
        if x.dtype is not parts[0].dtype:
            raise RuntimeError(f"meshgrid expects all tensors to have the same dtype, got {[y.dtype for y in parts]}")
        if x.device != parts[0].device:
            raise RuntimeError(f"meshgrid expects all tensors to have the same device, got {[str(y.device) for y in parts]}")
        if x.ndim > 1:
            raise RuntimeError(f"torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got a tensor of shape {tuple(x.shape)}")
    swap = indexing == "xy" and len(parts) >= 2
    if swap:
        parts[0], parts[1] = parts[1], parts[0]
    shape = [x.numel() for x in parts]
    grids = [x.reshape([-1 if j == i else 1 for j in range(len(parts))]).expand(shape) for i, x in enumerate(parts)]
    if swap:
        grids[0], grids[1] = grids[1], grids[0]
    return tuple(grids)


@operation(name="cdist_values")
def _cdist(x1: Tensor, x2: Tensor, p: float) -> Tensor:
    from flambeau.ops.reductions import norm_of

    a = as_shape(x1, (*x1._meta.shape[:-1], 1, x1._meta.shape[-1]))
    b = as_shape(x2, (*x2._meta.shape[:-2], 1, *x2._meta.shape[-2:]))
    gap = prim.sub(a, b)
    if p == 0:  # of NaN it is NaN, unlike a norm
        gap = prim.where(prim.ne(gap, gap), prim.detach(gap), prim.where(prim.eq(gap, 0), prim.sgn(gap), 1.0))
        return norm_of(gap, 1.0, (gap._meta.ndim - 1,))  # type: ignore[no-any-return]
    if gap._meta.shape[-1] == 0:  # rows of nothing are equal, by any measure
        p = 1.0
    return norm_of(gap, p, (gap._meta.ndim - 1,))  # type: ignore[no-any-return]


@remembered
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str | None = "use_mm_for_euclid_dist_if_necessary") -> Tensor:
    """Distances between all rows of x1 and all rows of x2, batched."""
    refuse_dtype("cdist", x1.dtype, x1, x2)
    if x1.ndim < 2 or x2.ndim < 2:
        raise RuntimeError(f"cdist only supports at least 2D tensors, X1 got: {x1.ndim}D, X2 got: {x2.ndim}D")
    if x1.shape[-1] != x2.shape[-1]:
        raise RuntimeError(f"X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: {x2.shape[-1]}")
    if not p >= 0:
        raise RuntimeError(f"cdist only supports non-negative p values, got p={p}")
    return _cdist(x1, x2, float(p))  # type: ignore[no-any-return]


def allclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Whether |input - other| <= atol + rtol * |other| everywhere."""
    return bool(isclose(input, other, rtol, atol, equal_nan).all().item())


@operation(method=True)
def isclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """Whether |input - other| <= atol + rtol * |other|, elementwise; infinities must be equal."""
    if input.dtype is not other.dtype:
        raise RuntimeError(f"{input.dtype} did not match {other.dtype}: isclose compares tensors of one dtype")
    for name, bound in (("rtol", rtol), ("atol", atol)):
        if not bound >= 0:
            raise RuntimeError(f"isclose(): {name} must be greater than or equal to zero, but got {bound}")
    same = prim.eq(input, other)
    if input.dtype.category < 2:
        a, b = promote_float(input, other)
    else:
        a, b = input, other
    if equal_nan:
        same = prim.bitwise_or(same, prim.bitwise_and(prim.ne(a, a), prim.ne(b, b)))
    gap = prim.abs(prim.sub(a, b))
    limit = prim.add(prim.mul(prim.abs(b), rtol), atol)
    near = prim.bitwise_and(prim.le(gap, limit), prim.lt(gap, float("inf")))
    return prim.bitwise_or(same, near)


def equal(input: Tensor, other: Tensor) -> bool:
    """Whether both tensors have the same shape and elements."""
    if tuple(input.shape) != tuple(other.shape):
        return False
    if input.is_meta:
        raise no_data()
    return bool((input == other).all().item())  # type: ignore[attr-defined]


@operation(method=True, out=True)
def diff(input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None) -> Tensor:
    """The n-th differences along a dim."""
    if n < 0:
        raise RuntimeError(f"diff(): order must be non-negative but got {n}")
    parts = [x for x in (prepend, input, append) if x is not None and (n or x is input)]
    if input._meta.ndim == 0:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    d = dim_of(dim, input._meta.ndim)
    for other in (prepend, append):
        if other is not None and other._meta.ndim != input._meta.ndim:
            raise RuntimeError(f"diff expects prepend or append to be the same dimension as input, {input._meta.ndim}, but got {other._meta.ndim}")
        if other is not None and [*other._meta.shape[:d], *other._meta.shape[d + 1 :]] != [*input._meta.shape[:d], *input._meta.shape[d + 1 :]]:
            raise RuntimeError(
                "diff expects the shape of tensor to prepend or append to match that of input except along the differencing dimension "
                f"{d}; input.shape = {tuple(input._meta.shape)}, but got {tuple(other._meta.shape)}"
            )
    if len(parts) > 1:
        common = parts[0].dtype
        for part in parts[1:]:
            common = dtypes.promote_types(common, part.dtype)
        parts = [convert(part, common) for part in parts]
    x = prim.concatenate(*parts, dim=d) if len(parts) > 1 else input
    for _ in range(min(n, x._meta.shape[d])):
        size = x._meta.shape[d]
        head = prim.slice(x, dim=d, start=0, length=size - 1, step=1)
        tail = prim.slice(x, dim=d, start=1, length=size - 1, step=1)
        x = prim.ne(tail, head) if x.dtype is dtypes.bool_ else prim.sub(tail, head)
    return prim.copy(x, strides=like_strides(x._meta.shape, x._meta.strides)) if x is input else x


def install_methods(cls: Any) -> None:
    """Methods with several forms."""
    for function in (
        sort, median, nanmedian, quantile, nanquantile, nonzero, argwhere, masked_select, unique, unique_consecutive, bincount,
        histc, repeat_interleave, allclose, equal,
    ):  # fmt: skip
        setattr(cls, function.__name__, function)


__all__ = [
    "allclose", "argsort", "argwhere", "bincount", "bucketize", "cdist", "diff", "equal", "histc", "isclose", "isin", "kthvalue",
    "masked_select", "median", "meshgrid", "mode", "msort", "nanmedian", "nanquantile", "nonzero", "one_hot", "quantile",
    "repeat_interleave", "searchsorted", "sort", "topk", "unique", "unique_consecutive",
]  # fmt: skip
