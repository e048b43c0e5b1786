"""The matrix unit's tile registers: how sums start in them, and the choice among the micro-kernels of up to 2 x 2 tiles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from flambeau.compiler.emit.builder import Builder, Parameters
from flambeau.compiler.kernel import Function
from flambeau.compiler.kernels.bfloat_parts import PRODUCTS
from flambeau.compiler.kernels.description import native
from flambeau.compiler.kernels.matmul_parts_pack import PART_BYTES

TILES: Final = Parameters("steps a:ptr b:ptr sums:ptr add:i1 row")
TILES_OF_PANELS: Final = TILES + "tall wide"


def tile_register(number: int) -> tuple[str, str]:
    """The operand of an instruction that names a register."""
    return "i8", str(number)


def clear_tiles(b: Builder, registers: Iterable[int]) -> None:
    """Sums of zero."""
    for number in registers:
        b.call("void", "llvm.x86.tilezero", [tile_register(number)])


def start_tiles(b: Builder, registers: Sequence[int], sums: Callable[[int], list[tuple[str, str]]]) -> None:
    """Where `%add` is set, what lies in memory, else zero. `sums(register)`: the operands of its load: register, address, bytes from row to row."""
    with b.if_("%add"):
        for number in registers:
            b.call("void", "llvm.x86.tileloadd64", sums(number))
    with b.if_(b.op("xor i1 %add, true")):
        clear_tiles(b, registers)


def store_tiles(b: Builder, registers: Iterable[int], sums: Callable[[int], list[tuple[str, str]]]) -> None:
    """The sums go to memory; `sums` as of `start_tiles`."""
    for number in registers:
        b.call("void", "llvm.x86.tilestored64", sums(number))


def call_one_of_tiles(b: Builder, which: str, stem: str, arguments: Sequence[tuple[str, str]]) -> None:
    """Call `stem`_RxC of R x C tiles; `which`: 2 * (R - 1) + C - 1."""
    done, labels = b.new_label("done"), [b.new_label("tiles") for _ in range(4)]
    b.emit(f"switch i64 {which}, label %{labels[3]} [{' '.join(f'i64 {i}, label %{labels[i]}' for i in range(3))}]")
    for i, label in enumerate(labels):
        b.label(label)
        b.call("void", f"{stem}_{i // 2 + 1}x{i % 2 + 1}", arguments, declare=False)
        b.branch(done)
    b.label(done)


# -- The micro-kernels of up to 2 x 2 tiles --------------------------------------------------------------------------
def tiles_function(kind: str, write: Callable[..., str], choose: Callable[..., str], vector_bits: int) -> Function:
    """The micro-kernels of up to 2 x 2 tiles that `write` writes, and the choice among them."""
    key = f"matmul:{kind}:tiles:{vector_bits}"
    return native(key, lambda name, b: choose(b, name=name), *[partial(write, rows=r, columns=c) for r in (1, 2) for c in (1, 2)])


def blocks_function(parts: int, vector_bits: int, exchanged: bool = False) -> Function:
    """`tiles_function` of operands of three parts, or of one: bfloat16 itself. `exchanged`: see `micro`."""
    kind = "part" if parts == 1 else "parts" + "_exchanged" * exchanged
    return tiles_function(kind, partial(micro, parts=parts, exchanged=exchanged and parts == 3), dispatch, vector_bits)


def multiply_parts(
    b: Builder, rows: int, columns: int, load: Callable[[str, int, int, str], None], products: Sequence[tuple[int, int]] = PRODUCTS,
    before: Callable[[], None] | None = None,
) -> None:  # fmt: skip
    """Add the products of a step's parts to rows x columns tiles. `load(operand, tile, part, register)` loads a tile of "a" or "b",
    just before its first use; `before` is called before each product."""
    held: dict[tuple[str, int], int] = {}

    def hold(operand: str, tile: int, part: int) -> str:
        number = str(tile + (4 if operand == "a" else 6))
        if held.get((operand, tile)) != part:
            held[operand, tile] = part
            load(operand, tile, part, number)
        return number

    for left, right in products:
        for r, c in ((0, 0), (0, 1), (1, 1), (1, 0)):
            if r < rows and c < columns:
                if before is not None:
                    before()
                operands = [("i8", hold("a", r, left)), ("i8", hold("b", c, right))]
                b.call("void", "llvm.x86.tdpbf16ps", [("i8", str(2 * r + c)), *operands])


def micro(b: Builder, rows: int, columns: int, parts: int = 3, exchanged: bool = False) -> str:
    """Text of `tiles_RxC(steps, a, b, sums, add, row)`: rows x columns tiles of results, their rows `row` bytes apart.

    `exchanged`: a is the product's right operand; parts are multiplied in the order of the product's own operands, so that its bits do not
    tell which way it was computed."""
    products = ((0, 0),) if parts == 1 else tuple([(right, left) for left, right in PRODUCTS]) if exchanged else PRODUCTS
    results = [2 * r + c for r in range(rows) for c in range(columns)]

    def sums(number: int) -> list[tuple[str, str]]:
        r, c = divmod(number, 2)
        at = b.gep("i8", b.gep("i8", "%sums", b.mul("%row", 16 * r)), 64 * c)
        return [tile_register(number), ("ptr", at), ("i64", "%row")]

    start_tiles(b, results, sums)
    with b.for_(0, "%steps") as s:
        at = b.mul(s, parts * PART_BYTES)
        panels = {"a": b.gep("i8", "%a", at), "b": b.gep("i8", "%b", at)}

        def load(operand: str, tile: int, part: int, number: str) -> None:
            source = b.gep("i8", panels[operand], part * PART_BYTES + 1024 * tile)
            b.call("void", "llvm.x86.tileloadd64", [("i8", number), ("ptr", source), ("i64", "64")])

        multiply_parts(b, rows, columns, load, products)
    store_tiles(b, results, sums)
    return b.define(f"tiles_{rows}x{columns}", TILES)


def dispatch(b: Builder, name: str) -> str:
    """Text of `name(steps, a, b, sums, add, row, tall, wide)`: the least micro-kernel that covers tall x wide results."""
    return choose_tiles(b, name, "tiles", TILES)


def choose_tiles(b: Builder, name: str, stem: str, parameters: Parameters) -> str:
    """Text of `name(..., tall, wide)`: calls `stem`_RxC of 16 x 16 tiles with the arguments before."""
    high = b.op(f"select i1 {b.op('icmp sgt i64 %tall, 16')}, i64 2, i64 0")
    which = b.add(high, b.op(f"zext i1 {b.op('icmp sgt i64 %wide, 16')} to i64"))
    call_one_of_tiles(b, which, stem, parameters.arguments)
    return b.define(name, parameters + "tall wide", "")
