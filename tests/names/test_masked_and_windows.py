"""torch.masked and torch.signal.windows against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as ft
from tests.nn.oracle import raises_as_torch
from tests.ops.oracle import arrays, check

torch = pytest.importorskip("torch")

MASK = np.array([[True, False, True, True], [False, False, False, False], [True, True, True, False]])


def _all(m, x):
    """Every function with a mask, over dims and over all."""
    f, mask = m.masked, m.tensor(MASK)
    row = mask[2]
    return (
        f.sum(x, mask=mask), f.sum(x, 1, keepdim=True, mask=row), f.prod(x, (0, 1), mask=mask), f.prod(x, 1), f.amax(x, 1, mask=mask),
        f.amin(x, (0,), keepdim=True, mask=mask), f.mean(x, 0, mask=mask), f.mean(x), f.logsumexp(x, 1, mask=row),
        f.norm(x, 2.0, 1, mask=row), f.norm(x, float("-inf"), 0, mask=row), f.norm(x, 1, mask=mask), f.var(x, 0, mask=mask),
        f.std(x, 1, unbiased=False, mask=row), f.var(x, correction=2, mask=mask), f.softmax(x, 1, mask=row),
        f.log_softmax(x, 0, mask=m.tensor([[True], [False], [True]])).exp(), f.softmin(x, -1, mask=row), f.normalize(x, 2.0, 1, mask=row),
        f.cumsum(x, 1, mask=mask), f.cumprod(x, 0, mask=mask), f.median(x, 1, mask=row), f.logaddexp(x, x * 2, input_mask=mask),
    )  # fmt: skip


def test_masked_floats():
    check(_all, arrays((3, 4)), second=False, tolerance=1e-8)


def test_masked_rows_without_elements():
    check(lambda m, x: tuple(getattr(m.masked, name)(x, 1, mask=m.tensor(MASK)) for name in
                             ("mean", "median", "amax", "amin", "sum", "prod", "var", "norm", "softmax", "logsumexp", "argmax", "argmin")),
          arrays((3, 4)), grad=False)  # fmt: skip


def test_masked_integers():
    def call(m, x):
        f, row = m.masked, m.tensor(MASK)[2]
        return (f.sum(x, mask=row), f.prod(x, 1, mask=row), f.amax(x, 1, mask=row), f.amin(x, mask=row), f.argmax(x, 1, mask=row),
                f.argmin(x, mask=row, dtype=m.int64), f.cumsum(x, 0, mask=row), f.mean(x, dtype=m.float64), f.var(x, 1, mask=row),
                f.median(x, 1, mask=row), f.sum(x, dtype=m.float32))  # fmt: skip

    check(call, arrays((3, 4), dtype="int32", low=-5, high=5), grad=False, tolerance=1e-6)


def test_masked_errors():
    x = torch.arange(6).reshape(2, 3)
    raises_as_torch(ft.masked.mean, torch.masked.mean, x)
    raises_as_torch(ft.masked.sum, torch.masked.sum, x, 2)
    raises_as_torch(ft.masked.sum, torch.masked.sum, x, (0, 0))
    raises_as_torch(ft.masked.sum, torch.masked.sum, x, mask=torch.ones(1, 2, 3, dtype=torch.bool))
    raises_as_torch(ft.masked.median, torch.masked.median, x, mask=torch.zeros(2, 3, dtype=torch.bool))


OPTIONS = {
    "exponential": ({}, {"tau": 2.5}, {"center": 1.5, "sym": False}), "gaussian": ({}, {"std": 0.7}), "kaiser": ({}, {"beta": 3.0}),
    "general_cosine": ({"a": [0.4, 0.3, 0.2, 0.1]},), "general_hamming": ({"alpha": 0.6},),
}  # fmt: skip


@pytest.mark.parametrize("name", torch.signal.windows.__all__)
def test_window(name):
    for options in OPTIONS.get(name, ({},)):
        for length in (0, 1, 2, 7, 8):
            for sym in (options.get("sym", True), False):
                given = {k: v for k, v in options.items() if k != "center" or not sym} | {"sym": sym}
                for kind, tolerance in (("float32", 2e-6), ("float64", 1e-12)):
                    mine = getattr(ft.signal.windows, name)(length, dtype=getattr(ft, kind), **given)
                    theirs = getattr(torch.signal.windows, name)(length, dtype=getattr(torch, kind), **given)
                    assert str(mine.dtype) == str(theirs.dtype)
                    np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=tolerance, atol=tolerance)


def test_window_errors():
    for name, options in (("exponential", {"tau": 0}), ("exponential", {"center": 1.0}), ("gaussian", {"std": -1}), ("kaiser", {"beta": -1}),
                          ("general_cosine", {"a": []}), ("hann", {"dtype": torch.float16})):  # fmt: skip
        raises_as_torch(getattr(ft.signal.windows, name), getattr(torch.signal.windows, name), 5, **options)
    raises_as_torch(ft.signal.windows.hann, torch.signal.windows.hann, -1)
