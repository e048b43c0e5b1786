"""Relatives of the gamma function: Hurwitz's zeta, polygamma, the incomplete gamma functions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from flambeau import dtypes
from flambeau.ops import primitives as prim
from flambeau.ops.promotion import convert, in_float32, need_tensor, promote_float
from flambeau.ops.registry import Number, operation
from flambeau.ops.result_strides import over_operands
from flambeau.ops.shape import as_shape
from flambeau.ops.special_bessel import INFINITY, NAN, with_derivative
from flambeau.ops.tied import tied
from flambeau.queries import finfo
from flambeau.trace.mutation import into

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

# Bernoulli numbers B2, B4, ..., B14 of the asymptotic series of trigamma (Abramowitz and Stegun 6.4.12).
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
_SHIFT = 12  # the series is used from here on; error below 1e-16 there


@operation()
@in_float32
def trigamma(input: Tensor) -> Tensor:
    """The second derivative of lgamma, inf at its poles: recurrence up to 12, then the asymptotic series; reflection for negative x."""
    (x,) = promote_float(input)
    reflect = x < 0.5
    y = prim.where(reflect, 1 - x, x)
    total = 1 / (y * y)
    for i in range(1, _SHIFT):
        shifted = y + i
        total = total + 1 / (shifted * shifted)
    z = y + _SHIFT
    inverse = 1 / z
    square = inverse * inverse
    series = square * _BERNOULLI[-1]
    for b in reversed(_BERNOULLI[:-1]):
        series = (series + b) * square
    value = total + inverse + square / 2 + series * inverse
    sine = prim.sin((x - prim.round(x)) * math.pi)  # the period first, which is exact; the sign is squared away
    sine = prim.where(reflect, sine, 1.0)  # the branch that is not taken must not be infinite, or its gradient is NaN
    result = prim.where(reflect, (math.pi**2) / (sine * sine) - value, value)
    bottom = prim.eq(x, -INFINITY)
    result = with_derivative(result, prim.where(bottom, 1.0, x), lambda y: _polygamma(y, 2), 1.0)
    # At minus infinity there is no value; the slope is that of the poles, as PyTorch's.
    steep = x * finfo(x.dtype).max * 4.0  # its slope is infinite where it is asked for, and 0 elsewhere
    return prim.where(bottom, prim.detach(steep) - steep, result)  # type: ignore[no-any-return]


# -- zeta and polygamma -------------------------------------------------------------------------------------------
# (2k)! / B_2k, the coefficients of Euler and Maclaurin's formula (zeta.c of the Cephes library).
_EULER_MACLAURIN = (
    12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1.8924375803183791606e9, 7.47242496e10, -2.950130727918164224e12,
    1.1646782814350067249e14, -4.5979787224074726105e15, 1.8152105401943546773e17, -7.1661652561756670113e18,
)  # fmt: skip
_DIRECT = 10  # terms that are summed one by one for q > 0


def _power(base: Any, s: Any) -> Any:
    """base ** -s; `s` a number or a tensor."""
    return prim.pow(base, -s)


def _hurwitz(s: Any, q: Any, terms: int) -> Any:
    """The sum over k >= 0 of (q + k) ** -s, for s > 1."""
    total: Any = _power(q, s)
    for k in range(1, terms):
        total = total + _power(q + float(k), s)
    w = q + float(terms)
    b = _power(w, s)
    rest = prim.where(prim.eq(w, INFINITY), 0.0, b * w) / (s - 1) + b * 0.5
    term = b * (s / w)  # a factor with its divisor each, as products of the factors alone overflow
    for k, coefficient in enumerate(_EULER_MACLAURIN):
        rest = rest + term * (1 / coefficient)
        term = term * ((s + (2 * k + 1)) / w) * ((s + (2 * k + 2)) / w)
    return total + prim.where(prim.eq(b, 0.0), 0.0, rest)


@operation(name="special_zeta", out=True, public=False)
@over_operands
@in_float32
def zeta(input: Tensor | Number, other: Tensor | Number) -> Tensor:
    """Hurwitz's zeta function: the sum over k >= 0 of (other + k) ** -input; inf at 1, NaN below 1.

    other <= 0: inf at integers; elsewhere `input` must be an integer (else NaN). NaN at an infinite `other`, as in PyTorch. Gradients reach `other` only.
    """
    need_tensor("zeta", input, other)
    given, q = promote_float(input, other)
    s = prim.detach(given)
    inside = prim.bitwise_and(prim.gt(s, 1.0), prim.lt(s, INFINITY))
    order = prim.where(inside, s, 2.0)
    positive = prim.gt(q, 0.0)
    pole = prim.bitwise_and(prim.bitwise_not(positive), prim.eq(q, prim.floor(q)))
    usual = prim.bitwise_or(positive, pole)
    left = prim.where(usual, -0.5, q)
    # The terms with negative bases are those of two other sums, with the sign of an even or odd order.
    least = prim.detach(prim.ceil(left)) - left
    even, limits = prim.eq(prim.remainder(order, 2.0), 0.0), finfo(q.dtype)
    # Of an odd order the greatest terms cancel: all of them at half-integers, whose mirror has the same bases (their slopes add). Where they overflow
    # the difference is zero, and its slope infinite.
    endless = prim.bitwise_and(prim.bitwise_and(prim.eq(least, 0.5), prim.ge(order, math.log2(limits.max))), prim.bitwise_not(even))
    near = prim.where(endless, 1.0, least)
    right = _hurwitz(order, prim.where(usual, prim.where(positive, q, 1.0), prim.where(endless, 1.0, 1.0 - least)), _DIRECT)
    mirror, beyond = _hurwitz(order, near, _DIRECT), _hurwitz(order, 1.0 - left, _DIRECT)
    apart = prim.where(endless, (prim.detach(left) - left) * limits.max * 4.0, right - mirror)
    both = prim.where(even, right + (mirror - beyond), apart + beyond)
    below = prim.where(prim.eq(order, prim.floor(order)), both, NAN)
    value = prim.where(pole, INFINITY, prim.where(positive, prim.where(prim.lt(q, INFINITY), right, NAN), below))
    # Of an infinite order: powers of a base below 1, the one of 1, and what PyTorch has for the others.
    infinite = prim.where(prim.lt(q, 1.0), INFINITY, prim.where(prim.eq(q, 1.0), prim.constant(1.0, q.dtype), NAN))
    value = prim.where(inside, value, prim.where(prim.eq(s, INFINITY), infinite, NAN))
    value = prim.where(prim.bitwise_or(prim.isnan(q), prim.isnan(s)), NAN, value)
    # PyTorch asks for these first, beside a NaN, too: the pole of the order, and the poles of q.
    first = prim.bitwise_or(prim.eq(s, 1.0), prim.bitwise_and(pole, prim.isnan(s)))
    return tied(prim.where(first, INFINITY, value), given, refused="zeta")  # type: ignore[no-any-return]


def _cotangent_derivative(n: int) -> list[int]:
    """d^n/dy^n of c = cot(y) as a polynomial in c, lowest power first: each step multiplies the derivative by -(1 + c^2)."""
    p = [0, 1]
    for _ in range(n):
        slope = [k * a for k, a in enumerate(p)][1:]
        p = [-(slope[k] if k < len(slope) else 0) - (slope[k - 2] if k >= 2 else 0) for k in range(len(slope) + 2)]
    return p


@operation(name="polygamma", public=False)
@in_float32
def polygamma_of(input: Tensor, n: int) -> Tensor:
    """(-1)^(n+1) n! zeta(n + 1, x); left of 1/2 by the reflection formula (Abramowitz and Stegun 6.4.7)."""
    if n < 0:
        raise RuntimeError(f"polygamma(n, x) does not support negative n. Got n = {n}")
    (x,) = promote_float(input)
    if n == 0:
        return prim.digamma(x)
    if n == 1:
        return trigamma(x)  # type: ignore[no-any-return]
    return with_derivative(_polygamma(x, n), x, lambda y: _polygamma(y, n + 1), 1.0)


def _polygamma(x: Any, n: int) -> Any:
    """Its values, for n > 1. Infinite at the poles, with the sign that they have on the right."""
    reflect = prim.lt(x, 0.5)
    y = prim.where(reflect, 1 - x, x)
    factor = math.exp(math.lgamma(n + 1)) if n > 20 else float(math.factorial(n))
    value = _hurwitz(float(n + 1), y, _DIRECT) * factor
    turn = prim.where(reflect, x - prim.round(x), 0.25)  # the period first, which is exact; then the cosine as a sine, near whose zero it is, too
    c = prim.sin((0.5 - prim.abs(turn)) * math.pi) / prim.sin(turn * math.pi)
    *lower, other = [float(a) for a in _cotangent_derivative(n)]
    for a in reversed(lower):
        other = other * c + a
    sign = -1.0 if n % 2 == 0 else 1.0
    usual = sign * value
    # psi_n(x) = (-1)^n psi_n(1 - x) - pi d^n/dx^n cot(pi x)
    mirrored = (-1.0) ** n * usual - math.pi ** (n + 1) * other
    pole = prim.bitwise_and(prim.le(x, 0.0), prim.eq(x, prim.floor(x)))
    mirrored = prim.where(pole, INFINITY * (1 if n % 2 else -1), mirrored)
    return prim.where(prim.eq(x, INFINITY), NAN, prim.where(reflect, mirrored, usual))  # type: ignore[no-any-return]


def polygamma(n: int, input: Tensor, *, out: Any = None) -> Any:
    """The n-th derivative of digamma."""
    result = polygamma_of(input, n)
    return into(out, result, polygamma_of.operation.name)


# -- incomplete gamma functions -----------------------------------------------------------------------------------
# With D = x^a exp(-x) / gamma(a + 1), both are integrals of smooth positive functions, so nothing cancels:
#     P(a, x) = D (1 + x * integral over u in (0, 1) of (1 - u)^a exp(x u))          taken for x <= a
#     Q(a, x) = D a / x * integral over u > 0 of (1 + u / x)^(a - 1) exp(-u)         taken for x > a
# u = s exp(pi / 2 sinh(v)), s the width of the integrand, makes the trapezoidal rule converge exponentially (Takahasi and
# Mori 1974); in (0, 1) that is the ratio of u to 1 - u.
_STEP = 1 / 16
_NODES = 128  # v from -4 to 4
_STIRLING = 10.0  # from here on the logarithm of D is computed without its large terms
_STIRLING_SERIES = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188)  # Abramowitz and Stegun 6.1.41


_UNIFORM = 1e8  # from here on by Temme's expansion: the integrals lose half of a's digits


def _by_erfc(a: Any, x: Any, upper: bool) -> Any:
    """P(a, x) or Q(a, x) for large a: Temme's uniform expansion (DLMF 8.12.3 to 8.12.11), its first coefficient."""
    m = prim.minimum(prim.maximum((x - a) / a, -0.01), 0.01)  # beyond it is 0 or 1 to all digits
    series: Any = 0.0
    for k in range(9, 0, -1):  # (m - log(1 + m)) / m^2
        series = series * -m + 1 / (k + 1)
    eta = m * prim.sqrt(2.0 * series)
    first: Any = 0.0
    for c in reversed((-1 / 3, 1 / 12, -2 / 135, 1 / 864, 1 / 2835, -139 / 777600)):
        first = first * eta + c
    rest = prim.exp(-0.5 * a * eta * eta) / prim.sqrt(2 * math.pi * a) * first
    side = 1.0 if upper else -1.0
    return 0.5 * prim.erfc(eta * prim.sqrt(0.5 * a) * side) + rest * side


