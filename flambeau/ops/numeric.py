"""Numerical work on samples: integrals, derivatives, covariances, histograms, and the rarer binary functions.

Compositions of public operations. Only gcd, lcm and histogram look at values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flambeau import dtypes
from flambeau.dtypes import dtype
from flambeau.ops import primitives as prim
from flambeau.ops import promotion
from flambeau.ops.concatenated import cat, stack
from flambeau.ops.creation import arange, check_memory
from flambeau.ops.dtype_rules import refuse_dtype
from flambeau.ops.named import public
from flambeau.ops.primitive import broadcast_shapes
from flambeau.ops.promotion import convert, is_number, promote, promote_float
from flambeau.ops.reductions import norm_of
from flambeau.ops.registry import Number, operation
from flambeau.ops.remembered import remembered_with_axis
from flambeau.ops.result_strides import like_input, row_major
from flambeau.ops.results import return_type
from flambeau.ops.shape import as_shape, dim_of
from flambeau.ops.signatures import whole
from flambeau.ops.tied import tied_to
from flambeau.ops.wrapper import from_numpy_scalar, numpy_names

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

histogram_result = return_type("histogram", "hist", "bin_edges")
histogramdd_result = return_type("histogramdd", "hist", "bin_edges")
frexp_result = return_type("frexp", "mantissa", "exponent")


# -- integrals and derivatives ----------------------------------------------------------------------------------------
@operation(name="times_number", public=False)
def _times_number(input: Tensor, factor: Number) -> Tensor:
    """The product with a number that is none of the caller's operands: gradients keep nothing for it (autograd/given_up.py)."""
    return input * factor


@operation(name="over_number", public=False)
def _over_number(input: Tensor, divisor: Number) -> Tensor:
    """The quotient, as `_times_number`."""
    return input / divisor


def _times(input: Any, factor: Any) -> Any:
    return _times_number(input, factor) if is_number(factor) else input * factor


def _over(input: Any, divisor: Any) -> Any:
    return _over_number(input, divisor) if is_number(divisor) else input / divisor


def _pairs(y: Tensor, d: int) -> Any:
    """The sums of neighbouring samples of a dim."""
    n = y.shape[d]
    return y.narrow(d, 1, n - 1) + y.narrow(d, 0, n - 1)


def _widths(y: Tensor, x: Any, d: int) -> Any:
    """The distances of neighbouring samples of a dim."""
    n = y.shape[d]
    if x.ndim == 1:
        if x.shape[0] != n:
            raise RuntimeError(f"trapezoid: There must be one `x` value for each sample point: got {x.shape[0]} for dim {d} of shape {tuple(y.shape)}")
        return (x[1:] - x[:-1]).reshape([-1 if i == d else 1 for i in range(y.ndim)])
    if x.ndim < y.ndim:
        x = x.reshape((*[1] * (y.ndim - x.ndim), *x.shape))
    n = max(x.shape[d] - 1, 0)  # the dim is counted as that of y is, also where x has more
    return x.narrow(d, x.shape[d] - n, n) - x.narrow(d, 0, n)


def _refuse_bools(name: str, y: Tensor, x: Any) -> None:
    if x is not None and dtypes.bool_ in (x.dtype, y.dtype):
        raise RuntimeError(f"{name}: received a bool input for `x` or `y`, but bool is not supported")
    if y.dtype is dtypes.bool_:
        raise RuntimeError(f"{name}: received a bool input for `y`, but bool is not supported")


@numpy_names
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Any = 1, dim: int = -1) -> Any:
    """The integral of samples along a dim by the trapezoidal rule; positions `x`, or spacing `dx`."""
    _refuse_bools("trapezoid", y, x)
    d = dim_of(dim, y.ndim)
    if y.shape[d] == 0:
        return y.new_zeros([*y.shape[:d], *y.shape[d + 1 :]])
    if x is None:
        return _times(y.sum(d) - _times(y.select(d, 0) + y.select(d, -1), 0.5), dx)
    return _over((_pairs(y, d) * _widths(y, x, d)).sum(d), 2)


