"""Complex arithmetic on pairs (re, im) of float or double lanes.

Multiplication is the textbook formula (as PyTorch's vector path: an infinity may give NaN); division scales by the
larger part of the divisor (Smith, CACM 5(8), 1962), as PyTorch does, so that it neither overflows nor underflows early.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from flambeau.compiler.emit import math as m
from flambeau.compiler.emit.lanes import Lanes

Pair = tuple[Lanes, Lanes]


def add(a: Pair, c: Pair) -> Pair:
    return a[0] + c[0], a[1] + c[1]


def sub(a: Pair, c: Pair) -> Pair:
    return a[0] - c[0], a[1] - c[1]


def mul(a: Pair, c: Pair) -> Pair:
    return a[0] * c[0] - a[1] * c[1], a[0] * c[1] + a[1] * c[0]


def div(a: Pair, c: Pair) -> Pair:
    """Smith's division: by the divisor over its larger part. By zero: each part over +0, as PyTorch."""
    larger = abs(c[0]).maximum(abs(c[1]))
    zero = larger.eq(0.0)
    scale = zero.select(1.0, larger)
    p, q = zero.select(1.0, c[0] / scale), c[1] / scale
    bottom = abs(p * c[0] + q * c[1])
    return (a[0] * p + a[1] * q) / bottom, (a[1] * p - a[0] * q) / bottom


def neg(a: Pair) -> Pair:
    return -a[0], -a[1]


def conj(a: Pair) -> Pair:
    return a[0], -a[1]


def absolute(a: Pair) -> Lanes:
    return m.hypot(a[0], a[1])


def angle(a: Pair) -> Lanes:
    return m.atan2(a[1], a[0])


def sgn(a: Pair) -> Pair:
    """a / |a|, and 0 at 0."""
    size = absolute(a)
    zero = size.eq(0.0)
    return zero.select(0.0, a[0] / size), zero.select(0.0, a[1] / size)


def reciprocal(a: Pair) -> Pair:
    infinite = absolute(a).eq(math.inf)
    re, im = div((a[0].like(1.0), a[0].like(0.0)), a)
    nothing = a[0].like(0.0)
    return infinite.select(nothing.copysign(a[0]), re), infinite.select(nothing.copysign(-a[1]), im)


def exp(a: Pair) -> Pair:
    size = m.exp(a[0])
    real = a[1].eq(0.0)
    return real.select(size, size * m.cos(a[1])), real.select(a[1], size * m.sin(a[1]))


def log(a: Pair) -> Pair:
    """log|a| + i arg a. Near |a| = 1 by log1p of |a|^2 - 1, elsewhere by hypot: nothing cancels or overflows."""
    x, y = abs(a[0]), abs(a[1])
    large, small = x.maximum(y), x.minimum(y)
    near = large.gt(0.5) & large.lt(2.0) & x.eq(x) & y.eq(y)
    one = near.select(large, 1.0)
    re = m.log1p((one - 1.0).fma(one + 1.0, near.select(small * small, 0.0))) * 0.5
    return near.select(re, m.log(absolute(a))), angle(a)


def sqrt(a: Pair) -> Pair:
    """Principal root: t = sqrt((|re| + |a|) / 2), the other part im / 2t; the branch cut is the negative axis."""
    x, y = a
    size = absolute(a)
    t = (abs(x) * 0.5 + size * 0.5).sqrt()
    other = abs(y) / (t + t)
    other = t.eq(0.0).select(0.0, abs(y).eq(math.inf).select(abs(y), other))
    positive = x.ge(0.0)
    return positive.select(t, other), positive.select(other, t).copysign(y)


def power(a: Pair, c: Pair) -> Pair:
    """exp(c log a); 0 to a power of positive real part is 0, and anything to 0 is 1. float goes through double."""
    if a[0].element == "float":
        base, exponent = ((p[0].to("double", "fpext"), p[1].to("double", "fpext")) for p in (a, c))
        re, im = power(base, exponent)
        return re.to("float", "fptrunc"), im.to("float", "fptrunc")
    zero = a[0].eq(0.0) & a[1].eq(0.0)
    none = c[0].eq(0.0) & c[1].eq(0.0)
    re, im = exp(mul(c, log(a)))
    re, im = zero.select(0.0, re), zero.select(0.0, im)
    return none.select(1.0, re), none.select(0.0, im)


def _times(zero: Lanes, x: Lanes) -> Lanes:
    """zero * x, where 0 times infinity (and NaN) is 0: of a part that is 0 for all x (C99, annex G)."""
    return zero.eq(0.0).select(zero * x.minimum(1.0).maximum(-1.0), zero * x)


def sin(a: Pair) -> Pair:
    return _times(m.sin(a[0]), m.cosh(a[1])), m.cos(a[0]) * m.sinh(a[1])


def cos(a: Pair) -> Pair:
    return m.cos(a[0]) * m.cosh(a[1]), -_times(m.sin(a[0]), m.sinh(a[1]))


def sinh(a: Pair) -> Pair:
    return _times(m.sinh(a[0]), m.cos(a[1])), _times(m.sin(a[1]), m.cosh(a[0]))


def cosh(a: Pair) -> Pair:
    return m.cosh(a[0]) * m.cos(a[1]), _times(m.sin(a[1]), m.sinh(a[0]))


def tanh(a: Pair) -> Pair:
    """(tanh x + i tan y) / (1 + i tanh x tan y), written with one division (Kahan 1987, "Branch cuts")."""
    x, y = a
    t = m.tan(y)
    beta = t.fma(t, 1.0)
    s = m.sinh(x.isnan().select(x, x.minimum(40.0).maximum(-40.0)))  # tanh is 1 far before: keeps s * s finite
    rho = s.fma(s, 1.0).sqrt()
    bottom = (beta * s).fma(s, 1.0)
    return beta * rho * s / bottom, t / bottom


