"""Fused programs that once went wrong, against the same programs unfused."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as ft
from flambeau.compiler.pipeline import disabled
from flambeau.trace.recorder import local

F = ft.nn.functional


def _feed_forward() -> list[np.ndarray]:
    """Two linear layers with gelu between: the gradient's epilogue reads a second operand of its own shape."""
    ft.manual_seed(0)
    x, w1, b1, w2 = ft.randn(30, 24), ft.randn(40, 24), ft.randn(40), ft.randn(16, 40)
    parameters = [t.requires_grad_() for t in (w1, b1, w2)]
    F.linear(F.gelu(F.linear(x, w1, b1)), w2).sum().backward()
    return [t.grad.numpy() for t in parameters]


def _causal_scores() -> list[np.ndarray]:
    """One range read as rows and as columns."""
    ft.manual_seed(0)
    scores, index = ft.randn(3, 20, 20), ft.arange(20)
    masked = ft.where(index.unsqueeze(1) >= index, scores, float("-inf"))
    return [masked.softmax(-1).numpy(), ft.where(index.unsqueeze(1) >= index, 1, 0).numpy()]


def _row_and_column_sums() -> list[np.ndarray]:
    """One computed matrix reduced along both dims, then combined: two reductions that no kernel can share."""
    ft.manual_seed(0)
    scores, scale = ft.randn(5, 5), ft.rand(5).add_(1.0).requires_grad_()
    doubled = scores * 2
    (scores / scale.unsqueeze(1) / scale.unsqueeze(0) * scores.exp()).sum().backward()
    return [(doubled.sum(1) - doubled.sum(0)).numpy(), scale.grad.numpy()]  # type: ignore[union-attr]


@pytest.mark.parametrize("program", [_feed_forward, _causal_scores, _row_and_column_sums])
def test_fused_equals_unfused(program: object) -> None:
    fused = program()  # type: ignore[operator]
    local.trace.roots.clear()  # forget the plans, so that the program is compiled again
    local.trace.root = local.trace._root_for_mode()
    local.trace.reset()
    with disabled("fuse"):
        unfused = program()  # type: ignore[operator]
    for a, b in zip(fused, unfused, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)
