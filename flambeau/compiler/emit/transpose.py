"""Transposing squares of numbers in registers."""

from __future__ import annotations

from flambeau.compiler.emit.builder import Builder, vector


def transpose_vectors(b: Builder, element: str, rows: list[str], small_first: bool = False) -> list[str]:
    """Vectors of as many lanes as there are vectors, as the columns of the matrix whose rows they were.

    Eklundh's transposition (IEEE Trans. Computers C-21, 1972): in log2(width) rounds the off-diagonal halves of blocks change places: of ever
    smaller blocks, or of ever larger ones with `small_first` (the same result by other shuffles)."""
    width = len(rows)
    type_ = vector(element, width)
    distances = [1 << i for i in range(width.bit_length() - 1)]
    values = list(rows)
    for distance in distances if small_first else reversed(distances):
        upper = [lane if not lane & distance else width + lane - distance for lane in range(width)]
        lower = [lane + distance if not lane & distance else width + lane for lane in range(width)]
        for i in range(width):
            if not i & distance:
                x, y = values[i], values[i + distance]
                for at, order in ((i, upper), (i + distance, lower)):
                    lanes = ", ".join(f"i32 {lane}" for lane in order)
                    values[at] = b.op(f"shufflevector {type_} {x}, {type_} {y}, <{width} x i32> <{lanes}>")
    return values
