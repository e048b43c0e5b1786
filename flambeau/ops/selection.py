"""Results whose size depends on values: nonzero, masked_select, unique, bincount, histc, repeat_interleave.

They look at the values when they are called and run at once (runtime/select.py): no plan is made for each size that occurs.
What has a gradient (masked_select, repeat_interleave of a tensor) is an ordinary selection by the indices found.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

from flambeau import dtypes
from flambeau.compiler.graph import contiguous_strides
from flambeau.ops import primitives as prim
from flambeau.ops.dtype_rules import refuse_dtype
from flambeau.ops.registry import operation
from flambeau.ops.remembered import remembered_with_axis
from flambeau.ops.shape import as_shape, dim_of
from flambeau.ops.signatures import must_be
from flambeau.ops.tied import tied_to
from flambeau.runtime import select
from flambeau.trace.existing import from_buffer
from flambeau.trace.mutation import into
from flambeau.trace.objects import _TENSOR
from flambeau.trace.overlap import refuse_overlaps
from flambeau.trace.recorder import _PARAMETER, Trace, local

if TYPE_CHECKING:
    from flambeau.dtypes import dtype
    from flambeau.tensor import Tensor


def _dense(x: Any) -> tuple[Any, int]:
    """(row-major tensor with these values, its address): the tensor must be kept alive while the address is used."""
    dense = x if x._meta.is_contiguous and x.__class__ is _TENSOR[0] and not x._meta.bits else x.detach()._plain().contiguous()
    return dense, dense._address()


def _tensor(buffer: Any, shape: tuple[int, ...], d: dtype = dtypes.int64) -> Any:

    return from_buffer(buffer, shape, d)


def nonzero(input: Tensor, *, as_tuple: bool = False, out: Any = None) -> Any:
    """The indices of all nonzero elements in row-major order: (n, ndim), or one vector a dim with as_tuple."""
    if as_tuple.__class__ is not bool:
        must_be("nonzero", "as_tuple bool", as_tuple)
    if as_tuple and out is not None:
        raise RuntimeError("nonzero does not support the out kwarg when as_tuple is True: its result is a tuple")
    if as_tuple and input.ndim == 0:
        return nonzero(input.unsqueeze(0), as_tuple=True)
    if input.dtype in dtypes.LIMITED:
        refuse_dtype("nonzero", input.dtype)
    if out is not None:
        refuse_overlaps(out, (input,), "nonzero")
    x, address = _dense(input)
    buffer, n = select.nonzero(address, x.dtype, tuple(x.shape))
    found = from_buffer(buffer, (n, x.ndim), dtypes.int64, (1, n))  # a dim's coordinates one after the other, as PyTorch's
    if as_tuple:
        return found.unbind(1)
    return into(out, found, "nonzero")


def argwhere(input: Tensor) -> Tensor:
    """nonzero."""
    return nonzero(input)  # type: ignore[no-any-return]


def masked_select(input: Tensor, mask: Tensor, *, out: Any = None) -> Tensor:
    """The elements where mask (broadcast) holds, in order, as a vector."""
    from flambeau.ops.shape import broadcast_tensors

    if mask.dtype is not dtypes.bool_:
        raise RuntimeError(f"masked_select: expected BoolTensor for mask, got {mask.dtype}")
    if input.dtype in dtypes.LIMITED:
        refuse_dtype("masked_select", input.dtype)
    if out is not None:
        refuse_overlaps(out, (input, mask), "masked_select")
    if input._meta.shape == mask._meta.shape and (found := masked_rows(input, mask)) is not None:
        return into(out, found, "masked_select")
    x, wide = broadcast_tensors(input, mask)
    if input.requires_grad or hasattr(input, "_level"):
        found = x.reshape(-1).take(nonzero(wide.reshape(-1)).squeeze(1))
    else:
        data, address = _dense(x)
        where_, mask_address = _dense(wide)
        buffer, n = select.masked_rows(address, mask_address, data.dtype.itemsize, where_.numel())
        found = _tensor(buffer, (n,), data.dtype)
    return into(out, found, "masked_select")


def masked_rows(x: Tensor, mask: Tensor) -> Tensor | None:
    """x[mask] for a bool mask over leading dims: computed at once. None where it is another call: with gradients, other layouts or shapes."""
    m, k, tr = x._meta, mask._meta, local.trace
    leading = k.ndim
    row = tuple(m.shape)[leading:]
    plain = m.is_contiguous and leading and (m.shape == k.shape if not row else leading < m.ndim and tuple(m.shape)[:leading] == k.shape)
    if not plain or m.bits or type(tr) is not Trace or (m.requires_grad and tr.grad_enabled):
        return None
    if x.__class__ is not _TENSOR[0] and x.__class__ is not _PARAMETER[0]:
        return None
    tr.looks += 1
    where_, mask_address = _dense(mask)
    buffer, n = select.masked_rows(x._address(), mask_address, math.prod(row) * m.dtype.itemsize, where_._meta.numel)
    return _tensor(buffer, (n, *row), m.dtype)  # type: ignore[no-any-return]


def _unique(input: Tensor, function: Any, inverse: bool, counts: bool, dim: int | None) -> Any:
    if input.dtype.is_complex:
        raise NotImplementedError(f'"unique" not implemented for {input.dtype.name}: complex numbers have no order')
    if input.dtype in dtypes.LIMITED and input.dtype.category == 2:
        refuse_dtype("unique", input.dtype)
    if dim is None:
        x, address = _dense(input)
        found = function(address, x.dtype, x.numel())
        values = _tensor(found.values, (found.n,), x.dtype)
        rows: tuple[int, ...] = tuple(x.shape)
    else:
        d = dim_of(dim, input.ndim)
        x, address = _dense(input.movedim(d, 0))
        found = function(address, x.dtype, x.shape[0], math.prod(x.shape[1:]))
        values = _tensor(found.values, (found.n, *x.shape[1:]), x.dtype).movedim(0, d)
        rows = (x.shape[0],)
    wanted = [tied_to(values, input, refused=function.__name__)]
    if inverse:
        wanted.append(_tensor(found.inverse, rows))
    if counts:
        wanted.append(_tensor(found.counts, (found.n,)))
    return wanted[0] if len(wanted) == 1 else tuple(wanted)


def unique(input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> Any:
    """The different values in ascending order (or slices along a dim), with inverse indices and counts on request."""
    return _unique(input, select.unique, return_inverse, return_counts, dim)


def unique_consecutive(input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> Any:
    """The first of each run of equal values (or of equal slices along a dim)."""
    return _unique(input, select.unique_consecutive, return_inverse, return_counts, dim)


def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each of 0, 1, 2, ... occurs (or the sum of its weights) in a vector of non-negative integers."""
    refuse_dtype("bincount", input.dtype)
    if input.ndim != 1 or input.dtype.category > 1:
        raise RuntimeError(f"bincount only supports 1-d non-negative integral inputs, got shape {tuple(input.shape)} of {input.dtype}")
    if minlength < 0:
        raise RuntimeError("minlength should be >= 0")
    if weights is not None and tuple(weights.shape) != tuple(input.shape):
        raise RuntimeError(f"weights should be 1-d and have the same length as input: got {tuple(weights.shape)} and {tuple(input.shape)}")
    x, address = _dense(input.to(dtypes.int64))
    if weights is None or x.numel() == 0:  # PyTorch: an empty input gives int64 counts, weights or not
        buffer, length = select.bincount(address, x.numel(), minlength)
        return _tensor(buffer, (length,))  # type: ignore[no-any-return]
    kind = weights.dtype if weights.dtype is dtypes.float32 else dtypes.float64
    w, weights_address = _dense(weights.to(kind))
    buffer, length = select.bincount(address, x.numel(), minlength, weights_address, w.dtype)
    return _tensor(buffer, (length,), kind)  # type: ignore[no-any-return]


