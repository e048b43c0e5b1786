"""log |Gamma| and its derivative, over the whole line; float goes through double.

Near roots of the double versions the error is absolute (about 1e-15), not relative: negative roots of lgamma, all
roots of digamma. For float results that is still within one unit in the last place.
"""

from __future__ import annotations

import math

from flambeau.compiler.emit.lanes import Lanes, polynomial
from flambeau.compiler.emit.math_log import log, log1p
from flambeau.compiler.emit.math_trig import cos_near, sin_near

# lgamma(2 + t) = t q(t), |t| <= 1/2: our own minimax fit, relative error 2^-53.75.
_NEAR_TWO = [
    0.42278433509846713, 0.32246703342411215, -0.06735230105319358, 0.020580808427992217, -0.007385551029108397,
    0.002890510319171496, -0.0011927538954670236, 0.0005096698136748373, -0.00022315506438362842,
    9.94536967252267e-05, -4.4922985835615684e-05, 2.0535669985096234e-05, -9.459794895571658e-06,
    4.255132730146922e-06, -1.965679531520615e-06, 1.2162157405275722e-06, -5.897589997005569e-07,
]  # fmt: skip
# Stirling's series: B(2k) / (2k (2k - 1)), and of its derivative: B(2k) / 2k (Abramowitz and Stegun 6.1.41, 6.3.18).
_STIRLING = [1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400, 43867 / 244188]
_DIGAMMA = [1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12, -3617 / 8160]
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def lgamma(x: Lanes) -> Lanes:
    """log |Gamma(x)|; infinity at 0 and the negative integers."""
    if x.element == "float":
        return lgamma(x.to("double", "fpext")).to("float", "fptrunc")
    infinity = float("inf")
    a = abs(x)
    left = x.lt(-1e-20)  # closer to 0 the sign makes no difference, and the product below would vanish
    # Reflection for x < 0: lgamma(x) = log(pi / |x sin(pi x)|) - lgamma(|x|). Here: lgamma of a > 0.
    # a >= 8: Stirling. 2.5 <= a < 8: Gamma(a) = (a - 1) ... (a - k) Gamma(a - k). Below: t = a - 2, a - 1 or a.
    large = a.ge(8.0)
    t = large.select(x.like(2.0), a)
    product = a.like(1.0)
    for _ in range(6):
        down = t.ge(2.5)
        t = down.select(t - 1.0, t)
        product = down.select(product * t, product)
    low, middle = t.lt(0.5), t.lt(1.5)
    offset = low.select(t, t - middle.select(a.like(1.0), 2.0))
    small = offset * polynomial(offset, _NEAR_TWO)
    small = middle.select(small - log1p(offset), small)
    product = low.select(t, product)
    logarithm = log(large.select(a, product))
    small = low.select(small - logarithm, small + logarithm)
    inverse = 1.0 / large.select(a, 8.0)
    series = inverse * polynomial(inverse * inverse, _STIRLING)
    stirling = (a - 0.5) * (logarithm - 1.0) + (_HALF_LOG_2PI - 0.5 + series)
    result = large.select(stirling, small)
    # sin(pi x) from the distance to the nearest integer, which is exact.
    distance = a - a.rint()
    reflected = log(math.pi / (a * abs(sin_near(distance * math.pi)))) - result
    result = left.select(reflected, result)
    pole = x.eq(0.0) | (left & distance.eq(0.0)) | a.eq(infinity)
    return pole.select(x.like(infinity), x.isnan().select(x, result))


def digamma(x: Lanes) -> Lanes:
    """Gamma'(x) / Gamma(x); NaN at the negative integers, the infinity of the opposite sign at +-0 (as PyTorch)."""
    if x.element == "float":
        return digamma(x.to("double", "fpext")).to("float", "fptrunc")
    infinity = float("inf")
    left = x.lt(0.0)
    a = left.select(1.0 - x, x)
    # psi(a) = psi(a + k) - sum of 1 / (a + i): the sum as one fraction, so one division.
    top, bottom = a.like(0.0), a.like(1.0)
    t = a
    for _ in range(10):
        up = t.lt(10.0)
        top = up.select(top.fma(t, bottom), top)
        bottom = up.select(bottom * t, bottom)
        t = up.select(t + 1.0, t)
    inverse = 1.0 / t
    z = inverse * inverse
    result = log(t) - inverse.fma(0.5, z * polynomial(z, _DIGAMMA)) - top / bottom
    distance = x - x.rint()
    angle = left.select(distance, 0.25) * math.pi
    result = left.select(result - cos_near(angle) * math.pi / sin_near(angle), result)
    result = (left & distance.eq(0.0)).select(x.like(float("nan")), result)
    result = x.eq(infinity).select(x, result)
    return x.eq(0.0).select((-x).like(infinity).copysign(-x), result)
