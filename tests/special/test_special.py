"""torch.special: values against SciPy and PyTorch, over the whole line and at its ends; gradients against PyTorch.

Values are held to SciPy: PyTorch's bessel_* are off by up to 3e-7 near 5 and 10, as they leave out the leading coefficient 1 of
Cephes's denominators.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as ft
from tests.ops.oracle import check, compare

torch = pytest.importorskip("torch")
scipy_special = pytest.importorskip("scipy.special")

S = scipy_special
GENERATOR = np.random.default_rng(0)
ENDS = [0.0, -0.0, 5.0, 8.0, 2.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 30.0, -30.0, 100.0, 1e-10]
LINE = np.concatenate([GENERATOR.uniform(-20, 20, 300), GENERATOR.uniform(-1, 1, 100), ENDS])
UNIT = np.concatenate([GENERATOR.uniform(0, 1, 200), [0.0, 1.0, 1e-300, 1e-20, -1.0, 2.0, math.nan, 0.5, 1 - 1e-12]])


def close(ours: Any, expected: np.ndarray, tolerance: float) -> None:
    np.testing.assert_allclose(ours.numpy(), expected, rtol=tolerance, atol=1e-300, equal_nan=True)


REAL = {
    "i0": S.i0, "i0e": S.i0e, "i1": S.i1, "i1e": S.i1e, "bessel_j0": S.j0, "bessel_j1": S.j1, "bessel_y0": S.y0, "bessel_y1": S.y1,
    "modified_bessel_i0": S.i0, "modified_bessel_i1": S.i1, "modified_bessel_k0": S.k0, "modified_bessel_k1": S.k1,
    "scaled_modified_bessel_k0": S.k0e, "scaled_modified_bessel_k1": S.k1e, "erfcx": S.erfcx, "ndtr": S.ndtr, "log_ndtr": S.log_ndtr,
    "airy_ai": lambda x: S.airy(x)[0], "entr": S.entr, "spherical_bessel_j0": lambda x: S.spherical_jn(0, x), "expit": S.expit,
    "psi": S.psi, "erf": S.erf, "erfc": S.erfc, "expm1": S.expm1, "exp2": S.exp2,
}  # fmt: skip


@pytest.mark.parametrize("name", REAL)
def test_values(name: str) -> None:
    x = LINE[np.abs(LINE) < 40] if name == "spherical_bessel_j0" else LINE
    with np.errstate(all="ignore"):
        expected = REAL[name](x)
    if name == "psi":
        x, expected = x[x > 0], expected[x > 0]
    close(getattr(ft.special, name)(ft.tensor(x)), expected, 1e-12)


@pytest.mark.parametrize("name", [n for n in REAL if n not in ("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "airy_ai")])
def test_float32(name: str) -> None:
    x = LINE[np.isfinite(LINE)].astype(np.float32)
    x = x[np.abs(x) < 25] if name != "psi" else x[x > 0.1]
    ours = getattr(ft.special, name)(ft.tensor(x))
    assert ours.dtype is ft.float32
    with np.errstate(all="ignore"):
        expected = REAL[name](x.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(ours.numpy(), expected, rtol=2e-5, atol=1e-30)


def test_infinities() -> None:
    close(ft.special.spherical_bessel_j0(ft.tensor([math.inf, -math.inf, math.nan])), np.array([0.0, 0.0, math.nan]), 0)
    close(ft.special.ndtri(ft.tensor(UNIT)), S.ndtri(UNIT), 1e-12)


DIFFERENTIABLE = ("i0", "i0e", "i1", "i1e", "erfcx", "ndtr", "log_ndtr", "expit", "psi", "gammaln", "sinc", "expm1", "erf")


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients(name: str) -> None:
    x = np.concatenate([np.linspace(0.3, 12, 9), np.linspace(-4.7, -0.35, 9)])
    check(lambda m, a: getattr(m.special, name)(a), [x], tolerance=1e-8)


def test_gradients_on_the_unit_interval() -> None:
    p = np.linspace(0.02, 0.98, 13)
    for name in ("ndtri", "entr", "logit", "erfinv"):
        check(lambda m, a, n=name: getattr(m.special, n)(a), [p], tolerance=1e-8)
    check(lambda m, a: m.special.i0(a), [np.zeros(2)])
    check(lambda m, a, b: m.special.xlog1py(a, b), [np.array([0.0, 1.0, 2.0]), np.array([0.5, 0.7, 1.5])])
    check(lambda m, a, b: m.special.xlogy(a, b), [np.array([0.0, 1.0, 2.0]), np.array([0.5, 0.7, 1.5])])
    check(lambda m, a, b: m.xlogy(a, b), [np.zeros(4), np.array([0.0, math.inf, math.nan, -1.0])], grad=False)
    check(lambda m, a: m.special.xlog1py(a, 2.0), [np.array([0.0, 1.0, 2.0])])
    check(lambda m, a: m.special.xlog1py(0.0, a), [np.array([-3.0, math.nan, 2.0])], grad=False)


@pytest.mark.parametrize("name", ["bessel_j0", "modified_bessel_k1", "airy_ai", "hermite_polynomial_h"])
def test_no_gradient_as_in_pytorch(name: str) -> None:
    arguments = (3,) if "polynomial" in name else ()
    for m in (ft, torch):
        assert not getattr(m.special, name)(m.ones(2, requires_grad=True), *arguments).requires_grad


# -- gamma --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("n", [0, 1, 2, 3, 5, 9])
def test_polygamma(n: int) -> None:
    positive = np.abs(LINE)[(np.abs(LINE) > 0) & (np.abs(LINE) < math.inf)]  # at infinity PyTorch has NaN
    close(ft.special.polygamma(n, ft.tensor(positive)), S.polygamma(n, positive), 1e-12)
    negative = np.linspace(-9.9, 0.4, 57)
    theirs = torch.special.polygamma(n, torch.tensor(negative)).numpy()
    close(ft.polygamma(n, ft.tensor(negative)), theirs, 1e-9)
    check(lambda m, a: m.polygamma(n, a), [np.array([0.7, 2.0, 5.5])], tolerance=1e-8)
    assert ft.tensor([2.0]).polygamma_(n).item() == ft.tensor([2.0]).polygamma(n).item()


def test_zeta() -> None:
    s, q = GENERATOR.uniform(1.01, 30, 300), GENERATOR.uniform(0.01, 50, 300)
    close(ft.special.zeta(ft.tensor(s), ft.tensor(q)), S.zeta(s, q), 1e-12)
    s, q = np.round(s) + 1, GENERATOR.uniform(-12, 0, 300)
    close(ft.special.zeta(ft.tensor(s), ft.tensor(q)), torch.special.zeta(torch.tensor(s), torch.tensor(q)).numpy(), 1e-12)
    s, q = np.array([1.0, 0.5, 2.0, 2.5, math.nan, 2.0]), np.array([1.0, 1.0, -3.0, -0.5, 1.0, math.nan])
    close(ft.special.zeta(ft.tensor(s), ft.tensor(q)), torch.special.zeta(torch.tensor(s), torch.tensor(q)).numpy(), 1e-12)
    check(lambda m, a: m.special.zeta(3, a), [np.array([0.5, 2.0, 7.0])], tolerance=1e-8)
    check(lambda m, a: m.special.zeta(a, 2.0), [np.array([1.5, 2.0, 7.0])], grad=False)


@pytest.mark.parametrize("top", [2, 30, 300, 5000])
def test_incomplete_gamma(top: int) -> None:
    a = GENERATOR.uniform(0.01, top, 400)
    x = a * np.exp(GENERATOR.normal(size=400) * (0.8 if top < 100 else 0.1))
    close(ft.special.gammainc(ft.tensor(a), ft.tensor(x)), S.gammainc(a, x), 1e-10)
    close(ft.special.gammaincc(ft.tensor(a), ft.tensor(x)), S.gammaincc(a, x), 1e-10)


def test_incomplete_gamma_at_the_ends() -> None:
    grid = (0.0, 1.0, 2.0, math.inf, -1.0, math.nan)
    a, x = (np.array(v) for v in zip(*[(a, x) for a in grid for x in grid], strict=True))
    for name in ("gammainc", "gammaincc"):
        close(getattr(ft.special, name)(ft.tensor(a), ft.tensor(x)), getattr(S, name)(a, x), 1e-12)
    for name in ("igamma", "igammac"):
        check(lambda m, x, n=name: getattr(m, n)(m.full((1,), 2.5, dtype=m.float64), x), [np.array([0.5, 2.0, 7.0])], tolerance=1e-8)
        check(lambda m, x, n=name: getattr(m.ones(3, 1, dtype=m.float64), n)(x), [np.array([0.5, 2.0])], tolerance=1e-8)


# -- polynomials ----------------------------------------------------------------------------------------------------
POLYNOMIALS = sorted(n for n in dir(torch.special) if "_polynomial_" in n)


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials(name: str) -> None:
    x = np.concatenate([np.linspace(-0.95, 0.95, 7), [1.0, -1.0, 1.5]])
    for n in (0, 1, 2, 3, 5, 12):
        check(lambda m, a, n=n: getattr(m.special, name)(a, n), [x], grad=False, tolerance=1e-8)
    n = np.arange(10) % 6
    check(lambda m, a, k: getattr(m.special, name)(a, k), [x, n], grad=False, tolerance=1e-8)
    check(lambda m, a, k: getattr(m.special, name)(a, k), [x, n - 1.0], grad=False, tolerance=1e-8)
    compare(getattr(ft.special, name)(0.5, ft.tensor([0, 1, 4])), getattr(torch.special, name)(0.5, torch.tensor([0, 1, 4])), 1e-5)


@pytest.mark.parametrize("letter", "tuvw")
def test_chebyshev_polynomials_of_high_order(letter: str) -> None:
    x = np.concatenate([np.linspace(-0.95, 0.95, 8), [1.0, -1.0]])
    for n in (60, 101):
        check(lambda m, a, n=n: getattr(m.special, f"chebyshev_polynomial_{letter}")(a, n), [x], grad=False, tolerance=1e-9)
    orders = np.arange(10) * 9.0
    check(lambda m, a, k: getattr(m.special, f"chebyshev_polynomial_{letter}")(a, k), [x, orders], grad=False, tolerance=1e-9)
    outside = np.array([1.02, -1.03, 1.1])
    close(ft.special.chebyshev_polynomial_t(ft.tensor(outside), 61), S.eval_chebyt(61, outside), 1e-10)
    close(ft.special.chebyshev_polynomial_u(ft.tensor(outside), 61), S.eval_chebyu(61, outside), 1e-10)


def test_every_name() -> None:
    ours = {n for n in dir(torch.special) if not n.startswith("_")} - {"Tensor", "torch", "common_args", "multi_dim_common"}
    assert not [n for n in sorted(ours) if not hasattr(ft.special, n)]
    for name in ("softmax", "log_softmax", "logsumexp"):
        check(lambda m, a, n=name: getattr(m.special, n)(a, 1), [GENERATOR.normal(size=(3, 4))])
    check(lambda m, a: m.special.multigammaln(a, 2), [np.array([2.0, 5.0])])
    check(lambda m, a: m.special.round(a, decimals=1), [np.array([2.04, 5.08])])
    with pytest.raises(AttributeError, match=r"torch\.special"):
        ft.special.nothing
    compare(ft.i0(ft.arange(3)), torch.i0(torch.arange(3)), 1e-6)
    out = ft.empty(3)
    assert ft.special.erfcx(ft.ones(3), out=out) is out


@pytest.mark.parametrize(("name", "exact"), [("laguerre_polynomial_l", S.eval_laguerre), ("legendre_polynomial_p", S.eval_legendre)])
def test_polynomials_of_huge_order(name: str, exact: Callable[[int, float], float]) -> None:
    """The terms of a step nearly cancel: in float32 a million of them would leave nothing but rounding errors."""
    for n in (100, 100_000, 10_000_000):
        for kind, digits in (("float32", 1e-6), ("float64", 1e-8)):
            assert getattr(ft.special, name)(ft.tensor(0.5, dtype=getattr(ft, kind)), n).item() == pytest.approx(exact(n, 0.5), rel=digits), (n, kind)
