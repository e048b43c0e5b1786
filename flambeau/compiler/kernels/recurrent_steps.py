"""The steps of a recurrent layer, in native code: see recurrent.py, which makes the kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flambeau.compiler.emit import math as m
from flambeau.compiler.emit.code import Array, Code
from flambeau.compiler.emit.lanes import Lanes
from flambeau.compiler.kernels.recurrent_product import ROWS, Facts, product

_NUMBERS = frozenset(("rows", "batch", "steps", "hidden", "width", "pitch", "area"))


class _Walk:
    """Rows of the batch through all steps, in the order of time or against it."""

    def __init__(self, f: Facts, names: Sequence[str], c: Code) -> None:
        self.f, self.c = f, c
        self.arrays = {name: c.array(name, f.element) for name in names if name not in _NUMBERS and name not in ("sizes", "scratch")}
        self.sizes = c.array("sizes", "i64") if f.packed else None
        self.rows, self.batch, self.steps = c.word("rows"), c.word("batch"), c.word("steps")
        self.hidden, self.width, self.pitch = c.word("hidden"), c.word("width"), c.word("pitch")
        self.scratch = c.array("scratch", f.element).after_bytes(c.named("i64", "%worker") * c.word("area"))

    def size(self, t: Lanes) -> Lanes:
        """How many sequences have a step t."""
        return self.batch if self.sizes is None else self.sizes[t]

    def run(self, backwards: bool, begin: Callable[[Lanes, Lanes], None], step: Callable[[Lanes, Lanes, Lanes, Lanes], None]) -> None:
        """For each block of sequences `begin(first, how many)`, then `step(t, first sequence, how many, first row)` of each step that some of them have."""
        c = self.c
        end = c.named("i64", "%end")
        falling = self.f.reverse != backwards  # the last step comes first
        with c.for_(c.named("i64", "%begin"), end, ROWS) as first:
            count = c.min(end - first, ROWS)
            begin(first, count)
            start = c.cell("i64", self.rows if falling else 0)
            with c.for_(0, self.steps) as i:
                t = self.steps - 1 - i if falling else i
                size = self.size(t)
                if falling:
                    start.set(start.get() - size)
                here = start.get()
                active = c.min(count, size - first)
                with c.if_(active.gt(0)):
                    step(t, first, active, here + first)
                if not falling:
                    start.set(here + size)

    def multiply(self, source: Array, pitch: Lanes, active: Lanes, depth: Lanes, columns: Lanes) -> None:
        """The product of the first `active` rows of `source` with the weights, to the scratch memory. Rows that are missing are the last one again."""
        c = self.c

        def some(count: int) -> None:
            sources = [source.at(c.min(active - 1, r) * pitch) for r in range(count)]
            product(c, self.f, sources, self.arrays["panels"], depth, columns, self.pitch, self.scratch)

        with c.if_(active.eq(1)):
            some(1)
        with c.else_():
            some(ROWS)

    def each(self, active: Lanes, body: Callable[[Lanes, Lanes, int, str | None], None]) -> None:
        """`body(row of the block, first unit, lanes, mask)` for the units of the first `active` rows."""
        c = self.c
        with c.for_(0, active) as r:
            c.blocks(0, self.hidden, self.f.lanes, lambda j, lanes, mask: body(r, j, lanes, mask))

    def copy(self, to: Array, source: Array, first: Lanes, count: Lanes) -> None:
        """Rows of states."""
        at = first * self.hidden
        self.c.copy_bytes(to.at(at), source.at(at), count * self.hidden * self.f.itemsize)

    def load(self, name: str, at: Lanes, lanes: int, mask: str | None) -> Lanes:
        return self.arrays[name].load(at, lanes, mask)

    def store(self, name: str, at: Lanes, value: Lanes, mask: str | None) -> None:
        self.arrays[name].store(at, value, mask)


def forward(f: Facts, names: Sequence[str], c: Code) -> None:
    """Words: the operands of `recurrent` by name, and sizes. The running states are the last states' memory."""
    walk = _Walk(f, names, c)
    a, hidden, width, pitch = walk.arrays, walk.hidden, walk.width, walk.pitch
    lstm = f.mode == "lstm"

    def begin(first: Lanes, count: Lanes) -> None:
        walk.copy(a["last_h"], a["h"], first, count)
        if lstm:
            walk.copy(a["last_c"], a["c"], first, count)

    def step(t: Lanes, first: Lanes, active: Lanes, row: Lanes) -> None:
        walk.multiply(a["last_h"].at(first * hidden), hidden, active, hidden, width)

        def unit(r: Lanes, j: Lanes, lanes: int, mask: str | None) -> None:
            def given(gate: int) -> Lanes:
                return walk.load("gates", (row + r) * width + hidden * gate + j, lanes, mask)

            def found(gate: int) -> Lanes:
                z = walk.scratch.load(r * pitch + hidden * gate + j, lanes, mask)
                return z + walk.load("bias", hidden * gate + j, lanes, mask) if f.mode == "gru" else z

            at, here = (first + r) * hidden + j, (row + r) * hidden + j
            values: list[Lanes] = []
            if lstm:
                i, forget, g, o = [given(gate) + found(gate) for gate in range(4)]
                values = [m.sigmoid(i), m.sigmoid(forget), m.tanh(g), m.sigmoid(o)]
                state = values[1] * walk.load("last_c", at, lanes, mask) + values[0] * values[2]
                walk.store("last_c", at, state, mask)
                if f.keep:
                    walk.store("all_c", here, state, mask)
                new = values[3] * m.tanh(state)
            elif f.mode == "gru":
                n_hidden = found(2)
                reset, update = m.sigmoid(given(0) + found(0)), m.sigmoid(given(1) + found(1))
                n = m.tanh(given(2) + reset * n_hidden)
                values = [reset, update, n, n_hidden]
                new = n + update * (walk.load("last_h", at, lanes, mask) - n)
            else:
                z = given(0) + found(0)
                new = m.tanh(z) if f.mode == "tanh" else z.le(0.0).select(0.0, z)
            if f.keep:
                for gate, value in enumerate(values):
                    walk.store("saved", (row + r) * hidden * 4 + hidden * gate + j, value, mask)
            walk.store("y", here, new, mask)
            walk.store("last_h", at, new, mask)

        walk.each(active, unit)

    walk.run(False, begin, step)


