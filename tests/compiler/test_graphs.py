"""Whole graphs, end to end: compiled fused and unfused, run with one and two threads, against the reference interpreter."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings

from flambeau import dtypes
from flambeau.compiler import simplify
from flambeau.compiler.graph import Graph
from flambeau.compiler.pipeline import compile_graph, disabled
from flambeau.runtime import threads
from tests import reference
from tests.compiler.programs import data, graphs
from tests.native import assert_close, assert_same_bits, run_plan


@pytest.fixture(autouse=True)
def restore_threads() -> Iterator[None]:
    before = threads.count()
    yield
    threads.set_num_threads(before)


def compare(graph: Graph, exact: bool) -> None:
    """Unfused against the reference (bits, or close), fused against unfused and two threads against one (bits)."""
    inputs, parameters = data(graph)
    expected = reference.run(graph, inputs, parameters)
    threads.set_num_threads(1)
    unfused = run_plan(compile_graph(graph, fuse=False, check_passes=True), inputs, parameters, expected)
    if exact:
        assert_same_bits(unfused, expected, "unfused")
    else:
        assert_close(unfused, expected, 1e-5, "unfused")
    fused = run_plan(compile_graph(graph, check_passes=True), inputs, parameters, expected)
    assert_same_bits(fused, unfused, "fused")
    threads.set_num_threads(2)
    assert_same_bits(run_plan(compile_graph(graph), inputs, parameters, expected), fused, "two threads")


SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@SETTINGS
@given(graphs(rounded=False))
def test_exact_programs(graph: Graph) -> None:
    compare(graph, exact=True)


@SETTINGS
@given(graphs(floats=(dtypes.float32,)))
def test_programs(graph: Graph) -> None:
    compare(graph, exact=False)


@SETTINGS
@given(graphs(floats=(dtypes.float16, dtypes.float32), rounded=False))
def test_half_programs(graph: Graph) -> None:
    compare(graph, exact=True)


@SETTINGS
@given(graphs(rounded=False))
def test_programs_with_an_arena_from_the_pool(graph: Graph) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flambeau.compiler.plan.KEPT_ARENA_BYTES", 0)
        compare(graph, exact=True)


@pytest.mark.parametrize("name", [name for name, _ in simplify.PASSES] + ["fuse"])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(graph=graphs(rounded=False))
def test_every_pass_can_be_switched_off(name: str, graph: Graph) -> None:
    inputs, parameters = data(graph)
    expected = reference.run(graph, inputs, parameters)
    with disabled(name):
        plan = compile_graph(graph, check_passes=True)
    assert_same_bits(run_plan(plan, inputs, parameters, expected), expected, f"without {name}")
