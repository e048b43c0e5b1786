"""Logarithms and what is made of them: log, log2, log10, log1p, asinh, acosh, atanh, pow.

Method: x = 2^k m with sqrt(1/2) <= m < sqrt(2) (subnormals are scaled first), a series in f = m - 1 (float) or in
s = f / (2 + f) (double), and k ln 2 in two parts. Polynomials: our own minimax fits in 110-digit arithmetic.
"""

from __future__ import annotations

from flambeau.compiler.emit.lanes import Lanes, polynomial
from flambeau.compiler.emit.math_exp import LN2, TINY, clamp, exp_weight, expm1_reduced, reduce, scale

# log(1 + f) = f - f^2 / 2 + f^3 p(f), sqrt(1/2) <= 1 + f <= sqrt(2); relative error 2^-29.9.
_LOG_FLOAT = [
    0.33333335742383247, -0.24999820303757464, 0.19999598028947924, -0.166795765249023, 0.14304447466874334,
    -0.121958052565118, 0.10754351008916604, -0.12844936438611, 0.12006672866034997,
]  # fmt: skip
# log((1 + s) / (1 - s)) = 2s + s z p(z), z = s^2 <= 0.0295; relative error 2^-64.
_LOG_DOUBLE = [
    0.6666666666666666, 0.4000000000000089, 0.28571428570794766, 0.22222222393603783, 0.1818179544827098,
    0.15386249681084868, 0.13268516288443394, 0.13089219145858638,
]  # fmt: skip
_LEAST = {"float": 0x3F2AAAAB, "double": 0x3FE6A09E667F3BCD}
_LEAST_NORMAL = {"float": 2.0**-126, "double": 2.0**-1022}
_INVERSE = [1.0, -1.0909, 1.0909]  # 1 / (1 + f)
_FAR = {"float": 2.0**30, "double": 2.0**60}
_LIFT = {"float": 23, "double": 54}
_MANTISSA = {"float": 23, "double": 52}
# 1 / ln 2 and log10(e), log10(2) in two parts.
_LOG2E = (1.442695040888963387, 2.035527374093103311e-17)
_LOG10E = (0.4342944819032518167, 1.098319650216765e-17)
_LOG10_2 = (0.30102999566398119802, -2.8037281277851704e-18)


def split(x: Lanes) -> tuple[Lanes, Lanes]:
    """(k as a float, m) with x = 2^k m, sqrt(1/2) <= m < sqrt(2), for finite x > 0 (anything defined otherwise)."""
    mantissa = _MANTISSA[x.element]
    lift = _LIFT[x.element]
    tiny = x.lt(_LEAST_NORMAL[x.element])
    bits = tiny.select(x * 2.0**lift, x).bits() - _LEAST[x.element]
    k = (bits >> mantissa).to(x.element, "sitofp")
    k = tiny.select(k - float(lift), k)
    m = ((bits & ((1 << mantissa) - 1)) + _LEAST[x.element]).as_float()
    return k, m


def edges(x: Lanes, result: Lanes) -> Lanes:
    """What every logarithm is at 0, infinity, NaN and below 0."""
    infinity = float("inf")
    result = x.eq(infinity).select(x, result)
    result = x.eq(0.0).select(x.like(-infinity), result)
    return x.compare("ult", 0.0).select(x.like(float("nan")), result)


def series(f: Lanes) -> tuple[Lanes, Lanes, Lanes]:
    """(s, h, R) with log(1 + f) = f - (h - s (h + R)), h = f^2 / 2 (the form of fdlibm's e_log.c). double only."""
    s = f / (f + 2.0)
    z = s * s
    r = z * polynomial(z, _LOG_DOUBLE)
    return s, f * f * 0.5, r


def _sum(k: Lanes, f: Lanes, lost: Lanes | None = None) -> Lanes:
    """k ln 2 + log(1 + f) + lost, where `lost` is below a place of the rest."""
    high, low = LN2[f.element]
    if f.element == "float":
        # k ln 2 + f - f^2 / 2 in two parts, the rest in one
        z = f * f
        base = k.fma(high, f)
        first = z.fma(-0.5, base)
        rest = z.fma(-0.5, base - first) + f.fma(f, -z).fma(-0.5, f - k.fma(-high, base))
        rest = k.fma(low, rest if lost is None else rest + lost)
        return first + (f * z).fma(polynomial(f, _LOG_FLOAT), rest)
    s, h, r = series(f)
    tail = k.fma(low, s * (h + r))
    if lost is not None:
        tail = tail + lost
    # f - h + k ln 2 in two parts: only the last addition rounds by more than a twentieth of a place.
    h_low = (f * 0.5).fma(f, -h)
    near = f - h
    near_low = ((f - near) - h) - h_low
    total = k.fma(high, near)
    bigger = k * high  # exact: the first part of ln 2 has few bits
    total_low = near - (total - bigger)
    return total + (total_low + (near_low + tail))


