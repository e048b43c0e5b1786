"""Matrix products of float32 by the processor's matrix unit (AMX): six products of bfloat16 parts (bfloat_parts.py).

The unit does 2650 GFLOP/s of bfloat16 a core, a sixth of which, 441, is 2.4 times what float32 multiply-adds can do.
Sums are float32's. Those of a block of K are made apart, by six additions (of 32 products' sum) for each 32 of K, and
then added to the other blocks': errors are no larger than those of the multiply-adds of other machines, whose blocks
have 256 additions.

Panels of parts are packed by matmul_parts_pack.py.

    for each block of columns (b_columns)
        for each block of rows (mc)
            for each block of K (kc)              pack b; meant to stay in the second-level cache
                for each A_ROWS rows              pack a
                    for each row panel
                        for each part of K (STEPS)
                            for each column panel the micro-kernel, whose 32 x 32 sums wait in a buffer
                        add the block's sums to c, or, where a tile is not whole, to a buffer
                        after the last block of K: store such buffers; the epilogue

The unit takes denormals for zero, and the parts of an infinity are not finite. Where the extents of a panel of a and of
one of b tell that this matters, their product is done by float32 multiply-adds, as on machines without the unit: both
panels are packed again (once), and the sums go to the same place. They stay with multiply-adds for the rest of K, which
could otherwise lose a denormal sum. Panels and blocks of K are laid out by sizes only, so the choice depends on values
and sizes, not on threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from flambeau.compiler.emit.builder import Builder
from flambeau.compiler.kernel import Function, Word
from flambeau.compiler.kernels.bfloat_parts import are_safe
from flambeau.compiler.kernels.description import native
from flambeau.compiler.kernels.matmul_blocking import Blocking, ceil_div, grid, round_up
from flambeau.compiler.kernels.matmul_driver import PACK_PARTS, TILE, Way
from flambeau.compiler.kernels.matmul_element import Facts
from flambeau.compiler.kernels.matmul_micro import STORE_PART, store_part
from flambeau.compiler.kernels.matmul_pack import shared
from flambeau.compiler.kernels.matmul_parts_pack import SLOT, STEP, STEP_BYTES, parts_pack_function
from flambeau.compiler.kernels.matmul_tile_pack import LANES
from flambeau.compiler.kernels.matmul_tiles import A_ROWS, SUMS_BYTES, TileDriver, configuration, prepacked_grid, waiting_rows
from flambeau.compiler.kernels.matrix_unit import TILES_OF_PANELS, blocks_function
from flambeau.runtime.target import Target
from flambeau.symbols import at_most, maximum, minimum

# Both panels may come from the second-level cache: the micro-kernel alone runs at 405 to 418 GFLOP/s then, from the
# first level at 420 (measured). So blocks of K are long, which saves visits of c; with 512, errors exceed PyTorch's by 6 %
# where a few large terms make the sum.
_LONGEST = 384
# Steps between two visits of a column panel at most: part of a's panel, 24 KiB, stays in the first-level cache, and storing the
# tiles costs 150 cycles after up to 5 steps, but 900 after 6 or more (measured; the reason is not known).
STEPS = 4
_LONGEST_PLAIN = 256  # additions of a block of K by multiply-adds: as in matmul_blocking.k_block


@dataclass(frozen=True, slots=True)
class Form:
    """What panels hold instead of float32. Bytes: of 32 lanes of a step of k, of a panel's slot, of the sums of 32 x 32 results."""

    name: str
    step_bytes: int
    slot_bytes: int
    sums_bytes: int
    visit_steps: int  # between two visits of a column panel at most
    cache_share: float  # of the second-level cache, for a block of b
    pack: Callable[[Facts, str], Function]
    is_exact: bool  # else panels may have to be packed as bfloat16 parts, too


PARTS = Form("parts", STEP_BYTES, SLOT, SUMS_BYTES, STEPS, 0.5, parts_pack_function, True)


def parts_pay(m: int, n: int, k: int) -> bool:
    """True where packing parts costs less than the matrix unit saves (measured: 1.05 to 1.2 at these borders)."""
    return m >= 32 and n >= 32 and k >= 24 and m * n * k >= 1 << 19