trapz = trapezoid


def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Any = 1, dim: int = -1) -> Any:
    """The integrals up to each sample but the first."""
    _refuse_bools("cumulative_trapezoid", y, x)
    d = dim_of(dim, y.ndim)
    if not y.shape[d]:
        return y.new_zeros(y.shape)
    return _times(_pairs(y, d), dx / 2).cumsum(d) if x is None else _over((_widths(y, x, d) * _pairs(y, d)).cumsum(d), 2)


@numpy_names
def gradient(input: Tensor, *, spacing: Any = 1, dim: int | Sequence[int] | None = None, edge_order: int = 1) -> tuple[Any, ...]:
    """Derivatives along dims from samples: central differences inside (second order), one-sided at the edges.

    `spacing`: one step, a step for each dim, or a vector of coordinates for each dim.
    """
    refuse_dtype("gradient", input.dtype)
    spacing = 1 if spacing is None else spacing
    dims = range(input.ndim) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    steps = list(spacing) if isinstance(spacing, (list, tuple)) else [spacing] * len(dims)
    if len(steps) != len(dims):
        raise RuntimeError(
            f"torch.gradient expected spacing to be unspecified, a scalar, or a list of length {len(dims)}, one entry for each dim, but got a list of length "
            f"{len(steps)}"
        )
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    if len({dim_of(d, input.ndim) for d in dims}) < len(dims):
        raise RuntimeError(f"gradient(): a dim appears multiple times in the list of dims {list(dims)}")
    return tuple([_derivative(input, step, dim_of(d, input.ndim), edge_order) for d, step in zip(dims, steps, strict=True)])


def _derivative(f: Tensor, spacing: Any, d: int, edge_order: int) -> Any:
    """Fornberg's weights for three neighbours at distances a (before) and b (after); numpy.gradient's formulas."""
    n = f.shape[d]
    if n <= edge_order:
        raise RuntimeError(f"torch.gradient expected each dimension size to be at least edge_order+1 = {edge_order + 1}, got {n}")

    def at(start: int, length: int) -> Any:
        return f.narrow(d, start, length)

    if hasattr(spacing, "_meta") and spacing.ndim == 1:
        widths = spacing.diff().reshape([-1 if i == d else 1 for i in range(f.ndim)])
        a, b = widths.narrow(d, 0, n - 2), widths.narrow(d, 1, n - 2)
        first, second = widths.narrow(d, 0, 1), widths.narrow(d, min(1, n - 2), 1)
        last, before = widths.narrow(d, n - 2, 1), widths.narrow(d, max(n - 3, 0), 1)
    else:
        a = b = first = second = last = before = spacing
    even = not hasattr(a, "_meta")
    if even and n > 2:
        inside = _over(at(2, n - 2) - at(0, n - 2), 2 * a)
    else:
        inside = _times(at(2, n - 2), a / (b * (a + b))) + _times(at(1, n - 2), (b - a) / (a * b)) - _times(at(0, n - 2), b / (a * (a + b))) if n > 2 else None
    if edge_order == 1:
        left, right = _over(at(1, 1) - at(0, 1), first), _over(at(n - 1, 1) - at(n - 2, 1), last)
    else:
        left = (
            -_times(at(0, 1), (2 * first + second) / (first * (first + second)))
            + _times(at(1, 1), (first + second) / (first * second))
            - _times(at(2, 1), first / (second * (first + second)))
        )
        right = (
            _times(at(n - 1, 1), (2 * last + before) / (last * (last + before)))
            - _times(at(n - 2, 1), (last + before) / (last * before))
            + _times(at(n - 3, 1), last / (before * (last + before)))
        )
    return cat([left, *([] if inside is None else [inside]), right], d)


