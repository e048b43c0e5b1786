"""Convolutions by the matrix unit: which blocks of an operand are multiplied by float16 halves (float_halves.py).

A first visit notes in NOTES bytes of memory, each in 16 lanes of 32 bits: least, most (bfloat_parts.Extent), how many elements reach
the threshold, and which bits are ever set. Then follow the threshold, the scale and the least exponent that counts.

As for matrices but for one thing: a block of a convolution has so many elements that one of them often happens to be smaller than
2^-RANGE of the greatest. One in FAR_SHARE may be, down to 2^-FAR: each of its products still has eleven bits, and its sums have
larger terms unless all around it is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from flambeau.compiler.emit.builder import Builder, Parameters
from flambeau.compiler.kernel import Function
from flambeau.compiler.kernels.bfloat_parts import Extent
from flambeau.compiler.kernels.convolution_patches import bit_mask
from flambeau.compiler.kernels.description import native
from flambeau.compiler.kernels.float_halves import RANGE, kind, power, scale_exponent

NOTES: Final = 320
FAR: Final = 40  # lo is a normal float16 down to there, and what hi has lost is in it
FAR_SHARE: Final = 4096
_WIDTH: Final = 16
_THRESHOLD, _SCALE, _LOW = 256, 260, 264  # bytes
_LOST_BITS: Final = (1 << 13) - 1  # of a float32's mantissa, in float16: lo is zero where none of them is set
_EXTENT = Extent(_WIDTH)
TYPE: Final = _EXTENT.type
LOOK: Final = Parameters("source* outer outer_stride inner inner_stride length ahead notes*")


def start() -> list[tuple[str, str]]:
    """What to carry along, nothing seen."""
    return [*_EXTENT.start(), (TYPE, "zeroinitializer"), (TYPE, "zeroinitializer")]


def clear_notes(b: Builder, notes: str) -> None:
    """Nothing seen; what is counted is what is not zero."""
    put_notes(b, notes, [value for _, value in start()])
    b.store("i32", "1", b.gep("i8", notes, _THRESHOLD), 4)


def read_notes(b: Builder, notes: str) -> list[str]:
    """What is carried along while elements are met."""
    return [b.load(TYPE, b.gep("i8", notes, 64 * at), 64) for at in range(4)]


def put_notes(b: Builder, notes: str, seen: Sequence[str]) -> None:
    for at, value in enumerate(seen):
        b.store(TYPE, value, b.gep("i8", notes, 64 * at), 64)


def threshold(b: Builder, notes: str) -> str:
    """<16 x i32>, for `look`."""
    return b.splat("i32", _WIDTH, b.load("i32", b.gep("i8", notes, _THRESHOLD), 4))


def look(b: Builder, value: str, seen: Sequence[str], least: str) -> list[str]:
    """`seen` after <16 x float> `value`."""
    bits = b.op(f"bitcast <{_WIDTH} x float> {value} to {TYPE}")
    size = b.op(f"shl {TYPE} {bits}, {b.splat('i32', _WIDTH, '1')}")
    reaches = b.op(f"zext <{_WIDTH} x i1> {b.op(f'icmp uge {TYPE} {size}, {least}')} to {TYPE}")
    return [
        *_EXTENT.include(b, value, seen[0], seen[1]), b.op(f"add {TYPE} {seen[2]}, {reaches}"), b.op(f"or {TYPE} {seen[3]}, {bits}"),
    ]  # fmt: skip


def set_threshold(b: Builder, notes: str, size: str) -> None:
    """Count what reaches i32 `size`, twice a float's bits without its sign; nothing is counted yet."""
    b.store("i32", size, b.gep("i8", notes, _THRESHOLD), 4)
    b.store(TYPE, "zeroinitializer", b.gep("i8", notes, 128), 64)


def look_function() -> Function:
    """`look(source, outer, outer_stride, inner, inner_stride, length, ahead, notes)`: at outer x inner runs of `length` floats. What lies
    `ahead` of them is fetched."""
    key = "convolution:look"
    return native(key, _look)


