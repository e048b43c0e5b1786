"""Tensors that are detached in place, and detached tensors that are written to with gradients, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch")


def truncated(t: Any, w: Any) -> Any:
    """A recurrence that is cut every second step."""
    h = t.zeros(3)
    for step in range(6):
        h = t.tanh(h + w)
        if step % 2:
            h.detach_()
    return (h * w).sum(), h.requires_grad, h.is_leaf


def attack(t: Any, w: Any) -> Any:
    """Projected gradient steps: what a step makes is detached and requires gradients again."""
    x = t.linspace(0, 1, 3)
    start = x.data
    for _ in range(3):
        x.requires_grad = True
        (x * x * w).sum().backward()
        x = t.clamp(start + t.clamp(x + 0.1 * x.grad - start, min=-0.3, max=0.3), min=0, max=1).detach_()
    return (x * w).sum(), x.tolist(), x.requires_grad


def observed(t: Any, w: Any) -> Any:
    y = w * 2
    y.tolist()
    y.detach_()
    return (y * w).sum(), y.requires_grad


def leaf_again(t: Any, w: Any) -> Any:
    y = (w * 2).detach_().requires_grad_()
    (y * y).sum().backward()
    return (w * y.grad).sum(), y.is_leaf


def view_keeps_its_history(t: Any, w: Any) -> Any:
    y = w * 2
    z = y[1:]
    y.detach_()
    return (z * z).sum() + (y * w).sum(), y.requires_grad


def rows_of_a_memory(t: Any, w: Any) -> Any:
    memory = t.ones(4, 3).detach()
    memory[1] = w * 2
    memory[2] += w
    return (memory * memory).sum(), memory.requires_grad


def memory_of_a_value_with_history(t: Any, w: Any) -> Any:
    memory = (w * 5).detach()
    memory[0] = w[1] * 3
    return (memory * memory).sum(), memory.requires_grad


def whole(t: Any, w: Any) -> Any:
    d = (w * 5).detach()
    d.add_(w)
    e = d.view(3, 1)
    return (e * e).sum(), d.requires_grad


def constant_into_detached(t: Any, w: Any) -> Any:
    a = w * 5
    d = a.detach()
    d[0] = 7.0
    return a.sum(), a.tolist(), d.requires_grad


@pytest.mark.parametrize(
    "program",
    [truncated, attack, observed, leaf_again, view_keeps_its_history, rows_of_a_memory, memory_of_a_value_with_history, whole, constant_into_detached],
    ids=lambda f: f.__name__,
)
def test_detached(program: Callable[[Any, Any], Any]) -> None:
    found = []
    for t in (torch, flambeau, flambeau):
        w = t.tensor([0.5, -1.0, 2.0], requires_grad=True)
        loss, *rest = program(t, w)
        loss.backward()
        found.append(([loss.item(), *w.grad.tolist()], rest))
    for numbers, rest in found[1:]:
        assert numbers == pytest.approx(found[0][0], rel=1e-5)
        assert [r if isinstance(r, bool) else pytest.approx(r) for r in rest] == found[0][1]


def test_views_are_not_detached_in_place() -> None:
    for t in (torch, flambeau):
        y = t.ones(3, requires_grad=True) * 2
        with pytest.raises(RuntimeError, match="detach views in-place"):
            y[1:].detach_()
