"""Complex arithmetic on pairs (re, im) of float or double lanes.

Multiplication is the textbook formula (as PyTorch's vector path: an infinity may give NaN); division scales by the
larger part of the divisor (Smith, CACM 5(8), 1962), as PyTorch does, so that it neither overflows nor underflows early.
Functions of one number have the values of C99's annex G at zeros, infinities and NaN; where that leaves a sign open, PyTorch's.
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
    """Smith's division: by the divisor over its larger part. By zero: each part over +0; of finite by one infinite part: 0."""
    first = abs(c[0]).ge(abs(c[1]))
    larger = first.select(c[0], c[1])
    p, q = first.select(1.0, c[0] / larger), first.select(c[1] / larger, 1.0)
    zero = c[0].eq(0.0) & c[1].eq(0.0)
    re, im = zero.select(a[0], a[0] * p + a[1] * q), zero.select(a[1], a[1] * p - a[0] * q)
    bottom = zero.select(0.0, p * c[0] + q * c[1])
    return re / bottom, im / bottom


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
    return div((a[0].like(1.0), a[0].like(0.0)), a)


def _polar(size: Lanes, x: Lanes, y: Lanes, turn: Lanes) -> Pair:
    """size (cos turn + i sin turn), where size is some exp(x) and turn a multiple of y; real where y is 0."""
    real, c, s = y.eq(0.0), m.cos(turn), m.sin(turn)
    nowhere = c.isnan()  # an infinite turn: all that is known of size 0 is 0, and of an infinite size that it is infinite
    c = (nowhere & abs(x).eq(math.inf)).select(1.0, c)
    s = (nowhere & x.eq(-math.inf)).select(y.like(1.0).copysign(y), s)
    return real.select(size, size * c), real.select(y, size * s)


def exp(a: Pair) -> Pair:
    return _polar(m.exp(a[0]), a[0], a[1], a[1])


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
    infinite = abs(y).eq(math.inf)
    t = (abs(x) * 0.5 + size * 0.5).sqrt()
    other = abs(y) / (t + t)
    t, other = infinite.select(abs(y), t), t.eq(0.0).select(0.0, infinite.select(abs(y), other))
    positive = x.ge(0.0)
    return positive.select(t, other), positive.select(other, t).copysign(y)


def power(a: Pair, c: Pair) -> Pair:
    """exp(c log a). 0 to a power of positive real part is 0, of negative real part infinite (at no angle), of others NaN; anything to 0 is 1.
    float goes through double."""
    if a[0].element == "float":
        base, exponent = ((p[0].to("double", "fpext"), p[1].to("double", "fpext")) for p in (a, c))
        re, im = power(base, exponent)
        return re.to("float", "fptrunc"), im.to("float", "fptrunc")
    zero = a[0].eq(0.0) & a[1].eq(0.0)
    none = c[0].eq(0.0) & c[1].eq(0.0)
    re, im = exp(mul(c, log(a)))
    falls, grows = c[0].gt(0.0), c[0].lt(0.0)
    re = zero.select(falls.select(re.like(0.0), grows.select(re.like(math.inf), math.nan)), re)
    im = zero.select(falls.select(im.like(0.0), math.nan), im)
    return none.select(1.0, re), none.select(0.0, im)


def _times(zero: Lanes, x: Lanes) -> Lanes:
    """zero * x, where 0 times infinity (and NaN) is 0: of a part that is 0 for all x."""
    return zero.eq(0.0).select(zero * x.minimum(1.0).maximum(-1.0), zero * x)


def _grown(c: Lanes, x: Lanes, product: Lanes) -> Lanes:
    """`product` of a cosine c and a hyperbolic function of x; infinite where x is and c is the cosine of no angle."""
    return (c.isnan() & abs(x).eq(math.inf)).select(math.inf, product)


def sinh(a: Pair) -> Pair:
    c = m.cos(a[1])
    return _grown(c, a[0], _times(m.sinh(a[0]), c)), _times(m.sin(a[1]), m.cosh(a[0]))


def cosh(a: Pair) -> Pair:
    c, s = m.cos(a[1]), m.sin(a[1])
    return _grown(c, a[0], m.cosh(a[0]) * c), (s.isnan() & a[0].eq(0.0)).select(0.0, _times(s, m.sinh(a[0])))


def sin(a: Pair) -> Pair:
    """-i sinh(i a), but for the sign of an infinite part, which is open."""
    c = m.cos(a[0])
    return _times(m.sin(a[0]), m.cosh(a[1])), _grown(c, a[1], _times(m.sinh(a[1]), c))


