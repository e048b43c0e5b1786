"""Floats of one byte in registers: their bits as float lanes, and float lanes as their bits, rounded to nearest even as PyTorch does."""

from __future__ import annotations

from flambeau.compiler.emit.lanes import Lanes
from flambeau.small_floats import FORMATS

_MANTISSA, _BIAS = 23, 127  # of float32
_INFINITY, _QUIET = 0x7F800000, 0x400000


def decode(name: str, code: Lanes) -> Lanes:
    """i8 lanes -> float lanes. Exact. NaN have the bits that PyTorch gives them."""
    mantissa, bias, kind = FORMATS[name]
    wide = code.to("i32", "zext")
    if kind == "exponent":
        bits = wide.eq(0).select(1 << (_MANTISSA - 1), wide << _MANTISSA)
        return wide.eq(0xFF).select(_INFINITY | 1, bits).as_float()
    sign, rest = (wide & 0x80) << 24, wide & 0x7F
    # The bits in float32's places are the number times a power of two, subnormal ones too.
    shifted = rest << (_MANTISSA - mantissa)
    bits = (shifted.as_float() * 2.0 ** (_BIAS - bias)).bits()
    if kind == "ieee":
        infinity = 0x7F & (-1 << mantissa)
        special = shifted | _INFINITY | rest.gt(infinity).select(rest.like(_QUIET), 0)
        bits = rest.compare("uge", infinity).select(special, bits)
    elif kind == "fn":
        bits = rest.eq(0x7F).select(_INFINITY | (7 << (_MANTISSA - mantissa)), bits)
    else:
        return wide.eq(0x80).select(_INFINITY | 1, bits | sign).as_float()
    return (bits | sign).as_float()


def encode(name: str, x: Lanes) -> Lanes:
    """float lanes -> i8 lanes."""
    mantissa, bias, kind = FORMATS[name]
    whole = x.bits()
    bits = whole & 0x7FFFFFFF
    if kind == "exponent":
        exponent = bits.logical_right(_MANTISSA)
        half, below = (bits & _QUIET).ne(0), (bits & (_QUIET - 1)).ne(0)
        up = (half & (below | exponent.ne(0))).to("i32", "zext")
        return exponent.eq(0xFF).select(0xFF, exponent + up).to("i8", "trunc")
    drop = _MANTISSA - mantissa
    # Numbers from this one on have no code: the power of two behind the largest.
    most = 0x7F >> mantissa
    limit = (most - bias + _BIAS + (kind == "fnuz")) << _MANTISSA
    if kind == "fn":  # from the middle between the largest number and NaN's place on: larger numbers are the largest, as PyTorch saturates this format
        limit = ((most - bias + _BIAS) << _MANTISSA) + (0x7F & ((1 << mantissa) - 1)) * (1 << drop) - (1 << (drop - 1))
    normal = (bits + (((bias - _BIAS) << _MANTISSA) + (1 << (drop - 1)) - 1) + (bits.logical_right(drop) & 1)).logical_right(drop)
    # Adding a number whose last bit is worth the smallest subnormal rounds to a multiple of it.
    anchor = (_BIAS + 1 - bias + drop) << _MANTISSA
    small = (bits.as_float() + x.like(anchor, "i32").as_float()).bits() - anchor
    code = bits.compare("ult", (1 - bias + _BIAS) << _MANTISSA).select(small, normal)
    large = bits.compare("uge", limit)
    if kind == "fnuz":
        signed = code | (code.ne(0).select(whole, 0).logical_right(24) & 0x80)
        return large.select(0x80, signed).to("i8", "trunc")
    beyond = bits.gt(_INFINITY).select(x.like(0x7F, "i32"), 0x7F & (-1 << mantissa) if kind == "ieee" else 0x7E)
    return (large.select(beyond, code) | (whole.logical_right(24) & 0x80)).to("i8", "trunc")
