"""Reductions and scans: sums, extremes, statistics, norms, cumulative functions."""

from __future__ import annotations

import math
from collections import namedtuple
from math import prod as product_of
from typing import TYPE_CHECKING, Any

from flambeau import dtypes
from flambeau.ops import primitives as prim
from flambeau.ops.promotion import convert, need_order, promote_float
from flambeau.ops.registry import operation
from flambeau.ops.remembered import remembered, remembered_with_axis
from flambeau.ops.results import return_type
from flambeau.ops.shape import as_shape, dim_of, dims_of
from flambeau.ops.signatures import must_be
from flambeau.symbols import as_float

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

values_indices = namedtuple("values_indices", ("values", "indices"))


def _pair(name: str) -> Any:
    return return_type(name, "values", "indices")


max_result, min_result = _pair("max"), _pair("min")
median_result, nanmedian_result, mode_result, kthvalue_result = map(_pair, ("median", "nanmedian", "mode", "kthvalue"))
cummax_result, cummin_result = _pair("cummax"), _pair("cummin")


def reduce_dims(dim: Any, ndim: int, name: str) -> tuple[int, ...]:
    """The dims of a reduction, sorted; None or () mean all."""
    if dim is None or (isinstance(dim, tuple) and not dim):
        return tuple(range(ndim))
    if ndim == 0:
        dims_of(dim, ndim, name)
        return ()
    return tuple(sorted(dims_of(dim, ndim, name)))


def keep(x: Any, like: Any, dims: tuple[int, ...], keepdim: bool) -> Any:
    """Put reduced dims back with size 1 where asked."""
    if not keepdim or not dims:
        return x
    shape = tuple([1 if d in dims else s for d, s in enumerate(like._meta.shape)])
    return as_shape(x, shape)


def _reduced(primitive: Any, x: Any, dims: tuple[int, ...]) -> Any:
    if not dims:
        return prim.copy(x, strides=x._meta.strides)
    return primitive(x, dims=dims)