def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0, *, out: Any = None) -> Tensor:
    """Counts in `bins` equal bins between min and max (of the data, if both are equal)."""
    if min > max:
        raise RuntimeError(f"torch.histc: max must be larger than min, got {min} and {max}")
    if not input.dtype.is_floating_point:
        raise NotImplementedError(f'"histogram_cpu" not implemented for {input.dtype.name}: convert it to floating point first')
    bins = operator.index(bins)
    if bins <= 0:
        raise RuntimeError("bins must be > 0")
    if min == max and input.numel():
        min, max = float(input.min().item()), float(input.max().item())
    if min == max:
        min, max = min - 1, max + 1
    if not (math.isfinite(min) and math.isfinite(max)):
        raise RuntimeError(f"torch.histogramdd: dimension 0's range [{min}, {max}] is not finite")
    kind = input.dtype if input.dtype.itemsize >= 4 else dtypes.float32
    x, address = _dense(input.to(kind))
    counts = _tensor(select.histogram(address, kind, x.numel(), bins, float(min), float(max)), (bins,), kind)
    counts = counts.to(input.dtype)
    return into(out, counts, "histc")


@operation(name="repeat_interleave_by")  # type: ignore[untyped-decorator]
def _repeat_each(input: Tensor, repeats: int, dim: int) -> Tensor:
    shape = tuple(input._meta.shape)
    split = (*shape[: dim + 1], 1, *shape[dim + 1 :])
    wide = prim.expand(as_shape(input, split), shape=(*shape[: dim + 1], repeats, *shape[dim + 1 :]))
    copied = prim.copy(wide, strides=contiguous_strides(wide._meta.shape))
    return prim.reshape(copied, shape=(*shape[:dim], shape[dim] * repeats, *shape[dim + 1 :]))  # type: ignore[no-any-return]


