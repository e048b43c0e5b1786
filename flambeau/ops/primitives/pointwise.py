"""Pointwise primitives. Gradients of real functions follow the textbook; for complex inputs PyTorch's convention
(the conjugate Wirtinger derivative): the gradient of a holomorphic f is grad * conj(f'(z))."""

from __future__ import annotations

import math
from typing import Any

from flambeau import dtypes
from flambeau.compiler.graph import Value, contiguous_strides
from flambeau.ops.primitive import Primitive, broadcast_shapes, pointwise_rule, pointwise_strides, primitive, same_dtype
from flambeau.trace.meta import Meta
from flambeau.trace.strides import like_strides

INFINITY = float("inf")


def _conj(x: Any) -> Any:
    return conj_physical(x) if x._meta.dtype.is_complex else x


def _zero(g: Any) -> Any:
    """The gradient of a step function: zeros that depend on nothing, whatever `g` is."""
    from flambeau.ops.primitive import constant
    from flambeau.ops.primitives.view import expand

    return expand(constant(0, g._meta.dtype), shape=tuple(g._meta.shape))


def _unary(name: str) -> Any:
    return primitive(name, pointwise_rule(name))


def _binary(name: str) -> Any:
    return primitive(name, pointwise_rule(name))


def _without_gradient(name: str, out: dtypes.dtype | None = None) -> Primitive:
    return Primitive(name, pointwise_rule(name, out), None)


# -- one argument -------------------------------------------------------------------------------------------------


@_unary("neg")
def neg(c, g):
    return -g


@primitive("abs", pointwise_rule("abs", real=True))
def abs(c, g):
    return g * sgn(c.input(0))


@_unary("sgn")
def sgn(c, g):
    if not c.dtype(0).is_complex:
        return _zero(g)
    x = c.input(0)
    modulus = abs(x)
    zero = modulus.eq(0)
    s = c.output(0)
    return where(zero, 0.0, (g - make_complex((g * _conj(s)).real, 0.0) * s) / where(zero, 1.0, modulus))


@_unary("floor")
def floor(c, g):
    return _zero(g)


@_unary("ceil")
def ceil(c, g):
    return _zero(g)


@_unary("trunc")
def trunc(c, g):
    return _zero(g)


@_unary("round")
def round(c, g):
    return _zero(g)


def _result(c, function):
    """The result, computed once more where attribute `of_input` says that the gradient is one of the input: a program may write over the result."""
    return _conj(function(c.input(0)) if c.attrs.get("of_input") else c.output(0))


@_unary("sqrt")
def sqrt(c, g):
    return g / (2 * _result(c, sqrt))


@_unary("rsqrt")
def rsqrt(c, g):
    r = _result(c, rsqrt)
    return -0.5 * g * (r * r * r)


@_unary("reciprocal")
def reciprocal(c, g):
    r = _result(c, reciprocal)
    return -g * (r * r)


@_unary("exp")
def exp(c, g):
    return g * _conj(c.output(0))


@_unary("exp_weight")
def exp_weight(c, g):
    """e^x to a place: for weights that are summed, and products with what was rounded itself."""
    return g * _conj(c.output(0))


@_unary("exp2")
def exp2(c, g):
    return g * _conj(c.output(0)) * math.log(2.0)


@_unary("expm1")
def expm1(c, g):
    """With attribute `of_input` from the input, as ELU's gradient is: e^x - 1 has lost what a small e^x is."""
    return g * (exp(c.input(0)) if c.attrs.get("of_input") else _conj(c.output(0)) + 1)


@_unary("log")
def log(c, g):
    return g / _conj(c.input(0))


@_unary("log2")
def log2(c, g):
    return g / (_conj(c.input(0)) * math.log(2.0))


@_unary("log10")
def log10(c, g):
    return g / (_conj(c.input(0)) * math.log(10.0))


@_unary("log1p")
def log1p(c, g):
    return g / (_conj(c.input(0)) + 1)


@_unary("sin")
def sin(c, g):
    return g * _conj(cos(c.input(0)))


@_unary("cos")
def cos(c, g):
    return -g * _conj(sin(c.input(0)))


@_unary("tan")
def tan(c, g):
    t = _conj(c.output(0))
    return g * (1 + t * t)


def _one_minus_square(x: Any) -> Any:
    """1 - x^2; of complex numbers as a product, in which no digits cancel near 1."""
    return (1 - x) * (1 + x) if x.dtype.is_complex else 1 - x * x


@_unary("asin")
def asin(c, g):
    return g * _conj(rsqrt(_one_minus_square(c.input(0))))


