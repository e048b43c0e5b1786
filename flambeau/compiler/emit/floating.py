"""Floating arithmetic that is exact or rounded once: rounding, remainders, extremes, neighbours.

The formulas follow what PyTorch's CPU kernels compute, so the results agree bit for bit (NaN payloads aside).
"""

from __future__ import annotations

from collections.abc import Callable

from flambeau.compiler.emit import math as m
from flambeau.compiler.emit.lanes import Lanes, repeat_while

Rounding = Callable[[Lanes], Lanes]


def sgn(a: Lanes) -> Lanes:
    """-1, 0 or 1; of NaN, 0."""
    return a.gt(0.0).select(1.0, a.lt(0.0).select(a.like(-1.0), 0.0))


def maximum(a: Lanes, c: Lanes) -> Lanes:
    """NaN if either is NaN; of two zeros the second operand."""
    return a.isnan().select(a, a.gt(c).select(a, c))


def extreme(a: Lanes, c: Lanes, largest: bool) -> Lanes:
    """As `maximum` or `minimum`, but of two zeros either. Three instructions (LLVM makes four of two selects)."""
    name = f"llvm.{'maximum' if largest else 'minimum'}.{a.suffix}"
    a.b.declarations.add(f"declare {a.type} @{name}({a.type}, {a.type})")
    return Lanes(a.b, a.element, a.width, a.b.op(f"call nsz {a.type} @{name}({a.type} {a.name}, {a.type} {c.name})"))


def minimum(a: Lanes, c: Lanes) -> Lanes:
    return a.isnan().select(a, a.lt(c).select(a, c))


def fmod(a: Lanes, c: Lanes) -> Lanes:
    """C's fmod, exact. Each round takes r - q y with q the quotient rounded to double and then truncated: the fused
    product leaves exactly that residual (it is a multiple of y's last place and smaller than r), so the rounds end
    with |r| < y and a last addition mends a negative r. float goes through double."""
    if a.element == "float":
        return fmod(a.to("double", "fpext"), c.to("double", "fpext")).to("float", "fptrunc")
    y = abs(c)
    start = abs(a)
    finite = start.lt(float("inf")) & y.gt(0.0) & y.lt(float("inf"))
    # Where r / y could overflow, divide by a power of two times y, which is a multiple of y: three sizes are enough.
    far = y.lt(2.0**400).select(y * 2.0**600, y)
    further = far.lt(2.0**400).select(far * 2.0**600, far)

    def step(state: list[Lanes]) -> list[Lanes]:
        r = state[0]
        size = abs(r)
        by = size.ge(further).select(further, size.ge(far).select(far, y))
        left = (-(r / by).trunc()).fma(by, r)
        return [(finite & abs(r).ge(y)).select(left, r)]

    r = repeat_while([start], lambda state: finite & abs(state[0]).ge(y), step)[0]
    r = r.lt(0.0).select(r + y, r)
    r = (y.eq(float("inf")) | finite).select(r, a.like(float("nan")))
    r = start.eq(float("inf")).select(a.like(float("nan")), r)
    return (a.isnan() | c.isnan()).select(a + c, r.copysign(a))


def remainder(a: Lanes, c: Lanes) -> Lanes:
    """fmod moved to the sign of the divisor: Python's %."""
    r = fmod(a, c)
    other = r.ne(0.0) & (c.lt(0.0) ^ r.lt(0.0))
    return other.select(r + c, r)


def _same(x: Lanes) -> Lanes:
    return x


def div_trunc(a: Lanes, c: Lanes, rounded: Rounding = _same) -> Lanes:
    """The rounded quotient, truncated. `rounded` rounds to a narrow type after every step, as PyTorch does."""
    return rounded(a / c).trunc()


def div_floor(a: Lanes, c: Lanes, rounded: Rounding = _same) -> Lanes:
    """Python's // of floats: (a - fmod) / c, floored, with PyTorch's corrections; `rounded` as for div_trunc."""
    plain = a / c
    r = fmod(a, c)
    quotient = rounded(rounded(a - r) / c)
    quotient = (r.ne(0.0) & (c.lt(0.0) ^ r.lt(0.0))).select(rounded(quotient - 1.0), quotient)
    floored = quotient.floor()
    floored = rounded(quotient - floored).gt(0.5).select(rounded(floored + 1.0), floored)
    floored = quotient.eq(0.0).select(quotient.like(0.0).copysign(plain), floored)
    return c.eq(0.0).select(plain, floored)


def nextafter(a: Lanes, c: Lanes) -> Lanes:
    """The neighbour of a towards c, in integer arithmetic on the bits."""
    bits = a.bits()
    # The magnitude grows when going up from a positive a or down from a negative one.
    away = a.lt(c).compare("eq", a.gt(0.0))
    moved = (bits + away.select(bits.like(1), -1)).as_float()
    least = bits.like(1).as_float().copysign(c)
    moved = a.eq(0.0).select(least, moved)
    moved = a.eq(c).select(c, moved)
    return (a.isnan() | c.isnan()).select(a + c, moved)


def rsqrt(a: Lanes) -> Lanes:
    """1 / sqrt(a), the two roundings taken back by a step of Newton's method in which a r^2 is exact to twice the precision."""
    r = 1.0 / a.sqrt()
    square = a * r
    lost = a.fma(r, -square)
    error = r.fma(-square, 1.0) - r * lost
    return error.isnan().select(r, (r * 0.5).fma(error, r))  # NaN where a or r is 0 or infinite


UNARY: dict[str, Callable[[Lanes], Lanes]] = {
    "neg": lambda a: -a,
    "abs": abs,
    "sgn": sgn,
    "floor": lambda a: a.floor(),
    "ceil": lambda a: a.call("ceil"),
    "trunc": lambda a: a.trunc(),
    "round": lambda a: a.rint(),
    "sqrt": lambda a: a.sqrt(),
    "rsqrt": rsqrt,
    "reciprocal": lambda a: 1.0 / a,
    "conj_physical": lambda a: a,
    **m.UNARY,
}
BINARY: dict[str, Callable[[Lanes, Lanes], Lanes]] = {
    "add": lambda a, c: a + c,
    "sub": lambda a, c: a - c,
    "mul": lambda a, c: a * c,
    "div": lambda a, c: a / c,
    "div_trunc": div_trunc,
    "div_floor": div_floor,
    "remainder": remainder,
    "fmod": fmod,
    "maximum": maximum,
    "minimum": minimum,
    "fmax": lambda a, c: a.call("maxnum", c),
    "fmin": lambda a, c: a.call("minnum", c),
    "copysign": lambda a, c: a.copysign(c),
    "nextafter": nextafter,
    **m.BINARY,
}
