"""Pooling and its gradients against the NumPy reference and PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau import dtypes
from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Kernel
from flambeau.compiler.kernels.pool import make_pool
from tests.kernels.images import Array, Case, operand

Pair = tuple[int, int]


def make(graph: Graph) -> list[Kernel]:
    return make_pool(graph, 0)


def windows(size: Pair, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair, ceil: bool) -> Pair:
    """Number of windows along each axis, as PyTorch counts them: the last starts inside the image or left padding."""
    counts = []
    for n, k, s, p, d in zip(size, kernel, stride, padding, dilation, strict=True):
        free = n + 2 * p - d * (k - 1) - 1 + (s - 1 if ceil else 0)
        count = free // s + 1
        if ceil and (count - 1) * s >= n + p:
            count -= 1
        counts.append(count)
    return counts[0], counts[1]


def cases(
    x: tuple[int, ...], kernel: Pair, stride: Pair, padding: Pair, dilation: Pair = (1, 1), ceil: bool = False,
    include: bool = True, divisor: int = 0, d: dtypes.dtype = dtypes.float32, plain: bool = True, seed: int = 0,
) -> dict[str, Case]:  # fmt: skip
    """The four nodes over an x-shaped image; the average only without dilation."""
    rng = np.random.default_rng(seed)
    y = (*x[:2], *windows((x[2], x[3]), kernel, stride, padding, dilation, ceil))
    attrs: dict[str, Any] = {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}
    image, gradient = operand(rng, x, d, plain), operand(rng, y, d, plain)
    forward = Case("max_pool", [image], [(y, d), (y, dtypes.int64)], attrs | {"shape": y})
    indices = forward.expected()[1]
    strides = tuple(s // 8 for s in indices.strides)
    found = {
        "max_pool": forward,
        "max_pool_gradient": Case(
            "max_pool_gradient",
            [gradient, (y, strides, 0, indices.ravel(), dtypes.int64)],
            [(x, d)],
            attrs | {"shape": x},
        ),
    }
    if dilation == (1, 1):
        attrs |= {"count_include_pad": include, "divisor": divisor}
        found["average_pool"] = Case("average_pool", [image], [(y, d)], attrs | {"shape": y})
        found["average_pool_gradient"] = Case("average_pool_gradient", [gradient], [(x, d)], attrs | {"shape": x})
    return found


def check(c: Case, d: dtypes.dtype, splits: int = 3) -> None:
    found, again, expected = c.run(make), c.run(make, splits), c.expected()
    exact = c.graph.nodes[0].op == "max_pool"
    for f, a, e in zip(found, again, expected, strict=True):
        assert f.tobytes() == a.tobytes()
        if exact:
            np.testing.assert_array_equal(f, e)
        else:
            epsilon = {"float64": 1e-14, "float32": 1e-5, "float16": 1e-2, "bfloat16": 5e-2}[d.name]
            np.testing.assert_allclose(f.astype(np.float64), e.astype(np.float64), rtol=epsilon, atol=epsilon)


@st.composite
def problems(draw: st.DrawFn) -> dict[str, Any]:
    kernel = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    dilation = draw(st.sampled_from(((1, 1), (1, 1), (2, 1), (2, 3))))
    padding = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    least = [max(1, dilation[i] * (kernel[i] - 1) + 1 - 2 * padding[i]) for i in range(2)]
    return {
        "x": (draw(st.integers(1, 3)), draw(st.integers(1, 4)), *(draw(st.integers(low, low + 35)) for low in least)),
        "kernel": kernel, "stride": draw(st.tuples(st.integers(1, 4), st.integers(1, 4))), "padding": padding,
        "dilation": dilation, "ceil": draw(st.booleans()), "include": draw(st.booleans()),
        "divisor": draw(st.sampled_from((0, 3))), "d": draw(st.sampled_from((dtypes.float32, dtypes.float64))),
        "plain": draw(st.booleans()), "seed": draw(st.integers(0, 1 << 20)),
    }  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(problems(), st.integers(1, 9))
def test_random_problems(problem: dict[str, Any], splits: int) -> None:
    for c in cases(**problem).values():
        check(c, problem["d"], splits)


@pytest.mark.parametrize("d", [dtypes.float16, dtypes.bfloat16], ids=repr)
def test_half_floats(d: dtypes.dtype) -> None:
    for c in cases((2, 3, 13, 14), (3, 2), (2, 2), (1, 1), d=d).values():
        check(c, d)


@pytest.mark.parametrize("d", [dtypes.uint8, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64], ids=repr)
def test_integers(d: dtypes.dtype) -> None:
    check(cases((2, 3, 13, 14), (3, 2), (2, 2), (1, 1), d=d)["max_pool"], d)


def special(x: Array) -> Array:
    """Sprinkle NaN and infinities, with equal neighbours, over a flat float32 array."""
    x[::7] = np.nan
    x[1::5] = np.inf
    x[2::5] = -np.inf
    x[3::11] = 1
    x[4::11] = 1
    return x


@pytest.mark.parametrize("padding", ((0, 0), (1, 1)))
@pytest.mark.parametrize("stride", (1, 2, 3))
def test_nan_and_ties_as_pytorch(padding: Pair, stride: int) -> None:
    torch = pytest.importorskip("torch")
    c = cases((2, 3, 20, 37), (3, 3), (stride, stride), padding)["max_pool"]
    image = special(c.storages[0]).reshape(2, 3, 20, 37)
    image[0, 0] = -np.inf
    image[0, 1] = np.nan
    values, indices = c.run(make)
    theirs = torch.nn.functional.max_pool2d(torch.from_numpy(image), 3, stride, padding, return_indices=True)
    np.testing.assert_array_equal(values, theirs[0].numpy())
    np.testing.assert_array_equal(indices, theirs[1].numpy())


@pytest.mark.parametrize("include", (True, False))
@pytest.mark.parametrize("ceil", (True, False))
def test_averages_are_pytorchs_bit_for_bit(include: bool, ceil: bool) -> None:
    torch = pytest.importorskip("torch")
    x = (2, 3, 21, 38)
    found = cases(x, (3, 4), (2, 3), (1, 2), ceil=ceil, include=include)
    c = found["average_pool"]
    image = torch.from_numpy(c.storages[0].reshape(x))
    theirs = torch.nn.functional.avg_pool2d(image, (3, 4), (2, 3), (1, 2), ceil, include)
    np.testing.assert_array_equal(c.run(make)[0], theirs.numpy())
    c = found["average_pool_gradient"]
    gradient = torch.from_numpy(c.storages[0].reshape(theirs.shape))
    back = torch.ops.aten.avg_pool2d_backward(gradient, image, (3, 4), (2, 3), (1, 2), ceil, include, None)
    np.testing.assert_array_equal(c.run(make)[0], back.numpy())


def test_a_wild_index_writes_nothing() -> None:
    c = cases((1, 1, 8, 8), (2, 2), (2, 2), (0, 0))["max_pool_gradient"]
    c.storages[1][:] = [-1, 64, 1 << 40, -(1 << 62)] * 4
    assert not c.run(make)[0].any()


def test_no_planes() -> None:
    for shape in ((0, 3, 8, 8), (2, 0, 8, 8)):
        for c in cases(shape, (2, 2), (2, 2), (0, 0)).values():
            assert make(c.graph) == []


def test_sizes_compile_nothing() -> None:
    def keys(*x: int) -> set[str]:
        return {make(c.graph)[0].key for c in cases((x[0], x[1], x[2], x[3]), (2, 2), (2, 2), (0, 0)).values()}

    assert keys(1, 1, 8, 8) == keys(5, 64, 24, 26) == keys(2, 3, 112, 9)


def test_output_in_another_order() -> None:
    """Results whose Values are dense in channels-last order."""
    for c in cases((2, 3, 9, 10), (3, 2), (2, 1), (1, 1)).values():
        plain = c.run(make)
        for o in c.outs:
            _, channels, h, w = c.graph.values[o].shape
            c.graph.values[o].strides = (h * w * channels, 1, w * channels, channels)
        for f, p in zip(c.run(make), plain, strict=True):
            np.testing.assert_array_equal(f, p)


@pytest.mark.parametrize("d", [dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64, dtypes.uint8], ids=str)
def test_a_window_of_padding_alone(d: dtypes.dtype) -> None:
    """Its maximum is the least of all values, as PyTorch's is."""
    check(cases((2, 1, 1, 2), (1, 2), (1, 1), (0, 1), (2, 3), d=d)["max_pool"], d, 1)


@pytest.mark.parametrize(
    ("x", "kernel", "stride", "padding"),
    (((1, 2, 40, 130), (3, 40), (2, 40), (1, 3)), ((2, 1, 90, 100), (90, 100), (90, 100), (0, 0)), ((1, 1, 9, 37), (2, 5), (1, 4), (1, 2))),
)
def test_wide_steps(x: tuple[int, ...], kernel: Pair, stride: Pair, padding: Pair) -> None:
    """Phases of a few columns, in planes that vectors would make many times as large, and taps that not all phases have."""
    check(cases(x, kernel, stride, padding)["average_pool_gradient"], dtypes.float32)
