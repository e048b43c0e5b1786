"""Fusion: how many kernels a graph becomes, and why not fewer. Results are compared with the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flambeau.compiler.fuse import fuse
from flambeau.compiler.graph import Graph
from flambeau.compiler.lower import layout
from flambeau.compiler.pipeline import compile_graph
from flambeau.compiler.plan import Plan
from tests.graphs import FLOAT32, FLOAT64, INT64, GraphBuilder
from tests.native import check_graph, run_plan


@pytest.fixture(autouse=True)
def _prove_nests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "CHECK", [True])


def values(*sizes: int, seed: int = 0) -> list[Any]:
    generator = np.random.default_rng(seed)
    return [generator.normal(size=n).astype(np.float32) for n in sizes]


def kernels(graph: Graph, inputs: list[Any], parameters: tuple[Any, ...] = (), tolerance: float = 2e-6) -> Plan:
    return check_graph(graph, inputs, parameters, tolerance=tolerance)


def rows(b: GraphBuilder, x: int, *shape: int) -> int:
    """A row's value beside every element of the row (the last dim)."""
    return b.expand(b.reshape(x, *shape[:-1], 1), *shape)


def softmax(b: GraphBuilder, x: int, shape: tuple[int, int]) -> int:
    m = rows(b, b.op("amax", x, dims=(1,)), *shape)
    e = b.op("exp", b.op("sub", x, m))
    y: int = b.op("div", e, rows(b, b.op("sum", e, dims=(1,)), *shape))
    return y


# -- One kernel -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 5), (40, 1000), (7, 64), (5, 257)])
def test_softmax_is_one_kernel(shape: tuple[int, int]) -> None:
    b = GraphBuilder()
    x = b.input(shape, FLOAT32)
    b.output(softmax(b, x, shape))
    plan = kernels(b.graph, values(shape[0] * shape[1]))
    assert [k.name for k in plan.kernels] == ["softmax"]


def test_layer_norm_forward_and_backward_is_one_kernel_for_rows() -> None:
    n, m = 33, 300
    b = GraphBuilder()
    x, g, w = b.input((n, m), FLOAT32), b.input((n, m), FLOAT32), b.input((m,), FLOAT32)
    variance, mean = b.op("var_mean", x, dims=(1,), correction=0)
    scale = rows(b, b.op("rsqrt", b.op("add", variance, b.constant(1e-5, FLOAT32))), n, m)
    normal = b.op("mul", b.op("sub", x, rows(b, mean, n, m)), scale)
    b.output(b.op("mul", normal, w))
    gw = b.op("mul", g, w)
    size = b.constant(1 / m, FLOAT32)
    s1 = b.op("mul", b.op("sum", gw, dims=(1,)), size)
    s2 = b.op("mul", b.op("sum", b.op("mul", gw, normal), dims=(1,)), size)
    inner = b.op("sub", b.op("sub", gw, rows(b, s1, n, m)), b.op("mul", normal, rows(b, s2, n, m)))
    b.output(b.op("mul", inner, scale))
    assert len(kernels(b.graph, values(n * m, n * m, m), tolerance=1e-5).kernels) == 1


def test_batch_norm_over_channels_in_the_middle_is_one_kernel() -> None:
    shape = (6, 16, 5, 7)
    b = GraphBuilder()
    x = b.input(shape, FLOAT32)
    variance, mean = b.op("var_mean", x, dims=(0, 2, 3), correction=0)

    def channel(v: int) -> int:
        return b.expand(b.reshape(v, 1, 16, 1, 1), *shape)

    y = b.op("div", b.op("sub", x, channel(mean)), channel(b.op("sqrt", variance)))
    b.output(b.op("maximum", y, b.constant(0.0, FLOAT32)), mean)
    assert len(kernels(b.graph, values(6 * 16 * 35), tolerance=1e-5).kernels) == 1


