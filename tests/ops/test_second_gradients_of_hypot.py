"""Second gradients of hypot at huge and tiny values: no overflow and no underflow on the way where the result has a number."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")


def exact(a: float, b: float, dtype: str) -> list[float]:
    """x^2 + y^2 = r^2: the slopes are x / r and y / r, and theirs y^2 / r^3, -x y / r^3 and x^2 / r^3, in quotients of at most 1."""
    a, b = float(np.dtype(dtype).type(a)), float(np.dtype(dtype).type(b))
    r = math.hypot(a, b)
    p, q = a / r, b / r
    return [r, p, q, q * q / r, -p * q / r, -p * q / r, p * p / r]


def derivatives(m: Any, a: float, b: float, dtype: str) -> list[float]:
    x, y = [m.tensor(v, dtype=getattr(m, dtype), requires_grad=True) for v in (a, b)]
    length = m.hypot(x, y)
    first = m.autograd.grad(length, [x, y], create_graph=True)
    second = [g for slope in first for g in m.autograd.grad(slope, [x, y], retain_graph=True)]
    return [t.item() for t in (length, *first, *second)]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_huge_and_tiny(dtype: str) -> None:
    sizes = [3.0, 1e-5, 1e18, 1e20, 1e30, 1e-30, *([1e200, 1e307, 1e-200] if dtype == "float64" else [1e38])]
    for a in sizes:
        for b in (a, a * 0.75, -a, a * 1e-3):
            found, want, last = derivatives(flambeau, a, b, dtype), exact(a, b, dtype), 5 * np.finfo(dtype).eps
            np.testing.assert_allclose(found[:3], want[:3], rtol=last)
            np.testing.assert_allclose(found[3:], want[3:], rtol=last, atol=last / want[0])  # terms of 1 / r that cancel


def test_edges() -> None:
    inf = float("inf")
    for a, b in ((0.0, 0.0), (0.0, 1.0), (inf, 1.0), (-inf, inf), (1e308, 1e308), (1.5e308, 1.5e308), (1e300, 1e-300)):
        np.testing.assert_allclose(derivatives(flambeau, a, b, "float64"), derivatives(torch, a, b, "float64"), rtol=1e-14)
