"""Convolutions by the matrix unit with images side by side: what their micro-kernels are made of.

A micro-kernel multiplies steps of convolution_image_pack.py and keeps up to 2 x 2 tiles of results; its results go to 32 x 32 sums.
"""

from __future__ import annotations

from collections.abc import Sequence

from flambeau.compiler.emit.builder import Builder
from flambeau.compiler.kernels.bfloat_parts import PRODUCTS
from flambeau.compiler.kernels.matmul_parts_pack import PART_BYTES
from flambeau.compiler.kernels.matmul_tile_pack import LANES

_WIDTH = 16


def _register(number: int) -> tuple[str, str]:
    return "i8", str(number)


def clear_tiles(b: Builder, high: int, broad: int) -> None:
    """Set the results to zero."""
    for r in range(high):
        for c in range(broad):
            b.call("void", "llvm.x86.tilezero", [_register(2 * r + c)])


def store_tiles(b: Builder, sums: str, high: int, broad: int) -> None:
    """Store the results in 32 x 32 sums."""
    for r in range(high):
        for c in range(broad):
            at = b.gep("i8", sums, 16 * (r * 4 * LANES + c * 4))
            b.call("void", "llvm.x86.tilestored64", [_register(2 * r + c), ("ptr", at), ("i64", str(4 * LANES))])


def multiply_step(b: Builder, left: str, right: str, high: int, broad: int) -> None:
    """Add the products of two steps to the results."""
    steps = {"left": left, "right": right}
    held: dict[tuple[str, int], int] = {}

    def hold(operand: str, tile: int, part: int) -> str:
        number = tile + (4 if operand == "left" else 6)
        if held.get((operand, tile)) != part:  # loaded just before its first use
            held[operand, tile] = part
            source = b.gep("i8", steps[operand], part * PART_BYTES + 1024 * tile)
            b.call("void", "llvm.x86.tileloadd64", [_register(number), ("ptr", source), ("i64", "64")])
        return str(number)

    for part_left, part_right in PRODUCTS:
        for r, c in ((0, 0), (0, 1), (1, 1), (1, 0)):
            if r < high and c < broad:
                operands = [("i8", hold("left", r, part_left)), ("i8", hold("right", c, part_right))]
                b.call("void", "llvm.x86.tdpbf16ps", [_register(2 * r + c), *operands])


def choose_tiles(name: str, arguments: Sequence[tuple[str, str]], b: Builder) -> str:
    """Text of `name(arguments, tall, wide)`: the least of `tiles_1x1` to `tiles_2x2` that covers tall x wide results."""
    high = b.op(f"select i1 {b.op('icmp sgt i64 %tall, 16')}, i64 2, i64 0")
    which = b.add(high, b.op(f"zext i1 {b.op('icmp sgt i64 %wide, 16')} to i64"))
    done, labels = b.new_label("done"), [b.new_label("tiles") for _ in range(4)]
    b.emit(f"switch i64 {which}, label %{labels[3]} [{' '.join(f'i64 {i}, label %{labels[i]}' for i in range(3))}]")
    for i, label in enumerate(labels):
        b.label(label)
        b.call("void", f"tiles_{i // 2 + 1}x{i % 2 + 1}", arguments, declare=False)
        b.branch(done)
    b.label(done)
    text = ", ".join(f"{type_} {value}" for type_, value in [*arguments, ("i64", "%tall"), ("i64", "%wide")])
    return b.function(f"define void @{name}({text}) noinline #0")


def add_sums(b: Builder, sums: str, to: str, tall: str) -> None:
    """Add `tall` rows of 32 sums to others."""
    floats = f"<{_WIDTH} x float>"

    def add(i: str) -> None:
        for v in range(LANES // _WIDTH):
            at = b.add(b.mul(i, 4 * LANES), 64 * v)
            here = b.gep("i8", to, at)
            both = b.load(floats, here, 64), b.load(floats, b.gep("i8", sums, at), 64)
            b.store(floats, b.op(f"fadd {floats} {both[0]}, {both[1]}"), here, 64)

    b.loop(0, tall, 1, add)
