"""A GPU's kernel run here, thread by thread: the LLVM IR that becomes PTX, with the GPU's registers, barriers and `mma.sync` as functions of Python.

The functions are written from NVIDIA's description of the instructions (PTX ISA, "Matrix Fragments for mma.m16n8k16"), so they say whether our layouts are.
"""

from __future__ import annotations

import ctypes
import itertools
import re
import threading
from collections.abc import Sequence

import numpy

from flambeau.compiler.tile.device import lower
from flambeau.compiler.tile.ir import Program
from flambeau.compiler.tile.spread import THREADS, WARP
from flambeau.runtime import jit
from flambeau.runtime.target import Target
from tests.threads import LIMIT, Thread, join

_SUMS = "{ float, float, float, float }"
_NUMBER = ctypes.CFUNCTYPE(ctypes.c_int)
_STOP = ctypes.CFUNCTYPE(None, ctypes.c_int)
_MULTIPLY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


class Device:
    """One program at a time: its threads, and what they do together."""

    def __init__(self, grid: tuple[int, int, int]) -> None:
        self.grid = grid
        self.here = threading.local()
        self.everyone = threading.Barrier(THREADS)
        self.warps = [threading.Barrier(WARP) for _ in range(THREADS // WARP)]
        self.given: dict[int, tuple[numpy.ndarray, numpy.ndarray]] = {}
        self.multiplications = 0
        self.functions = {
            "llvm.nvvm.read.ptx.sreg.tid.x": _NUMBER(lambda: self.here.thread),
            **{f"llvm.nvvm.read.ptx.sreg.ctaid.{axis}": _NUMBER(lambda i=i: self.here.program[i]) for i, axis in enumerate("xyz")},
            **{f"llvm.nvvm.read.ptx.sreg.nctaid.{axis}": _NUMBER(lambda i=i: grid[i]) for i, axis in enumerate("xyz")},
            "llvm.nvvm.barrier.cta.sync.aligned.all": _STOP(lambda _: self.everyone.wait(LIMIT) and None),
            "llvm.nvvm.mma.m16n8k16.row.col.bf16": _MULTIPLY(lambda words, sums: self.multiply(words, sums, "bfloat16")),
            "llvm.nvvm.mma.m16n8k16.row.col.f32.f32": _MULTIPLY(lambda words, sums: self.multiply(words, sums, "float16")),
        }

    def multiply(self, words: int, sums: int, kind: str) -> None:
        """`mma.sync.m16n8k16`: the lanes of a warp bring their parts of a, b and the sums, and each takes its sums."""
        raw = numpy.ctypeslib.as_array((ctypes.c_uint16 * 12).from_address(words))
        acc = numpy.ctypeslib.as_array((ctypes.c_float * 4).from_address(sums))
        numbers = (raw.astype(numpy.uint32) << 16).view(numpy.float32) if kind == "bfloat16" else raw.view(numpy.float16).astype(numpy.float32)
        warp, lane = divmod(self.here.thread, WARP)
        self.given[self.here.thread] = numbers.copy(), acc.copy()
        self.warps[warp].wait(LIMIT)
        a, b = numpy.zeros((16, 16), numpy.float32), numpy.zeros((16, 8), numpy.float32)
        for other in range(WARP):
            group, place = divmod(other, 4)
            theirs = self.given[warp * WARP + other][0]
            for i in range(8):  # a's elements of a lane, then b's
                a[group if i < 2 or 4 <= i < 6 else group + 8, 2 * place + (i & 1) + (8 if i >= 4 else 0)] = theirs[i]
            for i in range(4):
                b[2 * place + (i & 1) + (8 if i >= 2 else 0), group] = theirs[8 + i]
        group, place = divmod(lane, 4)
        for i in range(4):
            row, column = group if i < 2 else group + 8, 2 * place + (i & 1)
            acc[i] += a[row].astype(numpy.float64) @ b[:, column]
        self.multiplications += 1
        self.warps[warp].wait(LIMIT)

    def text(self, program: Program, symbol: str) -> str:
        """The kernel's text, for this processor."""
        text = lower(program, Target.device("sm_80"), symbol).text.replace("ptx_kernel ", "")
        text = text.replace("addrspacecast ptr addrspace(3) @shared to ptr", "getelementptr i8, ptr @shared, i64 0").replace("addrspace(3) ", "")
        for found in re.findall(r"^declare .* @llvm\.nvvm\..*$", text, re.MULTILINE):
            result, name, types = re.fullmatch(r"declare (.*) @([\w.]+)\((.*)\)", found).groups()
            address = ctypes.cast(self.functions[name], ctypes.c_void_p).value
            text = text.replace(found, _multiplication(name, types, address) if result == _SUMS else _call(result, name, types, address))
        return text.replace("@llvm.nvvm.", "@emulated.")


def _call(result: str, name: str, types: str, address: int | None) -> str:
    """A function that calls the one at an address."""
    parameters, given = (f"{types} %x", f"{types} %x") if types else ("", "")
    last = "  ret void" if result == "void" else f"  ret {result} %r"
    call = f"call {result} inttoptr (i64 {address} to ptr)({given})"
    return "\n".join([f"define {result} @{name}({parameters}) {{", f"  {'' if result == 'void' else '%r = '}{call}", last, "}"])


def _multiplication(name: str, types: str, address: int | None) -> str:
    """The same of `mma.sync`: its operands as two arrays."""
    kinds = types.split(", ")
    kinds = [kind.strip() for kind in re.findall(r"<2 x half>|i32|float", types)]
    lines = [f"define {_SUMS} @{name}({', '.join(f'{kind} %x{i}' for i, kind in enumerate(kinds))}) {{", "  %w = alloca [6 x i32]", "  %s = alloca [4 x float]"]
    for i, kind in enumerate(kinds):
        lines += [f"  %p{i} = getelementptr i32, ptr {'%w' if i < 6 else '%s'}, i32 {i if i < 6 else i - 6}", f"  store {kind} %x{i}, ptr %p{i}, align 4"]
    lines.append(f"  call void inttoptr (i64 {address} to ptr)(ptr %w, ptr %s)")
    for i in range(4):
        before = "poison" if i == 0 else f"%r{i - 1}"
        lines += [f"  %v{i} = load float, ptr %p{6 + i}", f"  %r{i} = insertvalue {_SUMS} {before}, float %v{i}, {i}"]
    return "\n".join([*lines, f"  ret {_SUMS} %r3", "}"])


def run(program: Program, words: Sequence[int], grid: tuple[int, int, int]) -> int:
    """Run the programs of a grid, one after the other; how many `mma.sync` there were, counted by lanes."""
    device = Device(grid)
    key = f"emulated:{program.name}"
    address = jit.link({key: jit.compile_text(device.text(program, jit.symbol(key)))})[key]
    kernel = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * len(words))(address)

    def work(thread: int) -> None:
        device.here.thread = thread
        try:
            for z, y, x in itertools.product(range(grid[2]), range(grid[1]), range(grid[0])):
                device.here.program = x, y, z
                kernel(*words)
                device.everyone.wait(LIMIT)
        except BaseException:
            for barrier in (device.everyone, *device.warps):
                barrier.abort()
            raise

    threads = [Thread(work, (i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    join(*threads)
    return device.multiplications
