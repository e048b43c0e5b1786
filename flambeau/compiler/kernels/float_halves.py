"""A float32 as the sum of two float16, and when three of their products give a float32 product.

Elements are multiplied by a power of two, so that the greatest of a block has the exponent TOP. Then x = hi + lo / 2^12: hi
is x rounded to a float16, lo the rounded rest, times 2^12 to have hi's exponents. Of the products

    a.hi * b.hi + (a.hi * b.lo + a.lo * b.hi) / 2^12

three are made, with sums of their own for the small ones. hi and lo hold 22 bits and a sign, one bit less than a float32
has: x is off by 2^-23 at most, in a quarter of all cases, and a.lo * b.lo is below 2^-22 of the product. In a sum of many
terms that is less than what float32 additions lose (Ootomo and Yokota 2022, "Recovering single precision accuracy from
Tensor Cores while surpassing the FP32 theoretical peak performance", whose scheme this is). It is not where few terms make a
sum. So blocks are told apart:

- *short*: every lo is zero (whole numbers below 2^11, one-hot rows, masks). Products of short blocks are exact. One of a
  short and a general block would be exact in float32, and is not made by halves.
- *general*: at least an eighth of the elements are not zero.
- all zero: goes with both.

A block is neither where an element that is not zero is smaller than 2^-RANGE of the greatest: its parts would not be normal.
What is not made by halves is made by bfloat16 parts (bfloat_parts.py), which are exact.
"""

from __future__ import annotations

from typing import Final

from flambeau.compiler.emit.builder import Builder, vector

TOP: Final = 14  # exponent of the greatest element: its lo, and sums of products, are finite
RANGE: Final = 28  # down to a normal hi, 2^-14
LOW_BITS: Final = 12  # lo is the rest times 2^12
# Exponent that the greatest element of a sample gets: the block's may be eight times as large. (Of normal numbers, the greatest
# of 12,000 is on average 1.4 times as large as that of 256.)
SAMPLE_TOP: Final = TOP - 3
GENERAL, SHORT = 1, 2
LEAST_SHARE: Final = 8  # one of so many elements of a general block is not zero at least
# Sums of two blocks' exponents of scale: the power of two that takes both back is a normal float32, and so are most products.
MOST_SCALE: Final = 100


def split_halves(b: Builder, lanes: int, value: str, scale: str) -> tuple[str, str]:
    """(hi, lo), <lanes x half> each, of <lanes x float> `value` times `scale`, a power of two in all lanes."""
    floats, halves = vector("float", lanes), vector("half", lanes)
    scaled = b.op(f"fmul {floats} {value}, {scale}")
    hi = b.op(f"fptrunc {floats} {scaled} to {halves}")
    rest = b.op(f"fsub {floats} {scaled}, {b.op(f'fpext {halves} {hi} to {floats}')}")
    raised = b.op(f"fmul {floats} {rest}, {b.splat('float', lanes, str(float(1 << LOW_BITS)))}")
    return hi, b.op(f"fptrunc {floats} {raised} to {halves}")


def halves_in_order(b: Builder, lanes: int, first: str, second: str, scale: str) -> tuple[str, str]:
    """(hi, lo), <2 * lanes x half> each: the halves of `first`, then those of `second`."""
    return _joined(b, lanes, first, second, scale, list(range(2 * lanes)))


