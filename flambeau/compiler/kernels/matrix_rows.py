"""Products of a few rows with a matrix whose columns lie next to each other, by a dot instruction: bound by memory, so nothing is packed.

    c (m x n) = a (m x k) @ b (k x n),  1 < m <= 24, elements of 16 bits, k of a next to each other

The instruction wants two neighbours of k in each lane, and they lie a row of b apart. So two rows of b are interleaved in registers: one shuffle for
each vector of 32 columns. The sums of `line_columns` columns wait in the first-level cache, as in matrix_vector.py's sweep, while runs of k are swept through:

    for each line of columns
        for each ROWS_AT_ONCE rows of b
            for each `height` rows of a
                for each 32 columns: load 2 x height sums, add ROWS_AT_ONCE / 2 pairs of rows of b, store them
        round the sums to c

An element's terms are added in the order of k, two at a time.
"""

from __future__ import annotations

from typing import Final

from flambeau.compiler.emit.builder import Builder
from flambeau.compiler.kernels.matmul_dots import Dot
from flambeau.compiler.kernels.matmul_element import Facts, batch_addresses, call_epilogue, k_of_batch
from flambeau.compiler.kernels.matrix_vector import INSTRUCTION_ROWS, by_eights, over_line, split_units
from flambeau.compiler.tile.contract import rank_one
from flambeau.symbols import roughly_over

COLUMNS: Final = 32  # of a unit: a vector of b, two vectors of sums
ROWS_AT_ONCE: Final = 8  # rows of b between two visits of the sums
_LINE_BYTES: Final = 16 << 10  # sums of `height` rows: half of a first-level cache
_LANES: Final = 16  # of a vector of sums
_SUMS: Final = "<16 x float>"
_LOW: Final = ", ".join(f"i32 {half * COLUMNS + lane}" for lane in range(_LANES) for half in (0, 1))
_HIGH: Final = ", ".join(f"i32 {half * COLUMNS + _LANES + lane}" for lane in range(_LANES) for half in (0, 1))


def height_of(m: int) -> int:
    """Rows of a at once: 2 x height sums in registers."""
    if roughly_over(m, 4):
        return 8 if by_eights(m) else 6
    return 4 if roughly_over(m, 2) else 2


def line_columns(height: int) -> int:
    """Columns of a line of sums."""
    return _LINE_BYTES // (4 * height) // COLUMNS * COLUMNS


