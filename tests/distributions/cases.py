"""The distributions under test: parameters, how to make one from them in either package, and values in the support.

A case's parameters are float64 arrays; `make(t, *parameters)` takes the package (flambeau or torch) and its tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Case(NamedTuple):
    """`tolerance`: of values and gradients; `approximate`: of the gradients of rsample, where PyTorch's are not exact; `silent`: what is
    not compared (with the reason where it is not)."""

    name: str
    parameters: tuple[np.ndarray, ...]
    make: Callable[..., Any]
    values: np.ndarray
    approximate: float = 0.0
    silent: tuple[str, ...] = ()
    tolerance: float = 1e-8


def _near(shape: tuple[int, ...], low: float, high: float, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(low, high, shape)


def _simplex(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    x = _near(shape, 0.2, 1.0, seed)
    return x / x.sum(-1, keepdims=True)


def _spd(batch: tuple[int, ...], n: int, seed: int = 0) -> np.ndarray:
    a = _near((*batch, n, n), -1.0, 1.0, seed)
    return a @ np.swapaxes(a, -1, -2) + n * 0.5 * np.eye(n)


REAL, POSITIVE = _near((3,), -1.5, 1.5, 1), _near((3,), 0.4, 2.5, 2)
POSITIVE2 = _near((2, 1), 0.5, 2.5, 3)
UNIT = _near((2, 3), 0.1, 0.9, 4)
ODDS = _near((2, 3), -2.0, 2.0, 5)
P4 = _simplex((2, 4), 6)
L4 = _near((2, 4), -1.0, 1.0, 7)
INSIDE = _near((4, 2, 3), 0.05, 0.95, 8)
REALS = _near((4, 2, 3), -3.0, 3.0, 9)
ABOVE = _near((4, 2, 3), 0.05, 4.0, 10)
COUNTS = np.random.default_rng(11).integers(0, 6, (4, 2, 3)).astype(np.float64)
TEMPERATURE = np.array(0.7)
LOC3 = _near((2, 3), -1.0, 1.0, 12)
SPD3 = _spd((), 3, 13)
SPD23 = _spd((2,), 3, 14)
TRIL3 = np.linalg.cholesky(SPD3)
VECTORS = _near((4, 2, 3), -2.0, 2.0, 15)
TOTALS = np.array([[1.0, 2, 0, 3], [0, 0, 6, 0]])
FACTOR = _near((3, 2), -1.0, 1.0, 16)


def _single(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(a.astype(np.float32) for a in arrays)


def _d(name: str) -> Callable[..., Any]:
    return lambda t, *p: getattr(t.distributions, name)(*p)


def _named(name: str, *keys: str, **fixed: Any) -> Callable[..., Any]:
    return lambda t, *p: getattr(t.distributions, name)(**dict(zip(keys, p, strict=True)), **fixed)


CASES = [
    Case("Normal", (REAL, POSITIVE2), _d("Normal"), REALS),
    Case("Laplace", (REAL, POSITIVE2), _d("Laplace"), REALS),
    Case("Cauchy", (REAL, POSITIVE2), _d("Cauchy"), REALS),
    Case("Gumbel", (REAL, POSITIVE2), _d("Gumbel"), REALS),
    Case("StudentT", (POSITIVE * 1.5, REAL, POSITIVE2), _d("StudentT"), REALS, 2e-4),
    Case("Uniform", (REAL - 3.0, POSITIVE2 + 3.0), _d("Uniform"), _near((4, 2, 3), -1.0, 3.0, 17)),
    Case("Exponential", (POSITIVE,), _d("Exponential"), ABOVE),
    Case("Gamma", (POSITIVE, POSITIVE2), _d("Gamma"), ABOVE, 2e-3),
    Case("Chi2", (POSITIVE,), _d("Chi2"), ABOVE, 2e-3),
    Case("InverseGamma", (POSITIVE + 1.5, POSITIVE2), _d("InverseGamma"), ABOVE, 2e-3),
    Case("FisherSnedecor", (POSITIVE * 3, POSITIVE2 * 2), _d("FisherSnedecor"), ABOVE, 2e-3),
    Case("Beta", (POSITIVE, POSITIVE2), _d("Beta"), INSIDE, 2e-3),
    Case("Dirichlet", (_near((2, 3), 0.3, 3.0, 18),), _d("Dirichlet"), _simplex((4, 2, 3), 19), 2e-3),
    Case("Poisson", (POSITIVE * 8,), _d("Poisson"), COUNTS),
    Case("Bernoulli probs", (UNIT,), _named("Bernoulli", "probs"), (INSIDE > 0.5) * 1.0),
    Case("Bernoulli logits", (ODDS,), _named("Bernoulli", "logits"), (INSIDE > 0.5) * 1.0),
    Case("ContinuousBernoulli probs", (UNIT,), _named("ContinuousBernoulli", "probs"), INSIDE),
    Case("ContinuousBernoulli logits", (ODDS * 0.002,), _named("ContinuousBernoulli", "logits"), INSIDE),
    Case("Geometric probs", (UNIT,), _named("Geometric", "probs"), COUNTS),
    Case("Geometric logits", (ODDS,), _named("Geometric", "logits"), COUNTS),
    Case("Binomial probs", (UNIT,), _named("Binomial", "probs", total_count=7), COUNTS),
    Case("Binomial logits", (ODDS,), _named("Binomial", "logits", total_count=30), COUNTS),
    Case("Binomial counts", (np.array([[6.0], [30.0]]), UNIT), _named("Binomial", "total_count", "probs"), COUNTS),
    Case("NegativeBinomial probs", (POSITIVE * 3, UNIT), _named("NegativeBinomial", "total_count", "probs"), COUNTS),
    Case("NegativeBinomial logits", (POSITIVE * 3, ODDS), _named("NegativeBinomial", "total_count", "logits"), COUNTS),
    Case("Categorical probs", (P4,), _named("Categorical", "probs"), np.random.default_rng(20).integers(0, 4, (5, 2))),
    Case("Categorical logits", (L4,), _named("Categorical", "logits"), np.random.default_rng(20).integers(0, 4, (5, 2))),
    Case("OneHotCategorical probs", (P4,), _named("OneHotCategorical", "probs"), np.eye(4)[np.random.default_rng(21).integers(0, 4, (5, 2))]),
    Case(
        "OneHotCategoricalStraightThrough", (L4,), _named("OneHotCategoricalStraightThrough", "logits"),
        np.eye(4)[np.random.default_rng(21).integers(0, 4, (5, 2))],
    ),
    # PyTorch takes log(total_count!) in float32.
    Case("Multinomial probs", (P4,), _named("Multinomial", "probs", total_count=6), TOTALS, tolerance=1e-7),
    Case("Multinomial logits", (L4,), _named("Multinomial", "logits", total_count=6), TOTALS, tolerance=1e-7),
    Case("RelaxedBernoulli", (TEMPERATURE, UNIT), _named("RelaxedBernoulli", "temperature", "probs"), INSIDE),
    Case("RelaxedBernoulli logits", (TEMPERATURE, ODDS), _named("RelaxedBernoulli", "temperature", "logits"), INSIDE),
    Case("RelaxedOneHotCategorical", (TEMPERATURE, P4), _named("RelaxedOneHotCategorical", "temperature", "probs"), _simplex((5, 2, 4), 22)),
    Case(
        "RelaxedOneHotCategorical logits", (TEMPERATURE, L4), _named("RelaxedOneHotCategorical", "temperature", "logits"),
        _simplex((5, 2, 4), 22),
    ),
    Case("HalfNormal", (POSITIVE,), _d("HalfNormal"), ABOVE),
    Case("HalfCauchy", (POSITIVE,), _d("HalfCauchy"), ABOVE),
    Case("LogNormal", (REAL, POSITIVE2), _d("LogNormal"), ABOVE),
    Case("LogisticNormal", (LOC3, POSITIVE2), _d("LogisticNormal"), _simplex((5, 2, 4), 23)),
    Case("Kumaraswamy", (POSITIVE, POSITIVE2), _d("Kumaraswamy"), INSIDE),
    Case("Pareto", (POSITIVE, POSITIVE2 + 1.0), _d("Pareto"), ABOVE + 3.0),
    Case("Weibull", (POSITIVE, POSITIVE2 + 1.0), _d("Weibull"), ABOVE),
    # PyTorch's log_prob of this one takes float32 only.
    Case("GeneralizedPareto", _single(REAL - 2.0, POSITIVE2, np.array([0.0, 0.3, 1.2])), _d("GeneralizedPareto"), *_single(ABOVE), tolerance=3e-6),
    Case(
        "GeneralizedPareto ends", _single(REAL - 3.0, POSITIVE2, np.array([-0.1, -0.3, -0.2])), _d("GeneralizedPareto"),
        *_single(_near((2, 3), -1.4, -1.2)), tolerance=3e-6,
    ),
    # PyTorch's Bessel functions have 7 digits.
    Case("VonMises", (REAL, POSITIVE2), _d("VonMises"), REALS, tolerance=2e-6),
    Case("MultivariateNormal covariance", (LOC3, SPD3), _named("MultivariateNormal", "loc", "covariance_matrix"), VECTORS),
    Case("MultivariateNormal precision", (LOC3[0], SPD23), _named("MultivariateNormal", "loc", "precision_matrix"), VECTORS),
    Case("MultivariateNormal tril", (LOC3, TRIL3), _named("MultivariateNormal", "loc", "scale_tril"), VECTORS),
    Case("LowRankMultivariateNormal", (LOC3, FACTOR, POSITIVE), _d("LowRankMultivariateNormal"), VECTORS),
    Case("Wishart covariance", (np.array(4.5), SPD3), _named("Wishart", "df", "covariance_matrix"), _spd((2,), 3, 24), 2e-3, ("sample",)),
    # PyTorch's cholesky_solve gives what is above the diagonal a gradient.
    Case(
        "Wishart tril", (np.array([4.5, 6.0]), TRIL3), lambda t, df, m: t.distributions.Wishart(df, scale_tril=m.tril()),
        _spd((2,), 3, 24), 2e-3, ("sample",),
    ),
    Case(
        "LKJCholesky", (np.array([0.7, 1.8]),), lambda t, c: t.distributions.LKJCholesky(3, c),
        np.linalg.cholesky(np.array([[1.0, 0.3, -0.2], [0.3, 1.0, 0.4], [-0.2, 0.4, 1.0]])), silent=("sample",),
    ),
    Case("LKJCholesky of two", (np.array([0.7, 1.8]),), lambda t, c: t.distributions.LKJCholesky(2, c), np.array([[1.0, 0.0], [0.6, 0.8]])),
    Case(
        "Independent", (REAL, POSITIVE2), lambda t, a, b: t.distributions.Independent(t.distributions.Normal(a, b), 1), REALS,
    ),
    Case(
        "MixtureSameFamily", (P4, L4, np.abs(L4) + 0.5),
        lambda t, p, a, b: t.distributions.MixtureSameFamily(t.distributions.Categorical(p), t.distributions.Normal(a, b)),
        _near((5, 2), -2.0, 2.0, 25),
    ),
    Case(
        "MixtureSameFamily vectors", (P4, _near((2, 4, 3), -1.0, 1.0, 26)),
        lambda t, p, a: t.distributions.MixtureSameFamily(
            t.distributions.Categorical(p), t.distributions.Independent(t.distributions.Normal(a, t.ones(3).double()), 1)
        ),
        _near((5, 2, 3), -2.0, 2.0, 27),
    ),
    Case(
        "TransformedDistribution", (REAL, POSITIVE2),
        lambda t, a, b: t.distributions.TransformedDistribution(
            t.distributions.Normal(a, b), [t.distributions.TanhTransform(cache_size=1), t.distributions.AffineTransform(0.5, 2.0)]
        ),
        _near((4, 2, 3), -1.0, 2.0, 28),
    ),
]  # fmt: skip
