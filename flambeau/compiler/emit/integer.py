"""Integer and bool arithmetic: PyTorch's CPU results, wrapping, and total.

Nothing traps and nothing is undefined: division by zero gives 0 (PyTorch raises; see docs/differences.md), the least
integer over -1 wraps, shifts out of range give 0 (or the sign).
"""

from __future__ import annotations

from collections.abc import Callable

from flambeau.compiler.emit.lanes import Lanes, repeat_while


def _safe_divisor(a: Lanes, c: Lanes, signed: bool) -> Lanes:
    """The divisor, or 1 where the machine's division is not defined: least / 1 is what least / -1 wraps to."""
    bad = c.eq(0)
    if signed:
        least = -(1 << (int(a.element[1:]) - 1))
        bad = bad | (c.eq(-1) & a.eq(least))
    return bad.select(1, c)


def _quotient(a: Lanes, c: Lanes, signed: bool) -> tuple[Lanes, Lanes]:
    """(quotient towards zero, remainder). By zero: (0, 0); least / -1: (least, 0), as wrapping would have it."""
    bits = int(a.element[1:])
    divisor = _safe_divisor(a, c, signed)
    if bits <= 32:
        # No vector integer division exists on x86: go through double, whose quotient of two 32-bit integers truncates
        # exactly (a non-integer quotient is at least 2^-31 of itself away from an integer).
        up, down = ("sitofp", "fptosi") if signed else ("uitofp", "fptoui")
        q = (a.to("double", up) / divisor.to("double", up)).to(a.element, down)
    else:
        q = a.sdiv(divisor)
    r = a - q * divisor
    zero = c.eq(0)
    return zero.select(0, q), zero.select(0, r)


def div_trunc(a: Lanes, c: Lanes, signed: bool) -> Lanes:
    return _quotient(a, c, signed)[0]


def fmod(a: Lanes, c: Lanes, signed: bool) -> Lanes:
    return _quotient(a, c, signed)[1]


def div_floor(a: Lanes, c: Lanes, signed: bool) -> Lanes:
    q, r = _quotient(a, c, signed)
    if not signed:
        return q
    low = r.ne(0) & (r ^ c).lt(0)
    return low.select(q - 1, q)


def remainder(a: Lanes, c: Lanes, signed: bool) -> Lanes:
    _, r = _quotient(a, c, signed)
    if not signed:
        return r
    low = r.ne(0) & (r ^ c).lt(0)
    return low.select(r + c, r)


def power(a: Lanes, c: Lanes, signed: bool) -> Lanes:
    """Wrapping a ** c by squaring; a negative exponent gives 1 / a ** -c truncated: 0 unless a is 1 or -1."""

    def step(state: list[Lanes]) -> list[Lanes]:
        result, base, left = state
        result = (left & 1).ne(0).select(result * base, result)
        return [result, base * base, left.logical_right(1)]

    exponent = c if not signed else c.lt(0).select(0, c)
    result = repeat_while([a.like(1), a, exponent], lambda state: state[2].ne(0), step)[0]
    if not signed:
        return result
    odd = (c & 1).ne(0)
    inverse = a.eq(1).select(1, a.eq(-1).select(odd.select(a.like(-1), 1), a.like(0)))
    return c.lt(0).select(inverse, result)


def shift_left(a: Lanes, c: Lanes, signed: bool) -> Lanes:
    bits = int(a.element[1:])
    inside = c.compare("ult", bits)
    return inside.select(a << inside.select(c, 0), 0)


def shift_right(a: Lanes, c: Lanes, signed: bool) -> Lanes:
    bits = int(a.element[1:])
    inside = c.compare("ult", bits)
    if signed:
        return a >> inside.select(c, bits - 1)
    return inside.select(a.logical_right(inside.select(c, 0)), 0)


def sgn(a: Lanes, signed: bool) -> Lanes:
    if not signed:
        return a.ne(0).to(a.element, "zext")
    return a.gt(0).to(a.element, "zext") - a.lt(0).to(a.element, "zext")


def _extreme(name: str) -> Callable[[Lanes, Lanes, bool], Lanes]:
    return lambda a, c, signed: a.call(("s" if signed else "u") + name, c)


UNARY: dict[str, Callable[[Lanes, bool], Lanes]] = {
    "neg": lambda a, signed: -a,
    "abs": lambda a, signed: abs(a) if signed else a,
    "sgn": sgn,
    "bitwise_not": lambda a, signed: ~a,
    **dict.fromkeys(("floor", "ceil", "trunc", "round", "conj_physical"), lambda a, signed: a),
}
BINARY: dict[str, Callable[[Lanes, Lanes, bool], Lanes]] = {
    "add": lambda a, c, signed: a + c,
    "sub": lambda a, c, signed: a - c,
    "mul": lambda a, c, signed: a * c,
    "div_trunc": div_trunc,
    "div_floor": div_floor,
    "remainder": remainder,
    "fmod": fmod,
    "pow": power,
    "bitwise_and": lambda a, c, signed: a & c,
    "bitwise_or": lambda a, c, signed: a | c,
    "bitwise_xor": lambda a, c, signed: a ^ c,
    "shift_left": shift_left,
    "shift_right": shift_right,
    **dict.fromkeys(("maximum", "fmax"), _extreme("max")),
    **dict.fromkeys(("minimum", "fmin"), _extreme("min")),
}
# bool lanes are i1: add is or, mul is and (PyTorch has no bool subtraction; xor is what wrapping gives).
BOOL_UNARY: dict[str, Callable[[Lanes], Lanes]] = {
    "bitwise_not": lambda a: a ^ 1,
    **dict.fromkeys(("abs", "sgn", "neg", "floor", "ceil", "trunc", "round", "conj_physical"), lambda a: a),
}
BOOL_BINARY: dict[str, Callable[[Lanes, Lanes], Lanes]] = {
    **dict.fromkeys(("add", "bitwise_or", "maximum", "fmax"), lambda a, c: a | c),
    **dict.fromkeys(("mul", "bitwise_and", "minimum", "fmin"), lambda a, c: a & c),
    **dict.fromkeys(("sub", "bitwise_xor"), lambda a, c: a ^ c),
    "pow": lambda a, c: a | (c ^ 1),  # x ** 0 is 1
}
