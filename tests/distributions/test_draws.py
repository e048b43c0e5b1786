"""Draws by rejection beside PyTorch's of one seed, the state that they leave, and the implicit gradients of gamma and beta numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as ft
from tests.distributions.oracle import PACKAGES, both, outcome, same, torch

RNG = np.random.default_rng(0)
SHAPES = np.concatenate([np.exp(RNG.normal(0, 2, 300)), [1.0, 0.001, 1e4]])
RATES = np.concatenate([np.exp(RNG.normal(1, 2, 300)), [0.0, 10.0, 1e6, 1e-8]])
TRIALS = np.concatenate([np.floor(np.exp(RNG.normal(2, 2, 300))), [0.0, 10.0, 1e5, 20.0, 20.0, -1.0]])
CHANCES = np.concatenate([RNG.uniform(0, 1, 300), [0.5, 0.0, 0.3, 1.0, 0.5, 0.5]])


def equal(function: Any, tolerance: float = 0.0) -> None:
    both(function, tolerance)
    states = [t.get_rng_state().numpy() for t in PACKAGES]
    assert np.array_equal(*states), "the states of the generators differ afterwards"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_draws_of_one_seed(dtype: str) -> None:
    # Of doubles log and its like differ in the last place.
    digits = 0.0 if dtype == "float32" else 1e-14
    d = lambda t, a: t.tensor(a, dtype=getattr(t, dtype))
    equal(lambda t: t._standard_gamma(d(t, SHAPES)), digits)
    equal(lambda t: t.poisson(d(t, RATES)))
    equal(lambda t: t.binomial(d(t, TRIALS), d(t, CHANCES)))
    equal(lambda t: t._sample_dirichlet(d(t, SHAPES[:300].reshape(60, 5))), max(digits, 1e-7 if dtype == "float32" else 1e-14))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_draws_of_16_bits(dtype: str) -> None:
    d = lambda t, a: t.tensor(a, dtype=getattr(t, dtype))
    equal(lambda t: t.poisson(d(t, RATES[:300])).float())
    # PyTorch has no gamma and binomial numbers of these dtypes.
    ft.manual_seed(0)
    assert abs(float(ft._standard_gamma(ft.full((10_000,), 2.0, dtype=getattr(ft, dtype))).double().mean()) - 2) < 0.1
    assert abs(float(ft.binomial(d(ft, np.full(10_000, 20.0)), d(ft, np.full(10_000, 0.25))).double().mean()) - 5) < 0.1


def test_order_broadcast_and_generators() -> None:
    equal(lambda t: t.poisson(t.tensor(RATES[:24]).reshape(4, 6).t()))
    equal(lambda t: t._standard_gamma(t.tensor(SHAPES[:3]).expand(4, 3)), 1e-14)
    equal(lambda t: t.binomial(t.full((3, 4), 30.0), t.tensor(0.3)))
    equal(lambda t: t.poisson(t.full((9,), 20.0), t.Generator().manual_seed(5)))
    equal(lambda t: t._standard_gamma(t.full((9,), 2.0), t.Generator().manual_seed(5)))
    # An odd number of normals leaves one for the next call.
    equal(lambda t: t.cat([t._standard_gamma(t.full((3,), 2.0)), t.randn(3), t._standard_gamma(t.full((2,), 2.0))]), 1e-6)
    equal(lambda t: t.normal(t.zeros(3), t.ones(3, dtype=t.float64)), 1e-6)
    for t in PACKAGES:
        assert tuple(t.poisson(t.zeros(0, 3)).shape) == (0, 3)


def test_parameters_outside() -> None:
    for rate in (-1.0, float("nan")):
        both(lambda t, rate=rate: t.poisson(t.tensor([1.0, rate])))  # type: ignore[misc]
    both(lambda t: t.poisson(t.tensor([1, 2])))
    both(lambda t: t.binomial(t.tensor([5.0]), t.tensor([0.5], dtype=t.float64)))
    outside = [float("nan"), -1.0, -0.3, -0.9, -7.0, 0.0, -0.0, float("inf"), -float("inf"), 1e-30]
    for d in ("float32", "float64"):  # what is no shape gives the least number, or one by chance, and draws as many numbers
        equal(lambda t, d=d: t._standard_gamma(t.tensor(outside, dtype=getattr(t, d))), 1e-6 if d == "float32" else 1e-14)  # type: ignore[misc]
        equal(lambda t, d=d: t._sample_dirichlet(t.tensor([[-3.3, -2.1], [-1.0, 2.0]], dtype=getattr(t, d))), 1e-6)  # type: ignore[misc]
    assert ft.poisson(ft.tensor([float("inf")])).item() == float("inf")


def test_counts_have_zero_gradients() -> None:
    for t in PACKAGES:
        rate = t.tensor([1.0, 5.0], requires_grad=True)
        t.poisson(rate).sum().backward()
        assert rate.grad.tolist() == [0.0, 0.0]
    chance = ft.tensor([0.4, 0.6], requires_grad=True)  # PyTorch has no derivative of these
    ft.binomial(ft.tensor([5.0, 6.0]), chance).sum().backward()
    assert chance.grad.tolist() == [0.0, 0.0]


# (a, z, dz/da) and (x, a, b, (dx/da) / (1 - x)): -(dF/da) / f with 40 digits, by mpmath's incomplete gamma and beta functions.
GAMMA = (
    (0.02, 0.5, 23.603121089664384), (0.3, 0.05, 0.4947109870041313), (0.3, 2.0, 3.5641103212469214), (1.0, 1.0, 1.1735630272247268),
    (4.0, 2.5, 0.8162072580503226), (4.0, 9.0, 1.5210253795923787), (50.0, 45.0, 0.9514101922116238), (2000.0, 2050.0, 1.0124814851858415),
)  # fmt: skip
BETA = (
    (0.3, 0.1, 0.2, 13.395058542743493), (0.999, 0.5, 0.05, 4.5478953830990765), (0.2, 2.0, 3.0, 0.15868031784512154),
    (0.9, 2.0, 3.0, 0.3445075694344763), (0.4, 30.0, 50.0, 0.013034785087624944), (0.02, 5.0, 300.0, 0.0037424755831233104),
    (0.5, 1000.0, 1100.0, 0.0004880613761180975), (1e-7, 0.1, 2.0, 1.5209007728049752e-05),
)  # fmt: skip


@pytest.mark.parametrize("dtype", [ft.float64, ft.float32], ids=str)
def test_implicit_gradients_are_exact(dtype: Any) -> None:
    digits = 1e-11 if dtype is ft.float64 else 3e-6
    a, z, expected = (ft.tensor(column, dtype=dtype) for column in zip(*GAMMA, strict=True))
    np.testing.assert_allclose(ft._standard_gamma_grad(a, z).numpy(), expected.numpy(), rtol=digits)
    x, a, b, expected = (ft.tensor(column, dtype=dtype) for column in zip(*BETA, strict=True))
    # 1 - x of a float32 near 1 has few digits
    np.testing.assert_allclose(ft._dirichlet_grad(x, a, a + b).numpy(), expected.numpy(), rtol=digits if dtype is ft.float64 else 3e-4)


def test_implicit_gradients_beside_pytorch() -> None:
    z = RNG.gamma(SHAPES) + 1e-30
    x, b = RNG.uniform(0.001, 0.999, 303), np.exp(RNG.normal(0, 2, 303))
    both(lambda t: t._standard_gamma_grad(t.tensor(SHAPES), t.tensor(z)), 2e-3)
    found = [t._dirichlet_grad(t.tensor(x), t.tensor(SHAPES), t.tensor(SHAPES + b)) for t in PACKAGES]
    # PyTorch is off by a per mille, and by some per cent where a beta distribution has a number far out in its tail.
    ratio = found[0].numpy() / found[1].numpy()
    assert np.quantile(np.abs(ratio - 1), 0.8) < 2e-3


def test_a_gradient_of_the_distribution_function() -> None:
    """A number at a fixed value of its distribution function moves with its shape as the gradient says."""
    special = pytest.importorskip("scipy.special")
    p, h = RNG.uniform(0.01, 0.99, 50), 1e-4
    a = np.exp(RNG.normal(0.5, 1, 50))
    z = special.gammaincinv(a, p)
    slope = (special.gammaincinv(a + h, p) - special.gammaincinv(a - h, p)) / (2 * h)
    np.testing.assert_allclose(ft._standard_gamma_grad(ft.tensor(a), ft.tensor(z)).numpy(), slope, rtol=1e-5, atol=1e-9)
    b = np.exp(RNG.normal(0.5, 1, 50))
    x = special.betaincinv(a, b, p)
    slope = (special.betaincinv(a + h, b, p) - special.betaincinv(a - h, b, p)) / (2 * h)
    ours = ft._dirichlet_grad(ft.tensor(x), ft.tensor(a), ft.tensor(a + b)).numpy() * (1 - x)
    np.testing.assert_allclose(ours, slope, rtol=1e-5, atol=1e-9)


def test_gradients_through_draws() -> None:
    """Gradients of an expectation: of gamma numbers E[z] = a, of Dirichlet numbers E[x_i] = a_i / sum."""
    ft.manual_seed(0)
    a = ft.tensor([0.3, 1.0, 4.0], requires_grad=True)
    ft._standard_gamma(a.expand(20_000, 3)).mean(0).sum().backward()
    np.testing.assert_allclose(a.grad.numpy(), [1.0, 1.0, 1.0], atol=0.05)
    b = ft.tensor([0.5, 1.5, 2.0], requires_grad=True)
    ft._sample_dirichlet(b.expand(20_000, 3)).mean(0)[0].backward()
    np.testing.assert_allclose(b.grad.numpy(), [3.5 / 16, -0.5 / 16, -0.5 / 16], atol=0.01)


@pytest.mark.parametrize("draw", [lambda a: ft._standard_gamma(a), lambda a: ft._sample_dirichlet(a)], ids=["gamma", "dirichlet"])
def test_second_derivatives_are_refused(draw: Any) -> None:
    a = ft.tensor([1.5, 2.0, 3.0], requires_grad=True)
    value = draw(a)
    (slope,) = ft.autograd.grad((value * value).sum(), a, create_graph=True)
    with pytest.raises(NotImplementedError, match="is not implemented"):
        ft.autograd.grad(slope.sum(), a)


def test_moments() -> None:
    """Large samples, from both branches of each algorithm."""
    ft.manual_seed(1)
    n = 100_000
    for rate in (0.5, 9.5, 10.5, 300.0):
        x = ft.poisson(ft.full((n,), rate, dtype=ft.float64))
        assert abs(float(x.mean()) - rate) < 5 * (rate / n) ** 0.5
        assert abs(float(x.var()) / rate - 1) < 0.05
    for count, p in ((10, 0.3), (10, 0.8), (100, 0.4), (100, 0.97), (1000, 0.6)):
        x = ft.binomial(ft.full((n,), float(count)), ft.full((n,), p)).double()
        variance = count * p * (1 - p)
        assert abs(float(x.mean()) - count * p) < 5 * (variance / n) ** 0.5
        assert abs(float(x.var()) / variance - 1) < 0.05
    for a in (0.05, 0.7, 1.0, 30.0):
        x = ft._standard_gamma(ft.full((n,), a, dtype=ft.float64))
        assert abs(float(x.mean()) - a) < 5 * (a / n) ** 0.5
        assert abs(float(x.var()) / a - 1) < 0.1


def test_fills_in_place() -> None:
    """The forms of the in-place fills, and their errors."""
    equal(lambda t: t.empty(20).exponential_(), 1e-6)
    equal(lambda t: t.empty(20).exponential_(lambd=2.0), 1e-6)
    equal(lambda t: t.empty(20).geometric_(p=0.3), 0.0)
    equal(lambda t: t.zeros(20, dtype=t.int64).geometric_(0.3), 0.0)
    equal(lambda t: t.empty(20).cauchy_(median=1.0, sigma=2.0), 1e-5)
    equal(lambda t: t.empty(20).log_normal_(mean=0.5, std=0.3), 1e-6)
    equal(lambda t: t.empty(20).log_normal_(generator=t.Generator().manual_seed(4)), 1e-6)
    for call in (
        lambda t: t.empty(2).exponential_(-1.0), lambda t: t.empty(2).geometric_(0.0), lambda t: t.empty(2).geometric_(1.5),
        lambda t: t.empty(2).cauchy_(0.0, -1.0), lambda t: t.empty(2).log_normal_(0.0, -1.0), lambda t: t.zeros(2, dtype=t.int64).exponential_(),
        lambda t: t.zeros(2, dtype=t.int64).cauchy_(), lambda t: t.zeros(2, dtype=t.int64).log_normal_(), lambda t: t.empty(2).geometric_(),
    ):  # fmt: skip
        ours, theirs = (outcome(lambda t=t, call=call: call(t)) for t in PACKAGES)  # type: ignore[misc]
        assert isinstance(theirs, Exception), theirs
        same(ours, theirs)
    assert torch is PACKAGES[1]
