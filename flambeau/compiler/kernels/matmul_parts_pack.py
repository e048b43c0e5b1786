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

from functools import partial

from flambeau.compiler.emit.builder import Builder
from flambeau.compiler.kernel import Function
from flambeau.compiler.kernels.bfloat_parts import Extent, split_pairs
from flambeau.compiler.kernels.matmul_facts import Facts
from flambeau.compiler.kernels.matmul_pack import transpose
from flambeau.compiler.kernels.matmul_packed import module_of
from flambeau.compiler.kernels.matmul_tile_pack import LANES

STEP = 32  # of k
PART_BYTES = 2048  # two tiles
STEP_BYTES = 3 * PART_BYTES
SLOT = 128  # bytes of a panel's extent
_WIDTH = 16  # lanes of a vector, rows of a tile
_ROWS = 4  # pairs of rows of b that are read side by side: eight streams are followed by the hardware
_TYPE = f"<{_WIDTH} x float>"
_INTS = f"<{_WIDTH} x i32>"
_EXTENT = Extent(_WIDTH)


def parts_pack_function(facts: Facts, operand: str) -> Function:
    """The packing of a or b."""
    unit = facts.a_unit if operand == "a" else facts.b_unit
    key = f"matmul:parts:pack_{operand}:{unit}:{facts.vector_bits}"
    return Function(key, partial(_pack_module, unit, operand == "a", facts.vector_bits, key))


def _pack_module(unit: str, by_lanes: bool, vector_bits: int, key: str) -> str:
    from flambeau.runtime.jit import symbol

    return module_of([lambda b: pack_parts(b, unit, by_lanes, symbol(key))], vector_bits)


def pack_parts(b: Builder, unit: str, by_lanes: bool, name: str) -> str:
    """Text of `name(source, lane_stride, k_stride, count, k, panels, extents)`, which packs `count` lanes.

    `unit`: which stride is 1, "lane", "k" or "none". `by_lanes`: a's tiles, whose rows are lanes; else b's.
    """
    packing = _Packing(b, unit, by_lanes)
    panels = b.op(f"udiv i64 {b.add('%count', LANES - 1)}, {LANES}")

    def clear(panel: str) -> None:
        packing.put_extent(panel, [value for _, value in _EXTENT.start()])

    b.loop(0, panels, 1, clear)
    packing.write()

    def reduce(panel: str) -> None:
        slot = b.gep("i8", "%extents", b.mul(panel, SLOT))
        low, high = _EXTENT.reduce(b, *packing.extent(panel))
        for at, value in enumerate((low, high, "0")):
            b.store("i32", value, b.gep("i32", slot, at), 4)

    b.loop(0, panels, 1, reduce)
    return b.function(
        f"define void @{name}(ptr noalias %source, i64 %lane_stride, i64 %k_stride, i64 %count, i64 %k, "
        "ptr noalias %panels, ptr noalias %extents) noinline #0"
    )


