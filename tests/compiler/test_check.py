"""The graph's specification refuses what is illegal, and says which node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flambeau import dtypes
from flambeau.compiler.check import GraphError, check, is_dense
from flambeau.compiler.graph import Node, Value
from tests.graphs import BOOL, FLOAT32, FLOAT64, INT64, GraphBuilder


def builder() -> tuple[GraphBuilder, int]:
    b = GraphBuilder()
    return b, b.input((3, 4), FLOAT32)


def test_a_legal_graph() -> None:
    b, x = builder()
    b.output(b.op("exp", b.permute(x, 1, 0)))
    b.update(0, b.op("neg", x))
    check(b.graph)


BAD_NODES: list[tuple[str, Callable[[GraphBuilder, int], Any]]] = [
    ("broadcast", lambda b, x: b.op("add", x, b.input((5,), FLOAT32))),
    ("dtypes", lambda b, x: b.op("add", x, b.input((4,), FLOAT64))),
    ("must be 2", lambda b, x: b.op("add", x)),
    ("condition must be bool", lambda b, x: b.op("where", x, x, x)),
    ("must be floating", lambda b, x: b.op("exp", b.input((4,), INT64))),
    ("must be bool or integer", lambda b, x: b.op("bitwise_and", x, x)),
    ("must be complex", lambda b, x: b.op("real_part", x)),
    ("of bool", lambda b, x: b.op("neg", b.input((4,), BOOL))),
    ("dims", lambda b, x: b.op("sum", x, dims=(1, 0))),
    ("dims", lambda b, x: b.op("sum", x, dims=(2,))),
    ("over one dim", lambda b, x: b.op("argmax", x, dims=(0, 1))),
    ("no attribute 'dims'", lambda b, x: b.op("sum", x)),
    ("matmul: shapes", lambda b, x: b.op("matmul", x, x)),
    ("must be int64", lambda b, x: b.op("gather", x, x, dim=0)),
    ("same rank", lambda b, x: b.op("gather", x, b.input((2,), INT64), dim=0)),
    ("mode 'max'", lambda b, x: b.op("scatter", x, b.input((3, 4), INT64), x, dim=0, mode="max")),
    ("along 0", lambda b, x: b.op("concatenate", x, b.input((3, 5), FLOAT32), dim=0)),
    ("topk: k 9", lambda b, x: b.op("topk", x, dim=1, k=9, largest=True)),
    ("source", lambda b, x: b.write(b.op("neg", x), b.select(b.op("neg", x), 0, 0), x)),
]


@pytest.mark.parametrize(("message", "make"), BAD_NODES, ids=range(len(BAD_NODES)))
def test_inference_refuses(message: str, make: Callable[[GraphBuilder, int], Any]) -> None:
    with pytest.raises(GraphError, match=message):
        make(*builder())


def test_a_view_must_stay_inside_its_buffer() -> None:
    b, x = builder()
    b.output(b.op("neg", b.as_strided(x, (3, 4), (4, 1), 1)))
    with pytest.raises(GraphError, match=r"node 1 \(as_strided.*elements 1..12"):
        check(b.graph)


def test_a_runtime_offset_is_not_checked_here() -> None:
    b, x = builder()
    b.output(b.op("neg", b.as_strided(x, (3, 4), (4, 1), 1, [(b.parameter(INT64), 4)])))
    check(b.graph)


def test_values_are_defined_before_use_and_once() -> None:
    b, x = builder()
    y = b.op("neg", x)
    b.output(b.op("exp", y))
    b.graph.nodes[1], b.graph.nodes[2] = b.graph.nodes[2], b.graph.nodes[1]
    with pytest.raises(GraphError, match="not all defined before"):
        check(b.graph)
    b, x = builder()
    b.output(b.op("neg", x))
    b.graph.nodes.append(b.graph.nodes[-1])
    with pytest.raises(GraphError, match="defined twice"):
        check(b.graph)


def test_results_must_have_the_inferred_shape_and_dtype() -> None:
    b, x = builder()
    y = b.op("neg", x)
    b.output(y)
    b.graph.values[y] = Value((3, 4), FLOAT64, (4, 1))
    with pytest.raises(GraphError, match=r"results .*float64.*, must be .*float32"):
        check(b.graph)


def test_materialised_values_are_dense() -> None:
    b, x = builder()
    y = b.op("neg", x)
    b.output(y)
    b.graph.values[y].strides = (8, 2)
    with pytest.raises(GraphError, match="not dense"):
        check(b.graph)
    assert is_dense((3, 4), (1, 3)) and is_dense((3, 1), (1, 77)) and is_dense((0, 3), (9, 9)) and not is_dense((2, 2), (1, 1))


def test_unknown_primitives() -> None:
    b, x = builder()
    b.graph.nodes.append(Node("frobnicate", (x,), (b.graph.add_value(Value((), FLOAT32, ())),)))
    with pytest.raises(GraphError, match="unknown primitive"):
        check(b.graph)


def test_outputs_and_updates_are_materialised_and_fit() -> None:
    b, x = builder()
    b.graph.outputs.append(x)
    with pytest.raises(GraphError, match="output"):
        check(b.graph)
    b, x = builder()
    b.graph.updates.append((0, b.op("sum", x, dims=(0,))))
    with pytest.raises(GraphError, match="update"):
        check(b.graph)
    b, x = builder()
    b.graph.outputs.append(b.parameter(INT64))
    with pytest.raises(GraphError, match="parameter"):
        check(b.graph)
    b = GraphBuilder()
    b.parameter(dtypes.int8)
    with pytest.raises(GraphError, match="parameter"):
        check(b.graph)
