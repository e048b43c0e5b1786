"""KL divergences of every pair that PyTorch registers, beside PyTorch's and beside the mean of log p - log q over samples."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import flambeau as ft
from flambeau.distributions import kl
from tests.distributions.cases import FACTOR, LOC3, P4, POSITIVE, POSITIVE2, REAL, SPD3, UNIT
from tests.distributions.oracle import PACKAGES, gradients, outcome, same, tensors, torch

# name: (parameters of p, parameters of q)
PARAMETERS: dict[str, tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]] = {
    "Bernoulli": ((UNIT,), (UNIT[:, ::-1].copy(),)),
    "Beta": ((POSITIVE, POSITIVE2), (POSITIVE + 0.3, POSITIVE2 * 1.5)),
    "Binomial": ((np.array(6.0), UNIT), (np.array(6.0), UNIT[:, ::-1].copy())),
    "Categorical": ((P4,), (P4[:, ::-1].copy(),)),
    "Cauchy": ((REAL, POSITIVE2), (REAL[::-1].copy(), POSITIVE2 + 0.5)),
    "ContinuousBernoulli": ((UNIT,), (UNIT[:, ::-1].copy(),)),
    "Dirichlet": ((P4 * 5,), (P4[:, ::-1] * 3,)),
    "Exponential": ((POSITIVE,), (POSITIVE2,)),
    "Gamma": ((POSITIVE, POSITIVE2), (POSITIVE + 0.3, POSITIVE2 * 1.5)),
    "Geometric": ((UNIT,), (UNIT[:, ::-1].copy(),)),
    "Gumbel": ((REAL, POSITIVE2), (REAL[::-1].copy(), POSITIVE2 + 0.5)),
    "HalfNormal": ((POSITIVE,), (POSITIVE2,)),
    "Laplace": ((REAL, POSITIVE2), (REAL[::-1].copy(), POSITIVE2 + 0.5)),
    "LowRankMultivariateNormal": ((LOC3, FACTOR, POSITIVE), (-LOC3, FACTOR * 0.5, POSITIVE + 0.2)),
    "MultivariateNormal": ((LOC3, SPD3), (-LOC3, SPD3 * 1.5 + np.eye(3))),
    "Normal": ((REAL, POSITIVE2), (REAL[::-1].copy(), POSITIVE2 + 0.5)),
    "OneHotCategorical": ((P4,), (P4[:, ::-1].copy(),)),
    "Pareto": ((POSITIVE, POSITIVE2 + 0.4), (POSITIVE * 0.5, POSITIVE2)),
    "Poisson": ((POSITIVE,), (POSITIVE2,)),
    "Uniform": ((POSITIVE * 0.2, POSITIVE2 * 0.1 + 0.6), (POSITIVE * 0.1, POSITIVE2 + 1.0)),
    "LogNormal": ((REAL, POSITIVE2), (REAL[::-1].copy(), POSITIVE2 + 0.5)),
    "Wishart": ((np.array(4.5), SPD3), (np.array(5.5), SPD3 * 1.5 + np.eye(3))),
}
# Of pairs of different families these have all the expectations that kl_cross.py knows.
DIFFERENTIATED = [("Beta", "Gamma"), ("Exponential", "Gumbel"), ("Normal", "Laplace"), ("Uniform", "Beta"), ("Pareto", "Gamma"), ("Gamma", "Normal")]
ABSTRACT = ("ExponentialFamily", "Independent", "TransformedDistribution")


def theirs() -> list[tuple[str, str]]:
    """The pairs that PyTorch registers, but for base classes."""
    registered = torch.distributions.kl._KL_REGISTRY
    return sorted((p.__name__, q.__name__) for p, q in registered if not {p.__name__, q.__name__} & set(ABSTRACT))


def test_the_same_pairs_are_registered() -> None:
    ours = {(p.__name__, q.__name__) for p, q in kl._KL_REGISTRY}
    assert ours >= set(theirs()) | {(name, name) for name in ABSTRACT}


def compare(name_p: str, name_q: str, p: tuple[np.ndarray, ...], q: tuple[np.ndarray, ...], wrap: Any = None) -> None:
    found = []
    for t in PACKAGES:
        given = [tensors(t, arrays, gradients=True) for arrays in (p, q)]
        pair = [getattr(t.distributions, name)(*arrays) for name, arrays in zip((name_p, name_q), given, strict=True)]
        value = outcome(lambda t=t, pair=pair: t.distributions.kl_divergence(*(pair if wrap is None else [wrap(t, d) for d in pair])))  # type: ignore[misc]
        if isinstance(value, Exception):
            found.append([value])
            continue
        inputs = [x for arrays in given for x in arrays]
        wanted = (name_p == name_q or (name_p, name_q) in DIFFERENTIATED) and name_p != "Wishart"
        found.append([value, *(gradients(t, value, inputs) if wanted else [])])
    for i, (a, b) in enumerate(zip(*found, strict=True)):
        same(a, b, 1e-8, f"number {i} of the divergence and its gradients")


@pytest.mark.parametrize("pair", theirs(), ids="-".join)
def test_divergence(pair: tuple[str, str]) -> None:
    compare(*pair, PARAMETERS[pair[0]][0], PARAMETERS[pair[1]][1])


@pytest.mark.parametrize("name", ["LogNormal", "Wishart"])
def test_by_base_classes(name: str) -> None:
    """Transformed distributions go by their bases, exponential families by their log normalisers."""
    compare(name, name, *PARAMETERS[name])


def test_independent() -> None:
    compare("Normal", "Normal", *PARAMETERS["Normal"], wrap=lambda t, d: t.distributions.Independent(d, 1))


@pytest.mark.parametrize("name", ["Bernoulli", "Beta", "Dirichlet", "Exponential", "Gamma", "Normal", "Poisson", "ContinuousBernoulli"])
def test_bregman_divergences_equal_the_formulas(name: str) -> None:
    arrays = [tensors(ft, a) for a in PARAMETERS[name]]
    p, q = (getattr(ft.distributions, name)(*a) for a in arrays)
    if name != "ContinuousBernoulli":  # whose series is around another point there
        np.testing.assert_allclose(kl._exponential_family(p, q).detach().numpy(), ft.distributions.kl_divergence(p, q).numpy(), rtol=1e-9)


@pytest.mark.parametrize("name", ["Bernoulli", "Exponential", "Gamma", "Normal", "ContinuousBernoulli"])
def test_entropies_of_exponential_families(name: str) -> None:
    """The inherited entropy, from gradients of the log normaliser, and its own gradients."""
    given = tensors(ft, PARAMETERS[name][0], gradients=True)
    p, again = (getattr(ft.distributions, name)(*given) for _ in range(2))
    inherited, own = ft.distributions.ExponentialFamily.entropy(p), again.entropy()
    np.testing.assert_allclose(inherited.detach().numpy(), own.detach().numpy(), rtol=2e-5, atol=1e-7)
    for a, b in zip(gradients(ft, inherited, given), gradients(ft, own, given), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-4, atol=1e-6)


EDGES = {
    "Uniform outside": ("Uniform", "Uniform", (np.array([0.0, 0.0]), np.array([1.0, 3.0])), (np.array([0.0, 0.0]), np.array([2.0, 2.0]))),
    "Bernoulli certain": ("Bernoulli", "Bernoulli", (np.array([0.0, 1.0, 0.0, 1.0, 0.5]),), (np.array([0.0, 1.0, 1.0, 0.0, 0.0]),)),
    "Categorical certain": ("Categorical", "Categorical", (np.array([[0.0, 1.0], [0.5, 0.5]]),), (np.array([[0.3, 0.7], [0.0, 1.0]]),)),
    "Pareto outside": ("Pareto", "Pareto", (np.array([1.0, 3.0]), np.array(2.0)), (np.array([2.0, 2.0]), np.array(2.0))),
    "Binomial more": ("Binomial", "Binomial", (np.array([5.0, 4.0]), np.array(0.4)), (np.array([4.0, 4.0]), np.array(0.3))),
    "Binomial fewer": ("Binomial", "Binomial", (np.array([3.0, 4.0]), np.array(0.4)), (np.array([4.0, 4.0]), np.array(0.3))),
    "Pareto heavy": ("Pareto", "Normal", (np.array([1.0, 1.0]), np.array([1.5, 2.5])), (np.array(0.0), np.array(1.0))),
    "Pareto heavy, exponential": ("Pareto", "Exponential", (np.array([1.0, 1.0]), np.array([0.5, 2.5])), (np.array(1.0),)),
    "Beta, narrow uniform": ("Beta", "Uniform", (np.array(1.5), np.array(2.5)), (np.array([0.0, 0.1]), np.array([1.0, 2.0]))),
    "Uniform, beta": ("Uniform", "Beta", (np.array([0.0, -0.1]), np.array([1.0, 0.5])), (np.array(1.5), np.array(2.5))),
    "Different": ("Gumbel", "Laplace", (np.array(0.0), np.array(1.0)), (np.array(0.0), np.array(1.0))),
}  # fmt: skip


@pytest.mark.parametrize("name", EDGES)
def test_edges(name: str) -> None:
    """Values and gradients, which are 0 where the divergence is infinite; where PyTorch's gradient is NaN (the derivative of 0 log 0) any number will do."""
    p, q, a, b = EDGES[name]
    found = []
    for t in PACKAGES:
        given = [tensors(t, arrays, gradients=True) for arrays in (a, b)]
        value = outcome(lambda t=t, given=given: t.distributions.kl_divergence(*[getattr(t.distributions, d)(*x) for d, x in zip((p, q), given, strict=True)]))  # type: ignore[misc]
        wanted = not isinstance(value, Exception) and value.requires_grad
        found.append([value, *(gradients(t, value, [x for arrays in given for x in arrays]) if wanted else [])])
    for i, (x, y) in enumerate(zip(*found, strict=True)):
        same(x, y if i == 0 else torch.where(y.isnan(), torch.tensor(x.tolist(), dtype=y.dtype), y), 1e-9, f"{name}: number {i} of the divergence, gradients")


