"""What a backward pass walks through, counted: it costs what its gradients reach, not how much else was recorded beside or before."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import pytest

import flambeau as ft
from flambeau.autograd import differentiate as walks

pytestmark = pytest.mark.usefixtures("whole")  # in pieces a pass also visits where these begin


class Steps:
    """Nodes that walks have come to, those whose rules they have asked, and those that were put into an index."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.visited = self.asked = self.indexed = 0
        visit, ask, producer = walks._Ahead.__iter__, walks.Context.__init__, walks.Index.producer.func

        def visiting(ahead: Any) -> Iterator[Any]:
            for node in visit(ahead):
                self.visited += 1
                yield node

        def asking(context: Any, *args: Any) -> None:
            self.asked += 1
            ask(context, *args)

        def indexing(index: Any) -> Any:
            self.indexed += len(index.nodes)
            return producer(index)

        counted = cached_property(indexing)
        counted.__set_name__(walks.Index, "producer")
        monkeypatch.setattr(walks._Ahead, "__iter__", visiting)
        monkeypatch.setattr(walks.Context, "__init__", asking)
        monkeypatch.setattr(walks.Index, "producer", counted)

    def taken(self) -> tuple[int, int, int]:
        """(visited, asked, indexed) since the last time."""
        counts = self.visited, self.asked, self.indexed
        self.visited = self.asked = self.indexed = 0
        return counts


def branches(count: int, steps: Steps) -> list[tuple[int, int, int]]:
    """One finished trace of branches beside each other, then a pass through each of the first five: its steps."""
    leaves = [ft.full((3,), 1.0 + i, requires_grad=True) for i in range(count)]
    ends = [(x * float(i + 2)).sin().exp() for i, x in enumerate(leaves)]
    sum(e.detach().sum() for e in ends).item()
    steps.taken()
    found = []
    for x, end in list(zip(leaves, ends, strict=True))[:5]:
        (g,) = ft.autograd.grad(end, x, ft.ones(3), retain_graph=True)
        assert g.isfinite().all()
        found.append(steps.taken())
    return found


def test_a_pass_visits_what_it_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five passes beside n branches: the nodes they visit do not depend on n, and an index is made once for all of them."""
    steps = Steps(monkeypatch)
    few, many = branches(10, steps), branches(80, steps)
    assert sum(v for v, _, _ in few) > 0  # something is counted
    assert max(v for v, _, _ in many) <= max(v for v, _, _ in few) <= 20
    assert sum(1 for _, _, i in many[1:] if i > 40) == 0  # the first pass may index the whole trace


@pytest.mark.parametrize("count", [10, 30])
def test_gradients_of_a_growing_chain(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Each pass goes back to the beginning, with what earlier passes have recorded beside its way: it visits few nodes besides those it asks."""
    steps = Steps(monkeypatch)
    x = ft.ones(4, requires_grad=True)
    y = x
    for _ in range(count):
        y = (y * 1.01).sin()
        (g,) = ft.autograd.grad(y.sum(), x, create_graph=True)
    g.sum().item()
    visited, asked, _ = steps.taken()
    assert 0 < visited <= 4 * asked
