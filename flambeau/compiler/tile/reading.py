"""Reading blocks at coordinates: the part of the lowering that computes index expressions where they are used.

A value that costs next to nothing (constants, ranges, integer arithmetic on them, changes of shape) is never stored. `at` computes lanes of it, and
keeps what is linear along the vector as a base and a step. So a load knows whether its addresses follow one another.
"""

from __future__ import annotations

from typing import Any, Final

from flambeau.compiler.emit import convert, scalar
from flambeau.compiler.emit.code import Code
from flambeau.compiler.emit.lanes import Lanes
from flambeau.compiler.tile.forms import (
    ZERO,
    AtLanes,
    Buffer,
    Coordinate,
    Coordinates,
    Form,
    Linear,
    Shifted,
    Uniform,
    element_of,
    known_number,
)
from flambeau.compiler.tile.infer import COMPARISONS
from flambeau.compiler.tile.ir import Element, Op, Pointer, Value
from flambeau.dtypes import BY_NAME, bool_, dtype, int64

# Pointwise operations on integers that are computed wherever they are read.
_CHEAP: Final = frozenset(
    ("add", "sub", "mul", "where", "cast", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "maximum", "minimum", "neg", *COMPARISONS)
)
_MOVES: Final = frozenset(("broadcast", "permute"))
# What gives pointers into the memory of its first operand.
SAME_MEMORY: Final = frozenset(("offset", "broadcast", "reshape", "permute", "bitcast"))


