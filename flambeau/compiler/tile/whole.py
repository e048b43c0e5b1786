"""Operations on whole blocks that are no segments: general reductions, scans, sorts, gathers, joins. Each reads stored blocks and makes new ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from flambeau.compiler.emit.lanes import Lanes
from flambeau.compiler.tile.forms import ZERO, Buffer, Coordinate, Coordinates
from flambeau.compiler.tile.interpret import PARTIALS
from flambeau.compiler.tile.ir import Op, Value
from flambeau.compiler.tile.regions import combined
from flambeau.compiler.tile.segment import fill, folded
from flambeau.dtypes import int32

if TYPE_CHECKING:
    from flambeau.compiler.tile.lower import Lowering as Lowering


def over(w: Lowering, shape: tuple[int, ...], body: Callable[[Coordinates], None], at: Coordinates = ()) -> None:
    """Loops over all places of a shape."""
    if len(at) == len(shape):
        w.r.memos.append({})
        body(at)
        w.r.memos.pop()
    elif shape[len(at)] == 1:
        over(w, shape, body, (*at, ZERO))
    else:
        with w.c.for_(0, shape[len(at)]) as i:
            over(w, shape, body, (*at, Coordinate(i)))


def element(w: Lowering, v: Value, buffer: Buffer, at: Coordinates, width: int = 1) -> Lanes:
    """Lanes of a stored block."""
    return w.r.spread(w.r.read(buffer, v.type.element, at), v.type.element, width)


def _give(w: Lowering, v: Value, buffer: Buffer) -> None:
    """A stored result is the operation's; a scalar is read back."""
    w.forms[id(v)] = buffer if v.shape else element(w, v, buffer, ())


