"""Results whose size depends on the data: the native functions behind runtime/select.py.

They have a kernel's signature (`begin` is 0, `end` the number of elements or rows), work on dense memory, and give
their number of results back. Counting comes first, so that the caller can allocate exactly what the second pass fills.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from flambeau.compiler.emit import convert
from flambeau.compiler.emit.code import OF_BYTES, Array, Code
from flambeau.compiler.emit.lanes import Lanes
from flambeau.compiler.kernels.records import Records, call_sort, sort_function
from flambeau.dtypes import BY_NAME, dtype
from flambeau.runtime.target import Target

# Lanes of a truth test: the words of set bits are i64s.
TEST_LANES = 16


class _Selection:
    """Code of one function."""

    def __init__(self, names: Sequence[str]) -> None:
        self.c = Code(names, Target.host())
        self.count = self.c.named("i64", "%end")

    def truth(self, x: Array, d: dtype, i: Lanes, lanes: int, mask: str | None) -> Lanes:
        """Whether elements i, i + 1, ... are not zero, as i1 lanes; masked-off lanes are not."""
        at = x.after_bytes(i * d.itemsize)
        value = convert.load(self.c.b, d, at.pointer, lanes, mask)
        name = convert.cast(self.c.b, d, BY_NAME["bool"], value, lanes)
        assert isinstance(name, str)
        return Lanes(self.c.b, "i1", lanes, name)

    def element(self, x: Array, d: dtype, i: Lanes) -> convert.Value:
        return convert.load(self.c.b, d, x.after_bytes(i * d.itemsize).pointer, 1)

    def finish(self, key: str, result: Lanes | None = None) -> str:
        from flambeau.runtime.jit import symbol

        return self.c.kernel(symbol(key), result)


def emit_count(key: str, d: dtype) -> str:
    """Words: x. How many elements are not zero."""
    s = _Selection(["x"])
    c = s.c
    x, total = c.array("x", "i8"), c.cell("i64")

    def some(i: Lanes, lanes: int, mask: str | None) -> None:
        found = s.truth(x, d, i, lanes, mask)
        bits = Lanes(c.b, f"i{lanes}", 1, c.b.op(f"bitcast {found.type} {found.name} to i{lanes}"))
        total.add(bits.to("i64", "zext").call("ctpop"))

    c.blocks(0, s.count, TEST_LANES, some)
    return s.finish(key, total.get())


def emit_nonzero(key: str, d: dtype, ndim: int) -> str:
    """Words: x, to, total, size0, size1, ... Coordinates of the `total` elements that are not zero, in row-major order, as i64: all
    first ones, then all second ones, ...
    Rows along the last dim are tested by vectors, their other coordinates are found once a row."""
    s = _Selection(["x", "to", "total", *(f"size{i}" for i in range(ndim))])
    c = s.c
    x, to, found = c.array("x", "i8"), c.array("to", "i64"), c.cell("i64")
    size = c.word(f"size{ndim - 1}")
    with c.for_(0, c.divide(s.count, size)) as r:
        outer: list[Lanes] = []
        left = r
        for dim in reversed(range(ndim - 1)):
            quotient = c.divide(left, c.word(f"size{dim}"))
            outer.insert(0, left - quotient * c.word(f"size{dim}"))
            left = quotient

        def some(i: Lanes, lanes: int, mask: str | None) -> None:
            with c.each_set(s.truth(x, d, r * size + i, lanes, mask)) as lane:
                at = found.get()
                for dim, coordinate in enumerate([*outer, i + lane]):
                    to.store(at + c.word("total") * dim, coordinate)
                found.set(at + 1)

        c.blocks(0, size, TEST_LANES, some)
    return s.finish(key, found.get())


def emit_masked(key: str, nbytes: int) -> str:
    """Words: x, mask, to. The elements (of `nbytes` bytes) of x where the bool mask is set, in order."""
    s = _Selection(["x", "mask", "to"])
    c = s.c
    x, to = c.array("x", OF_BYTES[nbytes]), c.array("to", OF_BYTES[nbytes])
    mask_array, found = c.array("mask", "i8"), c.cell("i64")

    def some(i: Lanes, lanes: int, mask: str | None) -> None:
        with c.each_set(s.truth(mask_array, BY_NAME["bool"], i, lanes, mask)) as lane:
            at = found.get()
            to.store(at, x[i + lane])
            found.set(at + 1)

    c.blocks(0, s.count, TEST_LANES, some)
    return s.finish(key, found.get())


def emit_masked_rows(key: str) -> str:
    """Words: x, row_bytes, mask, to. The rows (of `row_bytes` bytes) of x where the bool mask is set, in order."""
    s = _Selection(["x", "row_bytes", "mask", "to"])
    c = s.c
    x, to, nbytes = c.array("x", "i8"), c.array("to", "i8"), c.word("row_bytes")
    mask_array, found = c.array("mask", "i8"), c.cell("i64")

    def some(i: Lanes, lanes: int, mask: str | None) -> None:
        with c.each_set(s.truth(mask_array, BY_NAME["bool"], i, lanes, mask)) as lane:
            at = found.get()
            c.copy_bytes(to.at(at * nbytes), x.at((i + lane) * nbytes), nbytes)
            found.set(at + 1)

    c.blocks(0, s.count, TEST_LANES, some)
    return s.finish(key, found.get())


def emit_order(key: str, d: dtype) -> str:
    """Words: x, step, order, next, a, b. `next`: the rows' numbers, taken from `order` (i64; -1 in its first place: 0,
    1, 2, ...), sorted by element x[row * step] (stable). `a` and `b` are space for as many records."""
    s = _Selection(["x", "step", "order", "next", "a", "b"])
    c, r = s.c, Records(d, False)
    c.helper(*sort_function(r, c.b.target))
    x, order, following = c.array("x", r.memory), c.array("order", "i64"), c.array("next", "i64")
    a, b = c.array("a", r.element), c.array("b", r.element)
    natural = order[0].lt(0)
    with c.for_(0, s.count) as i:
        row = natural.select(i, order[i])
        a.store(i, r.record(r.key(x[row * c.word("step")]), i))
    call_sort(c, a, b, s.count)
    with c.for_(0, s.count) as i:
        number = r.number(a[i])
        following.store(i, natural.select(number, order[number]))
    return s.finish(key)


def emit_runs(key: str, d: dtype, ordered: bool) -> str:
    """Words: x, columns, order, first, inverse, counts. Neighbouring equal rows of x (rows, columns), in the order
    `order` (if `ordered`), are one run; NaN equals nothing. For each run its first row and how many there are; for each
    row its run. Gives the number of runs."""
    from flambeau.compiler.emit import scalar

    s = _Selection(["x", "columns", "order", "first", "inverse", "counts"])
    c = s.c
    x, order, columns = c.array("x", "i8"), c.array("order", "i64"), c.word("columns")
    first, inverse, counts = (c.array(name, "i64") for name in ("first", "inverse", "counts"))
    runs, start, previous, column = c.cell("i64"), c.cell("i64"), c.cell("i64"), c.cell("i64")
    with c.for_(0, s.count) as i:
        now = order[i] if ordered else i
        column.set(i.eq(0).select(-1, c.i64(0)))

        def same() -> Lanes:
            at = column.get()
            inside = (at.ge(0)) & at.lt(columns)
            safe = inside.select(at, 0)
            a = s.element(x, d, previous.get() * columns + safe)
            b = s.element(x, d, now * columns + safe)
            name = scalar.apply(c.b, "eq", d, [a, b], 1)
            assert isinstance(name, str)
            return inside & Lanes(c.b, "i1", 1, name)

        with c.while_(same):
            column.add(1)
        with c.if_(column.get().ne(columns)):
            run = runs.get()
            with c.if_(run.gt(0)):
                counts.store(run - 1, i - start.get())
            first.store(run, now)
            start.set(i)
            runs.set(run + 1)
        inverse.store(now, runs.get() - 1)
        previous.set(now)
    with c.if_(runs.get().gt(0)):
        counts.store(runs.get() - 1, s.count - start.get())
    return s.finish(key, runs.get())


def emit_take(key: str) -> str:
    """Words: x, row_bytes, rows, to. Rows (of `row_bytes` bytes) of x by their numbers, one after the other."""
    s = _Selection(["x", "row_bytes", "rows", "to"])
    c = s.c
    x, rows, to, nbytes = c.array("x", "i8"), c.array("rows", "i64"), c.array("to", "i8"), c.word("row_bytes")
    with c.for_(0, s.count) as i:
        c.copy_bytes(to.at(i * nbytes), x.at(rows[i] * nbytes), nbytes)
    return s.finish(key)


def emit_bincount(key: str, weight: dtype | None) -> str:
    """Words: x, weights, to. to[x[i]] += weights[i] (or 1, as i64); `to` starts as zeros of the weights' dtype."""
    s = _Selection(["x", "weights", "to"])
    c = s.c
    x = c.array("x", "i64")
    element = "i64" if weight is None else convert.register_element(weight)
    weights, to = c.array("weights", element), c.array("to", element)
    with c.for_(0, s.count) as i:
        at = x[i]
        to.store(at, to[at] + (c.i64(1) if weight is None else weights[i]))
    return s.finish(key)


