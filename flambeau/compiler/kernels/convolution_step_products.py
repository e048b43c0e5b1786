"""Convolutions by the matrix unit with images side by side: what their micro-kernels are made of.

A micro-kernel multiplies steps of convolution_image_pack.py, of bfloat16 parts or float16 halves, and keeps up to 2 x 2 tiles of
results, of halves 2 x 1 of large and of small sums. Its results go to 32 x 32 sums; behind the large ones lie the small ones.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from flambeau.compiler.emit.builder import Builder, Parameters
from flambeau.compiler.kernel import Function
from flambeau.compiler.kernels.float_halves import LOW_BITS
from flambeau.compiler.kernels.matmul_halves import multiply_halves
from flambeau.compiler.kernels.matmul_halves_pack import HALF_BYTES
from flambeau.compiler.kernels.matmul_halves_pack import STEP_BYTES as HALVES_STEP_BYTES
from flambeau.compiler.kernels.matmul_parts_pack import PART_BYTES, STEP_BYTES
from flambeau.compiler.kernels.matmul_tile_pack import LANES
from flambeau.compiler.kernels.matmul_tiles import SUMS_BYTES
from flambeau.compiler.kernels.matrix_unit import choose_tiles, clear_tiles, multiply_parts, store_tiles, tile_register, tiles_function

STEP_BYTES_OF = {"parts": STEP_BYTES, "halves": HALVES_STEP_BYTES}
_WIDTH = 16
_FLOATS = f"<{_WIDTH} x float>"
# The body of a micro-kernel: (builder, rows of tiles, columns, form).
Body = Callable[[Builder, int, int, str], None]


def micro_function(kind: str, form: str, parameters: Parameters, body: Body, across: str = "") -> Function:
    """The micro-kernels of `parameters`, among which "%a", "%b" and "%sums", and then of the numbers of rows and columns.

    With halves, tiles of a column are computed together, or with `across` those of a row: it names the distance of a's rows in bytes.
    """
    write = partial(_micro, form=form, parameters=parameters, body=body, across=across)
    return tiles_function(f"convolution_{kind}:{form}", write, partial(choose_tiles, stem="tiles", parameters=parameters), 512)


def _micro(b: Builder, rows: int, columns: int, form: str, parameters: Parameters, body: Body, across: str) -> str:
    if form == "halves" and (rows if across else columns) == 2:  # one column, or row, after the other
        name = f"tiles_1x{columns}" if across else f"tiles_{rows}x1"
        shifted: dict[str, str | int] = {"%b": HALF_BYTES // 2, "%sums": 4 * _WIDTH}
        if across:
            shifted = {"%a": b.mul(across, _WIDTH), "%sums": _WIDTH * 4 * LANES}
        values = [value for _, value in parameters.arguments]
        b.invoke(name, parameters, *values)
        b.invoke(name, parameters, *[b.gep("i8", value, shifted[value]) if value in shifted else value for value in values])
    else:
        results = _results(rows, columns, form)
        clear_tiles(b, results)
        body(b, rows, columns, form)
        store_tiles(b, results, lambda number: [tile_register(number), ("ptr", b.gep("i8", "%sums", results[number])), ("i64", str(4 * LANES))])
    return b.define(f"tiles_{rows}x{columns}", parameters)


def _results(rows: int, columns: int, form: str) -> dict[int, int]:
    """The registers of results, and where their sums lie."""
    below = _WIDTH * 4 * LANES
    if form == "halves":
        tiles = [i * below for i in range(rows)] if columns == 1 else [4 * _WIDTH * i for i in range(columns)]
        return {2 * small + i: small * SUMS_BYTES + at for small in range(2) for i, at in enumerate(tiles)}
    return {2 * r + c: r * below + 4 * _WIDTH * c for r in range(rows) for c in range(columns)}


def multiply_step(b: Builder, left: str, right: str, rows: int, columns: int, form: str) -> None:
    """Add the products of two steps to the results."""
    steps = {"a": left, "b": right, "many": left, "one": right}

    def load(operand: str, tile: int, part: int, number: str) -> None:
        source = b.gep("i8", steps[operand], part * PART_BYTES + 1024 * tile)
        b.call("void", "llvm.x86.tileloadd64", [("i8", number), ("ptr", source), ("i64", "64")])

    if form == "halves":
        multiply_halves(b, rows, False, lambda number, operand, half, tile: load(operand, tile, half, str(number)))
    else:
        multiply_parts(b, rows, columns, load)


def add_sums(b: Builder, sums: str, to: str, tall: str) -> None:
    """Add `tall` rows of 32 sums to others."""
    _add_rows(b, sums, to, tall, lambda at, here: b.op(f"fadd {_FLOATS} {here}, {b.load(_FLOATS, b.gep('i8', sums, at), 64)}"))


def add_halves(b: Builder, sums: str, to: str, tall: str, scale: str) -> None:
    """The same of large and small sums, times `scale`, a power of two."""
    low, scales = b.splat("float", _WIDTH, str(2.0**-LOW_BITS)), b.splat("float", _WIDTH, scale)

    def add(at: str, here: str) -> str:
        large, small = (b.load(_FLOATS, b.gep("i8", b.gep("i8", sums, offset), at), 64) for offset in (0, SUMS_BYTES))
        both = b.call(_FLOATS, f"llvm.fma.v{_WIDTH}f32", [(_FLOATS, small), (_FLOATS, low), (_FLOATS, large)])
        return b.call(_FLOATS, f"llvm.fma.v{_WIDTH}f32", [(_FLOATS, both), (_FLOATS, scales), (_FLOATS, here)])

    _add_rows(b, sums, to, tall, add)


def _add_rows(b: Builder, sums: str, to: str, tall: str, add: Callable[[str, str], str]) -> None:
    with b.for_(0, tall) as i:
        for v in range(LANES // _WIDTH):
            at = b.add(b.mul(i, 4 * LANES), 64 * v)
            here = b.gep("i8", to, at)
            b.store(_FLOATS, add(at, b.load(_FLOATS, here, 64)), here, 64)
