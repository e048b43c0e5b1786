"""Running compiled graphs in tests: NumPy arrays in, NumPy arrays out, compared with the reference interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from flambeau.compiler.graph import Graph
from flambeau.compiler.pipeline import compile_graph
from flambeau.compiler.plan import Plan
from flambeau.dtypes import bfloat16
from flambeau.runtime.buffers import Buffer, allocate
from flambeau.runtime.memory import view_as_numpy
from tests import reference


def buffer_of(x: Any) -> Buffer:
    """A new buffer with the bytes of a flat array."""
    flat = np.ascontiguousarray(x)
    b = allocate(flat.nbytes)
    view_as_numpy(b.address, flat.nbytes, b)[...] = flat.view(np.uint8).reshape(-1)
    return b


def array_of(b: Buffer, like: Any) -> Any:
    """A copy of the bytes of a buffer, as the dtype and size of `like`."""
    return view_as_numpy(b.address, like.nbytes, b).copy().view(like.dtype)


def run_plan(plan: Plan, inputs: Sequence[Any], parameters: Sequence[Any], expected: Any) -> tuple[list[Any], list[Any]]:
    """(outputs, inputs afterwards) as flat arrays, typed as `expected` is."""
    buffers = [buffer_of(x) for x in inputs]
    outputs = plan.run(buffers, list(parameters))
    return (
        [array_of(b, e) for b, e in zip(outputs, expected[0], strict=True)],
        [array_of(b, e) for b, e in zip(buffers, expected[1], strict=True)],
    )


def assert_same_bits(got: Any, expected: Any, what: str = "") -> None:
    """Equal bytes; any NaN equals any other."""
    for i, (a, b) in enumerate(zip((*got[0], *got[1]), (*expected[0], *expected[1]), strict=True)):
        np.testing.assert_array_equal(a, b, err_msg=f"{what}: result {i}")
        if a.dtype.kind in "fc":
            same = (a == a) & (b == b)
            assert a[same].tobytes() == b[same].tobytes(), f"{what}: result {i} differs in the sign of a zero"


def assert_close(got: Any, expected: Any, tolerance: float, what: str = "") -> None:
    """Relative to the largest magnitude in a result; NaN and infinities must agree."""
    for i, (a, b) in enumerate(zip((*got[0], *got[1]), (*expected[0], *expected[1]), strict=True)):
        if a.dtype.kind in "fc":
            finite = np.abs(b[np.isfinite(b)])
            scale = float(finite.max()) if finite.size else 0.0
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * scale, err_msg=f"{what}: result {i}")
        else:
            np.testing.assert_array_equal(a, b, err_msg=f"{what}: result {i}")


def _numbers(graph: Graph, results: Any) -> Any:
    """bfloat16 bits as float32, so that they can be compared within a tolerance."""
    lists = []
    for roots, arrays in zip((graph.outputs, graph.inputs), results, strict=True):
        kinds = [graph.values[i].dtype is bfloat16 for i in roots]
        lists.append([reference.to_float32(a) if narrow else a for narrow, a in zip(kinds, arrays, strict=True)])
    return lists


def check_graph(graph: Graph, inputs: Sequence[Any], parameters: Sequence[Any] = (), *, tolerance: float = 0.0, fuse: bool = True) -> Plan:
    """Compile, run and compare with the reference (bit for bit if `tolerance` is 0); returns the plan."""
    expected = reference.run(graph, inputs, parameters)
    plan = compile_graph(graph, fuse=fuse, check_passes=True)
    got = run_plan(plan, inputs, parameters, expected)
    if tolerance:
        assert_close(_numbers(graph, got), _numbers(graph, expected), tolerance)
    else:
        assert_same_bits(got, expected)
    return plan
