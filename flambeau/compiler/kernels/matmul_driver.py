"""Matrix products: the loops around the micro-kernels (Goto and van de Geijn 2008; the five loops of BLIS).

    for each column block of each batch item        a thread's range of units: row panels of some column blocks
        for each block of K (kc)
            packed: for each b block (b_columns)    pack kc x b_columns of b: meant to stay in the second-level cache
                        for each row panel          pack it: meant to stay in the first-level cache
                            for each column panel   the micro-kernel
                            the epilogue, after the last block of K, on rows of c that are still in cache
            direct: for each row block (mc)
                        for each column panel       pack it only if it is narrow or `pack_b` says so
                            for each row panel      read where it lies; the micro-kernel
                        the epilogue, now and then

A unit is one row panel of one column block of one batch item. The order of additions into an element of the product
depends on K and kc only, never on how the units are handed out. All sizes and strides are run-time words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from flambeau.compiler.emit.builder import Builder, Parameters
from flambeau.compiler.kernel import Function, Word
from flambeau.compiler.kernels.description import Body, Layout, Writer
from flambeau.compiler.kernels.matmul_blocking import Blocking
from flambeau.compiler.kernels.matmul_element import Facts, batch_addresses, call_epilogue, k_of_batch

# What the functions take that a driver calls.
PACK: Final = Parameters("source* lane_stride k_stride count k panels*")
PACK_PARTS: Final = PACK + "extents*"
TILE: Final = Parameters("k a:ptr a_row a_step b:ptr b_step c:ptr c_row c_column add:i1 rows columns")
TILE_FETCHING: Final = TILE + "fetch:i1"


@dataclass(frozen=True, slots=True)
class Way:
    """How a product is computed by blocks. `words`: beside those of all products and of the blocks; `late`: functions that read words, those of the
    product before them."""

    kind: str
    driver: type[Driver]
    facts: Facts
    blocking: Blocking
    words: dict[str, Word]
    helpers: Sequence[Writer] = ()
    constants: Sequence[str] = ()
    late: Mapping[str, Callable[[Layout], Function]] = field(default_factory=dict)

    def write(self, has_epilogue: bool) -> Body:
        """What writes the kernel's body."""
        return partial(_drive, self.driver, self.facts, has_epilogue)


def _drive(driver: type[Driver], facts: Facts, has_epilogue: bool, b: Builder, w: dict[str, str]) -> None:
    driver(b, facts, w, has_epilogue).write()