def emit_histogram(key: str, d: dtype) -> str:
    """Words: x, low, high (doubles), bins, to. Counts of `bins` equal bins of [low, high], as elements of x's dtype
    (float or double), which start as zeros; the last bin has both its ends. Elements outside, and NaN, do not count."""
    s = _Selection(["x", "low", "high", "bins", "to"])
    c = s.c
    element = convert.register_element(d)
    x, to = c.array("x", element), c.array("to", element)
    low, high = (c.word(name).as_float().to(element, "fptrunc") for name in ("low", "high"))
    bins = c.word("bins")
    width = high - low
    with c.for_(0, s.count) as i:
        value = x[i]
        with c.if_(value.ge(low) & value.le(high)):
            place = ((value - low) * bins.to(element, "sitofp") / width).to("i64", "fptosi")
            at = c.min(place, bins - 1)
            to.store(at, to[at] + 1.0)
    return s.finish(key)


def emit_repeat(key: str) -> str:
    """Words: repeats, to. Each i as often as repeats[i] says (i64). Gives -1 if one is negative; with `to` 0 only
    counts."""
    s = _Selection(["repeats", "to"])
    c = s.c
    repeats, to, written = c.array("repeats", "i64"), c.array("to", "i64"), c.cell("i64")
    counting = c.word("to").eq(0)
    with c.for_(0, s.count) as i:
        times = repeats[i]
        c.return_if(times.lt(0), -1)
        start = written.get()
        written.set(start + times)
        stop = counting.select(start, start + times)
        with c.for_(start, stop) as j:
            to.store(j, i)
    return s.finish(key, written.get())


