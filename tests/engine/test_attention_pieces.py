"""Gradients of queries, keys and values that were cut out of one projection are written where their concatenation wants them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau
from flambeau.compiler import pieces, pipeline
from flambeau.compiler.fuse import Group
from flambeau.compiler.graph import Graph
from flambeau.trace.recorder import local

HEADS, LENGTH, SIZE = 3, 20, 8


def gradients(order: tuple[int, ...], split: int, also: bool = False, lead: tuple[int, ...] = (3,)) -> list[Any]:
    """Gradients of the projection's weight and input; `split`: how the width is cut; `also`: a gradient has another use."""
    flambeau.manual_seed(0)
    width = HEADS * SIZE
    x = flambeau.randn(*lead, LENGTH, width, requires_grad=True)
    weight = flambeau.randn(width, split * width, requires_grad=True)
    parts = [p.view(*lead, LENGTH, HEADS, SIZE).transpose(-3, -2) for p in (x @ weight).split(width, dim=-1)]
    q, k, v = (parts[i] for i in order)
    y = flambeau.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    loss = (y.transpose(-3, -2).reshape(*lead, LENGTH, width) ** 2).sum()
    if also:
        loss = loss + (parts[order[0]] ** 3).sum()
    loss.backward()
    return [p.grad.numpy() for p in (weight, x) if p.grad is not None]


def forget() -> None:
    """Have programs compiled again."""
    local.trace.roots.clear()
    local.trace.root = local.trace._root_for_mode()
    local.trace.reset()


@pytest.mark.parametrize(
    ("order", "split", "also", "lead", "placed"),
    [
        ((0, 1, 2), 3, False, (3,), 1), ((2, 0, 1), 3, False, (3,), 1), ((0, 1, 2), 3, False, (2, 2), 1),
        ((0, 1, 2), 3, True, (3,), 0), ((0, 1, 3), 4, False, (3,), 0), ((0, 1, 1), 3, False, (3,), 0), ((0, 1, 2), 3, False, (1,), 0),
    ],
)  # fmt: skip
def test_gradients_are_the_same(
    order: tuple[int, ...], split: int, also: bool, lead: tuple[int, ...], placed: int, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setenv("FLAMBEAU_STORED_PLANS", "0")
    found: list[int] = []
    place = pieces.place_pieces

    def counted(graph: Graph, groups: list[Group]) -> None:
        place(graph, groups)
        found.append(sum(pieces.is_placed(graph, node) for node in graph.nodes if node.op == "concatenate"))

    def nothing(graph: Graph, groups: list[Group]) -> None:
        del graph, groups

    results = []
    for function in (counted, nothing):
        monkeypatch.setattr(pipeline, "place_pieces", function)
        forget()
        results.append(gradients(order, split, also, lead))
    forget()
    assert sum(found) == placed
    for got, expected in zip(*results, strict=True):
        np.testing.assert_array_equal(got, expected)