# -- statistics -----------------------------------------------------------------------------------------------------
def cov(input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None) -> Any:
    """The covariance matrix of variables (rows) over observations (columns), weighted by counts and importances."""
    refuse_dtype("cov", input.dtype)
    if aweights is not None and not aweights.dtype.is_floating_point:
        raise RuntimeError(f"cov(): expected aweights to have floating point dtype but got aweights with {aweights.dtype} dtype")
    if input.ndim > 2:
        raise RuntimeError(f"cov(): expected input to have two or fewer dimensions but got an input with {input.ndim} dimensions")
    x = input.reshape(1, -1) if input.ndim < 2 else input
    if x.dtype.category < 2:
        x = x.to(dtypes.get_default_dtype())
    weights: Any = None
    for name, w in (("fweights", fweights), ("aweights", aweights)):
        if w is None:
            continue
        if w.ndim != 1 or w.shape[0] != x.shape[1]:
            raise RuntimeError(f"cov(): expected {name} to have one weight for each of {x.shape[1]} observations, got shape {tuple(w.shape)}")
        if (name == "fweights") != (w.dtype.category == 1):
            kind = "integral" if name == "fweights" else "floating point"
            raise RuntimeError(f"cov(): expected {name} to have {kind} dtype but got {name} with {w.dtype.name} dtype")
        if bool((w < 0).any()):
            raise RuntimeError(f"cov(): {name} cannot be negative")
        weights = w if weights is None else weights * w
    if weights is None:
        total: Any = x.shape[1]
        centred = x - x.mean(1, keepdim=True)
        product = centred @ centred.mH
    else:
        total = weights.sum()
        centred = x - (x * weights).sum(1, keepdim=True) / total
        product = centred @ (centred * weights).mH
    if weights is not None and aweights is not None and correction:
        norm = total - correction * (weights * aweights).sum() / total
    else:
        norm = total - correction
    norm = max(norm, 0) if isinstance(norm, int) else norm.clamp(min=0)
    result = product / norm
    return result.squeeze()


def corrcoef(input: Tensor) -> Any:
    """Pearson's correlation coefficients of variables (rows)."""
    refuse_dtype("corrcoef", input.dtype)
    if input.ndim > 2:
        raise RuntimeError(f"corrcoef(): expected input to have two or fewer dimensions but got an input with {input.ndim} dimensions")
    c = cov(input)
    if c.ndim == 0:
        return c / c
    scale = c.diagonal().sqrt()
    result = c / scale.unsqueeze(1) / scale.unsqueeze(0)
    return result if result.is_complex() else result.clip(-1, 1)


@public("histogram")
def histogram(input: Tensor, bins: Any, *, range: tuple[float, float] | None = None, weight: Tensor | None = None, density: bool = False) -> Any:
    """(hist, bin_edges): counts, or sums of weights, in `bins` equal bins or between given edges; the last edge belongs."""
    refuse_dtype("histogram", input.dtype)
    from flambeau.ops.creation import linspace
    from flambeau.ops.selection import bincount
    from flambeau.ops.sorting import searchsorted
    from flambeau.queries import contiguous_format

    x = input.detach().reshape(-1)
    if not x.dtype.is_floating_point:
        raise NotImplementedError(f'"histogram_cpu" not implemented for {x.dtype.name}: convert it to floating point first')
    if hasattr(bins, "_meta"):
        edges = bins.detach().clone(memory_format=contiguous_format)
    else:
        if bins <= 0:
            raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {bins} for dimension 0")
        if range is not None:
            low, high = float(range[0]), float(range[1])
        else:
            low, high = (float(x.min().item()), float(x.max().item())) if x.numel() else (0.0, 1.0)
        if not (math.isfinite(low) and math.isfinite(high)) or low > high:
            raise RuntimeError(f"torch.histogram(): dimension 0's range [{low}, {high}] is not finite and ascending")
        if low == high:
            low, high = low - 0.5, high + 0.5
        edges = linspace(low, high, bins + 1, dtype=x.dtype)
    count = edges.shape[0] - 1
    place = searchsorted(edges, x, right=True) - 1
    place = place.where(x != edges[-1], place - 1)
    keep = (place >= 0) & (place < count) & (x == x)
    weights = x.new_ones(x.shape) if weight is None else weight.detach().reshape(-1).to(x.dtype)
    sums = bincount(place.where(keep, 0), weights.where(keep, 0), count).to(x.dtype)
    if density:
        sums = sums / sums.sum() / edges.diff()
    return histogram_result(*[tied_to(t, input, refused="histogram") for t in (sums, edges)])