@_unary("acos")
def acos(c, g):
    return -g * _conj(rsqrt(_one_minus_square(c.input(0))))


@_unary("atan")
def atan(c, g):
    x = _conj(c.input(0))
    return g / (x * x + 1)


@_unary("sinh")
def sinh(c, g):
    return g * _conj(cosh(c.input(0)))


@_unary("cosh")
def cosh(c, g):
    return g * _conj(sinh(c.input(0)))


@_unary("tanh")
def tanh(c, g):
    t = _conj(c.output(0))
    return g * (1 - t * t)


@_unary("asinh")
def asinh(c, g):
    x = c.input(0)
    return g * _conj(rsqrt(x * x + 1))


@_unary("acosh")
def acosh(c, g):
    x = c.input(0)
    if not x.dtype.is_complex:
        return g * rsqrt(x * x - 1)
    return g * _conj(rsqrt(x + 1) * rsqrt(x - 1))  # not the root of x^2 - 1, which has the other sign in the left half plane


@_unary("atanh")
def atanh(c, g):
    x = _conj(c.input(0))
    return g / _one_minus_square(x)


def _bell(c: Any, g: Any, factor: float) -> Any:
    """g factor 2 / sqrt(pi) e^(-x^2): the slope of the error function."""
    x = c.input(0)
    return g * (factor * 2 / math.sqrt(math.pi)) * exp_weight(-(x * x))


@_unary("erf")
def erf(c, g):
    return _bell(c, g, 1)


@_unary("erf_plus_one")
def erf_plus_one(c, g):
    """1 + erf(x), exact to a place of 1: what gelu needs."""
    return _bell(c, g, 1)


@_unary("erfc")
def erfc(c, g):
    return _bell(c, g, -1)


@_unary("erfinv")
def erfinv(c, g):
    y = erfinv(c.input(0))  # not the result: PyTorch's rule allows to write over that
    return g * (math.sqrt(math.pi) / 2) * exp(y * y)


@_unary("lgamma")
def lgamma(c, g):
    return g * digamma(c.input(0))


@_unary("digamma")
def digamma(c, g):
    from flambeau.ops.special_gamma import trigamma

    return g * trigamma(c.input(0))


@_unary("sigmoid")
def sigmoid(c, g):
    s = _conj(c.output(0))
    return g * (1 - s) * s


@_unary("conj_physical")
def conj_physical(c, g):
    return _conj(g)


bitwise_not = _without_gradient("bitwise_not")
isnan = _without_gradient("isnan", dtypes.bool_)


@primitive("real_part", pointwise_rule("real_part", real=True))
def real_part(c, g):
    return make_complex(g, 0.0)


@primitive("imag_part", pointwise_rule("imag_part", real=True))
def imag_part(c, g):
    return make_complex(g * 0, g)


def _make_complex_rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    d = same_dtype("complex", metas).to_complex()
    shape = broadcast_shapes("complex", [m.shape for m in metas])
    return [Value(shape, d, pointwise_strides(metas, shape))]


@primitive("make_complex", _make_complex_rule)
def make_complex(c, g):
    return real_part(g), imag_part(g)


# -- two arguments ------------------------------------------------------------------------------------------------


@_binary("add")
def add(c, g):
    return g, g


@_binary("sub")
def sub(c, g):
    return g, -g


@_binary("mul")
def mul(c, g):
    return (g * _conj(c.input(1)) if c.needs(0) else None, g * _conj(c.input(0)) if c.needs(1) else None)


@_binary("div")
def div(c, g):
    b = _conj(c.input(1))
    # a / b again, not the result, which may be written over (PyTorch's rule, too)
    return (g / b if c.needs(0) else None, -g * (_conj(c.input(0)) / b / b) if c.needs(1) else None)


@_binary("div_floor")
def div_floor(c, g):
    return _zero(g), _zero(g)


@_binary("div_trunc")
def div_trunc(c, g):
    return _zero(g), _zero(g)


@_binary("remainder")
def remainder(c, g):
    return g, -g * div_floor(c.input(0), c.input(1)) if c.needs(1) else None


@_binary("fmod")
def fmod(c, g):
    return g, -g * div_trunc(c.input(0), c.input(1)) if c.needs(1) else None


@_binary("pow")
def pow(c, g):
    x, y = c.input(0), c.input(1)
    gx = gy = None
    if c.needs(0):
        gx = where(y.eq(0), 0.0, g * _conj(y * pow(x, y - 1)))  # 0 whatever g is
    if c.needs(1):
        zero = x.eq(0) & y.ge(0) if not x._meta.dtype.is_complex else x.eq(0)
        gy = g * _conj(where(zero, 0.0, c.output(0) * log(x)))
    return gx, gy


