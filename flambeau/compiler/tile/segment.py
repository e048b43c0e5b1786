"""Segments: operations of one shape, one after the other, that run in one loop nest, with what is between them in registers.

The last dim goes by vectors; a reduction along it keeps 64 partial sums (interpret.py has the order), one along another dim adds rows to a row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Final

from flambeau.compiler.emit import convert
from flambeau.compiler.emit.code import Cell
from flambeau.compiler.emit.lanes import Lanes
from flambeau.compiler.tile.forms import (
    ZERO,
    Buffer,
    Coordinate,
    Coordinates,
    Linear,
    Uniform,
    element_of,
)
from flambeau.compiler.tile.interpret import PARTIALS
from flambeau.compiler.tile.ir import Op, Pointer, Value
from flambeau.compiler.tile.reading import Reading
from flambeau.compiler.tile.regions import combined, identity
from flambeau.dtypes import dtype, int64
from flambeau.runtime.target import Target

VECTORS: Final = 4  # of the last dim, in one round of its loop


@dataclass(eq=False)
class Segment:
    """Operations over one shape; `stores` are the results that others read, and where they go."""

    shape: tuple[int, ...]
    ops: list[Op] = field(default_factory=list)
    stores: list[tuple[Value, Buffer]] = field(default_factory=list)


def element_type(e: object) -> dtype:
    """A dtype for memory; a pointer is an int64 there."""
    return int64 if isinstance(e, Pointer) else e  # type: ignore[return-value]


class Nest:
    """The loop nest of one segment."""

    def __init__(self, r: Reading, segment: Segment, target: Target, partial_results: dict[int, Buffer]) -> None:
        self.r, self.c, self.segment = r, r.c, segment
        self.stores = {id(v): b for v, b in segment.stores}
        self.results = partial_results  # of reductions to blocks, by id
        shape = segment.shape
        alone = any(op.kind == "atomic" for op in segment.ops)
        last = shape[-1] if shape else 1
        self.width = 1 if alone else min(target.lanes, last)
        self.last = [op for op in segment.ops if op.kind == "reduce" and op.attrs["axis"] == len(shape) - 1]
        self.group = min(last, PARTIALS) if self.last else min(last, VECTORS * self.width)
        if alone:
            self.group = 1
        self.cells: dict[int, list[Cell]] = {}

    def emit(self) -> None:
        self.r.memos.append({})
        for op in self.segment.ops:
            if op.kind == "reduce" and op not in self.last:
                self._start_rows(op)
        self._dim(0, ())
        self.r.memos.pop()

    def _hoist(self, at: Coordinates) -> None:
        rest = (None,) * (len(self.segment.shape) - len(at))
        for op in self.segment.ops:
            for v in op.operands:
                if v.shape == self.segment.shape and v.shape:
                    self.r.hoist(v, (*at, *rest))

    def _dim(self, d: int, at: Coordinates) -> None:
        shape = self.segment.shape
        if d >= len(shape) - 1:
            self._row(at)
            return
        if shape[d] == 1:
            self._dim(d + 1, (*at, ZERO))
            return
        self._hoist(at)
        with self.c.for_(0, shape[d]) as i:
            self.r.memos.append({})
            self._dim(d + 1, (*at, Coordinate(i)))
            self.r.memos.pop()

    def _row(self, at: Coordinates) -> None:
        """All of the last dim."""
        n = self.segment.shape[-1] if self.segment.shape else 1
        self._hoist(at)
        for op in self.last:
            start = identity(op.regions[0])
            assert start is not None
            element = element_of(op.results[0].type.element)
            scalar = Lanes(self.c.b, element, 1, start)
            value = scalar if self.width == 1 else self.c.splat(scalar, self.width)
            self.cells[id(op)] = [self._cell(value) for _ in range(self.group // self.width)]

        def group(j: Lanes | int) -> None:
            self.r.memos.append({})
            for u in range(self.group // self.width):
                base = j + u * self.width if isinstance(j, int) or u else j
                self._body((*at, Coordinate(base, self.width) if n > 1 else ZERO) if self.segment.shape else (), u)
            self.r.memos.pop()

        if n <= self.group:
            group(0)
        else:
            with self.c.for_(0, n, self.group) as j:
                group(j)
        for op in self.last:
            self._finish(op, at)

    def _cell(self, value: Lanes) -> Cell:
        cell = Cell(self.c, value.element, value.width)
        cell.set(value)
        return cell

    # -- one vector -------------------------------------------------------------------------------------------------
    def _body(self, at: Coordinates, u: int) -> None:
        r = self.r
        width = self.width
        for op in self.segment.ops:
            if op.kind == "pointwise" or op.kind == "bitcast":
                r.keep(op.results[0], at, r.pointwise(op, [r.at(o, at if o.shape else ()) for o in op.operands], width))
            elif op.kind == "copy":
                pass
            elif op.kind == "load":
                r.keep(op.results[0], at, self._load(op, at))
            elif op.kind == "store":
                self._store(op, at)
            elif op.kind == "atomic":
                r.keep(op.results[0], at, self._atomic(op, at))
            elif op.kind == "reduce" and op in self.last:
                cell = self.cells[id(op)][u]
                x = r.lanes(op.operands[0], at, width)
                cell.set(combined(r, op.regions[0], [cell.get()], [x])[0])
            elif op.kind == "reduce":
                buffer, d = self.results[id(op.results[0])], op.attrs["axis"]
                to, e = at[:d] + at[d + 1 :], op.results[0].type.element
                before = r.spread(r.read(buffer, e, to), e, width)
                r.write(buffer, e, to, combined(r, op.regions[0], [before], [r.lanes(op.operands[0], at, width)])[0])
        for v, buffer in self.segment.stores:
            if v.op is not None and v.op.kind == "reduce" and v.op in self.segment.ops:
                continue
            r.write(buffer, v.type.element, at, r.lanes(v, at, width))

    def _mask(self, op: Op, at: Coordinates, first: int) -> str | None:
        if len(op.operands) <= first:
            return None
        return self.r.lanes(op.operands[first], at, self.width).name

    def _pointer(self, op: Op, address: Lanes) -> str:
        return self.r.pointer(op.operands[0], address)

    def _pointers(self, addresses: Lanes) -> str:
        width = addresses.width
        return self.c.b.op(f"inttoptr <{width} x i64> {addresses.name} to <{width} x ptr>")

    def _load(self, op: Op, at: Coordinates) -> Uniform | Lanes:
        r, width = self.r, self.width
        e = op.results[0].type.element
        d = element_type(e)
        where = r.at(op.operands[0], at)
        mask = self._mask(op, at, 1)
        if isinstance(where, Uniform) and mask is None:
            return Uniform(Lanes(self.c.b, element_of(e), 1, str(convert.load(self.c.b, d, self._pointer(op, where.value), 1))))
        if isinstance(where, Uniform) and width == 1:
            x = Lanes(self.c.b, element_of(e), 1, str(convert.load(self.c.b, d, self._pointer(op, where.value), 1, mask)))
        elif isinstance(where, Linear) and where.step == d.itemsize:
            x = Lanes(self.c.b, element_of(e), width, str(convert.load(self.c.b, d, self._pointer(op, where.base), width, mask)))
        elif isinstance(where, Lanes):
            x = self._looked_at(op, where, d, e, mask)
        else:
            pointers = self._pointers(r.spread(where, int64, width))
            x = Lanes(self.c.b, element_of(e), width, str(convert.gather_at(self.c.b, d, pointers, width, mask)))
        if len(op.operands) > 2:
            other = r.lanes(op.operands[2], at, width)
            x = Lanes(self.c.b, "i1", width, str(mask)).select(x, other)
        return Uniform(x) if width == 1 else x

    def _follows(self, addresses: Lanes, size: int, mask: str | None) -> tuple[Lanes, Lanes]:
        """(the first address, whether the addresses that count follow one another from there on)."""
        c, width = self.c, addresses.width
        first = c.extract(addresses, 0)
        other = addresses.ne(c.splat(first, width) + c.iota("i64", width) * size)
        if mask is not None:
            other = other & Lanes(c.b, "i1", width, mask)
        return first, Lanes(c.b, "i1", 1, other.any()) ^ 1

    def _looked_at(self, op: Op, addresses: Lanes, d: dtype, e: object, mask: str | None) -> Lanes:
        """A load from addresses that nothing is known of: one load where they follow one another, else a gather."""
        c, width, element = self.c, addresses.width, element_of(e)  # type: ignore[arg-type]
        cell = Cell(c, element, width)
        first, follow = self._follows(addresses, d.itemsize, mask)
        with c.if_(follow):
            cell.set(Lanes(c.b, element, width, str(convert.load(c.b, d, self._pointer(op, first), width, mask))))
        with c.else_():
            cell.set(Lanes(c.b, element, width, str(convert.gather_at(c.b, d, self._pointers(addresses), width, mask))))
        return cell.get()

    def _store(self, op: Op, at: Coordinates) -> None:
        r, width, b = self.r, self.width, self.c.b
        e = op.operands[1].type.element
        d = element_type(e)
        where, value, mask = r.at(op.operands[0], at), r.lanes(op.operands[1], at, width), self._mask(op, at, 2)
        if width == 1:
            convert.store(b, d, value.name, self._pointer(op, r.spread(where, int64, 1)), 1, mask)
        elif isinstance(where, Linear) and where.step == d.itemsize:
            convert.store(b, d, value.name, self._pointer(op, where.base), width, mask)
        elif isinstance(where, Lanes):
            first, follow = self._follows(where, d.itemsize, mask)
            near = partial(convert.store, b, d, value.name, self._pointer(op, first), width, mask)
            with self.c.if_(follow):
                near()
            with self.c.else_():
                convert.scatter_at(b, d, value.name, self._pointers(where), width, mask)
        else:
            convert.scatter_at(b, d, value.name, self._pointers(r.spread(where, int64, width)), width, mask)

    def _atomic(self, op: Op, at: Coordinates) -> Uniform:
        """One element, in memory form."""
        r, c, b = self.r, self.c, self.c.b
        e, name = op.results[0].type.element, op.attrs["op"]
        d = element_type(e)
        mask = self._mask(op, at, 2) if name != "cas" else None
        where = self._pointer(op, r.spread(r.at(op.operands[0], at), int64, 1))
        given = [convert.to_memory(r.lanes(o, at, 1), d) for o in op.operands[1 : 3 if name == "cas" else 2]]
        cell = Cell(c, element_of(e), 1)
        cell.set(0)

        def change() -> None:
            memory = given[0].element
            if name == "cas" or (d.category == 2 and memory not in ("float", "double", "half")):
                old = self._compared(where, given, d, name)
            else:
                kind = {"xchg": "xchg", "and": "and", "or": "or", "xor": "xor", "add": "fadd" if d.category == 2 else "add",
                        "max": "fmax" if d.category == 2 else "max" if d.is_signed else "umax",
                        "min": "fmin" if d.category == 2 else "min" if d.is_signed else "umin"}[name]  # fmt: skip
                old = Lanes(b, memory, 1, b.op(f"atomicrmw {kind} ptr {where}, {memory} {given[0].name} seq_cst"))
            cell.set(convert.from_memory(old, d))

        if mask is None:
            change()
        else:
            with c.if_(Lanes(b, "i1", 1, mask)):
                change()
        return Uniform(cell.get())

    def _compared(self, where: str, given: list[Lanes], d: dtype, name: str) -> Lanes:
        """By compare and exchange: cas itself, and what the machine has no instruction for (a loop)."""
        c, b, size = self.c, self.c.b, d.itemsize
        integer, memory = f"i{8 * size}", given[0].element

        def bits(x: Lanes) -> Lanes:
            return x if x.element == integer else Lanes(b, integer, 1, b.op(f"bitcast {x.type} {x.name} to {integer}"))

        def number(x: Lanes) -> Lanes:
            return x if memory == integer else Lanes(b, memory, 1, b.op(f"bitcast {x.type} {x.name} to {memory}"))

        def exchange(expected: Lanes, new: Lanes) -> tuple[Lanes, Lanes]:
            pair = b.op(f"cmpxchg ptr {where}, {integer} {expected.name}, {integer} {new.name} seq_cst seq_cst")
            found = Lanes(b, integer, 1, b.op(f"extractvalue {{ {integer}, i1 }} {pair}, 0"))
            return found, Lanes(b, "i1", 1, b.op(f"extractvalue {{ {integer}, i1 }} {pair}, 1"))

        if name == "cas":
            return number(exchange(bits(given[0]), bits(given[1]))[0])
        now = c.cell(integer, Lanes(b, integer, 1, b.load(integer, where, size)))
        done = c.cell("i1", Lanes(b, "i1", 1, "false"))
        with c.while_(lambda: done.get() ^ 1):
            old = convert.from_memory(number(now.get()), d)
            new = convert.from_memory(given[0], d)
            if name != "xchg":
                new = self.r.apply({"add": "add", "max": "fmax", "min": "fmin"}[name], d, [old, new], 1, None)
            found, there = exchange(now.get(), bits(convert.to_memory(new, d)))
            done.set(there)
            now.set(there.select(now.get(), found))
        return number(now.get())

    # -- reductions -------------------------------------------------------------------------------------------------
    def _finish(self, op: Op, at: Coordinates) -> None:
        """Partial sums of the last dim as one: halves onto halves."""
        c = self.c
        values = [cell.get() for cell in self.cells[id(op)]]
        while len(values) > 1:
            half = len(values) // 2
            values = [combined(self.r, op.regions[0], [a], [b])[0] for a, b in zip(values[:half], values[half:], strict=True)]
        total = folded(self.r, op, values)[0]
        v = op.results[0]
        if v.shape:
            self.r.write(self.results[id(v)], v.type.element, at, total)
        else:
            cell = Cell(c, total.element, 1)
            cell.set(total)
            self.r.forms[id(v)] = cell.get()

    def _start_rows(self, op: Op) -> None:
        """Fill the rows that a reduction along another dim adds to."""
        v = op.results[0]
        buffer, e = self.results[id(v)], v.type.element
        start = identity(op.regions[0])
        assert start is not None
        value = Lanes(self.c.b, element_of(e), 1, start)
        fill(self.r, buffer, e, v.shape, value, self.width)


def folded(r: Reading, op: Op, values: list[Lanes]) -> list[Lanes]:
    """A vector (or a tuple of them) as one element: halves onto halves."""
    c, width = r.c, values[0].width
    while width > 1:
        width //= 2
        low = [c.extract(v, 0) if width == 1 else c.shuffle(v, v, range(width)) for v in values]
        high = [c.extract(v, 1) if width == 1 else c.shuffle(v, v, range(width, 2 * width)) for v in values]
        values = combined(r, op.regions[0], low, high)
    return values


def fill(r: Reading, buffer: Buffer, e: dtype | Pointer, shape: tuple[int, ...], value: Lanes, width: int) -> None:
    """The same number everywhere in a dense buffer."""
    numel = 1
    for n in shape:
        numel *= n
    width = min(width, numel)
    flat = Buffer(buffer.array, (1,))
    vector = value if width == 1 else r.c.splat(value, width)
    if numel <= VECTORS * width:
        for at in range(0, numel, width):
            r.write(flat, e, (Coordinate(at, width),), vector)
        return
    with r.c.for_(0, numel, width) as i:
        r.write(flat, e, (Coordinate(i, width),), vector)
