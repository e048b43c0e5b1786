"""`dot` in lanes: rows of the result in registers, one multiply-add after the other along k, blocks in scratch memory."""

from __future__ import annotations

from flambeau.compiler.emit.code import Array, Code
from flambeau.compiler.emit.lanes import Lanes
from flambeau.compiler.tile.forms import Buffer
from flambeau.runtime.target import Target


def multiply(c: Code, target: Target, a: Buffer, b: Buffer, acc: Buffer, m: int, n: int, k: int) -> None:
    """acc += a @ b, in place: (m, k), (k, n) and (m, n), of the accumulator's type. The columns of b and acc are dense."""
    element = acc.array.element
    lanes = target.vector_bits // (64 if element == "double" else 32)
    width = min(lanes, n)
    columns = min(4 if target.registers >= 32 else 2, n // width)
    rows = min(m, (16 if target.registers >= 32 else 8) // columns)

    def block(i: Lanes, j: Lanes) -> None:
        place = [acc.array.at((i + r) * acc.strides[0] + j) for r in range(rows)]
        start = [place[r].load(s * width, width) for r in range(rows) for s in range(columns)]
        total = _columns(c, start, a, b, i, j, rows, columns, width, k)
        for r in range(rows):
            for s in range(columns):
                place[r].store(s * width, total[r * columns + s])

    c.for_(0, n, lambda j: c.for_(0, m, lambda i: block(i, j), rows), columns * width)


def _columns(
    c: Code, start: list[Lanes], a: Buffer, b: Buffer, i: Lanes, j: Lanes, rows: int, columns: int, width: int, k: int
) -> list[Lanes]:  # fmt: skip
    """The sums over k of some rows and vectors of columns."""
    builder = c.b

    def step(index: str, *names: str) -> list[str]:
        p = Lanes(builder, "i64", 1, index)
        row = b.array.at(p * b.strides[0] + j)
        right = [row.load(s * width, width) for s in range(columns)]
        result: list[str] = []
        for r in range(rows):
            one = _widened(c, a.array, (i + r) * a.strides[0] + p * a.strides[1])
            left = one if width == 1 else c.splat(one, width)
            for s in range(columns):
                acc = Lanes(builder, right[s].element, width, names[r * columns + s])
                result.append((left.fma(right[s], acc) if acc.is_float else left * right[s] + acc).name)
        return result

    names = builder.loop("0", str(k), "1", step, [(v.type, v.name) for v in start])
    return [Lanes(builder, v.element, v.width, name) for v, name in zip(start, names, strict=True)]


def _widened(c: Code, array: Array, index: Lanes) -> Lanes:
    return array.load(index)
