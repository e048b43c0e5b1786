"""Attention by the matrix unit: what both directions share.

A step of the kernels is a block of 32 queries with a block of up to KEYS keys. Its products are made of 32 x 32 blocks of
bfloat16 parts (attention_unit.py), three for float32, whose sums the unit keeps in float32, and one for bfloat16. What
is between them (scores, weights, slopes) is the same as in the kernels of multiply-adds, which also do the steps whose
numbers the unit would not multiply exactly enough (bfloat_parts.py). The extents that decide are those of whole blocks
of keys and of queries, so the choice depends on values and sizes, never on threads.

Weights are at most 1, and what those below 2^-100 lose, as the unit flushes numbers below 2^-126, is as far below the
rounding of their sum: only the other factor counts. Slopes are weights times gradients times values: there the largest
numbers tell.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from flambeau.compiler.emit.builder import Builder, Parameters
from flambeau.compiler.emit.code import Array, Operand
from flambeau.compiler.emit.lanes import Lanes
from flambeau.compiler.emit.transpose import transpose_vectors
from flambeau.compiler.kernels.attention_body import Body
from flambeau.compiler.kernels.bfloat_parts import PARTS, Extent, are_safe, pairs_of_words, rounded_pairs, words
from flambeau.compiler.kernels.matmul_parts_pack import PART_BYTES, SLOT
from flambeau.compiler.kernels.matmul_tiles import configuration
from flambeau.compiler.kernels.matrix_unit import TILES_OF_PANELS

# -- Blocks of 32 x 32 numbers as tiles of bfloat16 parts, their extents, sums of products ---------------------------
# A block is 32 rows of a float32 matrix in scratch and 32 of its columns. As an operand of the matrix unit it takes a step:
# `parts` (three for float32, one for bfloat16, see bfloat_parts.py) times two tiles of 16 lines of 64 bytes, a line being 16
# pairs of neighbours in k, which lie 16 apart in the block (matmul_parts_pack.py). There are four ways to pack it:
#
#     operand  turned   lanes     k           a line
#     left     no       rows      columns     a row
#     left     yes      columns   rows        a column
#     right    no       columns   rows        two rows, 16 apart
#     right    yes      rows      columns     two columns, 16 apart
#
# A left operand's tiles are its upper and its lower 16 lanes, and so are a right operand's.


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
        with b.fold(0, 2, 1, list(zip([type_ for type_, _ in carried], seen, strict=True))) as (t, now):
            now[:] = tile(b.gep("float", corner, b.mul(t, next_tile)), b.gep("i8", target, b.mul(t, TILE_BYTES)), *now)
        return now

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
            with b.fold(0, WIDTH, _LINES, list(zip([type_ for type_, _ in carried], extent, strict=True))) as (first, now):
                extent[:] = now
                for i in range(_LINES):
                    row = b.add(first, i)
                    pair = [numbers.split(load(half, row)) for half in range(2)]
                    numbers.line(pair[0], pair[1], b.gep("i8", target, b.mul(row, 64)))
                now[:] = extent
            return now
        return extent

    for half, value in zip(halves, b.loop(0, "%columns", BLOCK, chunk, carried), strict=True):
        b.store(_INTS, value, half, 64)
    return b.define(name, Parameters("source* pitch columns target* stride extent*"))


def define_packing(b: Builder, parts: int, name: str) -> str:
    """Text of the packing function "left", "left_turned", "right" or "right_turned"; with "_noted" it notes extents."""
    operand, *others = name.split("_")
    return pack_blocks(b, parts, operand, "turned" in others, "noted" in others and parts == PARTS, name)


def open_extent(b: Builder) -> str:
    """Text of `open_extent(slot)`: nothing seen."""
    for i, (type_, value) in enumerate(EXTENT.start()):
        b.store(type_, value, b.gep("i8", "%slot", 64 * i), 64)
    return b.define("open_extent", Parameters("slot:ptr"), attributes="#0")


def close_extent(b: Builder) -> str:
    """Text of `close_extent(slot)`: low and high, i32 each, to the slot's start."""
    seen = [b.load(_INTS, b.gep("i8", "%slot", 64 * i), 64) for i in range(2)]
    for at, value in enumerate(EXTENT.reduce(b, *seen)):
        b.store("i32", value, b.gep("i32", "%slot", at), 4)
    return b.define("close_extent", Parameters("slot:ptr"), attributes="#0")


