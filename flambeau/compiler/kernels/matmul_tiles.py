"""Matrix products by the processor's matrix unit (AMX): 16-bit floats and bytes, accumulated in 32 bits.

A tile register holds 16 rows of 64 bytes. One instruction adds to a 16 x 16 tile of 32-bit results the product of

    a's tile: 16 rows x 64 bytes of k           element (lane, k) at lane * 64 bytes + k
    b's tile: 16 groups of k x 16 columns       element (k, lane) at (k / G) * 64 bytes + lane * 4 bytes + k mod G

where G = 4 bytes / itemsize neighbours of k are multiplied and added at once (Intel Architecture Instruction Set
Extensions Reference, chapter 3). Four results of 32 x 32 stay in registers, so that a loaded tile is used twice.

Panels of them are packed by matmul_tile_pack.py.

    for each block of columns (b_columns)
        for each block of rows (mc)
            for each block of K (kc)                  pack b; meant to stay in the second-level cache
                for each A_ROWS rows                  pack a
                    for each row panel
                        for each part of K (STEPS)    a's part stays in the first-level cache
                            for each column panel     the micro-kernel, whose 32 x 32 sums wait in a buffer
                        after the last block of K: round the sums, store them; the epilogue

The order of additions into an element depends on K only. Rounding is to nearest even, once; denormal float32 sums and
denormal bfloat16 operands count as zero (the instructions do so).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from flambeau.compiler.emit.builder import Builder, Parameters, vector
from flambeau.compiler.kernel import Word
from flambeau.compiler.kernels.description import Writer
from flambeau.compiler.kernels.matmul_blocking import Blocking, ceil_div, grid, round_up
from flambeau.compiler.kernels.matmul_driver import Driver, Way
from flambeau.compiler.kernels.matmul_element import Element, Facts, Tile
from flambeau.compiler.kernels.matmul_micro import STORE_PART, store_part
from flambeau.compiler.kernels.matmul_tile_pack import LANES, STEP_BYTES, tile_pack_function
from flambeau.compiler.kernels.matrix_unit import call_one_of_tiles, start_tiles, store_tiles, tile_register
from flambeau.runtime.target import Target
from flambeau.symbols import at_most, least, maximum, minimum

# Steps between two visits of a column panel, about: a's part of the panel takes 16 KiB of a first-level cache of 48. The
# micro-kernel alone then runs at 90 % of its speed within that cache (measured; 12 steps: 80 %, 16: 70 %).
STEPS = 8
# Rows of a that are packed at once: where its rows are contiguous, 128 bytes of each step of k.
A_ROWS = 64
SUMS_BYTES = 4 * LANES * LANES
TILE = Tile(LANES, 2, 16)
_PRODUCTS = {"bfloat16": "tdpbf16ps", "float16": "tdpfp16ps", "int8": "tdpbssd", "uint8": "tdpbuud", "bool": "tdpbuud"}
ROUNDS_BY = {"bfloat16": "llvm.x86.avx512bf16.cvtneps2bf16.512"}
_CONFIGURATION = bytes([1] + [0] * 15 + [64, 0] * 8 + [0] * 16 + [16] * 8 + [0] * 8)  # palette 1; 8 tiles of 16 x 64
TILES: Final = Parameters("steps a:ptr b:ptr sums:ptr add:i1")


def configuration() -> str:
    """Text of the constant that TileDriver configures the tile registers with."""
    constant = ", ".join(f"i8 {x}" for x in _CONFIGURATION)
    return f"@tile_configuration = internal constant [64 x i8] [{constant}], align 64"


def tile_k_block(element: Element, k: int) -> int:
    """kc. Depends on k and the element only."""
    step = 64 // element.itemsize
    whole = round_up(maximum(k, 1), step)
    return round_up(ceil_div(whole, ceil_div(whole * element.itemsize, 8192)), step)


def prepacked_grid(m: int, n: int, threads: int) -> tuple[int, int, int, int]:
    """As matmul_blocking.grid, where only a must be packed: the grid with the least work for a thread. (Measured: packing a
    panel of a takes as long as its product with two panels of b.)"""
    row_panels, column_panels = ceil_div(m, LANES), ceil_div(n, LANES)

    def work(across: int) -> int:
        return ceil_div(row_panels, ceil_div(threads, across)) * (ceil_div(column_panels, across) + 2)

    across = least(range(1, threads + 1), work)
    nc = ceil_div(column_panels, across) * LANES
    column_blocks = ceil_div(n, nc)
    grain = ceil_div(row_panels, minimum(row_panels, ceil_div(threads, column_blocks)))
    return nc, column_blocks, round_up(row_panels, grain), grain


def waiting_rows(rows: int, one_block: int) -> tuple[int, int]:
    """mc, and row panels whose sums have buffers: where K has many blocks, the sums of all rows of a block wait for the next one."""
    fewer = minimum(rows, 1024)
    mc = fewer + one_block * (rows - fewer)
    return mc, 1 + (1 - one_block) * (ceil_div(mc, LANES) - 1)


def tile_block(element: Element, m: int, n: int, k: int, batches: int, host: Target, prepacked: bool = False) -> Blocking:
    """Blocks of an m x n x k product."""
    step = 64 // element.itemsize
    whole = round_up(maximum(k, 1), step)
    kc = tile_k_block(element, k)
    widest = maximum(1, host.caches[1] // 2 // (kc * element.itemsize) // LANES) * LANES
    if prepacked:
        nc, column_blocks, row_panels, grain = prepacked_grid(m, n, host.workers)
    else:
        nc, column_blocks, row_panels, grain = grid(LANES, LANES, m, n, ceil_div(host.workers, batches), widest)
    b_columns = minimum(nc, round_up(ceil_div(nc, ceil_div(nc, widest)), LANES))
    rows = minimum(grain * LANES, round_up(m, LANES))
    mc, buffers = waiting_rows(rows, at_most(whole, kc))
    a_panels = 0 if prepacked else b_columns * kc * element.itemsize
    scratch = a_panels + A_ROWS * kc * element.itemsize + buffers * b_columns * LANES * 4
    # A thread is worth its start from about 5 microseconds on: 5 million operations.
    return Blocking(
        mc, nc, kc, row_panels, column_blocks, b_columns, a_panels, scratch,
        min_units=maximum(1, 5_000_000 // (2 * LANES * minimum(n, nc) * maximum(k, 1))), direct=False, pack_b=True,
        row_step=LANES, grain=grain,
    )  # fmt: skip


class TileDriver(Driver):
    """The loops around the matrix unit. It calls `pack_a`, `pack_b`, `tiles_RxC`, `store_whole` and `store_part`."""

    part_steps = STEPS

    def __init__(self, b: Builder, facts: Facts, w: dict[str, str], has_epilogue: bool) -> None:
        super().__init__(b, facts, w, has_epilogue)
        # k and bytes of a step of a panel; the steps and bytes of the panels that are worked on, and b's panels of a block
        self.step, self.step_bytes = 64 // facts.element.itemsize, STEP_BYTES
        self.steps = self.panel_bytes = self.column_panels = ""
        self.part = self.panel = ""  # the part of K, and the first column of b's panel in its block, that are worked on

    def write(self) -> None:
        self.b.call("void", "llvm.x86.ldtilecfg", [("ptr", "@tile_configuration")])
        super().write()

    def end(self) -> None:
        self.b.call("void", "llvm.x86.tilerelease", [])

    def rectangle(self, first: str, after: str, a: str, bb: str, k_all: str) -> None:
        """Rows [first, after) times the column block's columns."""
        b, w = self.b, self.w
        blocks = b.max("1", b.op(f"udiv i64 {b.add(k_all, b.sub(w['kc'], 1))}, {w['kc']}"))
        one_block = b.op(f"icmp eq i64 {blocks}, 1")
        self.column_panels = b.op(f"udiv i64 {w['b_columns']}, {LANES}")
        per_panel = b.op(f"select i1 {one_block}, i64 0, i64 {b.mul(self.column_panels, SUMS_BYTES)}")
        buffers = self.sums_buffers()
        with b.for_(0, self.columns, w["b_columns"]) as j:
            width = b.min(w["b_columns"], b.sub(self.columns, j))
            with b.for_(first, after, w["mc"]) as i0:
                i1 = b.min(after, b.add(i0, w["mc"]))
                with b.for_(0, blocks) as block:
                    k0 = b.mul(block, w["kc"])
                    self.k = b.min(w["kc"], b.sub(k_all, k0))
                    self.steps = b.op(f"udiv i64 {b.add(self.k, self.step - 1)}, {self.step}")
                    self.panel_bytes = b.mul(self.steps, self.step_bytes)
                    self.add = b.op(f"icmp sgt i64 {block}, 0")
                    self.is_last = b.op(f"icmp eq i64 {b.add(block, 1)}, {blocks}")
                    self.a, self.bb = self.at(a, k0, w["a_column"]), self.at(bb, k0, w["b_row"])
                    self.take_columns(block, b.add(self.j0, j), width)
                    with b.for_(i0, i1, A_ROWS) as r0:
                        r1 = b.min(i1, b.add(r0, A_ROWS))
                        self.pack_rows(self.at(self.a, r0, w["a_row"]), b.sub(r1, r0))
                        with b.for_(r0, r1, LANES) as row:
                            index = b.op(f"udiv i64 {b.sub(row, r0)}, {LANES}")
                            number = b.op(f"udiv i64 {b.sub(row, i0)}, {LANES}")
                            sums = b.gep("i8", buffers, b.mul(number, per_panel))
                            tall = b.min(LANES, b.sub(r1, row))
                            self.panel_of_rows(row, tall, index, number, j, width, sums)
                            self.finish((row, b.add(row, tall)), (b.add(self.j0, j), b.add(b.add(self.j0, j), width)))

    # -- what a driver of another packing does otherwise --------------------------------------------------------------
    def sums_buffers(self) -> str:
        """Address of the buffers of sums that wait for their last part of K."""
        return self.b.gep("i8", self.panel_a, self.b.mul(self.w["kc"], A_ROWS * self.facts.element.itemsize))

    def take_columns(self, block: str, column: str, width: str) -> None:
        """Have `width` columns of b from `column` on in panels at `panels_b`, for this block of K."""
        if self.facts.prepacked:
            self.panels_b = self.packed_panels(block, column)
        else:
            self.pack("b", self.at(self.bb, column, self.w["b_column"]), width, self.panels_b)

    def packed_panels(self, block: str, column: str) -> str:
        """Address of the panel of b that starts at `column`, where b was packed before (matmul_prepacked.py)."""
        b, w = self.b, self.w
        steps_before = b.mul(block, b.op(f"udiv i64 {w['kc']}, {self.step}"))
        before = b.mul(b.mul(steps_before, w["packed_count"]), self.step_bytes)
        panel = b.mul(b.op(f"udiv i64 {column}, {LANES}"), self.panel_bytes)
        return b.gep("i8", w["packed"], b.add(before, panel))

    def pack_rows(self, source: str, count: str) -> None:
        """Pack `count` rows of a into panels at `panel_a`."""
        self.pack("a", source, count, self.panel_a)

    def panel_of_rows(self, row: str, tall: str, index: str, number: str, j: str, width: str, sums: str) -> None:
        """`tall` rows from `row` on, panel `index` of those packed, `number` of the block of rows, times all packed
        columns. `sums`: buffers."""
        b, steps = self.b, self.steps
        packed = b.gep("i8", self.panel_a, b.mul(index, self.panel_bytes))
        column = b.add(self.j0, j)
        parts = b.max("1", b.op(f"udiv i64 {b.add(steps, self.part_steps // 2)}, {self.part_steps}"))
        longest = b.op(f"udiv i64 {b.sub(b.add(steps, parts), 1)}, {parts}")
        with b.for_(0, parts) as number:
            self.part = number
            start = b.mul(number, longest)
            count = b.max("0", b.min(longest, b.sub(steps, start)))
            add = b.op(f"or i1 {self.add}, {b.op(f'icmp sgt i64 {number}, 0')}")
            last = b.op(f"and i1 {self.is_last}, {b.op(f'icmp eq i64 {b.add(number, 1)}, {parts}')}")
            left = b.gep("i8", packed, b.mul(start, STEP_BYTES))
            with b.for_(0, width, LANES) as at:
                self.panel = at
                number = b.op(f"udiv i64 {at}, {LANES}")
                right = b.gep("i8", self.panels_b, b.add(b.mul(number, self.panel_bytes), b.mul(start, STEP_BYTES)))
                wide = b.min(LANES, b.sub(width, at))
                buffer = b.gep("i8", sums, b.mul(number, SUMS_BYTES))
                target = self.result_at(self.result_at(self.c, row, self.w["c_row"]), b.add(column, at), self.w["c_column"])
                if self.facts.c_unit == "column":
                    with b.if_(last):
                        self.fetch_c(target, tall)
                self.multiply_tiles(count, left, right, buffer, add, tall, wide)
                with b.if_(last):
                    self.store(buffer, target, tall, wide)

    def multiply_tiles(
        self, steps: str, left: str, right: str, buffer: str, add: str, tall: str, wide: str
    ) -> None:  # fmt: skip
        b = self.b
        high = b.op(f"select i1 {b.op(f'icmp sgt i64 {tall}, 16')}, i64 2, i64 0")
        broad = b.op(f"select i1 {b.op(f'icmp sgt i64 {wide}, 16')}, i64 1, i64 0")
        which = b.add(high, broad)
        call_one_of_tiles(b, which, "tiles", [("i64", steps), ("ptr", left), ("ptr", right), ("ptr", buffer), ("i1", add)])

    def fetch_c(self, target: str, tall: str) -> None:
        """Fetch the tile's lines of c to write to (4 to 10 % of products of 384 to 1024 steps)."""
        b = self.b
        with b.for_(0, tall) as i:
            line = self.result_at(target, i, self.w["c_row"])
            b.prefetch(line, write=True)

    def store(self, buffer: str, target: str, tall: str, wide: str) -> None:
        b, w = self.b, self.w
        values = (buffer, LANES, target, w["c_row"], w["c_column"], "false", tall, wide)
        if self.facts.c_unit != "column":
            b.invoke("store_part", STORE_PART, *values)
            return
        whole = b.op(f"icmp eq i64 {wide}, {LANES}")
        with b.if_(whole):
            self.store_rows(buffer, target, tall)
        with b.if_(b.op(f"xor i1 {whole}, true")):
            b.invoke("store_part", STORE_PART, *values)

    def store_rows(self, buffer: str, target: str, tall: str) -> None:
        """Whole rows of 32 results."""
        b, element = self.b, self.facts.element.result
        type_, memory = vector(element.compute, 16), vector(element.memory, 16)
        order = ", ".join(f"i32 {lane}" for lane in range(LANES))
        with b.for_(0, tall) as i:
            source = b.gep("i8", buffer, b.mul(i, 4 * LANES))
            halves = [element.narrow(b, 16, b.load(type_, b.gep("i8", source, 64 * v), 64)) for v in range(2)]
            both = b.op(f"shufflevector {memory} {halves[0]}, {memory} {halves[1]}, <{LANES} x i32> <{order}>")
            b.store(vector(element.memory, LANES), both, self.result_at(target, i, self.w["c_row"]), element.itemsize)


