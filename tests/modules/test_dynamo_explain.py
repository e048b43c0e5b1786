"""torch._dynamo.explain: recordings and the reads between them."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch


def branching(x: Any, y: Any) -> Any:
    a = x / (torch.abs(x) + 1)
    if y.sum() < 0:
        y = y * -1
    return a * y


def test_a_network_is_one_graph() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(10, 3), torch.nn.ReLU())
    for _ in range(3):  # new, and known
        found = torch._dynamo.explain(model)(torch.randn(2, 10))
        assert (found.graph_count, found.graph_break_count, found.op_count, len(found.graphs)) == (1, 0, 2, 1)
        assert found.ops_per_graph == [["nn.functional.linear", "nn.functional.relu"]]


def test_a_branch_on_a_value_is_a_break() -> None:
    for _ in range(3):
        found = torch._dynamo.explain(branching)(torch.randn(10), torch.ones(10))
        assert (found.graph_count, found.graph_break_count) == (2, 1)
        assert found.break_reasons[0].user_stack[-1].name == "branching"
        assert found.ops_per_graph[1] == ["mul"]
    text = str(found)
    assert text.startswith("Graph Count: 2\nGraph Break Count: 1\nOp Count: ")
    assert "in branching" in text


def test_the_older_form_and_a_failure() -> None:
    assert torch._dynamo.explain(branching, torch.randn(10), torch.ones(10)).graph_break_count == 1
    with pytest.raises(ZeroDivisionError):
        torch._dynamo.explain(lambda: 1 / 0)()
    assert torch._dynamo.explain(torch.sin)(torch.ones(3)).graph_count == 1  # nothing is left of it


def test_beside_a_profile() -> None:
    with torch.profiler.profile(), pytest.raises(RuntimeError, match="a profile is on"):
        torch._dynamo.explain(torch.sin)(torch.ones(3))
