"""Circular functions over the whole range, and their inverses: sin, cos, tan, asin, acos, atan, atan2, hypot.

Reduction by pi/2: three fused steps (Cody and Waite 1980) while |x| is moderate, else all bits of 2/pi (Payne and Hanek
1983) in a helper function that is called only when a lane needs it. sin and cos work in the type itself, on a reduced
argument in two parts; the others take float through double. Polynomials: our own minimax fits in 110-digit arithmetic.
"""

from __future__ import annotations

import math

from flambeau.compiler.emit.lanes import Lanes, polynomial
from flambeau.compiler.emit.math_exp import nearest
from flambeau.compiler.emit.math_reduction import large_reduction

# pi/2 = sum of the three parts; each is the number nearest to what the ones before leave.
PIO2 = {
    "float": (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
    "double": (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
}
_HALF_PI, _HALF_PI_LOW = PIO2["double"][:2]
# Below, n times the first part is subtracted without error and the three parts leave a full result.
_SMALL = {"float": 2.0**17, "double": 2.0**28}
# sin r = r + r z p(z), z = r^2, |r| <= pi/4; relative error: float 2^-32.5, double 2^-66.
_SIN = {
    "float": [-0.1666666716337204, 0.008333379402756691, -0.00019853064441122115, 2.8325100629444933e-06],
    "double": [
        -0.16666666666666666, 0.008333333333333331, -0.00019841269841265063, 2.755731921933705e-06,
        -2.5052106231657217e-08, 1.605853148652403e-10, -7.586688956467207e-13,
    ],
}  # fmt: skip
_SIXTH_LOW = -9.25185853854297e-18  # what the double nearest to -1/6 lacks
# cos r = 1 - z/2 + z^2 q(z); relative error: float 2^-33, double 2^-66.
_COS = {
    "float": [0.04166664555668831, -0.0013887309469282627, 2.4432327336398885e-05],
    "double": [  # Taylor's, (-1)^k / (2k + 4)!
        0.041666666666666664, -0.001388888888888889, 2.48015873015873e-05, -2.755731922398589e-07,
        2.08767569878681e-09, -1.1470745597729725e-11, 4.779477332387385e-14, -1.5619206968586225e-16,
    ],
}  # fmt: skip
_TWENTY_FOURTH_LOW = 2.3129646346357427e-18  # what the double nearest to 1/24 lacks
# atan(x) = x + x z p(z), 0 <= x <= 1.
_ATAN = [
    -0.3333333333333333, 0.1999999999999966, -0.1428571428566227, 0.11111111107961084, -0.0909090898969681,
    0.0769230569618846, -0.06666640294104038, 0.05882105660736574, -0.052614444950773706, 0.04752868465055186,
    -0.04310733896105908, 0.0387940515917523, -0.03388643008510118, 0.0277819771546297, -0.020499526069773892,
    0.013000123412936831, -0.006747378418561918, 0.0027109060757511787, -0.0007827605669208255, 0.0001435420509592728,
    -1.249810783550622e-05,
]  # fmt: skip
# asin(x) = x + x z p(z), |x| <= 1/2.
_ASIN = [
    0.16666666666666669, 0.0749999999999824, 0.04464285714672406, 0.030381944110908835, 0.02237217401092162,
    0.017352368333115126, 0.013971565613945138, 0.011475821893362317, 0.010344108145866166, 0.005368274692686688,
    0.017637965660704646, -0.015213700130344949, 0.028999389928603327,
]  # fmt: skip


def _reduce(x: Lanes, bounded: bool = False) -> tuple[Lanes, Lanes, Lanes]:
    """(high, low, n as integer lanes): x = n pi/2 + high + low. `bounded` says that x is never huge."""
    one, two, three = PIO2[x.element]
    n, quadrant = nearest(x, 2.0 / math.pi)
    first = n.fma(-one, x)
    second = n * two
    high = first - second
    # what the subtraction lost, what the product lost, and the third part
    low = (first - high) - second - n.fma(two, -second)
    low = n.fma(-three, low)
    if bounded:
        return high, low, quadrant
    return large_reduction(x, abs(x).ge(_SMALL[x.element]), high, low, quadrant)


def _sin_core(high: Lanes, low: Lanes) -> tuple[Lanes, Lanes]:
    """sin(high + low) as a large part and a small one."""
    z = high * high
    if high.element == "float":
        z_low = high.fma(high, -z)
        rest = z.fma(low * -0.5, low) + (high * (-1 / 6)) * z_low
        return high, (high * z).fma(polynomial(z, _SIN["float"]), rest)
    # What the products round off is a tenth of a place of the result.
    cube = high * z
    cube_low = high.fma(z, -cube) + high * high.fma(high, -z)
    first, *others = _SIN["double"]
    rest = z * polynomial(z, others)
    factor = rest + first
    factor_low = (rest - (factor - first)) + _SIXTH_LOW
    tail = cube * factor
    tail_low = cube.fma(factor, -tail) + cube_low * factor + cube * factor_low
    head = high + tail
    return head, (tail - (head - high)) + (tail_low + z.fma(low * -0.5, low))


def _cos_core(high: Lanes, low: Lanes) -> tuple[Lanes, Lanes]:
    """cos(high + low) as a large part and a small one."""
    z = high * high
    half = z * 0.5
    head = 1.0 - half
    tail = (1.0 - head) - half
    z_low = high.fma(high, -z)
    if high.element == "float":
        return head, z_low.fma(-0.5, tail) + (z * z).fma(polynomial(z, _COS["float"]), -(high * low))
    # What the squares and the product round off is a thirtieth of a place of the result.
    square = z * z
    square_low = z.fma(z, -square) + (z + z) * z_low
    first, *others = _COS["double"]
    rest = z * polynomial(z, others)
    factor = rest + first
    factor_low = (rest - (factor - first)) + _TWENTY_FOURTH_LOW
    part = square * factor
    part_low = square.fma(factor, -part) + square_low * factor + square * factor_low
    tail = z_low.fma(-0.5, tail) + part_low - high * low
    whole = head + part
    return whole, (part - (whole - head)) + tail


def _sin_cos(x: Lanes, shift: int, bounded: bool = False) -> Lanes:
    """sin(x + shift pi/2)."""
    high, low, quadrant = _reduce(x, bounded)
    quadrant = quadrant + shift
    odd = (quadrant & 1).ne(0)
    s, s_low = _sin_core(high, low)
    c, c_low = _cos_core(high, low)
    value = odd.select(c, s) + odd.select(c_low, s_low)
    sign = (quadrant & 2) << (30 if x.element == "float" else 62)
    return (value.bits() ^ sign).as_float()


def sin(x: Lanes) -> Lanes:
    return x.eq(0.0).select(x, _sin_cos(x, 0))  # keeps -0


def cos(x: Lanes) -> Lanes:
    return _sin_cos(x, 1)


def sin_near(x: Lanes) -> Lanes:
    """sin of what is known to be small (|x| < 2^17): the code for huge arguments is left out."""
    return _sin_cos(x, 0, bounded=True)


def cos_near(x: Lanes) -> Lanes:
    """cos of what is known to be small, as `sin_near`."""
    return _sin_cos(x, 1, bounded=True)


def tan(x: Lanes) -> Lanes:
    """float goes through double."""
    if x.element == "float":
        return tan(x.to("double", "fpext")).to("float", "fptrunc")
    high, low, quadrant = _reduce(x)
    s, s_low = _sin_core(high, low)
    c, c_low = _cos_core(high, low)
    odd = (quadrant & 1).ne(0)
    top, top_low = odd.select(-c, s), odd.select(-c_low, s_low)
    bottom, bottom_low = odd.select(s, c), odd.select(s_low, c_low)
    # One exact step of division on the pairs.
    whole = bottom + bottom_low
    bottom_low = bottom_low - (whole - bottom)
    inverse = 1.0 / whole
    quotient = top * inverse
    rest = quotient.fma(-whole, top) + (top_low - quotient * bottom_low)
    return x.eq(0.0).select(x, rest.fma(inverse, quotient))


def _atan_ratio(smaller: Lanes, larger: Lanes, swapped: Lanes) -> Lanes:
    """atan(smaller / larger), or pi/2 minus it where swapped; both >= 0, the ratio in [0, 1]."""
    ratio = smaller / larger
    z = ratio * ratio
    tail = (ratio * z) * polynomial(z, _ATAN)
    rest = ratio.fma(-larger, smaller) / larger  # the division's rounding error
    rest = rest.eq(rest).select(rest, 0.0)
    angle = ratio + (tail + rest / (z + 1.0))
    complement = _HALF_PI - (ratio + (tail - _HALF_PI_LOW))
    return swapped.select(complement, angle)


def atan(x: Lanes) -> Lanes:
    if x.element == "float":
        return atan(x.to("double", "fpext")).to("float", "fptrunc")
    a = abs(x)
    swapped = a.gt(1.0)
    one = a.like(1.0)
    return _atan_ratio(swapped.select(one, a), swapped.select(a, one), swapped).copysign(x)


def atan2(y: Lanes, x: Lanes) -> Lanes:
    """C's atan2, special cases included. float goes through double."""
    if x.element == "float":
        return atan2(y.to("double", "fpext"), x.to("double", "fpext")).to("float", "fptrunc")
    a, c = abs(y), abs(x)
    swapped = a.gt(c)
    smaller, larger = swapped.select(c, a), swapped.select(a, c)
    # 0 / 0 counts as 0, infinity / infinity as 1, and subnormal or huge pairs are scaled so that the ratio is good.
    same = a.eq(c) & (a.eq(0.0) | a.eq(float("inf")))
    small = larger.lt(2.0**-900)
    smaller, larger = small.select(smaller * 2.0**120, smaller), small.select(larger * 2.0**120, larger)
    big = larger.gt(2.0**900)
    smaller, larger = big.select(smaller * 2.0**-120, smaller), big.select(larger * 2.0**-120, larger)
    smaller = same.select(a.eq(0.0).select(a.like(0.0), 1.0), smaller)
    larger = same.select(1.0, larger)
    angle = _atan_ratio(smaller, larger, swapped)
    behind = x.bits().lt(0)
    angle = behind.select(2.0 * _HALF_PI - (angle - 2.0 * _HALF_PI_LOW), angle).copysign(y)
    return (x.isnan() | y.isnan()).select(x + y, angle)


def _asin_parts(x: Lanes) -> tuple[Lanes, Lanes, Lanes, Lanes]:
    """(a, |x| > 1/2, s, tail): asin(t) = s + tail for t = a, or sqrt((1 - a) / 2) where a is past 1/2."""
    a = abs(x)
    outer = a.gt(0.5)
    z = outer.select((1.0 - a) * 0.5, a * a)
    s = outer.select(z.sqrt(), a)
    lost = outer.select(s.fma(-s, z) / (s + s), 0.0)  # what the root lost
    lost = s.gt(0.0).select(lost, 0.0)
    return a, outer, s, (s * z).fma(polynomial(z, _ASIN), lost)


def asin(x: Lanes) -> Lanes:
    if x.element == "float":
        return asin(x.to("double", "fpext")).to("float", "fptrunc")
    a, outer, s, tail = _asin_parts(x)
    far = _HALF_PI - ((s + s) + ((tail + tail) - _HALF_PI_LOW))
    result = outer.select(far, s + tail).copysign(x)
    return a.gt(1.0).select(x.like(float("nan")), result)


def acos(x: Lanes) -> Lanes:
    if x.element == "float":
        return acos(x.to("double", "fpext")).to("float", "fptrunc")
    a, outer, s, tail = _asin_parts(x)
    double = (s + s) + (tail + tail)
    behind = x.lt(0.0)
    far = behind.select(2.0 * _HALF_PI - (double - 2.0 * _HALF_PI_LOW), double)
    signed, signed_tail = s.copysign(x), behind.select(-tail, tail)
    near = _HALF_PI - (signed + (signed_tail - _HALF_PI_LOW))
    result = outer.select(far, near)
    return a.gt(1.0).select(x.like(float("nan")), result)


def hypot(x: Lanes, y: Lanes) -> Lanes:
    """sqrt(x^2 + y^2) without early overflow or underflow; infinity wins over NaN."""
    infinity = float("inf")
    if x.element == "float":
        wide, high = x.to("double", "fpext"), y.to("double", "fpext")
        result = wide.fma(wide, high * high).sqrt().to("float", "fptrunc")
    else:
        a, c = abs(x), abs(y)
        larger, smaller = a.gt(c).select(a, c), a.gt(c).select(c, a)
        big, small = larger.gt(2.0**500), larger.lt(2.0**-500)
        factor = big.select(x.like(2.0**-600), small.select(x.like(2.0**600), 1.0))
        back = big.select(x.like(2.0**600), small.select(x.like(2.0**-600), 1.0))
        larger, smaller = larger * factor, smaller * factor
        result = larger.fma(larger, smaller * smaller).sqrt() * back
    infinite = abs(x).eq(infinity) | abs(y).eq(infinity)
    return infinite.select(x.like(infinity), (x.isnan() | y.isnan()).select(x + y, result))
