"""Ranges that programs compare with or look up by: bit for bit those of PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")
LENGTHS = [0, 1, 2, 3, 7, 16, 28, 33, 40, 100, 1000]


@pytest.mark.parametrize(("start", "end"), [(-1, 1), (0, 1), (0.1, 7.3), (5, -4)])
def test_linspace(start: float, end: float) -> None:
    for n in LENGTHS:
        assert np.array_equal(flambeau.linspace(start, end, n).numpy(), torch.linspace(start, end, n).numpy()), n


@pytest.mark.parametrize("align_corners", [False, True])
def test_grid_of_the_identity(align_corners: bool) -> None:
    """Its points lie on pixels: which pixel is below a point, and so the gradient of grid_sample, is decided by rounding."""
    theta = torch.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    for n in LENGTHS[1:-2]:
        expected = torch.nn.functional.affine_grid(theta, (1, 1, n, n), align_corners=align_corners)
        got = flambeau.nn.functional.affine_grid(flambeau.tensor(theta.numpy()), (1, 1, n, n), align_corners=align_corners)
        assert np.array_equal(got.numpy(), expected.numpy()), n
