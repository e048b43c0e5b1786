"""Where a function is finite and its slope is not: the value stays, and the gradient is infinite, not NaN."""

from __future__ import annotations

import math
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
