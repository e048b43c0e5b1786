"""Matrix products: the functions of a blocked product.

Micro-kernels and packing take most of the compiler's time and depend on little: they are functions of their own
(`kernel.Function`), which all products share. The kernel itself is the loops around them and the epilogue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from flambeau.compiler.emit.builder import Builder
from flambeau.compiler.kernel import Function, Word
from flambeau.compiler.kernels.description import Writer, native
from flambeau.compiler.kernels.matmul_blocking import block
from flambeau.compiler.kernels.matmul_driver import Driver, Way
from flambeau.compiler.kernels.matmul_element import FEW_ROWS, Element, Tile, few_rows_tile
from flambeau.compiler.kernels.matmul_facts import Facts
from flambeau.compiler.kernels.matmul_micro import micro_kernel, micro_name, store_part
from flambeau.compiler.kernels.matmul_pack import pack
from flambeau.runtime.target import Target
from flambeau.symbols import roughly_less, roughly_over


def tile_dispatch(
    b: Builder, element: Element, tile: Tile, heights: tuple[int, ...], widths: tuple[int, ...],
    names: Callable[[int, int], str], name: str = "tile", linkage: str = "internal",
    fetches_b: bool = False,
) -> str:  # fmt: skip
    """Text of `tile(...)`: the least micro-kernel that covers rows x columns."""
    types = ["i64", "ptr", "i64", "i64", "ptr", "i64", "ptr", "i64", "i64", "i1", "i64", "i64"]
    values = ["k", "a", "a_row", "a_step", "b", "b_step", "c", "c_row", "c_column", "add", "rows", "columns"]
    if fetches_b:
        types.append("i1")
        values.append("fetch")
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
    return b.function(f"define {linkage} void @{name}({text}) noinline #0")


def shared(facts: Facts) -> tuple[Facts, dict[str, Word]]:
    """The words of the functions that a kernel calls, and the facts that are left to the kernel itself."""
    words: dict[str, Word] = {
        "tile": tile_function(facts), "pack_a": pack_function(facts, "a"), "pack_b": pack_function(facts, "b")
    }  # fmt: skip
    if facts.direct:
        return replace(facts, c_unit="any", a_unit="any"), words
    return replace(facts, c_unit="any", b_unit="any"), words


def tile_function(facts: Facts) -> Function:
    """The micro-kernels of a tile size, and the choice among them."""
    element, tile = facts.element, facts.tile
    key = f"matmul:tile:{element.key}:{tile.key}:c={facts.c_unit}{':direct' * facts.direct}:{facts.vector_bits}"
    # Products of few columns are read directly; for the others a last, half empty panel matters little.
    widths = tile.widths if facts.direct else (tile.vectors,)
    helpers: list[Writer] = [
        partial(
            micro_kernel, element=element, tile=tile, height=height, vectors=vectors, packed=not facts.direct,
            name=micro_name(height, vectors), unit_c=facts.c_unit == "column",
            fetches_b=facts.fetches_b,
        )
        for height in tile.heights for vectors in widths
    ]  # fmt: skip
    helpers.append(partial(store_part, element=element, tile=tile, c_unit=facts.c_unit))
    return native(key, lambda name, b: tile_dispatch(b, element, tile, tile.heights, widths, micro_name, name, "", facts.fetches_b), *helpers)


def pack_function(facts: Facts, operand: str) -> Function:
    """The packing of a or b."""
    element, tile = facts.element, facts.tile
    lanes, unit = (tile.rows, facts.a_unit) if operand == "a" else (tile.columns, facts.b_unit)
    key = f"matmul:pack:{element.name}:{lanes}:{tile.width}:{unit}:{facts.vector_bits}"
    return native(key, lambda name, b: pack(b, element, tile.width, lanes, unit, name, linkage=""))


def packed_way(facts: Facts, m: int, n: int, k: int, batches: int, host: Target) -> Way:
    """A product by the vector unit's multiply-adds."""
    element, tile = facts.element, facts.tile
    plain_rows = not element.converts and facts.b_unit == "lane" and element.parts == 1
    few_rows = plain_rows and not roughly_over(m, FEW_ROWS) and not roughly_less(n, m)
    if few_rows:
        facts = replace(facts, tile=few_rows_tile(tile, m, host.registers))
    blocking = block(element, facts.tile, m, n, k, batches, host, few_rows)
    facts, functions = shared(replace(facts, direct=blocking.direct))
    return Way("blocked", Driver, facts, blocking, functions)