def backward(f: Facts, names: Sequence[str], c: Code) -> None:
    """Words: the operands of `recurrent_gradient` by name, and sizes. The running gradients of the states are the memory of h's and c's."""
    walk = _Walk(f, names, c)
    a, hidden, width, pitch = walk.arrays, walk.hidden, walk.width, walk.pitch
    lstm, gru = f.mode == "lstm", f.mode == "gru"
    source = a["to_hidden" if gru else "to_gates"]

    def begin(first: Lanes, count: Lanes) -> None:
        walk.copy(a["to_h"], a["g_h"], first, count)
        if lstm:
            walk.copy(a["to_c"], a["g_c"], first, count)

    def step(t: Lanes, first: Lanes, active: Lanes, row: Lanes) -> None:
        # The step before this one: its rows, and how many sequences have it.
        if f.reverse:
            last = walk.steps - 1
            before, known = row + walk.size(t), t.lt(last).select(walk.size(c.min(t + 1, last)), 0)
        else:
            size = walk.size(c.max(t - 1, 0))
            before, known = row - size, t.gt(0).select(size, 0)

        def unit(r: Lanes, j: Lanes, lanes: int, mask: str | None) -> None:
            at, here = (first + r) * hidden + j, (row + r) * hidden + j
            inside = (first + r).lt(known)

            def earlier(rows: str, start: str) -> Lanes:
                """A state before the step: of the step before, or the first one."""
                pointers = a[rows].address((before + r) * hidden + j), a[start].address(at)
                pointer = c.b.op(f"select i1 {inside.name}, ptr {pointers[0]}, ptr {pointers[1]}")
                return Array(c, pointer, f.element).load(0, lanes, mask)

            def kept(gate: int) -> Lanes:
                return walk.load("saved", (row + r) * hidden * 4 + hidden * gate + j, lanes, mask)

            def give(name: str, gate: int, value: Lanes) -> None:
                walk.store(name, (row + r) * width + hidden * gate + j, value, mask)

            h = earlier("y", "h")
            walk.store("before", here, h, mask)
            d = walk.load("g", here, lanes, mask) + walk.load("to_h", at, lanes, mask)
            if lstm:
                i, forget, n, o = [kept(gate) for gate in range(4)]
                top = m.tanh(walk.load("all_c", here, lanes, mask))
                dc = walk.load("to_c", at, lanes, mask) + d * o * (1.0 - top * top)
                slopes = [dc * n * i * (1.0 - i), dc * earlier("all_c", "c") * forget * (1.0 - forget), dc * i * (1.0 - n * n), d * top * o * (1.0 - o)]
                for gate, slope in enumerate(slopes):
                    give("to_gates", gate, slope)
                walk.store("to_c", at, dc * forget, mask)
            elif gru:
                reset, update, n, n_hidden = [kept(gate) for gate in range(4)]
                dn = d * (1.0 - update) * (1.0 - n * n)
                dr, du = dn * n_hidden * reset * (1.0 - reset), d * (h - n) * update * (1.0 - update)
                for gate, (to_gates, to_hidden) in enumerate(((dr, dr), (du, du), (dn, dn * reset))):
                    give("to_gates", gate, to_gates)
                    give("to_hidden", gate, to_hidden)
                walk.store("to_h", at, d * update, mask)
            else:
                y = walk.load("y", here, lanes, mask)
                give("to_gates", 0, d * (1.0 - y * y) if f.mode == "tanh" else y.le(0.0).select(0.0, d))

        walk.each(active, unit)
        walk.multiply(source.at(row * width), width, active, width, hidden)

        def gather(r: Lanes, j: Lanes, lanes: int, mask: str | None) -> None:
            at = (first + r) * hidden + j
            z = walk.scratch.load(r * pitch + j, lanes, mask)
            walk.store("to_h", at, z + walk.load("to_h", at, lanes, mask) if gru else z, mask)

        walk.each(active, gather)

    walk.run(True, begin, step)