def emit_recurrence(key: str, d: dtype, first: tuple[int, int], step: Callable[[Lanes, Lanes, Lanes, Lanes], Lanes]) -> str:
    """Words: x, n, to. p_n(x) for each pair of x (of dtype d) and n (int64), by p_0 = 1, p_1 = first[0] x + first[1], and
    p_{k+1} = step(x, k, p_k, p_{k-1}); 0 for n < 0. A NaN stays one, so it ends there."""
    s = _Selection(["x", "n", "to"])
    c, element = s.c, "float" if d.itemsize == 4 else "double"
    x, n, to = c.array("x", element), c.array("n", "i64"), c.array("to", element)
    with c.for_(0, s.count) as i:
        at, top = x.load(i), n.load(i)
        before, p, k = c.cell(element, 1.0), c.cell(element, at * float(first[0]) + float(first[1])), c.cell("i64", 1)
        with c.while_(lambda: k.get().lt(top) & ~p.get().isnan()):
            now = p.get()
            p.set(step(at, k.get().to(element, "sitofp"), now, before.get()))
            before.set(now)
            k.add(1)
        to.store(i, top.lt(1).select(top.lt(0).select(c.value(element, 0.0), 1.0), p.get()))
    return s.finish(key)


# -- The least and greatest of integers -----------------------------------------------------------------------------
LANES: Final = 8  # i64s: a vector of the widest units
LEAST, MOST = -(2**63), 2**63 - 1


def emit_extent(key: str, d: dtype, skips: bool) -> str:
    """Words: x, to, bytes from row to row, elements of a row, skip; rows from `begin` to `end`. Writes (least, greatest) to `to`, as i64: the
    greatest and the least i64 where there is no element. With `skips`, elements that are `skip` do not count."""
    from flambeau.runtime.jit import symbol

    c = Code(["x", "to", "step", "count", "skip"], Target.host())
    element = OF_BYTES[d.itemsize]
    x, to, count, skip = c.array("x", element), c.array("to", "i64"), c.word("count"), c.word("skip")

    def widened(value: Lanes) -> Lanes:
        return value if element == "i64" else value.to("i64", "sext" if d.is_signed else "zext")

    cells = {lanes: (c.cell("i64", MOST, lanes), c.cell("i64", LEAST, lanes)) for lanes in (LANES, 1)}

    def look(value: Lanes, lanes: int) -> None:
        low, high = cells[lanes]
        below, above = value, value
        if skips:
            counts = value.ne(c.splat(skip, lanes) if lanes > 1 else skip)
            below, above = counts.select(value, c.value("i64", MOST, lanes)), counts.select(value, c.value("i64", LEAST, lanes))
        low.set(c.min(low.get(), below))
        high.set(c.max(high.get(), above))

    whole = c.divide(count, LANES) * LANES
    with c.for_(c.named("i64", "%begin"), c.named("i64", "%end")) as r:
        at = x.after_bytes(r * c.word("step"))
        with c.for_(0, whole, LANES) as i:
            look(widened(at.load(i, LANES)), LANES)
        with c.for_(whole, count) as i:
            look(widened(at.load(i)), 1)
    for place, (many, one) in enumerate(zip(cells[LANES], cells[1], strict=True)):
        for lane in range(LANES):
            value = c.extract(many.get(), lane)
            one.set(c.max(one.get(), value) if place else c.min(one.get(), value))
        to.store(place, one.get())
    return c.kernel(symbol(key))


def emitter(name: str) -> Callable[..., str]:
    """The function of this module that runtime/select.py asks for."""
    return globals()[name]  # type: ignore[no-any-return]
