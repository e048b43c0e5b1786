"""The multiply-add loop that products, convolutions, attention and tile programs share, by itself: against sums in Python, in the order of k."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest

from flambeau.compiler.emit.builder import Builder, module
from flambeau.compiler.kernels.matmul_element import element_of
from flambeau.compiler.tile.contract import Operands, contract, rank_one
from flambeau.dtypes import BY_NAME
from flambeau.runtime import jit
from flambeau.runtime.target import Target


def product(name: str, height: int, columns: int, first: int, step: int, at_once: int) -> object:
    """A native function (k, a, b, c): c = c + a[first::step] @ b, `at_once` terms a step of the loop; operands are by k, complex ones in parts."""
    element = element_of(BY_NAME[name])
    parts, type_, size = element.parts, element.compute, element.compute_bytes
    key = f"test:contract:{name}:{height}:{columns}:{first}:{step}:{at_once}"

    def emit(target: Target) -> str:
        b = Builder(target)

        def at(pointer: str, index: str) -> tuple[str, ...]:
            return tuple(b.load(type_, b.gep(type_, pointer, b.add(b.mul(index, parts), p)), size) for p in range(parts))

        def read(k: str) -> Iterator[Operands[tuple[str, ...], tuple[str, ...]]]:
            for more in range(at_once):
                row = b.add(k, more)
                right = [at("%b", b.add(b.mul(row, columns), j)) for j in range(columns)]
                yield (at("%a", b.add(b.mul(row, height), i)) for i in range(height)), right

        start = [(type_, value) for i in range(height * columns) for value in at("%c", str(i))]
        sums = contract(b, "%k", start, first, step, add=partial(element.multiply_add_parts, b, 1), read=read, parts=parts)
        for i, value in enumerate(sums):
            b.store(type_, value, b.gep(type_, "%c", i), size)
        text = b.function(f"define void @{jit.symbol(key)}(i64 %k, ptr noalias %a, ptr noalias %b, ptr noalias %c) #0")
        return module([text], b.declarations, target)

    return ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * 3)(jit.function(key, partial(emit, Target.host())))


@pytest.mark.parametrize("name", ["int64", "float64", "complex128"])
@pytest.mark.parametrize(
    ("height", "columns", "first", "step", "at_once"), [(1, 1, 0, 1, 1), (3, 2, 0, 1, 1), (2, 3, 2, 1, 1), (2, 2, 0, 4, 4), (4, 1, 1, 3, 2)]
)  # fmt: skip
@pytest.mark.parametrize("k", [0, 1, 8])
def test_sums_of_a_tile(name: str, height: int, columns: int, first: int, step: int, at_once: int, k: int) -> None:
    rng = np.random.default_rng(k)

    def numbers(*shape: int) -> np.ndarray:
        values = rng.integers(-9, 9, (2, *shape))  # whole numbers: exact in any order
        return (values[0] + 1j * values[1]).astype(name) if name == "complex128" else values[0].astype(name)

    a, b, c = numbers(k + 4, height), numbers(k + 4, columns), numbers(height, columns)
    taken = [at + more for at in range(first, k, step) for more in range(at_once)]
    expected = c + a[taken].T @ b[taken] if taken else c.copy()
    product(name, height, columns, first, step, at_once)(k, a.ctypes.data, b.ctypes.data, c.ctypes.data)  # type: ignore[operator]
    np.testing.assert_array_equal(c, expected)


def test_operands_are_asked_for_row_by_row() -> None:
    """A left operand is read just before the multiply-adds of its row: it needs a register no longer."""
    seen: list[str] = []

    def note(name: str) -> str:
        seen.append(name)
        return name

    def add(left: str, right: str, total: str) -> str:
        seen.append(f"{total}+{left}{right}")
        return total

    assert rank_one(add, (note(name) for name in "ab"), ["x", "y"], "0123") == ["0", "1", "2", "3"]
    assert seen == ["a", "0+ax", "1+ay", "b", "2+bx", "3+by"]
