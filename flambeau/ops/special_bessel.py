"""Bessel functions of orders 0 and 1, and the Airy function Ai: rational and Chebyshev approximations (special_tables.py).

Each is a pointwise composition, so it fuses. A branch that an element does not take sees a harmless argument instead, so that
neither overflow nor its gradient reaches the result. i0, i0e, i1, i1e have gradients; the others have none, as in PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from flambeau import dtypes
from flambeau.ops import primitives as prim
from flambeau.ops import special_tables as t
from flambeau.ops.promotion import convert, promote_float
from flambeau.ops.registry import operation
from flambeau.queries import finfo

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

INFINITY, NAN = float("inf"), float("nan")


def polynomial(z: Any, table: Sequence[float]) -> Any:
    """By Horner's rule, highest power first."""
    value = (z if table[0] == 1.0 else z * table[0]) + table[1]
    for c in table[2:]:
        value = z * value + c
    return value


def chebyshev(y: Any, table: Sequence[float]) -> Any:
    """Half the sum of c_k T_k(y / 2), highest order first, the last coefficient halved: Clenshaw's recurrence (chbevl of Cephes)."""
    a: Any = y * 0 + table[0]
    p: Any = 0.0
    q: Any = 0.0
    for c in table[1:]:
        p, q = q, a
        a = y * q - p + c
    return (a - p) * 0.5


def either(condition: Any, a: float, b: float, like: Any) -> Any:
    """One of two numbers, in the dtype of `like`."""
    return prim.where(condition, prim.constant(a, like.dtype), b)


def choose(condition: Any, x: Any, at: float, inside: Callable[[Any], Any], outside_at: float, outside: Callable[[Any], Any]) -> Any:
    """inside(x) where the condition holds, else outside(x); the other branch gets `at` or `outside_at`."""
    return prim.where(condition, inside(prim.where(condition, x, at)), outside(prim.where(condition, outside_at, x)))


# The nodes and half the weight of Gauss and Legendre's quadrature of two points on (0, 1).
_GAUSS = (0.5 - math.sqrt(1 / 12), 0.5 + math.sqrt(1 / 12))


def with_derivative(value: Any, x: Any, derivative: Callable[[Any], Any], at: float = 0.0, exponential: bool = False) -> Any:
    """The value, with `derivative(x)` as its gradient by x, exact up to the fourth order. `at`: a place where the derivative is finite.
    `exponential`: where the value is infinite, so is the second slope, as that of exp.

    What is added is (x - x0) times the mean of the derivative between x0 and x, and x0 is x detached: 0, but not its gradients."""
    if not x._meta.requires_grad:
        return value
    fixed, place = prim.detach(value), prim.detach(x)
    finite, bounded = prim.lt(prim.abs(place), INFINITY), prim.lt(prim.abs(fixed), INFINITY)
    there = prim.detach(derivative(place))
    steeper = prim.bitwise_and(bounded, prim.eq(prim.abs(there), INFINITY))
    usual = prim.bitwise_and(prim.bitwise_and(finite, bounded), prim.bitwise_not(steeper))
    live = prim.where(usual, x, at)
    here = prim.detach(live)
    step = live - here
    slope = derivative(here + _GAUSS[0] * step) + derivative(here + _GAUSS[1] * step)
    # Infinite values have infinite slopes, and NaN has NaN.
    away, lost = prim.where(finite, x, 0.0) - prim.where(finite, place, 0.0), prim.where(prim.isnan(fixed), x, 0.0)
    sign = prim.sgn(there)
    same = prim.sgn(fixed) * sign
    rise = same * away
    steep = fixed * (prim.exp(rise) if exponential else 1 + rise)
    # A finite value with an infinite slope: the step is 0 and its product with the greatest number too, but four times its gradient is infinite.
    edge = fixed + sign * away * finfo(x.dtype).max * 4.0
    steep = prim.where(steeper, edge, steep)
    # At an infinity, the value and its slope may both be infinite, as those of exp.
    endless = prim.bitwise_and(prim.bitwise_not(prim.bitwise_or(finite, bounded)), prim.eq(same * place * prim.abs(there), INFINITY))
    far = prim.where(endless, prim.sgn(fixed) * prim.exp(same * prim.where(endless, x, 0.0)), fixed)
    wild = prim.where(prim.isnan(fixed), fixed * (lost + lost * lost), prim.where(finite, steep, far))
    return prim.where(usual, fixed + step * (slope * 0.5), wild)


def _function(name: str, text: str, aliases: tuple[str, ...] = (), gradient: bool = True) -> Callable[[Callable[[Any], Any]], Any]:
    """Decorator: a real pointwise function of one floating tensor (integers become floating)."""

    def make(formula: Callable[[Any], Any]) -> Any:
        def body(input: Tensor) -> Tensor:
            (x,) = promote_float(input)
            if x.dtype.is_complex:
                raise NotImplementedError(f"{name} is not implemented for complex tensors")
            wide = convert(x if gradient else prim.detach(x), dtypes.float64)  # rounded once
            return convert(formula(wide), x.dtype)

        body.__doc__ = text
        return operation(name=f"special_{name}", aliases=aliases, out=True, public=False)(body)

    return make


