"""Matrix products by the matrix unit: packing into panels of tiles (see matmul_tiles.py for what a tile is).

A panel is 32 rows of a (columns of b) and all of the block's k: for each step (64 bytes of k) two tiles, 2 KiB. Beyond
the end of k both operands hold zeros; lanes beyond the last hold anything, their results are not stored.
"""

from __future__ import annotations

from flambeau.compiler.emit.builder import Builder, vector
from flambeau.compiler.emit.transpose import transpose_vectors
from flambeau.compiler.kernel import Function
from flambeau.compiler.kernels.description import native
from flambeau.compiler.kernels.matmul_driver import PACK
from flambeau.compiler.kernels.matmul_element import Element, Facts

LANES = 32  # rows of a panel of a, columns of a panel of b
STEP_BYTES = 2048  # two tiles: what 64 bytes of k take in a panel
HIGH_BITS = "<" + ", ".join(["i32 -2139062144"] * 16) + ">"  # of all bytes: 0x80808080


def tile_pack_function(facts: Facts, operand: str, flips: bool = False) -> Function:
    """The packing of a or b."""
    element, unit = facts.element, facts.a_unit if operand == "a" else facts.b_unit
    key = f"matmul:tiles:pack_{operand}:{element.itemsize}:{unit}:{facts.vector_bits}{':flips' * flips}"
    return native(key, lambda name, b: pack_tiles(b, element, unit, operand == "a", flips, name))


def pack_tiles(b: Builder, element: Element, unit: str, by_lanes: bool, flips: bool, name: str) -> str:
    """Text of `name(source, lane_stride, k_stride, count, k, panels)`, which packs `count` lanes.

    `unit`: which stride is 1, "lane", "k" or "none". `by_lanes`: a's tiles, whose rows are lanes; else b's. `flips`: signed bytes become unsigned ones,
    128 greater.
    """
    size = element.itemsize
    step, group, type_ = 64 // size, 4 // size, f"i{8 * size}"
    steps = b.op(f"udiv i64 {b.add('%k', step - 1)}, {step}")

    def panel_at(lane: str) -> str:
        # Panels of 32 lanes follow each other; the upper 16 lanes of a step lie behind the lower ones.
        panel = b.mul(b.op(f"udiv i64 {lane}, {LANES}"), b.mul(steps, STEP_BYTES))
        return b.gep("i8", b.gep("i8", "%panels", panel), b.mul(b.op(f"and i64 {lane}, 31"), 64))

    def put(value: str, to: str) -> None:
        b.store("<16 x i32>", b.op(f"xor <16 x i32> {value}, {HIGH_BITS}") if flips else value, to, 64)

    def store(rows: list[str], turn: bool, to: str) -> None:
        """16 vectors of 64 bytes as a tile; `turn`: transposed, in units of 4 bytes."""
        for i, value in enumerate(transpose_vectors(b, "i32", rows, small_first=True) if turn else rows):
            put(value, b.gep("i8", to, 64 * i))

    def one(first: str, s: str) -> None:
        left = b.min(16, b.sub("%count", first))
        source = b.gep(type_, "%source", b.mul(first, "%lane_stride"))
        k = b.mul(s, step)
        to = b.gep("i8", panel_at(first), b.mul(s, STEP_BYTES))
        k_left = b.sub("%k", k)
        if unit == "none":
            _scalar_tile(b, element, source, k, left, k_left, by_lanes, flips, to)
        elif unit == "k":
            store(_rows_of_k(b, element, b.gep(type_, source, k), left, k_left), not by_lanes, to)
        else:
            at = b.gep(type_, source, b.mul(k, "%k_stride"))
            full = b.op(f"and i1 {b.op(f'icmp sge i64 {k_left}, {step}')}, {b.op(f'icmp eq i64 {left}, 16')}")
            with b.if_(full):
                store(_groups_of_k(b, element, group, at, "", ""), by_lanes, to)
            with b.if_(b.op(f"xor i1 {full}, true")):
                store(_groups_of_k(b, element, group, at, left, k_left), by_lanes, to)

    # In the order in which the source lies in memory as far as possible: the hardware fetches what follows.
    if unit == "k" and by_lanes:
        whole = b.op(f"udiv i64 %k, {step}")
        mask = b.tail_mask(b.sub("%k", b.mul(whole, step)), step)
        with b.for_(0, "%count") as lane:
            source, to = b.gep(type_, "%source", b.mul(lane, "%lane_stride")), panel_at(lane)

            def put_step(s: str, value: str) -> None:
                put(b.op(f"bitcast {vector(type_, step)} {value} to <16 x i32>"), b.gep("i8", to, b.mul(s, STEP_BYTES)))

            with b.for_(0, whole) as s:
                put_step(s, b.load(vector(type_, step), b.gep(type_, source, b.mul(s, step)), size))
            with b.if_(b.op(f"icmp slt i64 {whole}, {steps}")):
                put_step(whole, b.masked_load(type_, step, b.gep(type_, source, b.mul(whole, step)), mask, size))
    elif unit == "lane":
        with b.for_(0, steps) as s, b.for_(0, "%count", 16) as i:
            one(i, s)
    else:
        with b.for_(0, "%count", 16) as first, b.for_(0, steps) as s:
            one(first, s)
    return b.define(name, PACK, "")


