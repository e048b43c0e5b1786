"""Simplifying passes: what each does to a small graph, and that none changes a bit of any result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from flambeau import dtypes
from flambeau.compiler import simplify
from flambeau.compiler.check import check
from flambeau.compiler.graph import Graph
from tests.compiler.programs import data, graphs
from tests.graphs import BOOL, FLOAT32, FLOAT64, INT64, GraphBuilder
from tests.reference import run


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def simplified(graph: Graph) -> Graph:
    for _, function in simplify.PASSES:
        graph = function(graph)
        check(graph)
    return graph


@pytest.fixture
def b() -> GraphBuilder:
    return GraphBuilder()


# -- Dead code and common subexpressions ----------------------------------------------------------------------------


def test_dead_code_goes_and_live_code_stays(b: GraphBuilder) -> None:
    x = b.input((4,), FLOAT32)
    b.op("exp", x)
    b.output(b.op("neg", x))
    assert ops(simplify.dead_code(b.graph)) == ["as_strided", "neg"]


def test_dead_code_keeps_what_an_update_needs(b: GraphBuilder) -> None:
    x = b.input((4,), FLOAT32)
    b.update(0, b.op("neg", x))
    assert ops(simplify.dead_code(b.graph)) == ["as_strided", "neg"]


def test_equal_expressions_are_computed_once(b: GraphBuilder) -> None:
    x, y = b.input((4,), FLOAT32), b.input((4,), FLOAT32)
    b.output(b.op("mul", b.op("add", x, y), b.op("add", y, x)))
    graph = simplify.common_subexpressions(b.graph)
    assert ops(graph).count("add") == 1


def test_random_numbers_with_other_offsets_stay_apart(b: GraphBuilder) -> None:
    seed, first, second = b.parameter(INT64), b.parameter(INT64), b.parameter(INT64)
    draws = [b.op("random_uniform", seed, at, shape=(3,)) for at in (first, second, first)]
    b.output(b.op("add", b.op("add", draws[0], draws[1]), draws[2]))
    assert ops(simplify.common_subexpressions(b.graph)).count("random_uniform") == 2


def test_constants_0_and_minus_0_and_true_stay_apart(b: GraphBuilder) -> None:
    x = b.input((4,), FLOAT32)
    b.output(b.op("add", b.op("add", x, b.constant(0.0, FLOAT32)), b.constant(-0.0, FLOAT32)))
    assert ops(simplify.common_subexpressions(b.graph)).count("constant") == 2


def test_two_outputs_are_never_merged(b: GraphBuilder) -> None:
    x = b.input((4,), FLOAT32)
    b.output(b.op("neg", x), b.op("neg", x))
    assert len(set(simplified(b.graph).outputs)) == 2


def test_an_output_may_replace_an_inner_value(b: GraphBuilder) -> None:
    x = b.input((4,), FLOAT32)
    b.output(b.op("exp", b.op("neg", x)), b.op("neg", x))
    assert ops(simplified(b.graph)).count("neg") == 1


def test_values_without_elements_need_no_nodes(b: GraphBuilder) -> None:
    x, y = b.input((0, 3), FLOAT32), b.input((2, 3), FLOAT32)
    total = b.op("add", b.op("sum", b.op("exp", x), dims=(0,)), y)
    b.output(total, b.op("neg", x), b.write(b.op("neg", y), b.slice(b.op("neg", y), 0, 2, 2), b.op("exp", x)))
    graph = simplified(b.graph)
    assert "exp" not in ops(graph) and "sum" not in ops(graph) and "scatter_view" not in ops(graph)
    inputs = [np.zeros(0, np.float32), np.ones(6, np.float32)]
    for got, expected in zip(run(graph, inputs)[0], run(b.graph, inputs)[0], strict=True):
        np.testing.assert_array_equal(got, expected)


# -- Constants and casts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "source", "to", "folded"),
    [
        (3, INT64, FLOAT32, 3.0), (0.5, FLOAT32, FLOAT64, 0.5), (300, INT64, dtypes.uint8, 44), (200, INT64, dtypes.int8, -56),
        (0.1, FLOAT64, FLOAT32, None), (2**24 + 1, INT64, FLOAT32, None), (2.5, FLOAT32, INT64, None), (0.0, FLOAT32, BOOL, False),
        (float("nan"), FLOAT32, BOOL, True),
    ],
)  # fmt: skip
def test_casts_of_constants(b: GraphBuilder, value: Any, source: Any, to: Any, folded: Any) -> None:
    b.output(b.cast(b.constant(value, source), to))
    graph = simplified(b.graph)
    if folded is None:
        assert ops(graph) == ["constant", "cast"]
    else:
        assert ops(graph) == ["constant"] and repr(graph.nodes[0].attr("value")) == repr(folded)


@pytest.mark.parametrize(
    ("chain", "left"),
    [
        ((FLOAT32, FLOAT64, FLOAT32), 0), ((FLOAT32, FLOAT64, dtypes.float16), 1), ((FLOAT64, FLOAT32, FLOAT64), 2),
        ((dtypes.int8, dtypes.int32, INT64), 1), ((INT64, dtypes.int32, INT64), 2), ((dtypes.int8, FLOAT32, dtypes.uint8), 2),
        ((dtypes.int8, FLOAT32, dtypes.int16), 1), ((BOOL, FLOAT32, INT64), 1), ((dtypes.uint8, dtypes.int8, INT64), 2),
        ((FLOAT32, INT64, FLOAT32), 2), ((dtypes.float16, FLOAT32, BOOL), 1),
    ],
)  # fmt: skip
def test_chains_of_casts(b: GraphBuilder, chain: tuple[Any, ...], left: int) -> None:
    x = b.input((4,), chain[0])
    for d in chain[1:]:
        x = b.cast(x, d)
    b.output(b.op("copy", x))
    assert ops(simplified(b.graph)).count("cast") == left


# -- Identities -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "value", "d", "gone"),
    [
        ("mul", 1.0, FLOAT32, True), ("div", 1.0, FLOAT32, True), ("sub", 0.0, FLOAT32, True), ("add", -0.0, FLOAT32, True),
        ("add", 0.0, FLOAT32, False), ("sub", -0.0, FLOAT32, False), ("add", 0, INT64, True), ("sub", 0, INT64, True),
        ("mul", 0.0, FLOAT32, False), ("mul", -1.0, FLOAT32, False),
    ],
)  # fmt: skip
def test_neutral_operands(b: GraphBuilder, op: str, value: Any, d: Any, gone: bool) -> None:
    x = b.input((4,), d)
    b.output(b.op("neg", b.op(op, x, b.constant(value, d))))
    assert (op not in ops(simplified(b.graph))) == gone


def test_neutral_operand_of_a_larger_shape_stays(b: GraphBuilder) -> None:
    x = b.input((4,), FLOAT32)
    ones = b.expand(b.constant(1.0, FLOAT32), 3, 4)
    b.output(b.op("neg", b.op("mul", x, ones)))
    assert "mul" in ops(simplified(b.graph))


def test_double_negation(b: GraphBuilder) -> None:
    x = b.input((4,), FLOAT32)
    b.output(b.op("exp", b.op("neg", b.op("neg", x))))
    assert "neg" not in ops(simplified(b.graph))


def test_the_result_of_an_identity_that_is_returned_keeps_its_own_buffer(b: GraphBuilder) -> None:
    x = b.input((4,), FLOAT32)
    b.output(b.op("mul", x, b.constant(1.0, FLOAT32)))
    assert "mul" in ops(simplified(b.graph))


def test_copies_that_are_read_once_go(b: GraphBuilder) -> None:
    x = b.input((4, 5), FLOAT32)
    y = b.op("copy", b.op("exp", x))
    b.output(b.op("neg", b.permute(y, 1, 0)))
    graph = simplified(b.graph)
    assert "copy" not in ops(graph)


def test_a_copy_that_changes_the_layout_stays(b: GraphBuilder) -> None:
    x = b.input((4, 5), FLOAT32)
    y = b.op("copy", b.permute(x, 1, 0))
    b.output(b.op("neg", b.reshape(y, 20)))
    assert "copy" in ops(simplified(b.graph))


# -- All of them ------------------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(graphs())
def test_no_pass_changes_a_bit(graph: Graph) -> None:
    check(graph)
    before = str(graph)
    inputs, parameters = data(graph)
    expected = run(graph, inputs, parameters)
    for name, function in simplify.PASSES:
        result = function(graph)
        check(result)
        got = run(result, inputs, parameters)
        for a, b in zip((*got[0], *got[1]), (*expected[0], *expected[1]), strict=True):
            np.testing.assert_array_equal(a, b, err_msg=name)  # NaN equals NaN
            if a.dtype.kind == "f":
                zeros = (a == 0) & (b == 0)
                np.testing.assert_array_equal(np.signbit(a[zeros]), np.signbit(b[zeros]), err_msg=name)
        assert str(graph) == before, f"{name} changed its argument"
        assert all(root not in result.inputs for root in set(result.outputs) - set(graph.outputs)), name
        graph, before = result, str(result)
