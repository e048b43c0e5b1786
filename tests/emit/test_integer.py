"""Integer and bool primitives against Python's unbounded integers, wrapped."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from flambeau import dtypes
from flambeau.dtypes import dtype
from tests.emit.native import WIDTHS, apply
from tests.emit.samples import assert_same, kind, sample

INTEGERS = (dtypes.uint8, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64)


def _truncated(a: int, c: int) -> int:
    return 0 if c == 0 else abs(a) // abs(c) * (1 if (a < 0) == (c < 0) else -1)


def _power(a: int, c: int, bits: int) -> int:
    if c >= 0:
        return pow(a, c, 1 << bits)
    return {1: 1, -1: -1 if c % 2 else 1}.get(a, 0)


# (a, c, bits, signed) -> the exact result, before wrapping.
BINARY: dict[str, Callable[[int, int, int, bool], int]] = {
    "add": lambda a, c, bits, signed: a + c,
    "sub": lambda a, c, bits, signed: a - c,
    "mul": lambda a, c, bits, signed: a * c,
    "div_trunc": lambda a, c, bits, signed: _truncated(a, c),
    "div_floor": lambda a, c, bits, signed: 0 if c == 0 else a // c,
    "remainder": lambda a, c, bits, signed: 0 if c == 0 else a % c,
    "fmod": lambda a, c, bits, signed: 0 if c == 0 else a - _truncated(a, c) * c,
    "pow": lambda a, c, bits, signed: _power(a, c, bits),
    "maximum": lambda a, c, bits, signed: max(a, c),
    "minimum": lambda a, c, bits, signed: min(a, c),
    "fmax": lambda a, c, bits, signed: max(a, c),
    "fmin": lambda a, c, bits, signed: min(a, c),
    "bitwise_and": lambda a, c, bits, signed: a & c,
    "bitwise_or": lambda a, c, bits, signed: a | c,
    "bitwise_xor": lambda a, c, bits, signed: a ^ c,
    "shift_left": lambda a, c, bits, signed: a << c if 0 <= c < bits else 0,
    "shift_right": lambda a, c, bits, signed: a >> (c if 0 <= c < bits else bits),
}
UNARY: dict[str, Callable[[int], int]] = {
    "neg": lambda a: -a,
    "abs": abs,
    "sgn": lambda a: (a > 0) - (a < 0),
    "bitwise_not": lambda a: ~a,
    "floor": lambda a: a,
    "ceil": lambda a: a,
    "trunc": lambda a: a,
    "round": lambda a: a,
    "conj_physical": lambda a: a,
}
COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, c: a == c,
    "ne": lambda a, c: a != c,
    "lt": lambda a, c: a < c,
    "le": lambda a, c: a <= c,
    "gt": lambda a, c: a > c,
    "ge": lambda a, c: a >= c,
}


def wrapped(values: list[int], d: dtype) -> np.ndarray:
    bits = 8 * d.itemsize
    unsigned = np.array([v & ((1 << bits) - 1) for v in values], np.uint64)
    return unsigned.astype(f"u{d.itemsize}").view(kind(d))


@pytest.mark.parametrize("d", INTEGERS, ids=lambda d: d.name)
@pytest.mark.parametrize("op", BINARY)
def test_binary_wraps_and_is_total(op: str, d: dtype) -> None:
    a, c = sample(d, 500, 1), sample(d, 500, 2)
    a[:25], c[:25] = np.repeat(a[:5], 5), np.tile(c[:5], 5)  # every pair of edge values
    if d.is_signed:
        c[25:30] = -1
        a[25:30] = np.iinfo(kind(d)).min
    exact = [BINARY[op](int(x), int(y), 8 * d.itemsize, d.is_signed) for x, y in zip(a, c, strict=True)]
    assert_same(apply(op, d, a, c), wrapped(exact, d), a, c)


@pytest.mark.parametrize("d", INTEGERS, ids=lambda d: d.name)
def test_unary_and_comparisons(d: dtype) -> None:
    a, c = sample(d, 300, 3), sample(d, 300, 4)
    c[::3] = a[::3]
    for op, rule in UNARY.items():
        assert_same(apply(op, d, a), wrapped([rule(int(x)) for x in a], d), a)
    for op, test in COMPARE.items():
        wanted = np.array([test(int(x), int(y)) for x, y in zip(a, c, strict=True)])
        assert_same(apply(op, d, a, c), wanted, a, c)
    assert not apply("isnan", d, a).any()


def test_every_width_agrees() -> None:
    a, c = sample(dtypes.int32, 203, 5), sample(dtypes.int32, 203, 6)
    for op in ("div_floor", "remainder", "pow", "shift_right"):
        results = [apply(op, dtypes.int32, a, c, width=w) for w in WIDTHS]
        assert all((r == results[0]).all() for r in results)


def test_bool_arithmetic() -> None:
    a = np.array([False, False, True, True] * 5)
    c = np.array([False, True, False, True] * 5)
    for ops, wanted in (
        (("add", "bitwise_or", "maximum"), a | c),
        (("mul", "bitwise_and", "minimum"), a & c),
        (("bitwise_xor", "ne"), a ^ c),
        (("eq",), a == c),
        (("lt",), ~a & c),
        (("ge",), a | ~c),
    ):
        for op in ops:
            assert_same(apply(op, dtypes.bool_, a, c), wanted, a, c)
    assert_same(apply("bitwise_not", dtypes.bool_, a), ~a, a)


def test_float_only_operations_are_refused() -> None:
    with pytest.raises(TypeError, match=r"exp: no meaning for dtype int32; cast"):
        apply("exp", dtypes.int32, np.zeros(3, np.int32))
