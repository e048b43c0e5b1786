"""Matrix products of float32 by bfloat16 parts: packing into panels of tiles (see matmul_parts.py).

A panel is 32 rows of a (columns of b) and all of the block's k. A step, 32 of k, takes 6 KiB of it: for each part (hi,
mid, lo) two tiles of 16 lanes. The steps of a panel follow each other, and so do the panels.

    a's tile: row = lane, 16 pairs of k        b's tile: row = pair of k, 16 lanes

A pair is (k, k + 16): the matrix unit adds the products of a pair, so any pairs will do that a and b agree on; these
need no shuffles. Beyond the end of k both operands hold zeros; lanes beyond the last hold anything, their results are
not stored.

Of each panel the extent is noted (bfloat_parts.Extent): two i32 at the start of its slot of 128 bytes, and then an i32
that is zero: whether the block's float32 have been packed too.
"""

from __future__ import annotations

from collections.abc import Callable

from flambeau.compiler.emit.builder import Builder
from flambeau.compiler.emit.transpose import transpose_vectors
from flambeau.compiler.kernel import Function
from flambeau.compiler.kernels.bfloat_parts import Extent, split_pairs
from flambeau.compiler.kernels.description import native
from flambeau.compiler.kernels.matmul_driver import PACK_PARTS
from flambeau.compiler.kernels.matmul_element import Facts
from flambeau.compiler.kernels.matmul_tile_pack import LANES

STEP = 32  # of k
PART_BYTES = 2048  # two tiles
STEP_BYTES = 3 * PART_BYTES
SLOT = 128  # bytes of a panel's extent
WIDTH = 16  # lanes of a vector, rows of a tile
_ROWS = 4  # pairs of rows of b that are read side by side: eight streams are followed by the hardware
_LANES_AHEAD = 2  # of a, that are fetched
_TYPE = f"<{WIDTH} x float>"
_INTS = f"<{WIDTH} x i32>"
_EXTENT = Extent(WIDTH)


def parts_pack_function(facts: Facts, operand: str) -> Function:
    """The packing of a or b."""
    return pack_function("parts", pack_parts, facts, operand)


def pack_function(kind: str, write: Callable[[Builder, str, bool, str], str], facts: Facts, operand: str) -> Function:
    """The packing of a or b that `write(builder, unit, by_lanes, name)` writes."""
    unit = facts.a_unit if operand == "a" else facts.b_unit
    key = f"matmul:{kind}:pack_{operand}:{unit}:{facts.vector_bits}"
    return native(key, lambda name, b: write(b, unit, operand == "a", name))


def pack_parts(b: Builder, unit: str, by_lanes: bool, name: str) -> str:
    """Text of `name(source, lane_stride, k_stride, count, k, panels, extents)`, which packs `count` lanes.

    `unit`: which stride is 1, "lane", "k" or "none". `by_lanes`: a's tiles, whose rows are lanes; else b's.
    """
    packing = Packing(b, unit, by_lanes)
    packing.each_panel(lambda panel: packing.put_seen(panel, [value for _, value in packing.start()]))
    packing.walk()

    def reduce(panel: str) -> None:
        low, high = _EXTENT.reduce(b, *packing.seen(panel))
        for at, value in enumerate((low, high, "0")):
            b.store("i32", value, b.gep("i32", packing.slot(panel), at), 4)

    packing.each_panel(reduce)
    return b.define(name, PACK_PARTS, "")


