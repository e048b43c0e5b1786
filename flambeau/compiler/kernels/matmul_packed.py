"""Matrix products: the blocked product over packed panels (Goto and van de Geijn 2008; the five loops of BLIS).

    for each column block (nc)                      a thread's range of units: row panels of some column blocks
        for each block of K (kc)
            for each row block (mc)                 its packed a, mc x kc, is meant to stay in the second-level cache
                for each column panel               pack kc x columns of b: meant to stay in the first-level cache
                    for each row panel              pack it, if this is the first column panel; the micro-kernel
                after the last block of K: the epilogue, on a rectangle that is still in cache

A unit is one row panel of one column block of one batch item. The order of additions into an element of the product
depends on K and kc only, never on how the units are handed out. All sizes and strides are run-time words.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from flambeau.compiler.emit.builder import KERNEL_HEADER, Builder, module
from flambeau.compiler.kernels.matmul_element import Element, Tile
from flambeau.compiler.kernels.matmul_facts import (
    Epilogue,
    Facts,
    batch_addresses,
    batch_names,
    call_epilogue,
    k_of_batch,
    load_words,
)
from flambeau.compiler.kernels.matmul_micro import micro_kernel, micro_name, store_part
from flambeau.compiler.kernels.matmul_pack import pack


def word_names(facts: Facts) -> list[str]:
    """Names of the words before the epilogue's, in order."""
    text = (
        "a b c scratch m n k a_row a_column b_row b_column c_row c_column mc nc kc row_panels column_blocks "
        "epilogue_columns scratch_bytes a_panels rows_per_batch pack_b splits "
        "k_total row_step"
    )
    return text.split() + batch_names(facts)


def tile_dispatch(
    b: Builder, element: Element, tile: Tile, heights: tuple[int, ...], widths: tuple[int, ...],
    names: Callable[[int, int], str],
) -> str:  # fmt: skip
    """Text of `tile(...)`: the least micro-kernel that covers rows x columns."""
    types = ["i64", "ptr", "i64", "i64", "ptr", "i64", "ptr", "i64", "i64", "i1", "i64", "i64"]
    values = ["k", "a", "a_row", "a_step", "b", "b_step", "c", "c_row", "c_column", "add", "rows", "columns"]
    arguments = [(type_, f"%{value}") for type_, value in zip(types, values, strict=True)]
    done = b.new_label("done")

    def by_height(vectors: int, left: list[int]) -> None:
        # `left`: heights tallest first; the first one is taken if rows exceed the second.
        if len(left) == 1:
            b.call("void", names(left[0], vectors), arguments, declare=False)
            b.branch(done)
            return
        yes, no = b.new_label("tall"), b.new_label("low")
        b.emit(f"br i1 {b.op(f'icmp sgt i64 %rows, {left[1]}')}, label %{yes}, label %{no}")
        b.label(yes)
        b.call("void", names(left[0], vectors), arguments, declare=False)
        b.branch(done)
        b.label(no)
        by_height(vectors, left[1:])

    def by_width(left: list[int]) -> None:
        if len(left) == 1:
            by_height(left[0], list(heights))
            return
        yes, no = b.new_label("wide"), b.new_label("narrow")
        b.emit(f"br i1 {b.op(f'icmp sgt i64 %columns, {left[1] * tile.width}')}, label %{yes}, label %{no}")
        b.label(yes)
        by_height(left[0], list(heights))
        b.label(no)
        by_width(left[1:])

    by_width(list(widths))
    b.label(done)
    text = ", ".join(f"{type_} {value}" for type_, value in arguments)
    return b.function(f"define internal void @tile({text}) noinline #0")


