"""Convolutions of bfloat16, forward and backward: float32 sums of exact products, rounded once, whatever multiplies them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as ft
from flambeau.runtime import target, tiles

torch = pytest.importorskip("torch")
CASES = [  # dims, x, w, stride, padding, groups
    (2, (3, 64, 12, 14), (48, 64, 3, 3), 1, 1, 1), (2, (2, 40, 15, 9), (64, 40, 3, 3), 2, 1, 1), (2, (2, 64, 10, 10), (32, 64, 1, 1), 1, 0, 1),
    (2, (2, 8, 9, 9), (6, 4, 3, 3), 1, 1, 2), (2, (2, 6, 9, 9), (6, 1, 3, 3), 1, 1, 6), (1, (2, 32, 60), (40, 32, 5), 1, 2, 1),
]  # fmt: skip


def bound(exact: np.ndarray[Any, Any], magnitudes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """One rounding to bfloat16, and float32 sums of some hundreds to thousands of terms."""
    return np.abs(exact) * 2.0**-8 + magnitudes * 2.0**-15 + 2.0**-120


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("transposed", [False, True], ids=("convolution", "transposed"))
@pytest.mark.parametrize("with_bias", [False, True], ids=("", "bias"))
def test_results_and_gradients_are_rounded_once(case: tuple[Any, ...], transposed: bool, with_bias: bool) -> None:
    dims, x_shape, w_shape, stride, padding, groups = case
    if transposed:
        x_shape = (x_shape[0], w_shape[0], *x_shape[2:])
    rng = np.random.default_rng(1)
    outputs = w_shape[1] * groups if transposed else w_shape[0]
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in (x_shape, w_shape, (outputs,))]
    name = f"conv_transpose{dims}d" if transposed else f"conv{dims}d"

    def results(m: Any, kind: str, magnitudes: bool = False) -> list[Any]:
        tensors = [m.from_numpy(a).bfloat16() for a in arrays]
        tensors = [(t.double().abs() if magnitudes else t.double() if kind == "float64" else t).requires_grad_() for t in tensors]
        y = getattr(m.nn.functional, name)(tensors[0], tensors[1], tensors[2] if with_bias else None, stride=stride, padding=padding, groups=groups)
        g = m.from_numpy(np.random.default_rng(2).standard_normal(tuple(y.shape)).astype(np.float32)).bfloat16()
        y.backward(g.double().abs() if magnitudes else g.to(y.dtype))
        found = [y.detach(), *(t.grad for t in tensors[: 2 + with_bias])]
        return [r.float().numpy() if kind == "bfloat16" else r.numpy() for r in found]

    for found, exact, magnitudes in zip(results(ft, "bfloat16"), results(torch, "float64"), results(torch, "float64", True), strict=True):
        assert (np.abs(found - exact) <= bound(exact, magnitudes)).all()


@pytest.mark.skipif("bfloat16" not in target.dots() or bool(tiles.dtypes()), reason="no dot instructions of bfloat16, or a matrix unit that is preferred")
def test_what_is_fused_into_them() -> None:
    """Under autocast, with what follows: the same bits as step by step."""
    ft.manual_seed(0)
    layer, x = ft.nn.Conv2d(64, 40, 3, padding=1, bias=False), ft.randn(2, 64, 12, 12)
    with ft.autocast("cpu", dtype=ft.bfloat16):
        whole = ft.relu(layer(x)) * 2
        y = layer(x)
        assert y.dtype is ft.bfloat16
        y = ft.tensor(y.tolist()).bfloat16()
        steps = ft.relu(y) * 2
    assert ft.equal(whole, steps)
