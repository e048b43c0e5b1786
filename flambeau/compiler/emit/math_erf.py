"""The error function, its complement and its inverse.

Polynomials: our own minimax fits (Remez exchange in 110-digit arithmetic); the relative error of each is beside it. In
those for float results each coefficient was rounded to float before the next ones were fitted.
"""

from __future__ import annotations

import math

from flambeau.compiler.emit.lanes import Lanes, polynomial
from flambeau.compiler.emit.math_exp import exp, exp_near
from flambeau.compiler.emit.math_log import log

# erf(x) = x + x p(x^2). float: |x| <= 0.94, 2^-30; double: |x| <= 1, 2^-62.
_SMALL_FLOAT = [
    0.12837916612625122, -0.3761262893676758, 0.11283624172210693, -0.026855597272515297, 0.005192000884562731,
    -0.000804485403932631, 7.975758489919826e-05,
]  # fmt: skip
_SMALL_DOUBLE = [
    0.1283791670955126, -0.3761263890318375, 0.11283791670954885, -0.02686617064507787, 0.00522397762482839,
    -0.0008548326981423646, 0.00012055331132901226, -1.492559577117505e-05, 1.6461008465976475e-06,
    -1.6350396137710873e-07, 1.4660328388793816e-08, -1.1374955261921032e-09, 5.960685761141756e-11,
]  # fmt: skip
# -log(erfc(x)) = x + x h(x), 0.925 <= x <= 4: error of erf 2^-28.
_TAIL_FLOAT = [
    0.12865497171878815, 0.6351245641708374, 0.1062818169593811, -0.023801349103450775, 0.003661292837932706,
    -0.00032749472302384675, 1.1705119504767936e-05,
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
        h = polynomial(bounded, _TAIL_FLOAT)
        exponent = bounded.fma(h, bounded)
        p, unit = exp_near(-exponent)
        p = p.fma(bounded.fma(-h, exponent - bounded), p)  # what rounding the exponent lost
        large = (-p).fma(unit, 1.0)
        return a.lt(0.93).select(small, large.copysign(x))
    small = x.fma(polynomial(z, _SMALL_DOUBLE), x)
    large = (1.0 - _erfc_positive(a)).copysign(x)
    return a.lt(1.0).select(small, large)


def _erfc_positive(a: Lanes) -> Lanes:
    """erfc of double lanes a >= 0 (or NaN)."""
    a = a.like(28.0).minimum(a)
    t = (a - 4.0) / (a + 4.0)
    square = a * a
    lost = a.fma(a, -square)
    e = exp(-square)
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
    step = error * (0.5 * math.sqrt(math.pi)) * exp(guess * guess)
    result = guess - step / guess.fma(step, 1.0)
    result = abs(x).eq(1.0).select(x.like(float("inf")), inside.select(result, float("nan")))
    return result.copysign(x)