def packed_module(facts: Facts, epilogue: Epilogue | None, symbol: str) -> str:
    """The whole module's text for the blocked product."""
    element, tile = facts.element, facts.tile
    functions: list[str] = []
    declarations: set[str] = set()

    def define(write: Callable[[Builder], str]) -> None:
        b = Builder()
        functions.append(write(b))
        declarations.update(b.declarations)

    # Products of few columns are read directly; for the others a last, half empty panel matters little.
    widths = tuple(range(tile.vectors, 0, -1)) if facts.direct else (tile.vectors,)
    unit_c = facts.c_unit == "column"
    for height in tile.heights:
        for vectors in widths:
            name = micro_name(height, vectors)
            define(partial(
                micro_kernel, element=element, tile=tile, height=height, vectors=vectors, packed=not facts.direct,
                name=name, unit_c=unit_c,
            ))  # fmt: skip
    define(lambda b: tile_dispatch(b, element, tile, tile.heights, widths, micro_name))
    define(lambda b: store_part(b, element, tile, facts.c_unit))
    define(lambda b: pack(b, element, tile.width, tile.rows, facts.a_unit, "pack_a"))
    define(lambda b: pack(b, element, tile.width, tile.columns, facts.b_unit, "pack_b"))
    define(lambda b: _driver(b, facts, epilogue is not None, symbol))
    if epilogue is not None:
        functions.append(epilogue.emit("epilogue", len(word_names(facts))))
        declarations.update(epilogue.declarations())
    return module(functions, declarations, facts.vector_bits)