def add_sums(b: Builder) -> str:
    """Text of `add_sums(sums, target, pitch)`: 32 rows of 32 float32 are added to rows `pitch` numbers apart."""
    with b.for_(0, BLOCK) as i:
        source, target = b.gep("float", "%sums", b.mul(i, BLOCK)), b.gep("float", "%target", b.mul(i, "%pitch"))
        for v in range(BLOCK // WIDTH):
            at = b.gep("float", target, v * WIDTH)
            value = b.load(_FLOATS, b.gep("float", source, v * WIDTH), 64)
            b.store(_FLOATS, b.op(f"fadd {_FLOATS} {b.load(_FLOATS, at, 64)}, {value}"), at, 64)
    return b.define("add_sums", Parameters("sums* target* pitch"))


# -- What both directions share -------------------------------------------------------------------------------------
KEYS: Final = 128  # of a block: its scores are 16 KiB
GROUP: Final = 4  # blocks of queries that share a block of keys while it is in the second-level cache
ROW_BYTES: Final = 4 * BLOCK  # of scores and of sums
# The largest gradient times value times key must be in these bounds (sums of biased exponents) for slopes to be split:
# from 2^-80 on, what is flushed is 2^-46 of the largest; up to 2^90 no sum overflows.
_LEAST_SLOPE: Final = 3 * 127 - 80
_MOST_SLOPE: Final = 3 * 127 + 90
_ONE: Final = ("127", "127")  # low and high of weights


class Unit(Body):
    """Mixed in before Forward or Backward, which set the sizes. Areas of tiles and extents are arrays of bytes."""

    head_size: Lanes
    head_pitch: Lanes
    value_size: Lanes
    value_pitch: Lanes

    def set_up(self, *packings: str) -> None:
        """Words, and the functions of the module; `packings`: see attention_unit.py."""
        c, parts = self.c, self.facts.parts
        self.step_bytes = parts * PART_BYTES
        self.numbers = Numbers(c.b, parts)
        self.group_lanes = c.word("group") * BLOCK
        self.staging = self.area("staging")
        self._fetched = c.cell("i64")
        self._tiles = c.array("tiles", "i8").pointer
        for name in packings:
            self.define(partial(define_packing, parts=parts, name=name))
        self.define(open_extent)
        self.define(close_extent)
        c.helper(configuration(), set())
        c.b.call("void", "llvm.x86.ldtilecfg", [("ptr", "@tile_configuration")])

    def release(self) -> None:
        self.c.b.call("void", "llvm.x86.tilerelease", [])

    def bytes_of(self, name: str) -> Array:
        """A part of this worker's scratch that holds tiles or extents."""
        return self.area(name).at(0, "i8")

    def blocks_of(self, count: Lanes) -> Lanes:
        """Blocks of 32 that cover `count`."""
        return self.c.divide(count + (BLOCK - 1), BLOCK)

    # -- operands -----------------------------------------------------------------------------------------------------
    def pack_block(self, operand: str, arrays: dict[str, Array], first: Lanes, rows: Lanes, *ways: tuple[str, Array, Operand, Array]) -> None:
        """Up to 32 rows of an operand as operands of the unit, a step for each 32 columns, filled up with zeros; `ways`:
        packing, target, its stride and the slot of its extent. Whole rows of float32 are read where they lie."""
        c, facts = self.c, self.facts
        columns, pitch = (self.head_size, self.head_pitch) if operand in "qk" else (self.value_size, self.value_pitch)
        source, stride = self.row(arrays, operand, first), c.word(f"{operand}_row")

        def pack(source: Array, stride: Lanes) -> None:
            for packing, target, step, slot in ways:
                self.call(packing, source, stride, pitch, target, c.i64(step), slot)

        def staged() -> None:
            self.copy(operand, source, rows, columns, self.staging, pitch, c.i64(BLOCK))
            pack(self.staging, pitch)

        if facts.element.converts or facts.units["qkvg".index(operand)] != "k":
            staged()
        else:
            with c.if_(rows.eq(BLOCK) & columns.eq(pitch)):
                pack(source, stride)
            with c.else_():
                staged()

    # -- extents ------------------------------------------------------------------------------------------------------
    def slot(self, name: str, index: Operand) -> Array:
        return self.bytes_of(name).at(self.c.i64(index) * SLOT)

    def _exponents(self, slot: Array) -> tuple[Lanes, Lanes]:
        both = slot.at(0, "i32")
        return both[0], both[1]

    def are_safe(self, left: Array, right: Array | None = None) -> Lanes:
        """Whether the unit may multiply two blocks; no `right`: weights."""
        names = [tuple(x.name for x in self._exponents(slot)) for slot in (left, right) if slot is not None]
        low_high = [(low, high) for low, high in names]
        return Lanes(self.c.b, "i1", 1, are_safe(self.c.b, low_high[0], low_high[1] if right is not None else _ONE))

    def are_slopes_safe(self, gradients: Array, values: Array, others: tuple[Array, Array]) -> Lanes:
        """Whether the unit may multiply slopes and two blocks, all of which may be split themselves."""
        c = self.c

        def largest(slot: Array) -> Lanes:
            high = self._exponents(slot)[1]
            return high.eq(0).select(127, high)  # nothing but zeros

        slope = largest(gradients) + largest(values)
        x, y = (largest(slot) for slot in others)
        return (slope + c.min(x, y)).ge(_LEAST_SLOPE) & (slope + c.max(x, y)).le(_MOST_SLOPE)

    @property
    def is_noted(self) -> bool:
        """Whether extents decide anything: products of bfloat16 are the unit's, whatever they are."""
        return self.facts.parts == PARTS

    # -- what comes next ----------------------------------------------------------------------------------------------
    def look_ahead(self, head: Lanes, rows: dict[str, Lanes]) -> None:
        """Let `fetch_rows` ask for the rows of the next head, `rows` of each operand.

        They lie far apart, so that the processor foresees nothing, and waiting for them took a fifth of the forward pass
        (measured: 8 ns a cache line, 256 keys of 64 float32).
        """
        following = self.addresses(head + 1)
        self._asked = [(name, following[name], count - 1) for name, count in rows.items()]
        self._fetched.set(0)

    def fetch_rows(self) -> None:
        """Ask for the next row of each; to be called while arithmetic keeps the processor busy."""
        c = self.c
        row = self._fetched.get()
        self._fetched.set(row + 1)
        for name, array, last in self._asked:
            line = array.at(c.min(row, last) * c.word(f"{name}_row"))
            nbytes = c.word("head" if name in "qk" else "value") * self.facts.element.memory_bytes

            def fetch(at: Lanes, line: Array = line) -> None:
                c.prefetch(line.after_bytes(at).pointer, level=2)

            with c.for_(0, nbytes, 64) as i:
                fetch(i)

    # -- products -----------------------------------------------------------------------------------------------------
    def products(self, steps: Operand, left: Array, right: Array, sums: Array, tall: Operand, wide: Operand) -> None:
        """sums = left @ right: up to 32 x 32 of `steps` steps, in rows of 32."""
        c = self.c
        c.b.invoke(self._tiles, TILES_OF_PANELS, c.i64(steps).name, left.pointer, right.pointer, sums.pointer, "false", ROW_BYTES, c.i64(tall).name,
                   c.i64(wide).name)  # fmt: skip

    def line(self, first: tuple[str, ...], second: tuple[str, ...], target: Array) -> None:
        """A line of a tile (16 pairs), in all parts."""
        self.numbers.line(first, second, target.pointer)

    def tile_line(self, tile: Operand, line: Operand) -> Lanes:
        """Where a line of the lower (0) or upper (1) tile of a step lies."""
        return (self.c.i64(tile) * WIDTH + line) * (4 * WIDTH)