def reduce(w: Lowering, op: Op) -> None:
    """A reduction by any function: the first elements start it. The order is the specification's (interpret.py)."""
    axis, shape = op.attrs["axis"], op.operands[0].shape
    sources = [w.stored(v) for v in op.operands]
    results = [w.buffer(v.type) for v in op.results]
    n, last = shape[axis], axis == len(shape) - 1
    partials = min(n, PARTIALS) if last else 1
    width = min(w.target.lanes, partials)
    outer = shape[:axis] + shape[axis + 1 :]

    def at_axis(at: Coordinates, x: Coordinate) -> Coordinates:
        return (*at[:axis], x, *at[axis:])

    def row(at: Coordinates) -> None:
        def load(base: Lanes | int) -> list[Lanes]:
            place = at_axis(at, Coordinate(base, width))
            return [element(w, v, s, place, width) for v, s in zip(op.operands, sources, strict=True)]

        cells = [[w.c.cell(x.element, x, x.width) for x in load(u * width)] for u in range(partials // width)]
        if n > partials:
            with w.c.for_(partials, n, partials) as j:
                for u, own in enumerate(cells):
                    for cell, x in zip(own, combined(w.r, op.regions[0], [cell.get() for cell in own], load(j + u * width)), strict=True):
                        cell.set(x)
        values = [[cell.get() for cell in own] for own in cells]
        while len(values) > 1:
            half = len(values) // 2
            values = [combined(w.r, op.regions[0], a, b) for a, b in zip(values[:half], values[half:], strict=True)]
        for v, to, x in zip(op.results, results, folded(w.r, op, values[0]), strict=True):
            w.r.write(to, v.type.element, at, x)

    over(w, outer, row)
    for v, to in zip(op.results, results, strict=True):
        _give(w, v, to)


def scan(w: Lowering, op: Op) -> None:
    """Each element with all before it (or after it), in order."""
    axis, shape, back = op.attrs["axis"], op.operands[0].shape, op.attrs["reverse"]
    sources = [w.stored(v) for v in op.operands]
    results = [w.buffer(v.type) for v in op.results]
    n = shape[axis]

    def row(at: Coordinates) -> None:
        def place(i: Lanes) -> Coordinates:
            return (*at[:axis], Coordinate(w.c.i64(n - 1) - i if back else i), *at[axis:])

        def load(i: Lanes) -> list[Lanes]:
            return [element(w, v, s, place(i)) for v, s in zip(op.operands, sources, strict=True)]

        def write(i: Lanes, xs: list[Lanes]) -> None:
            for v, to, x in zip(op.results, results, xs, strict=True):
                w.r.write(to, v.type.element, place(i), x)

        first = load(w.c.i64(0))
        write(w.c.i64(0), first)
        cells = [w.c.cell(x.element, x) for x in first]
        with w.c.for_(1, n) as i:
            now = combined(w.r, op.regions[0], [cell.get() for cell in cells], load(i))
            write(i, now)
            for cell, x in zip(cells, now, strict=True):
                cell.set(x)

    over(w, shape[:axis] + shape[axis + 1 :], row)
    for v, to in zip(op.results, results, strict=True):
        _give(w, v, to)


def sort(w: Lowering, op: Op) -> None:
    """Batcher's bitonic network along the last dim, in place; NaN after all others."""
    v = op.operands[0]
    to = w.stored(v, w.buffer(v.type))
    n, e = v.shape[-1], v.type.element

    def exchange(at: Coordinates, i: Lanes, partner: Lanes, up: Lanes) -> None:
        a, b = (element(w, v, to, (*at, Coordinate(x))) for x in (i, partner))
        later = w.r.apply("gt", e, [a, b], 1, None)
        if a.is_float:
            later = later | (a.isnan() & (b.isnan() ^ 1))
        earlier = w.r.apply("lt", e, [a, b], 1, None)
        if a.is_float:
            earlier = earlier | (b.isnan() & (a.isnan() ^ 1))
        swap = up.select(later, earlier)
        w.r.write(to, e, (*at, Coordinate(i)), swap.select(b, a))
        w.r.write(to, e, (*at, Coordinate(partner)), swap.select(a, b))

    def row(at: Coordinates) -> None:
        size = 2
        while size <= n:
            step = size // 2
            while step:

                def pair(p: Lanes, size: int = size, step: int = step) -> None:
                    low = p & (step - 1)
                    i = (p - low) * 2 + low
                    up = (i & size).eq(0) if size < n else (i & 0).eq(0)
                    exchange(at, i, i + step, up ^ 1 if op.attrs["descending"] else up)

                with w.c.for_(0, n // 2) as i:
                    pair(i)
                step //= 2
            size *= 2

    over(w, v.shape[:-1], row)
    _give(w, op.results[0], to)


def histogram(w: Lowering, op: Op) -> None:
    """How often each number below `bins` occurs."""
    c, v, result = w.c, op.operands[0], op.results[0]
    source = w.stored(v)
    mask = w.stored(op.operands[1]) if len(op.operands) > 1 else None
    to, bins = w.buffer(result.type), op.attrs["bins"]
    fill(w.r, to, int32, result.shape, c.value("i32", 0), w.target.lanes)

    def count(at: Coordinates) -> None:
        x = element(w, v, source, at)
        number = x if x.element == "i64" else x.to("i64", "sext" if v.type.dtype.is_signed else "zext")
        counts = number.compare("ult", bins)
        if mask is not None:
            counts = counts & element(w, op.operands[1], mask, at)
        with c.if_(counts):
            to.array.store(number, to.array[number] + 1)

    over(w, v.shape, count)
    w.forms[id(result)] = to


def gather(w: Lowering, op: Op) -> None:
    """result[i, j] = source[index[i, j], j], along the axis. An index outside of it reads the nearest place inside."""
    c, (v, index), result, axis = w.c, op.operands, op.results[0], op.attrs["axis"]
    source, where, to = w.stored(v), w.stored(index), w.buffer(result.type)

    def one(at: Coordinates) -> None:
        i = element(w, index, where, at)
        i = i if i.element == "i64" else i.to("i64", "sext" if index.type.dtype.is_signed else "zext")
        inside = c.min(c.max(i, 0), v.shape[axis] - 1)
        w.r.write(to, result.type.element, at, element(w, v, source, (*at[:axis], Coordinate(inside), *at[axis + 1 :])))

    over(w, result.shape, one)
    w.forms[id(result)] = to


def join(w: Lowering, op: Op) -> None:
    """Both blocks side by side along a new last dim."""
    result = op.results[0]
    to = w.buffer(result.type)
    for i, v in enumerate(op.operands):
        part = to.view(to.strides[:-1], i)
        if v.shape:
            w.stored(v, part)
        else:
            w.r.write(part, v.type.element, (), w.r.scalar(v))
    w.forms[id(result)] = to


def cat(w: Lowering, op: Op) -> None:
    """The second block after the first."""
    result, dim = op.results[0], op.attrs["dim"]
    to = w.buffer(result.type)
    for i, v in enumerate(op.operands):
        w.stored(v, to.view(to.strides, i * v.shape[dim] * to.strides[dim]))
    w.forms[id(result)] = to


def all_true(w: Lowering, condition: Value, mask: Value | None) -> Lanes:
    """Whether a condition holds wherever the mask is set."""
    holds = w.c.cell("i1", w.c.value("i1", 1))

    def look(at: Coordinates) -> None:
        x = w.r.lanes(condition, at, 1)
        if mask is not None:
            x = x | (w.r.lanes(mask, at, 1) ^ 1)
        holds.set(holds.get() & x)

    over(w, condition.shape, look)
    return holds.get()
