"""A float32 as the exact sum of three bfloat16, and which of their products give a float32 product.

24 bits of mantissa are three times eight: x = hi + mid + lo, each rounded to nearest, so that |mid| <= 2^-8 |hi| and
|lo| <= 2^-16 |hi|. Of the nine products of two such sums, six suffice: mid * lo, lo * mid and lo * lo are below 2^-24 of
the product, less than the rounding of one float32 multiply-add (Henry, Tang and Heinecke 2019, "Leveraging the bfloat16
artificial intelligence datatype for higher-precision computations"). The matrix unit adds them up in float32.

The matrix unit takes denormal operands, and sums that become denormal, for zero; and the parts of an infinity are not
finite. So the extent of what is multiplied must be known: see `Extent`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from flambeau.compiler.emit.builder import Builder, vector

PARTS: Final = 3
HI, MID, LO = range(PARTS)
# (part of a, part of b), in an order in which two products next to each other share an operand: 7 loads instead of 12.
# The large one is last: what comes after it would be rounded to it once more (errors of short sums: -25 %).
PRODUCTS: Final = ((LO, HI), (MID, HI), (MID, MID), (HI, MID), (HI, LO), (HI, HI))

# Biased exponents. Every part of a float32 from 2^-102 on is a normal bfloat16 (2^-102 * 2^-24 = 2^-126); from 2^127 on
# rounding may reach infinity.
LEAST, MOST = 25, 253
# Sums of two biased exponents. From 2^-96 on, what a product loses by flushed parts (below 2^-126) is far below its
# rounding; up to 2^110, sums of 2^15 products are finite.
LEAST_SUM, MOST_SUM = 2 * 127 - 96, 2 * 127 + 110
# For `unsafe`: from here to there every product and every sum of up to 2^7 products is in these bounds, whatever the
# other operand is, as long as it is in them too.
SAFE_LEAST, SAFE_MOST = 127 - 48, 127 + 54


def _ints(lanes: int, value: int) -> str:
    if lanes == 1:
        return str(value)
    return "<" + ", ".join([f"i32 {value}"] * lanes) + ">"


def _rest(b: Builder, lanes: int, value: str) -> tuple[str, str]:
    """(bits, rest): `value` rounded to bfloat16, as the bits of a float32 whose low half is rubbish, and what is left.

    By integer operations: half as many as the processor's own conversion and back. A tie goes away from zero; what is
    left then is as exact, it only has the other sign.
    """
    floats, ints = vector("float", lanes), vector("i32", lanes)
    bits = b.op(f"add {ints} {b.op(f'bitcast {floats} {value} to {ints}')}, {_ints(lanes, 0x8000)}")
    rounded = b.op(f"and {ints} {bits}, {_ints(lanes, -0x10000)}")
    return bits, b.op(f"fsub {floats} {value}, {b.op(f'bitcast {ints} {rounded} to {floats}')}")


def words(b: Builder, lanes: int, value: str) -> tuple[str, str, str]:
    """(hi, mid, lo) in the upper halves of i32 lanes; the lower ones are rubbish."""
    floats, ints = vector("float", lanes), vector("i32", lanes)
    hi, rest = _rest(b, lanes, value)
    mid, rest = _rest(b, lanes, rest)
    return hi, mid, b.op(f"bitcast {floats} {rest} to {ints}")  # at most 8 bits are left: lo is exact


def split(b: Builder, lanes: int, value: str) -> tuple[str, str, str]:
    """(hi, mid, lo), <lanes x i16> each: the bits of the bfloat16 parts of <lanes x float> `value`."""
    ints, halves = vector("i32", lanes), vector("i16", lanes)

    def upper(word: str) -> str:
        return b.op(f"trunc {ints} {b.op(f'lshr {ints} {word}, {_ints(lanes, 16)}')} to {halves}")

    hi, mid, lo = (upper(word) for word in words(b, lanes, value))
    return hi, mid, lo


def split_in_order(b: Builder, lanes: int, first: str, second: str) -> tuple[str, str, str]:
    """(hi, mid, lo), <2 * lanes x i16> each: the parts of `first`, then those of `second`."""
    ints, halves = vector("i32", lanes), vector("i16", 2 * lanes)
    upper = ", ".join(f"i32 {2 * lane + 1}" for lane in range(2 * lanes))

    def both(low: str, high: str) -> str:
        x, y = (b.op(f"bitcast {ints} {word} to {halves}") for word in (low, high))
        return b.op(f"shufflevector {halves} {x}, {halves} {y}, <{2 * lanes} x i32> <{upper}>")

    hi, mid, lo = (both(*pair) for pair in zip(words(b, lanes, first), words(b, lanes, second), strict=True))
    return hi, mid, lo


def split_pairs(b: Builder, lanes: int, first: str, second: str) -> tuple[str, str, str]:
    """(hi, mid, lo), <lanes x i32> each: in every lane the part of `first` (low half) and of `second` (high half), as
    the matrix unit wants neighbours in k."""
    return pairs_of_words(b, lanes, words(b, lanes, first), words(b, lanes, second))


def pairs_of_words(b: Builder, lanes: int, first: tuple[str, str, str], second: tuple[str, str, str]) -> tuple[str, str, str]:
    """The same of what `words` made of two vectors."""
    ints = vector("i32", lanes)

    def both(low: str, high: str) -> str:
        shifted = b.op(f"lshr {ints} {low}, {_ints(lanes, 16)}")
        return b.op(f"or {ints} {shifted}, {b.op(f'and {ints} {high}, {_ints(lanes, -0x10000)}')}")

    hi, mid, lo = (both(low, high) for low, high in zip(first, second, strict=True))
    return hi, mid, lo


def rounded_pairs(b: Builder, first: str, second: str) -> str:
    """<16 x i32>: in every lane `first` and `second`, <16 x float>, rounded to bfloat16, to nearest even (AVX512-BF16)."""
    both = b.call("<32 x bfloat>", "llvm.x86.avx512bf16.cvtne2ps2bf16.512", [("<16 x float>", second), ("<16 x float>", first)])
    order = ", ".join(f"i32 {i // 2 + 16 * (i % 2)}" for i in range(32))
    turned = b.op(f"shufflevector <32 x bfloat> {both}, <32 x bfloat> poison, <32 x i32> <{order}>")
    return b.op(f"bitcast <32 x bfloat> {turned} to <16 x i32>")


def unsafe(b: Builder, lanes: int, value: str) -> str:
    """Mask <lanes x i1>: which lanes are neither zero nor finite with 2^-48 <= |x| < 2^55."""
    ints = vector("i32", lanes)
    bits = b.op(f"bitcast {vector('float', lanes)} {value} to {ints}")
    size = b.op(f"and {ints} {bits}, {_ints(lanes, 0x7FFFFFFF)}")
    from_least = b.op(f"sub {ints} {size}, {_ints(lanes, SAFE_LEAST << 23)}")
    outside = b.op(f"icmp uge {ints} {from_least}, {_ints(lanes, (SAFE_MOST + 1 - SAFE_LEAST) << 23)}")
    nonzero = b.op(f"icmp ne {ints} {size}, {_ints(lanes, 0)}")
    return b.op(f"and {vector('i1', lanes)} {outside}, {nonzero}")


@dataclass(frozen=True, slots=True)
class Extent:
    """The least magnitude but zero and the greatest one of what passes by: two <lanes x i32>, to be carried in loops.

    `least` holds twice the bits minus one, so that zero is greatest; `most` twice the bits (no sign). Two blocks of
    elements can be multiplied by parts if `are_safe` says so: elements may be small or large as long as their products
    are not, which a fixed bound for each could not tell.
    """

    lanes: int

    @property
    def type(self) -> str:
        return vector("i32", self.lanes)

    def start(self) -> list[tuple[str, str]]:
        """What to carry, nothing seen: `carry` of Builder.loop."""
        return [(self.type, _ints(self.lanes, -1)), (self.type, _ints(self.lanes, 0))]

    def include(self, b: Builder, value: str, least: str, most: str) -> list[str]:
        """The next (least, most), after <lanes x float> `value`."""
        ints = self.type
        bits = b.op(f"bitcast {vector('float', self.lanes)} {value} to {ints}")
        size = b.op(f"shl {ints} {bits}, {_ints(self.lanes, 1)}")
        below = b.op(f"add {ints} {size}, {_ints(self.lanes, -1)}")
        return [self._extreme(b, "umin", least, below), self._extreme(b, "umax", most, size)]

    def _extreme(self, b: Builder, which: str, x: str, y: str) -> str:
        suffix = "i32" if self.lanes == 1 else f"v{self.lanes}i32"
        return b.call(self.type, f"llvm.{which}.{suffix}", [(self.type, x), (self.type, y)])

    def reduce(self, b: Builder, least: str, most: str) -> tuple[str, str]:
        """Two i32: all lanes' (low, high), biased exponents; low is far below any if an element cannot be split."""
        if self.lanes > 1:
            least = b.call("i32", f"llvm.vector.reduce.umin.v{self.lanes}i32", [(self.type, least)])
            most = b.call("i32", f"llvm.vector.reduce.umax.v{self.lanes}i32", [(self.type, most)])
        low, high = b.op(f"lshr i32 {least}, 24"), b.op(f"lshr i32 {most}, 24")
        tiny, huge = b.op(f"icmp ult i32 {low}, {LEAST}"), b.op(f"icmp ugt i32 {high}, {MOST}")
        return b.op(f"select i1 {b.op(f'or i1 {tiny}, {huge}')}, i32 -1000, i32 {low}"), high


def are_safe(b: Builder, left: tuple[str, str], right: tuple[str, str]) -> str:
    """i1: whether two blocks, whose (low, high) are given, can be multiplied by parts."""
    low = b.op(f"icmp sge i32 {b.op(f'add i32 {left[0]}, {right[0]}')}, {LEAST_SUM}")
    high = b.op(f"icmp sle i32 {b.op(f'add i32 {left[1]}, {right[1]}')}, {MOST_SUM}")
    return b.op(f"and i1 {low}, {high}")