def histogramdd(input: Tensor, bins: Any, range: Sequence[float] | None = None, weight: Tensor | None = None, density: bool = False) -> Any:
    """(hist, bin_edges) of points (..., N) in N dimensions: `bins` is a number, a number for each dimension, or vectors of edges.

    `range`: lowest and highest edge of each dimension, 2 N numbers. `weight`: of each point, (...).
    """
    refuse_dtype("histogramdd", input.dtype)
    from flambeau.ops.creation import linspace
    from flambeau.ops.selection import bincount
    from flambeau.ops.sorting import searchsorted

    if input.ndim < 2:
        raise RuntimeError(f"torch.histogramdd: input tensor should have at least 2 dimensions, but got {input.ndim}")
    dims = input.shape[-1]
    counts = [bins] * dims if isinstance(bins, int) else list(bins)
    if len(counts) != dims:
        raise RuntimeError(f"torch.histogramdd: the size of bins should be equal to the innermost dimension of the input: {len(counts)} and {dims}")
    if not input.dtype.is_floating_point:
        raise NotImplementedError(f'"histogramdd" not implemented for {input.dtype.name}: convert it to floating point first')
    x = input.detach().reshape(-1, dims)
    if weight is not None and tuple(weight.shape) != tuple(input.shape[:-1]):
        raise RuntimeError(
            "torch.histogramdd: if weight tensor is provided it should have the same shape as the input tensor excluding its "
            f"innermost dimension, got {tuple(weight.shape)} and {tuple(input.shape)}"
        )
    if range is not None and len(range) != 2 * dims:
        raise RuntimeError(f"torch.histogramdd: range should have {2 * dims} elements, two for each dimension, but got {len(range)}")
    edges: list[Any] = []
    for d, count in enumerate(counts):
        if hasattr(count, "_meta"):
            edges.append(count)
            continue
        if count <= 0:
            raise RuntimeError(f"torch.histogramdd(): bins must be > 0, but got {count} for dimension {d}")
        if range is not None:
            low, high = float(range[2 * d]), float(range[2 * d + 1])
        else:
            low, high = (float(x[:, d].min().item()), float(x[:, d].max().item())) if x.numel() else (0.0, 1.0)
        if not (math.isfinite(low) and math.isfinite(high)) or low > high:
            raise RuntimeError(f"torch.histogramdd(): dimension {d}'s range [{low}, {high}] is not finite and ascending")
        low, high = (low - 0.5, high + 0.5) if low == high else (low, high)
        edges.append(linspace(low, high, count + 1, dtype=x.dtype))
    shape = [e.shape[0] - 1 for e in edges]
    keep, flat = x.new_ones(x.shape[:1], dtype=dtypes.bool_), x.new_zeros(x.shape[:1], dtype=dtypes.int64)
    for d, (edge, size) in enumerate(zip(edges, shape, strict=True)):
        column = x[:, d].contiguous()
        place = searchsorted(edge, column, right=True) - 1
        place = place.where(column != edge[-1], place - 1)  # the last edge belongs to the last bin
        keep = keep & (place >= 0) & (place < size) & (column == column)
        flat = flat * size + place
    weights = x.new_ones(x.shape[:1]) if weight is None else weight.detach().reshape(-1).to(x.dtype)
    sums = bincount(flat.where(keep, 0), weights.where(keep, 0), math.prod(shape)).to(x.dtype).reshape(shape)
    if density:
        sums = sums / sums.sum()
        for d, edge in enumerate(edges):
            sums = sums / edge.diff().reshape([-1 if i == d else 1 for i, _ in enumerate(shape)])
    refused = "histogramdd"
    return histogramdd_result(tied_to(sums, input, refused=refused), tuple([tied_to(edge, input, refused=refused) for edge in edges]))


