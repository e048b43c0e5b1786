"""Matrix products of float32 by float16 halves: packing into panels of tiles (see matmul_halves.py).

As in matmul_parts_pack.py, but a step, 32 of k, takes 4 KiB of a panel: for each half (hi, lo) two tiles of 16 lanes. A pair is
(k, k + 1), so that a row of a's tile is its elements in their order.

A panel is met twice: its scale must be known before it is split. Its slot of 256 bytes then holds, each in 32 bits: low, high
(bfloat_parts.Extent); 0: whether it was packed as multiply-adds want it; 0: the same of bfloat16 parts; the exponent of the
scale and the kind (float_halves.py).
"""

from __future__ import annotations

from flambeau.compiler.emit.builder import Builder
from flambeau.compiler.kernel import Function
from flambeau.compiler.kernels.bfloat_parts import Extent
from flambeau.compiler.kernels.float_halves import halves_in_order, halves_pairs, kind, power, scale_exponent
from flambeau.compiler.kernels.matmul_facts import Facts
from flambeau.compiler.kernels.matmul_parts_pack import STEP, WIDTH, Packing, pack_function, pack_header
from flambeau.compiler.kernels.matmul_tile_pack import LANES

HALF_BYTES = 2048  # two tiles
STEP_BYTES = 2 * HALF_BYTES
SLOT = 256  # bytes of what is known of a panel
PLAIN, PARTS, SCALE, KIND = 2, 3, 4, 5  # i32 of a slot
_COUNT, _POWER = 6, 7  # while packing: of elements that are not zero; the scale
_LANES_AT_ONCE = 256  # with up to 384 of k: 384 KiB
_INTS = f"<{WIDTH} x i32>"
_ROW = f"<{2 * WIDTH} x half>"
_EXTENT = Extent(WIDTH)


def halves_pack_function(facts: Facts, operand: str) -> Function:
    """The packing of a or b."""
    return pack_function("halves", pack_halves, facts, operand)


def pack_halves(b: Builder, unit: str, by_lanes: bool, name: str) -> str:
    """Text of `name(source, lane_stride, k_stride, count, k, panels, extents)`: as matmul_parts_pack.pack_parts.

    Some panels are looked at and then split before the next ones, so that the second visit finds them in the cache.
    """
    inner = Builder()
    text = _pack_some(inner, unit, by_lanes)
    b.declarations |= inner.declarations
    panel_bytes = b.mul(b.op(f"udiv i64 {b.add('%k', STEP - 1)}, {STEP}"), STEP_BYTES)

    def some(first: str) -> None:
        number = b.op(f"udiv i64 {first}, {LANES}")
        b.call("void", "some", [
            ("ptr", b.gep("float", "%source", b.mul(first, "%lane_stride"))), ("i64", "%lane_stride"), ("i64", "%k_stride"),
            ("i64", b.min(_LANES_AT_ONCE, b.sub("%count", first))), ("i64", "%k"),
            ("ptr", b.gep("i8", "%panels", b.mul(number, panel_bytes))), ("ptr", b.gep("i8", "%extents", b.mul(number, SLOT))),
        ], declare=False)  # fmt: skip

    b.loop(0, "%count", _LANES_AT_ONCE, some)
    return f"{text}\n{b.function(pack_header(name))}"


def _pack_some(b: Builder, unit: str, by_lanes: bool) -> str:
    look, packing = _Looking(b, unit, by_lanes), _Splitting(b, unit, by_lanes)
    look.each_panel(lambda panel: look.put_seen(panel, [value for _, value in look.start()]))
    look.walk()

    def judge(panel: str) -> None:
        least, most, nonzero = look.seen(panel)
        low, high = _EXTENT.reduce(b, least, most)
        count = b.call("i32", f"llvm.vector.reduce.add.v{WIDTH}i32", [(_INTS, nonzero)])
        exponent = scale_exponent(b, high)
        scale = b.op(f"bitcast float {power(b, exponent)} to i32")
        for at, value in ((0, low), (1, high), (PLAIN, "0"), (PARTS, "0"), (SCALE, exponent), (_COUNT, count), (_POWER, scale)):
            b.store("i32", value, b.gep("i32", look.slot(panel), at), 4)
        packing.put_seen(panel, [value for _, value in packing.start()])

    look.each_panel(judge)
    packing.walk()

    def conclude(panel: str) -> None:
        slot = packing.slot(panel)
        low, high, count = (b.load("i32", b.gep("i32", slot, at), 4) for at in (0, 1, _COUNT))
        lanes = b.min(LANES, b.sub("%count", b.mul(panel, LANES)))
        elements = b.op(f"trunc i64 {b.mul(lanes, '%k')} to i32")
        bits = b.call("i32", f"llvm.vector.reduce.or.v{WIDTH}i32", [(_INTS, packing.seen(panel)[0])])
        short = b.op(f"icmp eq i32 {bits}, 0")
        b.store("i32", kind(b, low, high, count, elements, short), b.gep("i32", slot, KIND), 4)

    packing.each_panel(conclude)
    return b.function(pack_header("some").replace("define void", "define internal void"))


class _Halves(Packing):
    part_bytes, step_bytes, slot_bytes = HALF_BYTES, STEP_BYTES, SLOT
    pair_step, pair_gap = 2, 1


class _Looking(_Halves):
    """The first visit: extents, and how many elements are not zero."""

    turns = False
    fetches = True

    def start(self) -> list[tuple[str, str]]:
        return [*_EXTENT.start(), (_INTS, "zeroinitializer")]

    def look(self, value: str, seen: list[str]) -> list[str]:
        b = self.b
        there = b.op(f"zext <{WIDTH} x i1> {b.op(f'fcmp une <{WIDTH} x float> {value}, zeroinitializer')} to {_INTS}")
        return [*_EXTENT.include(b, value, seen[0], seen[1]), b.op(f"add {_INTS} {seen[2]}, {there}")]

    def put(self, panel: str, first: str, second: str, target: str, seen: list[str]) -> list[str]:
        return seen


class _Splitting(_Halves):
    """The second visit: tiles, and which bits of lo are ever set."""

    seen_at = SLOT - 64

    def start(self) -> list[tuple[str, str]]:
        return [(_INTS, "zeroinitializer")]

    def look(self, value: str, seen: list[str]) -> list[str]:
        return seen

    def put(self, panel: str, first: str, second: str, target: str, seen: list[str]) -> list[str]:
        b = self.b
        scale = b.splat("float", WIDTH, b.load("float", b.gep("i32", self.slot(panel), _POWER), 4))
        rows = (halves_in_order if self.by_lanes else halves_pairs)(b, WIDTH, first, second, scale)
        for half, row in enumerate(rows):
            b.store(_ROW, row, b.gep("i8", target, half * HALF_BYTES), 64)
        return [b.op(f"or {_INTS} {seen[0]}, {b.op(f'bitcast {_ROW} {rows[1]} to {_INTS}')}")]


__all__ = ["HALF_BYTES", "KIND", "PARTS", "PLAIN", "SCALE", "SLOT", "STEP_BYTES", "halves_pack_function", "pack_halves"]
