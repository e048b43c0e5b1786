"""Convolutions by the matrix unit: the micro-kernel (see convolution_tiles.py).

    sums[32 channels][32 places] = sum over steps of weights[step] * planes at table[step]

Four tiles of 16 x 16 results stay in registers, or two or one where there are fewer channels or places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from flambeau.compiler.emit.builder import Builder, Parameters
from flambeau.compiler.kernel import Function
from flambeau.compiler.kernels.bfloat_parts import PRODUCTS
from flambeau.compiler.kernels.convolution_tile_pack import TILE_BYTES, WIDTH
from flambeau.compiler.kernels.description import native
from flambeau.compiler.kernels.float_halves import LOW_BITS
from flambeau.compiler.kernels.matmul_dots import DOTS, HEIGHT
from flambeau.compiler.kernels.matmul_halves import multiply_halves
from flambeau.compiler.kernels.matrix_unit import call_one_of_tiles, clear_tiles, tile_register
from flambeau.compiler.tile.contract import Operands, contract

_MULTIPLY: Final = Parameters("steps longest weights:ptr planes:ptr table:ptr sums:ptr others:ptr sums_bytes pair_bytes part_bytes fetched:ptr fetched_lines")
MULTIPLY: Final = _MULTIPLY + "which"
_MULTIPLY_HALVES: Final = Parameters("steps weights:ptr planes:ptr table:ptr sums:ptr add:i1 sums_bytes pair_bytes part_bytes fetched:ptr fetched_lines")
MULTIPLY_HALVES: Final = _MULTIPLY_HALVES + "which"


def _order(parts: int) -> list[tuple[str, int] | tuple[int, int]]:
    """Loads of parts of weights ("weights", part) and of pixels, and products (weights' part, pixels' part).

    Four registers hold sums and four operands.
    """
    order: list[tuple[str, int] | tuple[int, int]] = []
    held: dict[str, int] = {}
    for product in PRODUCTS if parts > 1 else ((0, 0),):
        for operand, part in zip(("weights", "pixels"), product, strict=True):
            if held.get(operand) != part:
                held[operand] = part
                order.append((operand, part))
        order.append(product)
    return order


def products_function(parts: int) -> Function:
    """`products(steps, longest, weights, planes, table, sums, others, sums_bytes, pair_bytes, part_bytes,
    fetched, fetched_lines, which)`: meanwhile so many cache lines a step are fetched to the second level."""
    key = f"convolution:tiles:products:{parts}"
    return native(key, _choose, *[partial(_products, parts, r, c) for r in (1, 2) for c in (1, 2)])


def _choose(name: str, b: Builder) -> str:
    """`which`: 2 for more than 16 channels, and 1 for more than 16 places."""
    call_one_of_tiles(b, "%which", "products", _MULTIPLY.arguments)
    return b.define(name, MULTIPLY, "")


def fetch_panel(b: Builder, s: str) -> None:
    """Have a step's share of the next panel brought into the second-level cache."""
    fetched = b.gep("i8", "%fetched", b.mul(s, b.mul("%fetched_lines", 64)))
    with b.for_(0, "%fetched_lines") as line:
        at = b.gep("i8", fetched, b.mul(line, 64))
        b.prefetch(at)


def halves_function() -> Function:
    """`halves(steps, weights, planes, table, sums, add, sums_bytes, pair_bytes, part_bytes, fetched, fetched_lines, which)`: sets or adds
    up sums of products of float16 halves, whose scale is left to be taken off. The rest is as of `products`."""
    key = "convolution:tiles:products:halves"
    return native(key, _columns, partial(_halves, 1), partial(_halves, 2))


def _two_or_one(b: Builder, two: str, call: Callable[[int], None]) -> None:
    """`call(2)` where a condition holds, else `call(1)`."""
    with b.if_(two):
        call(2)
    with b.if_(b.op(f"xor i1 {two}, true")):
        call(1)