@dataclass(frozen=True, slots=True)
class Regions:
    """What a worker's scratch holds besides the panels of parts: offsets in bytes."""

    extents: int  # of the panels of a, then of those of b
    marks: int  # a byte for each 32 x 32 sums: whether they are in multiply-adds' hands
    plain_a: int  # float32 panels
    plain_b: int
    parts_a: int  # panels of bfloat16 parts, unless all panels are
    parts_b: int
    spare: int  # a slot for these
    block_sums: int  # of a row of tiles, one block of K
    sums: int
    end: int


def parts_k_block(k: int) -> int:
    """kc. Depends on k only."""
    whole = round_up(maximum(k, 1), STEP)
    return round_up(ceil_div(whole, ceil_div(whole, _LONGEST)), STEP)


def parts_block(
    form: Form, m: int, n: int, k: int, batches: int, host: Target, tile_rows: int, prepacked: bool = False
) -> tuple[Blocking, Regions]:  # fmt: skip
    """Blocks of an m x n x k product."""
    panel_bytes = parts_k_block(k) // STEP * form.step_bytes
    whole = round_up(maximum(k, 1), STEP)
    kc = parts_k_block(k)
    widest = maximum(1, int(host.caches[1] * form.cache_share) // panel_bytes) * LANES
    widest += widest // 4  # no thin last block
    if prepacked:
        nc, column_blocks, row_panels, grain = prepacked_grid(m, n, host.workers)
    else:
        nc, column_blocks, row_panels, grain = grid(LANES, LANES, m, n, ceil_div(host.workers, batches), widest)
    b_columns = minimum(nc, round_up(ceil_div(nc, ceil_div(nc, widest)), LANES))
    rows = minimum(grain * LANES, round_up(m, LANES))
    mc, buffers = waiting_rows(rows, at_most(whole, kc))
    column_panels, panels = b_columns // LANES, mc // LANES
    row_panels_packed = A_ROWS // LANES
    a_panels = 0 if prepacked else column_panels * panel_bytes
    extents = a_panels + row_panels_packed * panel_bytes
    marks = extents + (row_panels_packed + column_panels) * form.slot_bytes
    plain_a = marks + round_up(panels * column_panels, 64)
    plain_b = plain_a + row_panels_packed * plain_panel(kc, tile_rows)
    parts_a = plain_b + b_columns * kc * 4
    parts_bytes = 0 if form.is_exact else kc // STEP * STEP_BYTES
    parts_b = parts_a + row_panels_packed * parts_bytes
    spare = parts_b + column_panels * parts_bytes
    block_sums = spare + SLOT
    sums = block_sums + column_panels * form.sums_bytes
    end = sums + column_panels * buffers * SUMS_BYTES
    # A thread is worth its start from about 5 microseconds on: a million operations.
    blocking = Blocking(
        mc, nc, kc, row_panels, column_blocks, b_columns, a_panels, end,
        min_units=maximum(1, 1_000_000 // (2 * LANES * minimum(n, nc) * maximum(k, 1))), direct=False, pack_b=True,
        row_step=LANES, grain=grain,
    )  # fmt: skip
    return blocking, Regions(extents, marks, plain_a, plain_b, parts_a, parts_b, spare, block_sums, sums, end)


def plain_panel(kc: int, tile_rows: int) -> int:
    """Bytes of 32 rows of a as panels of `tile_rows`, and of what packing may write behind them."""
    return round_up(LANES, tile_rows) * kc * 4 + 128


_REGIONS = ("extents", "marks", "plain_a", "plain_b", "block_sums", "sums")


def parts_words(facts: Facts, regions: Regions) -> tuple[Facts, dict[str, Word]]:
    """The facts that are left to the kernel, and the words of the functions that it calls and of the regions."""
    _, words = shared(replace(facts, c_unit="column"))
    words |= {f"parts_{operand}": parts_pack_function(facts, operand) for operand in ("a", "b")}
    words |= {"parts_tiles": blocks_function(3, facts.vector_bits, facts.exchanged), "parts_store": _store_function(facts)}
    words |= {name: getattr(regions, name) for name in _REGIONS}
    return replace(facts, a_unit="any", b_unit="any"), words


def parts_way(facts: Facts, m: int, n: int, k: int, batches: int, host: Target) -> Way:
    """A product by bfloat16 parts."""
    blocking, regions = parts_block(PARTS, m, n, k, batches, host, facts.tile.rows, facts.prepacked)
    left, words = parts_words(facts, regions)
    return Way("parts", PartsDriver, left, blocking, words, constants=[configuration()])


def _store_function(facts: Facts) -> Function:
    """Storing what waits in a buffer."""
    key = f"matmul:parts:store:{facts.c_unit}:{facts.vector_bits}"
    return native(key, lambda name, b: store_part(b, facts.element, facts.tile, facts.c_unit, name, ""))


@dataclass(frozen=True, slots=True)
class Visit:
    """What is known of 32 x 32 results while a part of a block of K is added to them. Addresses and counts are values of the
    kernel's."""

    row: str
    tall: str
    index: str  # of the row panel among those packed
    at: str  # the column, counted in the packed block of b
    number: str  # of the column panel
    wide: str
    start: str  # step of the block of K
    count: str  # of steps
    left_slot: str
    right_slot: str
    left: str
    right: str
    waiting: str  # buffer of the block's sums
    goes_on: str  # i1: there are sums already
    is_last: str  # i1: it is the last part of the block
    sets: str  # i1: and of the first block, whose sums replace what was in c
    whole_block: str  # i1: of the first block, and its only part
    mark: str  # address: whether multiply-adds have taken over
    place: str  # where the sums of all blocks gather
    place_row: str


class PartsDriver(TileDriver):
    """The loops around the matrix unit. It calls, by their addresses, `parts_tiles`, `parts_store`, `parts_a` and
    `parts_b`, and for multiply-adds `tile`, `pack_a` and `pack_b`."""

    form = PARTS

    def __init__(self, b: Builder, facts: Facts, w: dict[str, str], has_epilogue: bool) -> None:
        super().__init__(b, facts, w, has_epilogue)
        self.row_step = str(LANES)  # `facts.tile` is that of the multiply-adds
        self.step, self.step_bytes = STEP, self.form.step_bytes

    def region(self, name: str, index: str, size: str | int) -> str:
        """Address of item `index` of a region of the scratch, of `size` bytes each."""
        return self.b.gep("i8", self.b.gep("i8", self.scratch, self.w[name]), self.b.mul(index, size))

    def sums_buffers(self) -> str:
        self.extents_a = self.region("extents", "0", 1)
        self.extents_b = self.b.gep("i8", self.extents_a, A_ROWS // LANES * self.form.slot_bytes)
        return self.region("sums", "0", 1)

    def take_columns(self, block: str, column: str, width: str) -> None:
        b, w, slot_bytes = self.b, self.w, self.form.slot_bytes
        self.source_b = self.at(self.bb, column, w["b_column"])
        if not self.facts.prepacked:
            self.pack_panels(self.form.name, "b", self.source_b, width, self.panels_b, self.extents_b)
            return
        self.panels_b = self.packed_panels(block, column)
        first = b.add(b.mul(block, w["packed_count"]), b.op(f"udiv i64 {column}, {LANES}"))
        extents = b.gep("i8", w["packed"], b.add(w["packed_extents"], b.mul(first, slot_bytes)))
        with b.for_(0, b.op(f"udiv i64 {b.add(width, LANES - 1)}, {LANES}")) as panel:
            at = b.mul(panel, slot_bytes)
            b.store("<8 x i32>", b.load("<8 x i32>", b.gep("i8", extents, at), 16), b.gep("i8", self.extents_b, at), 16)

    def pack_rows(self, source: str, count: str) -> None:
        self.pack_panels(self.form.name, "a", source, count, self.panel_a, self.extents_a)

    def panel_of_rows(self, row: str, tall: str, index: str, number: str, j: str, width: str, sums: str) -> None:
        b, w, form = self.b, self.w, self.form
        column = b.add(self.j0, j)
        packed = b.gep("i8", self.panel_a, b.mul(index, self.panel_bytes))
        left_slot = b.gep("i8", self.extents_a, b.mul(index, form.slot_bytes))
        marks = self.region("marks", number, self.column_panels)
        in_c = self.facts.c_unit == "column"
        parts = b.max("1", b.op(f"udiv i64 {b.add(self.steps, form.visit_steps - 1)}, {form.visit_steps}"))
        longest = b.op(f"udiv i64 {b.sub(b.add(self.steps, parts), 1)}, {parts}")
        first_block = b.op(f"xor i1 {self.add}, true")
        whole_block = b.op(f"and i1 {b.op(f'icmp eq i64 {parts}, 1')}, {first_block}")
        with b.for_(0, parts) as part_number:
            start = b.mul(part_number, longest)
            count = b.max("0", b.min(longest, b.sub(self.steps, start)))
            offset = b.mul(start, form.step_bytes)
            left = b.gep("i8", packed, offset)
            is_last = b.op(f"icmp eq i64 {b.add(part_number, 1)}, {parts}")
            sets = b.op(f"and i1 {is_last}, {first_block}")
            goes_on = b.op(f"icmp sgt i64 {part_number}, 0")
            with b.for_(0, width, LANES) as at:
                panel_number = b.op(f"udiv i64 {at}, {LANES}")
                right = b.gep("i8", self.panels_b, b.add(b.mul(panel_number, self.panel_bytes), offset))
                right_slot = b.gep("i8", self.extents_b, b.mul(panel_number, form.slot_bytes))
                wide = b.min(LANES, b.sub(width, at))
                target = self.at(self.at(self.c, row, w["c_row"]), b.add(column, at), w["c_column"])
                place, place_row = b.gep("i8", sums, b.mul(panel_number, SUMS_BYTES)), str(LANES)
                waits = is_last
                if in_c:
                    whole = b.op(f"icmp eq i64 {b.add(tall, wide)}, {2 * LANES}")
                    waits = b.op(f"and i1 {is_last}, {b.op(f'xor i1 {whole}, true')}")
                    place = b.op(f"select i1 {whole}, ptr {target}, ptr {place}")
                    place_row = b.op(f"select i1 {whole}, i64 {w['c_row']}, i64 {LANES}")
                waiting = self.region("block_sums", panel_number, form.sums_bytes)
                self.visit(Visit(
                    row, tall, index, at, panel_number, wide, start, count, left_slot, right_slot, left, right, waiting, goes_on,
                    is_last, sets, whole_block, b.gep("i8", marks, panel_number), place, place_row,
                ))  # fmt: skip
                stores = b.op(f"and i1 {waits}, {self.is_last}")
                with b.if_(stores):
                    b.invoke(w["parts_store"], STORE_PART, place, LANES, target, w["c_row"], w["c_column"], "false", tall, wide)

    def visit(self, v: Visit) -> None:
        """Add a part of K to 32 x 32 results, by parts or by multiply-adds."""
        b = self.b
        plain = self.mark_plain(v)
        with b.if_(b.op(f"xor i1 {plain}, true")):
            # Sums that are visited once go where they belong; others wait close together.
            sums = b.op(f"select i1 {v.whole_block}, ptr {v.place}, ptr {v.waiting}")
            sums_row = b.op(f"select i1 {v.whole_block}, i64 {b.mul(v.place_row, 4)}, i64 {4 * LANES}")
            self.call_tiles(v.count, v.left, v.right, sums, v.goes_on, sums_row, v)
            with b.if_(b.op(f"and i1 {v.is_last}, {self.add}")):
                self.put_sums(sums, v.place, v.place_row, v.tall, True)
            waited = b.op(f"and i1 {v.sets}, {b.op(f'xor i1 {v.whole_block}, true')}")
            with b.if_(waited):
                self.put_sums(sums, v.place, v.place_row, v.tall, False)
        with b.if_(b.op(f"and i1 {plain}, {v.is_last}")):
            self.multiply_plain(v)

    def mark_plain(self, v: Visit) -> str:
        """i1: whether multiply-adds must do, which is noted for the following blocks of K."""
        b = self.b
        exponents = [[b.load("i32", b.gep("i32", slot, at), 4) for at in range(2)] for slot in (v.left_slot, v.right_slot)]
        safe = are_safe(b, (exponents[0][0], exponents[0][1]), (exponents[1][0], exponents[1][1]))
        before = b.load("i8", v.mark, 1)
        marked = b.op(f"and i1 {self.add}, {b.op(f'icmp ne i8 {before}, 0')}")
        plain = b.op(f"or i1 {marked}, {b.op(f'xor i1 {safe}, true')}")
        b.store("i8", b.op(f"zext i1 {plain} to i8"), v.mark, 1)
        return plain

    def call_tiles(self, count: str, left: str, right: str, sums: str, goes_on: str, sums_row: str, v: Visit) -> None:
        """The products of `count` steps of parts."""
        self.b.invoke(self.w["parts_tiles"], TILES_OF_PANELS, count, left, right, sums, goes_on, sums_row, v.tall, v.wide)

    def put_sums(self, sums: str, place: str, place_row: str, tall: str, add: bool) -> None:
        """Move a block's sums to `place`, whose rows are `place_row` elements apart, or add them to what is there."""
        b = self.b
        with b.for_(0, tall) as i:
            source = b.gep("i8", sums, b.mul(i, 4 * LANES))
            target = b.gep("float", place, b.mul(i, place_row))
            for v in range(LANES // 16):
                at = b.gep("i8", target, 64 * v)
                block = b.load("<16 x float>", b.gep("i8", source, 64 * v), 64)
                if add:
                    block = b.op(f"fadd <16 x float> {b.load('<16 x float>', at, 4)}, {block}")
                b.store("<16 x float>", block, at, 4)

    def multiply_plain(self, v: Visit) -> None:
        """The product of a whole block of K by multiply-adds."""
        b, w = self.b, self.w
        step, tall, wide, place_row = self.tile.rows, v.tall, v.wide, v.place_row
        size = b.add(b.mul(w["kc"], round_up(LANES, step) * 4), 128)  # plain_panel
        left, right = self.region("plain_a", v.index, size), self.region("plain_b", v.at, b.mul(w["kc"], 4))
        source_a, source_b = self.sources(v)
        self.once(v.left_slot, 2, lambda: self.pack("a", source_a, tall, left))
        self.once(v.right_slot, 2, lambda: self.pack("b", source_b, wide, right))
        with b.for_(0, tall, step) as r:
            high = b.min(step, b.sub(tall, r))
            rows, target = b.gep("float", left, b.mul(r, self.k)), b.gep("float", v.place, b.mul(r, place_row))
            with b.for_(0, self.k, _LONGEST_PLAIN) as k:
                add = b.op(f"or i1 {self.add}, {b.op(f'icmp sgt i64 {k}, 0')}")
                b.invoke(w["tile"], TILE, b.min(_LONGEST_PLAIN, b.sub(self.k, k)), b.gep("float", rows, b.mul(k, step)), "1", step,
                         b.gep("float", right, b.mul(k, LANES)), LANES, target, place_row, "1", add, high, wide)  # fmt: skip

    def sources(self, v: Visit) -> tuple[str, str]:
        """Addresses of the row panel in a and of the column panel in b, in the block of K."""
        return self.at(self.a, v.row, self.w["a_row"]), self.at(self.source_b, v.at, self.w["b_column"])

    def once(self, slot: str, flag: int, pack: Callable[[], None]) -> None:
        """Pack a panel otherwise, if this was not done since it was packed. `flag`: which i32 of its slot says so."""
        b = self.b
        done = b.gep("i32", slot, flag)
        with b.if_(b.op(f"icmp eq i32 {b.load('i32', done, 4)}, 0")):
            pack()
            b.store("i32", "1", done, 4)

    def pack_panels(self, kind: str, operand: str, source: str, count: str, target: str, slots: str) -> None:
        """Pack `count` lanes of an operand, into panels of parts or halves."""
        strides = ("a_row", "a_column") if operand == "a" else ("b_column", "b_row")
        self.b.invoke(self.w[f"{kind}_{operand}"], PACK_PARTS, source, self.w[strides[0]], self.w[strides[1]], count, self.k, target, slots)
