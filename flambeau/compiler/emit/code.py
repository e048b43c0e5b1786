"""Control flow and typed memory over `Builder`, for kernels that are algorithms and not loop nests: sorting, indexing,
selection, random numbers.

Values are `Lanes` (emit/lanes.py). A `Cell` is a mutable local variable (a stack slot that LLVM's SROA pass turns into
a register); an `Array` is typed memory at an address. Control flow is written as with-statements:

    c = Code(["source", "to", "count"], target)  # names the argument words, in order
    source, to = c.array("source", "i32"), c.array("to", "i32")
    with c.for_(0, c.word("count")) as i:
        to.store(i, source[i])
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from flambeau.compiler.emit.builder import KERNEL_HEADER, Builder, module, vector
from flambeau.compiler.emit.lanes import Lanes, Number, literal
from flambeau.runtime.target import Target

# Bytes of one element in memory; "i128" stands for 16 opaque bytes (complex128 when it is only moved).
ELEMENT_BYTES = {"i8": 1, "i16": 2, "i32": 4, "i64": 8, "i128": 16, "half": 2, "float": 4, "double": 8}
OF_BYTES = {1: "i8", 2: "i16", 4: "i32", 8: "i64", 16: "i128"}

Operand = Lanes | int


class Array:
    """Elements of one LLVM type at an address. Indices count elements; loads and stores may have several lanes."""

    __slots__ = ("c", "element", "pointer")

    def __init__(self, c: Code, pointer: str, element: str) -> None:
        self.c = c
        self.pointer = pointer
        self.element = element

    def address(self, index: Operand) -> str:
        """Address of element `index`."""
        return self.c.b.gep(self.element, self.pointer, index.name if isinstance(index, Lanes) else index)

    def load(self, index: Operand, width: int = 1, mask: str | None = None) -> Lanes:
        """`width` consecutive elements from `index` on; lanes whose mask bit is clear read nothing and hold zero."""
        b, align = self.c.b, min(ELEMENT_BYTES[self.element], 8)
        if mask is not None:
            return Lanes(b, self.element, width, b.masked_load(self.element, width, self.address(index), mask, align))
        return Lanes(b, self.element, width, b.load(vector(self.element, width), self.address(index), align))

    __getitem__ = load

    def store(self, index: Operand, value: Lanes | Number, mask: str | None = None) -> None:
        """Write the lanes of `value` from element `index` on; lanes whose mask bit is clear write nothing."""
        b, align = self.c.b, min(ELEMENT_BYTES[self.element], 8)
        if not isinstance(value, Lanes):
            value = self.c.value(self.element, value)
        if mask is not None:
            b.masked_store(self.element, value.width, value.name, self.address(index), mask, align)
        else:
            b.store(value.type, value.name, self.address(index), align)

    def at(self, index: Operand, element: str | None = None) -> Array:
        """The memory from element `index` on, seen as elements of type `element`."""
        return Array(self.c, self.address(index), element or self.element)

    def same(self, other: Array) -> Lanes:
        """Whether both are at one address."""
        return Lanes(self.c.b, "i1", 1, self.c.b.op(f"icmp eq ptr {self.pointer}, {other.pointer}"))

    def after_bytes(self, nbytes: Operand, element: str | None = None) -> Array:
        """The memory `nbytes` bytes further, seen as elements of type `element`."""
        name = nbytes.name if isinstance(nbytes, Lanes) else nbytes
        return Array(self.c, self.c.b.gep("i8", self.pointer, name), element or self.element)


class Cell:
    """A mutable local variable of a scalar or vector type."""

    __slots__ = ("c", "element", "pointer", "width")

    def __init__(self, c: Code, element: str, width: int) -> None:
        self.c = c
        self.element = element
        self.width = width
        self.pointer = c.b.fresh("cell")
        c.b.allocas.append(f"  {self.pointer} = alloca {vector(element, width)}")

    def get(self) -> Lanes:
        b = self.c.b
        name = b.op(f"load {vector(self.element, self.width)}, ptr {self.pointer}")
        return Lanes(b, self.element, self.width, name)

    def set(self, value: Lanes | Number) -> None:
        if not isinstance(value, Lanes):
            value = self.c.value(self.element, value, self.width)
        self.c.b.emit(f"store {value.type} {value.name}, ptr {self.pointer}")

    def add(self, step: Lanes | Number) -> None:
        self.set(self.get() + step)


class PointerCell:
    """A mutable local variable that holds an address."""

    __slots__ = ("c", "pointer")

    def __init__(self, c: Code) -> None:
        self.c = c
        self.pointer = c.b.fresh("cell")
        c.b.allocas.append(f"  {self.pointer} = alloca ptr")

    def get(self, element: str) -> Array:
        return Array(self.c, self.c.b.op(f"load ptr, ptr {self.pointer}"), element)

    def set(self, array: Array) -> None:
        self.c.b.emit(f"store ptr {array.pointer}, ptr {self.pointer}")


class Code:
    """The body of one function: a `Builder` with typed values, variables and structured control flow.

    `names` are the 8-byte words that `%args` points to, in order; they are loaded once, at the entry.
    """

    def __init__(self, names: Sequence[str], target: Target) -> None:
        self.b = Builder(target)
        self._words: dict[str, str] = {}
        self._slots = {name: i for i, name in enumerate(names)}
        self._helpers: list[str] = []
        for name in names:
            self._words[name] = self.b.load("i64", self.b.gep("i64", "%args", self._slots[name]), 8)

    # -- values ---------------------------------------------------------------------------------------------------
    def value(self, element: str, number: Number, width: int = 1) -> Lanes:
        """A constant."""
        if width == 1:
            return Lanes(self.b, element, 1, literal(element, number))
        return Lanes(self.b, element, width, "").like(number)

    def named(self, element: str, name: str, width: int = 1) -> Lanes:
        """An operand that exists already, such as a parameter of the function."""
        return Lanes(self.b, element, width, name)

    def i64(self, value: Operand) -> Lanes:
        """An i64."""
        return value if isinstance(value, Lanes) else self.value("i64", value)

    def word(self, name: str) -> Lanes:
        """Argument word `name` as an i64."""
        return Lanes(self.b, "i64", 1, self._words[name])

    def array(self, name: str, element: str) -> Array:
        """Argument word `name` as the address of elements."""
        return Array(self, self.b.op(f"inttoptr i64 {self._words[name]} to ptr"), element)

    def cell(self, element: str, initial: Lanes | Number = 0, width: int = 1) -> Cell:
        """A variable, set to `initial` here."""
        cell = Cell(self, element, width)
        cell.set(initial)
        return cell

    def pointer_cell(self, initial: Array) -> PointerCell:
        """A variable that holds an address, set here."""
        cell = PointerCell(self)
        cell.set(initial)
        return cell

    def local_array(self, element: str, count: int) -> Array:
        """`count` elements on the stack, undefined, 64-byte aligned."""
        pointer = self.b.fresh("local")
        self.b.allocas.append(f"  {pointer} = alloca [{count} x {element}], align 64")
        return Array(self, pointer, element)

    def splat(self, value: Lanes, width: int) -> Lanes:
        """A scalar in every lane."""
        return Lanes(self.b, value.element, width, self.b.splat(value.element, width, value.name))

    def extract(self, value: Lanes, lane: Operand) -> Lanes:
        if value.width == 1:
            return value
        at = self.i64(lane)
        return Lanes(self.b, value.element, 1, self.b.op(f"extractelement {value.type} {value.name}, i64 {at.name}"))

    def shuffle(self, a: Lanes, c: Lanes, order: Sequence[int]) -> Lanes:
        """Lanes picked from a (numbers below its width) and c (numbers from there on)."""
        lanes = ", ".join(f"i32 {lane}" for lane in order)
        text = f"shufflevector {a.type} {a.name}, {c.type} {c.name}, <{len(order)} x i32> <{lanes}>"
        return Lanes(self.b, a.element, len(order), self.b.op(text))

    def iota(self, element: str, width: int) -> Lanes:
        """0, 1, 2, ... in the lanes."""
        lanes = ", ".join(f"{element} {i}" for i in range(width))
        return Lanes(self.b, element, width, f"<{lanes}>" if width > 1 else "0")

    def tail_mask(self, count: Lanes, width: int) -> str:
        """Mask of the lanes below `count`."""
        return self.b.tail_mask(count.name, width)

    def divide(self, a: Lanes, c: Operand) -> Lanes:
        """Quotient of two non-negative integers."""
        return a._binary("udiv", c)

    def modulo(self, a: Lanes, c: Operand) -> Lanes:
        """Remainder of two non-negative integers."""
        return a._binary("urem", c)

    def min(self, a: Lanes, c: Operand) -> Lanes:
        return a.call("smin", c)

    def max(self, a: Lanes, c: Operand) -> Lanes:
        return a.call("smax", c)

    # -- control ----------------------------------------------------------------------------------------------------
    @contextmanager
    def for_(self, low: Operand, high: Operand, step: Operand = 1) -> Iterator[Lanes]:
        """`with c.for_(...) as i`: what follows is the body of `for i in range(low, high, step)`, with a positive step."""
        first, end, by = (self.i64(v).name for v in (low, high, step))
        with self.b.for_(first, end, by) as i:
            yield Lanes(self.b, "i64", 1, i)

    def blocks(self, low: Operand, high: Operand, width: int, body: Callable[[Lanes, int, str | None], None]) -> None:
        """`range(low, high)` in vectors: `body(first, width, None)` for whole ones, then at most one
        `body(first, width, mask)` for the tail (a loop of single elements when the width is 1)."""
        low, high = self.i64(low), self.i64(high)
        if width == 1:
            with self.for_(low, high) as i:
                body(i, 1, None)
            return
        whole = low + self.divide(self.max(high - low, 0), width) * width
        with self.for_(low, whole, width) as i:
            body(i, width, None)
        with self.if_(whole.lt(high)):
            body(whole, width, self.tail_mask(high - whole, width))

    @contextmanager
    def while_(self, condition: Callable[[], Lanes]) -> Iterator[None]:
        """What follows is done as long as `condition`, which is asked before each round, holds."""
        b = self.b
        head, work, done = b.new_label("while"), b.new_label("work"), b.new_label("done")
        b.branch(head)
        b.label(head)
        b.emit(f"br i1 {condition().name}, label %{work}, label %{done}")
        b.label(work)
        yield
        b.branch(head)
        b.label(done)

    def repeat_while(self, body: Callable[[], Lanes]) -> None:
        """Run `body` once, and again as long as the i1 that it returns is set."""
        b = self.b
        head, done = b.new_label("repeat"), b.new_label("done")
        b.branch(head)
        b.label(head)
        b.emit(f"br i1 {body().name}, label %{head}, label %{done}")
        b.label(done)

    @contextmanager
    def if_(self, condition: Lanes) -> Iterator[None]:
        """What follows is done if the condition holds; what is under an `else_` just behind it, if not."""
        with self.b.if_(condition.name):
            yield

    def else_(self) -> AbstractContextManager[None]:
        """See `if_`."""
        return self.b.else_()

    def return_if(self, condition: Lanes, result: int, before: Callable[[], None] | None = None) -> None:
        """Leave the function with `result` if the condition holds, after running `before`."""
        b = self.b
        leave, stay = b.new_label("leave"), b.new_label("stay")
        b.emit(f"br i1 {condition.name}, label %{leave}, label %{stay}, !prof !0")
        b.label(leave)
        if before is not None:
            before()
        b.emit(f"ret i64 {result}")
        b.label(stay)

    @contextmanager
    def each_set(self, mask: Lanes) -> Iterator[Lanes]:
        """`with c.each_set(mask) as lane`: what follows is done for each lane of an i1 vector that is set, in order."""
        if mask.width == 1:
            with self.if_(mask):
                yield self.i64(0)
            return
        bits = Lanes(self.b, f"i{mask.width}", 1, self.b.op(f"bitcast {mask.type} {mask.name} to i{mask.width}"))
        left = self.cell("i64", bits.to("i64", "zext"))
        with self.while_(lambda: left.get().ne(0)):
            now = left.get()
            yield now.call("cttz", extra=(("i1", "true"),))
            left.set(now & (now - 1))

    # -- memory -----------------------------------------------------------------------------------------------------
    def copy_bytes(self, to: Array, source: Array, nbytes: Operand) -> None:
        """memcpy; the areas must not overlap."""
        name = self.i64(nbytes).name
        arguments = [("ptr", to.pointer), ("ptr", source.pointer), ("i64", name), ("i1", "false")]
        self.b.call("void", "llvm.memcpy.p0.p0.i64", arguments)

    def clear_bytes(self, to: Array, nbytes: Operand) -> None:
        arguments = [("ptr", to.pointer), ("i8", "0"), ("i64", self.i64(nbytes).name), ("i1", "false")]
        self.b.call("void", "llvm.memset.p0.i64", arguments)

    def prefetch(self, address: str, write: bool = False, level: int = 1) -> None:
        """Ask for a cache line, to the cache of this level (1 to 3)."""
        self.b.prefetch(address, level, write)

    # -- the module -------------------------------------------------------------------------------------------------
    def helper(self, text: str, declarations: set[str]) -> None:
        """Add another function to the module."""
        self._helpers.append(text)
        self.b.declarations |= declarations

    def kernel(self, name: str, result: Lanes | None = None) -> str:
        """The module's text, with this body as kernel `name`; at its end it returns `result` (an i64), or 0."""
        text = self.b.function(KERNEL_HEADER.format(name=name), f"ret i64 {result.name if result else 0}")
        # Branch weights of `return_if`: leaving is rare.
        weights = '!0 = !{!"branch_weights", i32 1, i32 100000}'
        return module([*self._helpers, text], self.b.declarations, self.b.target) + weights + "\n"