@_binary("atan2")
def atan2(c, g):
    y, x = c.input(0), c.input(1)
    squared = y * y + x * x
    scaled = g / where(squared.eq(0), INFINITY, squared)  # 0 at the origin
    return scaled * x, -scaled * y


def _share(c, g, first: str) -> Any:
    """Gradient of a maximum or minimum: to the winner, halves where both are equal, to both where one is NaN."""
    a, b = c.input(0), c.input(1)
    shared = where(a.eq(b), g * 0.5, g)
    loses, wins = (a.lt(b), a.gt(b)) if first == "max" else (a.gt(b), a.lt(b))
    return where(loses, 0.0, shared), where(wins, 0.0, shared)


@_binary("maximum")
def maximum(c, g):
    return _share(c, g, "max")


@_binary("minimum")
def minimum(c, g):
    return _share(c, g, "min")


@_binary("fmax")
def fmax(c, g):
    first = c.input(0).ge(c.input(1)) | isnan(c.input(1))
    return where(first, g, 0.0), where(first, 0.0, g)


@_binary("fmin")
def fmin(c, g):
    first = c.input(0).le(c.input(1)) | isnan(c.input(1))
    return where(first, g, 0.0), where(first, 0.0, g)


@_binary("hypot")
def hypot(c, g):
    # Quotients of at most 1, whose own slopes do not overflow for small numbers
    return g * (c.input(0) / c.output(0)), g * (c.input(1) / c.output(0))


@_binary("copysign")
def copysign(c, g):
    x = c.input(0)
    ratio = where(x.eq(0), 0.0, c.output(0) / x)
    return g * ratio, None


@_binary("nextafter")
def nextafter(c, g):
    """PyTorch's: that of the first argument, none where both are equal."""
    return where(c.input(0).eq(c.input(1)), 0.0, g), _zero(g)


bitwise_and = _without_gradient("bitwise_and")
bitwise_or = _without_gradient("bitwise_or")
bitwise_xor = _without_gradient("bitwise_xor")
shift_left = _without_gradient("shift_left")
shift_right = _without_gradient("shift_right")
eq = _without_gradient("eq", dtypes.bool_)
ne = _without_gradient("ne", dtypes.bool_)
lt = _without_gradient("lt", dtypes.bool_)
le = _without_gradient("le", dtypes.bool_)
gt = _without_gradient("gt", dtypes.bool_)
ge = _without_gradient("ge", dtypes.bool_)


# -- the rest -----------------------------------------------------------------------------------------------------


def _where_rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    if metas[0].dtype is not dtypes.bool_:
        raise RuntimeError(f"where expected condition to be a boolean tensor, but got a tensor with dtype {metas[0].dtype}")
    d = same_dtype("where", metas[1:])
    shape = broadcast_shapes("where", [m.shape for m in metas])
    return [Value(shape, d, pointwise_strides(metas, shape))]


@primitive("where", _where_rule)
def where(c, g):
    """With attribute `refused` see ops/tied.py."""
    if c.attrs.get("refused") and not c.region.dry:
        refused = c.attrs["refused"]
        raise RuntimeError(refused) if refused.endswith(".") else NotImplementedError(f"the derivative for '{refused}' is not implemented.")
    condition = c.input(0)
    return (None, where(condition, g, 0.0) if c.needs(1) else None, where(condition, 0.0, g) if c.needs(2) else None)


def _cast_rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    return [Value(tuple(metas[0].shape), attrs["dtype"], like_strides(metas[0].shape, metas[0].strides))]


@primitive("cast", _cast_rule)
def cast(c, g):
    d = c.dtype(0)
    if not (d.is_floating_point or d.is_complex):
        return None
    return cast(g, dtype=d)


iota = Primitive("iota", lambda metas, attrs: [Value(attrs["shape"], dtypes.int64, contiguous_strides(attrs["shape"]))], None)
random_uniform = Primitive(
    "random_uniform",
    lambda metas, attrs: [Value(attrs["shape"], dtypes.float32, contiguous_strides(attrs["shape"]))],
    None,
)


def _take_rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    return [Value(tuple(metas[1].shape), metas[0].dtype, contiguous_strides(metas[1].shape))]


@primitive("take", _take_rule)
def take(c, g):
    from flambeau.ops.primitives.move import put, zeros_of

    return put(zeros_of(c.shape(0), g._meta.dtype), c.input(1), g, mode="add"), None


searchsorted = Primitive(
    "searchsorted",
    lambda metas, attrs: [Value(tuple(metas[1].shape), dtypes.int64, contiguous_strides(metas[1].shape))],
    None,
)
