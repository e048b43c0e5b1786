"""Fourier transforms: what is done to each point before, between and after the transforms of which a long one, or one of a prime length, is made.

One kernel walks over the points of all signals: it makes a complex number of what is in memory, multiplies it by a number of a table, and writes it.

| form       | the number for place k                                                                     |
|------------|--------------------------------------------------------------------------------------------|
| "complex"  | what is there                                                                              |
| "real"     | the same, with nothing imaginary                                                           |
| "mirror"   | of a whole transform of real numbers, of which the first half is there                     |
| "tangle"   | of the transform of n pairs of real numbers, of which the first n + 1 points of all are there |
| "untangle" | the first n + 1 points of the transform of 2 n real numbers, from that of n pairs           |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from flambeau.compiler.emit.code import Code
from flambeau.compiler.emit.complex import add, sub
from flambeau.compiler.emit.lanes import Lanes
from flambeau.compiler.kernels.fourier_stages import ELEMENT, Point, times
from flambeau.compiler.kernels.move_layout import Group
from flambeau.runtime.untracked import record

BLOCK: Final = 1024  # points of a unit


@record
@dataclass(frozen=True, slots=True)
class Facts:
    """What the code depends on: the dtypes of the parts on both sides, the form, whether a table multiplies, parts are exchanged, results are complex."""

    real: tuple[str, str]
    batch: Group
    form: str
    multiplied: bool
    exchanged: tuple[bool, bool]  # real and imaginary part, on reading and on writing
    complex: bool

    @property
    def wide(self) -> str:
        """The dtype that is computed in."""
        return max(self.real)

    @property
    def key(self) -> str:
        flags = "".join("ny"[x] for x in (self.multiplied, *self.exchanged, self.complex))
        return f"fourier_rows:{':'.join(self.real)}:{self.form}:{flags}:{self.batch.fact}"


def transform(facts: Facts, c: Code) -> None:
    """The body. Words: `x`, `to`, `table` (addresses), `n`, `read` (places from which on numbers are zero), `write` (places), `blocks` (of a signal),
    `step0`, `other0`, `step1`, `other1` (from point to point and from part to part), `scale` (a double's bits), `halves` (a table)."""
    element = ELEMENT[facts.wide]
    number = Lanes(c.b, "double", 1, c.b.op(f"bitcast i64 {c.word('scale').name} to double"))
    scale = number.to(element, "fptrunc")
    n = c.word("n")
    with c.for_(c.named("i64", "%begin"), c.named("i64", "%end")) as u:
        row = c.divide(u, c.word("blocks"))
        low = (u - row * c.word("blocks")) * BLOCK
        offsets = facts.batch.offsets(c, row)
        x, to = (c.array(name, ELEMENT[real]).at(offset) for name, real, offset in zip(("x", "to"), facts.real, offsets, strict=True))

        def get(k: Lanes) -> Point:
            at = x.at(k * c.word("step0"))
            parts = [at[0], c.value(at.element, 0.0) if facts.form == "real" else at[c.word("other0")]]
            a, b = (part.to(element, "fpext") for part in parts)
            return a, b

        def put(k: Lanes, value: Point) -> None:
            a, b = (part * scale for part in (reversed(value) if facts.exchanged[1] else value))
            at = to.at(k * c.word("step1"))
            at.store(0, a.to(at.element, "fptrunc"))
            if facts.complex:
                at.store(c.word("other1"), b.to(at.element, "fptrunc"))

        with c.for_(low, c.min(low + BLOCK, c.word("write"))) as k:
            cells = [c.cell(element, 0.0) for _ in range(2)]
            with c.if_(k.lt(c.word("read"))):
                value = _number(c, facts.form, get, k, n)
                if facts.exchanged[0]:
                    value = value[1], value[0]
                if facts.multiplied:
                    table = c.array("table", element).at(k * 2)
                    value = times(value, (table[0], table[1]))
                for cell, part in zip(cells, value, strict=True):
                    cell.set(part)
            put(k, (cells[0].get(), cells[1].get()))


def _number(c: Code, form: str, get: Callable[[Lanes], Point], k: Lanes, n: Lanes) -> Point:
    """The complex number for place k. The imaginary part of what is its own mirror image does not count."""
    if form == "mirror":
        beyond = (k * 2).gt(n)
        x, y = get(beyond.select(n - k, k))
        own = k.eq(0) | (k * 2).eq(n)
        return x, own.select(0.0, beyond.select(-y, y))
    if form not in ("tangle", "untangle"):
        return get(k)
    back = form == "tangle"
    a, b = get(k if back else k.eq(n).select(0, k)), get(n - k if back else k.eq(0).select(0, n - k))
    if back:
        a, b = (a[0], k.eq(0).select(0.0, a[1])), (b[0], k.eq(0).select(0.0, b[1]))
    table = c.array("halves", a[0].element).at(k * 2)
    w = table[0], table[1]
    even, odd = add(a, (b[0], -b[1])), sub(a, (b[0], -b[1]))
    if back:
        odd = times(odd, (w[0], -w[1]))
        return even[0] - odd[1], even[1] + odd[0]
    return add((even[0] * 0.5, even[1] * 0.5), times((odd[1] * 0.5, odd[0] * -0.5), w))
