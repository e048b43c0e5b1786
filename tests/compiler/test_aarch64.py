"""Kernels for AArch64 compute what the specification says, and the bits of this machine where sums are in the same order: run under QEMU."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from flambeau import dtypes
from flambeau.compiler.graph import Graph
from tests import reference
from tests.compiler import aarch64
from tests.compiler.programs import data, graphs
from tests.graphs import GraphBuilder
from tests.native import assert_close, assert_same_bits

pytestmark = pytest.mark.skipif(not (aarch64.EMULATOR and aarch64.ASSEMBLER and aarch64.LINKER), reason="qemu-aarch64 and binutils for AArch64 are wanted")
SETTINGS = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


def check(graph: Graph, inputs: list[Any], parameters: list[Any], tolerance: float = 0.0) -> None:
    expected = reference.run(graph, inputs, parameters)
    with tempfile.TemporaryDirectory() as folder:
        found = aarch64.run(graph, inputs, parameters, Path(folder))
    like = [*expected[0], *expected[1]]
    typed = [a.view(b.dtype) for a, b in zip(found, like, strict=True)]
    got = typed[: len(expected[0])], typed[len(expected[0]) :]
    if tolerance:
        assert_close(got, expected, tolerance)
    else:
        assert_same_bits(got, expected)


@SETTINGS
@given(graphs(rounded=False))
def test_exact_programs(graph: Graph) -> None:
    check(graph, *data(graph))


@SETTINGS
@given(graphs(floats=(dtypes.float32,)))
def test_programs(graph: Graph) -> None:
    check(graph, *data(graph), 1e-5)


@SETTINGS
@given(graphs(floats=(dtypes.float16, dtypes.float32), rounded=False))
def test_half_programs(graph: Graph) -> None:
    check(graph, *data(graph))


@pytest.mark.parametrize("size", [(3, 4, 5), (40, 50, 60), (1, 300, 200), (65, 130, 300), (16, 16, 2000)], ids=str)
@pytest.mark.parametrize("d", [dtypes.float32, dtypes.float64, dtypes.int32], ids=lambda d: d.name)
def test_products(d: dtypes.dtype, size: tuple[int, int, int]) -> None:
    m, n, k = size
    b = GraphBuilder()
    b.output(b.op("matmul", b.input((m, k), d), b.input((k, n), d)))
    generator = np.random.default_rng(0)
    inputs = [np.round(generator.normal(size=count) * 8).astype(d.numpy_name) for count in (m * k, k * n)]  # exact in any order
    check(b.graph, inputs, [])


@pytest.mark.parametrize("groups", [1, 16])
def test_convolutions(groups: int) -> None:
    b = GraphBuilder()
    d, size = dtypes.float32, (2, 16, 12, 12)
    x, w = b.input(size, d), b.input((16, 16 // groups, 3, 3), d)
    common = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": groups}
    y = b.op("convolution", x, w, **common)
    b.output(y)
    b.output(b.op("convolution_input_gradient", b.cast(y, d), w, shape=size, **common))
    generator = np.random.default_rng(0)
    check(b.graph, [np.round(generator.normal(size=b.graph.values[i].numel) * 2).astype("float32") for i in b.graph.inputs], [])