def test_moments_of_one_parameter_are_one_kernel_and_scalars_are_no_kernel() -> None:
    b = GraphBuilder()
    p, g, m, v = (b.input((10, 30), FLOAT32) for _ in range(4))
    rate = b.cast(b.op("div", b.parameter(FLOAT64), b.constant(2.0, FLOAT64)), FLOAT32)
    m = b.op("add", b.op("mul", m, b.constant(0.9, FLOAT32)), b.op("mul", g, b.constant(0.1, FLOAT32)))
    square = b.op("mul", b.op("mul", g, g), b.constant(0.01, FLOAT32))
    v = b.op("add", b.op("mul", v, b.constant(0.99, FLOAT32)), square)
    p = b.op("sub", p, b.op("mul", rate, b.op("div", m, b.op("add", b.op("sqrt", v), b.constant(1e-8, FLOAT32)))))
    for position, value in ((0, p), (2, m), (3, v)):
        b.update(position, value)
    plan = kernels(b.graph, [np.abs(x) for x in values(300, 300, 300, 300)], (0.5,))
    assert len(plan.steps) == 1


def test_a_reshape_between_two_pointwise_nodes_does_not_part_them() -> None:
    b = GraphBuilder()
    x, y = b.input((6, 20), FLOAT32), b.input((3, 2, 4, 5), FLOAT32)
    z = b.op("mul", b.reshape(b.op("exp", x), 3, 2, 4, 5), y)
    z = b.op("add", b.reshape(z, 12, 10), b.constant(1.0, FLOAT32))
    b.output(b.op("sum", b.reshape(z, 24, 5), dims=(1,)))
    assert len(kernels(b.graph, values(120, 120)).kernels) == 1


def test_a_permuted_reader_is_fused() -> None:
    b = GraphBuilder()
    x, y = b.input((30, 40), FLOAT32), b.input((40, 30), FLOAT32)
    b.output(b.op("add", b.permute(b.op("tanh", x), 1, 0), y))
    assert len(kernels(b.graph, values(1200, 1200)).kernels) == 1


def test_the_epilogue_takes_bias_activation_and_an_update() -> None:
    b = GraphBuilder()
    x, w, c = b.input((20, 30), FLOAT32), b.input((30, 40), FLOAT32), b.input((40,), FLOAT32)
    old = b.input((20, 40), FLOAT32)
    y = b.op("maximum", b.op("add", b.op("matmul", x, w), c), b.constant(0.0, FLOAT32))
    b.update(3, b.op("add", b.op("mul", old, b.constant(0.5, FLOAT32)), y))
    plan = kernels(b.graph, values(600, 1200, 40, 800), tolerance=1e-5)
    assert len(plan.steps) == 1


@pytest.mark.parametrize("shape", [(1, 7, 5), (20, 30, 40), (3, 1, 9), (65, 130, 33)])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_a_product_read_transposed_is_laid_out_so(shape: tuple[int, int, int], batch: tuple[int, ...]) -> None:
    k, m, n = shape
    b = GraphBuilder()
    x, g, p = b.input((*batch, k, m), FLOAT32), b.input((*batch, k, n), FLOAT32), b.input((*batch, n, m), FLOAT32)
    order = (*range(len(batch)), len(batch) + 1, len(batch))
    product = b.op("matmul", b.permute(x, *order), g)
    gradient = b.permute(product, *order)
    row = b.input((m,), FLOAT32)
    step = b.op("mul", b.op("sqrt", b.op("abs", b.op("add", gradient, row))), b.constant(0.5, FLOAT32))
    b.update(2, b.op("sub", p, step))
    count = int(np.prod(batch, dtype=int))
    plan = kernels(b.graph, values(count * k * m, count * k * n, count * m * n, m), tolerance=2e-5)
    if m > 1 and n > 1 and k > 1:  # over a K of one it is a multiplication
        assert plan.graph.values[product].strides[-2:] == (1, m)
        assert len(plan.steps) == 1


