"""Exponentials and what is made of them: exp, exp2, expm1, sigmoid, sinh, cosh, tanh.

Method: x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial in r, and a product with 2^n in two exact steps, so that
subnormal results are rounded once. Polynomials: our own minimax fits (Remez exchange in 110-digit arithmetic); the
error of each fit is given beside it. ln 2 is split in two parts for use with fused multiply-add.
"""

from __future__ import annotations

import math
from functools import cache

from flambeau.compiler.emit.lanes import Lanes, polynomial
from flambeau.runtime.target import Target

LOG2_E = math.log2(math.e)
# ln 2 = high + low, the high part rounded to the type (no trailing zeros are needed: products are fused).
LN2 = {
    "float": (0.6931471824645996, -1.904654299957768e-09),
    "double": (0.6931471805599453, 2.3190468138462996e-17),
}
# e^r = 1 + r + r^2 q(r), |r| <= ln 2 / 2. Relative error of e^r: float 2^-28.1, double 2^-62.
_EXP = {
    "float": [
        0.4999999403953552, 0.1666652411222458, 0.04166832193732262, 0.008368372917175293, 0.0013816355494782329,
    ],
    "double": [
        0.5, 0.1666666666666667, 0.04166666666666649, 0.008333333333326353, 0.001388888888900412,
        0.00019841269874169116, 2.4801587044068628e-05, 2.755725612427328e-06, 2.75575420766443e-07,
        2.5104948862056323e-08, 2.0825139072005564e-09,
    ],
}  # fmt: skip
# e^r = 1 + r + r^2 / 2 + r^3 c(r) on the same interval: float 2^-33.2, double as above.
_EXP_CUBE = {
    "float": [0.16666665580836257, 0.04166646129845141, 0.00833358629753375, 0.0013935234755303376, 0.00019733462395235814],
    "double": _EXP["double"][1:],
}  # fmt: skip
# 2^r = 1 + r p(r), |r| <= 1 / 2. Relative error: float 2^-33, double 2^-63.
_EXP2 = {
    "float": [0.6931471804230165, 0.24022650991548553, 0.05550411173233261, 0.009618048207379057, 0.001333331476014982,
              0.0001546380312640116, 1.5335244603220587e-05],
    "double": [
        0.6931471805599453, 0.24022650695910072, 0.055504108664821625, 0.009618129107628487, 0.0013333558146406469,
        0.00015403530393354775, 1.5252733841558327e-05, 1.321548682329738e-06, 1.0178057087023172e-07,
        7.054891467389301e-09, 4.4558180220557136e-10, 2.5737814064409005e-11,
    ],
}  # fmt: skip
# sinh(x) = x + x z p(z), z = x^2, |x| <= 1. Relative error 2^-61.
_SINH = [
    0.16666666666666666, 0.008333333333333299, 0.0001984126984132424, 2.7557319191363643e-06, 2.505211769941287e-08,
    1.6057679312223042e-10, 7.746188979486805e-13,
]  # fmt: skip
# Adding 1.5 * 2^(mantissa bits) rounds to an integer and leaves it in the low bits: no conversion, no poison for NaN.
_ROUNDER = {"float": 12582912.0, "double": 6755399441055744.0}
_MANTISSA = {"float": 23, "double": 52}
_ONE = {"float": 0x3F800000, "double": 0x3FF0000000000000}
# Below, the result is 0; above, infinity (the upper ends are past the last finite result of sinh and cosh).
_EXP_RANGE = {"float": (-104.0, 89.0), "double": (-746.0, 712.0)}
TINY = {"float": 2.0**-25, "double": 2.0**-54}  # below, e^x - 1 and log(1 + x) round to x
_EXP2_RANGE = {"float": (-151.0, 129.0), "double": (-1076.0, 1025.0)}


def clamp(x: Lanes, low: float, high: float) -> Lanes:
    """x kept in [low, high]; NaN stays NaN."""
    return x.like(low).maximum(x.like(high).minimum(x))


def nearest(x: Lanes, factor: float) -> tuple[Lanes, Lanes]:
    """(x * factor rounded to an integer, as a float; the same as integer lanes), |result| < 2^21."""
    rounder = _ROUNDER[x.element]
    shifted = x.fma(factor, rounder)
    base = x.like(rounder).bits()
    return shifted - rounder, shifted.bits() - base


@cache
def _scales_in_one_instruction(target: Target) -> bool:
    """Whether llvm.ldexp is vscalefps there: AVX-512 and LLVM 22. Elsewhere it would call libm, lane by lane."""
    from llvmlite import binding

    return target.vector_bits == 512 and binding.llvm_version_info[0] >= 22


