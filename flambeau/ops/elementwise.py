"""The unary pointwise functions, clamping and their kin."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from flambeau import dtypes
from flambeau.ops import primitives as prim
from flambeau.ops.dtype_rules import refuse_dtype
from flambeau.ops.primitive import laid_out, pointwise_strides
from flambeau.ops.promotion import convert, fitted, fitting, in_float32, need_order, need_tensor, promote_float, result_type
from flambeau.ops.registry import Number, operation
from flambeau.ops.result_strides import like_input, of_complex, over_operands, over_parts, over_tensors, row_major, with_number
from flambeau.ops.tied import tied
from flambeau.trace.meta import CONJ, NEG
from flambeau.trace.recorder import OffsetNeeded
from flambeau.trace.strides import like_strides

if TYPE_CHECKING:
    from flambeau.tensor import Tensor


def _float_function(name: str, text: str, public: str | None = None, aliases: tuple[str, ...] = (), real_only: bool = False) -> Any:
    """A function of floating numbers; integers are taken to the default dtype."""
    primitive = getattr(prim, name)

    def body(input: Tensor) -> Tensor:
        (x,) = promote_float(input)
        if real_only and x.dtype.is_complex:
            raise NotImplementedError(f"{public or name} is not implemented for complex tensors")
        return primitive(x)

    body.__doc__ = text
    return operation(name=public or name, aliases=aliases, method=True, inplace=True, out=True)(body)


sqrt = _float_function("sqrt", "The square root.")
rsqrt = _float_function("rsqrt", "1 / sqrt(x).")
reciprocal = _float_function("reciprocal", "1 / x.")
exp = _float_function("exp", "e to the power x.")
exp2 = _float_function("exp2", "2 to the power x.", aliases=("special_exp2",))
expm1 = _float_function("expm1", "exp(x) - 1, accurate near 0.", aliases=("special_expm1",))
log = _float_function("log", "The natural logarithm.")
log2 = _float_function("log2", "The logarithm to base 2.")
log10 = _float_function("log10", "The logarithm to base 10.")
log1p = _float_function("log1p", "log(1 + x), accurate near 0.", aliases=("special_log1p",))
sin = _float_function("sin", "The sine of x in radians.")
cos = _float_function("cos", "The cosine of x in radians.")
tan = _float_function("tan", "The tangent of x in radians.")
asin = _float_function("asin", "The arcsine, in radians.", aliases=("arcsin",))
acos = _float_function("acos", "The arccosine, in radians.", aliases=("arccos",))
atan = _float_function("atan", "The arctangent, in radians.", aliases=("arctan",))
sinh = _float_function("sinh", "The hyperbolic sine.")
cosh = _float_function("cosh", "The hyperbolic cosine.")
tanh = _float_function("tanh", "The hyperbolic tangent.")
asinh = _float_function("asinh", "The inverse hyperbolic sine.", aliases=("arcsinh",))
acosh = _float_function("acosh", "The inverse hyperbolic cosine.", aliases=("arccosh",))
atanh = _float_function("atanh", "The inverse hyperbolic tangent.", aliases=("arctanh",))
erf = _float_function("erf", "The error function.", real_only=True)
erfc = _float_function("erfc", "1 - erf(x), accurate for large x.", real_only=True)
erfinv = _float_function("erfinv", "The inverse of erf on (-1, 1).", real_only=True)
lgamma = _float_function("lgamma", "log |gamma(x)|.", real_only=True)
digamma = _float_function("digamma", "The derivative of lgamma.", real_only=True)
sigmoid = _float_function("sigmoid", "1 / (1 + exp(-x)).", aliases=("special_expit",))


def _any_function(name: str, text: str, aliases: tuple[str, ...] = (), integers_unchanged: bool = False) -> Any:
    """A function that keeps the dtype."""
    primitive = getattr(prim, name)

    def body(input: Tensor) -> Tensor:
        if integers_unchanged and input.dtype.category < 2:
            return prim.copy(input, strides=_strides_like(input))
        if integers_unchanged:
            need_order(name, input)
        return primitive(input)

    body.__doc__ = text
    return operation(name=name, aliases=aliases, method=True, inplace=True, out=True)(body)


def _strides_like(x: Any) -> tuple[int, ...]:
    return pointwise_strides([x._meta], tuple(x.shape))


@operation(method=True, inplace=True, out=True, aliases=("negative",))
def neg(input: Tensor) -> Tensor:
    """-input; booleans are refused, as in PyTorch."""
    if input.dtype is dtypes.bool_:
        raise RuntimeError("Negation, the `-` operator, on a bool tensor is not supported. Use `~` or `logical_not()` instead.")
    return prim.neg(input)


@operation(name="abs", method=True, inplace=True, out=True, aliases=("absolute",))
@of_complex(like_input)
def abs_(input: Tensor) -> Tensor:
    """The absolute value; the modulus of complex numbers."""
    return prim.abs(input) if input.dtype is not dtypes.bool_ else prim.copy(input, strides=_strides_like(input))


floor = _any_function("floor", "The largest integer not above x.", integers_unchanged=True)
ceil = _any_function("ceil", "The smallest integer not below x.", integers_unchanged=True)
trunc = _any_function("trunc", "The integer part.", aliases=("fix",), integers_unchanged=True)
sgn = _any_function("sgn", "The sign; x / |x| for complex numbers.")


@operation(method=True, inplace=True, out=True)
def sign(input: Tensor) -> Tensor:
    """-1, 0 or 1 by the sign of each element."""
    if input.dtype.is_complex:
        raise RuntimeError("Unlike NumPy, torch.sign doesn't support complex tensors; use torch.sgn")
    return prim.sgn(input) if input.dtype is not dtypes.bool_ else prim.copy(input, strides=_strides_like(input))


@operation(name="round", method=True, inplace=True, out=True)
def round_(input: Tensor, *, decimals: int = 0) -> Tensor:
    """The nearest integer, halves to even; with `decimals`, to that many places."""
    if decimals:
        refuse_dtype("round_decimals", input.dtype)
    if input.dtype.category < 2:
        return prim.copy(input, strides=_strides_like(input))
    need_order("round", input)
    if decimals == 0:
        return prim.round(input)
    scale = 10.0 ** builtin_abs(decimals)
    if decimals > 0:
        return prim.div(prim.round(prim.mul(input, scale)), scale)
    return prim.mul(prim.round(prim.div(input, scale)), scale)


builtin_abs = abs


@operation(method=True, inplace=True, out=True)
def square(input: Tensor) -> Tensor:
    """input * input."""
    x = convert(input, dtypes.int64) if input.dtype is dtypes.bool_ else input
    return prim.mul(x, x)


@operation(method=True, inplace=True, out=True)
def frac(input: Tensor) -> Tensor:
    """The fractional part, with the sign of x."""
    return prim.sub(input, prim.trunc(input))


@operation(method=True)
def positive(input: Tensor) -> Tensor:
    """input itself; booleans are refused, as in PyTorch."""
    if input.dtype is dtypes.bool_:
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input


@operation(method=True, inplace=True, out=True)
@with_number
def deg2rad(input: Tensor) -> Tensor:
    """Degrees to radians."""
    (x,) = promote_float(input)
    return prim.mul(x, math.pi / 180.0)


@operation(method=True, inplace=True, out=True)
@with_number
def rad2deg(input: Tensor) -> Tensor:
    """Radians to degrees."""
    (x,) = promote_float(input)
    return prim.mul(x, 180.0 / math.pi)


@operation(method=True, inplace=True, out=True)
def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)); x is clamped to [eps, 1 - eps] first if eps is given."""
    (x,) = promote_float(input)
    if eps is not None:
        fitting("logit", x.dtype, eps)
    return _logit(x, eps)  # type: ignore[no-any-return]


