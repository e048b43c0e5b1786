"""Plans for AArch64 run under QEMU: one static program a plan, made of its objects, whose memory is read from a file and written back.

A plan's buffers, scratch memory and argument words lie in one area at a fixed address. The program maps it, fills it from its input, calls the kernels
in order with all their units, and writes it to its output. What it needs of an operating system are four calls of Linux, in assembly.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Address, ErrorRecord, Function, Kernel, Scratch
from flambeau.compiler.objects import objects
from flambeau.compiler.pipeline import compile_graph
from flambeau.runtime import jit
from flambeau.runtime.target import Target
from tests import processes

EMULATOR: Final = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
ASSEMBLER: Final = shutil.which("aarch64-linux-gnu-as")
LINKER: Final = shutil.which("aarch64-linux-gnu-ld")
BASE: Final = 0x10_0000_0000  # where the area lies
# Linux for AArch64 (include/uapi/asm-generic/unistd.h): the numbers of the calls.
READ, WRITE, EXIT, MMAP = 63, 64, 93, 222
_PACK: Final = {"int64": "q", "float64": "d", "bool": "q"}

# system(number, up to six arguments): a call of Linux, whose number is in x8.
_CALL: Final = """
.global system
system:
  mov x8, x0
  mov x0, x1
  mov x1, x2
  mov x2, x3
  mov x3, x4
  mov x4, x5
  mov x5, x6
  svc #0
  ret
