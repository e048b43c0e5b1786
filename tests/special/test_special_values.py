"""Functions at NaN, infinities, zeros, empty tensors, huge parameters, bools and whole numbers, beside PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as ft

torch = pytest.importorskip("torch")

nan, inf = math.nan, math.inf
X = [1.0, -2.0, nan, 0.0, inf, -inf]
CASES: dict[str, Callable[[Any], Any]] = {}


def bounds() -> None:
    for low, high in ((None, nan), (nan, None), (nan, 1.0), (0.0, nan), (nan, nan), (inf, None), (None, -inf), (-0.0, 0.0), (2.0, 1.0)):
        for dtype in ("float64", "float32", "bfloat16"):
            CASES[f"clamp {low} {high} {dtype}"] = lambda m, low=low, high=high, dtype=dtype: m.tensor(X, dtype=getattr(m, dtype)).clamp(low, high)
    CASES["clamp_"] = lambda m: m.tensor(X).clamp_(max=nan)
    CASES["clamp_min"] = lambda m: m.tensor(X).clamp_min(nan)
    CASES["clamp_max_"] = lambda m: m.tensor(X).clamp_max_(nan)
    CASES["clip"] = lambda m: m.clip(m.tensor(X), nan, 3.0)
    CASES["clamp of ints"] = lambda m: m.tensor([1, 2]).clamp(max=nan)
    CASES["clamp by tensors"] = lambda m: m.tensor(X).clamp(m.tensor([nan, 0.0, 0.0, 1.0, 0.0, 0.0]), m.tensor(5.0))
    CASES["hardtanh low"] = lambda m: m.nn.functional.hardtanh(m.tensor(X), nan, 1.0)
    CASES["hardtanh high"] = lambda m: m.nn.functional.hardtanh(m.tensor(X), -1.0, nan)


def products() -> None:
    def nans(m: Any, *shape: int) -> Any:
        return m.full(shape, nan)

    calls: dict[str, Callable[..., Any]] = {
        "addmm": lambda m, **k: m.addmm(nans(m, 2, 2), m.ones(2, 3), m.ones(3, 2), **k),
        "addmm_": lambda m, **k: nans(m, 2, 2).addmm_(m.ones(2, 3), m.ones(3, 2), **k),
        "addmm of nothing": lambda m, **k: m.addmm(nans(m, 2, 2), m.ones(2, 0), m.ones(0, 2), **k),
        "addmm bfloat16": lambda m, **k: m.addmm(nans(m, 2, 2).bfloat16(), m.ones(2, 3).bfloat16(), m.ones(3, 2).bfloat16(), **k),
        "addmm ints": lambda m, **k: m.addmm(m.ones(2, 2, dtype=m.int64), m.ones(2, 3, dtype=m.int64), m.ones(3, 2, dtype=m.int64), **k),
        "addr": lambda m, **k: m.addr(nans(m, 2, 2), m.ones(2), m.ones(2), **k),
        "addmv": lambda m, **k: m.addmv(nans(m, 2), m.ones(2, 3), m.ones(3), **k),
        "baddbmm": lambda m, **k: m.baddbmm(nans(m, 1, 2, 2), m.ones(1, 2, 3), m.ones(1, 3, 2), **k),
        "addbmm": lambda m, **k: m.addbmm(nans(m, 2, 2), m.ones(1, 2, 3), m.ones(1, 3, 2), **k),
    }
    for name, call in calls.items():
        for beta, alpha in ((0, 1), (0, 2), (1, 2), (2, 1)) if "ints" in name else ((0, 1), (0.0, 2.0), (-0.0, 1), (0.5, 1)):
            CASES[f"{name} {beta} {alpha}"] = lambda m, call=call, beta=beta, alpha=alpha: call(m, beta=beta, alpha=alpha)
    CASES["addr with a bool beta"] = lambda m: m.addr(m.ones(2, 2), m.ones(2), m.ones(2), beta=False)
    CASES["addr of bools"] = lambda m: m.addr(*[m.ones(*s, dtype=m.bool) for s in ((2, 2), (2,), (2,))], beta=False, alpha=False)
    CASES["addr of several dtypes"] = lambda m: m.addr(m.ones(2, 2, dtype=m.int64), m.ones(2) * 0.1, m.arange(2, dtype=m.float64))
    for alpha in (True, False):
        CASES[f"index_add of bools {alpha}"] = lambda m, alpha=alpha: m.tensor([True, False, False]).index_add(
            0, m.tensor([1, 2]), m.tensor([True, True]), alpha=alpha
        )


def norms_and_pools() -> None:
    def statistics(m: Any, layer: Any, shape: tuple[int, ...]) -> Any:
        y = layer(m.zeros(shape))
        y.sum().backward()
        return y, layer.running_mean, layer.running_var, layer.num_batches_tracked, layer.weight.grad

    CASES["BatchNorm1d of nothing"] = lambda m: statistics(m, m.nn.BatchNorm1d(3), (0, 3))
    CASES["BatchNorm1d of no places"] = lambda m: statistics(m, m.nn.BatchNorm1d(3, momentum=None), (2, 3, 0))
    CASES["BatchNorm2d of nothing"] = lambda m: statistics(m, m.nn.BatchNorm2d(3), (0, 3, 2, 2))
    for size in (2, 3, 9):
        for scale in (1, -7):
            CASES[f"local_response_norm of ints {size} {scale}"] = lambda m, size=size, scale=scale: m.nn.functional.local_response_norm(
                m.arange(24).reshape(1, 4, 6) * scale, size, alpha=0.3
            )
    for options in ({}, {"padding": 1}, {"padding": 1, "count_include_pad": False}, {"divisor_override": 3}, {"ceil_mode": True, "stride": 2}):
        CASES[f"avg_pool2d of ints {options}"] = lambda m, options=options: m.nn.functional.avg_pool2d(-m.arange(25).reshape(1, 5, 5), 2, **options)
    for name, arguments in (("max_pool1d", (2,)), ("adaptive_avg_pool1d", (2,)), ("adaptive_max_pool1d", (2,)), ("avg_pool1d", (2,))):
        for dtype in ("int64", "uint8", "bool", "float64"):
            CASES[f"{name} of {dtype}"] = lambda m, name=name, arguments=arguments, dtype=dtype: getattr(m.nn.functional, name)(
                m.ones(1, 2, 6).to(getattr(m, dtype)), *arguments
            )
    CASES["max_pool2d of bools"] = lambda m: m.nn.functional.max_pool2d(m.ones(1, 4, 4).bool(), 2)
    CASES["avg_pool1d of ints"] = lambda m: m.nn.functional.avg_pool1d(m.arange(16).reshape(1, 1, 16), 3)
    CASES["avg_pool3d of ints"] = lambda m: m.nn.functional.avg_pool3d(-m.arange(64).reshape(1, 4, 4, 4), 2)
    CASES["max_pool2d of ints"] = lambda m: m.nn.functional.max_pool2d(-m.arange(1, 17).reshape(1, 4, 4), 2, padding=1, return_indices=True)
    CASES["lp_pool2d of ints"] = lambda m: m.nn.functional.lp_pool2d(m.arange(16).reshape(1, 4, 4), 2, 2)


def gamma_and_zeta() -> None:
    a = [1e20, 1e20, 1e10, 1e30, 1e8, 3e9, 1e5, 2.0, 1e20, 1e19, 1e300, 1e12, 1e9]
    x = [1e20, 2e20, 1e10, 1e30, 1e8 + 1e4, 3e9 - 5e4, 1e5, inf, inf, 1e20, 1e300, 1e12 + 3e6, 1e9 - 2e5]
    for name in ("igamma", "igammac"):
        CASES[f"{name} of large numbers"] = lambda m, name=name: getattr(m, name)(m.tensor(a, dtype=m.float64), m.tensor(x, dtype=m.float64))
        CASES[f"{name} of edges"] = lambda m, name=name: getattr(m, name)(
            m.tensor([0.0, 0.0, 1.0, inf, inf, -1.0, nan, 1e-300], dtype=m.float64), m.tensor([0.0, 1.0, 0.0, 1.0, inf, 1.0, 1.0, 1e-300], dtype=m.float64)
        )
    s = [2.0, inf, inf, inf, nan, 2.0, 1.0, 3.0, inf, 2.0, 1e5, -inf, 0.0, 0.5, 2.0, 3.0, 2.5, 2.0, 2.0, 5.0, inf, inf]
    q = [inf, 1.0, 2.0, 0.5, 1.0, nan, inf, -inf, inf, 1e30, 1.0, 1.0, 2.0, 3.0, -0.5, -1.5, -0.5, -3.0, -20.5, -7.25, -0.5, -1.5]
    CASES["zeta"] = lambda m: m.special.zeta(m.tensor(s, dtype=m.float64), m.tensor(q, dtype=m.float64))
    for n in range(5):
        points = [inf, -inf, nan, 0.0, -0.0, 1e30, -0.5, *([2.0, -1.0, -1e30] if n != 1 else [])]  # PyTorch's trigamma has 9 digits, and misses poles
        CASES[f"polygamma {n}"] = lambda m, n=n, points=points: m.polygamma(n, m.tensor(points, dtype=m.float64))


POLYNOMIALS = (
    "chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w hermite_polynomial_h hermite_polynomial_he "
    "laguerre_polynomial_l legendre_polynomial_p shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v "
    "shifted_chebyshev_polynomial_w"
).split()


def polynomials() -> None:
    points = [-2.0, -1.0, -0.4, 0.0, 0.3, 1.0, 1.5, inf, -inf]
    for name in POLYNOMIALS:
        for degree in (-3, 0, 1, 2, 45, 100, 10**5, nan):
            CASES[f"{name} {degree}"] = lambda m, name=name, degree=degree: getattr(m.special, name)(m.tensor(points, dtype=m.float64), degree)
        orders = [nan, inf, -inf, -1.0, 2.5, 1e3, 33.0, 41.0, 1e19]
        CASES[f"{name} of a tensor"] = lambda m, name=name, orders=orders: getattr(m.special, name)(
            m.full((len(orders),), 0.3, dtype=m.float64), m.tensor(orders, dtype=m.float64)
        )
        # Legendre's of order 130 is infinite there in float32; PyTorch's is a NaN of infinite terms.
        high = 60.0 if name == "legendre_polynomial_p" else 130.0
        CASES[f"{name} float32"] = lambda m, name=name, high=high: getattr(m.special, name)(
            m.tensor([2.0, -1.5, 1.0, -1.0, 0.3, 1.01]), m.tensor([high, 50.0, 513.0, 41.0, 200.0, 3.0])
        )
        CASES[f"{name} of ints"] = lambda m, name=name: getattr(m.special, name)(m.tensor([2, 1]), m.tensor([3, 50]))


def integrals_and_sets() -> None:
    for dtype, values in (("bool", [True, False, True]), ("int64", [1, 2, 4]), ("uint8", [200, 100, 250]), ("float64", [0.1, 0.7, 0.2])):
        for x in (None, [0, 1, 5], [0.0, 0.5, 0.7]):
            for name in ("trapezoid", "cumulative_trapezoid"):
                CASES[f"{name} of {dtype} {x}"] = lambda m, name=name, dtype=dtype, values=values, x=x: getattr(m, name)(
                    m.tensor(values, dtype=getattr(m, dtype)), *([] if x is None else [m.tensor(x)])
                )
    CASES["trapezoid of nothing"] = lambda m: (m.trapezoid(m.zeros(2, 0)), m.trapezoid(m.zeros(2, 1)), m.trapezoid(m.arange(6.0).reshape(2, 3), dim=0))
    for name in ("unique", "unique_consecutive"):
        for options in ({}, {"return_inverse": True, "return_counts": True}, {"dim": 0}):
            CASES[f"{name} {options}"] = lambda m, name=name, options=options: getattr(m, name)(
                m.tensor([[3.0, 1.0], [3.0, 1.0]], requires_grad=True), **options
            )
    CASES["empty prod"] = lambda m: (
        m.ones(0, 3).prod(0), m.ones(0, 3).prod(1), m.ones(0, 3, dtype=m.int64).prod(0, keepdim=True), m.zeros(0, 2).bool().prod(0),
    )  # fmt: skip


def ctc() -> None:
    def gradient(m: Any, steps: int, lengths: list[int], reduction: str, zero_infinity: bool) -> Any:
        scores = np.random.default_rng(0).standard_normal((steps, 2, 4))
        log_probs = m.tensor(scores, dtype=m.float64, requires_grad=True)
        loss = m.nn.functional.ctc_loss(
            log_probs, m.tensor([[1, 2, 2], [3, 1, 0]]), m.tensor(lengths), m.tensor([3, 2]), reduction=reduction, zero_infinity=zero_infinity
        )
        (loss.sum() * 1.5).backward()
        return loss, log_probs.grad

    for reduction in ("mean", "sum", "none"):
        for zero_infinity in (False, True):
            for steps, lengths in ((5, [5, 4]), (3, [3, 3])):
                CASES[f"ctc_loss {reduction} {zero_infinity} {steps}"] = lambda m, a=(steps, lengths, reduction, zero_infinity): gradient(m, *a)


def losses_of_bools() -> None:
    def real(m: Any) -> Any:
        return m.tensor([[0.2, 0.7], [0.4, 0.9]])

    def truth(m: Any) -> Any:
        return m.tensor([[True, False], [False, True]])

    for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits", "soft_margin_loss", "hinge_embedding_loss",
                 "poisson_nll_loss", "multilabel_soft_margin_loss"):  # fmt: skip
        for reduction in ("mean", "none"):
            CASES[f"{name} of bools {reduction}"] = lambda m, name=name, r=reduction: getattr(m.nn.functional, name)(real(m), truth(m), reduction=r)
    CASES["mse_loss of bools first"] = lambda m: m.nn.functional.mse_loss(truth(m), real(m))
    CASES["cosine_similarity of two dtypes"] = lambda m: m.nn.functional.cosine_similarity(
        m.arange(1, 7).reshape(2, 3), m.linspace(-1, 2, 6, dtype=m.float64).reshape(2, 3)
    )
    CASES["cosine_similarity of ints"] = lambda m: m.nn.functional.cosine_similarity(m.ones(2, 3, dtype=m.int64), m.ones(2, 3, dtype=m.int64))


for make in (bounds, products, norms_and_pools, gamma_and_zeta, polynomials, integrals_and_sets, ctc, losses_of_bools):
    make()


def answer(case: Callable[[Any], Any], m: Any) -> list[Any]:
    """(dtype, whether it requires gradients, values) of each tensor of a result, or the type of its error."""
    try:
        results = case(m)
    except (RuntimeError, TypeError, ValueError) as error:
        return [next(c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins")]
    flat = results if isinstance(results, tuple) else (results,)
    return [(str(t.dtype), t.requires_grad, t.detach().to(m.float64).numpy()) for t in flat if t is not None]


@pytest.mark.parametrize("name", CASES)
def test_special_values(name: str) -> None:
    ours, theirs = (answer(CASES[name], m) for m in (ft, torch))
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a[:2] == b[:2]
        if len(b) == 3:
            tolerance = 1e-10 if b[0] == "torch.float64" else 1e-5
            np.testing.assert_allclose(a[2], b[2], rtol=tolerance, atol=tolerance, equal_nan=True)


def test_muon_in_bfloat16_is_as_exact_as_pytorchs() -> None:
    """Against steps in float64: the parameter, the buffer and the update are each rounded once."""

    def trained(m: Any, dtype: str) -> Any:
        generator = np.random.default_rng(1)
        p = m.nn.Parameter(m.tensor(generator.standard_normal((8, 6)), dtype=m.float64).bfloat16().to(getattr(m, dtype)))
        optimizer = m.optim.Muon([p], lr=0.05)
        for _ in range(4):
            p.grad = m.tensor(generator.standard_normal((8, 6)), dtype=m.float64).bfloat16().to(getattr(m, dtype))
            optimizer.step()
        return p.detach().double().numpy()

    exact = trained(torch, "float64")
    ours, theirs = (np.abs(trained(m, "bfloat16") - exact).mean() for m in (ft, torch))
    assert ours <= 1.2 * theirs


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", ["float64", "bfloat16"])
def test_slopes_of_polygamma_at_its_poles(n: int, kind: str) -> None:
    points = [0.0, -1.0, -2.0, -8.0, 2.0, -0.5, 1e-30]
    slopes = []
    for module in (ft, torch):
        x = module.tensor(points, dtype=getattr(module, kind), requires_grad=True)
        (slope,) = module.autograd.grad(module.polygamma(n, x).sum(), x)
        slopes.append(slope.double().tolist())
    assert slopes[0] == pytest.approx(slopes[1], rel=1e-6 if kind == "float64" else 1e-2, nan_ok=True)
