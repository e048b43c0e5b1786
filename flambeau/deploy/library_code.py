"""A library's own code, as LLVM IR: instances, sizes, memory, and for each plan a function that calls its kernels in order.

An instance is a block of memory (`Fields`): the weights' address, the arena with its room, the sizes of the last run with the offsets of the plan's
blocks, the argument words of the kernel that runs, and the text of the last error. New sizes choose a plan by its guards and lay its blocks out;
the same sizes run at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from flambeau.compiler.kernel import REFUSED, Address, ErrorRecord, Function, Kernel, Scratch, Table
from flambeau.compiler.tables import content
from flambeau.deploy import memory_code
from flambeau.deploy.errors import BuildError
from flambeau.deploy.size_code import SizeCode
from flambeau.deploy.variants import Symbol, Variant
from flambeau.deploy.weights import HEADER, Weights
from flambeau.runtime.jit import symbol
from flambeau.runtime.tiles import PERMISSION
from flambeau.symbols import at_hints
from flambeau.trace.meta import Meta

OK, SIZES, INDEX, MEMORY, WEIGHTS, BUSY, ARGUMENT, UNIT = range(8)
STATUS_TEXTS: Final = (
    "no error", "the library holds for other sizes", "an index is out of range", "there is not enough memory",
    "these are not the weights of this library", "another thread runs in this instance", "an argument is null",
    "there is no matrix unit here that this process may use",
)  # fmt: skip
# Linux lets a process use the matrix unit's registers, in all threads, when it has asked for them.
_ASK_FOR_UNIT: Final = f"""
  %refused = call i64 (i64, ...) @syscall({", ".join([f"i64 {word}" for word in PERMISSION])})
  %may = icmp eq i64 %refused, 0
  br i1 %may, label %take, label %without
without:
  ret i32 {UNIT}
