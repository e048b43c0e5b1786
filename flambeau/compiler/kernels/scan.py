"""Scans along a dim: cumsum, cumprod, cummax, cummin, logcumsumexp.

The input is (outer, count, inner) around the scanned dim. Units are the points of outer times blocks of inner:
* inner has several points: they are the lanes, and the scan goes step by step;
* inner is one point, and the scanned dim runs along memory: a vector of elements is scanned by doubling shifts (Hillis
  and Steele 1986) and joined to what came before it; cumprod goes one by one (another order could overflow where this
  does not). Sums and products run in a wider type than the elements (float32 in double, the narrow floats in float32),
  as PyTorch's do, and every result is rounded on its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from flambeau import dtypes
from flambeau.compiler.emit import convert, floating, scalar
from flambeau.compiler.emit import math as m
from flambeau.compiler.emit.code import Array, Cell, Code
from flambeau.compiler.emit.convert import Value
from flambeau.compiler.emit.lanes import Lanes
from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Kernel, Word
from flambeau.compiler.kernels.description import describe_code
from flambeau.compiler.kernels.move_layout import Group, address, group, reads
from flambeau.symbols import maximum

# Columns of a unit: four vectors of float32, so that each step of the scan touches whole cache lines.
BLOCK = 64
# Elements that a thread should have before a further one is worth starting (about 1 ns each).
THREAD_ELEMENTS = 1 << 14
# What each scan's running value starts as: the identity of this reduction.
_REDUCTION = {"cumsum": "sum", "cumprod": "prod", "cummax": "amax", "cummin": "amin", "logcumsumexp": "amax"}
_WIDER = {
    dtypes.float16: dtypes.float32, dtypes.bfloat16: dtypes.float32, dtypes.float32: dtypes.float64,
    dtypes.complex64: dtypes.complex128,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Facts:
    op: str
    dtype: dtypes.dtype
    outer: Group
    inner: Group
    unit: bool  # the scanned dim runs along memory
    bits: int

    @property
    def running(self) -> dtypes.dtype:
        """The dtype of the running value."""
        return self.dtype if self.op in ("cummax", "cummin") else _WIDER.get(self.dtype, self.dtype)

    @property
    def key(self) -> str:
        along = "u" if self.unit else "s"
        return f"scan:{self.op}:{self.dtype.name}:{self.outer.fact}:{self.inner.fact}:{along}:{self.bits}"


def make_scan(graph: Graph, node_index: int) -> list[Kernel]:
    """Kernels of a scan node."""
    node = graph.nodes[node_index]
    x = graph.values[node.inputs[0]]
    if x.numel == 0:
        return []
    dim = node.attr("dim")
    shape, strides = x.shape or (1,), x.strides or (1,)
    outer = group("outer", shape[:dim], strides[:dim])
    inner = group("inner", shape[dim + 1 :], strides[dim + 1 :])
    facts = _Facts(node.op, x.dtype, outer, inner, strides[dim] == 1, graph.target.vector_bits)
    blocks = -(-inner.count // BLOCK)
    words: dict[str, Word] = {
        "x": address(graph, node.inputs[0]), "to": address(graph, node.outputs[0]), "count": shape[dim],
        "step": strides[dim], "inner": inner.count, "blocks": blocks, **outer.words(), **inner.words(),
    }  # fmt: skip
    if len(node.outputs) == 2:
        words["indices"] = address(graph, node.outputs[1])
    traffic = x.numel * (2 * x.dtype.itemsize + (8 if len(node.outputs) == 2 else 0))
    units = outer.count * blocks
    return [
        describe_code(
            node.op, facts.key, partial(_scan, facts, len(node.outputs) == 2), words, reads=reads(graph, node.inputs[0]),
            writes=node.outputs, units=units, bytes=traffic, operations=x.numel, nodes=(node_index,),
            min_units_per_thread=maximum(1, units * THREAD_ELEMENTS // x.numel),
        )
    ]  # fmt: skip


def _scan(facts: _Facts, has_indices: bool, c: Code) -> None:
    d, outer, inner = facts.dtype, facts.outer, facts.inner
    x, to = c.array("x", "i8"), c.array("to", "i8")
    indices = c.array("indices", "i64") if has_indices else None
    count, width = c.word("count"), c.word("inner")
    with c.for_(c.named("i64", "%begin"), c.named("i64", "%end")) as u:
        o, block = u, c.i64(0)
        if inner.sizes:
            o = c.divide(u, c.word("blocks"))
            block = u - o * c.word("blocks")
        source = x.after_bytes(outer.offsets(c, o)[0] * d.itemsize)
        start = o * count * width

        def columns(first: Lanes, lanes: int, mask: str | None) -> None:
            at = source.after_bytes(inner.offsets(c, first)[0] * d.itemsize)
            target = to.after_bytes((start + first) * d.itemsize)
            places = None if indices is None else indices.at(start + first)
            scan = _Scan(c, facts, at, target, places, lanes, mask)
            if facts.op != "cumprod" and not inner.sizes and facts.unit and not d.is_complex:
                along(c, facts, at, target, places)
            else:
                with c.for_(0, count) as i:
                    scan.step(i)

        if not inner.sizes:
            columns(c.i64(0), 1, None)
        else:
            low = block * BLOCK
            high = c.min(low + BLOCK, width)
            lanes = facts.bits // 8 // max(facts.running.itemsize, 4) if inner.unit(0) else 1
            c.blocks(low, high, lanes, columns)


class _Scan:
    """One scan of `lanes` neighbouring columns: `source` and `to` are the columns' first elements."""

    def __init__(self, c: Code, facts: _Facts, source: Array, to: Array, indices: Array | None, lanes: int, mask: str | None) -> None:
        self.c = c
        self.facts = facts
        self.source = source
        self.to = to
        self.indices = indices
        self.lanes = lanes
        self.mask = mask
        running = facts.running
        self.cells: list[Cell] = []
        start = scalar.reduce_identity(_REDUCTION[facts.op], running)
        for part in (start,) if isinstance(start, str) else start:
            cell = Cell(c, convert.register_element(running), lanes)
            cell.set(c.splat(c.named(cell.element, part), lanes))
            self.cells.append(cell)
        self.place = c.cell("i64", 0, lanes)

    def _load(self, i: Lanes, lanes: int, mask: str | None) -> Value:
        """Element i of the scan, in the running dtype."""
        facts = self.facts
        at = self.source.after_bytes(i * self.c.word("step") * facts.dtype.itemsize)
        value = convert.load(self.c.b, facts.dtype, at.pointer, lanes, mask)
        return convert.cast(self.c.b, facts.dtype, facts.running, value, lanes)

    def _store(self, i: Lanes, value: Value, lanes: int, mask: str | None) -> None:
        facts = self.facts
        at = self.to.after_bytes(i * self.c.word("inner") * facts.dtype.itemsize)
        value = convert.cast(self.c.b, facts.running, facts.dtype, value, lanes)
        convert.store(self.c.b, facts.dtype, value, at.pointer, lanes, mask)

    def step(self, i: Lanes) -> None:
        c, facts = self.c, self.facts
        value = self._load(i, self.lanes, self.mask)
        old = [cell.get() for cell in self.cells]
        if facts.op in ("cummax", "cummin"):
            new: Value = self._extreme(i, old[0], value)
        elif facts.op == "logcumsumexp":
            new = _log_add_exp(convert.lanes(c.b, facts.running, value, self.lanes), old[0]).name
        else:
            before: Value = (old[0].name, old[1].name) if len(old) == 2 else old[0].name
            op = "add" if facts.op == "cumsum" else "mul"
            new = scalar.apply(c.b, op, facts.running, [before, value], self.lanes)
        for cell, part in zip(self.cells, (new,) if isinstance(new, str) else new, strict=True):
            cell.set(Lanes(c.b, cell.element, self.lanes, part))
        self._store(i, new, self.lanes, self.mask)
        if self.indices is not None:
            self.indices.at(i * c.word("inner")).store(0, self.place.get(), self.mask)

    def _extreme(self, i: Lanes, old: Lanes, value: Value) -> str:
        x = convert.lanes(self.c.b, self.facts.running, value, self.lanes)
        wins = _wins(self.facts, x, old)
        self.place.set(wins.select(self.c.splat(i, self.lanes), self.place.get()))
        return wins.select(x, old).name