def scratch_bytes(height: int) -> int:
    """Of a worker: the sums of a line, of as many rows as there can be."""
    return -(-INSTRUCTION_ROWS // height) * height * line_columns(height) * 4


def rows_body(facts: Facts, has_epilogue: bool, height: int, dot: Dot, b: Builder, w: dict[str, str]) -> None:
    """The body, for `height` rows of a at once (see `height_of`), by an instruction of two terms."""
    element, result = facts.element, facts.element.result
    memory, size = element.memory, element.memory_bytes
    line = line_columns(height)
    lines = b.gep("i8", w["scratch"], b.mul("%worker", w["scratch_bytes"]))
    last_row = b.sub(w["m"], 1)

    def sums_at(first: str, j: str, i: str | int = 0, v: int = 0) -> str:
        """Where the sums of row first + i of a wait: those of `height` rows and 32 columns lie together, so that they are in all sets of the cache."""
        return b.gep("float", lines, b.add(b.add(b.mul(first, line), b.mul(j, height)), b.add(b.mul(i, COLUMNS), _LANES * v)))

    def read(pointer: str, mask: str) -> str:
        if mask:
            return b.masked_load(memory, COLUMNS, pointer, mask, size)
        return b.load(f"<{COLUMNS} x {memory}>", pointer, size)

    def pairs(upper: str, lower: str) -> list[str]:
        """Two rows of 32 columns as two vectors of 16 pairs."""
        type_ = f"<{COLUMNS} x {memory}>"
        both = (b.op(f"shufflevector {type_} {upper}, {type_} {lower}, <{COLUMNS} x i32> <{order}>") for order in (_LOW, _HIGH))
        return [b.op(f"bitcast {type_} {value} to <16 x i32>") for value in both]

    def item(batch: str, first: str, end: str) -> None:
        a, bb, c = batch_addresses(b, facts, w, batch)
        w["k"] = k_of_batch(b, w, batch)  # from here on
        stop = b.min(w["n"], b.mul(end, COLUMNS))

        def sweep(k: str, rows: int, j0: str, count: str) -> None:
            """Add the terms of `rows` rows of b from k on to a line's sums; one row is a pair with zero."""
            sources = [b.gep(memory, bb, b.add(b.mul(b.add(k, r), w["b_row"]), j0)) for r in range(rows)]
            with b.for_(0, w["m"], height) as row:
                lefts = []
                for i in range(height):
                    at = b.gep(memory, a, b.add(b.mul(b.min(b.add(row, i), last_row), w["a_row"]), k))
                    if rows == 1:
                        lefts.append([b.op(f"zext {memory} {b.load(memory, at, size)} to i32")])
                    else:
                        lefts.append([b.load("i32", b.gep(memory, at, r), size) for r in range(0, rows, 2)])

                def at_vector(j: str, mask: str) -> None:
                    places = [sums_at(row, j, i, v) for i in range(height) for v in (0, 1)]
                    sums = [b.load(_SUMS, at, 64) for at in places]
                    for pair in range(max(1, rows // 2)):
                        upper = read(b.gep(memory, sources[2 * pair], j), mask)
                        lower = "zeroinitializer" if rows == 1 else read(b.gep(memory, sources[2 * pair + 1], j), mask)
                        left = (b.splat("i32", _LANES, lefts[i][pair]) for i in range(height))
                        sums = rank_one(lambda x, y, z: dot.add(b, x, y, z), left, pairs(upper, lower), sums)
                    for value, at in zip(sums, places, strict=True):
                        b.store(_SUMS, value, at, 64)

                over_line(b, COLUMNS, count, at_vector)

        with b.for_(b.mul(first, COLUMNS), stop, line) as j0:
            count = b.min(line, b.sub(stop, j0))
            with b.for_(0, w["m"], height) as row:
                used = b.mul(b.op(f"udiv i64 {b.add(count, COLUMNS - 1)}, {COLUMNS}"), COLUMNS * height)
                with b.for_(0, used, _LANES) as at:
                    b.store(_SUMS, "zeroinitializer", b.gep("float", sums_at(row, "0"), at), 64)
            runs = b.mul(b.sdiv(w["k"], ROWS_AT_ONCE), ROWS_AT_ONCE)
            even = b.mul(b.sdiv(w["k"], 2), 2)
            with b.for_(0, runs, ROWS_AT_ONCE) as k:
                sweep(k, ROWS_AT_ONCE, j0, count)
            with b.for_(runs, even, 2) as k:
                sweep(k, 2, j0, count)
            with b.for_(even, w["k"]) as k:
                sweep(k, 1, j0, count)
            with b.for_(0, w["m"]) as row:
                target_row = b.gep(result.memory, c, b.add(b.mul(row, w["c_row"]), j0))
                within = b.op(f"urem i64 {row}, {height}")
                group = b.sub(row, within)

                def at_vector(j: str, mask: str) -> None:
                    del mask
                    for v in (0, 1):
                        at = b.add(j, _LANES * v)
                        value = result.narrow(b, _LANES, b.load(_SUMS, sums_at(group, j, within, v), 64))
                        b.masked_store(
                            result.memory, _LANES, value, b.gep(result.memory, target_row, at), b.tail_mask(b.sub(count, at), _LANES), result.memory_bytes
                        )

                over_line(b, COLUMNS, count, at_vector)
            if has_epilogue:
                call_epilogue(b, facts, w, batch, ("0", w["m"]), (j0, b.add(j0, count)))

    split_units(b, w, item)