def log(x: Lanes) -> Lanes:
    k, m = split(x)
    return edges(x, _sum(k, m - 1.0))


def _log_pair(f: Lanes) -> tuple[Lanes, Lanes]:
    """log(1 + f) as an unevaluated sum high + low, of which high is f - f^2/2 to 53 bits."""
    s, h, r = series(f)
    high = f - h
    lost = (f - high) - h + f.fma(f, -(h + h)) * -0.5
    return high, lost + s * (h + r)


def _scaled_log(x: Lanes, unit: tuple[float, float], two: tuple[float, float]) -> Lanes:
    """log(x) in another base: `unit` is the logarithm of e, `two` of 2, each in two parts. double only."""
    k, m = split(x)
    high, low = _log_pair(m - 1.0)
    product = high * unit[0]
    rest = high.fma(unit[0], -product) + high.fma(unit[1], low * unit[0])
    whole = k * two[0]
    rest = rest + (k.fma(two[0], -whole) + k * two[1])
    total = whole + product
    swap = abs(whole).gt(abs(product))
    larger, smaller = swap.select(whole, product), swap.select(product, whole)
    return edges(x, total + ((larger - total) + smaller + rest))


def log2(x: Lanes) -> Lanes:
    if x.element == "float":
        return log2(x.to("double", "fpext")).to("float", "fptrunc")
    return _scaled_log(x, _LOG2E, (1.0, 0.0))


def log10(x: Lanes) -> Lanes:
    if x.element == "float":
        return log10(x.to("double", "fpext")).to("float", "fptrunc")
    return _scaled_log(x, _LOG10E, _LOG10_2)


def log1p(x: Lanes) -> Lanes:
    """log(1 + x), with the rounding error of 1 + x over 1 + x added to the series."""
    u = x + 1.0
    k, m = split(u)
    near = k.eq(0.0)
    f = near.select(x, m - 1.0)
    lost = x.gt(1.0).select(1.0 - (u - x), x - (u - 1.0))
    # lost / u = lost 2^-k / m, with 1 / m to 0.015 (a Chebyshev fit). Far out it is too small to matter.
    lost = lost * (m.bits() - u.bits() + x.like(1.0).bits()).as_float()
    lost = (near | x.gt(_FAR[x.element])).select(0.0, lost)
    result = _sum(k, f, lost * polynomial(f, _INVERSE))
    result = abs(x).lt(TINY[x.element]).select(x, result)  # keeps -0 and subnormals
    infinity = float("inf")
    result = x.eq(infinity).select(x, result)
    result = x.eq(-1.0).select(x.like(-infinity), result)
    return x.compare("ult", -1.0).select(x.like(float("nan")), result)


def asinh(x: Lanes) -> Lanes:
    """sign(x) log1p(a + a^2 / (1 + sqrt(a^2 + 1))); log(a) + ln 2 for huge a. float goes through double."""
    if x.element == "float":
        return asinh(x.to("double", "fpext")).to("float", "fptrunc")
    a = abs(x)
    huge = a.gt(2.0**60)
    b = huge.select(a.like(1.0), a)
    square = b * b
    argument = b + square / ((square + 1.0).sqrt() + 1.0)
    argument = huge.select(a, argument)
    result = log1p(argument)
    return huge.select(result + LN2["double"][0], result).copysign(x)


def acosh(x: Lanes) -> Lanes:
    """log1p(t + sqrt(2t + t^2)), t = x - 1; log(x) + ln 2 for huge x. float goes through double."""
    if x.element == "float":
        return acosh(x.to("double", "fpext")).to("float", "fptrunc")
    t = x - 1.0
    huge = x.gt(2.0**60)
    argument = huge.select(x, t + (t * t + (t + t)).sqrt())
    result = log1p(argument)
    result = huge.select(result + LN2["double"][0], result)
    return x.compare("ult", 1.0).select(x.like(float("nan")), result)


