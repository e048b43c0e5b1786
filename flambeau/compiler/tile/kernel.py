"""A compiled tile program: native code by the runtime's jit and object cache, its grid run by the thread team."""

from __future__ import annotations

import ctypes
import hashlib
import struct
from collections.abc import Callable, Sequence
from functools import cached_property
from math import prod
from typing import Final

from flambeau.compiler.tile.build import without_dead
from flambeau.compiler.tile.check import check
from flambeau.compiler.tile.ir import Op, Program, walk
from flambeau.compiler.tile.lower import WORDS, lower, written
from flambeau.runtime import buffers, jit, threads
from flambeau.runtime.runner import THREAD_NANOSECONDS, Relocation, Task
from flambeau.runtime.runner import Program as Runnable
from flambeau.runtime.target import Target

_KEPT: Final = 64  # grids whose runnable programs are kept
_ROUNDS: Final = 8  # of a loop, where nobody knows
_SYMBOL: Final = "tile_kernel_symbol"


def _cost(ops: Sequence[Op]) -> float:
    """Nanoseconds of operations, very roughly: 16 elements of a simple one in one."""
    total = 1.0
    for op in ops:
        size = max([v.type.numel for v in (*op.results, *op.operands)], default=1)
        if op.kind == "dot":
            total += op.results[0].type.numel * op.operands[0].shape[-1] / 40
        elif op.regions and op.kind in ("for", "while"):
            total += _ROUNDS * sum(_cost(r.ops) for r in op.regions)
        elif op.kind == "if":
            total += sum(_cost(r.ops) for r in op.regions)
        else:
            total += size / 16
    return total


class Kernel:
    """A program that was checked, for one target. `writes`: the numbers of the parameters whose memory it may write to (None: any)."""

    def __init__(self, program: Program, target: Target) -> None:
        check(program)
        without_dead(program)
        self.program, self.target = program, target
        self.prints = any(op.kind == "print" for op in walk(program.body))
        self.writes = written(program)
        self._runnable: dict[tuple[tuple[int, int, int], int], tuple[Callable[..., int], ctypes.Array[ctypes.c_int64], object]] = {}

    @cached_property
    def lowered(self) -> object:
        """The kernel's text, with a name for a symbol."""
        return lower(self.program, self.target, _SYMBOL)

    @cached_property
    def text(self) -> str:
        """LLVM IR, for people."""
        return self.lowered.text  # type: ignore[attr-defined,no-any-return]

    @cached_property
    def address(self) -> int:
        """The address of the native function."""
        text = self.text
        key = f"tile:{self.program.name}:{hashlib.sha256(text.encode()).hexdigest()}"
        return jit.function(key, lambda: text.replace(_SYMBOL, jit.symbol(key)))

    def run(self, arguments: Sequence[int | float | bool], grid: tuple[int, int, int]) -> Op | None:
        """Run the grid; pointers are addresses. The assertion that does not hold, if there is one."""
        if prod(grid) == 0:
            return None
        found = self._runnable.get((grid, threads.count()))
        if found is None:
            found = self._prepare(grid)
        call, error, _ = found
        words = [struct.unpack("=q", struct.pack("=d", a))[0] if isinstance(a, float) else int(a) for a in arguments]
        if call([w - (1 << 64) if w >> 63 == 1 else w for w in words]):
            return self.lowered.messages[error[0]]  # type: ignore[attr-defined,no-any-return]
        return None

    def _prepare(self, grid: tuple[int, int, int]) -> tuple[Callable[..., int], ctypes.Array[ctypes.c_int64], object]:
        while len(self._runnable) >= _KEPT:
            del self._runnable[next(iter(self._runnable))]
        count = len(self.program.params)
        scratch_bytes: int = self.lowered.scratch  # type: ignore[attr-defined]
        scratch_bytes = max(scratch_bytes, 64)
        memory = buffers.allocate(scratch_bytes * threads.count())
        error = (ctypes.c_int64 * 1)()
        last = [*grid, memory.address, scratch_bytes, ctypes.addressof(error)]
        assert len(last) == len(WORDS)
        least = max(1, int(THREAD_NANOSECONDS / _cost(self.program.body.ops)))
        task = Task(self.address, 0, prod(grid), 1, least)
        runnable = Runnable([0] * count + last, [Relocation(i, i, 0) for i in range(count)], [[task]], count)
        found = runnable.run, error, (runnable, memory)
        self._runnable[grid, threads.count()] = found
        return found
