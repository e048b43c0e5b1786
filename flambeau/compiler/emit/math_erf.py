"""The error function, its complement and its inverse.

Polynomials: our own minimax fits (Remez exchange in 110-digit arithmetic); the relative error of each is beside it. In
those for float results each coefficient was rounded to float before the next ones were fitted.
"""

from __future__ import annotations

import math

from flambeau.compiler.emit.lanes import Lanes, polynomial
from flambeau.compiler.emit.math_exp import exp_pair, exp_weight, power_of_two
from flambeau.compiler.emit.math_log import log

# erf(x) = x + x p(x^2). float: |x| <= 0.6, 2^-30; double: |x| <= 1, 2^-62.
_SMALL_FLOAT = [
    0.12837916612625122, -0.3761262595653534, 0.11283489316701889, -0.026840142905712128, 0.005123293027281761,
    -0.0006771989283151925,
]  # fmt: skip
_SMALL_DOUBLE = [
    0.1283791670955126, -0.3761263890318375, 0.11283791670954885, -0.02686617064507787, 0.00522397762482839,
    -0.0008548326981423646, 0.00012055331132901226, -1.492559577117505e-05, 1.6461008465976475e-06,
    -1.6350396137710873e-07, 1.4660328388793816e-08, -1.1374955261921032e-09, 5.960685761141756e-11,
]  # fmt: skip
# -log(erfc(x)) = x + x h(x), 0.57 <= x <= 4: error of erf 2^-30.5.
_TAIL_FLOAT = [
    0.12839412689208984, 0.6364999413490295, 0.10318229347467422, -0.01990712620317936, 0.0006816146778874099,
    0.0010926149552688003, -0.00039952516090124846, 6.607591785723343e-05, -4.5045794649922755e-06,
]  # fmt: skip
# erf(x) = x p(2 x^2 / 3.92^2 - 1), |x| <= 3.92: absolute error 2^-27.9; the coefficients' magnitudes add up to 1.13.
_WHOLE_FLOAT = [
    0.36073681712150574, -0.18010857701301575, 0.13408344984054565, -0.10918117314577103, 0.09062112867832184,
    -0.07399802654981613, 0.058197200298309326, -0.04354313760995865, 0.03049675188958645, -0.019731054082512856,
    0.012472765520215034, -0.00800944771617651, 0.004004389513283968, -0.0011608850909397006, 0.0008003251277841628,
    -0.0009062426397576928, 0.0003277567448094487,
]  # fmt: skip
# (1 + 2x) e^(x^2) erfc(x) as a polynomial in (x - 4) / (x + 4), 0 <= x <= 28: 2^-61. The form is that of Schonfelder,
# "Chebyshev expansions for the error and related functions", Math. Comp. 32 (1978).
_COMPLEMENT = [
    1.2329951186255526, -0.13962111684056253, 0.015379652102620076, 0.06809705425469305, -0.10103906603632727,
    0.09373283499833303, -0.06633036581160069, 0.03716751553787287, -0.01619773406631647, 0.005031969972449349,
    -0.0007577732202208392, -0.0001992566455936149, 0.00015062133752428666, -2.4399488379703423e-05,
    -1.1220978021666962e-05, 5.7107047317160636e-06, 2.9178577238795857e-07, -8.276081275714232e-07,
    7.688137922866549e-08, 1.1306737285335176e-07, -1.903264245110562e-08, -1.6441879514359864e-08,
    1.6987578292906602e-09, 2.047341483809229e-09, 2.7177450584529576e-10,
]  # fmt: skip
# erfinv(x) / x over w = -log(1 - x^2) < 5, in w - 2.5: 2^-22; and |erfinv| for larger w in sqrt(w) - 4: 2^-20. The
# variable is that of Giles, "Approximating the erfinv function", GPU Computing Gems (2011). First guesses only.
_INVERSE_CENTRE = [
    1.5014093677911013, 0.24664074875129235, -0.00417743002461117, -0.0012537364614049835, 0.00021837889534674109,
    -4.387522455413557e-06, -3.471503551679116e-06, 3.4288078341559994e-07, 2.3935364762597357e-08,
]  # fmt: skip
_INVERSE_TAIL = [
    3.839783790177023, 1.0094908044291973, 0.0012516570989085886, -0.0008397415743680348, 0.00029652834922838715,
    -9.77261649737127e-05, 2.299671528487416e-05, -3.2417707811399155e-07, -7.333041550330745e-07,
]  # fmt: skip