# -- vectors and norms ----------------------------------------------------------------------------------------------
@public("cross")
@remembered_with_axis
def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Any:
    """The cross product along a dim of size 3 (by default the first such dim)."""
    refuse_dtype("cross", input.dtype)
    if input.ndim != other.ndim:
        raise RuntimeError(f"cross(): inputs must have the same number of dimensions, got shapes {tuple(input.shape)} and {tuple(other.shape)}")
    shape = broadcast_shapes("cross", [tuple(input.shape), tuple(other.shape)])
    if dim is None:
        found = next((i for i, s in enumerate(shape) if s == 3), None)
        if found is None:
            raise RuntimeError(f"no dimension of size 3 in input: the shapes are {tuple(input.shape)} and {tuple(other.shape)}")
        dim = found
    d = dim_of(dim, len(shape))
    if shape[d] != 3:
        raise RuntimeError(f"linalg.cross: inputs dimension {dim} must have length 3. Got {shape[d]} (shape {tuple(shape)})")
    a, b = input.expand(shape).unbind(d), other.expand(shape).unbind(d)
    return stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]], d)


def dist(input: Tensor, other: Tensor, p: float = 2) -> Any:
    """The p-norm of input - other, over all elements."""
    return (input - other).norm(p)


@operation(method=True, inplace=True, out=True)  # type: ignore[untyped-decorator]
@row_major
def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """Each slice at an index of `dim` scaled down so that its p-norm is at most maxnorm."""
    m = input._meta
    if m.ndim < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {m.ndim} dimensions")
    if isinstance(p, complex) or isinstance(maxnorm, complex) or not p > 0 or not maxnorm >= 0:
        raise RuntimeError(f"renorm: expected p > 0 and maxnorm >= 0, got p = {p}, maxnorm = {maxnorm}")
    d = dim_of(dim, m.ndim)
    others = tuple([i for i in range(m.ndim) if i != d])
    size = norm_of(input, float(p), others)
    # 1e-7: PyTorch's guard against division by zero (aten/src/ATen/native/cpu/RenormKernel.cpp)
    scale = prim.where(prim.gt(size, maxnorm), maxnorm / (size + 1e-7), 1.0)
    return input * prim.reshape(scale, shape=tuple([m.shape[i] if i == d else 1 for i in range(m.ndim)]))  # type: ignore[no-any-return]


def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Any:
    """The powers of each element of a vector, one row each, highest first unless `increasing`."""
    if x.ndim != 1:
        raise RuntimeError(f"vander(): x must be a one-dimensional tensor, got shape {tuple(x.shape)}")
    columns = x.shape[0] if N is None else whole("vander", "N", N)
    if columns < 0:
        raise RuntimeError(f"vander(): N must be non-negative, got {N}")
    kind = dtypes.int64 if x.dtype.category < 2 else x.dtype
    check_memory((x.shape[0], columns), kind)
    if not columns:
        return x.new_empty((x.shape[0], 0), dtype=kind)
    powers = x.to(kind).unsqueeze(1).expand(-1, columns - 1).cumprod(1)
    result = cat((x.new_ones((x.shape[0], 1), dtype=kind), powers), 1)
    return result if increasing else result.flip(1)


