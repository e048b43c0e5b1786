"""Small kernels for the tests of the runtime, and memory to run them on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from flambeau.compiler.emit.builder import KERNEL_HEADER, Builder, module
from flambeau.runtime import jit
from flambeau.runtime.target import Target


def text(key: str, write: Callable[[Builder], None], result: str = "ret i64 0") -> str:
    """A module with one kernel, whose body `write` emits."""
    b = Builder(Target.host())
    write(b)
    header = KERNEL_HEADER.replace("{name}", jit.symbol(key))
    return module([b.function(header, result)], b.declarations, b.target)


def compiled(key: str, write: Callable[[Builder], None], result: str = "ret i64 0") -> int:
    """The address of such a kernel."""
    return jit.function(key, lambda: text(key, write, result))


def word(b: Builder, number: int, type_: str = "i64") -> str:
    """Argument word `number`."""
    return b.load(type_, b.gep("i64", "%args", number), 8)


def add_constant() -> int:
    """Kernel: int64 element [unit] of word 0 += word 1."""

    def write(b: Builder) -> None:
        base, amount = word(b, 0, "ptr"), word(b, 1)
        with b.for_("%begin", "%end") as i:
            at = b.gep("i64", base, i)
            b.store("i64", b.add(b.load("i64", at, 8), amount), at, 8)

    return compiled("test add constant", write)


def running_sum() -> int:
    """Kernel: word 1 [unit] = word 0 [unit] + word 0 [unit + 1], int64: reads what another worker may have written."""

    def write(b: Builder) -> None:
        source, target = word(b, 0, "ptr"), word(b, 1, "ptr")
        with b.for_("%begin", "%end") as i:
            left = b.load("i64", b.gep("i64", source, i), 8)
            right = b.load("i64", b.gep("i64", source, b.add(i, 1)), 8)
            b.store("i64", b.add(left, right), b.gep("i64", target, i), 8)

    return compiled("test running sum", write)


def who() -> int:
    """Kernel: word 0 [unit] = the worker's number, word 1 [unit] += 1, after word 2 spins for each unit."""

    def write(b: Builder) -> None:
        number, visits, spins = word(b, 0, "ptr"), word(b, 1, "ptr"), word(b, 2)
        b.allocas.append("  %counter = alloca i64, align 8")
        with b.for_("%begin", "%end") as i:
            with b.for_(0, spins) as k:
                b.emit(f"store volatile i64 {k}, ptr %counter, align 8")
            b.store("i64", "%worker", b.gep("i64", number, i), 8)
            at = b.gep("i64", visits, i)
            b.store("i64", b.add(b.load("i64", at, 8), 1), at, 8)

    return compiled("test who", write)


def fails_at() -> int:
    """Kernel: fails if unit number word 0 is among its units."""

    def write(b: Builder) -> None:
        bad = word(b, 0)
        low = b.op(f"icmp sge i64 {bad}, %begin")
        high = b.op(f"icmp slt i64 {bad}, %end")
        b.emit(f"%inside = and i1 {low}, {high}")
        b.emit("%status = zext i1 %inside to i64")

    return compiled("test fails at", write, "ret i64 %status")


def address(array: np.ndarray[Any, Any]) -> int:
    """The address of an array's first element."""
    return int(array.ctypes.data)