def _wins(facts: _Facts, x: Lanes, old: Lanes) -> Lanes:
    """Whether the later element is the larger (smaller) one: of equals it is; NaN beats everything, of NaNs the
    last."""
    d = facts.running
    predicates = {"cummax": ("oge", "sge", "uge"), "cummin": ("ole", "sle", "ule")}[facts.op]
    wins = x.compare(predicates[0 if d.is_floating_point else 1 if d.is_signed else 2], old)
    return x.isnan() | wins if d.is_floating_point else wins


def _log_add_exp(x: Lanes, old: Lanes) -> Lanes:
    """log(exp(x) + exp(old)); equal infinities stay themselves."""
    high, low = floating.maximum(x, old), floating.minimum(x, old)
    infinite = low.eq(high) & abs(low).eq(float("inf"))
    gap = infinite.select(0.0, low - high)
    return infinite.select(high, m.log1p(m.exp(gap)) + high)


def along(c: Code, facts: _Facts, source: Array, to: Array, indices: Array | None) -> None:
    """A scan along memory, a vector at a time. What is carried is a list of lanes: the sum; the extreme and its place;
    or, for logcumsumexp, m and t where exp(m) (1 + t) is the sum so far and m the largest element: no exponential
    overflows, and a t that is tiny keeps its digits."""
    d, running = facts.dtype, facts.running
    pair = facts.op != "cumsum"
    lanes = facts.bits // 64 if pair else facts.bits // 8 // max(running.itemsize, 4)
    element = convert.register_element(running)
    identity = scalar.reduce_identity(_REDUCTION[facts.op], running)
    assert isinstance(identity, str)
    starts = [c.splat(c.named(element, identity), lanes)]
    if pair:
        starts.append(c.value("i64", 0, lanes) if indices is not None else c.value(element, -1.0, lanes))
    carry = [c.cell(start.element, start, lanes) for start in starts]

    def join(before: list[Lanes], after: list[Lanes]) -> list[Lanes]:
        if facts.op == "cumsum":
            return [before[0] + after[0]]
        if indices is not None:
            wins = _wins(facts, after[0], before[0])
            return [wins.select(a, b) for a, b in zip(after, before, strict=True)]
        high, low = floating.maximum(before[0], after[0]), floating.minimum(before[0], after[0])
        larger = before[0].ge(after[0])
        t_high, t_low = larger.select(before[1], after[1]), larger.select(after[1], before[1])
        gap = low.eq(high).select(0.0, low - high)
        # exp of less would be subnormal, which costs the processor a hundred cycles, and could not change the sum.
        tiny = gap.lt(-700.0)
        share = tiny.select(0.0, m.exp(tiny.select(0.0, gap)))
        return [high, (t_low + 1.0).fma(share, t_high)]

    def some(i: Lanes, _: int, mask: str | None) -> None:
        at = source.after_bytes(i * d.itemsize)
        value = convert.cast(c.b, d, running, convert.load(c.b, d, at.pointer, lanes, mask), lanes)
        state = [convert.lanes(c.b, running, value, lanes)]
        if pair:
            number = c.splat(i, lanes) + c.iota("i64", lanes) if indices is not None else starts[1].like(0.0)
            state.append(number)
        shift = 1
        while shift < lanes:
            order = [lanes] * shift + list(range(lanes - shift))
            state = join([c.shuffle(part, start, order) for part, start in zip(state, starts, strict=True)], state)
            shift *= 2
        state = join([cell.get() for cell in carry], state)
        # Lanes past the end hold rubbish, which nothing reads: the carry is not used again.
        for cell, part in zip(carry, state, strict=True):
            cell.set(c.shuffle(part, part, [lanes - 1] * lanes))
        result = m.log1p(state[1]) + state[0] if pair and indices is None else state[0]
        cast = convert.cast(c.b, running, d, result.name, lanes)
        convert.store(c.b, d, cast, to.after_bytes(i * d.itemsize).pointer, lanes, mask)
        if indices is not None:
            indices.store(i, state[1], mask)

    c.blocks(0, c.word("count"), lanes, some)
