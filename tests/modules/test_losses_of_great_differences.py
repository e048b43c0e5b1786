"""Losses that are quadratic near 0 and linear beyond: gradients of infinite and NaN differences, and on the border, are PyTorch's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")

X = [math.inf, -math.inf, 1e300, 0.0, 1.0, -1.0, 0.25, math.nan, 2.0, math.inf]
Y = [0.0, 0.0, 0.0, math.inf, 0.0, 0.0, 0.0, 0.0, 2.0, math.inf]


@pytest.mark.parametrize("limit", [1.0, 0.25, 3.0])
@pytest.mark.parametrize("name", ["huber_loss", "smooth_l1_loss"])
def test_gradients(name: str, limit: float) -> None:
    found: list[Any] = []
    for m in (torch, flambeau):
        x, y = (m.tensor(data, dtype=m.float64, requires_grad=True) for data in (X, Y))
        options = {"delta" if name == "huber_loss" else "beta": limit}
        loss = getattr(m.nn.functional, name)(x, y, reduction="none", **options)
        first = m.autograd.grad(loss.sum(), (x, y), create_graph=True)
        second = m.autograd.grad((first[0] * 2 - first[1]).sum(), (x, y))
        number = ~np.isnan(loss.detach().numpy())  # of no number PyTorch's second derivative is 0, ours that of near ones
        found.append([t.detach().numpy() for t in (loss, *first)] + [t.numpy()[number] for t in second])
    for theirs, ours in zip(*found, strict=True):
        assert np.allclose(theirs, ours, equal_nan=True), (theirs, ours)