class Driver:
    """Writes the body of a kernel. It calls `epilogue`, and by their addresses `tile`, `pack_a` and `pack_b`."""

    def __init__(self, b: Builder, facts: Facts, w: dict[str, str], has_epilogue: bool) -> None:
        self.b, self.facts, self.w, self.tile, self.has_epilogue = b, facts, w, facts.tile, has_epilogue
        self.scratch = self.panels_b = b.gep("i8", w["scratch"], b.mul("%worker", w["scratch_bytes"]))
        self.panel_a = b.gep("i8", self.scratch, w["a_panels"])
        self.row_step = w["row_step"] if facts.direct else str(self.tile.rows)
        # The batch item, column block and block of K that are being worked on: see `group`.
        self.batch = self.a = self.bb = self.c = self.j0 = self.columns = self.k = self.add = self.is_last = ""

    def write(self) -> None:
        b, row_panels = self.b, self.w["row_panels"]
        end = b.op(f"udiv i64 {b.add('%end', b.sub(row_panels, 1))}, {row_panels}")
        with b.for_(b.op(f"udiv i64 %begin, {row_panels}"), end) as i:
            self.group(i)
        self.end()

    def end(self) -> None:
        """What the function does last."""

    def group(self, number: str) -> None:
        """Consecutive row panels of one column block of one batch item."""
        b, w = self.b, self.w
        start = b.mul(number, w["row_panels"])
        first = b.mul(b.max("0", b.sub("%begin", start)), self.row_step)
        after = b.min(w["m"], b.mul(b.min(w["row_panels"], b.sub("%end", start)), self.row_step))
        self.batch = b.op(f"udiv i64 {number}, {w['column_blocks']}")
        self.j0 = b.mul(b.op(f"urem i64 {number}, {w['column_blocks']}"), w["nc"])
        self.columns = b.min(w["nc"], b.sub(w["n"], self.j0))
        a, bb, self.c = batch_addresses(b, self.facts, w, self.batch)
        self.rectangle(first, after, a, bb, k_of_batch(b, w, self.batch))

    def rectangle(self, first: str, after: str, a: str, bb: str, k_all: str) -> None:
        """Rows [first, after) times the column block's columns; a and b at `a` and `bb`."""
        b, w = self.b, self.w
        blocks = b.max("1", b.op(f"udiv i64 {b.add(k_all, b.sub(w['kc'], 1))}, {w['kc']}"))
        with b.for_(0, blocks) as block:
            k0 = b.mul(block, w["kc"])
            self.k = b.min(w["kc"], b.sub(k_all, k0))
            self.add = b.op(f"icmp sgt i64 {block}, 0")
            self.is_last = b.op(f"icmp eq i64 {b.add(block, 1)}, {blocks}")
            self.a, self.bb = self.at(a, k0, w["a_column"]), self.at(bb, k0, w["b_row"])
            if self.facts.direct:
                with b.for_(first, after, w["mc"]) as i0:
                    self.direct(i0, b.min(w["mc"], b.sub(after, i0)))
            else:
                with b.for_(0, self.columns, w["b_columns"]) as j:
                    self.packed(j, first, after)

    # -- operands packed ----------------------------------------------------------------------------------------
    def packed(self, j: str, first: str, after: str) -> None:
        """Rows [first, after) times a block of b: its columns from `j` on, counted in the column block."""
        b, w, tile = self.b, self.w, self.tile
        parts, compute = self.facts.element.parts, self.facts.element.compute
        column = b.add(self.j0, j)
        width = b.min(w["b_columns"], b.sub(self.columns, j))
        enters = b.op(f"icmp slt i64 {first}, {after}")  # a padded range of units may have no rows
        with b.if_(enters):
            self.pack("b", self.at(self.bb, column, w["b_column"]), width, self.panels_b)
        with b.for_(first, after, tile.rows) as row:
            tall = b.min(tile.rows, b.sub(after, row))
            self.pack("a", self.at(self.a, row, w["a_row"]), tall, self.panel_a)
            next_a = self.at(self.a, b.add(row, tile.rows), w["a_row"])
            with b.for_(0, width, tile.columns) as j:
                self.fetch_a(next_a, b.op(f"udiv i64 {j}, {tile.columns}"))
                right = b.gep(compute, self.panels_b, b.mul(b.mul(j, self.k), parts))
                left = (self.panel_a, "1", str(tile.rows * parts))
                wide = b.min(tile.columns, b.sub(width, j))
                self.multiply(left, (right, str(tile.columns * parts)), row, b.add(column, j), tall, wide)
            self.finish((row, b.add(row, tall)), (column, b.add(column, width)))

    def fetch_a(self, source: str, number: str) -> None:
        """Tile `number` of a row of tiles fetches a part of the next panel of a: a row of it, or 16 steps of k.

        (Measured: 2 to 4 % of a product of 512. The hardware does not foresee the jump to the next rows.)
        """
        b, w, facts = self.b, self.w, self.facts
        size, parts = facts.element.memory_bytes, facts.element.parts
        if facts.a_unit == "none" or parts == 2:
            return
        if facts.a_unit == "k":  # blocks of K have at most 256 steps, but where elements are converted
            wanted, start = b.op(f"icmp slt i64 {number}, {self.tile.rows}"), b.mul(number, w["a_row"])
            count, step = 256 * size // 64, str(64 // size)
        else:
            steps = b.mul(number, 16)
            wanted, start = b.op(f"icmp slt i64 {steps}, {self.k}"), b.mul(steps, w["a_column"])
            count, step = 16, w["a_column"]
        with b.if_(wanted):
            line = b.gep(facts.element.memory, source, start)
            for _ in range(count):
                b.prefetch(line)
                line = b.gep(facts.element.memory, line, step)

    # -- operands read where they lie ---------------------------------------------------------------------------
    def direct(self, i0: str, rows: str) -> None:
        """Rows [i0, i0 + rows) times all columns of the column block."""
        b, w, tile = self.b, self.w, self.tile
        pack_b = b.op(f"icmp ne i64 {w['packs_b']}, 0")
        with b.for_(0, self.columns, w["b_columns"]) as j_first:
            j_end = b.min(self.columns, b.add(j_first, w["b_columns"]))
            with b.for_(j_first, j_end, tile.columns) as j:
                column = b.add(self.j0, j)
                wide = b.min(tile.columns, b.sub(self.columns, j))
                source = self.at(self.bb, column, w["b_column"])
                packs = "true"  # a micro-kernel reads as many columns as it has: a last panel of another width is packed
                if self.facts.b_unit == "lane":
                    for vectors in tile.widths:
                        odd = b.op(f"icmp ne i64 {wide}, {vectors * tile.width}")
                        packs = odd if packs == "true" else b.op(f"and i1 {packs}, {odd}")
                    packs = b.op(f"or i1 {packs}, {pack_b}")
                with b.if_(packs):
                    self.pack("b", source, wide, self.panels_b)
                right = b.op(f"select i1 {packs}, ptr {self.panels_b}, ptr {source}")
                b_step = b.op(f"select i1 {packs}, i64 {tile.columns}, i64 {w['b_row']}")
                is_first = b.op(f"icmp eq i64 {j}, 0")
                with b.for_(0, rows, self.row_step) as i:
                    row = b.add(i0, i)
                    tall = b.min(self.row_step, b.sub(rows, i))
                    source = self.at(self.a, row, w["a_row"])
                    # A micro-kernel reads as many rows as it has: a last panel of another height is packed, once.
                    odd = "true"
                    for height in tile.heights:
                        odd = b.op(f"select i1 {b.op(f'icmp eq i64 {tall}, {height}')}, i1 false, i1 {odd}")
                    with b.if_(b.op(f"and i1 {is_first}, {odd}")):
                        self.pack("a", source, tall, self.panel_a)
                    left = (
                        b.op(f"select i1 {odd}, ptr {self.panel_a}, ptr {source}"),
                        b.op(f"select i1 {odd}, i64 1, i64 {w['a_row']}"),
                        b.op(f"select i1 {odd}, i64 {tile.rows}, i64 {w['a_column']}"),
                    )
                    self.multiply(left, (right, b_step), row, column, tall, wide, b.op(f"icmp eq i64 {i}, 0"))
            self.finish((i0, b.add(i0, rows)), (b.add(self.j0, j_first), b.add(self.j0, j_end)))

    # -- calls --------------------------------------------------------------------------------------------------
    def at(self, pointer: str, index: str, stride: str) -> str:
        """Address of an element of the operand's memory type, complex ones counted whole."""
        element = self.facts.element
        return self.b.gep(element.memory, pointer, self.b.mul(self.b.mul(index, stride), element.parts))

    def result_at(self, pointer: str, index: str, stride: str) -> str:
        """Address of an element of the result."""
        element = self.facts.element
        return self.b.gep(element.result.memory, pointer, self.b.mul(self.b.mul(index, stride), element.parts))

    def pack(self, operand: str, source: str, count: str, target: str) -> None:
        strides = ("a_row", "a_column") if operand == "a" else ("b_column", "b_row")
        self.b.invoke(self.w[f"pack_{operand}"], PACK, source, self.w[strides[0]], self.w[strides[1]], count, self.k, target)

    def multiply(
        self, left: tuple[str, str, str], right: tuple[str, str], row: str, column: str, tall: str, wide: str,
        fetch: str = "",
    ) -> None:  # fmt: skip
        """One tile: `left` is (address, row stride, step) of a, `right` (address, step) of b."""
        w = self.w
        target = self.result_at(self.result_at(self.c, row, w["c_row"]), column, w["c_column"])
        values = (self.k, *left, *right, target, w["c_row"], w["c_column"], self.add, tall, wide)
        if self.facts.fetches_b:
            self.b.invoke(w["tile"], TILE_FETCHING, *values, fetch)
        else:
            self.b.invoke(w["tile"], TILE, *values)

    def finish(self, rows: tuple[str, str], columns: tuple[str, str]) -> None:
        """The epilogue on a rectangle, if this was its last block of K."""
        if self.has_epilogue:
            with self.b.if_(self.is_last):
                call_epilogue(self.b, self.facts, self.w, self.batch, rows, columns)
