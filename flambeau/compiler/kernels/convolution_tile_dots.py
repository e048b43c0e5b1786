"""Convolutions by dot instructions of vectors: the micro-kernel over the panels and planes of convolution_tiles.py, for bfloat16.

    sums[32 channels][32 places] = sum over steps of weights[step] * planes at table[step]

As matmul_dots.py: some channels at a time, each of which has one or two vectors of places in registers through all of K. A pair of
input channels of 16 neighbouring places is a vector of planes, at any address; the weights' pairs are broadcast.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from flambeau.compiler.emit.builder import Builder
from flambeau.compiler.kernel import Function
from flambeau.compiler.kernels.convolution_tile_pack import TILE_BYTES, WIDTH
from flambeau.compiler.kernels.convolution_tile_products import ARGUMENTS, fetch_panel
from flambeau.compiler.kernels.description import native
from flambeau.compiler.kernels.matmul_dots import DOTS, HEIGHT
from flambeau.compiler.tile.contract import Operands, contract

_LINE = 64  # bytes: a row of a tile, 16 pairs of channels; a vector of places


def dot_products_function() -> Function:
    """`products` of convolution_tile_products.py, with the same parameters; `longest`, `others` and `part_bytes` are not read."""
    key = "convolution:tiles:products:dots"
    text = ", ".join(f"{type_} {value}" for type_, value in ARGUMENTS)
    return native(key, partial(_choose, text), partial(_products, 1, text), partial(_products, 2, text))


def _choose(arguments: str, name: str, b: Builder) -> str:
    """`which`: 2 for more than 16 channels, and 1 for more than 16 places."""
    channels = b.mul(b.add(b.op("lshr i64 %which, 1"), 1), 16)
    broad = b.op("trunc i64 %which to i1")

    def call(vectors: int) -> None:
        b.call("void", f"dot_products_{vectors}", [*ARGUMENTS, ("i64", channels)], declare=False)

    with b.if_(broad):
        call(2)
    with b.if_(b.op(f"xor i1 {broad}, true")):
        call(1)
    return b.function(f"define void @{name}({arguments}, i64 %which) noinline #0")


def _products(vectors: int, arguments: str, b: Builder) -> str:
    """`channels` channels times `vectors` vectors of places."""
    dot = DOTS["bfloat16"]
    with b.for_(0, "%channels", HEIGHT) as channel:
        left = b.gep("i8", "%weights", b.mul(channel, _LINE))
        first = b.op(f"icmp eq i64 {channel}, 0")

        def step(s: str) -> Iterator[Operands[str, str]]:
            with b.if_(first):
                fetch_panel(b, s)
            weights = b.gep("i8", left, b.mul(s, 2 * TILE_BYTES))
            places = b.gep("i8", "%planes", b.load("i64", b.gep("i64", "%table", s), 8))
            for pair in range(WIDTH):
                at = b.gep("i8", places, b.mul("%pair_bytes", pair))
                right = [b.load("<16 x i32>", b.gep("i8", at, _LINE * v), 4) for v in range(vectors)]
                yield (b.splat("i32", 16, b.load("i32", b.gep("i8", weights, _LINE * i + 4 * pair), 4)) for i in range(HEIGHT)), right

        sums = contract(b, "%steps", [(dot.sums, "zeroinitializer")] * (HEIGHT * vectors), add=partial(dot.add, b), read=step)
        for i in range(HEIGHT):
            to = b.gep("i8", "%sums", b.mul("%sums_bytes", b.add(channel, i)))
            for v in range(vectors):
                b.store(dot.sums, sums[i * vectors + v], b.gep("i8", to, _LINE * v), _LINE)
    return b.function(f"define internal void @dot_products_{vectors}({arguments}, i64 %channels) noinline #0")