@in_float32
def _logit(x: Any, eps: float | None) -> Any:
    if eps is not None and eps == eps:
        top = 1 - eps  # below eps where that is more than a half: the lower bound counts, as in PyTorch, and NaN goes on
        x = prim.where(prim.lt(x, eps), eps, prim.where(prim.gt(x, top), top, x))
    if not x._meta.requires_grad or x.dtype.is_complex or (eps is not None and 0.0 < eps <= 0.5):
        return prim.log(prim.div(x, prim.sub(prim.constant(1, x.dtype), x)))
    inside = prim.bitwise_and(prim.gt(x, 0.0), prim.lt(x, 1.0))
    safe = prim.where(inside, x, 0.5)
    return prim.where(inside, prim.log(prim.div(safe, prim.sub(prim.constant(1, x.dtype), safe))), beyond_unit(x))


def beyond_unit(x: Any) -> Any:
    """-inf at 0, inf at 1 and NaN elsewhere, with slopes of inf and NaN: what a function on (0, 1) with poles at both ends is outside of it."""
    zero, one = prim.eq(x, 0.0), prim.eq(x, 1.0)
    within = prim.bitwise_and(prim.ge(x, 0.0), prim.le(x, 1.0))
    outside = prim.where(within, 0.0, x)
    right = prim.where(one, prim.div(1.0, 1 - prim.where(one, x, 0.0)), outside * outside * float("nan"))
    return prim.where(zero, prim.div(-1.0, prim.where(zero, x, 1.0) + 0.0), right)


