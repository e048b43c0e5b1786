"""Calls that take a number for a tensor, or a tensor of few dims, beside PyTorch: `copy_` of a number, whole exponents of `ldexp`, bounds, boundaries."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")


def _outcomes(call: Any) -> list[Any]:
    found = []
    for m in (torch, flambeau):
        try:
            made = call(m)
            found.append((str(made.dtype).rpartition(".")[2], tuple(made.shape), str(made.tolist())))
        except Exception as error:
            found.append([c.__name__ for c in type(error).__mro__])
    if isinstance(found[0], list) and isinstance(found[1], list):  # the same error, or one derived from it
        return [True, found[0][0] in found[1]]
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "complex64", "uint8", "float16"])
def test_copy_of_a_number(dtype: str) -> None:
    for value in (2, True, 2.7, 1j, -1, math.nan, np.int64(3), np.float32(2.5), np.bool_(True), "a", None, 2**70, [1.0, 2.0, 3.0], np.ones(3), np.array(2.0)):
        if isinstance(value, float) and math.isnan(value) and dtype in ("int64", "uint8"):
            continue
        theirs, ours = _outcomes(lambda m, value=value: m.zeros(3, dtype=getattr(m, dtype)).copy_(value))
        assert theirs == ours, (value, theirs, ours)


def test_copy_of_a_number_and_gradients() -> None:
    for m in (torch, flambeau):
        x = m.ones(3, requires_grad=True)
        y = x * 1
        y[:2].copy_(5)
        y.sum().backward()
        assert y.tolist() == [5, 5, 1] and x.grad.tolist() == [0, 0, 1]
        with pytest.raises(RuntimeError):
            x.copy_(1)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int64", "float16", "bfloat16", "float32", "float64"])
def test_ldexp_by_dtypes(dtype: str) -> None:
    for other in ("bool", "uint8", "int16", "int64", "float16", "float32", "float64"):
        for data in ([1, 2, 0], 1):
            theirs, ours = _outcomes(lambda m, data=data, other=other: m.ldexp(m.tensor(data).to(getattr(m, dtype)), m.tensor([1, 0, 1]).to(getattr(m, other))))
            assert theirs == ours, (other, data, theirs, ours)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_ldexp_of_powers_that_overflow(dtype: str) -> None:
    chance = np.random.default_rng(0)
    x = chance.standard_normal(500) * 10.0 ** chance.integers(-40, 39, 500)
    e = chance.integers(-2500 if dtype == "float64" else -400, 2500 if dtype == "float64" else 400, 500)
    theirs, ours = (m.ldexp(m.tensor(x).to(getattr(m, dtype)), m.tensor(e)).double().numpy() for m in (torch, flambeau))
    assert np.array_equal(theirs, ours, equal_nan=True)


def test_boundaries_of_any_rank() -> None:
    for shape in ((), (1,), (3,), (0,), (2, 3), (2, 0)):
        for other in ((), (2,), (3,), (2, 0), (2, 2), (3, 2)):
            for call in (lambda m: m.searchsorted(m.ones(shape), m.ones(other)), lambda m: m.bucketize(m.ones(other), m.ones(shape))):  # noqa: B023
                theirs, ours = _outcomes(call)
                assert theirs == ours, (shape, other, theirs, ours)


def test_bounds_of_bools_and_other_rare_calls() -> None:
    calls = [
        lambda m: m.clamp(m.tensor([True, False]), min=m.tensor([False, True])), lambda m: m.tensor([True, False]).clamp(max=m.tensor(False)),
        lambda m: m.clamp(m.tensor([True]), True), lambda m: m.clamp(m.tensor([True]), m.tensor([True]), m.tensor([True])),
        lambda m: m.cummax(m.tensor(1j), 0)[0], lambda m: m.cummin(m.zeros(0, dtype=m.complex64), 0)[0], lambda m: m.cummax(m.tensor([1j]), 0)[0],
        lambda m: m.zeros(3).scatter_(0, m.zeros(0, dtype=m.int64), m.zeros(0, dtype=m.int64)), lambda m: m.chain_matmul(m.ones(3)),
        lambda m: m.zeros(3).scatter_add_(0, m.zeros(0, dtype=m.int64), m.zeros(0)), lambda m: m.cross(m.zeros(2, 3), m.zeros(3)),
    ]  # fmt: skip
    for i, call in enumerate(calls):
        theirs, ours = _outcomes(call)
        assert theirs == ours, (i, theirs, ours)