class _Packing:
    """One packing function: the ways through memory."""

    def __init__(self, b: Builder, unit: str, by_lanes: bool) -> None:
        self.b, self.unit, self.by_lanes = b, unit, by_lanes
        self.steps = b.op(f"udiv i64 {b.add('%k', STEP - 1)}, {STEP}")
        self.panel_bytes = b.mul(self.steps, STEP_BYTES)
        self.along = "%k_stride" if by_lanes else "%lane_stride"  # of a vector, unless it is turned
        self.offsets = ""
        if unit == "none":
            order = "<" + ", ".join(f"i64 {i}" for i in range(_WIDTH)) + ">"
            self.offsets = b.op(f"mul <{_WIDTH} x i64> {order}, {b.splat('i64', _WIDTH, self.along)}")

    def write(self) -> None:
        b, turned = self.b, self.unit == ("lane" if self.by_lanes else "k")
        if turned and self.by_lanes:  # in the order in which the source lies in memory
            b.loop(0, self.steps, 1, lambda s: b.loop(0, "%count", _WIDTH, lambda first: self.turn(first, s)) and None)
        elif turned:
            b.loop(0, "%count", _WIDTH, lambda first: b.loop(0, self.steps, 1, lambda s: self.turn(first, s)) and None)
        elif self.by_lanes:
            b.loop(0, "%count", 1, self.lane)
        else:
            b.loop(0, self.steps, 1, self.rows_of_k)

    # -- parts --------------------------------------------------------------------------------------------------
    def extent(self, panel: str) -> list[str]:
        slot = self.b.gep("i8", "%extents", self.b.mul(panel, SLOT))
        return [self.b.load(_INTS, self.b.gep("i8", slot, 64 * i), 64) for i in range(2)]

    def put_extent(self, panel: str, values: list[str]) -> None:
        slot = self.b.gep("i8", "%extents", self.b.mul(panel, SLOT))
        for i, value in enumerate(values):
            self.b.store(_INTS, value, self.b.gep("i8", slot, 64 * i), 64)

    def panel(self, lane: str) -> str:
        return self.b.op(f"udiv i64 {lane}, {LANES}")

    def tile(self, lane: str, s: str) -> str:
        """Address of the first part of the tile of lanes from `lane`, a multiple of 16, on."""
        b = self.b
        half = b.mul(b.op(f"and i64 {lane}, {_WIDTH}"), 64)
        return b.gep("i8", "%panels", b.add(b.add(b.mul(self.panel(lane), self.panel_bytes), half), b.mul(s, STEP_BYTES)))

    def put(self, first: str, second: str, target: str) -> None:
        """A row of pairs: in all three parts."""
        for part, value in enumerate(split_pairs(self.b, _WIDTH, first, second)):
            self.b.store(_INTS, value, self.b.gep("i8", target, part * PART_BYTES), 64)

    def read(self, source: str, mask: str = "") -> str:
        b = self.b
        if not self.offsets:
            return b.masked_load("float", _WIDTH, source, mask, 4) if mask else b.load(_TYPE, source, 4)
        name = f"llvm.masked.gather.v{_WIDTH}f32.v{_WIDTH}p0"
        addresses = b.op(f"getelementptr float, ptr {source}, <{_WIDTH} x i64> {self.offsets}")
        lanes = mask or "<" + ", ".join(["i1 true"] * _WIDTH) + ">"
        arguments = [(f"<{_WIDTH} x ptr>", addresses), ("i32", "4"), (f"<{_WIDTH} x i1>", lanes), (_TYPE, "zeroinitializer")]
        b.declarations.add(f"declare {_TYPE} @{name}(<{_WIDTH} x ptr>, i32, <{_WIDTH} x i1>, {_TYPE})")
        return b.call(_TYPE, name, arguments, declare=False)

    # -- vectors as they lie ------------------------------------------------------------------------------------
    def lane(self, lane: str) -> None:
        """A lane of a: its vectors run along k."""
        b = self.b
        panel = self.panel(lane)
        source = b.gep("float", "%source", b.mul(lane, "%lane_stride"))
        row = b.add(b.mul(panel, self.panel_bytes), b.mul(b.op(f"and i64 {lane}, {LANES - 1}"), 64))
        target = b.gep("i8", "%panels", row)
        whole = b.op(f"udiv i64 %k, {STEP}")

        def step(s: str, least: str, most: str, k_left: str = "") -> list[str]:
            at = b.gep("float", source, b.mul(b.mul(s, STEP), self.along))
            masks = [b.tail_mask(b.sub(k_left, at_k), _WIDTH) if k_left else "" for at_k in (0, _WIDTH)]
            pair = [self.read(b.gep("float", at, b.mul(_WIDTH * i, self.along)), masks[i]) for i in range(2)]
            self.put(pair[0], pair[1], b.gep("i8", target, b.mul(s, STEP_BYTES)))
            for value in pair:
                least, most = _EXTENT.include(b, value, least, most)
            return [least, most]

        types = [type_ for type_, _ in _EXTENT.start()]
        seen = b.loop(0, whole, 1, step, list(zip(types, self.extent(panel), strict=True)))
        rest = b.sub("%k", b.mul(whole, STEP))
        after = b.loop(
            whole, self.steps, 1, lambda s, *now: step(s, now[0], now[1], rest), list(zip(types, seen, strict=True))
        )
        self.put_extent(panel, after)

    def rows_of_k(self, s: str) -> None:
        """A step of b: its vectors run along lanes."""
        b = self.b
        k_left = b.sub("%k", b.mul(s, STEP))
        full = b.op(f"icmp sge i64 {k_left}, {STEP}")
        whole = b.op(f"select i1 {full}, i64 {b.op(f'and i64 %count, {-_WIDTH}')}, i64 0")

        def rows(j: str) -> None:
            source = b.gep("float", "%source", b.mul(b.add(b.mul(s, STEP), j), "%k_stride"))

            def some(first: str, masked: bool) -> None:
                target = b.gep("i8", self.tile(first, s), b.mul(j, 64))
                lanes = b.sub("%count", first) if masked else ""
                panel = self.panel(first)
                seen = self.extent(panel)
                for r in range(_ROWS):
                    pair = []
                    for at in (r, r + _WIDTH):
                        mask = ""
                        if masked:
                            there = b.op(f"icmp slt i64 {b.add(j, at)}, {k_left}")
                            mask = b.tail_mask(b.op(f"select i1 {there}, i64 {lanes}, i64 0"), _WIDTH)
                        row = b.gep("float", source, b.mul("%k_stride", at))
                        pair.append(self.read(b.gep("float", row, b.mul(first, self.along)), mask))
                    self.put(pair[0], pair[1], b.gep("i8", target, 64 * r))
                    for value in pair:
                        seen = _EXTENT.include(b, value, seen[0], seen[1])
                self.put_extent(panel, seen)

            b.loop(0, whole, _WIDTH, lambda first: some(first, False))
            b.loop(whole, "%count", _WIDTH, lambda first: some(first, True))

        b.loop(0, _WIDTH, _ROWS, rows)

    # -- vectors turned -----------------------------------------------------------------------------------------
    def turn(self, first: str, s: str) -> None:
        """16 lanes of a step: two blocks of 16 x 16, transposed in registers. A block that is not whole goes through a
        buffer, filled up with zeros."""
        b = self.b
        k0 = b.mul(s, STEP)
        k_left, left = b.sub("%k", k0), b.sub("%count", first)
        source = b.gep("float", b.gep("float", "%source", b.mul(first, "%lane_stride")), b.mul(k0, "%k_stride"))
        # Rows of the source, `stride` apart: 32 of 16 lanes, or 16 of 32 k.
        rows, stride = (STEP, "%k_stride") if self.by_lanes else (_WIDTH, "%lane_stride")
        vectors = STEP // rows
        rows_left, wide_left = (k_left, left) if self.by_lanes else (left, k_left)
        part = b.op(f"or i1 {b.op(f'icmp slt i64 {k_left}, {STEP}')}, {b.op(f'icmp slt i64 {left}, {_WIDTH}')}")
        buffer = b.fresh("buffer")
        b.allocas.append(f"  {buffer} = alloca [{STEP * _WIDTH} x float], align 64")

        def stage() -> None:
            def row(i: str) -> None:
                there = b.op(f"select i1 {b.op(f'icmp slt i64 {i}, {rows_left}')}, i64 {wide_left}, i64 0")
                for v in range(vectors):
                    at = b.gep("float", b.gep("float", source, b.mul(i, stride)), v * _WIDTH)
                    value = b.masked_load("float", _WIDTH, at, b.tail_mask(b.sub(there, v * _WIDTH), _WIDTH), 4)
                    b.store(_TYPE, value, b.gep("float", b.gep("float", buffer, b.mul(i, vectors * _WIDTH)), v * _WIDTH), 64)

            b.loop(0, rows, 1, row)

        b.when(part, stage)
        source = b.op(f"select i1 {part}, ptr {buffer}, ptr {source}")
        stride = b.op(f"select i1 {part}, i64 {vectors * _WIDTH}, i64 {stride}")
        panel = self.panel(first)
        seen = self.extent(panel)
        blocks = []
        for half in range(2):
            loaded = []
            for i in range(_WIDTH):
                row, across = (i + half * _WIDTH, 0) if self.by_lanes else (i, half * _WIDTH)
                loaded.append(b.load(_TYPE, b.gep("float", b.gep("float", source, b.mul(stride, row)), across), 4))
                seen = _EXTENT.include(b, loaded[-1], seen[0], seen[1])
            blocks.append(transpose(b, "float", _WIDTH, loaded))
        self.put_extent(panel, seen)
        target = self.tile(first, s)
        for i, (low, high) in enumerate(zip(*blocks, strict=True)):
            self.put(low, high, b.gep("i8", target, 64 * i))