def _driver(b: Builder, facts: Facts, has_epilogue: bool, symbol: str) -> str:
    element, tile = facts.element, facts.tile
    parts, memory, compute = element.parts, element.memory, element.compute
    w = load_words(b, word_names(facts))
    scratch = b.gep("i8", w["scratch"], b.mul("%worker", w["scratch_bytes"]))
    panel_b, panels_a = scratch, b.gep("i8", scratch, w["a_panels"])
    row_panels = w["row_panels"]
    row_step = w["row_step"] if facts.direct else str(tile.rows)
    pack_b_flag = b.op(f"icmp ne i64 {w['pack_b']}, 0")

    def macro(
        a: str, bb: str, c: str, add: str, is_last: str, batch: str, k: str, i0: str, rows: str, j0: str, columns: str
    ) -> None:
        """Rows [i0, i0 + rows) of a times columns [j0, j0 + columns) of b, over one block of K.

        A panel of b is packed just before its use and dropped after it; one of a when the first panel of b meets it.
        """

        def chunk(j_first: str) -> None:
            j_end = b.min(columns, b.add(j_first, w["epilogue_columns"]))

            def column_panel(j: str) -> None:
                wide = b.min(tile.columns, b.sub(columns, j))
                source_b = b.gep(memory, bb, b.mul(b.mul(b.add(j0, j), w["b_column"]), parts))
                packs_b = "true"
                if facts.direct and facts.b_unit == "lane":
                    packs_b = b.op(f"or i1 {pack_b_flag}, {b.op(f'icmp ne i64 {wide}, {tile.columns}')}")
                b.when(packs_b, lambda: pack_b(source_b, wide, k))
                right = b.op(f"select i1 {packs_b}, ptr {panel_b}, ptr {source_b}")
                b_step = b.op(f"select i1 {packs_b}, i64 {tile.columns * parts}, i64 {w['b_row']}")
                is_first = b.op(f"icmp eq i64 {j}, 0")

                def row_panel(i: str) -> None:
                    # Read where it lies, at most one row panel, the last one, is packed: it needs no offset.
                    panel_a = panels_a if facts.direct else b.gep(compute, panels_a, b.mul(b.mul(i, k), parts))
                    tall = b.min(row_step, b.sub(rows, i))
                    row = b.add(i0, i)
                    source_a = b.gep(memory, a, b.mul(b.mul(row, w["a_row"]), parts))
                    if facts.direct:
                        # A tile reads as many rows as its micro-kernel has: other counts must be packed, which fills
                        # up.
                        odd = "true"
                        for height in tile.heights:
                            odd = b.op(f"select i1 {b.op(f'icmp eq i64 {tall}, {height}')}, i1 false, i1 {odd}")
                        packs = odd
                    else:
                        packs = "true"
                    b.when(b.op(f"and i1 {is_first}, {packs}"), lambda: pack_a(source_a, tall, k, panel_a))
                    at = b.add(b.mul(row, w["c_row"]), b.mul(b.add(j0, j), w["c_column"]))
                    left = b.op(f"select i1 {packs}, ptr {panel_a}, ptr {source_a}")
                    a_row = b.op(f"select i1 {packs}, i64 1, i64 {w['a_row']}")
                    a_step = b.op(f"select i1 {packs}, i64 {tile.rows * parts}, i64 {w['a_column']}")
                    b.call("void", "tile", [
                        ("i64", k), ("ptr", left), ("i64", a_row), ("i64", a_step), ("ptr", right), ("i64", b_step),
                        ("ptr", b.gep(memory, c, b.mul(at, parts))), ("i64", w["c_row"]), ("i64", w["c_column"]),
                        ("i1", add), ("i64", tall), ("i64", wide),
                    ], declare=False)  # fmt: skip

                b.loop(0, rows, row_step, row_panel)

            b.loop(j_first, j_end, tile.columns, column_panel)
            if has_epilogue:
                b.when(is_last, lambda: call_epilogue(
                    b, facts, w, batch, (i0, b.add(i0, rows)), (b.add(j0, j_first), b.add(j0, j_end)))
                )  # fmt: skip

        b.loop(0, columns, w["epilogue_columns"], chunk)

    def pack_b(source: str, columns: str, k: str) -> None:
        b.call("void", "pack_b", [
            ("ptr", source), ("i64", w["b_column"]), ("i64", w["b_row"]), ("i64", columns), ("i64", k),
            ("ptr", panel_b),
        ], declare=False)  # fmt: skip

    def pack_a(source: str, rows: str, k: str, target: str) -> None:
        b.call("void", "pack_a", [
            ("ptr", source), ("i64", w["a_row"]), ("i64", w["a_column"]), ("i64", rows), ("i64", k), ("ptr", target),
        ], declare=False)  # fmt: skip

    def group(g: str) -> None:
        """Consecutive row panels of one column block of one batch item."""
        start = b.mul(g, row_panels)
        first = b.mul(b.max("0", b.sub("%begin", start)), row_step)
        after = b.min(w["m"], b.mul(b.min(row_panels, b.sub("%end", start)), row_step))
        batch = b.op(f"udiv i64 {g}, {w['column_blocks']}")
        j0 = b.mul(b.op(f"urem i64 {g}, {w['column_blocks']}"), w["nc"])
        columns = b.min(w["nc"], b.sub(w["n"], j0))
        a, bb, c = batch_addresses(b, facts, w, batch)
        k_all = k_of_batch(b, w, batch)
        k_blocks = b.max("1", b.op(f"udiv i64 {b.add(k_all, b.sub(w['kc'], 1))}, {w['kc']}"))

        def k_block(block: str) -> None:
            k0 = b.mul(block, w["kc"])
            k = b.min(w["kc"], b.sub(k_all, k0))
            add = b.op(f"icmp sgt i64 {block}, 0")
            is_last = b.op(f"icmp eq i64 {b.add(block, 1)}, {k_blocks}")
            a_k = b.gep(memory, a, b.mul(b.mul(k0, w["a_column"]), parts))
            b_k = b.gep(memory, bb, b.mul(b.mul(k0, w["b_row"]), parts))

            def row_block(i0: str) -> None:
                macro(a_k, b_k, c, add, is_last, batch, k, i0, b.min(w["mc"], b.sub(after, i0)), j0, columns)

            b.loop(first, after, w["mc"], row_block)

        b.loop(0, k_blocks, 1, k_block)

    groups_end = b.op(f"udiv i64 {b.add('%end', b.sub(row_panels, 1))}, {row_panels}")
    b.loop(b.op(f"udiv i64 %begin, {row_panels}"), groups_end, 1, group)
    return b.function(KERNEL_HEADER.format(name=symbol), "ret i64 0")
