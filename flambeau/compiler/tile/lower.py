"""From a tile program to LLVM IR: the kernel that runs the programs [begin, end) of a grid.

Operations of one shape become segments (segment.py); index arithmetic is computed where it is read (reading.py); what else is stored lies in the
worker's scratch memory. Values that a loop carries are variables, blocks in place, or, where a round moves all elements on by the same, one number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flambeau.compiler.emit.code import ELEMENT_BYTES, Array, Cell, Code
from flambeau.compiler.emit.lanes import Lanes
from flambeau.compiler.tile import whole
from flambeau.compiler.tile.forms import Buffer, Form, Registers, Shifted, Uniform, dense, element_of, memory_element
from flambeau.compiler.tile.ir import Op, Pointer, Program, Region, Type, Value, walk
from flambeau.compiler.tile.products import multiply
from flambeau.compiler.tile.reading import Reading, root
from flambeau.compiler.tile.regions import identity
from flambeau.compiler.tile.segment import VECTORS, Nest, Segment, fill
from flambeau.dtypes import dtype, float32
from flambeau.runtime.target import Target

MOST_LOCALS = 512  # blocks in local variables: at most 256 bytes each
_JOINING = ("pointwise", "bitcast", "load", "store", "reduce")
# The words after the parameters.
WORDS = ("grid x", "grid y", "grid z", "scratch", "scratch bytes", "error")


@dataclass(frozen=True, slots=True)
class Lowered:
    """The text of a kernel, the bytes of scratch memory of one worker, and what its assertions say."""

    text: str
    scratch: int
    messages: tuple[Op, ...]


def lower(program: Program, target: Target, symbol: str) -> Lowered:
    """The kernel of a program that `check` has passed, for a processor."""
    return Lowering(program, target).kernel(symbol)


class Lowering:
    """The kernel of a program in the making, for a processor; of a GPU: device.py."""

    def __init__(self, program: Program, target: Target) -> None:
        self.program, self.target = program, target
        self.c = self.code()
        self.r = Reading(self.c)
        self.forms = self.r.forms
        self.used = 0  # bytes of scratch memory
        self.buffers = self.locals = 0
        self.messages: list[Op] = []
        self.kept: list[Value] = []
        self.pending: Segment | None = None
        self.results: set[int] = set()  # of pending operations, by id
        self.done: set[int] = set()  # operations that have been emitted
        self.targets: dict[int, tuple[Value, Buffer]] = {}  # what a round of a loop gives -> the parameter that it becomes, where that lies
        self.users: dict[int, list[Op | Region]] = {}
        self.home: dict[int, Region] = {}  # the region of each operation
        self._find_users(program.body)

    def code(self) -> Code:
        """What writes the kernel's body."""
        return Code([*(f"p{i}" for i in range(len(self.program.params))), *WORDS], self.target)

    def _find_users(self, region: Region) -> None:
        for op in region.ops:
            self.home[id(op)] = region
            for v in op.operands:
                self.users.setdefault(id(v), []).append(op)
            for inner in op.regions:
                self._find_users(inner)
        for v in region.results:
            self.users.setdefault(id(v), []).append(region)

    # -- the kernel -------------------------------------------------------------------------------------------------
    def kernel(self, symbol: str) -> Lowered:
        c = self.c
        self._parameters()
        base = c.array("scratch", "i8")
        self.scratch = base.at(c.named("i64", "%worker") * c.word("scratch bytes"))
        with c.for_(c.named("i64", "%begin"), c.named("i64", "%end")) as unit:
            x, y = c.word("grid x"), c.word("grid y")
            rest = c.divide(unit, x)
            self.place = [c.modulo(unit, x), c.modulo(rest, y), c.divide(rest, y)]
            self.region(self.program.body)
        return Lowered(c.kernel(symbol), self.used, tuple(self.messages))

    def grid_size(self, axis: int) -> Lanes:
        return self.c.word("grid " + "xyz"[axis])

    def _parameters(self) -> None:
        for i, p in enumerate(self.program.params):
            word = self.c.word(f"p{i}")
            self.forms[id(p)] = self._argument(word, p.type)
            if p.type.is_pointer:
                self.r.bases[id(p)] = word, self.c.b.op(f"inttoptr i64 {word.name} to ptr")

    def _argument(self, word: Lanes, t: Type) -> Lanes:
        element = element_of(t.element)
        if element in ("float", "double"):
            x = Lanes(self.c.b, "double", 1, self.c.b.op(f"bitcast i64 {word.name} to double"))
            return x if element == "double" else x.to("float", "fptrunc")
        return word if element == "i64" else word.to(element, "trunc")

    def buffer(self, t: Type) -> Buffer:
        """New memory for a block: of one that a loop nest takes in one round a local variable, which becomes registers; else scratch memory."""
        element = memory_element(t.element)
        self.buffers += 1
        if t.numel == t.shape[-1] <= VECTORS * self.target.lanes and self.locals < MOST_LOCALS:
            self.locals += 1
            return Buffer(self.c.local_array(element, t.numel), dense(t.shape), self.buffers)
        at, self.used = self.used, self.used + (t.numel * ELEMENT_BYTES[element] + 63) // 64 * 64
        return Buffer(Array(self.c, self.scratch.at(at).pointer, element), dense(t.shape), self.buffers)

    # -- operations in order ----------------------------------------------------------------------------------------
    def region(self, region: Region) -> None:
        for op in region.ops:
            self.op(op)
        self.flush()

    def op(self, op: Op) -> None:
        if op.kind in ("for", "while", "if"):
            self.flush()
            getattr(self, "_" + op.kind)(op)
        elif op.kind == "program_id" or op.kind == "num_programs":
            word = self.place[op.attrs["axis"]] if op.kind == "program_id" else self.grid_size(op.attrs["axis"])
            self.forms[id(op.results[0])] = word.to("i32", "trunc nsw")
        elif op.kind in _JOINING and self._joins(op):
            self._join(op)
        elif op.kind in (*_JOINING, "offset", "constant", "broadcast", "iota", "permute") or (op.kind == "reshape" and self.r.is_virtual(op.results[0])):
            self._scalar(op)  # or virtual: nothing to do now
        else:
            self.flush()
            if op.kind == "atomic":
                self._join(op)
                self.flush()
            elif op.kind == "assert":
                self._assert(op)
            else:
                self._whole(op)
        self.done.add(id(op))

    def _joins(self, op: Op) -> bool:
        """Whether it belongs into a segment: it touches memory or blocks, and is not computed where it is read."""
        if op.kind in ("store", "reduce"):
            return op.kind == "store" or identity(op.regions[0]) is not None
        return (bool(op.results[0].shape) and not self.r.is_virtual(op.results[0])) or (op.kind == "load")

    def _scalar(self, op: Op) -> None:
        if op.kind == "reduce":
            self.flush()
            self._whole(op)
            return
        for v in op.results:
            if not v.shape:
                if any(id(o) in self.results for o in op.operands):
                    self.flush()
                found = self.forms[id(v)] = self.r.spread(self.r.at(v, ()), v.type.element, 1)
                if op.kind == "offset" and id(op.operands[0]) in self.r.bases:
                    self.r.bases[id(v)] = found, self.r.pointer(op.operands[0], found)

    # -- segments ---------------------------------------------------------------------------------------------------
    def _join(self, op: Op) -> None:
        shape = op.operands[0].shape if op.operands else op.results[0].shape
        if self.pending is not None and (self.pending.shape != shape or not self._fits(op)):
            self.flush()
        if self.pending is None:
            self.pending = Segment(shape)
        self.pending.ops.append(op)
        self.results.update(id(v) for v in op.results)
        if not shape:
            self.flush()

    def _fits(self, op: Op) -> bool:
        assert self.pending is not None
        for v in op.operands:
            for leaf, direct in self.r.leaves(v):
                if id(leaf) in self.results and (not direct or (leaf.op is not None and leaf.op.kind == "reduce")):
                    return False
        if op.kind == "load":
            return not any(o.kind in ("store", "atomic") for o in self.pending.ops)
        if op.kind == "store":
            for o in self.pending.ops:
                if o.kind in ("load", "store") and o.operands[0] is not op.operands[0]:
                    a, b = root(o.operands[0]), root(op.operands[0])
                    if a is None or b is None or a is b:
                        return False
        return True

    def _outside(self, v: Value, ops: set[int]) -> bool:
        """Whether anything that is not in the segment reads a value."""
        for user in self.users.get(id(v), ()):
            if isinstance(user, Region):
                return True
            if id(user) in ops:
                continue
            if any(r.shape and self.r.is_virtual(r) for r in user.results):
                if any(self._outside(r, ops) for r in user.results):
                    return True
            else:
                return True
        return False

    def flush(self) -> None:
        """Emit the pending segment."""
        segment, self.pending, self.results = self.pending, None, set()
        if segment is None:
            return
        ops = {id(op) for op in segment.ops}
        reduced: dict[int, Buffer] = {}
        for op in segment.ops:
            for v in op.results:
                if op.kind == "reduce":
                    if v.shape:
                        reduced[id(v)] = self.buffer(v.type)
                elif v.shape and self._outside(v, ops):
                    segment.stores.append((v, self._target(v, segment, ops)))
        nest = Nest(self.r, segment, self.target, reduced)
        if not segment.shape:
            self._scalars(nest, segment)
        else:
            nest.emit()
        for v, to in segment.stores:
            self.forms[id(v)] = to
        self.forms.update(reduced)

    def _scalars(self, nest: Nest, segment: Segment) -> None:
        self.r.memos.append({})
        nest._body((), 0)
        memo = self.r.memos.pop()
        for op in segment.ops:
            for v in op.results:
                form = memo[(id(v),)]
                self.forms[id(v)] = self.r.spread(form, v.type.element, 1)

    def _target(self, v: Value, segment: Segment, ops: set[int]) -> Buffer:
        """Where a result goes: to where the loop wants it, if nothing there is read after it; else to new memory."""
        found = self.targets.get(id(v))
        if found is None:  # what a dot adds to lies where its result goes
            only = self.users.get(id(v), [])
            if len(only) == 1 and isinstance(only[0], Op) and only[0].kind == "dot" and only[0].operands[2] is v:
                found = self.targets.get(id(only[0].results[0]))
        if found is None:
            return self.buffer(v.type)
        param, place = found
        for user in self.users.get(id(param), ()):
            if isinstance(user, Region) or any(self.r.is_virtual(r) for r in user.results):
                return self.buffer(v.type)
            if id(user) not in self.done and (id(user) not in ops or (user.regions and user.kind != "reduce")):
                return self.buffer(v.type)
        return place

    # -- blocks as a whole ------------------------------------------------------------------------------------------
    def stored(self, v: Value, to: Buffer | None = None) -> Buffer:
        """A block in scratch memory: as it is there, or as a view, or stored now (into `to`)."""
        form = self.forms.get(id(v))
        if to is None:
            if isinstance(form, Buffer):
                return form
            if form is None and v.op is not None and v.op.kind == "permute":
                inner = self.stored(v.op.operands[0])
                return inner.view(tuple(inner.strides[d] for d in v.op.attrs["dims"]))
            if form is None and v.op is not None and v.op.kind == "reshape":
                inner = self.stored(v.op.operands[0])
                if inner.strides == dense(v.op.operands[0].shape):
                    return inner.view(dense(v.shape))
        place = self.buffer(v.type) if to is None else to
        segment = Segment(v.shape, [Op("copy", (v,))], [(v, place)])
        Nest(self.r, segment, self.target, {}).emit()
        return place

    def dense(self, v: Value) -> Buffer:
        """The same, in row-major order."""
        found = self.stored(v)
        return found if found.strides == dense(v.shape) else self._copied(v, found)

    def _copied(self, v: Value, found: Buffer) -> Buffer:
        return self.stored(self._standing_for(found, v.type), self.buffer(v.type))

    def _standing_for(self, form: Form, t: Type) -> Value:
        """A value that is only a form; kept, as forms are known by their values' ids."""
        self.kept.append(Value(t))
        self.forms[id(self.kept[-1])] = form
        return self.kept[-1]

    def _whole(self, op: Op) -> None:
        v = op.results[0] if op.results else None
        if op.kind == "dot":
            self._dot(op)
        elif op.kind == "reshape" and v is not None:
            self.forms[id(v)] = self.dense(op.operands[0]).view(dense(v.shape))
        elif op.kind == "split":
            inner = self.stored(op.operands[0])
            for i, r in enumerate(op.results):
                part = inner.view(inner.strides[:-1], i * inner.strides[-1])
                self.forms[id(r)] = part if r.shape else self.r.spread(self.r.read(part, r.type.element, ()), r.type.element, 1)
        else:
            getattr(whole, op.kind)(self, op)

    def _dot(self, op: Op) -> None:
        a, b, acc = op.operands
        result = op.results[0]
        to = self._accumulator(op)
        e = result.type.element
        assert isinstance(e, dtype)
        own = float32 if e.name == "float16" else e
        left, right = self._factor(a, own, False), self._factor(b, own, True)
        *batches, m, k = a.shape
        for i in range(batches[0] if batches else 1):
            x, y, z = (f.view(f.strides[-2:], i * f.strides[0] if batches else 0) for f in (left, right, to))
            multiply(self.c, self.target, x, y, z, m, b.shape[-1], k)
        self.forms[id(result)] = to

    def _factor(self, v: Value, d: dtype, dense_columns: bool) -> Buffer:
        """An operand of `dot` in the accumulator's type."""
        if element_of(v.type.element) != element_of(d):
            cast = Op("pointwise", (v,), {"op": "cast", "dtype": d})
            cast.results = [Value(Type(d, v.shape), cast)]
            self.kept.append(cast.results[0])
            segment = Segment(v.shape, [cast], [(cast.results[0], self.buffer(cast.results[0].type))])
            Nest(self.r, segment, self.target, {}).emit()
            return segment.stores[0][1]
        found = self.stored(v)
        return self._copied(v, found) if dense_columns and found.strides[-1] != 1 else found

    def _accumulator(self, op: Op) -> Buffer:
        """Where `dot` adds: in place of its accumulator where nobody else reads that, else a copy of it."""
        acc, result = op.operands[2], op.results[0]
        form, found = self.forms.get(id(acc)), self.targets.get(id(result))
        only = self.users.get(id(acc), []) == [op]
        own = acc.op is not None and acc.op.kind in ("dot", *_JOINING) and self.home[id(acc.op)] is self.home[id(op)]
        if isinstance(form, Buffer) and form.strides == dense(acc.shape) and only and (own or (found is not None and found[0] is acc)):
            return form
        place = self.buffer(acc.type)
        constant = self._constant(acc)
        if constant is not None:
            fill(self.r, place, acc.type.element, acc.shape, constant, self.target.lanes)
            return place
        return self.stored(acc, place)

    def _constant(self, v: Value) -> Lanes | None:
        while v.op is not None and v.op.kind == "broadcast":
            v = v.op.operands[0]
        return self.r.scalar(v) if not v.shape else None

    def _assert(self, op: Op) -> None:
        c = self.c
        condition = op.operands[0]
        number = len(self.messages)
        self.messages.append(op)
        holds = whole.all_true(self, condition, op.operands[1] if len(op.operands) > 1 else None)
        c.return_if(holds ^ 1, 1, lambda: c.array("error", "i64").store(0, c.i64(number)))

    # -- control ----------------------------------------------------------------------------------------------------
    def _carry(self, start: Value, param: Value, given: Value, region: Region) -> Carried:
        if not start.shape:
            cell = self.c.cell(element_of(start.type.element), self.r.scalar(start))
            return Carried(start, param, given, cell)
        steps = self._steps(param, given, region)
        if steps is not None:
            return Carried(start, param, given, self.c.cell("i64", 0), None, steps)
        place = self.buffer(start.type)
        constant = self._constant(start)
        if constant is not None:
            fill(self.r, place, start.type.element, start.shape, constant, self.target.lanes)
        else:
            self.stored(start, place)
        return Carried(start, param, given, None, place)

    def _steps(self, param: Value, given: Value, region: Region) -> list[tuple[Value, int]] | None:
        """(scalar, factor) pairs by which a round moves on all elements of a block of integers or pointers, None if it does other things."""
        e = param.type.element
        if not isinstance(e, Pointer) and e.category != 1:
            return None
        steps: list[tuple[Value, int]] = []
        v = given
        while v is not param:
            op = v.op
            if op is None or not (op.kind == "offset" or (op.kind == "pointwise" and op.attrs["op"] in ("add", "sub"))):
                return None
            by = self._same_everywhere(op.operands[1])
            sign, v = -1 if op.attrs.get("op") == "sub" else 1, op.operands[0]
            if by is None and op.kind == "pointwise" and sign > 0:
                by, v = self._same_everywhere(op.operands[0]), op.operands[1]
            if by is None:
                return None
            steps.append((by, sign * (e.to.itemsize if isinstance(e, Pointer) else 1)))
        return steps

    def _same_everywhere(self, v: Value) -> Value | None:
        while v.op is not None and v.op.kind in ("broadcast", "reshape") and v.shape:
            v = v.op.operands[0]
        return v if not v.shape else None

    def _enter(self, carried: Sequence[Carried], region: Region, params: Sequence[Value]) -> None:
        """The forms of the parameters of a region, at its start."""
        for x, param in zip(carried, params, strict=True):
            self.forms[id(param)] = x.form()
            self.r._virtual.pop(id(param), None)

    def _leave(self, carried: Sequence[Carried]) -> None:
        """At the end of a round: what it gives becomes what the next one gets."""
        blocks = {id(x.param) for x in carried if x.place is not None}
        scalars = [(x.cell, self.r.scalar(x.given)) for x in carried if x.cell is not None and x.steps is None]
        moves: list[tuple[Buffer, Buffer]] = []
        for x in carried:
            if x.steps is not None and x.cell is not None:
                total = x.cell.get()
                for by, factor in x.steps:
                    wide = self.r.wide(Uniform(self.r.scalar(by)), by.type.element)
                    assert isinstance(wide, Uniform)
                    total = total + wide.value * factor
                x.cell.set(total)
            elif x.place is not None and x.given is not x.param:
                form = self.forms.get(id(x.given))
                if isinstance(form, Buffer) and form.array is x.place.array:
                    continue
                reads_others = any(id(leaf) in blocks for leaf, _ in self.r.leaves(x.given)) if form is None or id(x.given) in blocks else False
                source = self.stored(x.given, self.buffer(x.given.type)) if reads_others or form is None else self.stored(x.given)
                moves.append((source, x.place))
                x.source = source
        for x in carried:
            if x.source is not None and x.place is not None:
                self.stored(self._standing_for(x.source, x.given.type), x.place)
        for cell, value in scalars:
            cell.set(value)

    def _round(self, carried: Sequence[Carried], region: Region, params: Sequence[Value]) -> None:
        before = self.targets
        given = [id(x.given) for x in carried]
        pairs = zip(carried, params, strict=True)
        wanted = {id(x.given): (p, x.place) for x, p in pairs if x.place is not None and given.count(id(x.given)) == 1}
        self.targets = before | wanted
        self.r.memos.append({})
        self._enter(carried, region, params)
        self.region(region)
        self._leave(carried)
        self.r.memos.pop()
        self.targets = before

    def _for(self, op: Op) -> None:
        c = self.c
        low, high, step = op.operands[:3]
        region = op.regions[0]
        index, *params = region.params
        carried = [self._carry(s, p, g, region) for s, p, g in zip(op.operands[3:], params, region.results, strict=True)]
        first, end, by = (self._index(v) for v in (low, high, step))
        element = element_of(low.type.element)

        def each(i: Lanes) -> None:
            self.forms[id(index)] = i if element == "i64" else i.to(element, "trunc")
            self._round(carried, region, params)

        if by.name.isdigit() and by.name != "0":
            with c.for_(first, end, by) as j:
                each(j)
        else:
            at = c.cell("i64", first)
            with c.while_(lambda: by.gt(0).select(at.get().lt(end), by.lt(0) & at.get().gt(end))):
                i = at.get()
                each(i)
                at.set(i + by)
        self._results(op, carried)

    def _index(self, v: Value) -> Lanes:
        x = self.r.wide(Uniform(self.r.scalar(v)), v.type.element)
        assert isinstance(x, Uniform)
        if v.op is not None and v.op.kind == "constant":
            return self.c.i64(int(v.op.attrs["value"]))
        return x.value

    def _results(self, op: Op, carried: Sequence[Carried]) -> None:
        for v, x in zip(op.results, carried, strict=True):
            self.forms[id(v)] = x.form()

    def _while(self, op: Op) -> None:
        condition, body = op.regions
        carried = [self._carry(s, p, g, body) for s, p, g in zip(op.operands, body.params, body.results, strict=True)]

        def holds() -> Lanes:
            self.r.memos.append({})
            self._enter(carried, condition, condition.params)
            self.region(condition)
            found = self.r.scalar(condition.results[0])
            self.r.memos.pop()
            return found

        with self.c.while_(holds):
            self._round(carried, body, body.params)
        self._results(op, carried)

    def _if(self, op: Op) -> None:
        places: list[Cell | Buffer] = []
        for v in op.results:
            places.append(self.buffer(v.type) if v.shape else self.c.cell(element_of(v.type.element), 0))

        for region, arm in zip(op.regions, (self.c.if_(self.r.scalar(op.operands[0])), self.c.else_()), strict=True):
            with arm:
                self.r.memos.append({})
                self.region(region)
                for v, place in zip(region.results, places, strict=True):
                    if isinstance(place, Cell):
                        place.set(self.r.scalar(v))
                    else:
                        self.stored(v, place)
                self.r.memos.pop()
        for v, place in zip(op.results, places, strict=True):
            self.forms[id(v)] = place.get() if isinstance(place, Cell) else place


