"""Special functions, norms and ranges at the ends of their arguments: huge, tiny, infinite, zero."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")

ENDS = [1e30, 1e10, 1e4, 2.0, 1.0, 0.5, 0.0, -0.5, -1e30, math.inf, -math.inf, math.nan, 1e-30]


def _both(call: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    a, b = np.repeat(ENDS, len(ENDS)), np.tile(ENDS, len(ENDS))
    return tuple(np.asarray(call(m, m.tensor(a, dtype=m.float64), m.tensor(b, dtype=m.float64)).detach().tolist()) for m in (flambeau, torch))  # type: ignore[return-value]


@pytest.mark.parametrize("name", ["gammainc", "gammaincc", "zeta"])
def test_functions_of_two_numbers(name: str) -> None:
    got, expected = _both(lambda m, a, b: getattr(m.special, name)(a, b))
    a, b = np.repeat(ENDS, len(ENDS)), np.tile(ENDS, len(ENDS))
    lost = np.isnan(a) | np.isnan(b)  # NaN here; PyTorch looks at zeros and infinities first
    if name == "zeta":  # PyTorch's sum loses its way where the order is huge (every term is 0)
        lost |= (a >= 1e30) & np.isnan(expected) & (got == 0)
    right = (got == expected) | (np.isnan(got) & np.isnan(expected)) | np.isclose(got, expected, rtol=1e-5, atol=1e-29) | lost
    assert right.all(), list(zip(a[~right], b[~right], expected[~right], got[~right], strict=True))[:8]


def test_upper_gamma_of_a_tiny_order() -> None:
    """Q(a, x) is a E1(x) for a tiny a (1 - P has no digits of it)."""
    a = flambeau.full((2,), 1e-30, dtype=flambeau.float64)
    exact = [1e-30 * (30 * math.log(10) - 0.5772156649015329), 2.1938393439552029e-31]
    got = flambeau.special.gammaincc(a, flambeau.tensor([1e-30, 1.0], dtype=flambeau.float64))
    np.testing.assert_allclose(got.numpy(), exact, rtol=0.01)  # lgamma(1 + a) has no digits of a


@pytest.mark.parametrize("n", range(2, 6))
def test_polygamma_beside_its_pole(n: int) -> None:
    x = [1e-45, -1e-45, 0.0, 1e-30, -math.inf, 3.0]
    got, expected = (m.polygamma(n, m.tensor(x)).numpy() for m in (flambeau, torch))
    assert np.allclose(got, expected, rtol=1e-5, equal_nan=True), (got, expected)


@pytest.mark.parametrize("order", [-1.0, -2.0, -0.5, -math.inf])
def test_slopes_of_norms_of_negative_orders(order: float) -> None:
    for values in ([0.0, 0.0], [0.0, 1.0], [1.0, 2.0], [0.0], [math.inf, 0.0]):
        slopes = []
        for m in (flambeau, torch):
            x = m.tensor(values, requires_grad=True)
            m.linalg.norm(x, order).backward()
            slopes.append(np.asarray(x.grad.tolist()))
        assert np.allclose(slopes[0], slopes[1], rtol=1e-6, equal_nan=True), (values, slopes)


@pytest.mark.parametrize("name", ["linspace", "logspace"])
def test_ranges_of_bools(name: str) -> None:
    for steps in range(3):
        answers = []
        for m in (flambeau, torch):
            try:
                answers.append(getattr(m, name)(0, 1, steps, dtype=m.bool).tolist())
            except NotImplementedError:
                answers.append("refused")
        assert answers[0] == answers[1], steps
