"""Complex functions at zeros of both signs, infinities, NaN, on branch cuts and where parts overflow: PyTorch's values and slopes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")

PARTS = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 100.0, -100.0, 800.0, -800.0, math.inf, -math.inf, math.nan]
FUNCTIONS = [
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
    "tanh", "asinh", "acosh", "atanh", "sigmoid", "abs", "angle", "sgn", "square", "neg", "conj_physical",
]  # fmt: skip
DTYPES = {"complex64": 2e-5, "complex128": 1e-12}
# PyTorch loses the infinity of log's own value in log1p, and divides by an infinite 1 + exp(-x) in sigmoid: NaN where we have a number
NUMBERS_FOR_NAN = {"log1p", "sigmoid"}


def _grid(parts: list[float], dtype: str) -> np.ndarray[Any, Any]:
    pairs = np.array(list(itertools.product(parts, parts)))
    return np.ascontiguousarray(pairs).view(np.complex128).reshape(-1).astype(dtype)


def _same(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], tolerance: float, signs: bool) -> np.ndarray[Any, Any]:
    """Element by element: both parts NaN, equal (zeros by sign), or finite and near."""
    kind = a.real.dtype
    a, b = (np.ascontiguousarray(x).view(kind).reshape(len(x), -1) for x in (a, b))
    with np.errstate(invalid="ignore"):
        near = np.isfinite(a) & np.isfinite(b) & (np.abs(a - b) <= tolerance * (1 + np.abs(a)))
    equal = (np.isnan(a) & np.isnan(b)) | (a == b) | near
    if signs:
        equal &= ~((a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b)))
    return equal.all(1)


def _by_element_and_by_vector(f: Callable[..., Any], *arrays: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """PyTorch's answers element by element, and those of its vector code."""
    single = [f(*(torch.tensor(a[i : i + 1]) for a in arrays)).numpy() for i in range(len(arrays[0]))]
    return [np.concatenate(single), f(*(torch.tensor(np.repeat(a, 16)) for a in arrays)).numpy()[::16]]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_at_special_points(name: str, dtype: str) -> None:
    grid = _grid(PARTS, dtype)
    expected = _by_element_and_by_vector(getattr(torch, name), grid)
    got = getattr(flambeau, name)(flambeau.tensor(grid)).numpy()
    signs = (name, dtype) != ("acos", "complex128")  # PyTorch's vectors of complex128 lose a sign that its complex64 has
    right = np.any([_same(e, got, DTYPES[dtype], signs) for e in expected], axis=0)
    if name in NUMBERS_FOR_NAN:
        right |= np.isnan(expected[0].real) & np.isnan(expected[0].imag) & ~np.isnan(got.real)
    assert right.all(), [(complex(x), complex(e), complex(g)) for x, e, g in zip(grid[~right], expected[0][~right], got[~right], strict=True)][:8]


def _slope(module: Any, name: str, grid: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    x = module.tensor(grid, requires_grad=True)
    y = getattr(module, name)(x)
    y.backward(module.ones_like(y))
    return np.asarray(x.grad.resolve_conj().numpy())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_slopes_at_special_points(name: str, dtype: str) -> None:
    grid = _grid(PARTS, dtype)
    expected, got = _slope(torch, name, grid), _slope(flambeau, name, grid)
    right = _same(expected, got, DTYPES[dtype], signs=False) | ~np.isfinite(expected)
    if name == "acosh":  # on the lower side of its cut PyTorch has the slope of the upper side
        right |= _same(-expected, got, DTYPES[dtype], signs=False) & (grid.imag == 0) & np.signbit(grid.imag)
    assert right.all(), [(complex(x), complex(e), complex(g)) for x, e, g in zip(grid[~right], expected[~right], got[~right], strict=True)][:8]


@pytest.mark.parametrize("dtype", DTYPES)
def test_quotients_and_products_at_special_points(dtype: str) -> None:
    grid = _grid([0.0, -0.0, 1.0, -1.5, math.inf, -math.inf, math.nan], dtype)
    a, b = np.repeat(grid, len(grid)), np.tile(grid, len(grid))
    for name in ("div", "mul"):
        expected = getattr(torch, name)(torch.tensor(a), torch.tensor(b)).numpy()
        right = _same(expected, getattr(flambeau, name)(flambeau.tensor(a), flambeau.tensor(b)).numpy(), DTYPES[dtype], signs=True)
        assert right.all(), (name, [(complex(x), complex(y)) for x, y in zip(a[~right], b[~right], strict=True)][:8])


@pytest.mark.parametrize(("dtype", "tolerance"), [("complex64", 1e-6), ("complex128", 1e-14)])
def test_small_part_of_tanh_far_out(dtype: str, tolerance: float) -> None:
    """4 e^(-2x) sin y cos y, relative to itself."""
    x, y = np.meshgrid(np.array([12.0, 19.0, 21.0, 25.0, 38.0]), np.array([0.3, 1.0, 2.0, -2.8]))
    exact = 4 * np.exp(-2 * x) * np.sin(y) * np.cos(y)
    z = flambeau.tensor((x + 1j * y).astype(dtype))
    got = flambeau.tanh(z).numpy()
    np.testing.assert_allclose(got.imag, exact, rtol=tolerance + 4 * np.exp(-2 * x.min()))
    np.testing.assert_allclose(got.real, 1, atol=1e-10)
    np.testing.assert_allclose(flambeau.tan(z * 1j).numpy().imag, 1, atol=1e-10)
    far = flambeau.tanh(flambeau.tensor([45.0 + math.pi / 2 * 1j, -60 + 1j], dtype=getattr(flambeau, dtype))).numpy()
    np.testing.assert_array_equal(far.real, [1, -1])
    if dtype == "complex128":
        np.testing.assert_allclose(far.imag[1], 4 * math.exp(-120) * math.sin(1) * math.cos(1), rtol=tolerance)
