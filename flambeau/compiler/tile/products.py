"""`dot` in lanes: rows of the result in registers, one multiply-add after the other along k, blocks in scratch memory."""

from __future__ import annotations

from collections.abc import Iterator

from flambeau.compiler.emit.code import Code
from flambeau.compiler.emit.lanes import Lanes
from flambeau.compiler.tile.contract import Operands, contract
from flambeau.compiler.tile.forms import Buffer
from flambeau.runtime.target import Target


def multiply(c: Code, target: Target, a: Buffer, b: Buffer, acc: Buffer, m: int, n: int, k: int) -> None:
    """acc += a @ b, in place: (m, k), (k, n) and (m, n), of the accumulator's type. The columns of b and acc are dense."""
    element = acc.array.element
    lanes = target.vector_bits // (64 if element == "double" else 32)
    width = min(lanes, n)
    columns = min(4 if target.registers >= 32 else 2, n // width)
    rows = min(m, (16 if target.registers >= 32 else 8) // columns)
    with c.for_(0, n, columns * width) as j, c.for_(0, m, rows) as i:
        place = [acc.array.at((i + r) * acc.strides[0] + j) for r in range(rows)]
        start = [place[r].load(s * width, width) for r in range(rows) for s in range(columns)]
        total = _columns(c, start, a, b, i, j, rows, columns, width, k)
        for r in range(rows):
            for s in range(columns):
                place[r].store(s * width, total[r * columns + s])


def _columns(
    c: Code, start: list[Lanes], a: Buffer, b: Buffer, i: Lanes, j: Lanes, rows: int, columns: int, width: int, k: int
) -> list[Lanes]:  # fmt: skip
    """The sums over k of some rows and vectors of columns."""

    def read(index: str) -> Iterator[Operands[Lanes, Lanes]]:
        p = c.named("i64", index)
        row = b.array.at(p * b.strides[0] + j)
        right = [row.load(s * width, width) for s in range(columns)]
        ones = (a.array[(i + r) * a.strides[0] + p * a.strides[1]] for r in range(rows))
        yield (one if width == 1 else c.splat(one, width) for one in ones), right

    def add(left: Lanes, right: Lanes, total: str) -> str:
        acc = c.named(right.element, total, width)
        return (left.fma(right, acc) if acc.is_float else left * right + acc).name

    names = contract(c.b, str(k), [(v.type, v.name) for v in start], add=add, read=read)
    return [c.named(v.element, name, v.width) for v, name in zip(start, names, strict=True)]
