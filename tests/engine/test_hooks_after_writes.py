"""Hooks on tensors whose memory was written through a view: they see all of the gradient, whatever was looked at or shared in between."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import flambeau as ft

torch = pytest.importorskip("torch")


def gradient(m: Any, look: bool, write: str, share: bool, early: bool, before: bool, after: bool) -> tuple[float, list[float]]:
    """The leaf's gradient, and what the hook has seen."""
    leaf = m.tensor(-1.0, requires_grad=True)
    x = leaf.sum()
    if look:
        (m.ones(()) * 2).item()
    if write == "view":
        x.transpose(0, -1).copy_(x.clone())
    elif write == "itself":
        x.mul_(2)
    elif write == "view of a view":
        x.view(1).view(()).mul_(x.clone())
    kept = x.detach().numpy() if share else None
    seen: list[float] = []

    def hook(g: Any) -> Any:
        seen.append(round(float(g), 4))
        return g * 0.5

    if early:
        x.register_hook(hook)
    y = x.sin() * 2
    if before:
        y.item()
    if not early:
        x.register_hook(hook)
    if after:
        x.item()
    ((x.to(m.float64) * 0.5).sin() + (y.to(m.float64) * 0.5).sin()).backward()
    assert kept is None or kept.shape == ()
    return leaf.grad.item(), seen


@pytest.mark.parametrize("write", ("", "view", "itself", "view of a view"))
def test_hooks_after_writes(write: str) -> None:
    for look, share, early, before, after in itertools.product((False, True), repeat=5):
        (ours, seen), (theirs, wanted) = (gradient(m, look, write, share, early, before, after) for m in (ft, torch))
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, err_msg=f"{look, share, early, before, after}")
        np.testing.assert_allclose(seen, wanted, rtol=1e-3)