def scale(x: Lanes, n: Lanes, rounded: Lanes | None = None) -> Lanes:
    """x * 2^n, rounded once, for x of size near 1 and |n| below twice the exponent range: the same bits both ways. `rounded`: n as a
    float, where the caller has it."""
    if _scales_in_one_instruction(x.b.target):
        if rounded is not None and x.width == (16 if x.element == "float" else 8):  # ldexp would make a float of n again
            suffix, mask = ("ps", "i16") if x.element == "float" else ("pd", "i8")
            # Intel intrinsics guide: _mm512_mask_scalef; rounding 4 is the current one.
            arguments = [(x.type, x.name), (x.type, rounded.name), (x.type, "zeroinitializer"), (mask, "-1"), ("i32", "4")]
            return Lanes(x.b, x.element, x.width, x.b.call(x.type, f"llvm.x86.avx512.mask.scalef.{suffix}.512", arguments))
        suffix = n.element if n.width == 1 else f"v{n.width}{n.element}"
        arguments = [(x.type, x.name), (n.type, n.name)]
        return Lanes(x.b, x.element, x.width, x.b.call(x.type, f"llvm.ldexp.{x.suffix}.{suffix}", arguments))
    bits, one = _MANTISSA[x.element], _ONE[x.element]
    half = n >> 1
    first = ((half << bits) + one).as_float()
    second = (((n - half) << bits) + one).as_float()
    return x * first * second


def power_of_two(n: Lanes) -> Lanes:
    """2^n of integer lanes, for a normal result."""
    element = "float" if n.element == "i32" else "double"
    return ((n << _MANTISSA[element]) + _ONE[element]).as_float()


def reduce(x: Lanes) -> tuple[Lanes, Lanes]:
    """(r, n) with x = n ln 2 + r."""
    r, integer, _ = _reduce(x)
    return r, integer


def _reduce(x: Lanes) -> tuple[Lanes, Lanes, Lanes]:
    """(r, n, n as a float) with x = n ln 2 + r."""
    high, low = LN2[x.element]
    n, integer = nearest(x, LOG2_E)
    r = n.fma(-high, x)
    return n.fma(-low, r), integer, n


def exp_reduced(r: Lanes) -> Lanes:
    """e^r on the reduced interval. Horner's rule to the end: fewer operations and less rounding than 1 + r + r^2 q."""
    return polynomial(r, [1.0, 1.0, *_EXP[r.element]])


def expm1_reduced(r: Lanes, lost: Lanes) -> tuple[Lanes, Lanes]:
    """e^(r + lost) - 1 on the reduced interval as a large part and a small one; `lost` is a few places of r at most."""
    square = r * r
    head = square.fma(0.5, r)
    tail = square.fma(0.5, r - head) + r.fma(r, -square).fma(0.5, lost.fma(head, lost))
    tail = (square * r).fma(polynomial(r, _EXP_CUBE[r.element]), tail)
    whole = head + tail
    return whole, tail - (whole - head)


def exp_pair(x: Lanes) -> tuple[Lanes, Lanes, Lanes, Lanes]:
    """(head, tail, n, n as a float) with e^x = (head + tail) 2^n: head is 1 + r + r^2 / 2 rounded, tail all the rest.

    Where x is not tiny n ln 2 is subtracted from it without error: both are multiples of 2^-24 (float), the difference is
    small. What the low part of ln 2 is worth comes in with the slope of the exponential.
    """
    high, low = LN2[x.element]
    n, integer = nearest(x, LOG2_E)
    r = n.fma(-high, x)
    near = r + 1.0
    square = r * r
    head = square.fma(0.5, near)
    lost = square.fma(0.5, near - head) + (n * -low).fma(head, r - (near - 1.0))
    return head, (square * r).fma(polynomial(r, _EXP_CUBE[x.element]), lost), integer, n


def exp_parts(x: Lanes) -> tuple[Lanes, Lanes]:
    """(p, n) with e^x = p 2^n, x clamped to where that is finite, zero or infinite."""
    return exp_split(clamp(x, *_EXP_RANGE[x.element]))


def exp_split(x: Lanes) -> tuple[Lanes, Lanes]:
    """(p, n) with e^x = p 2^n, for x that the caller keeps where that is normal: no clamp."""
    r, n = reduce(x)
    return exp_reduced(r), n


def _exp_there(x: Lanes, weight: bool) -> Lanes:
    """Where the result is zero nothing is scaled: a product that underflows takes the processor some 150 cycles (measured),
    and a softmax of masked scores has nothing else."""
    low, high = _EXP_RANGE[x.element]
    there = x.compare("uge", low)  # NaN, too. Selects of zero are masks of the instruction before.
    bounded = there.select(x.like(high).minimum(x), 0.0)
    if weight:
        r, n, rounded = _reduce(bounded)
        return there.select(scale(exp_reduced(r), n, rounded), 0.0)
    head, tail, n, rounded = exp_pair(bounded)
    return there.select(scale(head + tail, n, rounded), 0.0)


def exp(x: Lanes) -> Lanes:
    """e^x to 0.56 of a place (subnormal results are rounded twice)."""
    return _exp_there(x, False)