def erf(x: Lanes) -> Lanes:
    a = abs(x)
    z = x * x
    if x.element == "float":
        # p(z) = c + z q(z), with the rounding error of z carried along
        lost = x.fma(x, -z)
        q = polynomial(z, _SMALL_FLOAT[1:])
        small = x.fma(z.fma(q, lost.fma(q, _SMALL_FLOAT[0])), x)
        bounded = a.like(4.0).minimum(a)  # erf(3.92) rounds to 1
        constant, slope, *others = _TAIL_FLOAT
        line = bounded.fma(slope, constant)
        curve = (bounded * bounded) * polynomial(bounded, others)
        h = line + curve
        h_low = (curve - (h - line)) + (constant - bounded.fma(-slope, line))
        exponent = bounded.fma(h, bounded)
        lost = bounded.fma(-h_low, bounded.fma(-h, exponent - bounded))
        head, tail, n, _ = exp_pair(-exponent)
        tail = head.fma(lost, tail)
        unit = power_of_two(n)
        first = (-head).fma(unit, 1.0)
        large = first + (-tail).fma(unit, (-head).fma(unit, 1.0 - first))
        return a.lt(0.58).select(small, large.copysign(x))
    small = x.fma(polynomial(z, _SMALL_DOUBLE), x)
    large = (1.0 - _erfc_positive(a)).copysign(x)
    return a.lt(1.0).select(small, large)


def _erfc_positive(a: Lanes) -> Lanes:
    """erfc of double lanes a >= 0 (or NaN)."""
    a = a.like(28.0).minimum(a)
    t = (a - 4.0) / (a + 4.0)
    square = a * a
    lost = a.fma(a, -square)
    e = exp_weight(-square)
    value = polynomial(t, _COMPLEMENT) / (a + a + 1.0)
    return value * e.fma(-lost, e)


def erf_plus_one(x: Lanes) -> Lanes:
    """1 + erf(x), exact to a place of 1: one polynomial, half the work of erf, whose small results would need care."""
    if x.element != "float":
        return erf(x) + 1.0
    bounded = x.gt(3.92).select(x.like(3.92), x)
    bounded = bounded.lt(-3.92).select(x.like(-3.92), bounded)  # erf(3.92) rounds to 1; keeps NaN
    t = (bounded * bounded).fma(2 / 3.92**2, -1.0)
    result = bounded.fma(polynomial(t, _WHOLE_FLOAT), 1.0)
    return result.lt(0.0).select(result.like(0.0), result)  # -1e-8 at -3.92


def erfc(x: Lanes) -> Lanes:
    """1 - erf(x) without cancellation; float goes through double."""
    if x.element == "float":
        return erfc(x.to("double", "fpext")).to("float", "fptrunc")
    right = _erfc_positive(abs(x))
    return x.lt(0.0).select(2.0 - right, right)


def erfinv(x: Lanes) -> Lanes:
    """A fitted guess and one step of Halley's method on erf (or erfc near 1); float goes through double."""
    if x.element == "float":
        return erfinv(x.to("double", "fpext")).to("float", "fptrunc")
    a = abs(x)
    inside = a.lt(1.0)
    a = inside.select(a, 0.0)
    w = -log((1.0 - a) * (a + 1.0))
    tail = w.gt(5.0)
    guess = tail.select(polynomial(w.sqrt() - 4.0, _INVERSE_TAIL), a * polynomial(w - 2.5, _INVERSE_CENTRE))
    error = a.lt(0.5).select(erf(guess) - a, (1.0 - a) - _erfc_positive(guess))
    step = error * (0.5 * math.sqrt(math.pi)) * exp_weight(guess * guess)
    result = guess - step / guess.fma(step, 1.0)
    result = abs(x).eq(1.0).select(x.like(float("inf")), inside.select(result, float("nan")))
    return result.copysign(x)