def _rows_of_k(b: Builder, element: Element, source: str, left: str, k_left: str) -> list[str]:
    """For each lane 64 bytes of k; lanes past the last one repeat it."""
    size = element.itemsize
    step, type_ = 64 // size, f"i{8 * size}"
    mask, last = b.tail_mask(k_left, step), b.sub(left, 1)
    rows = []
    for lane in range(16):
        at = b.gep(type_, source, b.mul(b.min(lane, last), "%lane_stride"))
        rows.append(b.op(f"bitcast {vector(type_, step)} {b.masked_load(type_, step, at, mask, size)} to <16 x i32>"))
    return rows


def _groups_of_k(b: Builder, element: Element, group: int, source: str, left: str, k_left: str) -> list[str]:
    """For each group of neighbours of k a vector over 16 lanes; `left` and `k_left`: "" if all are there."""
    size = element.itemsize
    type_ = f"i{8 * size}"
    lanes = b.tail_mask(left, 16) if left else ""
    rows = []
    for g in range(16):
        row = ""
        for i in range(group):
            k = g * group + i
            at = b.gep(type_, source, b.mul(k, "%k_stride"))
            if lanes:
                there = b.op(f"icmp sgt i64 {k_left}, {k}")
                mask = b.op(f"select i1 {there}, <16 x i1> {lanes}, <16 x i1> zeroinitializer")
                value = b.masked_load(type_, 16, at, mask, size)
            else:
                value = b.load(f"<16 x {type_}>", at, size)
            wide = b.op(f"zext <16 x {type_}> {value} to <16 x i32>")
            if i:
                shift = "<" + ", ".join([f"i32 {8 * size * i}"] * 16) + ">"
                row = b.op(f"or <16 x i32> {row}, {b.op(f'shl <16 x i32> {wide}, {shift}')}")
            else:
                row = wide
        rows.append(row)
    return rows


def _scalar_tile(b: Builder, element: Element, source: str, k0: str, left: str, k_left: str, by_lanes: bool, flips: bool, target: str) -> None:
    """Element by element, any strides; zeros past the end of k."""
    size = element.itemsize
    step, group, type_ = 64 // size, 4 // size, f"i{8 * size}"
    with b.for_(0, left) as lane:
        from_lane = b.gep(type_, source, b.mul(lane, "%lane_stride"))
        with b.for_(0, step) as k:
            there = b.op(f"icmp slt i64 {k}, {k_left}")
            safe = b.op(f"select i1 {there}, i64 {b.add(k0, k)}, i64 {k0}")
            value = b.load(type_, b.gep(type_, from_lane, b.mul(safe, "%k_stride")), size)
            value = b.op(f"select i1 {there}, {type_} {value}, {type_} 0")
            if by_lanes:
                at = b.add(b.mul(lane, step), k)
            else:
                row, rest = b.op(f"udiv i64 {k}, {group}"), b.op(f"urem i64 {k}, {group}")
                at = b.add(b.add(b.mul(row, step), b.mul(lane, group)), rest)
            b.store(type_, b.op(f"xor i8 {value}, -128") if flips else value, b.gep(type_, target, at), size)
