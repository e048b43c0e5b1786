"""Matrix products of float32 by float16 halves: packing into panels of tiles (see matmul_halves.py).

As in matmul_parts_pack.py, but a step, 32 of k, takes 4 KiB of a panel: for each half (hi, lo) two tiles of 16 lanes. A pair is
(k, k + 1), so that a row of a's tile is its elements in their order.

A panel's scale must be known before it is split. It is guessed from some of its elements, with room for greater ones; what the
panel holds is learned while it is split, and where the guess was wrong it is split again. (Looking at all of it first took as
long as splitting it.) The panel's slot of 320 bytes then holds, each in 32 bits: low, high (bfloat_parts.Extent); 0: whether it
was packed as multiply-adds want it; 0: the same of bfloat16 parts; the exponent of the scale and the kind (float_halves.py).
"""

from __future__ import annotations

from flambeau.compiler.emit.builder import Builder
from flambeau.compiler.kernel import Function
from flambeau.compiler.kernels.bfloat_parts import Extent
from flambeau.compiler.kernels.float_halves import fits, guessed_exponent, halves_in_order, halves_pairs, inside, kind, power, scale_exponent
from flambeau.compiler.kernels.matmul_driver import PACK_PARTS
from flambeau.compiler.kernels.matmul_element import Facts
from flambeau.compiler.kernels.matmul_parts_pack import WIDTH, Packing, pack_function
from flambeau.compiler.kernels.matmul_tile_pack import LANES

HALF_BYTES = 2048  # two tiles
STEP_BYTES = 2 * HALF_BYTES
PLAIN, PARTS, SCALE, KIND = 2, 3, 4, 5  # i32 of a slot
_POWER = 6  # the scale itself, while packing
_SEEN_AT = 64  # what is learned while packing: four vectors
SLOT = _SEEN_AT + 4 * 64  # bytes of what is known of a panel
_SAMPLES = 16  # vectors that a guess is made from
_INTS = f"<{WIDTH} x i32>"
_ROW = f"<{2 * WIDTH} x half>"
_EXTENT = Extent(WIDTH)


def halves_pack_function(facts: Facts, operand: str) -> Function:
    """The packing of a or b."""
    return pack_function("halves", pack_halves, facts, operand)


def pack_halves(b: Builder, unit: str, by_lanes: bool, name: str) -> str:
    """Text of `name(source, lane_stride, k_stride, count, k, panels, extents)`: as matmul_parts_pack.pack_parts."""
    inner = Builder(b.target)
    splitting = _Halves(inner, unit, by_lanes)
    splitting.each_panel(lambda panel: splitting.put_seen(panel, [value for _, value in splitting.start()]))
    splitting.walk()
    text = inner.define("split", PACK_PARTS)
    b.declarations |= inner.declarations
    packing = _Halves(b, unit, by_lanes)

    def split(first_panel: str, count: str) -> None:
        source = b.gep("float", "%source", b.mul(b.mul(first_panel, LANES), "%lane_stride"))
        b.invoke("split", PACK_PARTS, source, "%lane_stride", "%k_stride", count, "%k", b.gep("i8", "%panels", b.mul(first_panel, packing.panel_bytes)),
                 packing.slot(first_panel))  # fmt: skip

    def finish(panel: str) -> None:
        low, high = packing.conclude(panel)
        exponent = b.load("i32", b.gep("i32", packing.slot(panel), SCALE), 4)
        wrong = b.op(f"xor i1 {fits(b, low, high, exponent)}, true")
        with b.if_(b.op(f"and i1 {wrong}, {inside(b, low, high)}")):
            packing.put_scale(panel, scale_exponent(b, high))
            split(panel, b.min(LANES, b.sub("%count", b.mul(panel, LANES))))
            packing.conclude(panel)

    packing.each_panel(packing.guess)
    split("0", "%count")
    packing.each_panel(finish)
    whole = b.define(name, PACK_PARTS, "")
    return f"{text}\n{whole}"