def micro(b: Builder, element: Element, rows: int, columns: int) -> str:
    """Text of `tiles_RxC(steps, a, b, sums, add)`: rows x columns tiles of results, over `steps` of two panels."""
    instruction = f"llvm.x86.{_PRODUCTS[element.name]}"
    results = [2 * r + c for r in range(rows) for c in range(columns)]

    def sums(number: int) -> list[tuple[str, str]]:
        r, c = divmod(number, 2)
        return [tile_register(number), ("ptr", b.gep("i8", "%sums", 16 * (r * 4 * LANES + c * 4))), ("i64", str(4 * LANES))]

    start_tiles(b, results, sums)
    with b.for_(0, "%steps") as s:
        at = b.mul(s, STEP_BYTES)
        for operand, count, first in (("a", rows, 4), ("b", columns, 6)):
            for t in range(count):
                source = b.gep("i8", b.gep("i8", f"%{operand}", at), 1024 * t)
                b.call("void", "llvm.x86.tileloadd64", [tile_register(first + t), ("ptr", source), ("i64", "64")])
        for number in results:
            b.call("void", instruction, [tile_register(number), tile_register(4 + number // 2), tile_register(6 + number % 2)])
    store_tiles(b, results, sums)
    return b.define(f"tiles_{rows}x{columns}", TILES)


def shared_tiles(facts: Facts, flips: bool = False) -> tuple[Facts, dict[str, Word]]:
    """The words of the functions that a kernel calls, and the facts that are left to the kernel itself. `flips`: a's bytes (matmul_tile_pack.py)."""
    return replace(facts, a_unit="any", b_unit="any"), {f"pack_{name}": tile_pack_function(facts, name, flips and name == "a") for name in ("a", "b")}


def of_unit(facts: Facts) -> Facts:
    """Facts of a product whose results are rounded by the instruction that there is with a matrix unit, or with dot instructions."""
    return replace(facts, element=replace(facts.element, rounds_by=ROUNDS_BY.get(facts.element.name, "")), tile=TILE)


def tile_way(facts: Facts, m: int, n: int, k: int, batches: int, host: Target) -> Way:
    """A product of elements that the matrix unit takes."""
    facts = of_unit(facts)
    element = facts.element
    helpers: list[Writer] = [partial(micro, element=element, rows=r, columns=c) for r in (1, 2) for c in (1, 2)]
    helpers.append(partial(store_part, element=element, tile=facts.tile, c_unit=facts.c_unit))
    left, functions = shared_tiles(facts)
    return Way("tiles", TileDriver, left, tile_block(element, m, n, k, batches, host, facts.prepacked), functions, helpers, [configuration()])
