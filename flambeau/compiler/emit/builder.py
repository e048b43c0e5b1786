"""A small writer of LLVM IR text: numbered values, loops, vector loads and stores. Every kernel generator uses it.

Types are LLVM's spellings ("float", "i64", "<16 x float>"); values are operand strings ("%t3", "7", "zeroinitializer").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from flambeau.runtime.target import Target
from flambeau.small_floats import FORMATS

# dtype name -> LLVM type of one element in memory. bool is a byte (0 or 1); bfloat16 and float16 are loaded as i16/half.
MEMORY_TYPE = {
    "bool": "i8", "uint8": "i8", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "float16": "half", "bfloat16": "bfloat", "float32": "float", "float64": "double", "uint16": "i16", "uint32": "i32", "uint64": "i64",
    **dict.fromkeys((*FORMATS, "float4_e2m1fn_x2"), "i8"),
}  # fmt: skip


def vector(element: str, width: int) -> str:
    """The LLVM type of `width` elements; a width of 1 is the scalar itself."""
    return element if width == 1 else f"<{width} x {element}>"


class Parameters:
    """What a function takes, in order: "source* count add:i1". A name alone is an i64, with a star the address of memory that only this parameter reaches;
    other types are written out ("from:ptr": an address that others may reach, too). Functions are defined and called by it."""

    __slots__ = ("arguments", "text", "words")

    def __init__(self, words: str) -> None:
        self.words: Final = words
        parts = [word.partition(":") for word in words.split()]
        # Types and operands, as a function passes them on.
        self.arguments: Final = [("ptr" if name.endswith("*") else type_ or "i64", f"%{name.removesuffix('*')}") for name, _, type_ in parts]
        kinds = [type_ + " noalias" * name.endswith("*") for (name, _, _), (type_, _) in zip(parts, self.arguments, strict=True)]
        self.text: Final = ", ".join([f"{kind} {name}" for kind, (_, name) in zip(kinds, self.arguments, strict=True)])

    def __add__(self, words: str) -> Parameters:
        """These, and more."""
        return Parameters(f"{self.words} {words}")


class Builder:
    """The body of one function, written for `target`. `declarations` collects what the module must declare (intrinsics, libc functions)."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.lines: list[str] = []
        self.allocas: list[str] = []  # go to the entry block
        self.declarations: set[str] = set()
        self._count = 0
        self._block = "entry"
        self._choice = (0, -1, "")  # of the last `if_`: the lines of its branch and its end, and its label there

    # -- text ---------------------------------------------------------------------------------------------------
    def fresh(self, stem: str = "t") -> str:
        self._count += 1
        return f"%{stem}{self._count}"

    def emit(self, text: str) -> None:
        self.lines.append("  " + text)

    def op(self, text: str) -> str:
        """Append `%t = text` and return `%t`."""
        name = self.fresh()
        self.emit(f"{name} = {text}")
        return name

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self._block = name

    @property
    def block(self) -> str:
        """Name of the block being written: what a phi must name as its predecessor."""
        return self._block

    def branch(self, target: str) -> None:
        self.emit(f"br label %{target}")

    def new_label(self, stem: str = "b") -> str:
        self._count += 1
        return f"{stem}{self._count}"

    # -- integers (i64) -----------------------------------------------------------------------------------------
    def add(self, a: str | int, b: str | int) -> str:
        if a == 0 or a == "0":
            return str(b)
        if b == 0 or b == "0":
            return str(a)
        return self.op(f"add i64 {a}, {b}")

    def sub(self, a: str | int, b: str | int) -> str:
        return self.op(f"sub i64 {a}, {b}")

    def mul(self, a: str | int, b: str | int) -> str:
        if a == 1 or a == "1":
            return str(b)
        if b == 1 or b == "1":
            return str(a)
        if str(a) == "0" or str(b) == "0":
            return "0"
        return self.op(f"mul i64 {a}, {b}")

    def sdiv(self, a: str | int, b: str | int) -> str:
        return self.op(f"sdiv i64 {a}, {b}")

    def srem(self, a: str | int, b: str | int) -> str:
        return self.op(f"srem i64 {a}, {b}")

    def min(self, a: str | int, b: str | int) -> str:
        return self.call("i64", "llvm.smin.i64", [("i64", str(a)), ("i64", str(b))])

    def max(self, a: str | int, b: str | int) -> str:
        return self.call("i64", "llvm.smax.i64", [("i64", str(a)), ("i64", str(b))])

    # -- calls --------------------------------------------------------------------------------------------------
    def call(self, result: str, function: str, arguments: Iterable[tuple[str, str]], declare: bool = True) -> str:
        """Call `function` (without the @) on typed arguments; returns the result's name ("" for void)."""
        arguments = list(arguments)
        if declare:
            self.declarations.add(f"declare {result} @{function}({', '.join(t for t, _ in arguments)})")
        text = f"call {result} @{function}({', '.join(f'{t} {v}' for t, v in arguments)})"
        if result == "void":
            self.emit(text)
            return ""
        return self.op(text)

    def call_address(self, address: str, arguments: Iterable[tuple[str, str]]) -> None:
        """Call the function without a result at `address`."""
        self.emit(f"call void {address}({', '.join(f'{t} {v}' for t, v in arguments)})")

    def invoke(self, function: str, parameters: Parameters, *values: str | int) -> None:
        """Call a function without a result: of this module, by its name, or at an address, which begins with %."""
        arguments = ", ".join([f"{type_} {value}" for (type_, _), value in zip(parameters.arguments, values, strict=True)])
        self.emit(f"call void {function if function.startswith('%') else f'@{function}'}({arguments})")

    def multiply_add(self, element: str, width: int, x: str, y: str, accumulator: str) -> str:
        """x * y + accumulator of floats or doubles, rounded once if the machine can in one instruction: WebAssembly rounds twice."""
        type_ = vector(element, width)
        if self.target.relaxed and type_ in ("<4 x float>", "<2 x double>"):
            return self.call(type_, f"llvm.wasm.relaxed.madd.v{width}f{32 if width == 4 else 64}", [(type_, x), (type_, y), (type_, accumulator)])
        if not self.target.fused:
            return self.op(f"fadd {type_} {self.op(f'fmul {type_} {x}, {y}')}, {accumulator}")
        suffix = _suffix(element) if width == 1 else f"v{width}{_suffix(element)}"
        return self.call(type_, f"llvm.fma.{suffix}", [(type_, x), (type_, y), (type_, accumulator)])

    # -- memory -------------------------------------------------------------------------------------------------
    def prefetch(self, address: str, level: int = 2, write: bool = False) -> None:
        """Have the line of memory at an address brought into the cache of this level (1 to 3), to be read or written; nothing where no instruction does."""
        if self.target.architecture == "wasm32":
            return
        arguments = [("ptr", address), ("i32", str(int(write))), ("i32", str(4 - level)), ("i32", "1")]
        self.call("void", "llvm.prefetch.p0", arguments)

    def gep(self, element: str, pointer: str, index: str | int) -> str:
        """Address of element `index` (in elements of type `element`) after `pointer`."""
        if str(index) == "0":
            return pointer
        return self.op(f"getelementptr {element}, ptr {pointer}, i64 {index}")

    def load(self, type_: str, pointer: str, align: int, attributes: str = "") -> str:
        return self.op(f"load {type_}, ptr {pointer}, align {align}{attributes}")

    def store(self, type_: str, value: str, pointer: str, align: int) -> None:
        self.emit(f"store {type_} {value}, ptr {pointer}, align {align}")

    def masked_load(self, element: str, width: int, pointer: str, mask: str, align: int) -> str:
        """Lanes whose mask bit is clear read nothing and give zero."""
        type_ = vector(element, width)
        suffix = f"v{width}{_suffix(element)}"
        self.declarations.add(f"declare {type_} @llvm.masked.load.{suffix}.p0(ptr, i32, <{width} x i1>, {type_})")
        return self.op(f"call {type_} @llvm.masked.load.{suffix}.p0(ptr {pointer}, i32 {align}, <{width} x i1> {mask}, {type_} zeroinitializer)")

    def strided_lanes(self, width: int, distance: str) -> str:
        """Vector of i64: how many elements lane i lies behind lane 0, where neighbours lie `distance` (an i64) apart."""
        lanes = "<" + ", ".join(f"i64 {i}" for i in range(width)) + ">"
        return self.op(f"mul <{width} x i64> {lanes}, {self.splat('i64', width, distance)}")

    def masked_gather(self, element: str, width: int, pointer: str, offsets: str, mask: str, align: int) -> str:
        """Elements that lie `offsets` (of `strided_lanes`) behind `pointer`. Lanes whose mask bit is clear read nothing and give zero."""
        type_ = vector(element, width)
        addresses = self.op(f"getelementptr {element}, ptr {pointer}, <{width} x i64> {offsets}")
        arguments = [(f"<{width} x ptr>", addresses), ("i32", str(align)), (f"<{width} x i1>", mask), (type_, "zeroinitializer")]
        return self.call(type_, f"llvm.masked.gather.v{width}{_suffix(element)}.v{width}p0", arguments)

    def masked_store(self, element: str, width: int, value: str, pointer: str, mask: str, align: int) -> None:
        type_ = vector(element, width)
        suffix = f"v{width}{_suffix(element)}"
        self.declarations.add(f"declare void @llvm.masked.store.{suffix}.p0({type_}, ptr, i32, <{width} x i1>)")
        self.emit(f"call void @llvm.masked.store.{suffix}.p0({type_} {value}, ptr {pointer}, i32 {align}, <{width} x i1> {mask})")

    def splat(self, element: str, width: int, value: str) -> str:
        """A vector with `value` in every lane."""
        if width == 1:
            return value
        type_ = vector(element, width)
        first = self.op(f"insertelement {type_} poison, {element} {value}, i32 0")
        return self.op(f"shufflevector {type_} {first}, {type_} poison, <{width} x i32> zeroinitializer")

    def tail_mask(self, count: str, width: int) -> str:
        """Mask <width x i1>: lane i is set where i < count (an i64)."""
        lanes = "<" + ", ".join(f"i64 {i}" for i in range(width)) + ">"
        return self.op(f"icmp slt <{width} x i64> {lanes}, {self.splat('i64', width, count)}")

    # -- control ------------------------------------------------------------------------------------------------
    @contextmanager
    def fold(self, low: str | int, high: str | int, step: str | int, start: Iterable[tuple[str, str]]) -> Iterator[tuple[str, list[str]]]:
        """`with b.fold(...) as (i, values)`: what follows is the body of `for i in range(low, high, step)`. `values`, whose types and first values `start`
        has, are carried from round to round: the body sets `values[:]`, and after the loop they are what the last round left."""
        start = list(start)
        before, head, exit_ = self.block, self.new_label("head"), self.new_label("exit")
        enter = self.op(f"icmp slt i64 {low}, {high}")
        self.emit(f"br i1 {enter}, label %{head}, label %{exit_}")
        self.label(head)
        index = self.fresh("i")
        names = [self.fresh("c") for _ in start]
        at = len(self.lines)
        values = list(names)
        yield index, values
        if len(values) != len(start):
            raise ValueError(f"a loop's body has left {len(values)} values for {len(start)} carried")
        next_index = self.op(f"add i64 {index}, {step}")
        back = self.block
        again = self.op(f"icmp slt i64 {next_index}, {high}")
        self.emit(f"br i1 {again}, label %{head}, label %{exit_}")
        phis = [f"  {index} = phi i64 [{low}, %{before}], [{next_index}, %{back}]"]
        for (type_, first), name, value in zip(start, names, values, strict=True):
            phis.append(f"  {name} = phi {type_} [{first}, %{before}], [{value}, %{back}]")
        self.lines[at:at] = phis
        self.label(exit_)
        values[:] = [self.op(f"phi {type_} [{first}, %{before}], [{value}, %{back}]") for (type_, first), value in zip(start, values, strict=True)]

    @contextmanager
    def for_(self, low: str | int, high: str | int, step: str | int = 1) -> Iterator[str]:
        """`with b.for_(...) as i`: what follows is the body of `for i in range(low, high, step)`."""
        with self.fold(low, high, step, ()) as (index, _):
            yield index

    def loop(self, low: str | int, high: str | int, step: str | int, body: Callable[..., list[str]], start: Iterable[tuple[str, str]]) -> list[str]:
        """`fold` of a function: `body(i, *values)` returns the next values."""
        with self.fold(low, high, step, start) as (index, values):
            values[:] = body(index, *values)
        return values

    @contextmanager
    def if_(self, condition: str) -> Iterator[None]:
        """What follows is done if the i1 `condition` holds; what is under an `else_` just behind it, if not."""
        then, after = self.new_label("then"), self.new_label("after")
        self.emit(f"br i1 {condition}, label %{then}, label %{after}")
        branch = len(self.lines) - 1
        self.label(then)
        yield
        self.branch(after)
        self.label(after)
        self._choice = branch, len(self.lines), after

    @contextmanager
    def else_(self) -> Iterator[None]:
        """See `if_`."""
        branch, end, after = self._choice
        if end != len(self.lines):
            raise ValueError("an else_ must stand just behind an if_")
        otherwise = self.new_label("else")
        self.lines.pop()
        self.lines[branch] = self.lines[branch].replace(f"label %{after}", f"label %{otherwise}")
        self.label(otherwise)
        yield
        self.branch(after)
        self.label(after)

    # -- the function -------------------------------------------------------------------------------------------
    def define(self, name: str, parameters: Parameters, linkage: str = "internal", attributes: str = "noinline #0") -> str:
        """The finished text of a function without a result; `linkage` is "" where other modules call it."""
        return self.function(f"define {linkage}{' ' * bool(linkage)}void @{name}({parameters.text}) {attributes}")

    def function(self, header: str, result: str = "ret void") -> str:
        """The finished text: `header` is `define ... @name(...) #0`, without the brace."""
        return "\n".join([header + " {", "entry:", *self.allocas, *self.lines, "  " + result, "}"])


def _suffix(element: str) -> str:
    return {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16"}.get(element, element)


# Every kernel has this shape: `args` are 8-byte words (addresses, sizes, strides), [begin, end) the units of work of this
# call, `worker` the thread's number. Any split of the units must give the same bits.
KERNEL_HEADER = "define i64 @{name}(ptr noalias %args, i64 %begin, i64 %end, i64 %worker) #0"


def module(functions: Iterable[str], declarations: Iterable[str], target: Target) -> str:
    """A whole module: functions, sorted declarations, and the attribute group #0."""
    attributes = f'attributes #0 = {{ nounwind "prefer-vector-width"="{target.vector_bits}" "no-trapping-math"="true" }}'
    return "\n\n".join([*functions, *sorted(set(declarations)), attributes]) + "\n"