@dataclass(eq=False)
class Carried:
    """A value that a loop carries: a variable, a block at a place or in registers, or a block that moves on by a variable."""

    start: Value
    param: Value
    given: Value
    cell: Cell | None
    place: Buffer | None = None
    steps: list[tuple[Value, int]] | None = None
    source: Buffer | None = None
    held: Registers | None = None

    def form(self) -> Form:
        """What it is here."""
        if self.held is not None:
            return self.held
        if self.place is not None:
            return self.place
        assert self.cell is not None
        return self.cell.get() if self.steps is None else Shifted(self.start, self.cell.get())


def written(program: Program) -> list[int] | None:
    """Which parameters' memory a program writes to, by number; None: any."""
    found = set()
    for op in walk(program.body):
        if op.kind in ("store", "atomic"):
            v = _origin(program, op.operands[0], set())
            if v is None:
                return None
            found |= v
    return sorted(found)


def _origin(program: Program, v: Value, seen: set[int]) -> set[int] | None:
    """The parameters that a pointer may come from, through loops and choices."""
    starts: dict[int, list[Value]] = {}
    for op in walk(program.body):
        pairs: list[tuple[Value, Value]] = []
        if op.kind == "for":
            pairs = [*zip(op.regions[0].params[1:], op.operands[3:], strict=True), *zip(op.regions[0].params[1:], op.regions[0].results, strict=True)]
        elif op.kind == "while":
            pairs = [(p, s) for region in op.regions for p, s in zip(region.params, op.operands, strict=True)]
            pairs += [(p, s) for region in op.regions for p, s in zip(region.params, op.regions[1].results, strict=True)]
        if op.kind in ("for", "while"):
            pairs += list(zip(op.results, op.regions[-1].results, strict=True))
            pairs += list(zip(op.results, op.operands[3 if op.kind == "for" else 0 :], strict=True))
        if op.kind == "if":
            pairs = [pair for region in op.regions for pair in zip(op.results, region.results, strict=True)]
        for to, source in pairs:
            starts.setdefault(id(to), []).append(source)
    numbers = {id(p): i for i, p in enumerate(program.params)}
    found: set[int] = set()
    todo = [v]
    while todo:
        v = todo.pop()
        if id(v) in seen:
            continue
        seen.add(id(v))
        if id(v) in numbers:
            found.add(numbers[id(v)])
        elif id(v) in starts:
            todo += starts[id(v)]
        elif v.op is not None and v.op.kind in ("offset", "broadcast", "reshape", "permute", "bitcast", "split", "join", "cat", "gather"):
            todo += [o for o in v.op.operands if o.type.is_pointer]
        elif v.op is not None and v.op.kind == "pointwise" and v.op.attrs["op"] == "where":
            todo += v.op.operands[1:]
        else:
            return None
    return found