@operation(method=True, inplace=True, out=True)
@in_float32
def sinc(input: Tensor) -> Tensor:
    """sin(pi x) / (pi x), 1 at 0."""
    (x,) = promote_float(input)
    scaled = prim.mul(x, math.pi)
    near = prim.lt(prim.abs(x), _NEAR_SINC)
    inner = prim.where(near, scaled, 0.0)
    squared = inner * inner
    series: Any = 0.0
    for k in range(_TERMS_OF_SINC, -1, -1):
        series = squared * series + (-1.0) ** k / math.factorial(2 * k + 1)
    return prim.where(near, series, prim.div(prim.sin(scaled), prim.where(near, 1.0, scaled)))


# Below it sinc is its Taylor series, whose slopes of all orders are right at 0 and lose no digits beside it; the next term's second slope is 4e-17.
_NEAR_SINC = 0.5 / math.pi
_TERMS_OF_SINC = 7


@operation(method=True)
def isnan(input: Tensor) -> Tensor:
    """Whether an element is NaN."""
    if input.dtype.is_complex:
        return prim.bitwise_or(prim.isnan(prim.real_part(input)), prim.isnan(prim.imag_part(input)))
    return prim.isnan(input) if input.dtype.is_floating_point else prim.ne(input, input)


def _magnitude(x: Any) -> Any:
    return prim.abs(x)


@operation(method=True)
@over_parts(then_number=False)
def isinf(input: Tensor) -> Tensor:
    """Whether an element is infinite."""
    if input.dtype.is_complex:
        infinity = float("inf")
        parts = [prim.eq(prim.abs(p), infinity) for p in (prim.real_part(input), prim.imag_part(input))]
        return prim.bitwise_or(*parts)
    if input.dtype in dtypes.FLOATS8:  # there are formats without infinities
        input = convert(input, dtypes.float32)
    return prim.eq(prim.abs(input), float("inf")) if input.dtype.is_floating_point else _everywhere(input, False)


def _everywhere(like: Tensor, value: bool) -> Any:
    """One truth value in each element, in the order of a tensor's dims."""
    m = like._meta
    return laid_out(prim.full_of(tuple(m.shape), prim.constant(value, dtypes.bool_)), like_strides(m.shape, m.strides))


@operation(method=True)
def isfinite(input: Tensor) -> Tensor:
    """Whether an element is neither infinite nor NaN."""
    if input.dtype.is_complex:
        infinity = float("inf")
        parts = [prim.lt(prim.abs(p), infinity) for p in (prim.real_part(input), prim.imag_part(input))]
        return prim.bitwise_and(*parts)
    if input.dtype in dtypes.FLOATS8:  # there are formats without infinities
        input = convert(input, dtypes.float32)
    return prim.lt(prim.abs(input), float("inf")) if input.dtype.is_floating_point else _everywhere(input, True)


@operation(method=True, out=True)
def isposinf(input: Tensor) -> Tensor:
    """Whether an element is plus infinity."""
    return prim.eq(input, float("inf")) if input.dtype.is_floating_point else prim.ne(input, input)


