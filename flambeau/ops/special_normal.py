"""The normal distribution, scaled error functions, and entropy terms: compositions with PyTorch's gradients."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from flambeau.ops import primitives as prim
from flambeau.ops import special_tables as t
from flambeau.ops.elementwise import beyond_unit
from flambeau.ops.promotion import in_float32, need_tensor, promote_float
from flambeau.ops.registry import Number, operation
from flambeau.ops.special_bessel import INFINITY, _function, choose, polynomial

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

_FAR = 8.0  # from here on the asymptotic series of erfcx is used; exp(64) is a float32
_TERMS = 14  # of that series: the next is below 1e-16 at _FAR


def _split_square(x: Any) -> tuple[Any, Any]:
    """x * x as a + b without rounding errors that exp would make large: a is the square of x with few digits.

    The gradient of a is 0 and that of b is 2 x."""
    high = prim.trunc(x * 512.0) * (1 / 512.0)
    return high * high, (x - high) * (x + high)


def _erfcx_near(x: Any) -> Any:
    steep = prim.lt(x, -30.0)  # infinite from there on
    y, low = prim.where(steep, 0.0, x), prim.where(steep, x, -1.0)
    a, b = _split_square(y)
    return prim.where(steep, low * low * INFINITY, prim.exp(a) * (prim.exp(b) * prim.erfc(y)))


def _erfcx_far(x: Any) -> Any:
    """1 / (x sqrt(pi)) * (1 - 1/(2 x^2) + 1 * 3 / (2 x^2)^2 - ...), Abramowitz and Stegun 7.1.23."""
    step = 0.5 / (x * x)
    total: Any = step * 0 + 1
    for k in range(_TERMS, 0, -1):
        total = 1 - (2 * k - 1) * step * total
    return total / (x * math.sqrt(math.pi))


def erfcx_of(x: Any) -> Any:
    """exp(x^2) erfc(x), inside a body."""
    return choose(prim.lt(x, _FAR), x, 0.0, _erfcx_near, 2 * _FAR, _erfcx_far)


erfcx = _function("erfcx", "exp(x^2) erfc(x), which neither over- nor underflows for large x.")(erfcx_of)


@_function("ndtr", "The distribution function of the standard normal distribution.")
def ndtr(x: Any) -> Any:
    return prim.erfc(x * -math.sqrt(0.5)) * 0.5


@_function("log_ndtr", "The logarithm of ndtr, accurate in the left tail.")
def log_ndtr(x: Any) -> Any:
    return choose(
        prim.lt(x, -1.0), x * math.sqrt(0.5), -2.0, lambda s: prim.log(erfcx_of(-s) * 0.5) - s * s,
        0.0, lambda s: prim.log1p(prim.erfc(s) * -0.5),
    )  # fmt: skip


_TAIL = math.exp(-2)  # where Cephes's approximation of the tails begins


def _ndtri_middle(y: Any) -> Any:
    z = y - 0.5
    square = z * z
    return (z + z * (square * polynomial(square, t.NDTRI_P0) / polynomial(square, t.NDTRI_Q0))) * math.sqrt(2 * math.pi)


def _ndtri_tail(y: Any) -> Any:
    """-ndtri(y) for 0 < y <= exp(-2)."""
    x = prim.sqrt(-2.0 * prim.log(y))
    z = 1 / x

    def ratio(p: Any, q: Any) -> Any:
        return z * polynomial(z, p) / polynomial(z, q)

    return x - prim.log(x) / x - prim.where(prim.lt(x, 8.0), ratio(t.NDTRI_P1, t.NDTRI_Q1), ratio(t.NDTRI_P2, t.NDTRI_Q2))


@_function("ndtri", "The inverse of ndtr on [0, 1]; NaN outside.")
def ndtri(x: Any) -> Any:
    upper = prim.gt(x, 1 - _TAIL)
    small = prim.where(upper, 1 - x, x)
    inside = prim.bitwise_and(prim.gt(x, 0.0), prim.lt(x, 1.0))
    small = prim.where(inside, small, 0.5)
    tail = prim.le(small, _TAIL)
    middle = _ndtri_middle(prim.where(tail, 0.5, small))
    far = _ndtri_tail(prim.where(tail, small, 0.1))
    value = prim.where(tail, prim.where(upper, far, -far), middle)
    return prim.where(inside, value, beyond_unit(x))


@_function("entr", "-x log(x), 0 at 0, -inf below.")
def entr(x: Any) -> Any:
    # The slope is -log(x) - 1: infinite at 0, NaN below, also at minus infinity.
    inside = prim.bitwise_and(prim.gt(x, 0.0), prim.lt(x, INFINITY))
    safe = prim.where(inside, x, 1.0)
    zero, negative, outside = prim.eq(x, 0.0), prim.lt(x, 0.0), prim.bitwise_not(prim.lt(x, INFINITY))
    edge = prim.where(zero, prim.sqrt(prim.where(zero, x, 1.0) + 0.0), prim.abs(prim.where(outside, x, 0.0)) * -INFINITY)
    lost = prim.where(prim.isnan(x), x, 0.0)
    edge = prim.where(negative, prim.log(prim.tanh(prim.where(negative, x, -1.0)) * 0.0), edge)  # finite, times 0
    return prim.where(inside, -safe * prim.log(safe), edge + lost * lost * lost)


@operation(name="special_xlog1py", out=True, public=False)
@in_float32
def xlog1py(input: Tensor | Number, other: Tensor | Number) -> Tensor:
    """x * log1p(y), 0 where x is 0 (NaN where y is NaN)."""
    need_tensor("xlog1py", input, other)
    x, y = promote_float(input, other)
    wild = prim.bitwise_or(prim.le(y, -1.0), prim.eq(y, INFINITY))  # where 0 * log1p(y) is not 0
    zero = prim.bitwise_and(prim.eq(x, 0.0), wild)
    return prim.where(zero, 0.0, prim.mul(x, prim.log1p(prim.where(zero, 0.0, y))))  # type: ignore[no-any-return]