# -- modified, of the first kind ----------------------------------------------------------------------------------
def _i0e(x: Any) -> Any:
    size = prim.abs(x)
    near = prim.le(size, 8.0)
    return choose(near, size, 1.0, lambda s: chebyshev(s / 2 - 2, t.I0_A), 16.0, lambda s: chebyshev(32 / s - 2, t.I0_B) / prim.sqrt(s))


def _i1e(x: Any) -> Any:
    size = prim.abs(x)
    near = prim.le(size, 8.0)
    low = chebyshev(prim.where(near, size, 1.0) / 2 - 2, t.I1_A) * prim.where(near, x, 1.0)
    s = prim.where(near, 16.0, size)
    high = chebyshev(32 / s - 2, t.I1_B) / prim.sqrt(s)
    return prim.where(near, low, prim.where(prim.lt(x, 0.0), -high, high))


def _i1(x: Any) -> Any:
    return prim.exp(prim.abs(x)) * _i1e(x)


def _i0(x: Any) -> Any:
    return with_derivative(prim.exp(prim.abs(x)) * _i0e(x), x, _i1, exponential=True)


i0 = _function("i0", "The modified Bessel function of the first kind of order 0.")(_i0)
i0e = _function("i0e", "exp(-|x|) i0(x).")(_i0e)
i1 = _function("i1", "The modified Bessel function of the first kind of order 1.")(_i1)
i1e = _function("i1e", "exp(-|x|) i1(x).")(_i1e)
modified_bessel_i0 = _function("modified_bessel_i0", "i0 without a gradient.", gradient=False)(_i0)
modified_bessel_i1 = _function("modified_bessel_i1", "i1 without a gradient.", gradient=False)(_i1)


# -- modified, of the second kind -----------------------------------------------------------------------------------
def _positive(x: Any, value: Callable[[Any], Any], at_zero: float) -> Any:
    """value(x) for x > 0, a limit at 0, NaN below."""
    inside = prim.gt(x, 0.0)
    return prim.where(inside, value(prim.where(inside, x, 1.0)), either(prim.eq(x, 0.0), at_zero, NAN, x))


def _k(order: int, scaled: bool) -> Callable[[Any], Any]:
    def near(s: Any) -> Any:
        if order == 0:
            value = chebyshev(s * s - 2, t.K0_A) - prim.log(s / 2) * _i0(s)
        else:
            value = prim.log(s / 2) * _i1(s) + chebyshev(s * s - 2, t.K1_A) / s
        return value * prim.exp(s) if scaled else value

    def far(s: Any) -> Any:
        value = chebyshev(8 / s - 2, t.K0_B if order == 0 else t.K1_B) / prim.sqrt(s)
        return value if scaled else value * prim.exp(-s)

    return lambda x: _positive(x, lambda s: choose(prim.le(s, 2.0), s, 1.0, near, 4.0, far), INFINITY)


_K = "modified Bessel function of the second kind of order"
modified_bessel_k0 = _function("modified_bessel_k0", f"The {_K} 0.", gradient=False)(_k(0, False))
modified_bessel_k1 = _function("modified_bessel_k1", f"The {_K} 1.", gradient=False)(_k(1, False))
scaled_modified_bessel_k0 = _function("scaled_modified_bessel_k0", f"exp(x) times the {_K} 0.", gradient=False)(_k(0, True))
scaled_modified_bessel_k1 = _function("scaled_modified_bessel_k1", f"exp(x) times the {_K} 1.", gradient=False)(_k(1, True))


# -- of the first and second kind -----------------------------------------------------------------------------------
def _waves(order: int, s: Any) -> tuple[Any, Any, Any]:
    """(amplitude of P, of Q, angle) for x > 5."""
    tables = (t.J0_PP, t.J0_PQ, t.J0_QP, t.J0_QQ) if order == 0 else (t.J1_PP, t.J1_PQ, t.J1_QP, t.J1_QQ)
    w = 5 / s
    pp, pq, qp, qq = (polynomial(w * w, table) for table in tables)
    scale = math.sqrt(2 / math.pi) * prim.rsqrt(s)
    return scale * (pp / pq), scale * w * (qp / qq), s - math.pi * (0.25 if order == 0 else 0.75)


def _j0_near(s: Any) -> Any:
    z = s * s
    # the squares of the first two zeros of J0
    return (z - 5.78318596294678452118) * (z - 30.4712623436620863991) * polynomial(z, t.J0_RP) / polynomial(z, t.J0_RQ)


def _j1_near(s: Any) -> Any:
    z = s * s
    return polynomial(z, t.J1_RP) / polynomial(z, t.J1_RQ) * s * (z - 14.6819706421238932572) * (z - 49.2184563216946036703)


