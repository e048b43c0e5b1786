"""Loop nests (lower/spec.py) to LLVM IR: one kernel function for a nest, from its facts alone.

Levels of values: 0 is known at the kernel's entry, 1 for one point of the outer loops that carry no vector, 2 for one
vector of points, 3 inside a stage. A value is emitted once at its level, so that nothing relies on LLVM's hoisting (it
cannot prove that a store does not change an operand; the planner promises it).

Units: the points of the outer loops, row-major; where the last outer loop carries the vector, its points are dealt in
chunks. Every unit computes the same bits whoever runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flambeau import dtypes
from flambeau.compiler.emit import builder, loop_reductions, loop_tiles, scalar
from flambeau.compiler.emit.builder import Builder
from flambeau.compiler.lower.spec import (
    ONE,
    ZERO,
    Block,
    Compute,
    Load,
    Nest,
    Reduce,
    Statement,
    Store,
    inputs_of,
    outputs_of,
    words_of,
)
from flambeau.runtime.target import Target

Register = Any  # what emit/scalar.py calls a value: an operand, or a pair of them for complex


@dataclass(slots=True)
class _Context:
    """Where statements are being emitted: number of copies, lanes of each, and how they find their elements."""

    copies: int
    width: int
    mask: str | None = None
    position: str = "0"  # along the vector loop, of lane 0 of copy 0
    indices: dict[int, str] = field(default_factory=dict)  # of the reduced loops that carry no vector
    accumulators: dict[tuple[int, int], list[Register]] = field(default_factory=dict)  # (statement, copy)


def emit_nest(nest: Nest, name: str, target: Target) -> str:
    """The module's text: a kernel `name` that runs the units [begin, end) of the nest."""
    return _Emitter(nest, target).module(name)


def emit_epilogue(nest: Nest, groups: tuple[int, int], by_rows: bool, name: str, first_word: int, target: Target) -> tuple[str, list[str]]:
    """An internal function that runs a nest on a rectangle, and its declarations. The nest's loops are `groups[0]` of
    the batch, `groups[1]` of the rows, and one of the columns (`by_rows`: of the columns, and one of the rows); its
    words start at word `first_word` of %args."""
    return _Emitter(nest, target).rectangle(groups, by_rows, name, first_word)


# How far ahead of the load a nest asks for what comes from memory: the hardware's own look ahead ends at a page of 4 KiB, and
# behind some arithmetic the core does not see far enough itself (gelu of 64 MiB, 2 threads: 5.6 ms without; 2.85 ms with 2048
# bytes, 2.65 with 4096, 2.8 with 8192; x + x stays at 2.4).
FAR_BYTES = 4096


