"""Gradients of gradients at views that tensors keep, where a value was looked at on the way: what uses a view leads to it, not only to what it is a view of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")

VIEWS: dict[str, Callable[[Any], Any]] = {
    "view_as": lambda x: x.view_as(x),
    "all": lambda x: x[:],
    "unsqueeze": lambda x: x.unsqueeze(0),
    "transposed": lambda x: x.unsqueeze(-1).transpose(0, -1),
    "narrow": lambda x: x.narrow(-1, 0, 2),
    "flipped": lambda x: x.flip(-1),
    "expanded": lambda x: x.expand(2, *x.shape),
    "reshaped": lambda x: x.reshape(1, *x.shape),
    "select": lambda x: x.unsqueeze(0).select(0, 0),
    "diagonal": lambda x: x.unsqueeze(-1).expand(*x.shape, x.shape[-1]).diagonal(0, -2, -1),
    "cast": lambda x: x.double(),
    "no view": lambda x: x * 1,
    "split": lambda x: x.split(2, -1)[0],
}


def _looked_at(x: Any) -> Any:
    x.detach().sum().item()
    return x


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "product": lambda x: _looked_at(x * x) * 2,
    "sine": lambda x: _looked_at(x.sin()).sin(),
    "of the view": lambda x: _looked_at(x).exp(),
    "twice": lambda x: _looked_at(_looked_at(x * x).exp()) + x,
    "parts": lambda x: _looked_at(x[..., :1] * x) * x[..., 1:],
}


def _gradients(m: Any, view: str, function: str) -> list[Any]:
    x = m.tensor([0.7, 0.3], dtype=m.float64, requires_grad=True)
    first = VIEWS[view](x)
    second = VIEWS[view](first)
    (g,) = m.autograd.grad(FUNCTIONS[function](second).pow(2).sum(), second, create_graph=True)
    (h,) = m.autograd.grad(g.pow(2).sum(), first, create_graph=True)
    (k,) = m.autograd.grad(h.pow(2).sum(), x)
    return [np.asarray(t.tolist()) for t in (g, h, k)]


@pytest.mark.parametrize("view", VIEWS)
def test_gradients_of_gradients_at_views(view: str, each_tier: str) -> None:
    for function in FUNCTIONS:
        if function == "parts" and VIEWS[view](VIEWS[view](torch.ones(2))).shape[-1] < 2:
            continue
        expected = _gradients(torch, view, function)
        for _ in range(3):  # learned after the first times
            for ours, theirs in zip(_gradients(flambeau, view, function), expected, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-11, err_msg=function)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_nested_transforms(function: str, each_tier: str) -> None:
    def gradient(m: Any, f: Any, order: int) -> Any:
        for _ in range(order):
            f = (lambda inner: lambda x: m.func.grad(lambda y: inner(y).pow(2).sum())(x))(f)
        return np.asarray(f(m.tensor([0.7, 0.3], dtype=m.float64)).tolist())

    for order in (1, 2, 3, 4):
        expected = gradient(torch, FUNCTIONS[function], order)
        for _ in range(2):
            np.testing.assert_allclose(gradient(flambeau, FUNCTIONS[function], order), expected, rtol=1e-9)