def _j_far(order: int) -> Callable[[Any], Any]:
    def far(s: Any) -> Any:
        p, q, angle = _waves(order, s)
        return p * prim.cos(angle) - q * prim.sin(angle)

    return far


def _y_far(order: int) -> Callable[[Any], Any]:
    def far(s: Any) -> Any:
        p, q, angle = _waves(order, s)
        return p * prim.sin(angle) + q * prim.cos(angle)

    return far


@_function("bessel_j0", "The Bessel function of the first kind of order 0.", gradient=False)
def bessel_j0(x: Any) -> Any:
    size = prim.abs(x)
    return choose(prim.le(size, 5.0), size, 1.0, _j0_near, 8.0, _j_far(0))


@_function("bessel_j1", "The Bessel function of the first kind of order 1.", gradient=False)
def bessel_j1(x: Any) -> Any:
    size = prim.abs(x)
    value = choose(prim.le(size, 5.0), size, 1.0, _j1_near, 8.0, _j_far(1))
    return prim.where(prim.lt(x, 0.0), -value, value)


@_function("bessel_y0", "The Bessel function of the second kind of order 0; -inf at 0, NaN below.", gradient=False)
def bessel_y0(x: Any) -> Any:
    def near(s: Any) -> Any:
        z = s * s
        return polynomial(z, t.Y0_YP) / polynomial(z, t.Y0_YQ) + 2 / math.pi * prim.log(s) * _j0_near(s)

    return _positive(x, lambda s: choose(prim.le(s, 5.0), s, 1.0, near, 8.0, _y_far(0)), -INFINITY)


@_function("bessel_y1", "The Bessel function of the second kind of order 1; -inf at 0, NaN below.", gradient=False)
def bessel_y1(x: Any) -> Any:
    def near(s: Any) -> Any:
        z = s * s
        return s * (polynomial(z, t.Y1_YP) / polynomial(z, t.Y1_YQ)) + 2 / math.pi * (_j1_near(s) * prim.log(s) - 1 / s)

    return _positive(x, lambda s: choose(prim.le(s, 5.0), s, 1.0, near, 8.0, _y_far(1)), -INFINITY)


@_function("spherical_bessel_j0", "sin(x) / x, 1 at 0 and 0 at infinity.", gradient=False)
def spherical_bessel_j0(x: Any) -> Any:
    far = prim.lt(prim.abs(x), INFINITY)
    usual = prim.bitwise_and(far, prim.ne(x, 0.0))
    safe = prim.where(usual, x, 1.0)
    return prim.where(usual, prim.sin(safe) / safe, prim.where(prim.eq(x, 0.0), 1.0, either(prim.isnan(x), NAN, 0.0, x)))


# -- Airy -----------------------------------------------------------------------------------------------------------
_AI0, _AI1 = 0.355028053887817239, 0.258819403792806798  # Ai(0), -Ai'(0)
_TERMS = 20  # of the power series, enough for |x| <= 2.09 in double precision


def _airy_near(x: Any) -> Any:
    z = x * x * x
    f: Any = x * 0 + 1
    g: Any = x
    m, n = f, g
    for k in range(1, _TERMS):
        m = m * z / ((3 * k - 1) * (3 * k))
        n = n * z / ((3 * k) * (3 * k + 1))
        f, g = f + m, g + n
    return _AI0 * f - _AI1 * g


def _airy_right(x: Any) -> Any:
    zeta = 2 * x * prim.sqrt(x) / 3
    ratio = polynomial(1 / zeta, t.AIRY_AN) / polynomial(1 / zeta, t.AIRY_AD)
    return ratio * prim.exp(-zeta) / (2 * math.sqrt(math.pi) * prim.sqrt(prim.sqrt(x)))


def _airy_left(s: Any) -> Any:
    """Ai(-s)."""
    zeta = 2 * s * prim.sqrt(s) / 3
    z = 1 / zeta
    zz = z * z
    f = 1 + zz * polynomial(zz, t.AIRY_AFN) / polynomial(zz, t.AIRY_AFD)
    g = z * polynomial(zz, t.AIRY_AGN) / polynomial(zz, t.AIRY_AGD)
    angle = zeta + math.pi / 4
    return (prim.sin(angle) * f - prim.cos(angle) * g) / (math.sqrt(math.pi) * prim.sqrt(prim.sqrt(s)))


@_function("airy_ai", "The Airy function Ai.", gradient=False)
def airy_ai(x: Any) -> Any:
    right, left = prim.gt(x, 2.09), prim.lt(x, -2.09)
    outside = prim.bitwise_or(right, left)
    near = _airy_near(prim.where(outside, 0.0, x))
    value = prim.where(right, _airy_right(prim.where(right, x, 3.0)), prim.where(left, _airy_left(prim.where(left, -x, 3.0)), near))
    return prim.where(prim.eq(prim.abs(x), INFINITY), NAN, value)
