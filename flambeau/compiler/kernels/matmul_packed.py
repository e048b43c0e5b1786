"""Matrix products: the module of a blocked product: micro-kernels, packing, the loops around them, the epilogue."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from flambeau.compiler.emit.builder import Builder, module
from flambeau.compiler.kernels.matmul_driver import Driver, word_names
from flambeau.compiler.kernels.matmul_element import Element, Tile
from flambeau.compiler.kernels.matmul_facts import Epilogue, Facts
from flambeau.compiler.kernels.matmul_micro import micro_kernel, micro_name, store_part
from flambeau.compiler.kernels.matmul_pack import pack


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
    define(lambda b: Driver(b, facts, epilogue is not None).write(symbol))
    if epilogue is not None:
        functions.append(epilogue.emit("epilogue", len(word_names(facts))))
        declarations.update(epilogue.declarations())
    return module(functions, declarations, facts.vector_bits)