@remembered_with_axis
def repeat_interleave(input: Tensor, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None) -> Tensor:
    """Each element (or slice along a dim) repeated, by one number or by one number each."""
    from flambeau.ops.from_data import tensor

    if output_size is not None:
        must_be("repeat_interleave", "output_size int?", output_size)
    if repeats is None:
        if input.ndim != 1 or input.dtype not in (dtypes.int64, dtypes.int32):
            raise RuntimeError("repeat_interleave only accepts 1D vector as repeat, of int32 or int64")
        if input.is_meta:
            if output_size is None:
                raise RuntimeError("cannot repeat_interleave a meta tensor without output_size")
            return input.new_empty(output_size, dtype=dtypes.int64)
        counts, address = _dense(input.to(dtypes.int64))
        buffer, n = select.repeat_interleave(address, counts.numel())
        return _tensor(buffer, (n,))  # type: ignore[no-any-return]
    if dim is None:
        input, dim = input.reshape(-1), 0
    d = dim_of(dim, input.ndim)
    if isinstance(repeats, int):
        if repeats < 0:
            raise RuntimeError(f"Repeats must be non-negative, got {repeats}")
        return _repeat_each(input, repeats, d)  # type: ignore[no-any-return]
    if not hasattr(repeats, "_meta"):
        repeats = tensor(repeats)
    if repeats.is_meta:
        if output_size is None:
            raise RuntimeError("cannot repeat_interleave a meta tensor without output_size")
        return input.index_select(d, repeats.new_empty(output_size, dtype=dtypes.int64))
    if repeats.numel() == 1:
        return _repeat_each(input, int(repeats.item()), d)  # type: ignore[no-any-return]
    if repeats.shape[0] != input.shape[d]:
        raise RuntimeError(
            f"repeats must have the same size as input along dim, but got repeats.size(0) = {repeats.shape[0]} and input.size({d}) = {input.shape[d]}"
        )
    return input.index_select(d, repeat_interleave(repeats))  # type: ignore[no-any-return]