def _log_d(a: Any, x: Any) -> Any:
    """log D."""
    large = prim.ge(a, _STIRLING)
    b = prim.where(large, a, _STIRLING)
    away = (x - b) / b
    inverse = 1 / b
    square = inverse * inverse
    series: Any = 0.0
    for c in reversed(_STIRLING_SERIES):
        series = series * square + c
    by_stirling = b * (prim.log1p(away) - away) - 0.5 * prim.log(2 * math.pi * b) - series * inverse
    small = prim.where(large, 1.0, a)
    return prim.where(large, by_stirling, small * prim.log(x) - x - prim.lgamma(small + 1))


def _integral(a: Any, x: Any, upper: bool) -> Any:
    """One of the two integrals, a and x of one shape."""
    shape = (*x._meta.shape, 1)
    a, x = as_shape(a, shape), as_shape(x, shape)
    v = (prim.cast(prim.iota(shape=(_NODES,), dim=0), dtype=x.dtype) - (_NODES - 1) / 2) * _STEP
    w = (math.pi / 2) * prim.sinh(v)
    slope = (math.pi / 2 * _STEP) * prim.cosh(v)
    if upper:
        w = w + prim.log(x / (x - a + 1 + prim.sqrt(a)))
        u = prim.exp(w)
        values = prim.exp((a - 1) * prim.log1p(u / x) - u + w)
    else:
        w = w - prim.log(a - x + 1 + prim.sqrt(a))
        e = prim.log1p(prim.exp(-prim.abs(w)))
        negative = prim.lt(w, 0.0)
        log_u, log_rest = prim.where(negative, w, 0.0) - e, prim.where(negative, 0.0, -w) - e
        values = prim.exp((a + 1) * log_rest + log_u + x * prim.exp(log_u))
    return prim.sum(values * slope, dims=(x._meta.ndim - 1,))