def tan(a: Pair) -> Pair:
    """-i tanh(i a)."""
    re, im = tanh((-a[1], a[0]))
    return im, -re


def log1p(a: Pair) -> Pair:
    """log(1 + a): near 0 the real part by log1p of |1 + a|^2 - 1."""
    x, y = a
    near = abs(x).lt(0.5) & abs(y).lt(0.5)
    re, im = log((x + 1.0, y))
    return near.select(m.log1p(x.fma(x + 2.0, y * y)) * 0.5, re), im


def expm1(a: Pair) -> Pair:
    """expm1(x) cos y - 2 sin^2(y / 2) + i e^x sin y."""
    half = m.sin(a[1] * 0.5)
    return m.expm1(a[0]) * m.cos(a[1]) - half * half * 2.0, m.exp(a[0]) * m.sin(a[1])


def exp2(a: Pair) -> Pair:
    size, turn = m.exp2(a[0]), a[1] * math.log(2)
    real = a[1].eq(0.0)
    return real.select(size, size * m.cos(turn)), real.select(a[1], size * m.sin(turn))


def log2(a: Pair) -> Pair:
    re, im = log(a)
    return re * (1 / math.log(2)), im * (1 / math.log(2))


def log10(a: Pair) -> Pair:
    re, im = log(a)
    return re * (1 / math.log(10)), im * (1 / math.log(10))


def sigmoid(a: Pair) -> Pair:
    re, im = exp(neg(a))
    return reciprocal((re + 1.0, im))


def rsqrt(a: Pair) -> Pair:
    return reciprocal(sqrt(a))


def _infinite(a: Pair) -> Lanes:
    return abs(a[0]).eq(math.inf) | abs(a[1]).eq(math.inf)


def asinh(a: Pair) -> Pair:
    """Kahan 1987: asinh z from sqrt(1 + iz) and sqrt(1 - iz)."""
    x, y = a
    p = sqrt((1.0 - y, x))  # sqrt(1 + iz)
    q = sqrt((1.0 + y, -x))  # sqrt(1 - iz)
    # Re = asinh(Im(conj(q) p)); Im = atan2(y, Re(p q)), and of infinite y by the parts alone
    re, im = m.asinh(q[0] * p[1] - q[1] * p[0]), m.atan2(y, p[0] * q[0] - p[1] * q[1])
    wild = _infinite(a)
    return wild.select(x.like(math.inf).copysign(x), re), wild.select(m.atan2(y, abs(x)), im)


def asin(a: Pair) -> Pair:
    """-i asinh(i a)."""
    re, im = asinh((-a[1], a[0]))
    return im, -re


def acos(a: Pair) -> Pair:
    """Kahan 1987: 2 atan2(Re sqrt(1 - z), Re sqrt(1 + z)) and the asinh of Im(conj(sqrt(1 + z)) sqrt(1 - z))."""
    p = sqrt((1.0 - a[0], -a[1]))
    q = sqrt((1.0 + a[0], a[1]))
    wild = _infinite(a)
    re, im = m.atan2(p[0], q[0]) * 2.0, m.asinh(q[0] * p[1] - q[1] * p[0])
    return wild.select(m.atan2(abs(a[1]), a[0]), re), wild.select(a[1].like(math.inf).copysign(-a[1]), im)


def acosh(a: Pair) -> Pair:
    """Kahan 1987: asinh(Re(conj(sqrt(z - 1)) sqrt(z + 1))) and 2 atan2(Im sqrt(z - 1), Re sqrt(z + 1))."""
    p = sqrt((a[0] - 1.0, a[1]))
    q = sqrt((a[0] + 1.0, a[1]))
    wild = _infinite(a)
    re, im = m.asinh(p[0] * q[0] + p[1] * q[1]), m.atan2(p[1], q[0]) * 2.0
    return wild.select(a[0].like(math.inf), re), wild.select(m.atan2(a[1], a[0]), im)


def atanh(a: Pair) -> Pair:
    """(log1p(4x / ((1 - x)^2 + y^2)) / 4, atan2(2y, (1 - x)(1 + x) - y^2) / 2), for |x| and with x's sign; far out 1 / z and pi / 2."""
    x, y = abs(a[0]), a[1]
    far = x.maximum(abs(y)).gt(1e9 if x.element == "float" else 1e17)
    gap = 1.0 - x
    re = far.select(reciprocal((x, y))[0], m.log1p(x * 4.0 / (gap * gap + y * y)) * 0.25)
    im = m.atan2(y + y, gap * (x + 1.0) - y * y) * 0.5
    return re.copysign(a[0]), far.select(y.like(math.pi / 2).copysign(y), im)


def atan(a: Pair) -> Pair:
    """-i atanh(i a)."""
    re, im = atanh((-a[1], a[0]))
    return im, -re


UNARY: dict[str, Callable[[Pair], Pair]] = {
    "neg": neg, "sgn": sgn, "sqrt": sqrt, "rsqrt": rsqrt, "reciprocal": reciprocal, "exp": exp, "exp_weight": exp, "exp2": exp2,
    "expm1": expm1, "log": log, "log2": log2, "log10": log10, "log1p": log1p, "sin": sin, "cos": cos, "tan": tan,
    "asin": asin, "acos": acos, "atan": atan, "sinh": sinh, "cosh": cosh, "tanh": tanh, "asinh": asinh,
    "acosh": acosh, "atanh": atanh, "sigmoid": sigmoid, "conj_physical": conj,
}  # fmt: skip
BINARY: dict[str, Callable[[Pair, Pair], Pair]] = {"add": add, "sub": sub, "mul": mul, "div": div, "pow": power}
