"""Each group of a fused graph reads only what groups before it have stored: also where float64 reductions take groups apart (summation.py), and a cheap
value that several groups compute for themselves is needed in memory sooner than by the group that stores it. Results are PyTorch's."""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")


def legal(graph: Any, groups: list[Any]) -> bool:
    """Whether every value that a group does not compute itself is an input, a parameter, or stored by a group before it."""
    there = {*graph.inputs, *graph.parameters}
    for group in groups:
        made = {value for index in group.nodes for value in graph.nodes[index].outputs}
        for index in group.nodes:
            node = graph.nodes[index]
            read = node.inputs[1:] if node.op == "scatter_view" else node.inputs  # a base that is written over as a whole is not there
            if not {graph.root(value) for value in read} <= there | made:
                return False
        there.update(group.outputs)
    return there >= {graph.root(value) for value in graph.outputs}


def program(m: Any, seed: int) -> list[Any]:
    """Sums of products with ranges, read in several shapes, and gradients that go back by indices; some values are looked at on the way."""
    r = random.Random(seed)
    x = (m.arange(4.0, dtype=m.float64) + 1).reshape(r.choice([(4, 1), (4,), (2, 2)])).requires_grad_()
    y = (x * 2).reshape(-1)
    ways = (lambda: y.as_strided((2, 2), (1, 1)), lambda: y.as_strided((3,), (1,)), lambda: y[1:], lambda: y.view(2, 2).mT, lambda: y.flip(0))
    views = [y, *[r.choice(ways)() for _ in range(r.randint(1, 3))]]
    if r.random() < 0.6:
        for v in views:
            v.tolist()
    total = 0 * x.sum()
    for i, v in enumerate(views):
        weights = m.arange(float(v.numel()), dtype=m.float64).reshape(v.shape) + i + 1
        total = total + (v * weights).sum(r.choice([None, 0, -1])).sum() + (r.choice([v, v.t() if v.ndim == 2 else v]) * v.sum()).sum()
    total.backward()
    return [total.item(), *x.grad.flatten().tolist()]


def test_order_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline, seen = sys.modules["flambeau.compiler.pipeline"], []
    fuse = pipeline.fusion.fuse

    def watched(graph: Any) -> Any:
        groups = fuse(graph)
        seen.append(legal(graph, groups))
        return groups

    monkeypatch.setattr(pipeline.fusion, "fuse", watched)
    monkeypatch.setattr(pipeline, "USE_STORED", [False])
    monkeypatch.setattr(sys.modules["flambeau.trace.tiers"], "MODE", ["1"])  # paths as a whole
    for seed in range(40):
        np.testing.assert_allclose(program(flambeau, seed), program(torch, seed), rtol=1e-12, err_msg=str(seed))
    assert all(seen)
    assert len(seen) > 40
