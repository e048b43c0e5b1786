"""Bounds that are zeros of either sign, crossed, NaN or infinite, of every class of number: the same bits as PyTorch's, whatever was called before."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")

NAN, INF = float("nan"), float("inf")
NUMBERS: tuple[Any, ...] = (
    0.0, -0.0, 0, np.float32(-0.0), np.float64(0.0), np.int64(0), 1, 1.0, np.float32(1), np.int64(1), NAN, np.float32(NAN), np.float64(NAN), INF, -INF,
    2, 2.0, np.float32(2), 0.3, 0.7, -1, -1.0, 1e30, np.float64(1e30),
)  # fmt: skip
CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "clamp min": lambda m, x, v: m.clamp(x, min=v), "clamp max": lambda m, x, v: m.clamp(x, max=v), "clamp_min_": lambda m, x, v: x.clone().clamp_min_(v),
    "hardtanh low": lambda m, x, v: m.nn.functional.hardtanh(x, v, 1.5), "hardtanh high": lambda m, x, v: m.nn.functional.hardtanh(x, -1.5, v),
    "relu6": lambda m, x, v: m.nn.functional.relu6(x * v), "threshold": lambda m, x, v: m.nn.functional.threshold(x, 0.5, v),
    "logit": lambda m, x, v: m.logit(x.double(), v), "full_like": lambda m, x, v: m.full_like(x, v), "new_full": lambda m, x, v: x.new_full((2,), v),
    "full": lambda m, x, v: m.full((2,), v, dtype=x.dtype), "masked_fill": lambda m, x, v: x.masked_fill(x > 0, v),
    "pad": lambda m, x, v: m.nn.functional.pad(x, (1, 1), value=v),
    "fill_": lambda m, x, v: x.clone().fill_(v), "index_fill": lambda m, x, v: x.index_fill(0, m.tensor([0]), v), "where": lambda m, x, v: m.where(x > 0, x, v),
    "copysign": lambda m, x, v: m.copysign(x, v), "scatter": lambda m, x, v: m.scatter(x, 0, m.tensor([0]), v),
    "tensor": lambda m, x, v: m.tensor(float(v) if isinstance(v, np.floating) else v, dtype=x.dtype),
    "scalar_tensor": lambda m, x, v: m.scalar_tensor(v, dtype=x.dtype),
}  # fmt: skip


def _found(m: Any, call: Callable[[Any, Any, Any], Any], dtype: str, v: Any) -> Any:
    x = m.tensor([-1, 0, 2]) if dtype == "int64" else m.tensor([-0.0, 0.0, -1.5, 2.0, NAN], dtype=getattr(m, dtype))
    try:
        result = call(m, x, v)
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:
        return error
    return str(result.dtype).rpartition(".")[2], np.array(result.tolist())


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_numbers(name: str, dtype: str) -> None:
    """Each number several times, in any order: what is known of an equal one changes nothing."""
    rng = random.Random(name)
    unlike = []
    for v in rng.choices(NUMBERS, k=3 * len(NUMBERS)):
        theirs, ours = _found(torch, CALLS[name], dtype, v), _found(flambeau, CALLS[name], dtype, v)
        if isinstance(theirs, Exception) or isinstance(ours, Exception):
            same = isinstance(ours, type(theirs))
        else:
            same = theirs[0] == ours[0] and np.allclose(theirs[1], ours[1], rtol=1e-12, equal_nan=True)
            zeros = theirs[1] == 0
            same = same and np.array_equal(np.signbit(theirs[1][zeros]), np.signbit(ours[1][zeros]))
        if not same:
            unlike.append((repr(v), theirs, ours))
    assert unlike == []


@pytest.mark.parametrize("numbers", [False, True])
def test_slopes_of_clamp_where_bounds_meet_and_cross(numbers: bool) -> None:
    """Every order of x and two bounds with its ties: whose gradient is it? (Two equal bounds that both differ from x are documented.)"""
    grid = [(x, a, b) for x in (0.0, 1.0, 2.0, 3.0) for a in (0.0, 1.0, 2.0, 3.0) for b in (0.0, 1.0, 2.0, 3.0) if a != b or a == x]
    for x, a, b in grid:
        slopes = []
        for m in (flambeau, torch):
            given = [m.tensor([v] * 3, requires_grad=True) for v in (x, a, b)]
            m.clamp(given[0], *([a, b] if numbers else given[1:])).sum().backward()
            slopes.append([None if t.grad is None else t.grad.tolist() for t in given])
        assert slopes[0] == slopes[1], (x, a, b)


def test_lerp_between_special_numbers() -> None:
    """Values and slopes of all three arguments, from both ends."""
    grid = [0.0, -0.0, 1.0, -2.5, float("inf"), float("-inf"), float("nan")]
    whole = [(a, b, w) for a in grid for b in grid for w in (0.0, 0.25, 0.5, 0.75, 1.0, -1.0, float("inf"))]
    found = []
    for m in (flambeau, torch):
        a, b, w = (m.tensor(column, dtype=m.float64, requires_grad=True) for column in zip(*whole, strict=True))
        result = m.lerp(a, b, w)
        slopes = m.autograd.grad(result, (a, b, w), m.ones(len(whole), dtype=m.float64))
        found.append([t.detach().numpy() for t in (result, *slopes)])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-14, equal_nan=True)