def halves_pairs(b: Builder, lanes: int, first: str, second: str, scale: str) -> tuple[str, str]:
    """(hi, lo), <2 * lanes x half> each: in every two places the half of `first` and of `second`, as the matrix unit wants
    neighbours in k."""
    return _joined(b, lanes, first, second, scale, [i // 2 + i % 2 * lanes for i in range(2 * lanes)])


def _joined(b: Builder, lanes: int, first: str, second: str, scale: str, order: list[int]) -> tuple[str, str]:
    halves, lanes_of = vector("half", lanes), ", ".join(f"i32 {i}" for i in order)
    pair = [split_halves(b, lanes, value, scale) for value in (first, second)]
    hi, lo = (b.op(f"shufflevector {halves} {pair[0][i]}, {halves} {pair[1][i]}, <{2 * lanes} x i32> <{lanes_of}>") for i in range(2))
    return hi, lo


def scale_exponent(b: Builder, high: str) -> str:
    """i32: the exponent of a block's scale; `high` as bfloat_parts.Extent.reduce gives it. 0 where all is zero."""
    empty = b.op(f"icmp eq i32 {high}, 0")
    return b.op(f"select i1 {empty}, i32 0, i32 {b.op(f'sub i32 {127 + TOP}, {high}')}")


def guessed_exponent(b: Builder, high: str) -> str:
    """i32: the exponent of a scale that is likely to do for a block of which a sample is known; `high` as above."""
    empty = b.op(f"icmp eq i32 {high}, 0")
    exponent = b.call("i32", "llvm.smin.i32", [("i32", b.op(f"sub i32 {127 + SAMPLE_TOP}, {high}")), ("i32", str(MOST_SCALE))])
    return b.op(f"select i1 {empty}, i32 0, i32 {exponent}")


def fits(b: Builder, low: str, high: str, exponent: str) -> str:
    """i1: whether a block can be split with a scale of this exponent: all of its elements but zeros have normal halves."""
    finite = b.op(f"icmp sle i32 {b.op(f'add i32 {high}, {exponent}')}, {127 + TOP}")
    normal = b.op(f"icmp sge i32 {b.op(f'add i32 {low}, {exponent}')}, {127 + TOP - RANGE}")
    empty = b.op(f"icmp eq i32 {high}, 0")
    return b.op(f"or i1 {empty}, {b.op(f'and i1 {finite}, {normal}')}")


def inside(b: Builder, low: str, high: str) -> str:
    """i1: whether a block that is not all zero fits with the scale that `scale_exponent` gives."""
    near = b.op(f"icmp sle i32 {b.op(f'sub i32 {high}, {low}')}, {RANGE}")
    return b.op(f"and i1 {b.op(f'icmp sgt i32 {low}, 0')}, {near}")


def power(b: Builder, exponent: str) -> str:
    """float: 2 to the i32 `exponent`, -126 to 127."""
    bits = b.op(f"shl i32 {b.op(f'add i32 {exponent}, 127')}, 23")
    return b.op(f"bitcast i32 {bits} to float")


def kind(b: Builder, low: str, high: str, nonzero: str, elements: str, short: str) -> str:
    """i32: GENERAL or SHORT, both where all is zero, 0 for a block that halves do not do for. `nonzero` and `elements`: i32
    counts; `short`: i1."""
    dense = b.op(f"icmp sge i32 {b.op(f'mul i32 {nonzero}, {LEAST_SHARE}')}, {elements}")
    general = b.op(f"select i1 {dense}, i32 {GENERAL}, i32 0")
    found = b.op(f"select i1 {short}, i32 {SHORT}, i32 {general}")
    empty = b.op(f"icmp eq i32 {high}, 0")
    return b.op(f"select i1 {empty}, i32 {GENERAL | SHORT}, i32 {b.op(f'select i1 {inside(b, low, high)}, i32 {found}, i32 0')}")


def together(b: Builder, left: tuple[str, str], right: tuple[str, str]) -> tuple[str, str]:
    """(i1, float): whether two blocks, whose (exponent of scale, kind) are given, can be multiplied by halves, and the power
    of two that takes their scales off the product."""
    same = b.op(f"icmp ne i32 {b.op(f'and i32 {left[1]}, {right[1]}')}, 0")
    both = b.op(f"add i32 {left[0]}, {right[0]}")
    high = b.op(f"icmp sle i32 {both}, {MOST_SCALE}")
    low = b.op(f"icmp sge i32 {both}, {-MOST_SCALE}")
    inside = b.op(f"and i1 {high}, {low}")
    limited = b.op(f"select i1 {inside}, i32 {both}, i32 0")
    return b.op(f"and i1 {same}, {inside}"), power(b, b.op(f"sub i32 0, {limited}"))


__all__ = [
    "GENERAL", "LEAST_SHARE", "LOW_BITS", "MOST_SCALE", "RANGE", "SHORT", "TOP", "fits", "guessed_exponent", "halves_in_order", "halves_pairs",
    "inside", "kind", "power", "scale_exponent", "split_halves", "together",
]  # fmt: skip