def _columns(name: str, b: Builder) -> str:
    """One column of tiles after the other: with 2 x 2 there were no registers for operands."""
    tall, broad = b.op("icmp sge i64 %which, 2"), b.op("and i64 %which, 1")
    with b.for_(0, b.add(broad, 1)) as c:
        given = {name: name for _, name in _MULTIPLY_HALVES.arguments}
        for operand in ("%planes", "%sums"):
            given[operand] = b.gep("i8", operand, b.mul(c, 4 * WIDTH))
        given["%fetched_lines"] = b.op(f"select i1 {b.op(f'icmp eq i64 {c}, 0')}, i64 %fetched_lines, i64 0")

        def call(rows: int) -> None:
            b.invoke(f"halves_{rows}", _MULTIPLY_HALVES, *given.values())

        _two_or_one(b, tall, call)
    return b.define(name, MULTIPLY_HALVES, "")


def _halves(rows: int, b: Builder) -> str:
    """rows x 1 tiles: registers 0 and 1 hold large sums, 2 and 3 small ones; 4 and 5 weights, 6 and 7 hi and lo of pixels."""
    b.allocas.append(f"  %block = alloca [{2 * rows * TILE_BYTES} x i8], align 64")
    floats = f"<{WIDTH} x float>"
    registers = [small + r for small in (0, 2) for r in range(rows)]

    clear_tiles(b, registers)
    with b.for_(0, "%steps") as s:
        fetch_panel(b, s)
        planes = b.gep("i8", "%planes", b.load("i64", b.gep("i64", "%table", s), 8))
        weights = b.gep("i8", "%weights", b.mul(s, 2 * 2 * TILE_BYTES))

        def load(number: int, operand: str, half: int, tile: int) -> None:
            at, row_bytes = b.gep("i8", weights, (2 * half + tile) * TILE_BYTES), "64"
            if operand == "one":
                at, row_bytes = b.gep("i8", planes, b.mul("%part_bytes", half)), "%pair_bytes"
            b.call("void", "llvm.x86.tileloadd64", [tile_register(number), ("ptr", at), ("i64", row_bytes)])

        multiply_halves(b, rows, False, load)
    for i, number in enumerate(registers):
        b.call("void", "llvm.x86.tilestored64", [tile_register(number), ("ptr", b.gep("i8", "%block", i * TILE_BYTES)), ("i64", "64")])
    low, old = b.splat("float", WIDTH, str(2.0**-LOW_BITS)), b.splat("i1", WIDTH, "%add")
    with b.for_(0, 16 * rows) as r:
        large, small = (b.load(floats, b.gep("i8", "%block", b.add(b.mul(r, 64), at)), 64) for at in (0, rows * TILE_BYTES))
        to = b.gep("i8", "%sums", b.mul(r, "%sums_bytes"))
        value = b.call(floats, f"llvm.fma.v{WIDTH}f32", [(floats, small), (floats, low), (floats, large)])
        b.store(floats, b.op(f"fadd {floats} {value}, {b.masked_load('float', WIDTH, to, old, 64)}"), to, 64)
    return b.define(f"halves_{rows}", _MULTIPLY_HALVES)