take:"""
_TEXT_BYTES: Final = 416
_SLACK: Final = 320  # behind the arena: kernels may read 256 bytes beyond a block, and it begins on a boundary of 64


@dataclass(frozen=True)
class Fields:
    """Where an instance has what, in bytes."""

    symbols: int
    offsets: int
    words: int

    BUSY_AT: int = 0
    VARIANT: int = 8
    WEIGHTS_AT: int = 16
    RAW: int = 24
    ARENA: int = 32
    CAPACITY: int = 40
    RECORD: int = 48
    LENGTH: int = 72
    TEXT: int = 80
    SIZES_AT: int = 80 + _TEXT_BYTES

    @property
    def offsets_at(self) -> int:
        return self.SIZES_AT + 8 * self.symbols

    @property
    def bytes_at(self) -> int:
        return self.offsets_at + 8 * self.offsets

    @property
    def next_at(self) -> int:
        return self.bytes_at + 8 * self.offsets

    @property
    def words_at(self) -> int:
        return self.next_at + 8 * (self.offsets + 1)

    @property
    def bytes(self) -> int:
        return self.words_at + 8 * self.words


class Library:
    """Writes the text of one library. `name`: what its functions begin with; `weights`: where each tensor lies; `inside`: whether they are part of it."""

    def __init__(self, name: str, symbols: Sequence[Symbol], variants: Sequence[Variant], weights: Weights, inside: bool, wasm: bool) -> None:
        self.unit = any("@llvm.x86.tileload" in text or "@llvm.x86.tilezero" in text for v in variants for text in v.texts.values())
        self.name, self.symbols, self.variants, self.weights, self.inside, self.wasm = name, symbols, variants, weights, inside, wasm
        kernels = [k for v in variants for k in v.plan.kernels]
        self.fields = Fields(len(symbols), max(len(v.plan.placement.lives) for v in variants), max([len(k.words) for k in kernels], default=1))
        self.strings: dict[str, str] = {}
        self.tables: dict[Table, str] = {}  # constant numbers of kernels, by their labels
        self.declared: set[str] = {"declare i64 @llvm.smax.i64(i64, i64)", "declare i64 @llvm.smin.i64(i64, i64)"}
        if self.unit:
            self.declared.add("declare i64 @syscall(i64, ...)")
        self.inputs = variants[0].recorded.input_metas
        self.outputs = variants[0].recorded.output_metas

    def exported(self) -> list[str]:
        """The names of the functions that callers see."""
        own = ("create", "destroy", "reserve", "run", "error", "status_text", "input_shape", "output_shape", *(["take"] if self.wasm else []))
        return [f"{self.name}_{f}" for f in own]

    def text(self) -> str:
        """The whole module but for the kernels."""
        parts = [memory_code.text(self.wasm), _HELPERS]
        for i, v in enumerate(self.variants):
            parts += [self._holds(i, v), self._place(i, v), self._run_variant(i, v)]
        parts += [self._prepare(), self._create(), self._entries(), self._shapes("input", self.inputs), self._shapes("output", self.outputs)]
        if self.wasm:  # memory for what callers put there
            parts.append(f"define ptr @{self.name}_take(i64 %bytes) {{\n  %p = call ptr @take(i64 %bytes)\n  ret ptr %p\n}}")
        if self.inside:
            parts.append(f"@weights = internal constant [{len(self.weights.content)} x i8] {_bytes_text(self.weights.content)}, align 64")
        for table, label in self.tables.items():
            numbers = content(table)
            parts.append(f"@{label} = internal constant [{len(numbers)} x i8] {_bytes_text(numbers)}, align 64")
        for s, label in self.strings.items():
            parts.append(f"@{label} = private unnamed_addr constant [{len(s.encode()) + 1} x i8] {_bytes_text(s.encode() + bytes(1))}")
        text = "\n".join([*parts, *sorted(self.declared)])
        for field, value in {"BUSY": 0, "RECORD": Fields.RECORD, "LENGTH": Fields.LENGTH, "TEXT": Fields.TEXT, "LAST": _TEXT_BYTES - 1}.items():
            text = text.replace(f"${field}$", str(value))
        return text

    # -- texts --------------------------------------------------------------------------------------------------------
    def string(self, s: str) -> str:
        """The operand of a constant text."""
        return "@" + self.strings.setdefault(s, f"text{len(self.strings)}")

    def say(self, parts: Sequence[str]) -> list[str]:
        """Lines that make the instance's error text: of texts, and of operands (%...) that are numbers."""
        lines = ["  call void @unsay(ptr %m)"]
        for p in parts:
            lines.append(f"  call void @say_number(ptr %m, i64 {p})" if p.startswith("%") else f"  call void @say(ptr %m, ptr {self.string(p)})")
        return lines

    def _loaded(self, lines: list[str], from_: str = "%sizes") -> list[str]:
        """Lines that load the sizes; their operands."""
        names = []
        for i in range(len(self.symbols)):
            lines += [f"  %at{i} = getelementptr i64, ptr {from_}, i64 {i}", f"  %s{i} = load i64, ptr %at{i}, align 8"]
            names.append(f"%s{i}")
        return names

    # -- a plan ---------------------------------------------------------------------------------------------------------
    def _holds(self, i: int, v: Variant) -> str:
        code = SizeCode([])
        code.sizes = self._loaded(code.lines)
        answer = "true"
        for guard in v.guards:
            answer = code.op(f"and i1 {answer}, {code.holds(guard)}")
        for sizes in v.also:
            same = "true"
            for n, s in zip(sizes, code.sizes, strict=True):
                same = code.op(f"and i1 {same}, {code.op(f'icmp eq i64 {s}, {n}')}")
            answer = code.op(f"or i1 {answer}, {same}")
        return f"define internal i1 @holds{i}(ptr %sizes) {{\n" + "\n".join([*code.lines, f"  ret i1 {answer}", "}"])

    def _place(self, i: int, v: Variant) -> str:
        """i64 @place(sizes, m): the bytes of the arena, after the offsets of the plan's blocks are in the instance."""
        code = SizeCode([])
        code.sizes = self._loaded(code.lines)
        lives = v.plan.placement.lives
        head = f"define internal i64 @place{i}(ptr %sizes, ptr %m) {{"
        if not lives:
            return "\n".join([head, *code.lines, f"  ret i64 {code.integer(v.plan.arena_bytes)}", "}"])
        count = len(lives)
        nbytes_at = code.field("%m", self.fields.bytes_at)
        for j, (_, _, nbytes) in enumerate(lives):
            operand = code.integer(nbytes)
            code.store("i64", operand, code.field(nbytes_at, 8 * j))
        order = sorted(range(count), key=lambda j: (lives[j][0], -at_hints(lives[j][2])))
        rows = ", ".join([f"i64 {x}" for j in order for x in (j, lives[j][0], lives[j][1])])
        table = f"@lives{i} = internal constant [{3 * count} x i64] [{rows}]"
        offsets = code.field("%m", self.fields.offsets_at)
        following = code.field("%m", self.fields.next_at)
        top = code.op(f"call i64 @lay_out(ptr @lives{i}, i64 {count}, ptr {nbytes_at}, ptr {following}, ptr {offsets})")
        return "\n".join([table, head, *code.lines, f"  ret i64 {top}", "}"])

    def _run_variant(self, i: int, v: Variant) -> str:
        """i32 @run(m, inputs, outputs): a status, after the kernels of a plan."""
        plan, recorded, fields = v.plan, v.recorded, self.fields
        lines: list[str] = [f"define internal i32 @run{i}(ptr %m, ptr %inputs, ptr %outputs) {{", "entry:"]
        lines.append(f"  %sizes = getelementptr i8, ptr %m, i64 {fields.SIZES_AT}")
        operands = self._loaded(lines)
        lives = plan.placement.lives
        for j in range(len(lives)):
            lines += [f"  %oat{j} = getelementptr i8, ptr %m, i64 {fields.offsets_at + 8 * j}", f"  %o{j} = load i64, ptr %oat{j}, align 8"]
            operands.append(f"%o{j}")
        code = SizeCode(operands, lines)
        op = code.op
        weights = code.load("i64", code.field("%m", fields.WEIGHTS_AT))
        arena = code.load("i64", code.field("%m", fields.ARENA))
        bases: dict[tuple[str, int], str] = {}
        for j, position in enumerate(recorded.inputs):
            bases["input", position] = code.address_in("%inputs", j)
        for j in range(len(recorded.graph.outputs)):
            bases["output", j] = code.address_in("%outputs", j)
        for position, name in recorded.held:
            bases["input", position] = op(f"add i64 {weights}, {self.weights.offsets[name]}")
        block, record = code.field("%m", fields.words_at), code.field("%m", fields.RECORD)
        failures: list[str] = []

        def address(root: int, offset: Any) -> str:
            kind, at = plan.placement.places[root]
            inside = plan.schedule.inside.get(root, 0)
            if kind == "arena":
                return op(f"add i64 {arena}, {code.integer(at + inside + offset)}")
            moved = code.integer(inside + offset)
            return bases[kind, at] if moved == "0" else op(f"add i64 {bases[kind, at]}, {moved}")

        for number, (step, place) in enumerate(zip(plan.steps, plan.places, strict=True)):
            assert isinstance(step, Kernel)
            can_fail = False
            for at, word in enumerate(step.words):
                if isinstance(word, Address):
                    if word.dynamic:
                        raise BuildError(f"{step.name}: a view starts where a run-time number says")
                    value = address(word.value, word.offset)
                elif isinstance(word, Scratch):
                    value = op(f"add i64 {arena}, {code.integer(plan.placement.scratch[place, at])}")
                elif isinstance(word, ErrorRecord):
                    can_fail, value = True, op(f"ptrtoint ptr {record} to i64")
                elif isinstance(word, Function):
                    self.declared.add(f"declare void @{symbol(word.key)}()")
                    value = f"ptrtoint (ptr @{symbol(word.key)} to i64)"
                elif isinstance(word, Table):
                    value = f"ptrtoint (ptr @{self.tables.setdefault(word, f'table{len(self.tables)}')} to i64)"
                else:
                    value = code.integer(word)
                code.store("i64", value, code.field(block, 8 * at))
            name = symbol(step.key)
            self.declared.add(f"declare i64 @{name}(ptr, i64, i64, i64)")
            result = op(f"call i64 @{name}(ptr {block}, i64 0, i64 {code.integer(step.units)}, i64 0)")
            if can_fail:
                lines += [f"  br i1 {op(f'icmp eq i64 {result}, 0')}, label %after{number}, label %failed{number}", f"after{number}:"]
                failures += [f"failed{number}:", *self._failure(step, number), f"  ret i32 {INDEX}"]
        return "\n".join([*lines, "  ret i32 0", *failures, "}"])

    def _failure(self, step: Kernel, number: int) -> list[str]:
        """Lines that say which index was out of range."""
        text = step.fails or f"{step.name}: index {{value}} is out of bounds for dimension with size {{bound}}"
        words = {"{value}": f"%given{number}", "{bound}": f"%bound{number}"}
        parts = [words.get(p, p) for p in re.split(r"(\{value\}|\{bound\})", f"{self.name}_run: {text}") if p]
        return [
            f"  %value_at{number} = getelementptr i8, ptr %m, i64 {Fields.RECORD + 8}", f"  %value{number} = load i64, ptr %value_at{number}, align 8",
            f"  %given{number} = call i64 @as_given(i64 %value{number})",
            f"  %bound_at{number} = getelementptr i8, ptr %m, i64 {Fields.RECORD + 16}", f"  %bound{number} = load i64, ptr %bound_at{number}, align 8",
            *self.say(parts),
        ]  # fmt: skip

    # -- what is called -------------------------------------------------------------------------------------------------
    def _prepare(self) -> str:
        """i32 @prepare(sizes, m): a status, after a plan was chosen for the sizes and has its memory."""
        f = self.fields
        lines = ["define internal i32 @prepare(ptr %sizes, ptr %m) {", "entry:", f"  %chosen = getelementptr i8, ptr %m, i64 {f.VARIANT}"]
        lines += ["  %before = load i64, ptr %chosen, align 8", f"  %own = getelementptr i8, ptr %m, i64 {f.SIZES_AT}"]
        operands = self._loaded(lines)
        same = "  %same0 = icmp sge i64 %before, 0"
        lines.append(same)
        for j, s in enumerate(operands):
            lines += [f"  %wat{j} = getelementptr i64, ptr %own, i64 {j}", f"  %was{j} = load i64, ptr %wat{j}, align 8"]
            lines += [f"  %eq{j} = icmp eq i64 {s}, %was{j}", f"  %same{j + 1} = and i1 %same{j}, %eq{j}"]
        lines.append(f"  br i1 %same{len(operands)}, label %ready, label %check0")
        for j, (s, known) in enumerate(zip(operands, self.symbols, strict=True)):
            lines += [f"check{j}:", f"  %low{j} = icmp sge i64 {s}, {known.lower}", f"  %high{j} = icmp sle i64 {s}, {known.upper}"]
            lines += [f"  %in{j} = and i1 %low{j}, %high{j}", f"  br i1 %in{j}, label %check{j + 1}, label %out{j}", f"out{j}:"]
            lines += self.say([f"{self.name}: sizes[{j}], {known.place}, must be from {known.lower} to {known.upper}: it is ", s])
            lines.append(f"  ret i32 {SIZES}")
        lines += [f"check{len(operands)}:", "  store i64 -1, ptr %chosen, align 8", "  br label %try0"]
        for i in range(len(self.variants)):
            lines += [f"try{i}:", f"  %holds{i} = call i1 @holds{i}(ptr %sizes)", f"  br i1 %holds{i}, label %use{i}, label %try{i + 1}"]
            lines += [f"use{i}:", f"  %top{i} = call i64 @place{i}(ptr %sizes, ptr %m)", "  br label %memory"]
        told = [p for s, known in zip(operands, self.symbols, strict=True) for p in (f", {known.place}: ", s)]
        lines += [f"try{len(self.variants)}:", *self.say([f"{self.name}: no plan of this library holds for these sizes", *told]), f"  ret i32 {SIZES}"]
        tops = ", ".join([f"[%top{i}, %use{i}]" for i in range(len(self.variants))])
        plans = ", ".join([f"[{i}, %use{i}]" for i in range(len(self.variants))])
        lines += [
            "memory:", f"  %top = phi i64 {tops}", f"  %plan = phi i64 {plans}",
            "  %enough = call i1 @make_room(ptr %m, i64 %top)", "  br i1 %enough, label %good, label %bad", "bad:",
            *self.say([f"{self.name}: there is no memory for ", "%top", " bytes of intermediate values"]), f"  ret i32 {MEMORY}", "good:",
        ]  # fmt: skip
        lines += [f"  store i64 {s}, ptr %wat{j}, align 8" for j, s in enumerate(operands)]
        lines += ["  store i64 %plan, ptr %chosen, align 8", "  br label %ready", "ready:", f"  ret i32 {OK}", "}", self._room()]
        return "\n".join(lines)

    def _room(self) -> str:
        f = self.fields
        return f"""
define internal void @give_arena(ptr %m) {{
entry:
  %raw_at = getelementptr i8, ptr %m, i64 {f.RAW}
  %raw = load ptr, ptr %raw_at, align 8
  %bare = icmp eq ptr %raw, null
  br i1 %bare, label %done, label %arena
arena:
  %capacity_at = getelementptr i8, ptr %m, i64 {f.CAPACITY}
  %capacity = load i64, ptr %capacity_at, align 8
  %bytes = add i64 %capacity, {_SLACK}
  call void @give(ptr %raw, i64 %bytes)
  store ptr null, ptr %raw_at, align 8
  store i64 0, ptr %capacity_at, align 8
  br label %done
done:
  ret void
}}
define internal i1 @make_room(ptr %m, i64 %top) {{
entry:
  %capacity_at = getelementptr i8, ptr %m, i64 {f.CAPACITY}
  %capacity = load i64, ptr %capacity_at, align 8
  %there = icmp ule i64 %top, %capacity
  br i1 %there, label %good, label %grow
grow:
  call void @give_arena(ptr %m)
  %raw_at = getelementptr i8, ptr %m, i64 {f.RAW}
  %bytes = add i64 %top, {_SLACK}
  %new = call ptr @take(i64 %bytes)
  %failed = icmp eq ptr %new, null
  br i1 %failed, label %bad, label %taken
taken:
  store ptr %new, ptr %raw_at, align 8
  store i64 %top, ptr %capacity_at, align 8
  %address = ptrtoint ptr %new to i64
  %up = add i64 %address, 63
  %arena = and i64 %up, -64
  %arena_at = getelementptr i8, ptr %m, i64 {f.ARENA}
  store i64 %arena, ptr %arena_at, align 8
  br label %good
good:
  ret i1 true
bad:
  ret i1 false
}}"""

    def _create(self) -> str:
        f, w = self.fields, self.weights
        words = "\n".join([
            f"  %h{j} = getelementptr i8, ptr %given, i64 {8 * j}\n  %x{j} = load i64, ptr %h{j}, align 1\n"
            f"  %q{j} = icmp eq i64 %x{j}, {int.from_bytes(w.content[8 * j : 8 * j + 8], 'little')}\n  %ok{j + 1} = and i1 %ok{j}, %q{j}"
            for j in range(HEADER // 8)])  # fmt: skip
        given = "  %given = getelementptr i8, ptr %weights, i64 0\n  %long = and i1 %size, true"
        if self.inside:
            given = "  %own = icmp eq ptr %weights, null\n  %given = select i1 %own, ptr @weights, ptr %weights\n  %long = or i1 %own, %size"
        null = "" if self.inside else f"  %none = icmp eq ptr %weights, null\n  br i1 %none, label %missing, label %look\nmissing:\n  ret i32 {ARGUMENT}\nlook:"
        return f"""
define i32 @{self.name}_create(ptr %weights, i64 %bytes, ptr %instance) {{
entry:
  %nowhere = icmp eq ptr %instance, null
  br i1 %nowhere, label %wrong, label %begin
wrong:
  ret i32 {ARGUMENT}
begin:
  store ptr null, ptr %instance
  {"" if null else "br label %look"}
{null if null else "look:"}
  %size = icmp uge i64 %bytes, {len(w.content)}
{given}
  br i1 %long, label %compare, label %refuse
compare:
  %ok0 = and i1 true, true
{words}
  br i1 %ok{HEADER // 8}, label %make, label %refuse
refuse:
  ret i32 {WEIGHTS}
make:{_ASK_FOR_UNIT if self.unit else ""}
  %m = call ptr @take(i64 {f.bytes})
  %failed = icmp eq ptr %m, null
  br i1 %failed, label %bad, label %good
bad:
  ret i32 {MEMORY}
good:
  call ptr @memset(ptr %m, i32 0, {"i32" if self.wasm else "i64"} {f.bytes})
  %variant = getelementptr i8, ptr %m, i64 {f.VARIANT}
  store i64 -1, ptr %variant, align 8
  %address = ptrtoint ptr %given to i64
  %at = getelementptr i8, ptr %m, i64 {f.WEIGHTS_AT}
  store i64 %address, ptr %at, align 8
  store ptr %m, ptr %instance
  ret i32 {OK}
}}
define void @{self.name}_destroy(ptr %m) {{
entry:
  %none = icmp eq ptr %m, null
  br i1 %none, label %done, label %look
look:
  call void @give_arena(ptr %m)
  call void @give(ptr %m, i64 {f.bytes})
  br label %done
done:
  ret void
}}"""

    def _entries(self) -> str:
        """reserve, run, error and status_text."""
        f, name = self.fields, self.name
        begin = f"""
  %nobody = icmp eq ptr %m, null
  br i1 %nobody, label %wrong, label %begin
begin:
  %lock = cmpxchg ptr %m, i32 0, i32 1 acquire monotonic
  %mine = extractvalue {{ i32, i1 }} %lock, 1
  br i1 %mine, label %inside, label %busy
busy:
  ret i32 {BUSY}
wrong:
  ret i32 {ARGUMENT}
inside:"""
        sized = "  br label %go" if not self.symbols else (
            "  %unsized = icmp eq ptr %sizes, null\n  br i1 %unsized, label %null_sizes, label %go\nnull_sizes:\n"
            + "\n".join(self.say([f"{name}: sizes is null"])) + "\n  br label %null")  # fmt: skip
        end = "  store atomic i32 0, ptr %m release, align 4"
        checks = []
        labels = []
        for kind, metas in (("inputs", self.inputs), ("outputs", self.outputs)):
            for j in range(-1, len(metas)):
                what = kind if j < 0 else f"{kind}[{j}]"
                label = f"{kind}{j + 1}"
                labels.append(f"null_{label}")
                read = [] if j < 0 else [f"  %{label}_at = getelementptr ptr, ptr %{kind}, i64 {j}", f"  %{label}_p = load ptr, ptr %{label}_at"]
                checks += [*read, f"  %{label}_null = icmp eq ptr %{kind if j < 0 else f'{label}_p'}, null",
                           f"  br i1 %{label}_null, label %null_{label}, label %{label}_good", f"null_{label}:",
                           *self.say([f"{name}_run: {what} is null"]), "  br label %null", f"{label}_good:"]  # fmt: skip
        cases = " ".join([f"i64 {i}, label %plan{i}" for i in range(len(self.variants))])
        plans = "\n".join([f"plan{i}:\n  %status{i} = call i32 @run{i}(ptr %m, ptr %inputs, ptr %outputs)\n  br label %ran" for i in range(len(self.variants))])
        statuses = ", ".join([f"[%status{i}, %plan{i}]" for i in range(len(self.variants))])
        no_text = [f"  %clear_at = getelementptr i8, ptr %m, i64 {f.TEXT}", "  store i8 0, ptr %clear_at"]
        texts = "\n".join([f"case{i}:\n  ret ptr {self.string(t)}" for i, t in enumerate(STATUS_TEXTS)])
        return f"""
define i32 @{name}_reserve(ptr %m, ptr %sizes) {{
entry:{begin}
{sized}
go:
  %status = call i32 @prepare(ptr %sizes, ptr %m)
{end}
  ret i32 %status
null:
{end}
  ret i32 {ARGUMENT}
}}
define i32 @{name}_run(ptr %m, ptr %sizes, ptr %inputs, ptr %outputs) {{
entry:{begin}
{sized}
go:
{chr(10).join(checks)}
  %ready = call i32 @prepare(ptr %sizes, ptr %m)
  %fits = icmp eq i32 %ready, 0
  br i1 %fits, label %start, label %unfit
unfit:
{end}
  ret i32 %ready
null:
{end}
  ret i32 {ARGUMENT}
start:
  %chosen_at = getelementptr i8, ptr %m, i64 {f.VARIANT}
  %chosen = load i64, ptr %chosen_at, align 8
  switch i64 %chosen, label %plan0 [{cases}]
{plans}
ran:
  %result = phi i32 {statuses}
  %clean = icmp eq i32 %result, 0
  br i1 %clean, label %clear, label %leave
clear:
{chr(10).join(no_text)}
  br label %leave
leave:
{end}
  ret i32 %result
}}
define ptr @{name}_error(ptr %m) {{
entry:
  %none = icmp eq ptr %m, null
  br i1 %none, label %no, label %yes
no:
  ret ptr {self.string("there is no instance")}
yes:
  %at = getelementptr i8, ptr %m, i64 {f.TEXT}
  ret ptr %at
}}
define ptr @{name}_status_text(i32 %status) {{
entry:
  switch i32 %status, label %other [{" ".join([f"i32 {i}, label %case{i}" for i in range(len(STATUS_TEXTS))])}]
{texts}
other:
  ret ptr {self.string("no status of this library")}
}}"""

    def _shapes(self, kind: str, metas: Sequence[Meta]) -> str:
        """i32 NAME_input_shape(i, sizes, shape): the number of dims, -1 for no such input; the sizes are written to `shape` unless that is null."""
        cases, blocks = [], []
        code = SizeCode([])
        for i, m in enumerate(metas):
            cases.append(f"i32 {i}, label %t{i}")
            code.lines.append(f"t{i}:")
            code.lines.append(f"  br i1 %ask, label %w{i}, label %r{i}\nw{i}:")
            code.known.clear()
            names = []
            for j in range(len(self.symbols)):
                names.append(code.load("i64", code.field("%sizes", 8 * j)))
            code.sizes = names
            for d, n in enumerate(m.shape):
                operand = code.integer(n)
                code.store("i64", operand, code.field("%shape", 8 * d))
            code.lines.append(f"  br label %r{i}\nr{i}:\n  ret i32 {len(m.shape)}")
        blocks = code.lines
        return "\n".join([
            f"define i32 @{self.name}_{kind}_shape(i32 %i, ptr %sizes, ptr %shape) {{", "entry:", "  %ask = icmp ne ptr %shape, null",
            f"  switch i32 %i, label %none [{' '.join(cases)}]", *blocks, "none:", "  ret i32 -1", "}"])  # fmt: skip


def _bytes_text(content: bytes) -> str:
    """LLVM's spelling of bytes."""
    return 'c"' + "".join([f"\\{b:02X}" for b in content]) + '"'


# lay_out: rows of `lives` are (block, first phase, last phase) by birth. First fit: a block lies as low as it can among those alive at its birth. These
# are a list by address (`next`, by rows; its head is behind the last row), from which a walk takes the dead that it meets: the work grows with the
# blocks times those alive at once, not with the square of the blocks.
_HELPERS: Final = f"""
define internal i64 @as_given(i64 %value) {{
  %above = icmp sgt i64 %value, {REFUSED // 2}
  %below = icmp slt i64 %value, {-REFUSED // 2}
  %down = sub i64 %value, {REFUSED}
  %up = add i64 %value, {REFUSED}
  %a = select i1 %above, i64 %down, i64 %value
  %b = select i1 %below, i64 %up, i64 %a
  ret i64 %b
}}
define internal void @unsay(ptr %m) {{
  %length = getelementptr i8, ptr %m, i64 $LENGTH$
  store i64 0, ptr %length, align 8
  %text = getelementptr i8, ptr %m, i64 $TEXT$
  store i8 0, ptr %text
  ret void
}}
define internal void @say_byte(ptr %m, i8 %byte) {{
entry:
  %length_at = getelementptr i8, ptr %m, i64 $LENGTH$
  %length = load i64, ptr %length_at, align 8
  %room = icmp ult i64 %length, $LAST$
  br i1 %room, label %put, label %done
put:
  %text = getelementptr i8, ptr %m, i64 $TEXT$
  %at = getelementptr i8, ptr %text, i64 %length
  store i8 %byte, ptr %at
  %more = add i64 %length, 1
  %next = getelementptr i8, ptr %text, i64 %more
  store i8 0, ptr %next
  store i64 %more, ptr %length_at, align 8
  br label %done
done:
  ret void
}}
define internal void @say(ptr %m, ptr %s) {{
entry:
  br label %next
next:
  %i = phi i64 [0, %entry], [%j, %put]
  %p = getelementptr i8, ptr %s, i64 %i
  %c = load i8, ptr %p
  %end = icmp eq i8 %c, 0
  br i1 %end, label %done, label %put
put:
  call void @say_byte(ptr %m, i8 %c)
  %j = add i64 %i, 1
  br label %next
done:
  ret void
}}
define internal void @say_number(ptr %m, i64 %n) {{
entry:
  %negative = icmp slt i64 %n, 0
  br i1 %negative, label %minus, label %digits
minus:
  call void @say_byte(ptr %m, i8 45)
  br label %digits
digits:
  %opposite = sub i64 0, %n
  %size = select i1 %negative, i64 %opposite, i64 %n
  br label %widen
widen:
  %unit = phi i64 [1, %digits], [%tenfold, %widen]
  %rest = udiv i64 %size, %unit
  %large = icmp uge i64 %rest, 10
  %tenfold = mul i64 %unit, 10
  br i1 %large, label %widen, label %write
write:
  %u = phi i64 [%unit, %widen], [%smaller, %write]
  %quotient = udiv i64 %size, %u
  %digit = urem i64 %quotient, 10
  %code = add i64 %digit, 48
  %byte = trunc i64 %code to i8
  call void @say_byte(ptr %m, i8 %byte)
  %smaller = udiv i64 %u, 10
  %more = icmp ne i64 %smaller, 0
  br i1 %more, label %write, label %done
done:
  ret void
}}
define internal i64 @lay_out(ptr %lives, i64 %count, ptr %bytes, ptr %next, ptr %offsets) {{
entry:
  %head = getelementptr i64, ptr %next, i64 %count
  store i64 -1, ptr %head, align 8
  br label %block
block:
  %k = phi i64 [0, %entry], [%k1, %placed]
  %top = phi i64 [0, %entry], [%top1, %placed]
  %row = mul i64 %k, 3
  %row_at = getelementptr i64, ptr %lives, i64 %row
  %i = load i64, ptr %row_at, align 8
  %first_at = getelementptr i64, ptr %row_at, i64 1
  %first = load i64, ptr %first_at, align 8
  %bytes_at = getelementptr i64, ptr %bytes, i64 %i
  %plain = load i64, ptr %bytes_at, align 8
  %up = add i64 %plain, 63
  %need = and i64 %up, -64
  store i64 %need, ptr %bytes_at, align 8
  br label %walk
walk:
  %slot = phi ptr [%head, %block], [%slot, %unlink], [%link, %keep]
  %at = phi i64 [0, %block], [%at, %unlink], [%behind, %keep]
  %q = load i64, ptr %slot, align 8
  %end = icmp slt i64 %q, 0
  br i1 %end, label %placed, label %look
look:
  %link = getelementptr i64, ptr %next, i64 %q
  %orow = mul i64 %q, 3
  %orow_at = getelementptr i64, ptr %lives, i64 %orow
  %olast_at = getelementptr i64, ptr %orow_at, i64 2
  %olast = load i64, ptr %olast_at, align 8
  %dead = icmp slt i64 %olast, %first
  br i1 %dead, label %unlink, label %alive
unlink:
  %after = load i64, ptr %link, align 8
  store i64 %after, ptr %slot, align 8
  br label %walk
alive:
  %j = load i64, ptr %orow_at, align 8
  %ooffset_at = getelementptr i64, ptr %offsets, i64 %j
  %ooffset = load i64, ptr %ooffset_at, align 8
  %mine_end = add i64 %at, %need
  %fits = icmp ule i64 %mine_end, %ooffset
  br i1 %fits, label %placed, label %keep
keep:
  %obytes_at = getelementptr i64, ptr %bytes, i64 %j
  %obytes = load i64, ptr %obytes_at, align 8
  %behind = add i64 %ooffset, %obytes
  br label %walk
placed:
  %mine = getelementptr i64, ptr %next, i64 %k
  store i64 %q, ptr %mine, align 8
  store i64 %k, ptr %slot, align 8
  %offset_at = getelementptr i64, ptr %offsets, i64 %i
  store i64 %at, ptr %offset_at, align 8
  %used = add i64 %at, %need
  %higher = icmp ugt i64 %used, %top
  %top1 = select i1 %higher, i64 %used, i64 %top
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, %count
  br i1 %more, label %block, label %done
done:
  ret i64 %top1
}}
"""
