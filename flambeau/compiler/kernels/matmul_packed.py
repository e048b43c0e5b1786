"""Matrix products: the modules of a blocked product.

Micro-kernels and packing take most of the compiler's time and depend on little: they are functions of their own
(`kernel.Function`), which all products share. The kernel itself is the loops around them and the epilogue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from flambeau.compiler.emit.builder import Builder, module
from flambeau.compiler.kernel import Function, Word
from flambeau.compiler.kernels.matmul_driver import Driver, word_names
from flambeau.compiler.kernels.matmul_element import Element, Tile
from flambeau.compiler.kernels.matmul_facts import Epilogue, Facts
from flambeau.compiler.kernels.matmul_micro import micro_kernel, micro_name, store_part
from flambeau.compiler.kernels.matmul_pack import pack
from flambeau.runtime.target import Target


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
    return Function(key, partial(_tile_module, facts, key))


def _tile_module(facts: Facts, key: str, target: Target) -> str:
    from flambeau.runtime.jit import symbol

    element, tile = facts.element, facts.tile
    # Products of few columns are read directly; for the others a last, half empty panel matters little.
    widths = tile.widths if facts.direct else (tile.vectors,)
    writers: list[Callable[[Builder], str]] = [
        partial(
            micro_kernel, element=element, tile=tile, height=height, vectors=vectors, packed=not facts.direct,
            name=micro_name(height, vectors), unit_c=facts.c_unit == "column",
            fetches_b=facts.fetches_b,
        )
        for height in tile.heights for vectors in widths
    ]  # fmt: skip
    writers.append(partial(store_part, element=element, tile=tile, c_unit=facts.c_unit))
    writers.append(lambda b: tile_dispatch(b, element, tile, tile.heights, widths, micro_name, symbol(key), "", facts.fetches_b))
    return module_of(writers, target)


def pack_function(facts: Facts, operand: str) -> Function:
    """The packing of a or b."""
    element, tile = facts.element, facts.tile
    lanes, unit = (tile.rows, facts.a_unit) if operand == "a" else (tile.columns, facts.b_unit)
    key = f"matmul:pack:{element.name}:{lanes}:{tile.width}:{unit}:{facts.vector_bits}"
    return native(key, lambda name, b: pack(b, element, tile.width, lanes, unit, name, linkage=""))


def native(key: str, write: Callable[[str, Builder], str], *helpers: Callable[[Builder], str]) -> Function:
    """The native function whose text `write(name, builder)` gives; `helpers` write what it calls."""
    return Function(key, partial(_native, key, write, helpers))


def _native(key: str, write: Callable[[str, Builder], str], helpers: tuple[Callable[[Builder], str], ...], target: Target) -> str:
    from flambeau.runtime.jit import symbol

    return module_of([*helpers, partial(write, symbol(key))], target)


def module_of(
    writers: Iterable[Callable[[Builder], str]], target: Target, others: Iterable[str] = (),
    epilogue: Epilogue | None = None, first_word: int = 0,
) -> str:  # fmt: skip
    """A module of `others` (text), of the epilogue, whose words are those from `first_word` on, and of the functions that `writers` write with a fresh
    builder each."""
    functions, declared = list(others), set[str]()
    if epilogue is not None:
        functions.append(epilogue.emit("epilogue", first_word, target))
        declared.update(epilogue.declarations(target))
    for write in writers:
        b = Builder(target)
        functions.append(write(b))
        declared.update(b.declarations)
    return module(functions, declared, target)


def packed_module(facts: Facts, epilogue: Epilogue | None, symbol: str, target: Target) -> str:
    """The kernel's text: the loops and the epilogue."""
    return module_of([lambda b: Driver(b, facts, epilogue is not None).write(symbol)], target, (), epilogue, len(word_names(facts)))
