"""Matrix products of float32 by the processor's matrix unit (AMX-FP16): three products of float16 halves (float_halves.py).

Half as many products as of bfloat16 parts (matmul_parts.py, whose loops these are), and 4 instead of 6 bytes an element.
The micro-kernel alone runs at 840 GFLOP/s a core, that of parts at 440 (measured, on random numbers: on zeros both are a
quarter faster, as the processor's clock depends on what its unit switches).

Sums of large and of small products wait apart, 32 x 32 each; where a block of K is complete they are added, their scale is
taken off, and they join the other blocks' sums.

A panel of a and one of b that halves do not do for are packed again, as bfloat16 parts, and where these do not do either, as
float32 for multiply-adds. So the choice depends on values and sizes, not on threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Final

from flambeau.compiler.emit.builder import Builder, Parameters
from flambeau.compiler.kernel import Function
from flambeau.compiler.kernels.description import Layout, load_words, native
from flambeau.compiler.kernels.float_halves import LOW_BITS, together
from flambeau.compiler.kernels.matmul_driver import Way
from flambeau.compiler.kernels.matmul_element import Facts
from flambeau.compiler.kernels.matmul_halves_pack import HALF_BYTES, KIND, SCALE, SLOT, STEP_BYTES, halves_pack_function
from flambeau.compiler.kernels.matmul_halves_pack import PARTS as PARTS_FLAG
from flambeau.compiler.kernels.matmul_parts import PARTS, STEPS, Form, PartsDriver, Visit, parts_block, parts_words
from flambeau.compiler.kernels.matmul_parts_pack import STEP_BYTES as PARTS_STEP_BYTES
from flambeau.compiler.kernels.matmul_tile_pack import LANES
from flambeau.compiler.kernels.matmul_tiles import SUMS_BYTES, TILES, configuration
from flambeau.compiler.kernels.matrix_unit import choose_tiles, start_tiles, store_tiles, tile_register, tiles_function
from flambeau.runtime.target import Target

# Shorter sums have too few terms to hide what halves lose.
LEAST_K = 128
# Half of a's panel of a block of K, 32 KiB at most, stays in the first-level cache.
_VISIT_STEPS = 8
# A block of b, 16 to 20 panels: with half of the cache c's lines are driven out (768 x 3072 x 768 and 2048 x 1536 x 384 take 2 to 10 % longer),
# with a quarter a is packed too often (1024 x 1024 x 1024: 8 %).
_CACHE_SHARE = 0.375
HALVES = Form("halves", STEP_BYTES, SLOT, 2 * SUMS_BYTES, _VISIT_STEPS, _CACHE_SHARE, halves_pack_function, False)
# Parameters of `halves_otherwise` besides %args: of the driver, of the visit, and whether multiply-adds must do.
_OF_DRIVER = ("scratch", "a", "source_b", "k", "steps", "add")
_OF_VISIT = ("row", "tall", "index", "at", "number", "wide", "left_slot", "right_slot", "waiting", "place", "place_row")
_OTHERWISE: Final = Parameters(
    "args:ptr worker scratch:ptr a:ptr source_b:ptr k steps add:i1 row tall index at number wide left_slot:ptr right_slot:ptr waiting:ptr place:ptr place_row "
    "plain:i1"
)


def form_of(target: Target, k: int) -> Form:
    """How a float32 product of length k is split on a machine. Depends on k only."""
    return HALVES if "float16" in target.matrix_dtypes and k >= LEAST_K else PARTS


def halves_way(facts: Facts, m: int, n: int, k: int, batches: int, host: Target) -> Way:
    """A product by float16 halves."""
    blocking, regions = parts_block(HALVES, m, n, k, batches, host, facts.tile.rows, facts.prepacked)
    left, words = parts_words(facts, regions)
    words |= {f"halves_{operand}": halves_pack_function(facts, operand) for operand in ("a", "b")}
    words |= {"halves_tiles": tiles_function("halves", micro, dispatch, facts.vector_bits)}
    words |= {"panels_a": regions.parts_a, "panels_b": regions.parts_b, "spare": regions.spare}
    late = {"halves_otherwise": partial(_otherwise_function, left)}
    return Way("halves", HalvesDriver, left, blocking, words, constants=[configuration()], late=late)


class HalvesDriver(PartsDriver):
    """The loops around the matrix unit. It calls, by their addresses, `halves_tiles`, `halves_a` and `halves_b`, and where
    halves do not do what PartsDriver calls."""

    form = HALVES

    def visit(self, v: Visit) -> None:
        b = self.b
        known = [tuple(b.load("i32", b.gep("i32", slot, at), 4) for at in (SCALE, KIND)) for slot in (v.left_slot, v.right_slot)]
        fit, scale = together(b, (known[0][0], known[0][1]), (known[1][0], known[1][1]))
        plain = self.mark_plain(v)
        halves = b.op(f"and i1 {fit}, {b.op(f'xor i1 {plain}, true')}")
        with b.if_(halves):
            b.invoke(self.w["halves_tiles"], TILES + "tall wide", v.count, v.left, v.right, v.waiting, v.goes_on, v.tall, v.wide)
            with b.if_(b.op(f"and i1 {v.is_last}, {self.add}")):
                self.put_halves(v, scale, True)
            with b.if_(v.sets):
                self.put_halves(v, scale, False)
        with b.if_(b.op(f"and i1 {b.op(f'xor i1 {halves}, true')}, {v.is_last}")):
            own = {"scratch": self.scratch, "a": self.a, "source_b": self.source_b, "k": self.k, "steps": self.steps, "add": self.add}
            given = {**own, **{name: getattr(v, name) for name in _OF_VISIT}, "plain": plain}
            b.invoke(self.w["halves_otherwise"], _OTHERWISE, "%args", "%worker", *given.values())

    def put_halves(self, v: Visit, scale: str, add: bool) -> None:
        """As put_sums, of both sums."""
        b, type_ = self.b, "<16 x float>"
        small, scales = b.splat("float", 16, str(2.0**-LOW_BITS)), b.splat("float", 16, scale)
        with b.for_(0, v.tall) as i:
            source = b.gep("i8", v.waiting, b.mul(i, 4 * LANES))
            target = b.gep("float", v.place, b.mul(i, v.place_row))
            for at in (0, 64):
                large, rest = (b.load(type_, b.gep("i8", source, at + offset), 64) for offset in (0, SUMS_BYTES))
                block = b.call(type_, "llvm.fma.v16f32", [(type_, rest), (type_, small), (type_, large)])
                block = b.op(f"fmul {type_} {block}, {scales}")
                if add:
                    block = b.op(f"fadd {type_} {b.load(type_, b.gep('i8', target, at), 4)}, {block}")
                b.store(type_, block, b.gep("i8", target, at), 4)

    def multiply_parts(self, v: Visit) -> None:
        """The product of a whole block of K by bfloat16 parts."""
        b = self.b
        size = b.mul(self.steps, PARTS_STEP_BYTES)
        left, right = self.region("panels_a", v.index, size), self.region("panels_b", v.number, size)
        spare = self.region("spare", "0", 1)
        source_a, source_b = self.sources(v)
        self.once(v.left_slot, PARTS_FLAG, lambda: self.pack_panels("parts", "a", source_a, v.tall, left, spare))
        self.once(v.right_slot, PARTS_FLAG, lambda: self.pack_panels("parts", "b", source_b, v.wide, right, spare))
        with b.for_(0, self.steps, STEPS) as start:
            count, offset = b.min(STEPS, b.sub(self.steps, start)), b.mul(start, PARTS_STEP_BYTES)
            goes_on = b.op(f"icmp sgt i64 {start}, 0")
            self.call_tiles(count, b.gep("i8", left, offset), b.gep("i8", right, offset), v.waiting, goes_on, str(4 * LANES), v)
        with b.if_(self.add):
            self.put_sums(v.waiting, v.place, v.place_row, v.tall, True)
        with b.if_(b.op(f"xor i1 {self.add}, true")):
            self.put_sums(v.waiting, v.place, v.place_row, v.tall, False)


def _otherwise_function(facts: Facts, layout: Layout) -> Function:
    """The product of two panels of a whole block of K that halves do not do for. One for all kernels whose words are alike."""
    key = f"matmul:halves:otherwise:{facts.tile.rows}x{facts.tile.vectors}:{facts.batch_dims}:{facts.prepacked}:{facts.vector_bits}"
    return native(key, partial(_otherwise, facts, layout))


def _otherwise(facts: Facts, layout: Layout, symbol: str, b: Builder) -> str:
    driver = HalvesDriver(b, facts, load_words(b, layout), False)
    for name in _OF_DRIVER:
        setattr(driver, name, f"%{name}")
    given = {field.name: f"%{field.name}" for field in fields(Visit)}
    with b.if_("%plain"):
        driver.multiply_plain(Visit(**given))
    with b.if_(b.op("xor i1 %plain, true")):
        driver.multiply_parts(Visit(**given))
    return b.define(symbol, _OTHERWISE, "")


def multiply_halves(b: Builder, count: int, across: bool, load: Callable[[int, str, int, int], None]) -> None:
    """Add the products of a step's halves to `count` tiles of large sums, registers 0 and 1, and of small ones, 2 and 3.

    `load(register, operand, half, tile)` loads a tile of "many", the operand with `count` tiles (registers 4 and 5), or of "one" (6 and
    7: hi and lo). `across`: "many" are b's tiles, else a's.
    """

    def multiply(to: int, left: int, right: int) -> None:
        pair = (right, left) if across else (left, right)
        b.call("void", "llvm.x86.tdpfp16ps", [("i8", str(number)) for number in (to, *pair)])

    load(6, "one", 0, 0)
    for i in range(count):
        load(4 + i, "many", 0, i)
        multiply(i, 4 + i, 6)
    load(7, "one", 1, 0)
    for i in range(count):
        multiply(2 + i, 4 + i, 7)
    for i in range(count):
        load(4 + i, "many", 1, i)
        multiply(2 + i, 4 + i, 6)


def micro(b: Builder, rows: int, columns: int) -> str:
    """Text of `halves_RxC(steps, a, b, sums, add)`: rows x columns tiles of large and of small sums, not 2 x 2 of them: two
    columns of two rows are computed one after the other.

    Registers: 0 and 1 hold large sums, 2 and 3 small ones; 4 and 5 the operand with more tiles, 6 and 7 hi and lo of the
    other one. The two products that a small sum gets in a step are what its latency of 52 cycles allows.
    """
    if rows * columns == 4:
        b.invoke("halves_2x1", TILES, "%steps", "%a", "%b", "%sums", "%add")
        b.invoke("halves_2x1", TILES, "%steps", "%a", b.gep("i8", "%b", HALF_BYTES // 2), b.gep("i8", "%sums", 64), "%add")
        return b.define("halves_2x2", TILES)
    count = rows * columns
    many, one = ("%b", "%a") if columns > rows else ("%a", "%b")

    def sums(number: int) -> list[tuple[str, str]]:
        which, large = number % 2, number < 2
        offset = (0 if large else SUMS_BYTES) + which * (64 if columns > rows else 16 * 4 * LANES)
        return [tile_register(number), ("ptr", b.gep("i8", "%sums", offset)), ("i64", str(4 * LANES))]

    accumulators = [kind + i for kind in (0, 2) for i in range(count)]

    start_tiles(b, accumulators, sums)
    with b.for_(0, "%steps") as s:
        at = b.mul(s, STEP_BYTES)

        def load(number: int, operand: str, half: int, tile: int) -> None:
            panel = many if operand == "many" else one
            source = b.gep("i8", b.gep("i8", panel, at), half * HALF_BYTES + tile * HALF_BYTES // 2)
            b.call("void", "llvm.x86.tileloadd64", [tile_register(number), ("ptr", source), ("i64", "64")])

        multiply_halves(b, count, columns > rows, load)
    store_tiles(b, accumulators, sums)
    return b.define(f"halves_{rows}x{columns}", TILES)


def dispatch(b: Builder, name: str) -> str:
    """Text of `name(steps, a, b, sums, add, tall, wide)`: the least micro-kernel that covers tall x wide results."""
    return choose_tiles(b, name, "halves", TILES)