def _look(name: str, b: Builder) -> str:
    floats = f"<{_WIDTH} x float>"
    least = threshold(b, "%notes")
    whole = b.op(f"and i64 %length, {-_WIDTH}")
    mask = bit_mask(b, _WIDTH, 0, b.sub("%length", whole))

    def carry(values: Sequence[str]) -> list[tuple[str, str]]:
        return [(TYPE, value) for value in values]

    with b.fold(0, "%outer", 1, carry(read_notes(b, "%notes"))) as (o, seen):
        from_line = b.gep("float", "%source", b.mul(o, "%outer_stride"))
        with b.fold(0, "%inner", 1, carry(seen)) as (i, of_line):
            source = b.gep("float", from_line, b.mul(i, "%inner_stride"))
            with b.fold(0, whole, _WIDTH, carry(of_line)) as (q, now):
                here = b.gep("float", source, q)
                b.prefetch(b.gep("float", here, "%ahead"))
                now[:] = look(b, b.load(floats, here, 4), now, least)
            with b.fold(whole, "%length", _WIDTH, carry(now)) as (q, last):
                last[:] = look(b, b.masked_load("float", _WIDTH, b.gep("float", source, q), mask, 4), last, least)
            of_line[:] = last
        seen[:] = of_line
    put_notes(b, "%notes", seen)
    return b.define(name, LOOK, "")


def reduce_notes(b: Builder, seen: Sequence[str]) -> list[str]:
    """Four i32 of all lanes: low, high (bfloat_parts.Extent.reduce), the count, the bits."""
    low, high = _EXTENT.reduce(b, seen[0], seen[1])
    whole = [b.call("i32", f"llvm.vector.reduce.{which}.v{_WIDTH}i32", [(TYPE, value)]) for which, value in zip(("add", "or"), seen[2:], strict=True)]
    return [low, high, *whole]


def judge(b: Builder, notes: str, elements: str, again: Callable[[], None]) -> tuple[str, str]:
    """(exponent of scale, kind), i32 each, of a block of i64 `elements`; `again` visits them once more. Sets the scale."""
    low, high, nonzero, bits = reduce_notes(b, read_notes(b, notes))
    beyond, limit = far_limit(b, low, high)
    least = b.gep("i8", notes, _LOW)
    b.store("i32", low, least, 4)
    with b.if_(beyond):
        set_threshold(b, notes, b.op(f"shl i32 {limit}, 24"))
        again()
        below = b.op(f"sub i32 {nonzero}, {reduce_notes(b, read_notes(b, notes))[2]}")
        b.store("i32", without_few(b, low, limit, nonzero, below), least, 4)
    counted = b.op(f"trunc i64 {elements} to i32")
    exponent, found = verdict(b, low, b.load("i32", least, 4), high, nonzero, bits, counted)
    b.store("float", power(b, exponent), b.gep("i8", notes, _SCALE), 4)
    return exponent, found


def verdict(b: Builder, low: str, least: str, high: str, nonzero: str, bits: str, elements: str) -> tuple[str, str]:
    """(exponent of scale, kind) of i32: the extent (low, high), `low` but for a few elements (`least`), counts, and bits ever set."""
    short = b.op(f"icmp eq i32 {b.op(f'and i32 {bits}, {_LOST_BITS}')}, 0")
    found = kind(b, least, high, nonzero, elements, short)
    denormal = b.op(f"icmp slt i32 {low}, 0")  # there is one, or an infinity: not even a block of these alone is empty
    return scale_exponent(b, high), b.op(f"select i1 {denormal}, i32 0, i32 {found}")


def far_limit(b: Builder, low: str, high: str) -> tuple[str, str]:
    """(i1, i32): whether a few elements may be farther from the greatest than RANGE, and the exponent where that begins."""
    reach = b.op(f"sub i32 {high}, {low}")
    beyond = b.op(f"and i1 {b.op(f'icmp sgt i32 {reach}, {RANGE}')}, {b.op(f'icmp sle i32 {reach}, {FAR}')}")
    return beyond, b.op(f"sub i32 {high}, {RANGE}")


def without_few(b: Builder, low: str, limit: str, nonzero: str, below: str) -> str:
    """i32: `limit` where few elements lie below it, else `low`."""
    few = b.op(f"icmp ule i32 {below}, {b.op(f'udiv i32 {nonzero}, {FAR_SHARE}')}")
    return b.op(f"select i1 {few}, i32 {limit}, i32 {low}")


def scale_of(b: Builder, notes: str) -> str:
    """<16 x float>: the scale that `judge` has set."""
    return b.splat("float", _WIDTH, b.load("float", b.gep("i8", notes, _SCALE), 4))


__all__ = [
    "FAR", "FAR_SHARE", "NOTES", "clear_notes", "far_limit", "judge", "look", "look_function", "put_notes", "read_notes", "reduce_notes",
    "scale_of", "set_threshold", "threshold", "verdict", "without_few",
]  # fmt: skip
