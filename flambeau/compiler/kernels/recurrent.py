"""Recurrent layers: all steps of one direction in one kernel, forward and backward.

Sequences do not depend on each other, so units are sequences: a thread takes some rows of the batch through all steps, and no thread waits for
another one. The number of steps and of rows are words: a kernel serves all lengths, padded and packed.

A step is a product of the states with the weights, and what the gates do with it. The weights are copied once, to panels of columns that the product
reads in order (the packing of Goto and van de Geijn 2008); it multiplies ROWS states at a time, and adds each sum in the order of the states, however many
rows and threads there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from flambeau.compiler.emit import math as m
from flambeau.compiler.emit.code import Array, Code
from flambeau.compiler.emit.lanes import Lanes
from flambeau.compiler.graph import GATES, Graph, Value, contiguous_strides, recurrent_operands
from flambeau.compiler.kernel import Kernel, Scratch, Word
from flambeau.compiler.kernels.description import describe_code
from flambeau.compiler.kernels.matmul_blocking import ceil_div, round_up
from flambeau.compiler.kernels.move_layout import address, reads
from flambeau.symbols import maximum

THREAD_OPERATIONS = 1 << 20  # that a further thread should have: some 10 microseconds


def make_recurrent(graph: Graph, node_index: int) -> list[Kernel]:
    """Kernels of a `recurrent` or `recurrent_gradient` node: one that copies the weights, one that takes all steps."""
    node = graph.nodes[node_index]
    host = graph.target
    gradient = node.op == "recurrent_gradient"
    mode = node.attr("mode")
    h = graph.values[node.inputs[1]]
    facts = Facts(
        mode, h.dtype.itemsize == 8, bool(node.attr("reverse")), bool(node.attr("packed")), not gradient and bool(node.attr("keep")), host.vector_bits,
        4 if host.registers == 32 else 2,
    )  # fmt: skip
    (batch, hidden), rows = h.shape, graph.values[node.outputs[0]].shape[0]
    inputs, results = recurrent_operands(node.op, dict(node.attrs), rows, batch, hidden)
    operands = dict(zip((*inputs, *["sizes"] * facts.packed, *results), (*node.inputs, *node.outputs), strict=True))
    width = GATES[mode] * hidden
    columns, depth = (hidden, width) if gradient else (width, hidden)
    pitch = round_up(columns, facts.panel)
    copied, panels = copy_to_panels(graph, node_index, operands["w"], facts, columns, depth, not gradient)
    scratch = Scratch(round_up(ROWS * pitch * facts.itemsize, 64))
    steps = graph.values[operands["sizes"]].shape[0] if facts.packed else rows // batch
    words: dict[str, Word] = {name: address(graph, v) for name, v in operands.items() if name != "w"}
    words |= {
        "panels": address(graph, panels), "scratch": scratch, "area": scratch.per_worker, "rows": rows, "batch": batch, "steps": steps, "hidden": hidden,
        "width": width, "pitch": pitch,
    }  # fmt: skip
    key = f"{node.op}:{facts.key}"
    operations = 2 * rows * width * hidden
    touched = [v for name, v in operands.items() if name != "w" and v not in node.outputs]
    traffic = sum([graph.values[v].numel for v in (*touched, *node.outputs)]) * facts.itemsize
    taking = describe_code(
        node.op, key, partial(backward if gradient else forward, facts, tuple(words)), words, reads=(*reads(graph, *touched), panels), writes=node.outputs,
        units=batch, bytes=traffic, operations=operations,
        nodes=(node_index,), grain=ROWS, min_units_per_thread=maximum(1, THREAD_OPERATIONS * batch // maximum(operations, 1)),
    )  # fmt: skip
    return [copied, taking]


# -- See recurrent.py, which makes the kernels -----------------------------------------------------------------------
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


# -- States times weights, which lie in panels of columns ------------------------------------------------------------
ROWS = 4  # states of a product: with four vectors of columns 16 sums in registers, two instructions for each number that is read
THREAD_ELEMENTS = 1 << 14  # of the weights: so many a further thread should copy


@dataclass(frozen=True, slots=True)
class Facts:
    """What the code of a kernel depends on."""

    mode: str
    double: bool
    reverse: bool
    packed: bool
    keep: bool
    bits: int
    vectors: int  # of columns in a panel

    @property
    def element(self) -> str:
        return "double" if self.double else "float"

    @property
    def itemsize(self) -> int:
        return 8 if self.double else 4

    @property
    def lanes(self) -> int:
        return self.bits // (8 * self.itemsize)

    @property
    def panel(self) -> int:
        """Columns of a panel."""
        return self.lanes * self.vectors

    @property
    def key(self) -> str:
        flags = "".join([letter for letter, on in zip("rpk", (self.reverse, self.packed, self.keep), strict=True) if on])
        return f"{self.mode}:{self.element}:{flags}:{self.bits}:{self.vectors}"


def copy_to_panels(graph: Graph, node_index: int, w: int, facts: Facts, columns: int, depth: int, turned: bool) -> tuple[Kernel, int]:
    """The kernel that copies w to panels (panel, depth, columns of it), zeros where there are no more columns; and their value."""
    count = ceil_div(columns, facts.panel)
    shape = (count, depth, facts.panel)
    panels = graph.add_value(Value(shape, graph.values[w].dtype, contiguous_strides(shape)))
    words: dict[str, Word] = {"w": address(graph, w), "to": address(graph, panels), "columns": columns, "depth": depth}
    key = f"recurrent_panels:{facts.element}:{facts.panel}:{'t' if turned else 'n'}"
    kernel = describe_code(
        "recurrent_panels", key, partial(_panels, facts.element, facts.panel, turned), words, reads=reads(graph, w), writes=(panels,), units=count,
        bytes=2 * columns * depth * facts.itemsize, nodes=(node_index,),
        min_units_per_thread=maximum(1, THREAD_ELEMENTS // maximum(depth * facts.panel, 1)),
    )  # fmt: skip
    return kernel, panels


def _panels(element: str, panel: int, turned: bool, c: Code) -> None:
    w, to = c.array("w", element), c.array("to", element)
    columns, depth = c.word("columns"), c.word("depth")
    with c.for_(c.named("i64", "%begin"), c.named("i64", "%end")) as p:
        first = p * panel
        inside = c.min(columns - first, panel)
        target = to.at(p * depth * panel)
        if turned:
            with c.for_(0, inside) as j:
                source = w.at((first + j) * depth if turned else first + j)
                with c.for_(0, depth) as i:
                    target.store(i * panel + j, source[i if turned else i * columns])
        else:
            with c.for_(0, depth) as k:
                source = w.at(k * columns + first)
                with c.for_(0, inside) as i:
                    target.store(k * panel + i, source[i])
        with c.for_(0, depth) as k, c.for_(inside, panel) as j:
            target.store(k * panel + j, 0.0)


def product(c: Code, f: Facts, sources: list[Array], panels: Array, depth: Lanes, columns: Lanes, pitch: Lanes, to: Array) -> None:
    """to[r] = sources[r] times the weights, by panels; each sum adds its products in order, rounding each once (fma)."""
    with c.for_(0, columns, f.panel) as first:
        panel = panels.at(first * depth)
        sums = [[c.cell(f.element, 0.0, f.lanes) for _ in range(f.vectors)] for _ in sources]
        with c.for_(0, depth) as k:
            weights = [panel.load(k * f.panel + v * f.lanes, f.lanes) for v in range(f.vectors)]
            for source, row in zip(sources, sums, strict=True):
                state = c.splat(source[k], f.lanes)
                for weight, cell in zip(weights, row, strict=True):
                    cell.set(state.fma(weight, cell.get()))
        for r, row in enumerate(sums):
            for v, cell in enumerate(row):
                to.store(pitch * r + first + v * f.lanes, cell.get())