class _Emitter:
    def __init__(self, nest: Nest, target: Target) -> None:
        self.nest = nest
        self.b = Builder(target)
        self.dtype = [dtypes.BY_NAME[name] for name in nest.dtypes]
        self.word: dict[tuple[str | int, ...], str] = {}
        self.scopes: list[dict[Any, Any]] = [{}]
        self.base: list[str] = []  # of each access: address (or index) at the current unit
        self.outer_vector = nest.vector == nest.outer - 1
        self.split_range = ("0", "0")
        self.failed = ""
        self.scratch = ""
        self.level: dict[int, int] = {}
        self._find_levels()

    # -- levels and names ---------------------------------------------------------------------------------------
    def _find_levels(self) -> None:
        varies: dict[int, set[int]] = {}
        top = 2 if self.outer_vector else 1
        for block in self.nest.blocks:
            for s in block.body:
                loops: set[int] = set()
                for value in inputs_of(s):
                    loops |= varies[value]
                for access in self._accesses(s):
                    loops |= {i for i, kind in enumerate(self.nest.accesses[access].strides) if kind != ZERO}
                for value in outputs_of(s):
                    varies[value] = loops
                    if isinstance(s, Reduce):
                        self.level[value] = top
                        varies[value] = set(range(self.nest.outer))
                    elif block.stage:
                        self.level[value] = 3
                    else:
                        own = 2 if self.outer_vector and self.nest.vector in loops else 1 if loops else 0
                        self.level[value] = max([own, *[self.level[v] for v in inputs_of(s)]])

    @staticmethod
    def _accesses(s: Statement) -> tuple[int, ...]:
        if isinstance(s, Load | Store):
            return (s.access,)
        return (s.base,) if isinstance(s, Compute) and s.base >= 0 else ()

    def _level_of(self, s: Statement) -> int:
        if isinstance(s, Store):
            return 2 if self.outer_vector else 1
        return self.level[outputs_of(s)[0]]

    def _find(self, key: Any) -> Any:
        for scope in reversed(self.scopes):
            if key in scope:
                return scope[key]
        return None

    def _define(self, value: int, copies: list[tuple[int, Register]]) -> None:
        self.scopes[-1][value] = copies

    def get(self, value: int, copy: int, width: int) -> Register:
        """The register of a value for one copy, in `width` lanes."""
        copies = self._find(value)
        have, register = copies[copy if len(copies) > 1 else 0]
        if have == width:
            return register
        key = (value, copy if len(copies) > 1 else 0, width)
        wide = self._find(key)
        if wide is None:
            wide = scalar.broadcast(self.b, self.dtype[value], register, width)
            self.scopes[-1][key] = wide
        return wide

    # -- addresses ----------------------------------------------------------------------------------------------
    def _kind(self, access: int, loop: int) -> int:
        """Class of the stride, as the statements see it: an operand in a tile is contiguous along the vector loop."""
        if loop == self.nest.vector and access in self.nest.transposed:
            return ONE
        return self.nest.accesses[access].strides[loop]

    def _stride(self, access: int, loop: int) -> str:
        kind = self._kind(access, loop)
        return str(kind) if kind in (ZERO, ONE) else self.word["stride", access, loop]

    def _step(self, access: int, pointer: str, offset: str) -> str:
        """`pointer` (or index) moved by `offset` elements."""
        if offset == "0":
            return pointer
        info = self.nest.accesses[access]
        if info.role == "index":
            return self.b.add(pointer, offset)
        size = dtypes.BY_NAME[info.dtype].itemsize
        return self.b.op(f"getelementptr [{size} x i8], ptr {pointer}, i64 {offset}")

    def _point(self, access: int, context: _Context, copy: int) -> str:
        """Address (or index) of lane 0 of a copy."""
        b, info = self.b, self.nest.accesses[access]
        key = ("point", access, tuple(context.indices.items()), context.position)
        first: str | None = self._find(key)
        if first is None:
            offset = "0"
            for loop, index in context.indices.items():
                offset = b.add(offset, b.mul(index, self._stride(access, loop)))
            if (info.strides[self.nest.vector] != ZERO and info.role != "cache") or not self.outer_vector:
                offset = b.add(offset, b.mul(context.position, self._stride(access, self.nest.vector)))
            first = self._step(access, self.base[access], offset)
            self.scopes[-1][key] = first
        if copy == 0 or (context.width == 1 and context.copies == 1):
            return first
        return self._step(access, first, b.mul(str(copy * context.width), self._stride(access, self.nest.vector)))

    def _lanes(self, access: int, width: int) -> str:
        """<width x i64>: lane * stride."""
        key = ("lanes", access, width)
        found: str | None = self._find(key)
        if found is None:
            lanes = "<" + ", ".join(f"i64 {i}" for i in range(width)) + ">"
            if self._kind(access, self.nest.vector) == ONE:
                found = lanes
            else:
                stride = self.b.splat("i64", width, self._stride(access, self.nest.vector))
                found = self.b.op(f"mul <{width} x i64> {lanes}, {stride}")
            self.scopes[-1][key] = found
        return found

    # -- statements ---------------------------------------------------------------------------------------------
    def _load(self, s: Load, context: _Context) -> None:
        info = self.nest.accesses[s.access]
        kind = self._kind(s.access, self.nest.vector)
        d = dtypes.BY_NAME[info.dtype]
        if kind == ZERO or (context.width == 1 and context.copies == 1):
            point = self._point(s.access, context, 0)
            value = point if info.role == "index" else scalar.load(self.b, d, point, 1)
            self._define(s.out, [(1, value)])
            return
        copies = []
        for copy in range(context.copies):
            point = self._point(s.access, context, copy)
            if info.role == "index":
                splat = self.b.splat("i64", context.width, point)
                value = self.b.op(f"add <{context.width} x i64> {splat}, {self._lanes(s.access, context.width)}")
            elif kind == ONE:
                value = scalar.load(self.b, d, point, context.width, context.mask)
                if self.nest.far and info.role == "load" and context.mask is None:
                    self.b.prefetch(self.b.gep("i8", point, FAR_BYTES))
            else:
                lanes = self._lanes(s.access, context.width)
                value = scalar.gather(self.b, d, point, lanes, context.width, context.mask)
            copies.append((context.width, value))
        self._define(s.out, copies)

    def _store(self, s: Store, context: _Context) -> None:
        info = self.nest.accesses[s.access]
        kind = self._kind(s.access, self.nest.vector)
        d = dtypes.BY_NAME[info.dtype]
        for copy in range(context.copies):
            value = self.get(s.value, copy, context.width)
            point = self._point(s.access, context, copy)
            if context.width == 1 or kind == ONE:
                scalar.store(self.b, d, value, point, context.width, context.mask)
                if self.nest.stream and context.mask is None and context.width > 1 and info.role == "store":
                    self._bypass_cache(context.width * d.itemsize)
            else:
                lanes = self._lanes(s.access, context.width)
                scalar.scatter(self.b, d, value, point, lanes, context.width, context.mask)

    def _bypass_cache(self, nbytes: int) -> None:
        """Make the store just written a non-temporal one: a large result would only push others out of the cache, and
        its lines need not be read first (measured: X + X of 64 MB takes 3.5 ms instead of 5.3)."""
        line, _, _ = self.b.lines[-1].rpartition(", align ")
        self.b.lines[-1] = f"{line}, align {min(64, nbytes)}, !nontemporal !0"

    def _compute(self, s: Compute, context: _Context) -> None:
        known = [self._find(value) for value in s.inputs]
        shared = all(len(copies) == 1 and copies[0][0] == 1 for copies in known)
        if shared and s.base >= 0:  # the base may move with the loops though the index does not
            shared = all(kind == ZERO for kind in self.nest.accesses[s.base].strides)
        if shared:
            self._define(s.out, [(1, self._apply(s, 0, 1, context))])
            return
        if all(len(copies) == 1 for copies in known) and s.base < 0:
            self._define(s.out, [(context.width, self._apply(s, 0, context.width, context))])
            return
        self._define(s.out, [(context.width, self._apply(s, copy, context.width, context)) for copy in range(context.copies)])

    def _apply(self, s: Compute, copy: int, width: int, context: _Context) -> Register:
        values = [self.get(value, copy, width) for value in s.inputs]
        attrs = dict(s.attrs)
        if s.op == "constant":
            return scalar.constant(self.b, self.dtype[s.out], attrs["value"], width)
        if s.op == "take":
            return self._take(s, values, width, context.mask if width > 1 else None)
        if s.op == "searchsorted":
            return self._search(s, values, copy, width, context, attrs["right"])
        if s.op == "random_uniform":
            seed, offset = (self.get(value, copy, 1) for value in s.inputs[:2])
            return scalar.random_uniform(self.b, seed, offset, values[2], width)
        kind = self.dtype[s.inputs[1] if s.op == "where" else s.inputs[0]]
        return scalar.apply(self.b, s.op, kind, values, width, attrs)

    def _take(self, s: Compute, values: list[Register], width: int, mask: str | None) -> Register:
        """x[index] with the index wrapped once, checked against the bound and reported if it is outside."""
        b = self.b
        index, bound, *stride = values
        type_ = builder.vector("i64", width)
        zero = "0" if width == 1 else "zeroinitializer"
        negative = b.op(f"icmp slt {type_} {index}, {zero}")
        wrapped = b.op(f"add {type_} {index}, {bound}")
        bits = builder.vector("i1", width)
        index_ = b.op(f"select {bits} {negative}, {type_} {wrapped}, {type_} {index}")
        bad = b.op(f"icmp uge {type_} {index_}, {bound}")
        if mask is not None:
            bad = b.op(f"and {bits} {bad}, {mask}")
        any_bad = bad if width == 1 else b.call("i1", f"llvm.vector.reduce.or.v{width}i1", [(bits, bad)])
        with b.if_(any_bad):
            value, limit = index, bound
            if width > 1:
                packed = b.op(f"bitcast {bits} {bad} to i{width}")
                lane = b.call(f"i{width}", f"llvm.cttz.i{width}", [(f"i{width}", packed), ("i1", "true")])
                value = b.op(f"extractelement {type_} {index}, i{width} {lane}")
                limit = b.op(f"extractelement {type_} {bound}, i32 0")
            record = self.word["error",]
            b.store("i64", value, b.gep("i64", record, 1), 8)
            b.store("i64", limit, b.gep("i64", record, 2), 8)
            b.store("i64", "1", record, 8)
            b.store("i64", "1", self.failed, 8)
        safe = b.op(f"select {bits} {bad}, {type_} {zero}, {type_} {index_}")
        there = b.op(f"xor {bits} {bad}, {'true' if width == 1 else 'splat (i1 true)'}")
        if stride:
            safe = b.op(f"mul {type_} {safe}, {stride[0]}")
        kind = dtypes.BY_NAME[self.nest.accesses[s.base].dtype]
        if width == 1:
            return scalar.load(b, kind, self._step(s.base, self.base[s.base], safe), 1, there)
        # Lanes that are out of range read nothing: an empty array has no element 0.
        readable = there if mask is None else b.op(f"and {bits} {there}, {mask}")
        return scalar.gather(b, kind, self.base[s.base], safe, width, readable)

    def _search(self, s: Compute, values: list[Register], copy: int, width: int, context: _Context, right: bool) -> Register:
        """Number of elements of the sorted row that are below the value (`right`: not above it), by bisection."""
        b = self.b
        wanted, _, *stride = values
        kind = dtypes.BY_NAME[self.nest.accesses[s.base].dtype]
        length = self.get(s.inputs[1], copy, 1)
        moves = self.nest.accesses[s.base].strides[self.nest.vector] != ZERO
        point = self._point(s.base, context, copy) if width > 1 or moves else self.base[s.base]
        type_ = builder.vector("i64", width)
        bits = builder.vector("i1", width)
        zero = "0" if width == 1 else "zeroinitializer"
        rows = self._lanes(s.base, width) if moves and width > 1 else None
        last = b.splat("i64", width, b.max(b.sub(length, 1), 0))
        n = b.splat("i64", width, length)
        leading = b.call("i64", "llvm.ctlz.i64", [("i64", length), ("i1", "false")])
        rounds = b.sub(64, leading)  # bisecting n + 1 outcomes takes the bit length of n rounds

        def body(_: str, low: str, high: str) -> list[str]:
            open_ = b.op(f"icmp slt {type_} {low}, {high}")
            one = "1" if width == 1 else "splat (i64 1)"
            middle = b.op(f"lshr {type_} {b.op(f'add {type_} {low}, {high}')}, {one}")
            cut = b.op(f"icmp slt {type_} {middle}, {last}")
            index = b.op(f"select {bits} {cut}, {type_} {middle}, {type_} {last}")
            if stride:
                index = b.op(f"mul {type_} {index}, {stride[0]}")
            if rows is not None:
                index = b.op(f"add {type_} {index}, {rows}")
            if width == 1:
                element = scalar.load(b, kind, self._step(s.base, point, index), 1)
            else:
                element = scalar.gather(b, kind, point, index, width, context.mask)
            # NaN counts as the largest value.
            below = scalar.apply(b, "le" if right else "lt", kind, [element, wanted], width, {})
            if kind.is_floating_point:
                nan_wanted = scalar.apply(b, "isnan", kind, [wanted], width, {})
                if not right:
                    nan_element = scalar.apply(b, "isnan", kind, [element], width, {})
                    numbers = scalar.apply(b, "bitwise_not", dtypes.bool_, [nan_element], width, {})
                    nan_wanted = scalar.apply(b, "bitwise_and", dtypes.bool_, [nan_wanted, numbers], width, {})
                below = scalar.apply(b, "bitwise_or", dtypes.bool_, [below, nan_wanted], width, {})
            below = b.op(f"and {bits} {below}, {open_}")
            above = b.op(f"xor {bits} {below}, {'true' if width == 1 else 'splat (i1 true)'}")
            above = b.op(f"and {bits} {above}, {open_}")
            next_low = b.op(f"select {bits} {below}, {type_} {b.op(f'add {type_} {middle}, {one}')}, {type_} {low}")
            next_high = b.op(f"select {bits} {above}, {type_} {middle}, {type_} {high}")
            return [next_low, next_high]

        low, _high = b.loop("0", rounds, 1, body, [(type_, zero), (type_, n)])
        return low

    def _emit(self, s: Statement, context: _Context, number: int = 0) -> None:
        if isinstance(s, Load):
            self._load(s, context)
        elif isinstance(s, Store):
            self._store(s, context)
        elif isinstance(s, Compute):
            self._compute(s, context)
        else:
            kinds = [self.dtype[v] for v in s.outs]
            for copy in range(context.copies):
                values = [self.get(v, copy, context.width) for v in s.sources]
                mask = None if self.outer_vector else context.mask
                held = context.accumulators[number, copy]
                context.accumulators[number, copy] = loop_reductions.update(self.b, s.op, kinds, held, values, context.width, mask)

    # -- prefetching --------------------------------------------------------------------------------------------
    def _prefetched(self, block: Block) -> list[int]:
        """Accesses whose next row this stage asks for while it computes: of several stages the one before the last, whose
        stores keep memory busy; of two the last, because the first one would wait for memory."""
        nest = self.nest
        stages = [other for other in nest.blocks if other.stage]
        if self.outer_vector or len(stages) < 2 or block is not stages[max(1, len(stages) - 2)] or nest.outer == 0:
            return []
        first = {s.access for s in stages[0].body if isinstance(s, Load)}
        return [
            a for a in sorted(first)
            if nest.accesses[a].role == "load" and nest.accesses[a].strides[nest.vector] == ONE
            and nest.accesses[a].strides[nest.outer - 1] != ZERO
        ]  # fmt: skip

    def _prefetch(self, accesses: list[int], context: _Context) -> None:
        b = self.b
        for access in accesses:
            size = dtypes.BY_NAME[self.nest.accesses[access].dtype].itemsize
            ahead = self._step(access, self._point(access, context, 0), self._stride(access, self.nest.outer - 1))
            for offset in range(0, context.copies * context.width * size, 64):
                b.prefetch(b.gep("i8", ahead, offset))

    # -- stages -------------------------------------------------------------------------------------------------
    def _stage(self, block: Block, context: _Context) -> None:
        """Run the reduced loops; afterwards the reductions are row-level values."""
        nest, b = self.nest, self.b
        copies = context.copies if self.outer_vector else nest.unroll
        width = context.width if self.outer_vector else nest.width
        inside = {v for s in block.body if not isinstance(s, Reduce) for v in outputs_of(s)}
        for s in block.body:  # widen what comes from outside before the loops, not in them
            for value in inputs_of(s):
                if value not in inside and not (isinstance(s, Compute) and s.op == "random_uniform"):
                    known = self._find(value)
                    for copy in range(len(known)):
                        self.get(value, copy, width)
        reductions = [(i, s) for i, s in enumerate(block.body) if isinstance(s, Reduce)]
        flat: list[tuple[str, Register]] = []
        shapes: list[tuple[int, int, int]] = []  # (statement, copy, registers)
        starts: dict[tuple[int, int], list[Register]] = {}
        for copy in range(copies):
            for i, s in reductions:
                kinds = [self.dtype[v] for v in s.outs]
                starts[i, copy] = loop_reductions.start(b, s.op, kinds, width)
                types = loop_reductions.types(s.op, kinds, width)
                values = loop_reductions.flatten(starts[i, copy])
                shapes.append((i, copy, len(values)))
                flat.extend(zip(types, values, strict=True))

        def pack(accumulators: dict[tuple[int, int], list[Register]], only: int) -> list[str]:
            out: list[str] = []
            for i, copy, _ in shapes:
                if copy < only:
                    out.extend(loop_reductions.flatten(accumulators[i, copy]))
            return out

        def unpack(values: list[str], only: int) -> dict[tuple[int, int], list[Register]]:
            out, at = {}, 0
            for i, copy, count in shapes:
                if copy < only:
                    out[i, copy] = loop_reductions.unflatten(values[at : at + count], starts[i, copy])
                    at += count
            return out

        ahead = self._prefetched(block)

        def body(indices: dict[int, str], position: str, mask: str | None, number: int, carried: list[str]) -> list[str]:
            inner = _Context(number, width, mask, position, dict(indices), unpack(carried, number))
            self.scopes.append({})
            if mask is None:
                self._prefetch(ahead, inner)
            for i, s in enumerate(block.body):
                self._emit(s, inner, i)
            self.scopes.pop()
            return pack(inner.accumulators, number)

        def level(loop: int, indices: dict[int, str], carried: list[str]) -> list[str]:
            low, high = self.split_range if loop == nest.split else ("0", self.word["size", loop])
            types = [t for t, _ in flat]
            if loop == nest.vector:
                return self._vector_loop(
                    low, high, copies, width,
                    lambda at, mask, number, held: body(indices, at, mask, number, held),
                    types, carried, sum(count for _, copy, count in shapes if copy == 0),
                )  # fmt: skip
            if loop == nest.loops - 1:
                with b.fold(low, high, 1, list(zip(types, carried, strict=True))) as (index, held):
                    held[:] = body({**indices, loop: index}, context.position, context.mask, copies, list(held))
                return held
            with b.fold(low, high, 1, list(zip(types, carried, strict=True))) as (index, held):
                held[:] = level(loop + 1, {**indices, loop: index}, list(held))
            return held

        # Values of the copies come first to last, so copy 0's registers lead the list: the masked rest carries them
        # only.
        results = unpack(level(nest.outer, {}, [v for _, v in flat]), copies)
        for i, s in reductions:
            kinds = [self.dtype[v] for v in s.outs]
            parts = [results[i, copy] for copy in range(copies)]
            if self.outer_vector:
                for position, value in enumerate(s.outs):
                    self._define(value, [(width, part[position]) for part in parts])
                continue
            while len(parts) > 1:  # pairwise
                paired = [loop_reductions.combine(b, s.op, kinds, parts[j], parts[j + 1], width) for j in range(0, len(parts) - 1, 2)]
                parts = paired + parts[len(parts) // 2 * 2 :]
            last_part = loop_reductions.horizontal(b, s.op, kinds, parts[0], width)
            for value, register in zip(s.outs, last_part, strict=True):
                self._define(value, [(1, register)])

    def _vector_loop(
        self, low: str, high: str, copies: int, width: int,
        body: Callable[[str, str | None, int, list[str]], list[str]],
        types: list[str], carried: list[str], first: int,
    ) -> list[str]:  # fmt: skip
        """`copies` vectors at a time, then single vectors under a mask. `first`: how many carried values copy 0 has."""
        b = self.b
        step = copies * width
        if step == 1:
            with b.fold(low, high, 1, list(zip(types, carried, strict=True))) as (at, held):
                held[:] = body(at, None, 1, list(held))
            return held
        span = b.sub(high, low)
        whole = b.op(f"and i64 {span}, {-step}") if step & (step - 1) == 0 else b.sub(span, b.srem(span, step))
        middle = b.add(low, whole)
        with b.fold(low, middle, step, list(zip(types, carried, strict=True))) as (at, values):
            values[:] = body(at, None, copies, list(values))
        with b.fold(middle, high, width, list(zip(types[:first], values[:first], strict=True))) as (at, tail):
            tail[:] = body(at, b.tail_mask(b.sub(high, at), width), 1, list(tail))
        return tail + values[first:]

    # -- the nest -----------------------------------------------------------------------------------------------
    def _blocks(self, context: _Context, skip: int) -> None:
        """Every block in order; row-level statements at or below level `skip` are there already."""
        for block in self.nest.blocks:
            if block.stage:
                self._stage(block, context)
                continue
            for s in block.body:
                if self._level_of(s) > skip:
                    self._emit(s, context)

    def _at_level(self, level: int) -> None:
        for block in self.nest.blocks:
            for s in block.body:
                if not block.stage and not isinstance(s, Store) and self._level_of(s) == level:
                    self._emit(s, _Context(1, 1))

    def _unit(self, digits: dict[int, str], entry: list[str], span: tuple[str, str] | None = None) -> None:
        """One point of the outer loops: `span` of the vector loop, by default the chunk that its digit names."""
        nest, b = self.nest, self.b
        if nest.tile >= 0:
            self._tile(digits, entry)
            return
        self.scopes.append({})
        self.base = [self._moved(access, start, digits) for access, start in enumerate(entry)]
        if nest.split >= 0:
            low = b.mul(digits[nest.split_by], self.word["block",])
            high = b.min(b.add(low, self.word["block",]), self.word["size", nest.split])
            self.split_range = (low, b.max(low, high))  # blocks at the end may be empty
        if self.outer_vector:
            self._row(span or self._chunk(nest.vector, digits, self.word["chunk",]))
        else:
            self._blocks(_Context(1, 1), 0)
        self.scopes.pop()

    def _moved(self, access: int, start: str, digits: dict[int, str]) -> str:
        """`start` moved to the point of the outer loops that carry no vector."""
        offset = "0"
        for loop, digit in digits.items():
            if loop != self.nest.vector:
                offset = self.b.add(offset, self.b.mul(digit, self._stride(access, loop)))
        return self._step(access, start, offset)

    def _chunk(self, loop: int, digits: dict[int, str], step: str) -> tuple[str, str]:
        low = self.b.mul(digits[loop], step)
        return low, self.b.min(self.b.add(low, step), self.word["size", loop])

    def _row(self, span: tuple[str, str]) -> None:
        """A range of the vector loop, where it is the last outer one."""
        self._at_level(1)

        def body(at: str, mask: str | None, copies: int, _: list[str]) -> list[str]:
            self.scopes.append({})
            self._blocks(_Context(copies, self.nest.width, mask, at), 1)
            self.scopes.pop()
            return []

        self._vector_loop(*span, self.nest.unroll, self.nest.width, body, [], [], 0)

    def _tile(self, digits: dict[int, str], entry: list[str]) -> None:
        """A tile of the tile loop and the vector loop: transpose what lies across, then run the tile's rows."""
        nest, b = self.nest, self.b
        others = {loop: digit for loop, digit in digits.items() if loop != nest.tile}
        start = [self._moved(access, address, others) for access, address in enumerate(entry)]
        top, bottom = self._chunk(nest.tile, digits, str(loop_tiles.ROWS))
        left, right = self._chunk(nest.vector, digits, self.word["chunk",])
        area = 0
        tiles: dict[int, str] = {}
        for access in nest.transposed:
            size = dtypes.BY_NAME[nest.accesses[access].dtype].itemsize
            tiles[access] = b.gep("i8", self.scratch, area)
            area += loop_tiles.tile_bytes(size)
            stride = self.word["stride", access, nest.vector]
            source = self._step(access, self._step(access, start[access], top), b.mul(left, stride))
            width = min(nest.width, 64 // size)
            loop_tiles.fill_tile(b, size, width, source, stride, tiles[access], b.sub(bottom, top), b.sub(right, left))
        with b.for_(top, bottom) as at:
            self.scopes.append({})
            self.base = [self._moved(access, address, {nest.tile: at}) for access, address in enumerate(start)]
            for access, tile in tiles.items():
                offset = b.sub(b.mul(b.sub(at, top), loop_tiles.PITCH), left)
                self.base[access] = self._step(access, tile, offset)
            self._row((left, right))
            self.scopes.pop()

    def rectangle(self, groups: tuple[int, int], by_rows: bool, name: str, first_word: int) -> tuple[str, list[str]]:
        """See `emit_epilogue`."""
        b = self.b
        entry = self._entry(first_word)
        inner, outer = ("%col0", "%col1"), ("%row0", "%row1")
        if by_rows:
            inner, outer = outer, inner
        with b.for_(*outer) as at:
            digits: dict[int, str] = {}
            for first, count, index in ((0, groups[0], "%batch"), (groups[0], groups[1], at)):
                rest = index
                for loop in range(first + count - 1, first, -1):
                    digits[loop] = b.srem(rest, self.word["size", loop])
                    rest = b.sdiv(rest, self.word["size", loop])
                if count:
                    digits[first] = rest
            self._unit(dict(sorted(digits.items())), entry, inner)
        header = f"define internal void @{name}(ptr noalias %args, i64 %batch, i64 %row0, i64 %row1, i64 %col0, i64 %col1) #0"
        return b.function(header), sorted(b.declarations)

    def _entry(self, first_word: int) -> list[str]:
        """Load the words and what they determine; gives the address of each access."""
        nest, b = self.nest, self.b
        for number, word in enumerate(words_of(nest)):
            pointer = b.gep("i64", "%args", first_word + number)
            role = word[0] == "address" and nest.accesses[int(word[1])].role
            kind = "ptr" if word[0] in ("tile", "error") or (role and role != "index") else "i64"
            self.word[word] = b.load(kind, pointer, 8)
        entry = []
        for number, access in enumerate(nest.accesses):
            start = self.word["address", number]
            if access.role == "cache":
                start = b.gep("i8", start, b.mul("%worker", self.word["pitch", number]))
            entry.append(start)
        if nest.can_fail:
            self.failed = b.fresh("failed")
            b.allocas.append(f"  {self.failed} = alloca i64, align 8")
            b.store("i64", "0", self.failed, 8)
        if nest.tile >= 0:
            total = sum(loop_tiles.tile_bytes(dtypes.BY_NAME[nest.accesses[a].dtype].itemsize) for a in nest.transposed)
            self.scratch = b.gep("i8", self.word["tile",], b.mul("%worker", total))
        self.base = entry
        self._at_level(0)
        return entry

    def module(self, name: str) -> str:
        nest, b = self.nest, self.b
        entry = self._entry(0)
        counts = {}
        for loop in range(nest.outer):
            counts[loop] = self.word["size", loop]
            if loop in (nest.vector, nest.tile):
                chunk = self.word["chunk",] if loop == nest.vector else str(loop_tiles.ROWS)
                counts[loop] = b.sdiv(b.sub(b.add(counts[loop], chunk), 1), chunk)
        loops = list(counts)
        if len(loops) <= 1:
            with b.for_("%begin", "%end") as unit:
                self._unit(dict.fromkeys(loops, unit), entry)
        else:
            digits, rest = [], "%begin"
            for loop in reversed(loops[1:]):
                digits.append(b.srem(rest, counts[loop]))
                rest = b.sdiv(rest, counts[loop])
            digits.append(rest)
            digits.reverse()

            def odometer(_: str, *held: str) -> list[str]:
                self._unit(dict(zip(loops, held, strict=True)), entry)
                following = []
                carry = ""
                for loop, digit in reversed(list(zip(loops, held, strict=True))):
                    more = b.add(digit, 1) if not carry else b.op(f"add i64 {digit}, {b.op(f'zext i1 {carry} to i64')}")
                    if loop == loops[0]:
                        following.append(more)
                        continue
                    carry = b.op(f"icmp eq i64 {more}, {counts[loop]}")
                    following.append(b.op(f"select i1 {carry}, i64 0, i64 {more}"))
                return following[::-1]

            b.loop("%begin", "%end", 1, odometer, [("i64", d) for d in digits])
        result = "0"
        if nest.can_fail:
            result = b.load("i64", self.failed, 8)
        if nest.stream:
            b.emit("fence seq_cst")  # non-temporal stores are not ordered with the barrier between phases
        text = b.function(builder.KERNEL_HEADER.format(name=name), f"ret i64 {result}")
        return builder.module([text], b.declarations, b.target) + ("\n!0 = !{i32 1}\n" if nest.stream else "")
