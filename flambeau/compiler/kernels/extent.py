"""The least and greatest of integers in memory: the native function behind runtime/select.py's `extent`."""

from __future__ import annotations

from typing import Final

from flambeau.compiler.emit.code import OF_BYTES, Code
from flambeau.compiler.emit.lanes import Lanes
from flambeau.dtypes import dtype
from flambeau.runtime.target import Target

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