def exp_weight(x: Lanes) -> Lanes:
    """e^x to a place, in two thirds of the time: for what is summed, or multiplied by what was rounded itself."""
    return _exp_there(x, True)


def exp2(x: Lanes) -> Lanes:
    x = clamp(x, *_EXP2_RANGE[x.element])
    n, integer = nearest(x, 1.0)
    r = x - n
    return scale(r.fma(polynomial(r, _EXP2[x.element]), 1.0), integer)


def expm1(x: Lanes) -> Lanes:
    """2^n (e^r - 1) + (2^n - 1), with the rounding errors of r and of the sum carried along."""
    bounded = clamp(x, -45.0, 89.0 if x.element == "float" else 710.0)
    high, low = LN2[x.element]
    n, integer = nearest(bounded, LOG2_E)
    head, tail = expm1_reduced(n.fma(-high, bounded), n * -low)
    # The largest 2^n is not finite: work with half of it and double the result where n is large.
    large = integer.gt(100)
    factor = power_of_two(large.select(integer - 1, integer))
    unit = large.select(x.like(0.5), 1.0)
    base = factor - unit
    other = base - factor
    base_low = (factor - (base - other)) - (unit + other)  # Knuth's exact sum: either may be the larger
    total = factor.fma(head, base)
    rest = factor.fma(tail, factor.fma(head, base - total) + base_low)
    # Where n is 0 so is the base, and the sum has lost nothing: base - total is not the smaller part there.
    total = integer.eq(0).select(head + tail, total + rest)
    result = large.select(total + total, total)
    return abs(x).lt(TINY[x.element]).select(x, result)  # keeps -0 and subnormals


def sigmoid(x: Lanes) -> Lanes:
    """1 / (1 + e^-x), with one exponential of -|x|; the denominator and the quotient carry their rounding errors."""
    t = -abs(x)
    r, n = reduce(t.like(_EXP_RANGE[x.element][0]).maximum(t))
    # e^r = head + tail, the tail not rounded away
    head = r + 1.0
    tail = (r * r).fma(polynomial(r, _EXP[x.element]), r - (head - 1.0))
    e = scale(head + tail, n)
    bottom = e + 1.0
    # What 1 + e lost to rounding, and what e itself lost, which matters only where 2^n is not tiny.
    lost = e - (bottom - 1.0)
    inverse = 1.0 / bottom
    correction = inverse * (inverse.fma(-bottom, 1.0) - inverse * lost)
    positive = inverse + correction
    # e / (1 + e) = 2^n (head + tail)(inverse + correction)
    product = head.fma(inverse, head.fma(correction, tail * inverse))
    return x.lt(0.0).select(scale(product, n), positive)


def _sinh_small(x: Lanes) -> Lanes:
    z = x * x
    return (x * z).fma(polynomial(z, _SINH), x)


def sinh(x: Lanes) -> Lanes:
    """(e^x - e^-x) / 2; a polynomial for |x| <= 1. float goes through double."""
    if x.element == "float":
        return sinh(x.to("double", "fpext")).to("float", "fptrunc")
    a = abs(x)
    p, n = exp_parts(a)
    half = scale(p, n - 1)
    result = half - 0.25 / half
    result = a.lt(1.0).select(_sinh_small(a), result)
    return result.copysign(x)


def cosh(x: Lanes) -> Lanes:
    """(e^x + e^-x) / 2. float goes through double."""
    if x.element == "float":
        return cosh(x.to("double", "fpext")).to("float", "fptrunc")
    a = abs(x)
    p, n = exp_parts(a)
    half = scale(p, n - 1)
    return half + 0.25 / half


def tanh(x: Lanes) -> Lanes:
    """(e^2a - 1) / (e^2a + 1) with a = |x|, both divided by 2^n, as pairs (Dekker 1971): 1 + s + e and 1 - s + e for s = 2^-n and
    e = e^r - 1. The quotient is mended by what it leaves."""
    a = abs(x)
    high, low = LN2[x.element]
    bounded = a.like(10.0 if x.element == "float" else 20.0).minimum(a)  # where tanh rounds to 1
    twice = bounded + bounded
    n, integer = nearest(twice, LOG2_E)
    e, e_low = expm1_reduced(n.fma(-high, twice), n * -low)
    s = power_of_two(-integer)
    minus, plus = 1.0 - s, s + 1.0
    top, bottom = minus + e, plus + e
    lost = s.fma(-2.0, plus - minus)  # what 1 + s and 1 - s lost together, where s is tiny and the quotient near 1
    top_low = (e - (top - minus)) + (e_low + lost)
    bottom_low = (e - (bottom - plus)) + e_low
    inverse = 1.0 / bottom
    quotient = top * inverse
    rest = quotient.fma(-bottom, top) + quotient.fma(-bottom_low, top_low)
    return rest.fma(inverse, quotient).copysign(x)