class _Halves(Packing):
    """Splitting panels whose scale is in their slot. Learned: extents, how many elements are not zero, and which bits of lo are
    ever set."""

    part_bytes, step_bytes, slot_bytes = HALF_BYTES, STEP_BYTES, SLOT
    seen_at = _SEEN_AT
    pair_step, pair_gap = 2, 1
    fetches = True

    def start(self) -> list[tuple[str, str]]:
        return [*_EXTENT.start(), (_INTS, "zeroinitializer"), (_INTS, "zeroinitializer")]

    def look(self, value: str, seen: list[str]) -> list[str]:
        b = self.b
        there = b.op(f"zext <{WIDTH} x i1> {b.op(f'fcmp une <{WIDTH} x float> {value}, zeroinitializer')} to {_INTS}")
        return [*_EXTENT.include(b, value, seen[0], seen[1]), b.op(f"add {_INTS} {seen[2]}, {there}"), seen[3]]

    def put(self, panel: str, first: str, second: str, target: str, seen: list[str]) -> list[str]:
        b = self.b
        scale = b.splat("float", WIDTH, b.load("float", b.gep("i32", self.slot(panel), _POWER), 4))
        rows = (halves_in_order if self.by_lanes else halves_pairs)(b, WIDTH, first, second, scale)
        for half, row in enumerate(rows):
            b.store(_ROW, row, b.gep("i8", target, half * HALF_BYTES), 64)
        return [*seen[:3], b.op(f"or {_INTS} {seen[3]}, {b.op(f'bitcast {_ROW} {rows[1]} to {_INTS}')}")]

    # -- a panel's slot -----------------------------------------------------------------------------------------------
    def put_scale(self, panel: str, exponent: str) -> None:
        b = self.b
        b.store("i32", exponent, b.gep("i32", self.slot(panel), SCALE), 4)
        b.store("float", power(b, exponent), b.gep("i32", self.slot(panel), _POWER), 4)

    def guess(self, panel: str) -> None:
        """Guess a panel's scale from every second lane, or from all lanes of the first eight of k."""
        b = self.b
        first = b.mul(panel, LANES)
        lanes = b.sub("%count", first)
        source = b.gep("float", "%source", b.mul(first, "%lane_stride"))
        most = "zeroinitializer"
        along_lanes = self.along == "%lane_stride" if self.unit == "none" else self.unit == "lane"
        for i in range(_SAMPLES):
            lane, k = (i % 2 * WIDTH, i // 2) if along_lanes else (2 * i, 0)
            at, end, left = (k, "%k", b.sub(lanes, lane)) if along_lanes else (lane, lanes, "%k")
            there = b.op(f"select i1 {b.op(f'icmp slt i64 {at}, {end}')}, i64 {left}, i64 0")
            address = b.gep("float", b.gep("float", source, b.mul("%lane_stride", lane)), b.mul("%k_stride", k))
            value = self.read(address, b.tail_mask(there, WIDTH))
            most = _EXTENT.include(b, value, _EXTENT.start()[0][1], most)[1]
        _, high = _EXTENT.reduce(b, _EXTENT.start()[0][1], most)
        self.put_scale(panel, guessed_exponent(b, high))

    def conclude(self, panel: str) -> tuple[str, str]:
        """Note what was learned of a panel that is split. (low, high)."""
        b = self.b
        least, most, nonzero, lo = self.seen(panel)
        low, high = _EXTENT.reduce(b, least, most)
        count = b.call("i32", f"llvm.vector.reduce.add.v{WIDTH}i32", [(_INTS, nonzero)])
        bits = b.call("i32", f"llvm.vector.reduce.or.v{WIDTH}i32", [(_INTS, lo)])
        lanes = b.min(LANES, b.sub("%count", b.mul(panel, LANES)))
        elements = b.op(f"trunc i64 {b.mul(lanes, '%k')} to i32")
        found = kind(b, low, high, count, elements, b.op(f"icmp eq i32 {bits}, 0"))
        for at, value in ((0, low), (1, high), (PLAIN, "0"), (PARTS, "0"), (KIND, found)):
            b.store("i32", value, b.gep("i32", self.slot(panel), at), 4)
        return low, high


__all__ = ["HALF_BYTES", "KIND", "PARTS", "PLAIN", "SCALE", "SLOT", "STEP_BYTES", "halves_pack_function", "pack_halves"]