def cos(a: Pair) -> Pair:
    """cosh(i a)."""
    return cosh((-a[1], a[0]))


def tanh(a: Pair) -> Pair:
    """(tanh x + i tan y) / (1 + i tanh x tan y), written with one division (Kahan 1987, "Branch cuts")."""
    x, y = a
    t = m.tan(y)
    beta = t.fma(t, 1.0)
    far = abs(x).gt(20.0 if x.element == "float" else 40.0)  # here tanh is 1, and cosh and sinh are one
    s = m.sinh(x)
    near = far.select(0.0, s)  # beta * near * near stays finite
    rho = near.fma(near, 1.0).sqrt()
    bottom = (beta * near).fma(near, 1.0)
    re, im = beta * rho * near / bottom, far.select(t / beta / s / s, t / bottom)
    infinite = abs(x).eq(math.inf)
    re = (far & (infinite | t.eq(t))).select(x.like(1.0).copysign(x), t.isnan().select(_times(x, t), re))
    return re, (t.isnan() & infinite | y.eq(0.0)).select(y.like(0.0).copysign(y), im)


def tan(a: Pair) -> Pair:
    """-i tanh(i a)."""
    re, im = tanh((-a[1], a[0]))
    return im, -re


def log1p(a: Pair) -> Pair:
    """log(1 + a): near 0 the real part by log1p of |1 + a|^2 - 1."""
    x, y = a
    near = abs(x).lt(0.5) & abs(y).lt(0.5)
    re, im = log((x + 1.0, y))
    excess = x.fma(x + 2.0, y * y)
    return near.select((x.eq(0.0) & excess.eq(0.0)).select(x, m.log1p(excess) * 0.5), re), im


def expm1(a: Pair) -> Pair:
    """expm1(x) cos y - 2 sin^2(y / 2) + i e^x sin y."""
    half = m.sin(a[1] * 0.5)
    return m.expm1(a[0]) * m.cos(a[1]) - half * half * 2.0, m.exp(a[0]) * m.sin(a[1])


def exp2(a: Pair) -> Pair:
    return _polar(m.exp2(a[0]), a[0], a[1], a[1] * math.log(2))


def log2(a: Pair) -> Pair:
    re, im = log(a)
    return re * (1 / math.log(2)), im * (1 / math.log(2))


def log10(a: Pair) -> Pair:
    re, im = log(a)
    return re * (1 / math.log(10)), im * (1 / math.log(10))


def sigmoid(a: Pair) -> Pair:
    """1 / (1 + exp(-a)). Where exp(-a) is infinite that is 0, of the signs of exp's parts (NaN in PyTorch, which divides by it)."""
    x, y = exp(neg(a))
    re, im = reciprocal((x + 1.0, y))
    endless = abs(x).minimum(abs(y)).eq(math.inf)
    return endless.select(x.like(0.0).copysign(x), re), endless.select(x.like(0.0).copysign(-y), im)


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
    return wild.select(x.like(math.inf).copysign(x), re), y.eq(0.0).select(y, wild.select(m.atan2(y, abs(x)), im))


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
    re = a[0].eq(0.0).select(math.pi / 2, re)
    return wild.select(m.atan2(abs(a[1]), a[0]), re), wild.select(a[1].like(math.inf).copysign(-a[1]), im)


def acosh(a: Pair) -> Pair:
    """Kahan 1987: asinh(Re(conj(sqrt(z - 1)) sqrt(z + 1))) and 2 atan2(Im sqrt(z - 1), Re sqrt(z + 1))."""
    p = sqrt((a[0] - 1.0, a[1]))
    q = sqrt((a[0] + 1.0, a[1]))
    wild = _infinite(a)
    re, im = m.asinh(p[0] * q[0] + p[1] * q[1]), m.atan2(p[1], q[0]) * 2.0
    im = a[0].eq(0.0).select(im.like(math.pi / 2).copysign(a[1]), im)
    return wild.select(a[0].like(math.inf), re), wild.select(m.atan2(a[1], a[0]), im)


def atanh(a: Pair) -> Pair:
    """(log1p(4x / ((1 - x)^2 + y^2)) / 4, atan2(2y, (1 - x)(1 + x) - y^2) / 2), for |x| and with x's sign; far out 1 / z and pi / 2."""
    x, y = abs(a[0]), a[1]
    far = x.maximum(abs(y)).gt(1e9 if x.element == "float" else 1e17)
    gap = 1.0 - x
    re = (x.eq(0.0) | _infinite(a)).select(0.0, far.select(reciprocal((x, y))[0], m.log1p(x * 4.0 / (gap * gap + y * y)) * 0.25))
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
