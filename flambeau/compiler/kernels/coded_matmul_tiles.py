"""Products of many rows with coded weights by the matrix unit. What is computed, and how x becomes bytes, is said in coded_matmul.py.

    sums[n, m] = sum over k in a block of code[n, k] * (256 * high[m, k] + low[m, k])

The codes are the left operand as they lie in their rows (nibbles are unpacked first, a row's after the other's), so 16 rows of weights are a tile. CHUNK rows
of x are packed once and stay in the second cache while all weights of a thread pass by: a tile has 16 rows of x in its columns, 64 of their bytes in its rows.
The unit's sums of both bytes are exact; a vector of them, 16 rows of x, gets the block's scales and zero point, and is added to the results in float32. The
order depends on K and the block only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flambeau.compiler.emit.builder import Builder
from flambeau.compiler.kernels.matrix_unit import clear_tiles, store_tiles, tile_register

if TYPE_CHECKING:
    from collections.abc import Callable

LANES: Final = 16  # rows of weights, and of x, of a tile
STEP: Final = 64  # bytes of a tile's row
CHUNK: Final = 2 * LANES  # rows of x at once: the unit has registers for the sums of both bytes of two tiles
FEWEST_ROWS: Final = CHUNK  # of x: with fewer the codes are read once, row by row, and memory is the limit
_TILE: Final = LANES * STEP
_FLOATS, _WORDS = f"<{LANES} x float>", f"<{LANES} x i32>"


def area_bytes(k: int, block: int, bits: int) -> int:
    """Bytes of one thread's memory."""
    packed, codes = 4 * LANES * k, LANES * k if bits == 4 else 0
    return packed + codes + 4 * LANES * 4 * (k // block) + 4 * _TILE + 4 * LANES * CHUNK + 2 * LANES * block


def multiply_by_tiles(bits: int, block: int, prepare: Callable[[dict[str, str], str, str], None], b: Builder, w: dict[str, str]) -> None:
    """The kernel's body. `prepare(words, source, block)` writes a block of a row of x: its bytes to "high" and "low", its "factors" and "sums"."""
    b.call("void", "llvm.x86.ldtilecfg", [("ptr", "@tile_configuration")])
    blocks = w["blocks"] = b.sdiv(w["k"], block)
    at = b.gep("i8", w["scratch"], b.mul("%worker", w["area"]))

    def take(name: str, nbytes: str | int) -> None:
        nonlocal at
        w[name] = at
        at = b.gep("i8", at, nbytes)

    of_blocks = b.mul(blocks, 2 * LANES * 4)  # a float for each row of a chunk
    take("packed", b.mul(w["k"], 4 * LANES))
    take("factors", of_blocks)
    take("sums", of_blocks)
    take("products", 4 * _TILE)
    take("results", 4 * LANES * CHUNK)
    take("bytes", 2 * LANES * block)
    w["unpacked"] = at
    with b.for_(0, w["m"], CHUNK) as first:
        for tile in (0, 1):
            with b.for_(0, blocks) as number:
                _pack(block, prepare, b, w, first, tile, number)
        with b.for_("%begin", "%end", LANES) as n:
            _weights(bits, block, b, w, first, n)
    b.call("void", "llvm.x86.tilerelease", [])


def _of_chunk(b: Builder, table: str, tile: int, number: str) -> str:
    """Where the factors or sums of a tile's rows lie, of a block."""
    return b.gep("float", table, b.add(b.mul(number, CHUNK), tile * LANES))


def _packed(b: Builder, w: dict[str, str], tile: int, part: int, step: str) -> str:
    """Where a packed tile of x lies: of the high bytes (0) or the low ones."""
    return b.gep("i8", w["packed"], b.add(b.mul(w["k"], (2 * tile + part) * LANES), b.mul(step, _TILE)))


def _pack(block: int, prepare: Callable[[dict[str, str], str, str], None], b: Builder, w: dict[str, str], first: str, tile: int, number: str) -> None:
    """A block of 16 rows of x, as bytes with a factor and a sum each; rows behind the last one are the last one again."""
    start = b.mul(number, block)
    with b.for_(0, LANES) as i:
        row = b.min(b.add(b.add(first, tile * LANES), i), b.sub(w["m"], 1))
        here = dict(w)
        for part, name in enumerate(("high", "low")):  # `prepare` counts from the beginning of the row, and of the blocks
            here[name] = b.gep("i8", w["bytes"], b.sub(b.add(b.mul(i, block), part * LANES * block), start))
        for name in ("factors", "sums"):
            here[name] = b.gep("float", _of_chunk(b, w[name], tile, number), b.sub(i, number))
        prepare(here, b.gep("float", w["x"], b.mul(row, w["x_row"])), number)
    for part in (0, 1):
        for step in range(block // STEP):
            source = b.gep("i8", w["bytes"], part * LANES * block + step * STEP)
            rows = [b.load(_WORDS, b.gep("i8", source, r * block), 4) for r in range(LANES)]
            to = _packed(b, w, tile, part, b.add(b.mul(number, block // STEP), step))
            for r, row in enumerate(transposed(b, "i32", rows)):
                b.store(_WORDS, row, b.gep("i8", to, r * STEP), 4)


def transposed(b: Builder, element: str, rows: list[str]) -> list[str]:
    """The columns of 16 vectors of 16: each of four rounds interleaves the first eight with the others."""
    type_ = f"<{LANES} x {element}>"
    halves = [", ".join(f"i32 {i // 2 + half + LANES * (i % 2)}" for i in range(LANES)) for half in (0, LANES // 2)]
    for _ in range(4):
        pairs = zip(rows[: LANES // 2], rows[LANES // 2 :], strict=True)
        rows = [b.op(f"shufflevector {type_} {x}, {type_} {y}, <{LANES} x i32> <{half}>") for x, y in pairs for half in halves]
    return rows


def _weights(bits: int, block: int, b: Builder, w: dict[str, str], first: str, n: str) -> None:
    """16 rows of the weights from n on with the packed rows of x."""
    codes, apart = b.gep("i8", w["codes"], b.mul(n, w["codes_row"])), w["codes_row"]
    if bits == 4:
        _unpack(block, b, w, codes)
        codes, apart = w["unpacked"], w["k"]
    for i in range(CHUNK):
        b.store(_FLOATS, "zeroinitializer", b.gep("float", w["results"], i * LANES), 4)
    with b.for_(0, w["blocks"]) as number:
        clear_tiles(b, range(4))
        for step in range(block // STEP):
            at = b.gep("i8", codes, b.add(b.mul(number, block), step * STEP))
            b.call("void", "llvm.x86.tileloadd64", [tile_register(4), ("ptr", at), ("i64", apart)])
            for tile in (0, 1):
                for part in (0, 1):
                    given = _packed(b, w, tile, part, b.add(b.mul(number, block // STEP), step))
                    b.call("void", "llvm.x86.tileloadd64", [tile_register(5 + part), ("ptr", given), ("i64", str(STEP))])
                    b.call("void", "llvm.x86.tdpbusd", [tile_register(2 * tile + part), tile_register(4), tile_register(5 + part)])
        store_tiles(b, range(4), lambda i: [tile_register(i), ("ptr", b.gep("i8", w["products"], i * _TILE)), ("i64", str(STEP))])
        _add(b, w, n, number)
    for tile in (0, 1):
        rows = [b.load(_FLOATS, b.gep("float", w["results"], (tile * LANES + r) * LANES), 4) for r in range(LANES)]
        for i, row in enumerate(transposed(b, "float", rows)):
            number = b.add(first, tile * LANES + i)
            with b.if_(b.op(f"icmp slt i64 {number}, {w['m']}")):
                b.store(_FLOATS, row, b.gep("float", w["out"], b.add(b.mul(number, w["n"]), n)), 4)


def _unpack(block: int, b: Builder, w: dict[str, str], codes: str) -> None:
    """16 rows of codes, one a byte: of a block the lower nibbles of all bytes come first."""
    half = block // 2
    octets = f"<{half} x i8>"
    with b.for_(0, LANES) as r:
        source, to = b.gep("i8", codes, b.mul(r, w["codes_row"])), b.gep("i8", w["unpacked"], b.mul(r, w["k"]))
        with b.for_(0, w["blocks"]) as number:
            both = b.load(octets, b.gep("i8", source, b.mul(number, half)), 1)
            here = b.gep("i8", to, b.mul(number, block))
            b.store(octets, b.op(f"and {octets} {both}, {b.splat('i8', half, '15')}"), here, 1)
            b.store(octets, b.op(f"lshr {octets} {both}, {b.splat('i8', half, '4')}"), b.gep("i8", here, half), 1)


def _add(b: Builder, w: dict[str, str], n: str, number: str) -> None:
    """Add a block's part to the results: scale * factor * (sum - zero * sum of x)."""
    group = b.sdiv(number, w["per_group"])
    of_x = [[b.load(_FLOATS, _of_chunk(b, w[name], tile, number), 4) for name in ("factors", "sums")] for tile in (0, 1)]
    with b.for_(0, LANES) as r:
        scale, less = (
            b.load("float", b.gep("float", w[name], b.add(b.mul(b.add(n, r), w[f"{name}_row"]), b.mul(group, w[f"{name}_column"]))), 4)
            for name in ("scales", "zeros")
        )  # fmt: skip
        scales, less_of_all = b.splat("float", LANES, scale), b.splat("float", LANES, b.op(f"fneg float {less}"))
        for tile, (factors, sums) in enumerate(of_x):
            high, low = (b.load(_WORDS, b.gep("i8", w["products"], b.add(b.mul(r, STEP), (2 * tile + part) * _TILE)), 4) for part in (0, 1))
            shifted = b.op(f"shl {_WORDS} {high}, {b.splat('i32', LANES, '8')}")
            whole = b.op(f"add {_WORDS} {shifted}, {low}")
            part_ = b.multiply_add("float", LANES, less_of_all, sums, b.op(f"sitofp {_WORDS} {whole} to {_FLOATS}"))
            at = b.gep("float", w["results"], b.mul(b.add(r, tile * LANES), LANES))
            b.store(_FLOATS, b.multiply_add("float", LANES, scales, b.op(f"fmul {_FLOATS} {part_}, {factors}"), b.load(_FLOATS, at, 4)), at, 4)
