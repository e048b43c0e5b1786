"""Gradients of gradients through custom functions, in-place activations and checkpoints, against PyTorch."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch")
GLOBAL: dict[str, Any] = {}  # what a checkpointed function of the module reads as a global name


def _exponential(t: Any) -> Any:
    class Exponential(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.exp()

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0].exp()

    return Exponential


def _reversal(t: Any) -> Any:
    class Reversal(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, g):
            return -0.5 * g

    return Reversal


def custom(t: Any, a: Any, b: Any) -> Any:
    """The gradient that arrives depends on the function's own result."""
    y = _exponential(t).apply(a * b)
    return (y * y + y.sin()).sum()


def custom_looked_at(t: Any, a: Any, b: Any) -> Any:
    y = _exponential(t).apply(a)
    y.tolist()
    return (y * y * b).sum()


def custom_view(t: Any, a: Any, b: Any) -> Any:
    return (_exponential(t).apply(a * b).view(3, 1) ** 3).sum()


def reversal(t: Any, a: Any, b: Any) -> Any:
    return (_reversal(t).apply(a * a) ** 2 * b).sum()


def in_place(t: Any, a: Any, b: Any) -> Any:
    f = t.nn.functional
    return (f.hardswish(f.silu(a * b, inplace=True) * 2, inplace=True) ** 2).sum()


def checkpointed(t: Any, a: Any, b: Any) -> Any:
    run = importlib.import_module(f"{t.__name__}.utils.checkpoint").checkpoint
    inner = run(lambda x: t.sin(x * a), t.ones(3), use_reentrant=False)
    return (run(lambda x, w=b: t.tanh(x * w).exp(), inner, use_reentrant=False) ** 2).sum()


def checkpointed_layer(t: Any, a: Any, b: Any) -> Any:
    run = importlib.import_module(f"{t.__name__}.utils.checkpoint").checkpoint
    layer = t.nn.Linear(3, 2)
    layer.weight, layer.bias = t.nn.Parameter(t.ones(2, 3)), t.nn.Parameter(t.zeros(2))
    gradients = t.autograd.grad((run(layer, a * b, use_reentrant=False) ** 2).sum(), layer.parameters(), create_graph=True)
    return sum((g * g).sum() for g in gradients) + a.sum() * b.sum()


def _reads_a_global(x: Any) -> Any:
    return (x * GLOBAL["weights"][0]).exp()


def checkpointed_global(t: Any, a: Any, b: Any) -> Any:
    """Held by a container that the function reads by a global name: found in the backward pass (first order only)."""
    GLOBAL["weights"] = [a]
    run = importlib.import_module(f"{t.__name__}.utils.checkpoint").checkpoint
    run(_reads_a_global, b * 1, use_reentrant=False).sum().backward()
    once = a.grad.clone() + b.grad
    a.grad = b.grad = None
    return (once * a * b * b).sum()


PROGRAMS = [custom, custom_looked_at, custom_view, reversal, in_place, checkpointed, checkpointed_layer, checkpointed_global]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_second_order(program: Callable[[Any, Any, Any], Any]) -> None:
    found = []
    for t in (torch, flambeau, flambeau):
        a = t.tensor([0.5, -1.0, 0.8], requires_grad=True)
        b = t.tensor([0.3, 0.7, 1.1], requires_grad=True)
        inputs = {"a": a, "b": b}
        first = t.autograd.grad(program(t, a, b), inputs.values(), create_graph=True)
        sum((g * g).sum() for g in first).backward()
        found.append([x for u in (*first, a.grad, b.grad) for x in u.tolist()])
    for numbers in found[1:]:
        assert numbers == pytest.approx(found[0], rel=2e-5, abs=1e-5)