@pytest.mark.parametrize("pair", [("Gamma", "Normal"), ("Normal", "Gumbel"), ("Beta", "Gamma"), ("Normal", "Laplace"), ("Exponential", "Gumbel")], ids="-".join)
def test_divergence_is_the_mean_over_samples(pair: tuple[str, str]) -> None:
    ft.manual_seed(0)
    p = getattr(ft.distributions, pair[0])(1.7, 1.3) if pair[0] != "Exponential" else ft.distributions.Exponential(1.7)
    q = getattr(ft.distributions, pair[1])(0.9, 1.1)
    x = p.sample((40_000,))
    logs = (p.log_prob(x) - q.log_prob(x)).double()
    error = float(logs.std()) / 200
    assert abs(float(logs.mean()) - float(ft.distributions.kl_divergence(p, q))) < 5 * error


def test_registering() -> None:
    D = ft.distributions

    class Mine(D.Normal):
        pass

    p, q = Mine(0.0, 1.0), Mine(1.0, 1.0)
    assert float(D.kl_divergence(p, q)) == 0.5
    try:

        @D.register_kl(Mine, D.Normal)
        def mine(p: Any, q: Any) -> Any:
            return ft.tensor(7.0)

        assert float(D.kl_divergence(p, q)) == 7.0
        D.register_kl(D.Normal, Mine)(lambda p, q: ft.tensor(8.0))
        with pytest.warns(RuntimeWarning, match=r"Ambiguous kl_divergence\(Mine, Mine\). Please register_kl\(Mine, Mine\)"):
            assert float(D.kl_divergence(p, q)) == 7.0
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert float(D.kl_divergence(p, q)) == 7.0  # the choice is remembered
    finally:
        for pair in ((Mine, D.Normal), (D.Normal, Mine)):
            kl._KL_REGISTRY.pop(pair, None)
        kl._KL_MEMOIZE.clear()
    with pytest.raises(TypeError, match="Expected type_p to be a Distribution subclass"):
        D.register_kl("Normal", D.Normal)
