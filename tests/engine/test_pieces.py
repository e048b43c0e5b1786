"""Results that are only concatenated are written where the whole wants them: gradients of attention, and of a cell's gates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau
from flambeau.compiler import pieces, pipeline
from flambeau.compiler.fuse import Group
from flambeau.compiler.graph import Graph
from flambeau.trace.recorder import local

pytestmark = pytest.mark.usefixtures("whole")

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


def both_ways(program: Callable[[], list[Any]], monkeypatch: pytest.MonkeyPatch) -> int:
    """Run a program with pieces placed and with none: the same bits. How many concatenations were placed."""
    monkeypatch.setattr(pipeline, "USE_STORED", [False])
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
        results.append(program())
    forget()
    for got, expected in zip(*results, strict=True):
        np.testing.assert_array_equal(got, expected)
    return sum(found)


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
    assert both_ways(lambda: gradients(order, split, also, lead), monkeypatch) == placed


def lstm() -> list[Any]:
    """Gradients of an LSTM that is a composition over some steps."""
    flambeau.manual_seed(0)
    model = flambeau.nn.LSTM(8, 32, proj_size=24)
    x = flambeau.randn(5, 3, 8, requires_grad=True)
    model(x)[0].square().sum().backward()
    return [p.grad.numpy() for p in (x, *model.parameters()) if p.grad is not None]


def test_gradients_of_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    assert both_ways(lstm, monkeypatch) == 5


@pytest.mark.parametrize(
    ("program", "placed"),
    [
        (lambda a, b: flambeau.cat([a + 1, a * b], -1), 0),  # the whole is seen by others: its memory is not the plan's
        (lambda a, b: flambeau.cat([a + 1, a * b], -1) @ flambeau.ones(64, 3), 1),
        (lambda a, b: flambeau.cat([a + 1, a * b], 0) @ flambeau.ones(32, 3), 1),
        (lambda a, b: flambeau.cat([(a + 1).t(), (a * b).t()], 0) @ flambeau.ones(20, 3), 0),  # across
        (lambda a, b: flambeau.cat([a[:, :4] + 1, a[:, 4:8] * b[:, :4]], -1) @ flambeau.ones(8, 3), 0),  # short
        (lambda a, b: flambeau.cat([y := a + 1, y * b], -1) @ flambeau.ones(64, 3) + y.sum(), 0),  # used otherwise, too
        (lambda a, b: flambeau.cat([flambeau.relu(c := a @ b.t() @ b), c.tanh()], -1) @ flambeau.ones(64, 3), 1),  # after a product
        (lambda a, b: flambeau.cat([y := a + 1, y], -1) @ flambeau.ones(64, 3), 0),  # one value twice
    ],
)  # fmt: skip
def test_results_of_one_kernel(program: Callable[[Any, Any], Any], placed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> list[Any]:
        flambeau.manual_seed(0)
        a, b = flambeau.randn(20, 32).add(1), flambeau.randn(20, 32).add(1)
        return [program(a, b).numpy()]

    assert both_ways(run, monkeypatch) == placed
