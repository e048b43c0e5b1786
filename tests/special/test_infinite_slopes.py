"""Where a function is finite and its slope is not: the value stays, and the gradient is infinite, not NaN."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import flambeau as ft


@pytest.mark.parametrize("dtype,tiny", [(ft.float32, 1e-17), (ft.float64, 1e-120)])
def test_gradients_of_digamma_and_polygamma_next_to_a_pole(dtype: Any, tiny: float) -> None:
    """digamma(x) is -1/x there, its slope 1/x^2, and the next one -2/x^3, which overflows."""
    for x in (tiny, -tiny):
        a = ft.tensor(x, dtype=dtype, requires_grad=True)
        (first,) = ft.autograd.grad(ft.digamma(a), a, create_graph=True)
        (second,) = ft.autograd.grad(first, a)
        exact = a.item()
        assert first.item() == pytest.approx(1 / exact**2, rel=1e-6)
        assert second.item() == -math.copysign(math.inf, exact)
        direct = ft.special.polygamma(1, a)
        direct.backward()
        assert direct.item() == first.item() and a.grad.item() == second.item()


def test_norms_over_nothing() -> None:
    """Rows of nothing are equal by any distance; the greatest of no elements is refused, as in PyTorch."""
    for p in (0.0, 0.5, 1.0, 2.0, 3.0, math.inf):
        assert ft.cdist(ft.ones(2, 0), ft.ones(3, 0), p=p).tolist() == [[0.0] * 3] * 2
        assert ft.nn.functional.pdist(ft.ones(3, 0), p).tolist() == [0.0] * 3
    empty, calls = ft.ones(0), (ft.norm, ft.linalg.vector_norm)
    for p in (math.inf, -math.inf, -1.0):
        for call in calls:
            with pytest.raises(RuntimeError, match="does not have an identity"):
                call(empty, p)
        with pytest.raises(RuntimeError, match=r"norm on the dimension -1, which is empty"):
            ft.nn.functional.pairwise_distance(ft.ones(2, 0), ft.ones(2, 0), p=p)
        with pytest.raises(RuntimeError, match="dist"):
            ft.dist(empty, empty, p)
        assert ft.norm(ft.ones(0, 2), p, dim=1).shape == (0,)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", range(2, 7))
def test_slopes_of_polygamma_at_infinities_and_poles(n: int, dtype: str) -> None:
    """At minus infinity the value and its slope are infinite, as PyTorch's."""
    torch = pytest.importorskip("torch")
    answers = []
    for m in (ft, torch):
        x = m.tensor([-math.inf, math.inf, -0.0, 0.0, -1.0, -7.0, math.nan, 2.0], dtype=getattr(m, dtype), requires_grad=True)
        y = m.polygamma(n, x)
        y.sum().backward()
        answers.append([f"{v:.4g}" for v in (*y.tolist(), *x.grad.tolist())])
    assert answers[0] == answers[1]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_zeta_of_all_special_values(dtype: str) -> None:
    """Each pair: poles come before a NaN of the other argument."""
    torch = pytest.importorskip("torch")
    values = [-math.inf, math.inf, 0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, -1.5, 3.0, 10.0, -100.0, 1e10, -1e10, 1e-10, math.nan]
    theirs, ours = (m.special.zeta(*m.meshgrid(*[m.tensor(values, dtype=getattr(m, dtype))] * 2, indexing="ij")) for m in (torch, ft))
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5 if dtype == "float32" else 1e-11)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_zeta_of_large_orders_left_of_zero(dtype: str) -> None:
    """Of an odd order at a half-integer all terms cancel but those beyond its mirror: against sums of exact fractions, with slopes."""
    for order in (3, 4, 7, 33, 34, 101, 127, 128, 129, 130, 301, 1001, 1025, 2001):
        places = [-0.5, -1.5, -2.5, -7.5] if order % 2 else [-0.5, -1.25, -7.5]
        s, q = ft.full((len(places),), float(order), dtype=getattr(ft, dtype)), ft.tensor(places, dtype=getattr(ft, dtype), requires_grad=True)
        value = ft.special.zeta(s, q)
        for place, got in zip(places, value.tolist(), strict=True):
            terms = [Fraction(place + k) ** -order for k in range(400 if order < 10 else 40)]
            rest = Fraction((place + len(terms) - 0.5) ** (1 - order) / (order - 1)) if order < 10 else 0
            exact = sum(terms) + rest
            largest = ft.finfo(getattr(ft, dtype)).max
            expected = math.inf if exact > largest else float(exact)
            assert math.isclose(got, expected, rel_tol=1e-5, abs_tol=1e-37 if dtype == "float32" else 1e-300), (order, place, got, expected)
        (slope,) = ft.autograd.grad(value.sum(), q)
        if order % 2:
            assert all(v == -math.inf or v < 0 for v in slope.tolist()), (order, slope)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_slopes_of_trigamma_are_those_of_polygamma(dtype: str) -> None:
    """polygamma of order 1 has its own formula: its slopes at poles and minus infinity are PyTorch's all the same (at infinity 0, PyTorch's NaN)."""
    torch = pytest.importorskip("torch")
    slopes = []
    for m in (ft, torch):
        x = m.tensor([-math.inf, -0.0, 0.0, -1.0, -7.0, math.nan, 2.0, -0.5], dtype=getattr(m, dtype), requires_grad=True)
        m.polygamma(1, x).sum().backward()
        slopes.append([f"{v:.4g}" for v in x.grad.tolist()])
    assert slopes[0] == slopes[1]