def _products(parts: int, rows: int, columns: int, b: Builder) -> str:
    """rows x columns tiles of results; blocks of `longest` steps are added up outside of the registers.

    With several blocks, what remains to be added to the sums lies in `others`.
    """
    results = [(r, c) for r in range(rows) for c in range(columns)]

    def store(to: str) -> None:
        for r, c in results:
            at = b.gep("i8", to, b.add(b.mul("%sums_bytes", 16 * r), 64 * c))
            b.call("void", "llvm.x86.tilestored64", [tile_register(2 * r + c), ("ptr", at), ("i64", "%sums_bytes")])

    def step(s: str) -> None:
        # Between the products, the pixels' lines that the next step reaches are fetched: 3 to 6 % less time.
        next_step = b.min(b.add(s, 1), b.sub("%steps", 1))
        following = b.gep("i8", "%planes", b.load("i64", b.gep("i64", "%table", next_step), 8))
        lines = [(part, pair, c) for part in range(parts) for pair in range(WIDTH) for c in range(columns)]
        each = len(lines) // (len(PRODUCTS) * rows * columns)

        def fetch_pixels() -> None:
            for part, pair, c in lines[:each]:
                at = b.add(b.add(b.mul("%part_bytes", part), b.mul("%pair_bytes", pair)), 64 * c + 63)
                b.prefetch(b.gep("i8", following, at), level=1)
            del lines[:each]

        planes = b.gep("i8", "%planes", b.load("i64", b.gep("i64", "%table", s), 8))
        fetch_panel(b, s)
        weights = b.gep("i8", "%weights", b.mul(s, parts * 2 * TILE_BYTES))
        for action, part in _order(parts):
            if action == "weights":
                for r in range(rows):
                    at = b.gep("i8", weights, (2 * part + r) * TILE_BYTES)
                    b.call("void", "llvm.x86.tileloadd64", [tile_register(4 + r), ("ptr", at), ("i64", "64")])
            elif action == "pixels":
                first = b.gep("i8", planes, b.mul("%part_bytes", part))
                for c in range(columns):
                    at = b.gep("i8", first, 64 * c)
                    b.call("void", "llvm.x86.tileloadd64", [tile_register(6 + c), ("ptr", at), ("i64", "%pair_bytes")])
            else:
                for r, c in results:
                    if parts > 1:
                        fetch_pixels()
                    b.call("void", "llvm.x86.tdpbf16ps", [tile_register(2 * r + c), tile_register(4 + r), tile_register(6 + c)])

    def block(start: str, stop: str, after_first: Callable[[], None] | None = None) -> None:
        clear_tiles(b, (2 * r + c for r, c in results))
        if after_first is None:
            with b.for_(start, stop) as i:
                step(i)
        else:
            step(start)
            after_first()
            with b.for_(b.add(start, 1), stop) as i:
                step(i)

    def add_rows() -> None:
        with b.for_(0, 16 * rows) as r:
            floats = f"<{WIDTH} x float>"
            for c in range(columns):
                to, more = (b.gep("i8", b.gep("i8", sums, b.mul(r, "%sums_bytes")), 64 * c) for sums in ("%sums", "%others"))
                b.store(floats, b.op(f"fadd {floats} {b.load(floats, to, 64)}, {b.load(floats, more, 64)}"), to, 64)

    if parts == 1:
        block("0", "%steps")
        store("%sums")
    else:
        # The block before is added while the matrix unit is busy.
        block("0", b.min("%longest", "%steps"))
        store("%sums")
        with b.if_(b.op("icmp slt i64 %longest, %steps")):
            block("%longest", b.min(b.mul("%longest", 2), "%steps"))
            store("%others")
        with b.for_(b.mul("%longest", 2), "%steps", "%longest") as start:
            block(start, b.min(b.add(start, "%longest"), "%steps"), add_rows)
            store("%others")
    return b.define(f"products_{rows}x{columns}", _MULTIPLY)


# -- The micro-kernel over the panels and planes of convolution_tiles.py, for bfloat16 -------------------------------
#     sums[32 channels][32 places] = sum over steps of weights[step] * planes at table[step]
#
# As matmul_dots.py: some channels at a time, each of which has one or two vectors of places in registers through all of K. A pair of
# input channels of 16 neighbouring places is a vector of planes, at any address; the weights' pairs are broadcast.


_LINE = 64  # bytes: a row of a tile, 16 pairs of channels; a vector of places


def dot_products_function() -> Function:
    """`products` of convolution_tile_products.py, with the same parameters; `longest`, `others` and `part_bytes` are not read."""
    key = "convolution:tiles:products:dots"
    return native(key, _choose_dots, partial(_dot_products, 1), partial(_dot_products, 2))


def _choose_dots(name: str, b: Builder) -> str:
    """`which`: 2 for more than 16 channels, and 1 for more than 16 places."""
    channels = b.mul(b.add(b.op("lshr i64 %which, 1"), 1), 16)
    broad = b.op("trunc i64 %which to i1")

    def call(vectors: int) -> None:
        b.invoke(f"dot_products_{vectors}", _MULTIPLY + "channels", *[value for _, value in _MULTIPLY.arguments], channels)

    _two_or_one(b, broad, call)
    return b.define(name, MULTIPLY, "")


def _dot_products(vectors: int, b: Builder) -> str:
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
    return b.define(f"dot_products_{vectors}", _MULTIPLY + "channels")
