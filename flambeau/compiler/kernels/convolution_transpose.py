"""Transposing squares of vectors in registers."""

from __future__ import annotations

from flambeau.compiler.emit.builder import Builder, vector


def transpose_vectors(b: Builder, element: str, width: int, rows: list[str]) -> list[str]:
    """`width` vectors as the columns of the matrix whose rows they were: log2(width) rounds of block exchanges."""
    type_ = vector(element, width)
    distance = width // 2
    rows = list(rows)
    while distance:
        upper = [lane if not lane & distance else width + lane - distance for lane in range(width)]
        lower = [lane + distance if not lane & distance else width + lane for lane in range(width)]
        for i in range(width):
            if not i & distance:
                x, y = rows[i], rows[i + distance]
                for at, order in ((i, upper), (i + distance, lower)):
                    lanes = ", ".join(f"i32 {lane}" for lane in order)
                    rows[at] = b.op(f"shufflevector {type_} {x}, {type_} {y}, <{width} x i32> <{lanes}>")
        distance //= 2
    return rows