class Packing:
    """One packing function: the ways through memory, and what is made of the vectors that are met."""

    part_bytes, step_bytes, slot_bytes = PART_BYTES, STEP_BYTES, SLOT
    seen_at = 0  # bytes in a panel's slot
    # Row r of b's tile holds r * pair_step of a step's k, and what lies pair_gap behind it.
    pair_step, pair_gap = 1, WIDTH
    fetches = False  # what is met next is asked for: the hardware does not foresee jumps to other rows
    turns = True  # vectors are wanted as tiles hold them; else only looked at

    def __init__(self, b: Builder, unit: str, by_lanes: bool) -> None:
        self.b, self.unit, self.by_lanes = b, unit, by_lanes
        self.steps = b.op(f"udiv i64 {b.add('%k', STEP - 1)}, {STEP}")
        self.panel_bytes = b.mul(self.steps, self.step_bytes)
        self.along = "%k_stride" if by_lanes else "%lane_stride"  # of a vector, unless it is turned
        self.offsets = ""
        if unit == "none":
            order = "<" + ", ".join(f"i64 {i}" for i in range(WIDTH)) + ">"
            self.offsets = b.op(f"mul <{WIDTH} x i64> {order}, {b.splat('i64', WIDTH, self.along)}")

    def walk(self) -> None:
        """Meet all elements."""
        b, turned = self.b, self.unit == ("lane" if self.by_lanes else "k")
        if turned and self.by_lanes:  # in the order in which the source lies in memory
            with b.for_(0, self.steps) as s, b.for_(0, "%count", WIDTH) as first:
                self.turn(first, s)
        elif turned:
            with b.for_(0, "%count", WIDTH) as first, b.for_(0, self.steps) as s:
                self.turn(first, s)
        elif self.by_lanes:
            with b.for_(0, "%count") as i:
                self.lane(i)
        else:
            with b.for_(0, self.steps) as i:
                self.rows_of_k(i)

    # -- what is made of the vectors ------------------------------------------------------------------------------
    def start(self) -> list[tuple[str, str]]:
        """What is carried along for each panel, at first."""
        return _EXTENT.start()

    def look(self, value: str, seen: list[str]) -> list[str]:
        """`seen` after a vector, in whatever order its elements lie."""
        return _EXTENT.include(self.b, value, seen[0], seen[1])

    def put(self, panel: str, first: str, second: str, target: str, seen: list[str]) -> list[str]:
        """A row of a tile: in all three parts."""
        for part, value in enumerate(split_pairs(self.b, WIDTH, first, second)):
            self.b.store(_INTS, value, self.b.gep("i8", target, part * PART_BYTES), 64)
        return seen

    # -- panels -----------------------------------------------------------------------------------------------------
    def each_panel(self, visit: Callable[[str], None]) -> None:
        """Visit the panels' numbers."""
        with self.b.for_(0, self.b.op(f"udiv i64 {self.b.add('%count', LANES - 1)}, {LANES}")) as i:
            visit(i)

    def slot(self, panel: str) -> str:
        return self.b.gep("i8", "%extents", self.b.mul(panel, self.slot_bytes))

    def seen(self, panel: str) -> list[str]:
        slot = self.slot(panel)
        return [self.b.load(type_, self.b.gep("i8", slot, self.seen_at + 64 * i), 64) for i, (type_, _) in enumerate(self.start())]

    def put_seen(self, panel: str, values: list[str]) -> None:
        slot = self.slot(panel)
        for i, ((type_, _), value) in enumerate(zip(self.start(), values, strict=True)):
            self.b.store(type_, value, self.b.gep("i8", slot, self.seen_at + 64 * i), 64)

    def panel(self, lane: str) -> str:
        return self.b.op(f"udiv i64 {lane}, {LANES}")

    def tile(self, lane: str, s: str) -> str:
        """Address of the first part of the tile of lanes from `lane`, a multiple of 16, on."""
        b = self.b
        half = b.mul(b.op(f"and i64 {lane}, {WIDTH}"), 64)
        return b.gep("i8", "%panels", b.add(b.add(b.mul(self.panel(lane), self.panel_bytes), half), b.mul(s, self.step_bytes)))

    def read(self, source: str, mask: str = "") -> str:
        b = self.b
        if not self.offsets:
            return b.masked_load("float", WIDTH, source, mask, 4) if mask else b.load(_TYPE, source, 4)
        return b.masked_gather("float", WIDTH, source, self.offsets, mask or "<" + ", ".join(["i1 true"] * WIDTH) + ">", 4)

    def fetch(self, address: str) -> None:
        """Have a line brought into the second-level cache."""
        self.b.prefetch(address)

    # -- vectors as they lie ------------------------------------------------------------------------------------
    def lane(self, lane: str) -> None:
        """A lane of a: its vectors run along k."""
        b = self.b
        panel = self.panel(lane)
        source = b.gep("float", "%source", b.mul(lane, "%lane_stride"))
        row = b.add(b.mul(panel, self.panel_bytes), b.mul(b.op(f"and i64 {lane}, {LANES - 1}"), 64))
        target = b.gep("i8", "%panels", row)
        whole = b.op(f"udiv i64 %k, {STEP}")

        def step(s: str, seen: list[str], k_left: str = "") -> list[str]:
            at = b.gep("float", source, b.mul(b.mul(s, STEP), self.along))
            masks = [b.tail_mask(b.sub(k_left, at_k), WIDTH) if k_left else "" for at_k in (0, WIDTH)]
            pair = [self.read(b.gep("float", at, b.mul(WIDTH * i, self.along)), masks[i]) for i in range(2)]
            if self.fetches and not k_left:
                for i in range(2):
                    self.fetch(b.gep("float", at, b.add(WIDTH * i, b.mul("%lane_stride", _LANES_AHEAD))))
            for value in pair:
                seen = self.look(value, seen)
            return self.put(panel, pair[0], pair[1], b.gep("i8", target, b.mul(s, self.step_bytes)), seen)

        types = [type_ for type_, _ in self.start()]
        seen = b.loop(0, whole, 1, lambda s, *now: step(s, list(now)), list(zip(types, self.seen(panel), strict=True)))
        rest = b.sub("%k", b.mul(whole, STEP))
        after = b.loop(whole, self.steps, 1, lambda s, *now: step(s, list(now), rest), list(zip(types, seen, strict=True)))
        self.put_seen(panel, after)

    def rows_of_k(self, s: str) -> None:
        """A step of b: its vectors run along lanes."""
        b = self.b
        k0 = b.mul(s, STEP)
        k_left = b.sub("%k", k0)
        full = b.op(f"icmp sge i64 {k_left}, {STEP}")
        whole = b.op(f"select i1 {full}, i64 {b.op(f'and i64 %count, {-WIDTH}')}, i64 0")
        with b.for_(0, WIDTH, _ROWS) as j:
            ks = [b.mul(b.add(j, r), self.pair_step) for r in range(_ROWS)]
            pairs = [(k, b.add(k, self.pair_gap)) for k in ks]

            def some(first: str, masked: bool) -> None:
                target = b.gep("i8", self.tile(first, s), b.mul(j, 64))
                lanes = b.sub("%count", first) if masked else ""
                panel = self.panel(first)
                seen = self.seen(panel)
                for r, both in enumerate(pairs):
                    pair = []
                    for k in both:
                        mask = ""
                        if masked:
                            there = b.op(f"icmp slt i64 {k}, {k_left}")
                            mask = b.tail_mask(b.op(f"select i1 {there}, i64 {lanes}, i64 0"), WIDTH)
                        row = b.gep("float", "%source", b.mul(b.add(k0, k), "%k_stride"))
                        pair.append(self.read(b.gep("float", row, b.mul(first, self.along)), mask))
                        if self.fetches and not masked:
                            self.fetch(b.gep("float", row, b.add(b.mul(first, self.along), b.mul("%k_stride", 2 * _ROWS))))
                    for value in pair:
                        seen = self.look(value, seen)
                    seen = self.put(panel, pair[0], pair[1], b.gep("i8", target, 64 * r), seen)
                self.put_seen(panel, seen)

            with b.for_(0, whole, WIDTH) as first:
                some(first, False)
            with b.for_(whole, "%count", WIDTH) as first:
                some(first, True)

    # -- vectors turned -----------------------------------------------------------------------------------------
    def turn(self, first: str, s: str) -> None:
        """16 lanes of a step: two blocks of 16 x 16, transposed in registers. A block that is not whole goes through a
        buffer, filled up with zeros."""
        b = self.b
        k0 = b.mul(s, STEP)
        k_left, left = b.sub("%k", k0), b.sub("%count", first)
        source = b.gep("float", b.gep("float", "%source", b.mul(first, "%lane_stride")), b.mul(k0, "%k_stride"))
        # Rows of the source, `stride` apart: 32 of 16 lanes, or 16 of 32 k.
        rows, stride = (STEP, "%k_stride") if self.by_lanes else (WIDTH, "%lane_stride")
        vectors = STEP // rows
        rows_left, wide_left = (k_left, left) if self.by_lanes else (left, k_left)
        part = b.op(f"or i1 {b.op(f'icmp slt i64 {k_left}, {STEP}')}, {b.op(f'icmp slt i64 {left}, {WIDTH}')}")
        buffer = b.fresh("buffer")
        b.allocas.append(f"  {buffer} = alloca [{STEP * WIDTH} x float], align 64")
        with b.if_(part), b.for_(0, rows) as line:
            there = b.op(f"select i1 {b.op(f'icmp slt i64 {line}, {rows_left}')}, i64 {wide_left}, i64 0")
            for v in range(vectors):
                at = b.gep("float", b.gep("float", source, b.mul(line, stride)), v * WIDTH)
                value = b.masked_load("float", WIDTH, at, b.tail_mask(b.sub(there, v * WIDTH), WIDTH), 4)
                b.store(_TYPE, value, b.gep("float", b.gep("float", buffer, b.mul(line, vectors * WIDTH)), v * WIDTH), 64)
        following = b.gep("float", source, b.mul("%k_stride", STEP) if self.by_lanes else b.mul("%lane_stride", WIDTH))
        source = b.op(f"select i1 {part}, ptr {buffer}, ptr {source}")
        stride = b.op(f"select i1 {part}, i64 {vectors * WIDTH}, i64 {stride}")
        panel = self.panel(first)
        seen = self.seen(panel)
        blocks: list[str] = []
        for half in range(2):
            loaded = []
            for i in range(WIDTH):
                row, across = (i + half * WIDTH, 0) if self.by_lanes else (i, half * WIDTH)
                loaded.append(b.load(_TYPE, b.gep("float", b.gep("float", source, b.mul(stride, row)), across), 4))
                if self.fetches:
                    self.fetch(b.gep("float", b.gep("float", following, b.mul(stride, row)), across))
                seen = self.look(loaded[-1], seen)
            if self.turns:
                blocks += transpose_vectors(b, "float", loaded, small_first=True)
        target = self.tile(first, s)
        for row in range(WIDTH if self.turns else 0):
            low, gap = (row, WIDTH) if self.by_lanes else (row * self.pair_step, self.pair_gap)
            seen = self.put(panel, blocks[low], blocks[low + gap], b.gep("i8", target, 64 * row), seen)
        self.put_seen(panel, seen)
