"""Gradients of gradients have the same bits in every tier: what adds up to one gradient is added in one order, wherever traces end.

Where a trace has ended, views that calls have made for themselves are made again, and the gradient of a leaf is handed on before it is whole. Neither must
show.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as ft
import flambeau.nn.functional as F
from flambeau.trace import tiers

ORDERS = 3
FUNCTIONS: tuple[Callable[[Any], Any], ...] = (
    ft.tanh, ft.sigmoid, F.silu, F.gelu, F.softplus, ft.sin, lambda x: x * x, lambda x: (-x * x).exp(), lambda x: F.log_softmax(x, -1),
    lambda x: F.layer_norm(x, x.shape[-1:]), lambda x: x / (1 + x.abs()), lambda x: x.softmax(-1), lambda x: x - x.mean(-1, keepdim=True),
    lambda x: F.normalize(x, dim=-1), lambda x: x.cumsum(-1) * 0.1,
)  # fmt: skip
LAYERS: tuple[Callable[[Any, Any, Any], Any], ...] = (lambda x, w, b: x @ w + b, F.linear, lambda x, w, b: x * b, lambda x, w, b: x)


def gradients(layers: list[tuple[int, int, bool]], rows: int, features: int, dtype: Any) -> list[bytes]:
    """The bits of a network's gradients of all orders. A layer: which, the function after it, and whether its input is added."""
    generator = np.random.default_rng(rows)
    x, *numbers = (
        ft.tensor(generator.normal(size=shape), dtype=dtype, requires_grad=True) for shape in ((rows, features), *((features, features), (features,)) * 2)
    )
    weights, biases = numbers[::2], numbers[1::2]
    h = x
    for i, (layer, function, adds) in enumerate(layers):
        r = FUNCTIONS[function](LAYERS[layer](h, weights[i % 2], biases[i % 2]))
        h = h + r if adds else r
    total: Any = (h * h).sum()
    found: list[Any] = [total]
    leaves = [x, *numbers]
    for order in range(ORDERS):
        if not total.requires_grad:
            break
        last = ft.autograd.grad(total, leaves, create_graph=order < ORDERS - 1, allow_unused=True)
        found += [g for g in last if g is not None]
        total = sum((g * g).sum() for g in last if g is not None)
    return [g.detach().numpy().tobytes() for g in found]


def in_tier(tier: str, *network: Any) -> list[bytes]:
    before, tiers.MODE[0] = tiers.MODE[0], tier
    try:
        return gradients(*network)
    finally:
        tiers.MODE[0] = before


@settings(max_examples=8, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, len(LAYERS) - 1), st.integers(0, len(FUNCTIONS) - 1), st.booleans()), min_size=1, max_size=3),
    st.integers(1, 4), st.integers(2, 6), st.sampled_from([ft.float32, ft.float64]),
)  # fmt: skip
def test_networks(layers: list[tuple[int, int, bool]], rows: int, features: int, dtype: Any) -> None:
    whole = in_tier(tiers.WHOLE, layers, rows, features, dtype)
    assert in_tier(tiers.PIECES, layers, rows, features, dtype) == whole
    for _ in range(4):  # it becomes known on the way
        assert in_tier(tiers.MIXED, layers, rows, features, dtype) == whole


@pytest.mark.parametrize("layer", range(2))
@pytest.mark.parametrize("adds", [False, True])
def test_products(layer: int, adds: bool) -> None:
    """A product's gradients have views of its factors; a sum's gradient is two leaves' at once."""
    network = [(layer, 6, adds)] * 2, 4, 3, ft.float64
    assert in_tier(tiers.PIECES, *network) == in_tier(tiers.WHOLE, *network)


def test_gradients_of_two_leaves_have_memory_of_their_own() -> None:
    x, y = (ft.ones(2, 3, requires_grad=True) for _ in range(2))
    seed = ft.ones(2, 3)
    a: Any
    b: Any
    c: Any
    a, b = ft.autograd.grad(x + y, [x, y], seed, create_graph=True)
    (c,) = ft.autograd.grad(x.t(), x, ft.ones(3, 2), create_graph=True)
    assert c.is_contiguous()
    a.mul_(2.0)
    assert b.tolist() == seed.tolist() == [[1.0] * 3] * 2
