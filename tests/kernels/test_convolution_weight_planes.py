"""The weight's gradient by the matrix unit from planes of pixels: sizes, errors beside PyTorch's, and values that parts cannot hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as ft
from flambeau.compiler.kernels import convolution_weight, convolution_weight_planes
from flambeau.compiler.kernels.convolution_problem import Problem
from flambeau.runtime import tiles
from tests.kernels.test_convolution_weight_tiles import arrays, exactly, gradient

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    "bfloat16" not in tiles.dtypes(), reason="this machine has no matrix unit, or the system does not lend it"
)

# batch, channels, outputs, height, width, kernel, stride, padding, dilation, groups
SHAPES = [
    (2, 64, 64, 32, 32, (3, 3), 1, 1, 1, 1), (3, 40, 70, 37, 31, (3, 3), 1, 1, 1, 1), (5, 100, 90, 6, 5, (3, 3), 1, 3, 1, 1),
    (4, 32, 64, 40, 33, (3, 3), 1, 0, 2, 1), (7, 64, 96, 6, 20, (1, 5), 1, (0, 2), 1, 2), (1, 16, 16, 3, 400, (2, 2), 1, 0, 1, 1),
    (9, 33, 31, 15, 15, (5, 5), 1, 4, 2, 1), (19, 17, 48, 7, 7, (3, 3), 1, 1, 1, 1), (2, 16, 16, 60, 70, (7, 7), 1, 3, 1, 4),
    (3, 250, 130, 8, 8, (3, 3), 1, 1, 1, 1), (2, 32, 32, 17, 9, (1, 1), 1, 0, 1, 1), (1, 20, 20, 1, 1, (3, 3), 1, 1, 1, 1),
    (2, 20, 40, 9, 30, (3, 4), 1, (5, 20), 1, 1),
]  # fmt: skip


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution_weight, "weight_tiles_apply", lambda p: False)
    monkeypatch.setattr(convolution_weight, "weight_planes_apply", lambda p: True)


@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_sizes(case: tuple) -> None:  # type: ignore[type-arg]
    x, g, shape, options = arrays(case)
    threads = ft.get_num_threads()
    try:
        ft.set_num_threads(1)
        result = gradient(x, g, shape, options, 3)
        ft.set_num_threads(2)
        np.testing.assert_array_equal(gradient(x, g, shape, options, 3), result)
    finally:
        ft.set_num_threads(threads)
    exact = exactly(x, g, shape, options)
    sizes = exactly(np.abs(x), np.abs(g), shape, options)
    assert (np.abs(result - exact) <= 40 * 2.0**-24 * sizes).all()


@pytest.mark.parametrize("positive", [False, True], ids=["normal", "positive"])
@pytest.mark.parametrize(
    "case", [(8, 64, 64, 32, 32, (3, 3), 1, 1, 1, 1), (32, 32, 32, 8, 8, (3, 3), 1, 1, 1, 1), (2, 64, 64, 7, 7, (3, 3), 1, 1, 1, 1)], ids=str
)
def test_errors_are_no_larger_than_those_of_pytorch(case: Any, positive: bool) -> None:
    x, g, shape, options = arrays(case)
    if positive:
        x, g = np.abs(x), np.abs(g)
    exact = exactly(x, g, shape, options)
    theirs = torch.nn.grad.conv2d_weight(torch.from_numpy(x), shape, torch.from_numpy(g), **options).numpy()
    ours = gradient(x, g, shape, options, 3)
    assert np.sqrt(np.mean((ours - exact) ** 2)) <= np.sqrt(np.mean((theirs - exact) ** 2))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e-42, -1e-38, 3e38], ids=str)
def test_special_values(value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """One in the image, or in the gradient, where no tap meets padding: what machines without the unit compute."""
    x, g, shape, options = arrays((3, 40, 33, 36, 37, (3, 3), 1, 1, 1, 1))
    for where in (x, g):
        old = where[2, 32, 22, 3]
        where[2, 32, 22, 3] = value
        with np.errstate(all="ignore"):
            ours = gradient(x, g, shape, options, 3)
            monkeypatch.setattr(convolution_weight, "weight_planes_apply", lambda p: False)
            plain = gradient(x, g, shape, options, 1)
            monkeypatch.setattr(convolution_weight, "weight_planes_apply", lambda p: True)
            np.testing.assert_array_equal(np.isnan(ours), np.isnan(plain))
            sizes = exactly(np.abs(x), np.abs(g), shape, options)
            fine = sizes < np.finfo(np.float32).max
            assert (np.abs(ours[fine] - plain[fine]) <= 200 * 2.0**-24 * sizes[fine]).all()
            assert not np.isfinite(ours[~np.isfinite(sizes)]).any()
        where[2, 32, 22, 3] = old


def test_tiny_operands() -> None:
    """Denormal products, and operands whose parts would be denormal."""
    x, g, shape, options = arrays((2, 32, 32, 20, 24, (3, 3), 1, 1, 1, 1))
    for left, right in ((1e-20, 1e-20), (1e-37, 1.0), (1e-42, 1.0)):
        a, b = (x * np.float32(left)).astype(np.float32), (g * np.float32(right)).astype(np.float32)
        sizes = exactly(np.abs(a), np.abs(b), shape, options)
        assert (np.abs(gradient(a, b, shape, options, 3) - exactly(a, b, shape, options)) <= 200 * 2.0**-24 * sizes + 1e-43).all()


def test_where_it_applies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many channels and many places that are pixels; no stride, no 1x1 kernels."""
    seen: list[bool] = []

    def apply(p: Problem) -> bool:
        seen.append(convolution_weight_planes.weight_planes_apply(p))
        return seen[-1]

    monkeypatch.setattr(convolution_weight, "weight_planes_apply", apply)
    cases = [(8, 64, 64, 32, 32, (3, 3), 1, 1, 1, 1), (8, 3, 64, 32, 32, (3, 3), 1, 1, 1, 1), (8, 64, 64, 2, 2, (3, 3), 1, 1, 1, 1)]
    for case in (*cases, (8, 64, 64, 32, 32, (3, 3), 2, 1, 1, 1), (8, 320, 320, 32, 32, (1, 1), 1, 0, 1, 1)):
        gradient(*arrays(case), 2)
    assert seen == [True, False, False, False, False]
