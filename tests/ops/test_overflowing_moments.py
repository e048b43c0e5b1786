"""Variances of float64 whose squares overflow, and distances that count (p = 0), beside PyTorch."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")
NAN, INF = float("nan"), float("inf")
ROWS = ([1e200, -1e200], [1e155, -1e155, 0.0], [1e154, 1e154, 1e154, -1e154], [INF, 1.0], [-INF, INF], [NAN, 1e300], [1e308, 1e308, 0.0], [3.0], [1.0, 2.0])


@pytest.mark.parametrize("name", ["var", "std", "var_mean", "std_mean"])
@pytest.mark.parametrize("dtype", ["float64", "complex128", "float32"])
def test_moments(name: str, dtype: str) -> None:
    for row, correction, dim in itertools.product(ROWS, (0, 1), (None, 0)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ours, theirs = (_arrays(getattr(m, name)(m.tensor(row, dtype=getattr(m, dtype)), dim=dim, correction=correction)) for m in (flambeau, torch))
        for mine, other in zip(ours[:1], theirs[:1], strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-6, err_msg=f"{row} {correction} {dim}")


def test_rows_apart() -> None:
    """Each row of a matrix has its own sum: one that overflows does not spoil the others."""
    rows = np.random.default_rng(0).standard_normal((64, 300)) * np.logspace(0, 250, 64)[:, None]
    with np.errstate(over="ignore"):
        expected = rows.var(1)
    np.testing.assert_allclose(flambeau.tensor(rows).var(1, correction=0).numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(flambeau.tensor(rows.T.copy()).var(0, correction=0).numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("value", [NAN, INF, -INF, 1.0])
@pytest.mark.parametrize("n", [1, 3, 8, 9])
def test_counting_distances(value: float, n: int) -> None:
    def run(m: Any) -> list[np.ndarray]:
        a, b = m.tensor([[value] * n, [0.0] * n, [1.0] * n]), m.tensor([[value] * n, [1.0] * n])
        return _arrays((m.cdist(a, b, p=0), m.cdist(a, b, p=0.0)))

    for mine, other in zip(run(flambeau), run(torch), strict=True):
        np.testing.assert_array_equal(mine, other)
    rows = [[value] * n, [0.0] * n, [1.0] * n]
    np.testing.assert_array_equal(flambeau.pdist(flambeau.tensor(rows), 0).numpy(), torch.pdist(torch.tensor(rows), 0).numpy())


def _arrays(x: Any) -> list[np.ndarray]:
    return [a for part in x for a in _arrays(part)] if isinstance(x, tuple) else [x.numpy()]