@operation(name="sum", method=True, out=True)
def sum_(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum of all elements, or over the given dims. Integers and booleans give int64."""
    kind = dtype or (dtypes.int64 if input.dtype.category < 2 else input.dtype)
    x = convert(input, kind)
    dims = reduce_dims(dim, x._meta.ndim, "sum")
    return keep(_reduced(prim.sum, x, dims), x, dims, keepdim)


@operation(method=True, out=True)
def nansum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum with NaN counted as zero."""
    x = convert(input, dtype or (dtypes.int64 if input.dtype.category < 2 else input.dtype))
    _no_complex("nansum", input)
    if input.dtype.is_floating_point and not x.dtype.is_floating_point:
        raise NotImplementedError(f'"nansum_cpu" not implemented for {x.dtype.name}: floating elements cannot be summed in it; give a floating dtype')
    if x.dtype.is_floating_point:
        x = prim.where(prim.isnan(x), 0.0, x)
    dims = reduce_dims(dim, x._meta.ndim, "nansum")
    return keep(_reduced(prim.sum, x, dims), x, dims, keepdim)


def _no_complex(name: str, x: Any) -> None:
    if x.dtype.is_complex:
        raise RuntimeError(f"{name} on CPU does not support complex inputs; use it on .real and .imag")


def _floating(x: Any, dtype: Any, name: str) -> Any:
    kind = dtype or x.dtype
    if kind.category < 2:
        raise RuntimeError(
            f"{name}(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: "
            f"{'Long' if kind is dtypes.int64 else kind.name}; convert it with .float(), or give dtype="
        )
    return convert(x, kind)


def _count(x: Any, dims: tuple[int, ...]) -> int:
    return product_of([x._meta.shape[d] for d in dims])


def mean_of(x: Any, dims: tuple[int, ...]) -> Any:
    """The mean over dims, inside a body."""
    count = _count(x, dims)
    if x.dtype in (dtypes.float16, dtypes.bfloat16):  # the sum may not fit the narrow type
        wide = prim.div(_reduced(prim.sum, convert(x, dtypes.float32), dims), as_float(count) if count else float("nan"))
        return convert(wide, x.dtype)
    total = _reduced(prim.sum, x, dims)
    return prim.div(total, as_float(count)) if count else prim.div(total, 0.0)


@operation(method=True, out=True)
def mean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The mean of all elements, or over the given dims. Floating or complex input only."""
    x = _floating(input, dtype, "mean")
    dims = reduce_dims(dim, x._meta.ndim, "mean")
    return keep(mean_of(x, dims), x, dims, keepdim)


@operation(method=True, out=True)
def nanmean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The mean of the elements that are not NaN."""
    _no_complex("nanmean", input)
    if input.dtype.category < 2:
        raise RuntimeError(f"nanmean(): expected input to have floating point or complex dtype but got {dtypes.C_NAMES[input.dtype.name]}")
    x = _floating(input, dtype, "nanmean")
    dims = reduce_dims(dim, x._meta.ndim, "nanmean")
    bad = prim.isnan(x)
    total = _reduced(prim.sum, prim.where(bad, 0.0, x), dims)
    count = _reduced(prim.sum, convert(prim.bitwise_not(bad), x.dtype), dims)
    return keep(prim.div(total, count), x, dims, keepdim)


@operation(method=True, out=True)
def prod(input: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The product of all elements, or over one dim. Integers and booleans give int64."""
    x = convert(input, dtype or (dtypes.int64 if input.dtype.category < 2 else input.dtype))
    dims = reduce_dims(dim, x._meta.ndim, "prod")
    return keep(_reduced(prim.prod, x, dims), x, dims, keepdim)


def _not_empty(name: str, x: Any, dims: tuple[int, ...], whole: bool = False) -> None:
    if whole and x._meta.numel == 0:
        raise RuntimeError(
            f"{name}(): Expected reduction dim to be specified for input.numel() == 0 (shape {tuple(x._meta.shape)}). Specify the reduction dim "
            "with the 'dim' argument."
        )
    if any(x._meta.shape[d] == 0 for d in dims):
        raise IndexError(
            f"{name}(): Expected reduction dim {dims[0] if dims else 0} to have non-zero size (shape {tuple(x._meta.shape)}): an empty range has no extreme"
        )


def _extreme_dims(name: str, primitive: Any, text: str) -> Any:
    def body(input: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
        dims = reduce_dims(dim, input._meta.ndim, name)
        _not_empty(name, input, dims, dim is None or dim == ())
        need_order(name, input)
        return keep(_reduced(primitive, input, dims), input, dims, keepdim)

    body.__doc__ = text
    return operation(name=name, method=True, out=True)(body)


amax = _extreme_dims("amax", prim.amax, "The largest element over the dims (all by default); ties share the gradient.")
amin = _extreme_dims("amin", prim.amin, "The smallest element over the dims (all by default); ties share the gradient.")


@operation(method=True, out=True)
def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The smallest and the largest element, of all or over one dim."""
    dims = reduce_dims(dim, input._meta.ndim, "aminmax")
    _not_empty("aminmax", input, dims, dim is None)
    need_order("aminmax", input)
    low, high = (keep(_reduced(p, input, dims), input, dims, keepdim) for p in (prim.amin, prim.amax))
    return aminmax_result(low, high)  # type: ignore[return-value]


aminmax_result = return_type("aminmax", "min", "max")


def _arg(name: str, primitive: Any, text: str) -> Any:
    def body(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        m = input._meta
        if m.numel == 0 and dim is None:
            raise IndexError(f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument.")
        need_order(name, input, RuntimeError)
        if dim is None:
            flat = primitive(as_shape(input, (m.numel,)), dims=(0,))
            return as_shape(flat, (1,) * m.ndim) if keepdim else flat
        d = dim_of(dim, m.ndim)
        if m.ndim == 0:
            return primitive(as_shape(input, (1,)), dims=(0,))
        _not_empty(name, input, (d,))
        return keep(primitive(input, dims=(d,)), input, (d,), keepdim)

    body.__doc__ = text
    return operation(name=name, method=True, out=True)(body)


argmax = _arg("argmax", prim.argmax, "The index of the largest element (the first of equals), flat or along a dim.")
argmin = _arg("argmin", prim.argmin, "The index of the smallest element (the first of equals), flat or along a dim.")


def _with_indices(x: Any, arg: Any, dim: int, keepdim: bool, made: Any, name: str) -> Any:
    m = x._meta
    d = dim_of(dim, m.ndim)
    _not_empty(name, x, (d,) if m.ndim else ())
    need_order(name, x, RuntimeError)
    if m.ndim == 0:
        return made(prim.copy(x, strides=()), prim.zeros_of((), dtypes.int64))
    index = arg(x, dims=(d,))
    wide = as_shape(index, tuple([1 if i == d else s for i, s in enumerate(m.shape)]))
    values = prim.gather(x, wide, dim=d)
    if not keepdim:
        values = as_shape(values, tuple(index._meta.shape))
    return made(values, wide if keepdim else index)


@operation(name="max_over")
def _max_over(input: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return _with_indices(input, prim.argmax, dim, keepdim, max_result, "max")  # type: ignore[no-any-return]


@operation(name="min_over")
def _min_over(input: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return _with_indices(input, prim.argmin, dim, keepdim, min_result, "min")  # type: ignore[no-any-return]


@operation(name="max_all")
def _max_all(input: Tensor) -> Tensor:
    if input._meta.numel == 0:
        raise RuntimeError("max(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument.")
    need_order("max", input)
    return _reduced(prim.amax, input, tuple(range(input._meta.ndim)))


@operation(name="min_all")
def _min_all(input: Tensor) -> Tensor:
    if input._meta.numel == 0:
        raise RuntimeError("min(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument.")
    need_order("min", input)
    return _reduced(prim.amin, input, tuple(range(input._meta.ndim)))


@remembered_with_axis
def max(input: Tensor, dim: Tensor | Any = None, keepdim: bool = False, *, other: Tensor | Any = None, out: Any = None) -> Any:
    """max(x): the largest element. max(x, dim): values and indices. max(x, y): elementwise maximum."""
    return _extreme(input, dim, keepdim, other, out, "max")


@remembered_with_axis
def min(input: Tensor, dim: Tensor | Any = None, keepdim: bool = False, *, other: Tensor | Any = None, out: Any = None) -> Any:
    """min(x): the smallest element. min(x, dim): values and indices. min(x, y): elementwise minimum."""
    return _extreme(input, dim, keepdim, other, out, "min")


def _extreme(input: Any, dim: Any, keepdim: bool, other: Any, out: Any, name: str) -> Any:
    if dim.__class__ is int and other is None and out is None:
        return (_max_over if name == "max" else _min_over)(input, dim, keepdim)
    if dim is None and other is None and out is None:
        return (_max_all if name == "max" else _min_all)(input)
    from flambeau.ops import arithmetic
    from flambeau.trace.mutation import into

    if other is None and hasattr(dim, "_meta"):
        other, dim = dim, None
    if other is not None:
        return (arithmetic.maximum if name == "max" else arithmetic.minimum)(input, other, out=out)
    if dim is None:
        result = (_max_all if name == "max" else _min_all)(input)
        return into(out, result, (_max_all if name == "max" else _min_all).operation.name)
    result = (_max_over if name == "max" else _min_over)(input, dim, keepdim)
    return into(out, result, (_max_over if name == "max" else _min_over).operation.name)


def _truth_reduction(name: str, primitive: Any, empty: bool, text: str) -> Any:
    def body(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
        x = convert(input, dtypes.bool_)
        dims = reduce_dims(dim, x._meta.ndim, name)
        if _count(x, dims) == 0:
            shape = tuple([s for d, s in enumerate(x._meta.shape) if d not in dims])
            result = prim.full_of(shape, prim.constant(empty, dtypes.bool_))
        else:
            result = _reduced(primitive, x, dims)
        if input.dtype is dtypes.uint8:
            result = convert(result, dtypes.uint8)
        return keep(result, x, dims, keepdim)

    body.__doc__ = text
    return operation(name=name, method=True, out=True)(body)


any_ = _truth_reduction("any", prim.amax, False, "Whether any element is nonzero, of all or over dims.")
all_ = _truth_reduction("all", prim.amin, True, "Whether all elements are nonzero, of all or over dims.")


@operation(method=True)
def count_nonzero(input: Tensor, dim: Any = None) -> Tensor:
    """The number of nonzero elements, of all or over dims."""
    x = convert(convert(input, dtypes.bool_), dtypes.int64)
    return _reduced(prim.sum, x, reduce_dims(dim, x._meta.ndim, "count_nonzero"))


def root(x: Any, exponent: float = 0.5) -> Any:
    """A power between 0 and 1 of a sum of powers, inside a body. Its slope is 0 where that is 0, as PyTorch's, and not infinite: also
    where tangents and gradients of gradients pass."""
    zero = prim.eq(x, 0.0)
    safe = prim.where(zero, 1.0, x)
    return prim.where(zero, 0.0, prim.sqrt(safe) if exponent == 0.5 else prim.pow(safe, exponent))


# -- statistics ---------------------------------------------------------------------------------------------------


def _moments(x: Any, dim: Any, correction: Any, keepdim: bool, name: str) -> tuple[Any, Any]:
    x = _floating(x, None, name)
    dims = reduce_dims(dim, x._meta.ndim, name)
    if x.dtype.is_complex:
        re, mr = _moments(prim.real_part(x), dim, correction, keepdim, name)
        im, mi = _moments(prim.imag_part(x), dim, correction, keepdim, name)
        return prim.add(re, im), prim.make_complex(mr, mi)
    if not dims:
        x = as_shape(x, (*x._meta.shape, 1))
        variance, average = prim.var_mean(x, dims=(x._meta.ndim - 1,), correction=correction)
        return variance, average
    variance, average = prim.var_mean(x, dims=dims, correction=correction)
    return keep(variance, x, dims, keepdim), keep(average, x, dims, keepdim)


def _correction(unbiased: Any, correction: Any) -> Any:
    if correction is not None and correction != correction:
        return math.inf  # no degree of freedom is left, as in PyTorch
    return correction if correction is not None else 1 if unbiased is None or unbiased else 0


@operation(name="var_op")
def _var(input: Tensor, dim: Any, correction: Any, keepdim: bool) -> Tensor:
    return _moments(input, dim, correction, keepdim, "var")[0]  # type: ignore[no-any-return]


@operation(name="std_op")
def _std(input: Tensor, dim: Any, correction: Any, keepdim: bool) -> Tensor:
    return root(_moments(input, dim, correction, keepdim, "std")[0])  # type: ignore[no-any-return]


@operation(name="var_mean_op")
def _var_mean(input: Tensor, dim: Any, correction: Any, keepdim: bool) -> tuple[Tensor, Tensor]:
    return _moments(input, dim, correction, keepdim, "var_mean")


@operation(name="std_mean_op")
def _std_mean(input: Tensor, dim: Any, correction: Any, keepdim: bool) -> tuple[Tensor, Tensor]:
    variance, average = _moments(input, dim, correction, keepdim, "std_mean")
    return root(variance), average


def _statistic(function: Any, name: str, text: str) -> Any:
    def call(input: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None, out: Any = None) -> Any:
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        if unbiased is not None and not isinstance(unbiased, bool):
            raise TypeError(f"{name}(): argument 'unbiased' must be bool, not {type(unbiased).__name__}")
        result = function(input, tuple(dim) if isinstance(dim, list) else dim, _correction(unbiased, correction), keepdim)
        if out is not None:
            from flambeau.trace.mutation import into

            return into(out, result, function.operation.name)
        return result

    call.__name__ = call.__qualname__ = name
    call.__doc__ = text
    return call


var = remembered_with_axis(_statistic(_var, "var", "The variance; the divisor is n - correction (1 by default)."))
std = remembered_with_axis(_statistic(_std, "std", "The standard deviation; the divisor is n - correction (1 by default)."))
var_mean = remembered_with_axis(_statistic(_var_mean, "var_mean", "Variance and mean together."))
std_mean = remembered_with_axis(_statistic(_std_mean, "std_mean", "Standard deviation and mean together."))


@operation(method=True, out=True, aliases=("special_logsumexp",))
def logsumexp(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """log(sum(exp(x))) over the dims, without overflow."""
    (x,) = promote_float(input)
    dims = reduce_dims(dim, x._meta.ndim, "logsumexp")
    if _count(x, dims) == 0:
        return keep(prim.log(_reduced(prim.sum, prim.exp(x), dims)), x, dims, keepdim)
    size = x.real if x.dtype.is_complex else x
    peak = keep(_reduced(prim.amax, size, dims), x, dims, True)
    peak = prim.detach(prim.where(prim.eq(prim.abs(peak), float("inf")), 0.0, peak))
    peak = convert(peak, x.dtype)
    total = prim.log(keep(_reduced(prim.sum, prim.exp_weight(prim.sub(x, peak)), dims), x, dims, True))
    result = prim.add(total, peak)
    if keepdim or not dims:
        return result
    return as_shape(result, tuple([s for d, s in enumerate(x._meta.shape) if d not in dims]))


def need_identity(x: Any, p: float, dim: Any) -> None:
    """RuntimeError for a norm over nothing that has no identity: the greatest or least of no elements, and negative powers."""
    shape = x.shape
    over = range(x.ndim) if x.ndim == 0 or dim is None or dim == () else [dim] if isinstance(dim, int) else dim
    if (p == float("inf") or p < 0) and any(shape[d] == 0 for d in over if -len(shape) <= d < len(shape)):
        where = "an empty tensor" if dim in (None, ()) else f"the dimension {dim}, which is empty,"
        raise RuntimeError(
            f"linalg.vector_norm cannot compute the {p} norm on {where} because the operation does not have an identity (shape {tuple(shape)}, dim {dim})"
        )


def norm_of(x: Any, p: float, dims: tuple[int, ...]) -> Any:
    """The vector p-norm over dims, inside a body."""
    count = _count(x, dims)
    if (p != 0 and dims and count == 1) or (p != p and not count):  # of one element, exactly; also where p is NaN or its power overflows
        return _reduced(prim.sum, prim.abs(x), dims)
    if p == 2 and not x.dtype.is_complex:
        return root(_reduced(prim.sum, prim.mul(x, x), dims))
    size = prim.abs(x)
    if p == 2:
        return root(_reduced(prim.sum, prim.mul(size, size), dims))
    if p == float("inf"):
        return _reduced(prim.amax, size, dims)
    if p == float("-inf"):
        return _reduced(prim.amin, size, dims)
    if p == 0:
        return _reduced(prim.sum, prim.where(prim.eq(size, 0), prim.sgn(size), 1.0), dims)  # 0 or 1, with gradients of 0
    if p == 1:
        return _reduced(prim.sum, size, dims)
    if p < 0:  # one zero makes the norm 0, whose slope is 0
        size = prim.where(prim.eq(size, 0), 0.0, size)
    powers = root(size, p) if 0 < p < 1 else prim.pow(size, float(p))
    total = _reduced(prim.sum, powers, dims)
    return root(total, 1.0 / p) if p > 0 else prim.pow(total, 1.0 / p)


@operation(name="vector_norm", public=False)
def vector_norm_op(input: Tensor, p: float, dim: Any, keepdim: bool, dtype: Any) -> Tensor:
    x = convert(input, dtype) if dtype is not None else input
    if x.dtype.category < 2:
        raise RuntimeError(f"linalg.vector_norm: Expected a floating point or complex tensor as input. Got {x.dtype.name}")
    dims = reduce_dims(dim, x._meta.ndim, "norm")
    # float16 and bfloat16 are rounded once, at the end: the root of a rounded sum was off by one unit in the last place
    wide = convert(x, dtypes.float32) if x.dtype in (dtypes.float16, dtypes.bfloat16) else x
    alone = not x._meta.ndim and p != 0 and dim in (None, ())
    return convert(keep(prim.abs(wide) if alone else norm_of(wide, p, dims), x, dims, keepdim), x.dtype.to_real() if x.dtype.is_complex else x.dtype)


@remembered
def norm(input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, out: Any = None, dtype: Any = None) -> Tensor:
    """The vector p-norm over dims; "fro" is 2; "nuc" is the nuclear norm of matrices."""
    if isinstance(p, str) and p not in ("fro", "nuc"):
        raise RuntimeError(f"norm(): Order {p} not supported: p must be a number, 'fro' or 'nuc'")
    if isinstance(p, str) and p == "nuc":
        from flambeau.ops import linalg

        return linalg.matrix_norm(input, "nuc", dim if dim is not None else (-2, -1), keepdim, out=out)  # type: ignore[no-any-return]
    if p is not None and not isinstance(p, str):
        must_be("norm", "p number", p)
    must_be("norm", "dim int[1]?", dim)
    must_be("norm", "keepdim bool", keepdim)
    order = 2.0 if p is None or isinstance(p, str) else float(p)
    need_identity(input, order, tuple(dim) if isinstance(dim, list) else dim)
    result = vector_norm_op(input, order, tuple(dim) if isinstance(dim, list) else dim, keepdim, dtype)
    if out is not None:
        from flambeau.trace.mutation import into

        return into(out, result, vector_norm_op.operation.name)  # type: ignore[no-any-return]
    return result  # type: ignore[no-any-return]


# -- scans --------------------------------------------------------------------------------------------------------


def _scan(primitive: Any, x: Any, dim: int) -> Any:
    m = x._meta
    d = dim_of(dim, m.ndim)
    if m.ndim == 0:
        return as_shape(primitive(as_shape(x, (1,)), dim=0), ())
    return primitive(x, dim=d)


def _scan_function(name: str, text: str) -> Any:
    primitive = getattr(prim, name)

    def body(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
        kind = dtype or (dtypes.int64 if input.dtype.category < 2 else input.dtype)
        if kind is dtypes.bool_ and input._meta.numel and input._meta.ndim:
            raise NotImplementedError(f'"{name}_out_cpu" not implemented for bool: give an integer dtype')
        return _scan(primitive, convert(input, kind), dim)

    body.__doc__ = text
    return operation(name=name, method=True, inplace=True, out=True)(body)


cumsum = _scan_function("cumsum", "Running sums along a dim.")
cumprod = _scan_function("cumprod", "Running products along a dim.")


@operation(method=True, out=True)
def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """log of the running sums of exp along a dim, without overflow."""
    (x,) = promote_float(input)
    if x.dtype.is_complex and x._meta.numel:  # the scan is real; what is 700 below the largest real part of its row is lost
        if x._meta.ndim == 0:
            return prim.copy(x, strides=())  # type: ignore[no-any-return]
        d = dim_of(dim, x._meta.ndim)
        peak = prim.detach(convert(keep(_reduced(prim.amax, x.real, (d,)), x, (d,), True), x.dtype))  # type: ignore[attr-defined]
        return prim.add(prim.log(prim.cumsum(prim.exp(prim.sub(x, peak)), dim=d)), peak)  # type: ignore[no-any-return]
    return _scan(prim.logcumsumexp, x, dim)


def _scan_extreme(name: str, made: Any, text: str) -> Any:
    primitive = getattr(prim, name)

    def body(input: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        m = input._meta
        d = dim_of(dim, m.ndim)
        if m.ndim and m.numel:
            need_order(name, input)
        elif m.dtype.is_complex:
            return made(prim.copy(input, strides=m.strides), prim.zeros_of(tuple(m.shape), dtypes.int64))  # type: ignore[no-any-return]
        if m.ndim == 0:
            values, indices = primitive(as_shape(input, (1,)), dim=0)
            return made(as_shape(values, ()), as_shape(indices, ()))  # type: ignore[no-any-return]
        return made(*primitive(input, dim=d))  # type: ignore[no-any-return]

    body.__doc__ = text
    return operation(name=name, method=True, out=True)(body)


cummax = _scan_extreme("cummax", cummax_result, "Running maxima along a dim and their indices.")
cummin = _scan_extreme("cummin", cummin_result, "Running minima along a dim and their indices.")


def install_methods(cls: Any) -> None:
    """Methods with several forms."""
    for function in (max, min, var, std, _norm_method):
        setattr(cls, function.__name__.rstrip("_"), function)


def _norm_method(self: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """torch.norm of this tensor."""
    return norm(self, p, dim, keepdim, dtype=dtype)


_norm_method.__name__ = _norm_method.__qualname__ = "norm"