# -- elementwise ----------------------------------------------------------------------------------------------------
@public("float_power")
def float_power(input: Any, exponent: Any) -> Any:
    """input ** exponent in float64 (complex128 where an argument is complex)."""
    if not hasattr(input, "_meta") and not hasattr(exponent, "_meta"):
        raise TypeError("float_power(): argument 'input' (position 1) must be Tensor, not a number, or 'exponent' (position 2) must be one")
    is_complex = any(x.is_complex() if hasattr(x, "_meta") else isinstance(x, complex) for x in (input, exponent))
    kind = dtypes.complex128 if is_complex else dtypes.float64
    if hasattr(input, "_meta"):
        input = input.to(kind)
    if hasattr(exponent, "_meta"):
        exponent = exponent.to(kind)
    return input**exponent


def float_power_(input: Any, exponent: Any) -> Any:
    """In-place form of `float_power`: the tensor must have its result's dtype."""
    from flambeau.trace.mutation import replace

    is_complex = any(x.is_complex() if hasattr(x, "_meta") else isinstance(x, complex) for x in (input, exponent))
    kind = dtypes.complex128 if is_complex else dtypes.float64
    if input.dtype is not kind:
        raise RuntimeError(f"the base given to float_power_ has dtype {input.dtype.name} but the operation's result requires dtype {kind.name}")
    return replace(float_power, input, (exponent,), {}, "float_power_")


@operation(method=True, inplace=True, out=True)  # type: ignore[untyped-decorator]
def ldexp(input: Tensor, other: Tensor | Number) -> Tensor:
    """input * 2 ** other. A whole `other` is an exponent: the dtype is a floating input's, and 2 ** other may overflow."""
    if is_number(other):
        raise TypeError("ldexp(): argument 'other' (position 2) must be Tensor, not a number")
    kind = input.dtype
    if kind.is_floating_point and other.dtype.category < 2:  # type: ignore[union-attr]
        if other.dtype is dtypes.bool_:  # type: ignore[union-attr]
            raise NotImplementedError("\"ldexp_cpu_exp\" not implemented for 'Bool': ldexp() takes exponents of an integer dtype")
        left = convert(other, dtypes.float64)
        made = convert(input, dtypes.float64)
        for most in (1000.0, 1000.0, 2000.0):  # 2 ** 1000 is exact, and two of them are more than any number needs
            step = prim.minimum(prim.maximum(left, -most), most)
            made, left = prim.mul(made, prim.exp2(step)), prim.sub(left, step)
        return convert(made, kind)  # type: ignore[no-any-return]
    (power,) = promote_float(other if not isinstance(other, (int, float, complex)) else convert(other, dtypes.get_default_dtype()))
    a, b = promote(input, prim.exp2(power))
    return prim.mul(a, b)  # type: ignore[no-any-return]


@operation(name="frexp_parts")  # type: ignore[untyped-decorator]
@like_input
def _frexp(input: Tensor) -> tuple[Tensor, Tensor]:
    """By the bits of IEEE 754: subnormals are first scaled into the normal range."""
    kind = input.dtype
    wide = kind is dtypes.float64
    bits, bias, digits = (dtypes.int64, 1022, 52) if wide else (dtypes.int32, 126, 23)
    x = input if wide else convert(input, dtypes.float32)
    tiny = prim.lt(prim.abs(x), 2.0 ** (2 - bias))
    raw = prim.bitcast(prim.where(tiny, x * 2.0**54, x), dtype=bits)
    field = (1 << (63 - digits if wide else 31 - digits)) - 1
    exponent = prim.bitwise_and(prim.shift_right(raw, prim.constant(digits, bits)), prim.constant(field, bits))
    special = prim.bitwise_or(prim.eq(x, 0.0), prim.eq(exponent, prim.constant(field, bits)))
    sign_and_digits = prim.bitwise_and(raw, prim.constant(~(field << digits), bits))
    mantissa = prim.bitcast(prim.bitwise_or(sign_and_digits, prim.constant(bias << digits, bits)), dtype=x.dtype)
    power = exponent - prim.where(tiny, prim.constant(bias + 54, bits), prim.constant(bias, bits))
    return (
        convert(prim.where(special, x, mantissa), kind),
        convert(prim.where(special, prim.constant(0, bits), power), dtypes.int32),
    )


