"""Mathematics of the tile language (Triton's `tl.math`), by our own polynomials."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, Final

from flambeau.dtypes import bool_, int32, int64, uint32, uint64
from flambeau.tile.operations import binary, broadcast_pair, cast, floating, number, pair
from flambeau.tile.values import build, tensor, unwrap

METHODS: Final = frozenset(("exp", "exp2", "log", "log2", "sqrt", "sqrt_rn", "rsqrt", "sin", "cos", "floor", "ceil", "erf", "abs"))


def _of_floats(name: str) -> Callable[[Any], tensor]:
    def function(x: Any) -> tensor:
        return floating(name, x)

    function.__name__ = name
    function.__doc__ = f"{name} of floats, by our own polynomials."
    return function


(exp, exp2, expm1, log, log2, log10, log1p, sqrt, rsqrt, sin, cos, tan, asin, acos, atan, sinh, cosh, tanh, asinh, acosh, atanh, erf, erfc, erfinv,
 lgamma, floor, ceil, trunc) = map(_of_floats, (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
    "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "lgamma", "floor", "ceil", "trunc"))  # fmt: skip
rint = _of_floats("round")


def _of_two(name: str) -> Callable[[Any, Any], tensor]:
    def function(x: Any, y: Any) -> tensor:
        return tensor(build().pointwise(name, *pair(x, y)))

    function.__name__ = name
    return function


pow, atan2, hypot, copysign, fmod, nextafter = map(_of_two, ("pow", "atan2", "hypot", "copysign", "fmod", "nextafter"))


def sqrt_rn(x: Any) -> tensor:
    """The square root, rounded to nearest."""
    return sqrt(x)


def div_rn(x: Any, y: Any) -> tensor:
    """The quotient, rounded to nearest."""
    return binary("truediv", x, y)  # type: ignore[no-any-return]


def fdiv(x: Any, y: Any, ieee_rounding: Any = False) -> tensor:
    """The quotient of floats."""
    for v in (x, y):
        if number(v).type.dtype.category != 2:
            raise TypeError("both operands of fdiv must have floating scalar type")
    return binary("truediv", x, y)  # type: ignore[no-any-return]


def fma(x: Any, y: Any, z: Any) -> tensor:
    """x y + z, rounded once."""
    left, right = pair(x, y)
    first, third = pair(tensor(left), z)
    second, _ = pair(tensor(right), tensor(third))
    return tensor(build().pointwise("fma", first, second, third))


def abs(x: Any) -> Any:
    """The absolute value."""
    x = unwrap(x)
    if not isinstance(x, tensor):
        return builtins.abs(x)
    d = x.handle.type.dtype
    return x if d is bool_ or (d.category == 1 and not d.is_signed) else tensor(build().pointwise("abs", x.handle))


def isnan(x: Any) -> tensor:
    return tensor(build().pointwise("isnan", number(x)))


def umulhi(x: Any, y: Any) -> tensor:
    """The high half of the product of two unsigned integers."""
    a, b = broadcast_pair(number(x), number(y))
    for v in (a, b):
        if v.type.dtype.category != 1 or v.type.dtype.itemsize < 4:
            raise ValueError(f"umulhi: takes integers of 32 or 64 bits, got {v.type}")
    of = {int32: uint32, int64: uint64}
    d = of.get(a.type.dtype, a.type.dtype)
    back = a.type.dtype
    a, b = cast(a, d), cast(b, d)
    make = build()
    if d is uint32:
        wide = make.pointwise("mul", cast(a, uint64), cast(b, uint64))
        high = make.pointwise("shift_right", wide, make.constant(32, uint64, wide.shape))
        return tensor(cast(cast(high, uint32), back))
    low, half = make.constant(0xFFFFFFFF, uint64, a.shape), make.constant(32, uint64, a.shape)

    def mul(p: Any, q: Any) -> Any:
        return make.pointwise("mul", p, q)

    def add(p: Any, q: Any) -> Any:
        return make.pointwise("add", p, q)

    def top(p: Any) -> Any:
        return make.pointwise("shift_right", p, half)

    def bottom(p: Any) -> Any:
        return make.pointwise("bitwise_and", p, low)

    a0, a1, b0, b1 = bottom(a), top(a), bottom(b), top(b)
    middle = add(mul(a1, b0), top(mul(a0, b0)))
    other = add(mul(a0, b1), bottom(middle))
    return tensor(cast(add(add(mul(a1, b1), top(middle)), top(other)), back))