def inserts_ones(source: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """Whether a reshape only adds and takes dims of size 1."""
    return [n for n in source if n > 1] == [n for n in to if n > 1]


class Reading:
    """Values by their forms; `memos` has what is known at each level of the loops around here."""

    def __init__(self, c: Code) -> None:
        self.c = c
        self.forms: dict[int, Form] = {}
        self.memos: list[dict[Any, AtLanes]] = [{}]
        self.bases: dict[int, tuple[Lanes, str]] = {}  # of scalar pointers, by id: the address, and the same as a pointer of LLVM's
        self._virtual: dict[int, bool] = {}
        self._coordinates: list[Coordinates] = []  # alive as long as memos name them

    # -- what is virtual --------------------------------------------------------------------------------------------
    def is_virtual(self, v: Value) -> bool:
        """Whether a block is computed where it is read."""
        found = self._virtual.get(id(v))
        if found is None:
            found = self._virtual[id(v)] = self._decide(v)
        return found

    def _decide(self, v: Value) -> bool:
        op = v.op
        if op is None:
            return False
        if op.kind in ("constant", "iota", "offset", *_MOVES):
            return True
        if op.kind == "reshape":
            return inserts_ones(op.operands[0].shape, v.shape)
        if op.kind == "bitcast":
            return all(self.is_virtual(o) or not o.shape for o in op.operands)
        if op.kind != "pointwise" or op.attrs["op"] not in _CHEAP:
            return False
        if op.attrs["op"] in COMPARISONS and v.type.numel <= self.c.b.target.lanes:  # a mask stays in its register
            return False
        elements = [o.type.element for o in (*op.operands, v)]
        whole = all(isinstance(e, Pointer) or e.category < 2 for e in elements)
        return whole and all(not o.shape or self.is_virtual(o) for o in op.operands)

    def leaves(self, v: Value, direct: bool = True) -> list[tuple[Value, bool]]:
        """The stored values that a block is computed from, each with whether it is read at the block's own coordinates."""
        if id(v) in self.forms or not self.is_virtual(v):
            form = self.forms.get(id(v))
            if isinstance(form, Shifted):
                return self.leaves(form.start, direct)
            return [(v, direct)]
        assert v.op is not None
        moves = v.op.kind in _MOVES or v.op.kind == "reshape"
        return [leaf for o in v.op.operands if o.shape or id(o) not in self.forms for leaf in self.leaves(o, direct and not moves)]

    # -- coordinates ------------------------------------------------------------------------------------------------
    def normal(self, v: Value, at: tuple[Coordinate | None, ...]) -> tuple[Value, tuple[Coordinate | None, ...]]:
        """The value under changes of shape, and the coordinates in it (None stays)."""
        while True:
            at = tuple(ZERO if n == 1 else x for n, x in zip(v.shape, at, strict=True))
            op = v.op
            if id(v) in self.forms or op is None:
                return v, at
            if op.kind == "broadcast":
                v = op.operands[0]
                at = at if v.shape else ()
            elif op.kind == "permute":
                v = op.operands[0]
                back: list[Coordinate | None] = [ZERO] * len(at)
                for d, x in zip(op.attrs["dims"], at, strict=True):
                    back[d] = x
                at = tuple(back)
            elif op.kind == "reshape" and self.is_virtual(v):
                rest = iter([x for n, x in zip(v.shape, at, strict=True) if n > 1])
                v = op.operands[0]
                at = tuple(next(rest) if n > 1 else ZERO for n in v.shape)
            else:
                return v, at

    def hoist(self, v: Value, at: tuple[Coordinate | None, ...]) -> None:
        """Compute here what of a value does not depend on the coordinates that are None."""
        v, at = self.normal(v, at)
        known = tuple(x for x in at if x is not None)
        if len(known) == len(at):
            if v.shape and (id(v) in self.forms or self.is_virtual(v)):
                self.at(v, known)
            return
        form = self.forms.get(id(v))
        if isinstance(form, Shifted):
            self.hoist(form.start, at)
        elif form is None and v.op is not None and self.is_virtual(v) and v.op.kind != "iota":
            for o in v.op.operands:
                if o.shape:
                    self.hoist(o, at)

    # -- values -----------------------------------------------------------------------------------------------------
    def at(self, v: Value, at: Coordinates) -> AtLanes:
        """Lanes of a value at coordinates, of which at most one has a width."""
        v, here = self.normal(v, at)
        at = tuple(x for x in here if x is not None)
        key = (id(v), *map(id, at))
        for memo in reversed(self.memos):
            if key in memo:
                return memo[key]
        result = self._compute(v, at)
        self.keep(v, at, result)
        return result

    def keep(self, v: Value, at: Coordinates, result: AtLanes) -> None:
        """Remember, as long as the innermost loop's round, what a value is at coordinates."""
        at = tuple(ZERO if n == 1 else x for n, x in zip(v.shape, at, strict=True))
        self._coordinates.append(at)
        self.memos[-1][(id(v), *map(id, at))] = result

    def lanes(self, v: Value, at: Coordinates, width: int) -> Lanes:
        """The same as `width` lanes."""
        return self.spread(self.at(v, at), v.type.element, width)

    def scalar(self, v: Value) -> Lanes:
        """A scalar."""
        return self.lanes(v, (), 1)

    def spread(self, x: AtLanes, e: Element, width: int) -> Lanes:
        """Whatever it is, as `width` lanes of the element's type."""
        element = element_of(e)
        if isinstance(x, Uniform):
            return x.value if width == 1 else self.c.splat(x.value, width)
        if isinstance(x, Linear):
            base = x.base if element == "i64" else x.base.to(element, "trunc")
            if width == 1:
                return base
            if isinstance(x.step, int):
                steps = self.c.value("i64", 0, width)
                numbers = ", ".join(f"{element} {_wrapped(i * x.step, element)}" for i in range(width))
                steps = Lanes(self.c.b, element, width, f"<{numbers}>")
            else:
                step = x.step if element == "i64" else x.step.to(element, "trunc")
                steps = self.c.splat(step, width) * self.c.iota(element, width)
            return self.c.splat(base, width) + steps
        return x

    def _compute(self, v: Value, at: Coordinates) -> AtLanes:
        form = self.forms.get(id(v))
        if isinstance(form, Lanes):
            return Uniform(form)
        if isinstance(form, Buffer):
            return self.read(form, v.type.element, at)
        if isinstance(form, Shifted):
            e = v.type.element
            return self._narrowed(self._add(self.wide(self.at(form.start, at), e), Uniform(form.by)), e)
        op = v.op
        if op is None or not (self.is_virtual(v) or not v.shape):
            raise AssertionError(f"tile: {op.kind if op else v.name} {v.type} is read before it is computed")
        width = max([x.width for x in at], default=1)
        if op.kind == "constant":
            return Uniform(Lanes(self.c.b, element_of(v.type.element), 1, str(scalar.constant(self.c.b, v.type.dtype, op.attrs["value"], 1))))
        if op.kind == "iota":
            base = self.c.i64(at[0].base) + op.attrs["start"] if op.attrs["start"] else self.c.i64(at[0].base)
            return Linear(base, 1) if at[0].width > 1 else Uniform(base.to("i32", "trunc"))
        xs = [self.at(o, at if o.shape else ()) for o in op.operands]
        if op.kind == "offset":
            return self._offset(op, xs)
        return self.pointwise(op, xs, width)

    def pointwise(self, op: Op, xs: list[AtLanes], width: int) -> AtLanes:
        """A pointwise operation or a bitcast on lanes: uniform and linear ones stay so where they can."""
        name = op.attrs["op"] if op.kind == "pointwise" else "bitcast"
        d = op.operands[-1].type.element
        linear = self._linear(name, op, xs) if any(isinstance(x, Linear) for x in xs) else None
        if linear is not None:
            return linear
        uniform = all(isinstance(x, Uniform) for x in xs)
        n = 1 if uniform else width
        values = [self.spread(x, o.type.element, n) for x, o in zip(xs, op.operands, strict=True)]
        result = self.bitcast(values[0], d, op.attrs["element"]) if name == "bitcast" else self.apply(name, d, values, n, op.attrs["dtype"])
        return Uniform(result) if uniform else result

    def apply(self, name: str, d: Element, values: list[Lanes], width: int, to: dtype | None) -> Lanes:
        """A pointwise primitive on lanes; `d` is the dtype of the last."""
        number = BY_NAME["uint64"] if isinstance(d, Pointer) else d
        result = scalar.apply(self.c.b, name, number, [v.name for v in values], width, {"dtype": to})
        out = to if name == "cast" else bool_ if name in COMPARISONS or name == "isnan" else d
        assert out is not None
        return Lanes(self.c.b, element_of(out), width, str(result))

    def bitcast(self, x: Lanes, source: Element, target: Element) -> Lanes:
        """The same bits in memory as another dtype; pointers are their addresses."""

        def memory(e: Element) -> dtype:
            return int64 if isinstance(e, Pointer) else e

        raw = convert.to_memory(x, memory(source))
        element = convert.memory_element(memory(target))
        if raw.element != element:
            raw = Lanes(self.c.b, element, x.width, self.c.b.op(f"bitcast {raw.type} {raw.name} to {Lanes(self.c.b, element, x.width, '').type}"))
        return convert.from_memory(raw, memory(target))

    # -- linear lanes -----------------------------------------------------------------------------------------------
    def wide(self, x: AtLanes, e: Element) -> AtLanes:
        """Integers as i64."""
        if isinstance(x, Linear) or isinstance(e, Pointer) or e.itemsize == 8:
            return x
        how = "sext" if e.is_signed else "zext"
        return Uniform(x.value.to("i64", how)) if isinstance(x, Uniform) else x.to("i64", how)

    def _narrowed(self, x: AtLanes, e: Element) -> AtLanes:
        """i64 as the element's type again; what is linear stays wide."""
        if isinstance(x, Linear) or element_of(e) == "i64":
            return x
        return Uniform(x.value.to(element_of(e), "trunc")) if isinstance(x, Uniform) else x.to(element_of(e), "trunc")

    def _add(self, a: AtLanes, c: AtLanes, sign: int = 1) -> AtLanes:
        """a + c or a - c, of i64."""
        if isinstance(a, Uniform) and isinstance(c, Uniform):
            return Uniform(a.value + c.value if sign > 0 else a.value - c.value)
        if isinstance(a, Lanes) or isinstance(c, Lanes):
            width = a.width if isinstance(a, Lanes) else c.width  # type: ignore[union-attr]
            x, y = self.spread(a, int64, width), self.spread(c, int64, width)
            return x + y if sign > 0 else x - y
        base_a, step_a = (a.value, 0) if isinstance(a, Uniform) else (a.base, a.step)
        base_c, step_c = (c.value, 0) if isinstance(c, Uniform) else (c.base, c.step)
        base = base_a + base_c if sign > 0 else base_a - base_c
        if isinstance(step_a, int) and isinstance(step_c, int):
            return _linear(base, step_a + sign * step_c)
        x, y = self.c.i64(step_a), self.c.i64(step_c)
        return Linear(base, x + y if sign > 0 else x - y)

    def _times(self, a: AtLanes, factor: AtLanes) -> AtLanes | None:
        """The product of linear and uniform i64, None if it is neither."""
        if isinstance(a, Uniform):
            a, factor = factor, a
        if not isinstance(factor, Uniform) or not isinstance(a, Linear):
            return None
        number = known_number(factor.value)
        if number is not None and isinstance(a.step, int):
            return _linear(a.base * number, a.step * number)
        return Linear(a.base * factor.value, self.c.i64(a.step) * factor.value if a.step != 1 else factor.value)

    def _linear(self, name: str, op: Op, xs: list[AtLanes]) -> AtLanes | None:
        elements = [o.type.element for o in op.operands]
        if name == "bitcast":
            return xs[0] if isinstance(elements[0], Pointer) and isinstance(op.attrs["element"], Pointer) else None
        if name == "cast":
            to = op.attrs["dtype"]
            keeps = not isinstance(elements[0], Pointer) and to.category == 1 and to.itemsize >= elements[0].itemsize
            return xs[0] if keeps else None
        if name not in ("add", "sub", "mul"):
            return None
        wide = [self.wide(x, e) for x, e in zip(xs, elements, strict=True)]
        if name == "mul":
            return self._times(wide[0], wide[1])
        if any(isinstance(x, Lanes) for x in wide):
            return None
        return self._add(wide[0], wide[1], 1 if name == "add" else -1)

    def _offset(self, op: Op, xs: list[AtLanes]) -> AtLanes:
        e = op.operands[0].type.element
        assert isinstance(e, Pointer)
        by, size = self.wide(xs[1], op.operands[1].type.element), e.to.itemsize
        if isinstance(by, Uniform):
            by = Uniform(by.value * size)
        elif isinstance(by, Linear):
            by = _linear(by.base * size, by.step * size) if isinstance(by.step, int) else Linear(by.base * size, by.step * size)
        else:
            by = by * size
        return self._add(xs[0], by)

    def pointer(self, v: Value, address: Lanes) -> str:
        """An address that was computed for a pointer, to be read or written: as what it is beyond a scalar pointer that it comes from, where there is one, as
        LLVM folds such sums into the operands of instructions."""
        while id(v) not in self.bases:
            if v.op is None or v.op.kind not in SAME_MEMORY:
                return self.c.b.op(f"inttoptr i64 {address.name} to ptr")
            v = v.op.operands[0]
        start, base = self.bases[id(v)]
        return self.c.b.gep("i8", base, (address - start).name)

    # -- scratch memory ---------------------------------------------------------------------------------------------
    def _index(self, buffer: Buffer, at: Coordinates) -> tuple[Lanes | int, int, int]:
        """(element, width, stride of the lanes) of a place in a buffer."""
        index: Lanes | int = 0
        width, stride = 1, 0
        for x, step in zip(at, buffer.strides, strict=True):
            if x.width > 1:
                width, stride = x.width, step
            if step and x is not ZERO:
                index = x.base * step + index if isinstance(x.base, int) else x.base * step + index if step != 1 else x.base + index
        return index, width, stride

    def read(self, buffer: Buffer, e: Element, at: Coordinates) -> AtLanes:
        """Lanes of a stored block."""
        index, width, stride = self._index(buffer, at)
        array = buffer.array
        if width == 1 or stride == 0:
            x = array.load(index)
            return Uniform(x.to("i1", "trunc") if element_of(e) == "i1" else x)
        if stride == 1:
            x = array.load(index, width)
        else:
            places = self.c.iota("i64", width) * stride
            pointers = self.c.b.op(f"getelementptr {array.element}, ptr {array.address(index)}, <{width} x i64> {places.name}")
            size = {"i8": 1, "i16": 2, "i32": 4, "i64": 8, "float": 4, "double": 8}[array.element]
            x = convert.gather_elements(self.c.b, array.element, pointers, width, None, size)
        return x.to("i1", "trunc") if element_of(e) == "i1" else x

    def write(self, buffer: Buffer, e: Element, at: Coordinates, value: Lanes) -> None:
        """Store lanes into a block in scratch memory."""
        index, width, stride = self._index(buffer, at)
        x = value.to("i8", "zext") if element_of(e) == "i1" else value
        array = buffer.array
        if width == 1 or stride == 1:
            array.store(index, x)
            return
        places = self.c.iota("i64", width) * stride
        pointers = self.c.b.op(f"getelementptr {array.element}, ptr {array.address(index)}, <{width} x i64> {places.name}")
        convert.scatter_elements(self.c.b, x, pointers, None, 1)


def root(v: Value) -> Value | None:
    """The parameter that a pointer comes from, None if that is not known."""
    while v.op is not None:
        if v.op.kind not in SAME_MEMORY:
            return None
        v = v.op.operands[0]
    return v


def _linear(base: Lanes, step: int) -> AtLanes:
    return Linear(base, step)


def _wrapped(number: int, element: str) -> int:
    bits = int(element[1:])
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number