@public("frexp")
def frexp(input: Tensor) -> Any:
    """(mantissa, exponent) with input = mantissa * 2 ** exponent and 0.5 <= |mantissa| < 1; the exponent is int32."""
    if not input.dtype.is_floating_point:
        raise RuntimeError(f"torch.frexp() only supports floating-point dtypes, got {input.dtype}")
    mantissa, exponent = _frexp(input.detach())
    if input.requires_grad or hasattr(input, "_level"):
        # the same mantissa, as the gradient knows it; in two steps, as the exponent may be beyond a power's range
        whole, half = exponent, exponent.floor_divide(2)
        if input.dtype is dtypes.float64:  # whole exponents would be powers of float32
            whole, half = whole.to(input.dtype), half.to(input.dtype)
        mantissa = input.ldexp(-half).ldexp(half - whole).to(input.dtype)
    return frexp_result(mantissa, exponent)


def result_type(*operands: Any, **named: Any) -> dtype:
    """The dtype of an arithmetic operation on both (tensors or numbers), which may be called tensor, other, scalar, scalar1 and scalar2."""
    given = [*operands, *[named.pop(name) for name in ("scalar1", "tensor", "other", "scalar2", "scalar") if name in named]]
    if named or len(given) != 2:
        raise TypeError(f"result_type() takes two operands, got {len(given)}" + (f" and the unknown {sorted(named)}" if named else ""))
    return promotion.result_type(*map(from_numpy_scalar, given))


def _both_tensors(name: str, input: Any, other: Any) -> None:
    for i, (argument, x) in enumerate((("input", input), ("other", other)), start=1):
        if not hasattr(x, "_meta"):
            raise TypeError(f"{name}(): argument '{argument}' (position {i}) must be Tensor, not {type(x).__name__}")


@public("gcd")
def gcd(input: Tensor, other: Tensor) -> Any:
    """The greatest common divisor of integers, elementwise: Euclid's algorithm until every remainder is 0."""
    _both_tensors("gcd", input, other)
    kind = result_type(input, other)
    if kind.category != 1:
        raise NotImplementedError(f'"gcd" not implemented for {kind.name}: gcd is for integers')
    nothing = (input + other) * 0  # in the layout of one step over both
    a, b = nothing + input.to(kind).abs(), nothing + other.to(kind).abs()
    while bool((b != 0).any()):
        a, b = b.where(b != 0, a), (a % b.where(b != 0, 1)).where(b != 0, 0)
    return a


@public("lcm")
def lcm(input: Tensor, other: Tensor) -> Any:
    """The least common multiple of integers, elementwise."""
    _both_tensors("lcm", input, other)
    g = gcd(input, other)
    return (input // g.where(g != 0, 1) * other).abs()


@operation(method=True, inplace=True, out=True)  # type: ignore[untyped-decorator]
@row_major
def mvlgamma(input: Tensor, p: int) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension p."""
    if p < 1:
        raise RuntimeError(f"mvlgamma(): p has to be greater than or equal to 1, got {p}")
    check_memory((*input._meta.shape, p), input.dtype)
    (x,) = promote_float(input)
    terms: Any = as_shape(x, (*x._meta.shape, 1)) + arange(-p / 2 + 0.5, 0.5, 0.5, dtype=x.dtype)
    return terms.lgamma().sum(-1) + p * (p - 1) / 4 * math.log(math.pi)  # type: ignore[no-any-return]


METHODS = (cov, corrcoef, histogram, cross, dist, float_power, float_power_, frexp, gcd, lcm)
FUNCTIONS = (*METHODS, histogramdd, trapezoid, cumulative_trapezoid, gradient, vander)
