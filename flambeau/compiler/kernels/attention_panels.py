"""Attention by the matrix unit: blocks of 32 x 32 numbers as tiles of bfloat16 parts, their extents, sums of products.

A block is 32 rows of a float32 matrix in scratch and 32 of its columns. As an operand of the matrix unit it takes a step:
`parts` (three for float32, one for bfloat16, see bfloat_parts.py) times two tiles of 16 lines of 64 bytes, a line being 16
pairs of neighbours in k, which lie 16 apart in the block (matmul_parts_pack.py). There are four ways to pack it:

    operand  turned   lanes     k           a line
    left     no       rows      columns     a row
    left     yes      columns   rows        a column
    right    no       columns   rows        two rows, 16 apart
    right    yes      rows      columns     two columns, 16 apart

A left operand's tiles are its upper and its lower 16 lanes, and so are a right operand's.
"""

from __future__ import annotations

from flambeau.compiler.emit.builder import Builder
from flambeau.compiler.emit.transpose import transpose_vectors
from flambeau.compiler.kernels.bfloat_parts import PARTS, Extent, pairs_of_words, rounded_pairs, words
from flambeau.compiler.kernels.matmul_parts_pack import PART_BYTES

BLOCK = 32  # rows and columns
WIDTH = 16  # lanes of a vector, lines of a tile
TILE_BYTES = 1024
_LINES = 4  # of a tile side by side
EXTENT = Extent(WIDTH)
_FLOATS, _INTS = f"<{WIDTH} x float>", f"<{WIDTH} x i32>"


class Numbers:
    """How numbers become operands: their parts, once, and lines of pairs of them."""

    def __init__(self, b: Builder, parts: int) -> None:
        self.b, self.parts = b, parts

    def split(self, value: str) -> tuple[str, ...]:
        """What `line` wants of <16 x float> `value`."""
        return words(self.b, WIDTH, value) if self.parts == PARTS else (value,)

    def line(self, first: tuple[str, ...], second: tuple[str, ...], target: str) -> None:
        """Store a line of pairs at `target`, in all parts."""
        b = self.b
        if len(first) == 3 and len(second) == 3:
            every: tuple[str, ...] = pairs_of_words(b, WIDTH, first, second)
        else:
            every = (rounded_pairs(b, first[0], second[0]),)
        for part, value in enumerate(every):
            b.store(_INTS, value, b.gep("i8", target, part * PART_BYTES), 64)


def pack_blocks(b: Builder, parts: int, operand: str, turned: bool, noted: bool, name: str) -> str:
    """Text of `name(source, pitch, columns, target, stride, extent)`: 32 rows of `columns` (a multiple of 32) numbers, a
    step for each 32 columns, `stride` bytes apart. The extent's slot takes in all of them, if they are `noted`."""
    numbers = Numbers(b, parts)
    halves = [b.gep("i8", "%extent", 64 * i) for i in range(2)] if noted else []
    carried = [(_INTS, b.load(_INTS, half, 64)) for half in halves]
    # From a tile to the next one, and between the two 16 x 16 quarters of it (turned, if so) whose lines are paired.
    down, across = b.mul("%pitch", WIDTH), str(WIDTH)
    by_rows = (operand == "left") != turned
    next_tile, next_half = (down, across) if by_rows else (across, down)

    def chunk(c: str, *seen: str) -> list[str]:
        corner = b.gep("float", "%source", c)
        target = b.gep("i8", "%target", b.mul(b.op(f"udiv i64 {c}, {BLOCK}"), "%stride"))

        def each(t: str, *now: str) -> list[str]:
            return tile(b.gep("float", corner, b.mul(t, next_tile)), b.gep("i8", target, b.mul(t, TILE_BYTES)), *now)

        return b.loop(0, 2, 1, each, list(zip([type_ for type_, _ in carried], seen, strict=True)))

    def tile(corner: str, target: str, *seen: str) -> list[str]:
        quarters = [corner, b.gep("float", corner, next_half)]
        extent = list(seen)

        def load(half: int, row: str | int) -> str:
            value = b.load(_FLOATS, b.gep("float", quarters[half], b.mul("%pitch", row)), 4)
            if noted:
                extent[:] = EXTENT.include(b, value, *extent)
            return value

        if turned and parts == 1:  # pairs first: one block to transpose instead of two
            pairs = [rounded_pairs(b, load(0, i), load(1, i)) for i in range(WIDTH)]
            for i, line in enumerate(transpose_vectors(b, "i32", pairs, small_first=True)):
                b.store(_INTS, line, b.gep("i8", target, 64 * i), 64)
        elif turned:
            turned_quarters = [transpose_vectors(b, "float", [load(half, i) for i in range(WIDTH)], small_first=True) for half in range(2)]
            for i, (first, second) in enumerate(zip(*turned_quarters, strict=True)):
                numbers.line(numbers.split(first), numbers.split(second), b.gep("i8", target, 64 * i))
        else:

            def lines(first: str, *now: str) -> list[str]:
                extent[:] = now
                for i in range(_LINES):
                    row = b.add(first, i)
                    pair = [numbers.split(load(half, row)) for half in range(2)]
                    numbers.line(pair[0], pair[1], b.gep("i8", target, b.mul(row, 64)))
                return extent

            return b.loop(0, WIDTH, _LINES, lines, list(zip([type_ for type_, _ in carried], extent, strict=True)))
        return extent

    for half, value in zip(halves, b.loop(0, "%columns", BLOCK, chunk, carried), strict=True):
        b.store(_INTS, value, half, 64)
    return b.function(
        f"define internal void @{name}(ptr noalias %source, i64 %pitch, i64 %columns, ptr noalias %target, i64 %stride, ptr noalias %extent) noinline #0"
    )


def define_packing(b: Builder, parts: int, name: str) -> str:
    """Text of the packing function "left", "left_turned", "right" or "right_turned"; with "_noted" it notes extents."""
    operand, *others = name.split("_")
    return pack_blocks(b, parts, operand, "turned" in others, "noted" in others and parts == PARTS, name)


def open_extent(b: Builder) -> str:
    """Text of `open_extent(slot)`: nothing seen."""
    for i, (type_, value) in enumerate(EXTENT.start()):
        b.store(type_, value, b.gep("i8", "%slot", 64 * i), 64)
    return b.function("define internal void @open_extent(ptr %slot) #0")


def close_extent(b: Builder) -> str:
    """Text of `close_extent(slot)`: low and high, i32 each, to the slot's start."""
    seen = [b.load(_INTS, b.gep("i8", "%slot", 64 * i), 64) for i in range(2)]
    for at, value in enumerate(EXTENT.reduce(b, *seen)):
        b.store("i32", value, b.gep("i32", "%slot", at), 4)
    return b.function("define internal void @close_extent(ptr %slot) #0")


def add_sums(b: Builder) -> str:
    """Text of `add_sums(sums, target, pitch)`: 32 rows of 32 float32 are added to rows `pitch` numbers apart."""
    with b.for_(0, BLOCK) as i:
        source, target = b.gep("float", "%sums", b.mul(i, BLOCK)), b.gep("float", "%target", b.mul(i, "%pitch"))
        for v in range(BLOCK // WIDTH):
            at = b.gep("float", target, v * WIDTH)
            value = b.load(_FLOATS, b.gep("float", source, v * WIDTH), 64)
            b.store(_FLOATS, b.op(f"fadd {_FLOATS} {b.load(_FLOATS, at, 64)}, {value}"), at, 64)
    return b.function("define internal void @add_sums(ptr noalias %sums, ptr noalias %target, i64 %pitch) noinline #0")
