"""Fake quantization against PyTorch: values, gradients, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau
from tests.ops.oracle import torch

DATA = np.concatenate([np.linspace(-2, 2, 41), [0.05, 0.15, 0.25, 1e9, -1e9]]).astype(np.float32).reshape(2, 23)
CALLS = {
    "numbers": lambda t, x: t.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 15),
    "signed": lambda t, x: t.fake_quantize_per_tensor_affine(x, 0.0173, 0, -128, 127),
    "tensors": lambda t, x: t.fake_quantize_per_tensor_affine(x, t.tensor([0.3]), t.tensor([1], dtype=t.int32), 0, 7),
    "rows": lambda t, x: t.fake_quantize_per_channel_affine(x, t.tensor([0.1, 0.02]), t.tensor([0, 4], dtype=t.int32), 0, 0, 15),
    "columns": lambda t, x: t.fake_quantize_per_channel_affine(x, t.arange(1.0, 24) / 30, t.zeros(23, dtype=t.int32), 1, -8, 7),
}


@pytest.mark.parametrize("name", CALLS)
def test_values_and_gradients(name: str) -> None:
    found: list[Any] = []
    for t in (flambeau, torch):
        x = t.tensor(DATA, requires_grad=True)
        y = CALLS[name](t, x)
        (y * y).sum().backward()
        found.append((y.detach().numpy(), x.grad.numpy()))
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_errors() -> None:
    for t in (flambeau, torch):
        with pytest.raises(RuntimeError, match="quant_min"):
            t.fake_quantize_per_tensor_affine(t.ones(2), 0.1, 0, 5, 1)
        with pytest.raises(RuntimeError):
            t.fake_quantize_per_channel_affine(t.ones(2, 3), t.ones(2), t.zeros(2, dtype=t.int32), 1, 0, 7)