@operation(method=True, out=True)
def isneginf(input: Tensor) -> Tensor:
    """Whether an element is minus infinity."""
    return prim.eq(input, float("-inf")) if input.dtype.is_floating_point else prim.ne(input, input)


@operation(method=True)
@over_parts(then_number=True)
def isreal(input: Tensor) -> Tensor:
    """Whether the imaginary part is zero."""
    if input.dtype.is_complex:
        return prim.eq(prim.imag_part(input), 0)
    return _everywhere(input, True)


@operation(method=True, out=True)
def signbit(input: Tensor) -> Tensor:
    """Whether the sign bit is set (also of -0.0)."""
    if input.dtype.is_floating_point:
        return prim.lt(prim.copysign(prim.constant(1, input.dtype), input), 0)
    return prim.lt(input, 0) if input.dtype is not dtypes.bool_ else prim.ne(input, input)


@operation(method=True, inplace=True, out=True)
@like_input
def nan_to_num(input: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """NaN and infinities replaced by numbers: 0 and the dtype's largest and smallest, unless given."""
    if not input.dtype.is_floating_point:
        return prim.copy(input, strides=_strides_like(input))
    largest = LARGEST[input.dtype]
    x = prim.where(prim.isnan(input), 0.0 if nan is None else nan, input)
    x = prim.where(prim.eq(input, float("inf")), largest if posinf is None else posinf, x)
    return prim.where(prim.eq(input, float("-inf")), -largest if neginf is None else neginf, x)


LARGEST = {
    dtypes.float16: 65504.0,
    dtypes.bfloat16: 3.3895313892515355e38,
    dtypes.float32: 3.4028234663852886e38,
    dtypes.float64: 1.7976931348623157e308,
}


@operation(method=True, inplace=True, out=True, aliases=("clip",))
@over_tensors
def clamp(input: Tensor, min: Tensor | Number | None = None, max: Tensor | Number | None = None) -> Tensor:
    """Each element limited to [min, max]; NaN stays NaN. Either bound may be missing, not both."""
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    d = result_type(*[x for x in (input, min, max) if x is not None])
    x = convert(input, d)
    if d.is_complex:
        if input.dtype.is_floating_point and not any(hasattr(x, "_meta") and x._meta.dtype.is_complex for x in (min, max)):
            raise RuntimeError(f"clamp(): value cannot be converted to type double without overflow: a bound is complex, the tensor {input.dtype.name}")
        raise NotImplementedError(f"clamp is not supported for complex types: the tensor is {input.dtype.name}")
    return _clamp(x, None if min is None else fitted(min, d, "clamp"), None if max is None else fitted(max, d, "clamp"))


def _clamp(x: Any, low: Any, high: Any) -> Any:
    """The gradient is 1 within the bounds, ends included, and 0 of NaN (PyTorch's rule): hence where, not maximum. A bound that is NaN gives NaN."""
    for bound, beyond in ((low, prim.lt), (high, prim.gt)):  # the upper bound last: of crossed bounds it is the result, and has the gradient
        if bound is None:
            continue
        out = beyond(x, bound)
        if bound._meta.dtype.is_floating_point:
            out = prim.bitwise_or(out, prim.isnan(bound))
            bound = _without_nan_slope(bound)
        x = prim.where(out, bound, x)
    return _without_nan_slope(x)


def _without_nan_slope(x: Any) -> Any:
    """The same values; where they are NaN, no gradient."""
    return prim.where(prim.isnan(x), float("nan"), x) if x._meta.requires_grad and x.dtype.is_floating_point else x


@operation(method=True, inplace=True, out=True)
@over_tensors
def clamp_min(input: Tensor, min: Tensor | Number) -> Tensor:
    """Each element at least `min`."""
    d = result_type(input, min)
    return _clamp(convert(input, d), fitted(min, d, "clamp_min"), None)


@operation(method=True, inplace=True, out=True)
@over_tensors
def clamp_max(input: Tensor, max: Tensor | Number) -> Tensor:
    """Each element at most `max`."""
    d = result_type(input, max)
    return _clamp(convert(input, d), None, fitted(max, d, "clamp_max"))


@operation(method=True, inplace=True)
def relu(input: Tensor) -> Tensor:
    """max(x, 0); NaN stays NaN, the gradient at 0 is 0."""
    return prim.where(prim.le(input, 0), 0, input)


@operation(method=True, inplace=True, out=True)
@over_operands
@in_float32
def xlogy(input: Tensor | Number, other: Tensor | Number) -> Tensor:
    """x * log(y), 0 where x is 0 (NaN where y is NaN)."""
    need_tensor("xlogy", input, other)
    x, y = promote_float(input, other)
    wild = prim.bitwise_or(prim.le(y, 0.0), prim.eq(y, float("inf")))  # where 0 * log(y) is not 0
    zero = prim.bitwise_and(prim.eq(x, 0.0), wild)
    return prim.where(zero, 0.0, prim.mul(x, prim.log(prim.where(zero, 1.0, y))))


def _ordered(x: Any, y: Any) -> tuple[Any, Any]:
    """(the larger, the smaller minus the larger). One comparison decides for both, so that derivatives of all orders are right at ties."""
    swap = prim.lt(x, y)
    larger, smaller = prim.where(swap, y, x), prim.where(swap, x, y)
    same = prim.bitwise_and(prim.eq(x, y), prim.eq(prim.abs(x), float("inf")))
    return larger, prim.where(same, 0.0, prim.sub(smaller, larger))


@operation(method=True, out=True)
@over_operands
@in_float32
def logaddexp(input: Tensor, other: Tensor) -> Tensor:
    """log(exp(x) + exp(y)) without overflow."""
    x, y = promote_float(input, other)
    if x.dtype.is_complex:  # the larger real part in front
        swap = prim.lt(x.real, y.real)  # type: ignore[attr-defined]
        first, second = prim.where(swap, y, x), prim.where(swap, x, y)
        found = prim.add(first, prim.log1p(prim.exp(prim.sub(second, first))))
        real = first.real  # type: ignore[attr-defined]
        endless = prim.bitwise_and(prim.eq(real, second.real), prim.eq(prim.abs(real), math.inf))  # type: ignore[attr-defined]
        at_end = prim.where(prim.lt(real, 0), second, prim.log(prim.add(prim.exp(first), prim.exp(second))))
        return prim.where(endless, at_end, found)
    larger, gap = _ordered(x, y)
    return prim.add(larger, prim.log1p(prim.exp(gap)))


@operation(method=True, out=True)
@over_operands
@in_float32
def logaddexp2(input: Tensor, other: Tensor) -> Tensor:
    """log2(2^x + 2^y) without overflow."""
    x, y = promote_float(input, other)
    larger, gap = _ordered(x, y)
    return prim.add(larger, prim.mul(prim.log1p(prim.exp2(gap)), 1 / math.log(2.0)))


@operation(method=True, inplace=True, out=True)
@over_operands
def heaviside(input: Tensor, values: Tensor) -> Tensor:
    """0 for negative x, 1 for positive x, `values` at 0."""
    if input.dtype is not values.dtype:
        raise RuntimeError("heaviside is not yet implemented for tensors with different dtypes.")
    step = convert(prim.gt(input, 0), input.dtype)
    return tied(prim.where(prim.eq(input, 0), values, step), input, refused="heaviside")  # type: ignore[no-any-return]


# -- complex numbers ----------------------------------------------------------------------------------------------


def _check_parts(first: Tensor, second: Tensor) -> None:
    """Both are halves, floats or doubles."""
    a, b = [dtypes.C_NAMES[t.dtype.name] for t in (first, second)]
    if any(t.dtype not in (dtypes.float16, dtypes.float32, dtypes.float64) for t in (first, second)):
        raise RuntimeError(f"Expected both inputs to be Half, Float or Double tensors but got {a} and {b}")
    if a != b:
        raise RuntimeError(f"Expected object of scalar type {a} but got scalar type {b} for second argument")


@operation(out=True)
def complex(real: Tensor, imag: Tensor) -> Tensor:
    """real + i * imag, of two floating tensors of one dtype."""
    _check_parts(real, imag)
    return prim.make_complex(real, imag)


@operation(out=True)
def polar(abs: Tensor, angle: Tensor) -> Tensor:
    """abs * exp(i * angle)."""
    _check_parts(abs, angle)
    return prim.make_complex(prim.mul(abs, prim.cos(angle)), prim.mul(abs, prim.sin(angle)))


@operation(method=True, out=True)
@of_complex(row_major)
def angle(input: Tensor) -> Tensor:
    """The argument of complex numbers in radians; 0 or pi for reals, NaN for NaN."""
    if input.dtype.is_complex:
        return prim.atan2(prim.imag_part(input), prim.real_part(input))
    (x,) = promote_float(input)
    return prim.where(prim.isnan(x), float("nan"), prim.where(prim.lt(x, 0), math.pi, 0.0 * prim.sgn(x)))  # `sgn`: its gradient is 0 whatever comes in


@operation(method=True, inplace=True, out=True)
@of_complex(like_input)
def conj_physical(input: Tensor) -> Tensor:
    """The complex conjugate, computed."""
    return prim.conj_physical(input) if input.dtype.is_complex else input


@operation(method=True)
def conj(input: Tensor) -> Tensor:
    """A view of the complex conjugates; real tensors are returned as they are."""
    return prim.alias(input, bits=CONJ) if input.dtype.is_complex else input


@operation(name="_neg_view")
def neg_view(input: Tensor) -> Tensor:
    """A view of the negatives."""
    return prim.alias(input, bits=NEG)


def _pairs(x: Any) -> Any:
    """The parts of complex numbers in memory as pairs in a new last dim."""
    return prim.real_view(prim.alias(x, bits=CONJ) if x._meta.bits & CONJ else x)


@operation()
def real(input: Tensor) -> Tensor:
    """A view of the real part."""
    if not input.dtype.is_complex:
        return input
    pairs = _pairs(input)
    return prim.select(pairs, dim=pairs._meta.ndim - 1, index=0)


@operation()
def imag(input: Tensor) -> Tensor:
    """A view of the imaginary part."""
    if not input.dtype.is_complex:
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
    pairs = _pairs(input)
    part = prim.select(pairs, dim=pairs._meta.ndim - 1, index=1)
    return prim.alias(part, bits=NEG) if input._meta.bits & CONJ else part


@operation()
def view_as_real(input: Tensor) -> Tensor:
    """A complex tensor as pairs of reals in a new last dimension; shares memory."""
    if not input.dtype.is_complex:
        raise RuntimeError("view_as_real is only supported for complex tensors")
    if input._meta.bits & CONJ:
        raise RuntimeError(
            "view_as_real doesn't work on unresolved conjugated tensors.  To resolve the conjugate tensor so you can view it as real, use "
            "self.resolve_conj(); however, be warned that the resulting tensor will NOT alias the original."
        )
    return prim.real_view(input)


@operation()
def view_as_complex(input: Tensor) -> Tensor:
    """Pairs in the last dimension as complex numbers; shares memory."""
    m = input._meta
    if m.dtype not in (dtypes.float16, dtypes.float32, dtypes.float64):
        raise RuntimeError(
            f"view_as_complex is only supported for half, float and double tensors, but got a tensor of scalar type: {dtypes.C_NAMES[m.dtype.name]}"
        )
    if m.ndim == 0:
        raise RuntimeError("Input tensor must have one or more dimensions")
    if m.shape[-1] != 2:
        raise RuntimeError(f"Tensor must have a last dimension of size 2, got shape {list(m.shape)}")
    if m.dynamic:
        raise OffsetNeeded
    if m.strides[-1] != 1:
        raise RuntimeError(f"Tensor must have a last dimension with stride 1, got strides {list(m.strides)}")
    if any(s % 2 for s, n in zip(m.strides[:-1], m.shape, strict=False) if n != 1):
        raise RuntimeError(f"Tensor must have a stride divisible by 2 for all but last dimension, got strides {list(m.strides)}")
    if m.offset % 2:
        raise RuntimeError(f"Tensor must have a storage_offset divisible by 2, got {m.offset}")
    return prim.real_view(input)
