"""Values that are computed again, and products that get no epilogue: the same bits, and fewer arrays written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from flambeau.compiler import recompute
from flambeau.compiler.graph import Graph
from flambeau.compiler.pipeline import compile_graph, disabled
from tests import reference
from tests.compiler.programs import data, graphs
from tests.graphs import FLOAT32, FLOAT64, GraphBuilder
from tests.native import assert_close, assert_same_bits, run_plan


@pytest.fixture
def anything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of any size and any cost are computed again."""
    monkeypatch.setattr(recompute, "LEAST_ELEMENTS", 1)
    monkeypatch.setattr(recompute, "MOST_COST", 1000)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(graphs(steps=24))
def test_random_programs(anything: None, graph: Graph) -> None:
    inputs, parameters = data(graph)
    expected = reference.run(graph, inputs, parameters)
    with disabled("recompute"):
        before = run_plan(compile_graph(graph), inputs, parameters, expected)
    after = run_plan(compile_graph(graph, check_passes=True), inputs, parameters, expected)
    assert_same_bits(after, before, "recompute")


def gelu_network(rows: int, inner: int) -> Graph:
    """y = gelu(x w + bias) v, and the gradient of y^2 / 2."""
    b = GraphBuilder()
    x, w, bias, v = (b.input(s, FLOAT32) for s in ((rows, 32), (32, inner), (inner,), (inner, 32)))
    half, root, one, scale = (b.constant(number, FLOAT32) for number in (0.5, 0.5**0.5, 1.0, 0.79788456))
    h = b.op("add", b.op("matmul", x, w), bias)
    a, s = b.op("mul", h, half), b.op("mul", h, root)
    cdf = b.op("add", b.op("erf", s), one)
    y = b.op("matmul", b.op("mul", a, cdf), v)
    g = b.op("matmul", y, b.permute(v, 1, 0))
    bell = b.op("exp", b.op("neg", b.op("mul", s, s)))
    slope = b.op("add", b.op("mul", b.op("mul", g, cdf), half), b.op("mul", b.op("mul", b.op("mul", g, a), scale), bell))
    b.output(y, b.op("matmul", slope, b.permute(w, 1, 0)))
    return b.graph


def written(plan: Any) -> int:
    """Elements of all values that the plan's kernels write."""
    return sum(plan.graph.values[i].numel for step in plan.steps for i in step.writes)


def test_a_gelu_keeps_one_array() -> None:
    graph = gelu_network(256, 512)
    inputs = [np.random.default_rng(i).standard_normal(graph.values[i].numel).astype("f4") * 0.3 for i in graph.inputs]
    with disabled("recompute"):
        before = compile_graph(graph)
    after = compile_graph(graph, check_passes=True)
    assert written(after) <= written(before) - 256 * 512
    expected = reference.run(graph, inputs, [])
    found = run_plan(after, inputs, [], expected)
    assert_same_bits(found, run_plan(before, inputs, [], expected), "recompute")
    assert_close(found, expected, 1e-4, "reference")


def test_one_value_of_a_product_is_not_computed_again() -> None:
    """Where only one value is wanted late, keeping the product for it would cost an array as well."""
    b = GraphBuilder()
    x, w, g = (b.input(s, FLOAT32) for s in ((256, 32), (32, 512), (256, 512)))
    h = b.op("exp", b.op("matmul", x, w))
    again = b.op("matmul", b.op("mul", h, h), b.permute(g, 1, 0))
    b.output(b.op("mul", b.op("matmul", again, g), h))
    assert recompute.recompute(b.graph).late == frozenset()


def test_a_product_is_kept_rather_than_twice_its_bytes() -> None:
    """As batch norm does: what is wanted late was computed in float64."""
    b = GraphBuilder()
    x, w, g = (b.input(s, FLOAT32) for s in ((256, 32), (32, 512), (256, 512)))
    wide = b.cast(b.op("matmul", x, w), FLOAT64)
    h = b.op("mul", wide, wide)
    again = b.op("matmul", b.cast(h, FLOAT32), b.permute(g, 1, 0))
    b.output(b.op("mul", b.cast(b.op("matmul", again, g), FLOAT64), h))
    assert recompute.recompute(b.graph).late


def test_rows_after_a_product_are_reduced_in_one_kernel() -> None:
    """The backward pass of a layer norm: one kernel for the rows, which writes its result only."""
    b = GraphBuilder()
    x, w, scale, xhat, before = (b.input(s, FLOAT32) for s in ((512, 64), (64, 128), (128,), (512, 128), (512, 128)))
    g = b.op("mul", b.op("matmul", x, w), scale)
    row = b.op("sum", b.op("mul", g, xhat), dims=(1,))
    mean = b.op("sum", g, dims=(1,))
    spread = b.op("mul", b.reshape(row, 512, 1), xhat)
    b.output(b.op("add", before, b.op("sub", b.op("sub", g, spread), b.reshape(mean, 512, 1))))
    plan = compile_graph(b.graph, check_passes=True)
    assert len(plan.steps) == 2
    assert written(plan) == 2 * 512 * 128
