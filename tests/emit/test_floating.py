"""Exactly defined floating primitives against NumPy, bit for bit; narrow types round after every operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from flambeau import dtypes
from flambeau.compiler.emit import scalar
from flambeau.compiler.emit.builder import Builder
from flambeau.dtypes import dtype
from tests.emit.native import WIDTHS, apply, pointwise
from tests.emit.samples import EDGES, assert_same, rounded, same, sample, widen

Array = np.ndarray[Any, Any]
FLOATS = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)
WIDE = (dtypes.float32, dtypes.float64)


def _sign(x: Array) -> Array:
    return np.where(np.isnan(x), 0, np.sign(x) + 0.0).astype(x.dtype)


UNARY: dict[str, Callable[[Array], Array]] = {
    "neg": np.negative, "abs": np.abs, "sgn": _sign, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
    "round": np.rint, "sqrt": np.sqrt, "reciprocal": np.reciprocal,
    "rsqrt": lambda x: (1 / np.sqrt(x.astype(np.longdouble))).astype(x.dtype),
}  # fmt: skip
BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "fmod": np.fmod, "copysign": np.copysign,
}  # fmt: skip
EXTREMES: dict[str, Callable[[Array, Array], Array]] = {
    "maximum": np.maximum, "minimum": np.minimum, "fmax": np.fmax, "fmin": np.fmin,
}  # fmt: skip
COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


def computed(d: dtype, x: Array) -> Array:
    """Stored values in the type that the arithmetic is done in."""
    wide = widen(d, x)
    return wide if d is dtypes.float64 else wide.astype(np.float32)


def pairs(d: dtype, seed: int, count: int = 2000) -> tuple[Array, Array]:
    """Random pairs, and every pair of edge values."""
    a, c = sample(d, count, seed), sample(d, count, seed + 1)
    n = len(EDGES)
    a[: n * n], c[: n * n] = np.repeat(a[:n], n), np.tile(c[:n], n)
    return a, c


@pytest.mark.parametrize("d", FLOATS, ids=lambda d: d.name)
def test_unary(d: dtype) -> None:
    x = sample(d, 3000, 1)
    with np.errstate(all="ignore"):
        for op, rule in UNARY.items():
            wanted = rounded(d, rule(computed(d, x)))
            assert_same(widen(d, apply(op, d, x)), widen(d, wanted), widen(d, x))
        assert_same(apply("isnan", d, x), np.isnan(computed(d, x)), widen(d, x))


@pytest.mark.parametrize("d", FLOATS, ids=lambda d: d.name)
def test_binary_and_comparisons(d: dtype) -> None:
    a, c = pairs(d, 2)
    wide_a, wide_c = computed(d, a), computed(d, c)
    with np.errstate(all="ignore"):
        for op, rule in BINARY.items():
            got, wanted = widen(d, apply(op, d, a, c)), widen(d, rounded(d, rule(wide_a, wide_c)))
            assert_same(got, wanted, widen(d, a), widen(d, c))
        for op, extreme in EXTREMES.items():  # which zero wins is not defined
            got, wanted = widen(d, apply(op, d, a, c)) + 0, widen(d, rounded(d, extreme(wide_a, wide_c))) + 0
            assert_same(got, wanted, widen(d, a), widen(d, c))
        for op, compare in COMPARE.items():
            assert_same(apply(op, d, a, c), compare(wide_a, wide_c), widen(d, a), widen(d, c))


@pytest.mark.parametrize("d", WIDE, ids=lambda d: d.name)
def test_remainder_family(d: dtype) -> None:
    """Quotients up to the largest that exist: the remainder stays exact."""
    a, c = pairs(d, 4)
    random = np.random.default_rng(5)
    low, high = (-37, 37) if d is dtypes.float32 else (-300, 300)
    a[500:] = 10.0 ** random.uniform(low, high, len(a) - 500) * random.choice([-1, 1], len(a) - 500)
    c[500:] = 10.0 ** random.uniform(low, high, len(a) - 500) * random.choice([-1, 1], len(a) - 500)
    with np.errstate(all="ignore"):
        mod = np.fmod(a, c)
        assert_same(apply("fmod", d, a, c), mod, a, c)
        wanted = np.where((mod != 0) & ((c < 0) != (mod < 0)), mod + c, mod)
        assert_same(apply("remainder", d, a, c), wanted, a, c)
        assert_same(apply("div_trunc", d, a, c), np.trunc(a / c), a, c)
        quotient = (a - mod) / c
        quotient = np.where((mod != 0) & ((c < 0) != (mod < 0)), quotient - 1, quotient)
        floored = np.floor(quotient)
        floored = np.where(quotient - floored > 0.5, floored + 1, floored)
        floored = np.where(quotient == 0, np.copysign(0, a / c), floored)
        floored = np.where(c == 0, a / c, floored).astype(a.dtype)
        assert_same(apply("div_floor", d, a, c), floored, a, c)


@pytest.mark.parametrize("d", (dtypes.float16, *WIDE), ids=lambda d: d.name)
def test_nextafter(d: dtype) -> None:
    a, c = pairs(d, 6)
    got, wanted = apply("nextafter", d, a, c), np.nextafter(a, c)
    if d is dtypes.float16:  # from 0 to -0 NumPy's half keeps 0, where C says -0
        got, wanted = np.where(a == c, c, got), np.where(a == c, c, wanted)
    assert_same(got, wanted, a, c)


def test_nextafter_of_bfloat16_steps_its_own_grid() -> None:
    d = dtypes.bfloat16
    a = rounded(d, np.array([1.0, 1.0, 0.0, 0.0, -1.0, 2.0], np.float32))
    c = rounded(d, np.array([2.0, 0.0, 1.0, -1.0, -2.0, 2.0], np.float32))
    wanted = np.array([1 + 2.0**-7, 1 - 2.0**-8, 2.0**-133, -(2.0**-133), -1 - 2.0**-7, 2.0], np.float32)
    assert_same(widen(d, apply("nextafter", d, a, c)), wanted, a, c)


@pytest.mark.parametrize("d", FLOATS, ids=lambda d: d.name)
def test_every_width_gives_the_same_bits(d: dtype) -> None:
    a, c = pairs(d, 7, 333)
    for op in ("add", "fmod", "div_floor", "remainder", "pow", "atan2", "hypot"):
        results = [apply(op, d, a, c, width=w) for w in WIDTHS]
        for other in results[1:]:
            assert same(widen(d, other), widen(d, results[0])).all(), op


def test_narrow_steps_round_as_pytorch_does() -> None:
    torch = pytest.importorskip("torch")
    for d, narrow in ((dtypes.float16, torch.float16), (dtypes.bfloat16, torch.bfloat16)):
        a, c = (sample(d, 2000, seed)[len(EDGES) :] for seed in (8, 9))
        near = (abs(widen(d, a)) < 1e3) & (abs(widen(d, c)) > 1e-3) & (abs(widen(d, c)) < 1e3)
        a, c = a[near], c[near]
        tensors = [torch.from_numpy(x.view(np.int16).copy()).view(narrow) for x in (a, c)]
        for op, mode in (("div_trunc", "trunc"), ("div_floor", "floor")):
            wanted = torch.div(*tensors, rounding_mode=mode).view(torch.int16).numpy().view(a.dtype)
            assert_same(widen(d, apply(op, d, a, c)), widen(d, wanted), widen(d, a), widen(d, c))


@pytest.mark.parametrize("d", FLOATS, ids=lambda d: d.name)
def test_a_fused_chain_rounds_after_every_operation(d: dtype) -> None:
    """x * y + z in one kernel: no contraction to a fused multiply-add, and narrow types round in between."""
    x, y, z = (sample(d, 1000, seed) for seed in (10, 11, 12))

    def chain(b: Builder, values: list[scalar.Value], width: int) -> scalar.Value:
        product = scalar.apply(b, "mul", d, values[:2], width)
        return scalar.apply(b, "add", d, [product, values[2]], width)

    got = pointwise(chain, [d] * 3, d, 16, [x, y, z])
    with np.errstate(all="ignore"):
        product = computed(d, rounded(d, computed(d, x) * computed(d, y)))
        wanted = rounded(d, product + computed(d, z))
    assert_same(widen(d, got), widen(d, wanted), widen(d, x), widen(d, y), widen(d, z))