def test_a_broadcast_inside_the_columns_stays_out_of_the_epilogue() -> None:
    b = GraphBuilder()
    x, w, y = b.input((6, 5), FLOAT32), b.input((5, 24), FLOAT32), b.input((6, 1, 6), FLOAT32)
    b.output(b.op("sum", b.op("mul", b.reshape(b.op("matmul", x, w), 6, 4, 6), y), dims=(2,)))
    plan = kernels(b.graph, values(30, 120, 36), tolerance=1e-5)
    assert [k.name for k in plan.kernels] == ["matmul_float32", "mul_sum"]


def test_channel_bias_follows_a_convolution() -> None:
    b = GraphBuilder()
    x, w, c = b.input((2, 3, 9, 8), FLOAT32), b.input((5, 3, 3, 3), FLOAT32), b.input((5,), FLOAT32)
    y = b.op("convolution", x, w, stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1)
    b.output(b.op("sigmoid", b.op("add", y, b.expand(b.reshape(c, 1, 5, 1, 1), 2, 5, 9, 8))))
    plan = kernels(b.graph, values(432, 135, 5), tolerance=1e-5)
    assert not [k for k in plan.kernels if "sigmoid" in k.name]


# -- More than one, and why -------------------------------------------------------------------------------------------


def notes(graph: Graph) -> str:
    return "\n".join(note for group in fuse(graph) for note in group.notes)


def test_a_cycle_through_another_kernel_keeps_groups_apart() -> None:
    b = GraphBuilder()
    x = b.input((40, 40), FLOAT32)
    y = b.op("exp", x)
    z = b.op("cumsum", y, dim=0)
    b.output(b.op("add", y, z))
    assert "needs a kernel that needs this group" in notes(b.graph)
    kernels(b.graph, values(1600), tolerance=1e-5)


def test_two_different_reductions_are_two_kernels() -> None:
    b = GraphBuilder()
    x = b.input((40, 50), FLOAT32)
    e = b.op("exp", x)
    b.output(b.op("sum", e, dims=(0,)), b.op("sum", e, dims=(1,)))
    assert "reduces other dimensions than the group" in notes(b.graph)
    assert len(kernels(b.graph, values(2000)).kernels) == 2


def test_a_long_row_is_not_read_twice_from_memory() -> None:
    b = GraphBuilder()
    x = b.input((8, 1 << 19), FLOAT32)
    b.output(b.op("sub", x, rows(b, b.op("amax", x, dims=(1,)), 8, 1 << 19)))
    assert "does not stay in the cache" in notes(b.graph)


def test_a_slice_of_a_computed_value_is_materialised() -> None:
    b = GraphBuilder()
    x = b.input((4, 10), FLOAT32)
    e = b.op("exp", x)
    b.output(b.op("add", b.slice(e, 1, 0, 5), b.slice(e, 1, 5, 10)))
    assert "slice of the value" in notes(b.graph)
    assert len(kernels(b.graph, values(40)).kernels) == 2


# -- Facts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shapes", [((40, 64), (77, 1001)), ((1, 40, 64), (3, 9, 15)), ((5,), (12345,))])
def test_a_new_size_is_no_new_kernel(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    keys = []
    for shape in shapes:
        b = GraphBuilder()
        x, y = b.input(shape, FLOAT32), b.input((shape[-1],), FLOAT32)
        z = b.op("tanh", b.op("mul", x, y))
        b.output(b.op("amax", z, dims=(len(shape) - 1,)), z)
        keys.append([k.key for k in kernels(b.graph, values(int(np.prod(shape)), shape[-1])).kernels])
    assert keys[0] == keys[1]


def test_an_index_out_of_range_is_reported() -> None:
    b = GraphBuilder()
    x, index = b.storage(10, FLOAT32), b.input((20,), INT64)
    b.output(b.op("exp", b.op("take", x, index)))
    positions = np.arange(20) % 10
    kernels(b.graph, [*values(10), positions - 10])
    x_data, bad = values(10)[0], np.where(positions == 7, 12, positions)
    with pytest.raises(IndexError, match="index 12 is out of bounds for dimension with size 10"):
        run_plan(compile_graph(b.graph), [x_data, bad], [], ([np.zeros(20, np.float32)], [x_data, bad]))