def _incomplete(a: Any, x: Any, upper: bool) -> Any:
    """P(a, x) or Q(a, x) for a > 0, x >= 0 inside a body, with the gradient of x; a has none."""
    a = prim.detach(a)
    kind = x.dtype
    inside = prim.bitwise_and(prim.bitwise_and(prim.gt(a, 0.0), prim.gt(x, 0.0)), prim.bitwise_and(prim.lt(x, INFINITY), prim.lt(a, INFINITY)))
    live = prim.where(inside, x, 1.0)
    safe_a, safe_x = prim.where(inside, a, 1.0), prim.detach(live)
    shape = tuple(prim.add(safe_a, safe_x)._meta.shape)
    safe_a, safe_x = (y if tuple(y._meta.shape) == shape else prim.expand(y, shape=shape) for y in (safe_a, safe_x))
    huge = prim.ge(safe_a, _UNIFORM)
    by_erfc = _by_erfc(prim.where(huge, safe_a, _UNIFORM), safe_x, upper)
    whole_a = safe_a
    safe_a, safe_x = prim.where(huge, 1.0, safe_a), prim.where(huge, 1.0, safe_x)
    below = prim.le(safe_x, safe_a)
    d = prim.exp(_log_d(safe_a, safe_x))
    x_below, x_above = prim.minimum(safe_x, safe_a), prim.maximum(safe_x, safe_a)
    low = d * (1 + x_below * _integral(safe_a, x_below, False))
    high = d * safe_a / x_above * _integral(safe_a, x_above, True)
    less_than_one = -prim.expm1(_log_d(safe_a, safe_x) + prim.log1p(x_below * _integral(safe_a, x_below, False)))  # to all digits for a tiny a
    value = prim.where(below, less_than_one, high) if upper else prim.where(below, low, 1 - high)
    value = prim.where(huge, by_erfc, value)
    sign = -1.0 if upper else 1.0
    value = with_derivative(value, live, lambda y: sign * prim.exp((whole_a - 1) * prim.log(y) - y - prim.lgamma(whole_a)))
    zero, one = prim.constant(0.0, kind), prim.constant(1.0, kind)
    at_zero, at_infinity = (one, zero) if upper else (zero, one)
    # x = 0: P is 0, but for a = 0; a = 0: P is 1; NaN where an argument is negative or NaN, or both are at the same end
    negative = prim.bitwise_not(prim.bitwise_and(prim.ge(a, 0.0), prim.ge(x, 0.0)))
    both = prim.bitwise_or(prim.bitwise_and(prim.eq(a, 0.0), prim.bitwise_not(prim.gt(x, 0.0))), prim.bitwise_and(prim.eq(a, INFINITY), prim.eq(x, INFINITY)))
    to_zero = prim.bitwise_or(prim.eq(x, 0.0), prim.eq(a, INFINITY))
    to_infinity = prim.bitwise_or(prim.eq(a, 0.0), prim.eq(x, INFINITY))
    edge = prim.where(prim.bitwise_or(negative, both), NAN, prim.where(to_zero, at_zero, prim.where(to_infinity, at_infinity, NAN)))
    return prim.where(inside, value, edge)


def _in_doubles(input: Any, other: Any, upper: bool, refused: str) -> Any:
    """In float64: the terms are as large as a, and cancel."""
    a, x = promote_float(input, other)
    return tied(convert(_incomplete(convert(a, dtypes.float64), convert(x, dtypes.float64), upper), a.dtype), a, refused=refused)


@operation(name="igamma", out=True, public=False)
def gammainc(input: Tensor, other: Tensor) -> Tensor:
    """P(a, x): the regularised lower incomplete gamma function of a = input, x = other. Its gradient reaches x only."""
    return _in_doubles(input, other, False, "igamma: input")  # type: ignore[no-any-return]


@operation(name="igammac", out=True, public=False)
def gammaincc(input: Tensor, other: Tensor) -> Tensor:
    """Q(a, x) = 1 - P(a, x), accurate where it is small."""
    return _in_doubles(input, other, True, "igammac: input")  # type: ignore[no-any-return]


igamma, igammac = gammainc, gammaincc
