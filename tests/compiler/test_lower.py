"""Loop nests against the reference: reductions over every kind of loop, tiles, splits, movement, dtypes, random graphs."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from flambeau.compiler.graph import Graph
from flambeau.compiler.lower import layout
from flambeau.compiler.lower.spec import Access, Block, Compute, Layout, Load, Nest, NestError, Sizes, Store, check
from flambeau.compiler.pipeline import compile_graph
from flambeau.dtypes import BY_NAME, dtype
from tests import reference
from tests.compiler.programs import data, graphs
from tests.graphs import FLOAT32, FLOAT64, GraphBuilder
from tests.native import assert_close, assert_same_bits, check_graph, run_plan


@pytest.fixture(autouse=True)
def _prove_nests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "CHECK", [True])


def sample(n: int, d: dtype, special: bool = False) -> Any:
    generator = np.random.default_rng(n)
    if d.is_floating_point or d.is_complex:
        x = generator.normal(size=n)
        if special:
            x[generator.integers(0, n, 1 + n // 50)] = np.nan
        if d.name == "bfloat16":
            return reference.to_bfloat16(x.astype(np.float32))
        return x.astype(d.numpy_name)
    return generator.integers(-50, 50, n).astype(d.numpy_name)


SHAPES = [((40, 50), (0,)), ((40, 50), (1,)), ((40, 50), (0, 1)), ((3, 70, 5), (1,)), ((3, 4, 5, 6), (0, 2)),
          ((7, 1), (1,)), ((2, 3, 130), (0, 2)), ((1000, 3), (0,))]  # fmt: skip


@pytest.mark.parametrize("op", ["sum", "prod", "amax", "amin", "var_mean"])
@pytest.mark.parametrize(("shape", "dims"), SHAPES)
def test_reductions(op: str, shape: tuple[int, ...], dims: tuple[int, ...]) -> None:
    b = GraphBuilder()
    x = b.input(shape, FLOAT32)
    more: dict[str, Any] = {"correction": 1} if op == "var_mean" else {}
    result = b.op(op, x, dims=dims, **more)
    b.output(*(result if isinstance(result, tuple) else (result,)))
    check_graph(b.graph, [sample(int(np.prod(shape)), FLOAT32, op.startswith("am"))], tolerance=1e-5)


@pytest.mark.parametrize("op", ["argmax", "argmin"])
@pytest.mark.parametrize("shape", [(40, 50), (3, 200), (200, 3)])
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("special", [False, True])
def test_the_first_best_index_wins(op: str, shape: tuple[int, int], dim: int, special: bool) -> None:
    b = GraphBuilder()
    x = b.input(shape, FLOAT32)
    b.output(b.op(op, x, dims=(dim,)))
    check_graph(b.graph, [np.round(sample(shape[0] * shape[1], FLOAT32, special))])


@pytest.mark.parametrize("op", ["sum", "amax", "argmin", "var_mean"])
@pytest.mark.parametrize(("shape", "dims"), [((300_001,), (0,)), ((40_000, 5), (0,)), ((3, 50_000), (1,)), ((2, 4, 20_000), (0, 2))])
def test_few_long_rows_are_reduced_in_blocks(op: str, shape: tuple[int, ...], dims: tuple[int, ...]) -> None:
    if op == "argmin" and len(dims) > 1:
        pytest.skip("one dim only")
    b = GraphBuilder()
    x = b.input(shape, FLOAT32)
    y = b.op("mul", x, b.constant(0.5, FLOAT32))
    more: dict[str, Any] = {"correction": 0} if op == "var_mean" else {}
    result = b.op(op, y, dims=dims, **more)
    b.output(*(result if isinstance(result, tuple) else (result,)), y)
    plan = check_graph(b.graph, [sample(int(np.prod(shape)), FLOAT32)], tolerance=1e-6)
    assert [k.name.rpartition("_")[2] for k in plan.kernels] == ["blocks", "combine"]


def test_variance_far_from_zero() -> None:
    """Mean / deviation = 1e6: the naive sum of squares would have no digit left in float32."""
    x = (1e6 + np.random.default_rng(0).normal(size=(8, 5000))).astype(np.float32)
    b = GraphBuilder()
    b.output(*b.op("var_mean", b.input(x.shape, FLOAT32), dims=(1,), correction=1))
    plan = compile_graph(b.graph)
    wide = x.astype(np.float64)
    expected = [[wide.var(1, ddof=1).astype(np.float32), wide.mean(1).astype(np.float32)], [x]]
    got = run_plan(plan, [x], [], expected)
    np.testing.assert_allclose(got[0][0], expected[0][0], rtol=1e-6)
    np.testing.assert_allclose(got[0][1], expected[0][1], rtol=1e-7)


def test_a_long_sum_is_exact_to_the_last_bit() -> None:
    x = np.random.default_rng(1).random(1 << 20).astype(np.float32)
    b = GraphBuilder()
    b.output(b.op("sum", b.input(x.shape, FLOAT32), dims=(0,)))
    total = np.array([np.float32(x.sum(dtype=np.float64))])
    assert run_plan(compile_graph(b.graph), [x], [], [[total], [x]])[0][0][0] == total[0]


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "int8", "int64", "bool", "complex64"])
@pytest.mark.parametrize("shape", [(70, 130), (64, 64), (3, 65, 33), (16, 16)])
def test_transposition(name: str, shape: tuple[int, ...]) -> None:
    d = BY_NAME[name]
    b = GraphBuilder()
    x = b.input(shape, d)
    turned = b.permute(x, *reversed(range(len(shape))))
    b.output(b.op("copy", turned))
    if name != "bool":
        b.output(b.op("add", turned, b.op("copy", turned)))
    values = sample(int(np.prod(shape)), d) if name != "bool" else np.arange(int(np.prod(shape))) % 3 == 0
    check_graph(b.graph, [values])


@pytest.mark.parametrize("dim", [0, 1])
def test_concatenate(dim: int) -> None:
    b = GraphBuilder()
    x, y = b.input((4, 6), FLOAT32), b.input((4, 6), FLOAT32)
    b.output(b.op("concatenate", x, b.op("exp", y), b.permute(b.input((6, 4), FLOAT32), 1, 0), dim=dim))
    check_graph(b.graph, [sample(24, FLOAT32)] * 3, tolerance=1e-6)


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("leading", [(), (5,)])
def test_searchsorted(right: bool, leading: tuple[int, ...]) -> None:
    b = GraphBuilder()
    table, wanted = b.input((*leading, 37), FLOAT32), b.input((*leading, 50), FLOAT32)
    b.output(b.op("searchsorted", table, wanted, right=right))
    n = int(np.prod(leading, dtype=int))
    rows = np.sort(np.round(sample(37 * n, FLOAT32).reshape(n, 37) * 3), 1)
    check_graph(b.graph, [rows.reshape(-1), np.round(sample(50 * n, FLOAT32) * 4)])


def test_row_caches_hold_every_dtype_that_is_expensive() -> None:
    b = GraphBuilder()
    x = b.input((20, 70), FLOAT64)
    e = b.op("exp", x)
    s = b.op("sum", e, dims=(1,))
    b.output(b.op("div", e, b.expand(b.reshape(s, 20, 1), 20, 70)))
    check_graph(b.graph, [sample(1400, FLOAT64)], tolerance=1e-14)


def test_empty_and_single() -> None:
    for shape, dims in (((0, 5), (0,)), ((5, 0), (0,)), ((1, 1), (0, 1))):
        b = GraphBuilder()
        x = b.input(shape, FLOAT32)
        b.output(b.op("sum", b.op("exp", x), dims=dims))
        check_graph(b.graph, [sample(int(np.prod(shape)) or 0, FLOAT32)], tolerance=1e-6)


@settings(max_examples=60, deadline=None, database=None)
@given(graphs())
def test_fusion_changes_no_bit(graph: Graph) -> None:
    inputs, parameters = data(graph)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = reference.run(graph, inputs, parameters)
    fused = run_plan(compile_graph(graph, check_passes=True), inputs, parameters, expected)
    alone = run_plan(compile_graph(graph, check_passes=True, fuse=False), inputs, parameters, expected)
    assert_same_bits(fused, alone, "fused against one kernel for each node")
    assert_close(fused, expected, 1e-5, "against the reference")


# -- The specification ------------------------------------------------------------------------------------------------


def small_nest(**changes: Any) -> Nest:
    fields: dict[str, Any] = {
        "outer": 1, "reduced": 0, "vector": 0, "width": 8, "unroll": 1,
        "accesses": (Access("load", "float32", (1,)), Access("store", "float32", (1,))),
        "blocks": (Block(False, (Load(0, 0), Compute(1, "exp", (0,)), Store(1, 1))),), "dtypes": ("float32", "float32"),
    }  # fmt: skip
    return Nest(**(fields | changes))


def test_a_legal_nest_passes() -> None:
    check(small_nest(), Sizes((100,), (Layout(100, 0, (1,)), Layout(100, 0, (1,)))))


@pytest.mark.parametrize(("nest", "sizes", "message"), [
    (small_nest(blocks=(Block(False, (Store(1, 1), Load(0, 0))),)), None, "before it is defined"),
    (small_nest(blocks=(Block(False, (Load(0, 0), Load(0, 0))),)), None, "defined twice"),
    (small_nest(dtypes=("float32", "float64")), None, "exp"),
    (small_nest(vector=3), None, "innermost"),
    (small_nest(), Sizes((100,), (Layout(99, 0, (1,)), Layout(100, 0, (1,)))), "touches 0 .. 99 of a buffer of 99"),
    (small_nest(), Sizes((100,), (Layout(100, -1, (1,)), Layout(100, 0, (1,)))), "touches -1"),
    (small_nest(), Sizes((100,), (Layout(200, 0, (2,)), Layout(100, 0, (1,)))), "is not of class"),
])  # fmt: skip
def test_an_illegal_nest_is_refused(nest: Nest, sizes: Sizes | None, message: str) -> None:
    with pytest.raises(NestError, match=message):
        check(nest, sizes)


# -- Writes through views ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("covering", [True, False])
@pytest.mark.parametrize("zeros", [True, False])
def test_writes_of_disjoint_regions_are_one_group(covering: bool, zeros: bool) -> None:
    b = GraphBuilder()
    base = b.op("copy", b.expand(b.constant(0.5, FLOAT32), 6, 12)) if zeros else b.op("exp", b.input((6, 12), FLOAT32))
    value = base
    for start in (8, 0, 4) if covering else (8, 0):
        value = b.write(value, b.slice(value, 1, start, start + 4), b.input((6, 4), FLOAT32))
    b.output(b.op("neg", value))
    plan = check_graph(b.graph, [sample(b.graph.values[i].numel, FLOAT32) for i in b.graph.inputs], tolerance=1e-6)
    assert "copy" not in [k.name for k in plan.kernels]
    if covering:
        assert len(set(plan.schedule.phases)) == 2


def test_writes_that_meet_keep_their_order() -> None:
    b = GraphBuilder()
    value = b.op("exp", b.input((6, 12), FLOAT32))
    for start in (0, 3, 2):
        value = b.write(value, b.slice(value, 1, start, start + 4), b.input((6, 4), FLOAT32))
    b.output(value)
    check_graph(b.graph, [sample(b.graph.values[i].numel, FLOAT32) for i in b.graph.inputs], tolerance=1e-6)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float64", "int64", "uint8", "bool", "complex64"])
@pytest.mark.parametrize("shape", [(21, 70), (300, 4), (2, 70_000)])
@pytest.mark.parametrize("dim", [0, 1])
def test_reductions_of_every_dtype(name: str, shape: tuple[int, int], dim: int) -> None:
    d = BY_NAME[name]
    b = GraphBuilder()
    x = b.input(shape, d)
    if name not in ("bool", "uint8"):
        b.output(b.op("sum", x, dims=(dim,)))
    if name != "complex64":
        b.output(b.op("amax", x, dims=(dim,)), b.op("amin", x, dims=(dim,)), b.op("argmax", x, dims=(dim,)))
    n = shape[0] * shape[1]
    values = np.arange(n) % 7 == 3 if name == "bool" else sample(n, d) % 100 if name == "uint8" else sample(n, d)
    tolerance = {"float16": 2e-3, "bfloat16": 1e-2, "float64": 1e-12, "complex64": 1e-6}.get(name, 0.0)
    check_graph(b.graph, [values.astype(d.numpy_name) if d.numpy_name else values], tolerance=tolerance)
