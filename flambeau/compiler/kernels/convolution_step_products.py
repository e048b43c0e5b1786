"""Convolutions by the matrix unit with images side by side: what their micro-kernels are made of.

A micro-kernel multiplies steps of convolution_image_pack.py and keeps up to 2 x 2 tiles of results; its results go to 32 x 32 sums.
"""

from __future__ import annotations

from flambeau.compiler.emit.builder import Builder
from flambeau.compiler.kernels.matmul_parts import multiply_parts
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
    steps = {"a": left, "b": right}

    def load(operand: str, tile: int, part: int, number: str) -> None:
        source = b.gep("i8", steps[operand], part * PART_BYTES + 1024 * tile)
        b.call("void", "llvm.x86.tileloadd64", [("i8", number), ("ptr", source), ("i64", "64")])

    multiply_parts(b, high, broad, load)


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
