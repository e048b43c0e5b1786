"""histogramdd and __rdiv__ against PyTorch."""

from __future__ import annotations

import pytest

import flambeau as ft
from tests.nn.oracle import raises_as_torch
from tests.ops.oracle import arrays, check

torch = pytest.importorskip("torch")


def _edges(m, x):
    return [m.tensor([-2.0, -0.5, 1.0, 2.0], dtype=x.dtype), m.tensor([-3.0, 0.0, 1.5], dtype=x.dtype)]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_histogramdd(dtype):
    check(lambda m, x, w: (
        m.histogramdd(x, 3), m.histogramdd(x, [3, 2], range=[-1.0, 1.0, 0.0, 2.0]), m.histogramdd(x, [4, 5], weight=w, density=True),
        m.histogramdd(x, _edges(m, x)), m.histogramdd(x.reshape(5, 8, 2), 2, weight=w.reshape(5, 8)), m.histogramdd(x[:1], 2),
        m.histogramdd(m.tensor([[0.0, 1.0], [1.0, 0.0], [0.5, float("nan")]], dtype=x.dtype), 2, range=[0.0, 1.0, 0.0, 1.0]),
    ), arrays((40, 2), (40,), dtype=dtype), grad=False, tolerance=1e-6)  # fmt: skip


def test_histogramdd_errors():
    x = torch.rand(4, 2)
    for arguments, options in (((x[0], 3), {}), ((x, [1, 2, 3]), {}), ((x, [0, 1]), {}), ((x, 2), {"range": [0.0, 1.0]}),
                               ((x, 2), {"weight": x}), ((x, 2), {"range": [1.0, 0.0, 0.0, 1.0]}), ((x.long(), 2), {})):  # fmt: skip
        raises_as_torch(ft.histogramdd, torch.histogramdd, *arguments, **options)


def test_rdiv():
    assert ft.tensor([2.0, 4.0]).__rdiv__(1).tolist() == torch.tensor([2.0, 4.0]).__rdiv__(1).tolist()
