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
from flambeau.compiler.kernels.bfloat_parts import PARTS, Extent, pairs_of_words, rounded_pairs, words
from flambeau.compiler.kernels.matmul_pack import transpose
from flambeau.compiler.kernels.matmul_parts_pack import PART_BYTES

BLOCK = 32  # rows and columns
WIDTH = 16  # lanes of a vector, lines of a tile
TILE_BYTES = 1024
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

    def chunk(c: str, *seen: str) -> list[str]:
        corner = b.gep("float", "%source", c)
        target = b.gep("i8", "%target", b.mul(b.op(f"udiv i64 {c}, {BLOCK}"), "%stride"))
        extent = list(seen)

        def load(row: int, column: int) -> str:
            value = b.load(_FLOATS, b.gep("float", b.gep("float", corner, b.mul("%pitch", row)), column), 4)
            if noted:
                extent[:] = EXTENT.include(b, value, *extent)
            return value

        for tile in range(2):
            # The two 16 x 16 quarters (turned, if so) whose lines are paired.
            corners = [(tile, half) if operand == "left" else (half, tile) for half in range(2)]
            if turned and parts == 1:  # pairs first: one block to transpose instead of two
                pairs = [rounded_pairs(b, *(load(x * WIDTH + i, y * WIDTH) for y, x in corners)) for i in range(WIDTH)]
                for i, line in enumerate(transpose(b, "i32", WIDTH, pairs)):
                    b.store(_INTS, line, b.gep("i8", target, tile * TILE_BYTES + 64 * i), 64)
                continue
            if turned:
                quarters = [transpose(b, "float", WIDTH, [load(x * WIDTH + i, y * WIDTH) for i in range(WIDTH)]) for y, x in corners]
                lines = list(zip(*quarters, strict=True))
            for i in range(WIDTH):
                first, second = lines[i] if turned else [load(y * WIDTH + i, x * WIDTH) for y, x in corners]
                at = b.gep("i8", target, tile * TILE_BYTES + 64 * i)
                numbers.line(numbers.split(first), numbers.split(second), at)
        return extent

    halves = [b.gep("i8", "%extent", 64 * i) for i in range(2)] if noted else []
    carried = [(_INTS, b.load(_INTS, half, 64)) for half in halves]
    for half, value in zip(halves, b.loop(0, "%columns", BLOCK, chunk, carried), strict=True):
        b.store(_INTS, value, half, 64)
    return b.function(
        f"define internal void @{name}(ptr noalias %source, i64 %pitch, i64 %columns, ptr noalias %target, i64 %stride, "
        "ptr noalias %extent) noinline #0"
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

    def row(i: str) -> None:
        source, target = b.gep("float", "%sums", b.mul(i, BLOCK)), b.gep("float", "%target", b.mul(i, "%pitch"))
        for v in range(BLOCK // WIDTH):
            at = b.gep("float", target, v * WIDTH)
            value = b.load(_FLOATS, b.gep("float", source, v * WIDTH), 64)
            b.store(_FLOATS, b.op(f"fadd {_FLOATS} {b.load(_FLOATS, at, 64)}, {value}"), at, 64)

    b.loop(0, BLOCK, 1, row)
    return b.function("define internal void @add_sums(ptr noalias %sums, ptr noalias %target, i64 %pitch) noinline #0")