def atanh(x: Lanes) -> Lanes:
    """log1p(2a / (1 - a)) / 2 with x's sign. float goes through double."""
    if x.element == "float":
        return atanh(x.to("double", "fpext")).to("float", "fptrunc")
    a = abs(x)
    return (log1p((a + a) / (1.0 - a)) * 0.5).copysign(x)


# -- powers -----------------------------------------------------------------------------------------------------------
def _two_sum(a: Lanes, c: Lanes) -> tuple[Lanes, Lanes]:
    """a + c and what its rounding lost, for |a| >= |c| (Dekker 1971)."""
    total = a + c
    return total, c - (total - a)


def _two_product(a: Lanes, c: Lanes) -> tuple[Lanes, Lanes]:
    product = a * c
    return product, a.fma(c, -product)


def _log_double_double(a: Lanes) -> tuple[Lanes, Lanes]:
    """log(a) as high + low, relative error about 2^-65, for finite a > 0.

    s = f / (2 + f) in two parts; the terms 2s and (2/3) s^3 in two parts, the rest of the series in one.
    """
    k, m = split(a)
    f = m - 1.0
    bottom, bottom_low = _two_sum(f.like(2.0), f)
    s = f / bottom
    s_low = (s.fma(-bottom, f) - s * bottom_low) / bottom
    # 2s + s^3 (2/3 + z p)
    z, z_low = _two_product(s, s)
    z_low = s.fma(s_low + s_low, z_low)
    tail = z * polynomial(z, _LOG_DOUBLE[1:])
    c_high, c_low = 2.0 / 3.0, 3.700743415417188e-17
    coefficient, coefficient_low = _two_sum(tail.like(c_high), tail)
    coefficient_low = coefficient_low + c_low
    cube, cube_low = _two_product(s, z)
    cube_low = s.fma(z_low, s_low.fma(z, cube_low))
    part, part_low = _two_product(cube, coefficient)
    part_low = cube.fma(coefficient_low, cube_low.fma(coefficient, part_low))
    high, low = _two_sum(s + s, part)
    low = low + (part_low + (s_low + s_low))
    whole, whole_low = _two_product(k, k.like(LN2["double"][0]))
    whole_low = k.fma(LN2["double"][1], whole_low)
    total = whole + high
    larger = k.ne(0.0)  # then |k ln 2| > |log m|
    big, small = larger.select(whole, high), larger.select(high, whole)
    lost = small - (total - big)
    return _two_sum(total, lost + (low + whole_low))


def pow(x: Lanes, y: Lanes) -> Lanes:
    """C's pow, special cases included. float goes through double; there the logarithm is in two parts."""
    if x.element == "float":
        return pow_from(x.to("double", "fpext"), y.to("double", "fpext"), precise=False).to("float", "fptrunc")
    return pow_from(x, y, precise=True)


def pow_from(x: Lanes, y: Lanes, precise: bool) -> Lanes:
    """pow on double lanes; `precise` for a double result."""
    infinity = float("inf")
    a = abs(x)
    if precise:
        high, low = _log_double_double(a)
        product = y * high
        product_low = y.fma(high, -product) + y * low
        bounded = clamp(product, -760.0, 760.0)
        inside = bounded.eq(product)
        r, n = reduce(bounded)
        r_low = inside.select(product_low, 0.0)
        head, tail = expm1_reduced(r, r.like(0.0))
        p = head + 1.0
        result = scale(p + ((head - (p - 1.0)) + p.fma(r_low, tail)), n)
    else:
        result = exp_weight(y * log(a))
    result = a.eq(0.0).select(y.lt(0.0).select(a.like(infinity), 0.0), result)
    result = a.eq(infinity).select(y.lt(0.0).select(a.like(0.0), infinity), result)
    # y infinite: by the side of 1 on which |x| lies.
    grows = a.gt(1.0) ^ y.lt(0.0)
    at_infinity = a.eq(1.0).select(a.like(1.0), grows.select(a.like(infinity), 0.0))
    result = abs(y).eq(infinity).select(at_infinity, result)
    # Negative x: the sign of an odd integer power, NaN for no integer.
    whole = y.trunc()
    integer = whole.eq(y)
    half = y * 0.5
    odd = integer & half.trunc().ne(half)
    negative = x.bits().lt(0)
    result = (negative & odd).select(-result, result)
    invalid = x.lt(0.0) & ~integer & x.gt(-infinity)
    result = invalid.select(x.like(float("nan")), result)
    result = (x.isnan() | y.isnan()).select(x + y, result)
    return (x.eq(1.0) | y.eq(0.0)).select(x.like(1.0), result)
