"""Distributions with matrices: forms of a covariance, shapes of batches, and samples of Wishart and LKJ distributions."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import flambeau as ft
from tests.distributions.cases import FACTOR, LOC3, POSITIVE, SPD3, SPD23, TRIL3
from tests.distributions.oracle import PACKAGES, both, gradients, same, tensors

FORMS = ("covariance_matrix", "precision_matrix", "scale_tril")


@pytest.mark.parametrize("given", FORMS)
def test_each_form_gives_the_others(given: str) -> None:
    matrix = TRIL3 if given == "scale_tril" else SPD3
    for wanted in FORMS:
        both(lambda t, wanted=wanted: getattr(t.distributions.MultivariateNormal(t.tensor(LOC3), **{given: t.tensor(matrix)}), wanted))  # type: ignore[misc]
        both(lambda t, wanted=wanted: getattr(t.distributions.Wishart(t.tensor([4.0, 5.0]).double(), **{given: t.tensor(matrix)}), wanted))  # type: ignore[misc]
    covariance = np.linalg.inv(SPD3) if given == "precision_matrix" else SPD3
    made = ft.distributions.MultivariateNormal(ft.tensor(LOC3), **{given: ft.tensor(matrix)})
    np.testing.assert_allclose(made.covariance_matrix.numpy(), np.broadcast_to(covariance, (2, 3, 3)), rtol=1e-9)


@pytest.mark.parametrize("name", ["scale_tril", "covariance_matrix", "precision_matrix", "variance"])
def test_forms_of_low_rank(name: str) -> None:
    found = []
    for t in PACKAGES:
        given = tensors(t, (LOC3, FACTOR, POSITIVE), gradients=True)
        value = getattr(t.distributions.LowRankMultivariateNormal(*given), name)
        found.append([value, *gradients(t, value, given)])
    for a, b in zip(*found, strict=True):
        same(a, b, 1e-8, name)


SHAPES = [((), (), ()), ((5,), (), ()), ((2,), (), (2,)), ((4, 2), (2,), (2,)), ((4, 2), (2,), ()), ((2,), (3, 2), (2,)), ((4, 3, 2), (2,), (3, 1))]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_batches_of_normal_vectors(shapes: tuple[tuple[int, ...], ...]) -> None:
    """Shapes of the value, of the mean, and of the covariance, before the events."""
    draw = np.random.default_rng(0)
    value, loc = (draw.normal(size=(*s, 3)) for s in shapes[:2])
    root = draw.normal(size=(*shapes[2], 3, 3))
    covariance = root @ np.swapaxes(root, -1, -2) + np.eye(3)
    found = []
    for t in PACKAGES:
        given = tensors(t, (value, loc, covariance), gradients=True)
        log_prob = t.distributions.MultivariateNormal(*given[1:]).log_prob(given[0])
        found.append([log_prob, *gradients(t, log_prob, given)])
    for a, b in zip(*found, strict=True):
        same(a, b, 1e-8)
    both(lambda t: t.distributions.MultivariateNormal(t.tensor(loc), t.tensor(covariance)).sample((4,)), 1e-9)


def test_wishart_samples() -> None:
    """PyTorch draws the good samples again, by an inverted test: its first draws are these."""

    def draw(t: Any) -> Any:
        w = t.distributions.Wishart(t.tensor([4.5, 6.0]).double(), t.tensor(SPD23))
        return w.rsample(t.Size((5,))) if t is ft else w._bartlett_sampling(t.Size((5,)))

    both(draw, 1e-9)
    ft.manual_seed(0)
    w = ft.distributions.Wishart(ft.tensor(7.0), ft.tensor(SPD3).float())
    x = w.sample((20_000,))
    np.testing.assert_allclose(x.mean(0).numpy(), w.mean.numpy(), rtol=0.03, atol=0.05)
    np.testing.assert_allclose(x.var(0).numpy(), w.variance.numpy(), rtol=0.1)


def test_singular_wishart_samples_are_drawn_again() -> None:
    with pytest.warns(UserWarning, match="Low df values detected"):
        w = ft.distributions.Wishart(ft.tensor(2.0001), ft.eye(3))
    ft.manual_seed(0)
    assert not bool(w.support.check(w._bartlett_sampling((2000,))).all())  # rounding makes some singular
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = ft.distributions.Wishart(ft.tensor(3.5), ft.eye(3))
        assert bool(before.support.check(before.rsample((2000,))).all())
    with pytest.warns(UserWarning, match="Singular sample detected"):
        w.rsample((2000,), max_try_correction=0)


def test_wishart_gradients() -> None:
    ft.manual_seed(0)
    df = ft.tensor(6.0, dtype=ft.float64, requires_grad=True)
    w = ft.distributions.Wishart(df, ft.tensor(SPD3))
    w.rsample((5000,)).mean(0).diagonal().sum().backward()
    assert abs(float(df.grad) - np.trace(SPD3)) < 0.05 * np.trace(SPD3)


def test_lkj_marginals() -> None:
    """With a concentration of 1 each correlation of n x n matrices is 2 b - 1, b of Beta(n / 2, n / 2)."""
    ft.manual_seed(0)
    n = 4
    factor = ft.distributions.LKJCholesky(n, 1.0).sample((20_000,)).double()
    correlations = factor @ factor.mT
    np.testing.assert_allclose(correlations.diagonal(dim1=-2, dim2=-1).numpy(), 1.0, atol=1e-5)
    variance = 1 / (n + 1)
    for i, j in ((1, 0), (2, 0), (3, 0), (2, 1), (3, 2)):
        found = correlations[:, i, j]
        assert abs(float(found.mean())) < 5 * (variance / 20_000) ** 0.5
        assert abs(float(found.var()) / variance - 1) < 0.05