"""
_SYSTEM: Final = """
declare i64 @system(i64, i64, i64, i64, i64, i64, i64)
define internal void @whole(i64 %number, i64 %file, i64 %at, i64 %count) noinline {
entry:
  br label %next
next:
  %done = phi i64 [0, %entry], [%more, %next]
  %from = add i64 %at, %done
  %left = sub i64 %count, %done
  %n = call i64 @system(i64 %number, i64 %file, i64 %from, i64 %left, i64 0, i64 0, i64 0)
  %more = add i64 %done, %n
  %again = icmp ult i64 %more, %count
  br i1 %again, label %next, label %end
end:
  ret void
}
define ptr @memcpy(ptr %to, ptr %from, i64 %count) "no-builtins" {
entry:
  %any = icmp ne i64 %count, 0
  br i1 %any, label %next, label %end
next:
  %i = phi i64 [0, %entry], [%j, %next]
  %p = getelementptr i8, ptr %from, i64 %i
  %q = getelementptr i8, ptr %to, i64 %i
  %x = load volatile i8, ptr %p
  store volatile i8 %x, ptr %q
  %j = add i64 %i, 1
  %again = icmp ult i64 %j, %count
  br i1 %again, label %next, label %end
end:
  ret ptr %to
}
define ptr @memset(ptr %to, i32 %value, i64 %count) "no-builtins" {
entry:
  %x = trunc i32 %value to i8
  %any = icmp ne i64 %count, 0
  br i1 %any, label %next, label %end
next:
  %i = phi i64 [0, %entry], [%j, %next]
  %q = getelementptr i8, ptr %to, i64 %i
  store volatile i8 %x, ptr %q
  %j = add i64 %i, 1
  %again = icmp ult i64 %j, %count
  br i1 %again, label %next, label %end
end:
  ret ptr %to
}
"""


class Area:
    """The memory of a run: pieces at fixed addresses."""

    def __init__(self) -> None:
        self.content = bytearray()

    def add(self, content: bytes) -> int:
        """The address of a new piece, on a boundary of 64 bytes, with room behind it."""
        at = len(self.content)
        self.content += content + bytes(64 + -len(content) % 64)
        return BASE + at


def run(graph: Graph, inputs: Sequence[Any], parameters: Sequence[Any], folder: Path) -> list[Any]:
    """The outputs of a graph on AArch64, as flat arrays, then its inputs as they are afterwards."""
    target = Target.named("aarch64-linux")
    plan = compile_graph(graph, target=target)
    area = Area()
    arena = area.add(bytes(plan.arena_bytes))
    given = [area.add(np.ascontiguousarray(x).tobytes()) for x in inputs]
    fresh = {j: area.add(bytes(_nbytes(graph, i))) for j, i in enumerate(graph.outputs) if j not in plan.schedule.returned}
    numbers = {root: area.add(struct.pack("<" + _PACK[graph.values[root].dtype.name], x)) for root, x in zip(graph.parameters, parameters, strict=True)}
    values = dict(zip(numbers, parameters, strict=True))
    error = area.add(bytes(24))

    def address(root: int) -> int:
        kind, at = plan.placement.places[root]
        return {"arena": arena + at, "input": given[at] if kind == "input" else 0, "output": fresh.get(at, 0)}[kind] + plan.schedule.inside.get(root, 0)

    declared, body = set(), []
    for step, place in zip(plan.steps, plan.places, strict=True):
        assert isinstance(step, Kernel), "host calls are not compiled"
        words, functions = [], {}
        for at, word in enumerate(step.words):
            match word:
                case int():
                    words.append(word)
                case Address(value, offset, dynamic):
                    moved = sum(int(values[p]) * m for p, m in dynamic)
                    words.append(numbers[value] if value in numbers else address(value) + offset + moved)
                case Scratch():
                    words.append(arena + plan.placement.scratch[place, at])
                case ErrorRecord():
                    words.append(error)
                case Function(key):
                    functions[at] = jit.symbol(key)
                    words.append(0)
        start = area.add(struct.pack(f"<{len(words)}q", *words))
        for at, name in functions.items():
            declared.add(f"declare void @{name}()")
            body.append(f"  store ptr @{name}, ptr inttoptr (i64 {start + 8 * at} to ptr)")
        name = jit.symbol(step.key)
        declared.add(f"declare i64 @{name}(ptr, i64, i64, i64)")
        body.append(f"  call i64 @{name}(ptr inttoptr (i64 {start} to ptr), i64 0, i64 {step.units}, i64 0)")
    size = len(area.content)
    text = "\n".join([
        *sorted(declared), _SYSTEM, "define void @_start() {",
        f"  call i64 @system(i64 {MMAP}, i64 {BASE}, i64 {size}, i64 3, i64 50, i64 -1, i64 0)",  # read and write; private, fixed, anonymous
        f"  call void @whole(i64 {READ}, i64 0, i64 {BASE}, i64 {size})", *body,
        f"  call void @whole(i64 {WRITE}, i64 1, i64 {BASE}, i64 {size})",
        f"  call i64 @system(i64 {EXIT}, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0)", "  unreachable", "}",
    ])  # fmt: skip
    files = []
    for number, content in enumerate([*objects(plan).values(), jit.compile_text(text, target=target)]):
        files.append(folder / f"{number}.o")
        files[-1].write_bytes(content)
    files.append(folder / "call.o")
    processes.run([str(ASSEMBLER), "-o", str(files[-1]), "-"], input=_CALL.encode(), check=True)
    program = folder / "program"
    processes.run([str(LINKER), "-static", "-o", str(program), *map(str, files)], check=True)
    after = processes.run([str(EMULATOR), str(program)], input=bytes(area.content), capture_output=True, check=True, timeout=120).stdout
    assert len(after) == size, "the program ended early"

    def array(at: int, i: int) -> Any:
        return np.frombuffer(after, dtype=np.uint8, count=_nbytes(graph, i), offset=at - BASE)

    outputs = [array(given[plan.schedule.returned[j]] if j in plan.schedule.returned else fresh[j], i) for j, i in enumerate(graph.outputs)]
    return outputs + [array(at, i) for at, i in zip(given, graph.inputs, strict=True)]


def _nbytes(graph: Graph, i: int) -> int:
    return graph.values[i].numel * graph.values[i].dtype.itemsize
