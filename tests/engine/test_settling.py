"""Loops without an optimizer's step: they settle (no new plans), keep no earlier segments alive, and give PyTorch's numbers."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as ft
from flambeau.autograd.segment import Segment

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("whole", "short_collections")


def cube(t: Any) -> Any:
    class Cube(t.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x**3 - 0.5 * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * (3 * x**2 - 0.5)

    return Cube.apply


def train(t: Any, steps: int, look: bool, function: Callable[[Any], Any], after: Callable[[int], None]) -> list[float]:
    """Fit a + b f(c + d x) to a sine by hand-written gradient descent."""
    x = t.linspace(-1.0, 1.0, 50)
    y = t.sin(3 * x)
    a, b, c, d = (t.full((), v, requires_grad=True) for v in (0.1, -1.0, 0.2, 0.3))
    losses = []
    for step in range(steps):
        loss = (a + b * function(c + d * x) - y).pow(2).sum()
        if look:
            losses.append(float(loss))
        loss.backward()
        with t.no_grad():
            for p in (a, b, c, d):
                p -= 1e-3 * (step + 1) * p.grad
                p.grad = None
        after(step)
    return [*losses, *[float(p) for p in (a, b, c, d)]]


@pytest.mark.parametrize("look", [True, False], ids=["looks", "blind"])
@pytest.mark.parametrize("custom", [True, False], ids=["custom", "plain"])
def test_loop_settles(look: bool, custom: bool) -> None:
    plans: list[int] = []
    segments: list[int] = []

    def after(step: int) -> None:
        if step in (8, 15):  # seconds each, late in a long test process
            gc.collect()
            plans.append(ft.stats()["plans_made"])
            segments.append(sum(type(o) is Segment for o in gc.get_objects()))

    found = train(ft, 16, look, cube(ft) if custom else ft.sin, after)
    expected = train(torch, 16, look, cube(torch) if custom else torch.sin, lambda step: None)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    if look or custom:  # a loop that never looks ends its traces where they get long
        assert plans[0] == plans[1], plans
        assert segments[0] == segments[1], segments


def test_tapes_tell_signed_zeros_apart() -> None:
    for step in range(4):
        zero = -0.0 if step % 2 else 0.0
        x = ft.tensor([2.0], requires_grad=True)
        y = ft.full((1,), zero) * x
        assert float(y) == 0.0
        y.backward()
        assert str(float(x.grad)) == str(zero)
