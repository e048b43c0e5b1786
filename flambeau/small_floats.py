"""Floats of one byte: how the bits of each format are read, as numbers of Python; the compiler's code for them is compiler/emit/small_floats.py.

A format with a mantissa is sign, exponent, mantissa, with subnormal numbers. What differs is the codes that are no numbers: `ieee` has infinities and NaN
as float16 does; `fn` has no infinities, and one NaN of each sign (all bits set); `fnuz` has one NaN where negative zero would be. float8_e8m0fnu is
an exponent alone: powers of two, NaN (255), neither sign nor zero.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import cache
from math import frexp, inf, isnan, nan
from typing import Final, NamedTuple


class Format(NamedTuple):
    """`mantissa`: its bits; `bias`: of the exponent; `kind`: ieee, fn, fnuz or exponent."""

    mantissa: int
    bias: int
    kind: str


FORMATS: Final = {
    "float8_e4m3fn": Format(3, 7, "fn"), "float8_e5m2": Format(2, 15, "ieee"), "float8_e4m3fnuz": Format(3, 8, "fnuz"),
    "float8_e5m2fnuz": Format(2, 16, "fnuz"), "float8_e8m0fnu": Format(0, 127, "exponent"),
}  # fmt: skip


@cache
def numbers(name: str) -> tuple[float, ...]:
    """The value of each of the 256 codes of a format."""
    mantissa, bias, kind = FORMATS[name]
    if kind == "exponent":
        return (*[2.0 ** (code - bias) for code in range(255)], nan)
    most = 0x7F >> mantissa  # the greatest exponent
    positive = []
    for code in range(128):
        exponent, part = code >> mantissa, code & ((1 << mantissa) - 1)
        if kind == "ieee" and exponent == most:
            positive.append(nan if part else inf)
        elif kind == "fn" and code == 0x7F:
            positive.append(nan)
        else:
            steps = part + ((1 << mantissa) if exponent else 0)
            positive.append(steps * 2.0 ** (max(exponent, 1) - bias - mantissa))
    return (*positive, nan if kind == "fnuz" else -0.0, *[-x for x in positive[1:]])


def rounded(number: float, name: str) -> float:
    """A number that float32 holds, as a format holds it: the nearest one, ties to the even code.

    What is too large is infinite, in a format without infinities NaN; in float8_e4m3fn it is the largest number.
    """
    values = numbers(name)
    _, bias, kind = FORMATS[name]
    if isnan(number):
        return nan
    if kind == "exponent":
        if abs(number) < 2.0**-126:
            return values[abs(number) > values[0]]
        if abs(number) >= 2.0**127 * 1.5:
            return nan
        part, power = frexp(abs(number))
        return values[power - 1 + bias + (part >= 0.75)]  # halves go up
    last = {"ieee": 0x7B, "fn": 0x7E, "fnuz": 0x7F}[kind]
    step = values[last] - values[last - 1]
    code = _nearest(abs(number), (*values[: last + 1], values[last] + step))
    if code > last and kind != "fn":
        return (inf if number > 0 else -inf) if kind == "ieee" else nan
    code = min(code, last)
    return 0.0 if kind == "fnuz" and not code else values[code] if str(number)[0] != "-" else -values[code]


def _nearest(number: float, line: tuple[float, ...]) -> int:
    """The place of the nearest of ascending numbers, ties to the even place."""
    at = bisect_left(line, number)
    if at == 0 or at == len(line):
        return min(at, len(line) - 1)
    low, high = number - line[at - 1], line[at] - number
    return at - 1 if low < high or (low == high and (at - 1) % 2 == 0) else at
