"""Transposing tiles: an operand that is contiguous along the wrong loop is copied, a tile at a time, into scratch
where it is contiguous along the vector loop. Blocks of width x width elements are transposed in registers.

Scratch of one operand: ROWS rows of PITCH elements; the rows run along the tile loop, the elements along the vector
loop.
"""

from __future__ import annotations

from typing import Final

from flambeau.compiler.emit.builder import Builder, vector
from flambeau.compiler.emit.transpose import transpose_vectors

# A tile reads 4 cache lines of float32 from each page and writes 4 to each row. The pitch is no power of two, so that
# the rows of a tile do not fall into one cache set.
ROWS: Final = 64
COLUMNS: Final = 64
PITCH: Final = COLUMNS + 16


def tile_bytes(itemsize: int) -> int:
    """Scratch of one operand, in bytes (a multiple of 64)."""
    return ROWS * PITCH * itemsize


def fill_tile(
    b: Builder, itemsize: int, width: int, source: str, stride: str, tile: str, rows: str, columns: str
) -> None:  # fmt: skip
    """tile[r][c] = source[r + c * stride] for r < rows, c < columns (at most ROWS, COLUMNS). Elements are opaque."""
    element = f"i{8 * itemsize}"
    whole_rows = b.op(f"and i64 {rows}, {-width}")
    whole_columns = b.op(f"and i64 {columns}, {-width}")

    def single(r: str, c: str) -> None:
        value = b.load(element, b.gep(element, source, b.add(r, b.mul(c, stride))), itemsize)
        b.store(element, value, b.gep(element, tile, b.add(b.mul(r, PITCH), c)), itemsize)

    with b.for_(0, whole_columns, width) as c, b.for_(0, whole_rows, width) as r:
        lines = []
        for k in range(width):
            pointer = b.gep(element, source, b.add(r, b.mul(b.add(c, k), stride)))
            lines.append(b.load(vector(element, width), pointer, itemsize))
        for k, line in enumerate(transpose_vectors(b, element, lines)):
            to = b.gep(element, tile, b.add(b.mul(b.add(r, k), PITCH), c))
            b.store(vector(element, width), line, to, itemsize)
    # What is left over at the edges of the array: the columns after the blocks, and the rows below them.
    with b.for_(whole_columns, columns) as c, b.for_(0, rows) as r:
        single(r, c)
    with b.for_(0, whole_columns) as c, b.for_(whole_rows, rows) as r:
        single(r, c)
