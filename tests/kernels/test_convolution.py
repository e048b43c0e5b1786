"""Convolutions and their gradients against the NumPy reference, and their accuracy against PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau import dtypes
from flambeau.compiler.emit.builder import Builder
from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Address, Kernel, Word
from flambeau.compiler.kernels.convolution import make_convolution
from flambeau.compiler.kernels.convolution_depthwise import make_depthwise
from flambeau.compiler.kernels.convolution_depthwise_lanes import make_depthwise_lanes
from flambeau.compiler.kernels.convolution_problem import problem as problem_of
from flambeau.runtime.target import Target
from tests.kernels.harness import Runner, aligned
from tests.kernels.images import Case, operand

OPS = ("convolution", "convolution_input_gradient", "convolution_weight_gradient")


def make(graph: Graph) -> list[Kernel]:
    return make_convolution(graph, 0)


def case(
    op: str, x: tuple[int, ...], w: tuple[int, ...], stride: tuple[int, int], padding: tuple[int, int],
    dilation: tuple[int, int], groups: int, d: dtypes.dtype = dtypes.float32, plain: bool = True, seed: int = 0,
) -> Case:  # fmt: skip
    """A node of an x-shaped image and a w-shaped kernel."""
    size = [
        (x[2 + i] + 2 * padding[i] - dilation[i] * (w[2 + i] - 1) - 1) // stride[i] + 1 for i in range(2)
    ]  # fmt: skip
    y = (x[0], w[0], size[0], size[1])
    rng = np.random.default_rng(seed)
    attrs: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    inputs, out = {
        "convolution": ((x, w), y), "convolution_input_gradient": ((y, w), x),
        "convolution_weight_gradient": ((y, x), w),
    }[op]  # fmt: skip
    if op != "convolution":
        attrs["shape"] = out
    return Case(op, [operand(rng, shape, d, plain) for shape in inputs], [(out, d)], attrs)


def check(c: Case, d: dtypes.dtype, terms: int, splits: int = 3, by: Callable[[Graph], list[Kernel]] = make) -> None:
    """Results near the reference, and the same bits however the units are handed out."""
    (found,) = c.run(by)
    (again,) = c.run(by, splits)
    assert found.tobytes() == again.tobytes()
    (expected,) = c.expected()
    if not d.is_floating_point:
        np.testing.assert_array_equal(found, expected)
        return
    epsilon = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}[d.name]
    # Normal operands: a sum of t products has a spread of sqrt(t); its error in float32 stays far below t * epsilon.
    allowed = 8 * epsilon * (np.abs(expected) + 4 * np.sqrt(terms + 1)) if d.itemsize > 2 else 2 * epsilon * (np.abs(expected) + 0.1)
    assert np.all(np.abs(found.astype(np.float64) - expected) <= allowed)


@st.composite
def problems(draw: st.DrawFn, planes: bool = False) -> dict[str, Any]:
    """`planes`: as many groups of one channel as vectors have lanes, nearly or more."""
    groups = draw(st.sampled_from((7, 13, 16, 29, 48) if planes else (1, 1, 2, 3)))
    depthwise = planes or (draw(st.booleans()) and groups > 1)
    kernel = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    dilation = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    padding = draw(st.tuples(st.integers(0, 4), st.integers(0, 4)))
    inputs = 1 if depthwise else draw(st.integers(1, 20))
    least = [max(1, dilation[i] * (kernel[i] - 1) + 1 - 2 * padding[i]) for i in range(2)]
    return {
        "op": draw(st.sampled_from(OPS)),
        "x": (draw(st.integers(1, 4)), groups * inputs, *(draw(st.integers(low, low + 35)) for low in least)),
        "w": (groups * (1 if planes else draw(st.integers(1, 40))), inputs, *kernel),
        "stride": draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
        "padding": padding, "dilation": dilation, "groups": groups,
        "d": draw(st.sampled_from((dtypes.float32, dtypes.float32, dtypes.float64))),
        "plain": draw(st.booleans()), "seed": draw(st.integers(0, 1 << 20)),
    }  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(problems(), st.integers(1, 9))
def test_random_problems(problem: dict[str, Any], splits: int) -> None:
    check_problem(problem, splits)


@settings(max_examples=100, deadline=None)
@given(problems(planes=True), st.integers(1, 9))
def test_random_planes(problem: dict[str, Any], splits: int) -> None:
    c = check_problem(problem, splits)
    if problem["op"] != "convolution_weight_gradient":  # whichever way they go, as that may depend on what else is known
        found = [c.run(partial(depthwise, lanes=lanes))[0].tobytes() for lanes in (False, True)]
        assert found[0] == found[1]


def depthwise(graph: Graph, lanes: bool) -> list[Kernel]:
    p, op = problem_of(graph, 0), graph.nodes[0].op
    return make_depthwise_lanes(p, op, 0, None) if lanes else make_depthwise(graph, p, op, 0, None)


def check_problem(problem: dict[str, Any], splits: int) -> Case:
    c = case(**problem)
    x, w = problem["x"], problem["w"]
    # At most so many products are summed: a weight's over pixels, the others over channels and taps.
    padded = (x[2] + 2 * problem["padding"][0]) * (x[3] + 2 * problem["padding"][1])
    check(c, problem["d"], x[0] * padded + w[0] * w[1] * w[2] * w[3], splits)
    return c


@pytest.mark.parametrize("d", [d for d in dtypes.ALL if not d.is_complex and d is not dtypes.bool_], ids=repr)
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("groups", (1, 4))
def test_every_dtype(op: str, d: dtypes.dtype, groups: int) -> None:
    check(case(op, (2, 4, 9, 11), (20, 4 // groups, 3, 2), (2, 1), (1, 1), (1, 2), groups, d), d, 1000)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    ("x", "w", "stride", "padding", "dilation", "groups"),
    [
        ((3, 2, 1, 50), (20, 2, 1, 5), (1, 2), (0, 3), (1, 2), 1),  # one-dimensional
        ((3, 2, 50, 1), (20, 2, 5, 1), (2, 1), (3, 0), (2, 1), 1),  # one column: turned on its side
        ((2, 300, 9, 9), (40, 300, 1, 1), (1, 1), (0, 0), (1, 1), 1),  # rows merged, several blocks of K
        ((2, 8, 40, 60), (24, 8, 1, 1), (1, 1), (0, 0), (1, 1), 1),  # a row longer than a block
        ((1, 20, 7, 7), (70, 20, 7, 7), (1, 1), (0, 0), (1, 1), 1),  # one output pixel
        ((9, 40, 5, 7), (40, 40, 3, 3), (1, 1), (1, 1), (1, 1), 1),  # several images in a unit
        ((1, 3, 40, 40), (64, 3, 11, 11), (4, 4), (2, 2), (1, 1), 1),  # stride 4: gathers
        ((2, 20, 9, 9), (20, 20, 1, 1), (3, 3), (0, 0), (1, 1), 1),  # pixels without any tap
        ((2, 32, 20, 20), (64, 2, 3, 3), (1, 1), (1, 1), (1, 1), 16),  # narrow groups
        ((2, 20, 9, 71), (5, 20, 3, 3), (1, 1), (1, 1), (1, 1), 1),  # few outputs: rows of three vectors, one, and a part of one
        ((2, 5, 40, 71), (20, 5, 3, 4), (3, 2), (1, 2), (1, 1), 1),  # few inputs: their gradient in phases
        ((2, 6, 20, 20), (24, 1, 3, 3), (2, 2), (1, 1), (1, 1), 6),  # depthwise, 4 outputs each
        ((2, 20, 6, 6), (20, 20, 2, 2), (1, 1), (5, 5), (1, 1), 1),  # more padding than the kernel reaches
        ((2, 3, 6, 6), (3, 1, 2, 2), (1, 1), (5, 5), (1, 1), 3),
        ((3, 4, 9, 20), (4, 1, 1, 1), (3, 3), (0, 0), (1, 1), 4),  # depthwise, pixels without any tap
        ((3, 3, 15, 37), (6, 1, 3, 5), (2, 4), (2, 1), (2, 2), 3),  # depthwise, taps that skip residues
        ((5, 3, 40, 7), (3, 1, 5, 3), (1, 1), (2, 1), (1, 1), 3),  # depthwise, rows of half a vector
        ((2, 3, 13, 61), (3, 1, 7, 2), (1, 2), (3, 1), (1, 2), 3),  # depthwise, rows together, columns dealt
    ],
)
def test_shapes(op: str, x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> None:
    check(case(op, x, w, stride, padding, dilation, groups), dtypes.float32, 20_000)


@pytest.mark.parametrize("op", OPS)
def test_results_in_other_strides(op: str) -> None:
    """Channels last."""
    c = case(op, (2, 20, 9, 11), (40, 20, 3, 2), (1, 1), (1, 1), (1, 1), 1)
    (out,) = c.outs
    shape = c.graph.values[out].shape
    c.graph.values[out] = replace(c.graph.values[out], strides=(shape[1] * shape[2] * shape[3], 1, shape[3] * shape[1], shape[1]))
    check(c, dtypes.float32, 1000)


def test_no_images() -> None:
    args = ((0, 3, 8, 8), (20, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1)
    assert make(case("convolution", *args).graph) == []
    assert make(case("convolution_input_gradient", *args).graph) == []
    for groups, channels in ((1, 3), (3, 1)):
        c = case("convolution_weight_gradient", args[0], (21, channels, 3, 3), *args[2:5], groups)
        (found,) = c.run(make)
        assert not found.any()


def test_complex_is_refused() -> None:
    with pytest.raises(TypeError, match=r"convolution: .*complex64.*real parts"):
        make(case("convolution", (1, 2, 4, 4), (2, 2, 3, 3), (1, 1), (1, 1), (1, 1), 1, dtypes.complex64).graph)


@pytest.mark.parametrize("op", OPS)
def test_sizes_compile_nothing(op: str) -> None:
    def keys(n: int, c: int, o: int, h: int, w: int, k: int) -> set[str]:
        kernels = make(case(op, (n, c, h, w), (o, c, k, k), (1, 1), (1, 1), (1, 1), 1).graph)
        return {kernel.key for kernel in kernels}

    assert keys(1, 16, 40, 28, 28, 3) == keys(64, 17, 36, 57, 13, 3) == keys(5, 17, 33, 300, 500, 5)
    assert keys(8, 64, 32, 28, 28, 3) == keys(64, 96, 128, 57, 13, 3) == keys(5, 160, 64, 300, 500, 5)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("groups", (1, 64))
def test_no_less_accurate_than_pytorch(op: str, groups: int) -> None:
    torch = pytest.importorskip("torch")
    x, w = (8, 64, 28, 28), (64, 64 // groups, 3, 3)
    c = case(op, x, w, (1, 1), (1, 1), (1, 1), groups)
    (found,) = c.run(make)
    arrays = []
    for storage, value in zip(c.storages, (c.graph.values[i] for i in c.graph.nodes[0].inputs), strict=True):
        arrays.append(torch.from_numpy(storage.reshape(value.shape)))

    def compute(a: Any, b: Any) -> Any:
        if op == "convolution":
            return torch.nn.functional.conv2d(a, b, None, 1, 1, 1, groups)
        g, xx, ww = (a, torch.zeros(x, dtype=a.dtype), b) if "input" in op else (a, b, torch.zeros(w, dtype=a.dtype))
        wanted = [op.endswith("input_gradient"), op.endswith("weight_gradient"), False]
        results = torch.ops.aten.convolution_backward(g, xx, ww, None, [1, 1], [1, 1], [1, 1], False, [0, 0], groups, wanted)
        return results[0 if wanted[0] else 1]

    exact = compute(*(a.double() for a in arrays)).numpy()
    theirs = np.sqrt(np.mean((compute(*arrays).numpy() - exact) ** 2))
    ours = np.sqrt(np.mean((found - exact) ** 2))
    assert ours <= 1.05 * theirs


class Increment:
    """An epilogue that adds 1 to every element of the result, and so counts how often each is visited."""

    key = "test:increment"

    def __init__(self, out: int, shape: tuple[int, ...]) -> None:
        self.words: list[Word] = [Address(out), shape[1], shape[2] * shape[3]]

    def emit(self, name: str, first_word: int, target: Target) -> str:
        b = Builder(target)
        out = b.load("ptr", b.gep("i64", "%args", first_word), 8)
        rows, columns = (b.load("i64", b.gep("i64", "%args", first_word + i), 8) for i in (1, 2))
        with b.for_("%row0", "%row1") as r:
            line = b.gep("float", out, b.mul(b.add(b.mul("%batch", rows), r), columns))
            with b.for_("%col0", "%col1") as c:
                at = b.gep("float", line, c)
                b.store("float", b.op(f"fadd float {b.load('float', at, 4)}, 1.0"), at, 4)
        return b.function(f"define internal void @{name}(ptr %args, i64 %batch, i64 %row0, i64 %row1, i64 %col0, i64 %col1) #0")

    def declarations(self, target: Target) -> list[str]:
        return []


@pytest.mark.parametrize("op", OPS[:2])
@pytest.mark.parametrize(
    ("x", "w", "stride", "groups"),
    [
        ((3, 4, 12, 13), (6, 4, 3, 3), 1, 1), ((3, 20, 12, 13), (40, 20, 3, 3), 1, 1),
        ((3, 20, 12, 13), (40, 20, 3, 3), 2, 1),
        ((2, 24, 40, 60), (24, 24, 1, 1), 1, 1), ((9, 40, 5, 7), (40, 40, 3, 3), 1, 1),
        ((1, 24, 9, 9), (100, 24, 3, 3), 1, 1),
        ((2, 4, 12, 13), (8, 1, 3, 3), 2, 4), ((3, 4, 12, 13), (6, 2, 3, 3), 3, 2),
    ],
)  # fmt: skip
def test_epilogue_visits_each_element_once(op: str, x: Any, w: Any, stride: int, groups: int) -> None:
    c = case(op, x, w, (stride, stride), (1, 1), (1, 1), groups)
    out = c.outs[0]
    epilogue = Increment(out, c.graph.values[out].shape)
    (plain,) = c.run(make)
    (found,) = c.run(lambda graph: make_convolution(graph, 0, epilogue), 4)
    np.testing.assert_array_equal(found, plain + np.float32(1))


def test_weight_gradient_takes_no_epilogue() -> None:
    c = case(OPS[2], (1, 2, 4, 4), (2, 2, 3, 3), (1, 1), (1, 1), (1, 1), 1)
    with pytest.raises(ValueError, match="no epilogue"):
        make_convolution(c.graph, 0, Increment(c.outs[0], (2, 2, 3, 3)))


def test_output_in_another_order() -> None:
    """A result whose Value is dense in channels-last order."""
    for op, stride in ((OPS[0], 1), (OPS[1], 1), (OPS[1], 2), (OPS[2], 1)):
        for groups in (1, 20):
            c = case(op, (2, 20, 9, 10), (40, 20 // groups, 3, 3), (stride, stride), (1, 1), (1, 1), groups)
            (plain,) = c.run(make)
            value = c.graph.values[c.outs[0]]
            _, b, h, w = value.shape
            value.strides = (b * h * w, 1, w * b, b)
            kernels = make(c.graph)
            buffers = {root: storage.view(np.uint8) for root, storage in zip(c.graph.inputs, c.storages, strict=True)}
            buffers[c.outs[0]] = aligned(value.numel * 4)
            Runner(kernels, c.graph, buffers).run(2)
            found = buffers[c.outs[0]].view(np.float32).reshape(value.shape[0], h, w, b).transpose(0, 3, 1, 2)
            np.testing.assert_array_equal(found, plain)
