"""The weight's gradient by the matrix unit: sizes, errors beside PyTorch's, and values that its parts cannot hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as ft
from flambeau.compiler.kernels import convolution_weight, convolution_weight_tiles
from flambeau.compiler.kernels.convolution_problem import Problem
from flambeau.runtime import tiles

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    "bfloat16" not in tiles.dtypes(), reason="this machine has no matrix unit, or the system does not lend it"
)

# batch, channels, outputs, height, width, kernel, stride, padding, dilation, groups
SHAPES = [
    (32, 32, 32, 4, 4, (3, 3), 1, 1, 1, 1), (30, 40, 70, 7, 9, (3, 3), 1, 1, 1, 1), (24, 100, 90, 6, 5, (3, 3), 2, 1, 1, 1),
    (64, 32, 64, 10, 10, (3, 3), 2, 0, 2, 1), (32, 64, 96, 6, 20, (1, 5), 1, (0, 2), 1, 2), (57, 16, 16, 3, 70, (2, 2), 1, 0, 1, 1),
    (32, 33, 31, 5, 5, (5, 5), 3, 4, 1, 1),
]  # fmt: skip


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution_weight, "weight_tiles_apply", lambda p: True)
    monkeypatch.setattr(convolution_weight, "weight_planes_apply", lambda p: False)


def gradient(x: np.ndarray, g: np.ndarray, shape: tuple[int, ...], options: dict[str, Any], again: int = 0) -> np.ndarray:
    """`again`: a number for each choice of kernels, so that no plan of another choice is found."""
    image, weight, given = ft.from_numpy(x).clone(), ft.zeros(shape, requires_grad=True), ft.from_numpy(g).clone()
    for _ in range(again):
        image = image * 1.0
    ft.nn.functional.conv2d(image, weight, **options).backward(given)
    assert weight.grad is not None
    return np.array(weight.grad.numpy())


def arrays(case: tuple, seed: int = 0) -> tuple[np.ndarray, np.ndarray, tuple[int, ...], dict[str, Any]]:  # type: ignore[type-arg]
    batch, channels, outputs, height, width, kernel, stride, padding, dilation, groups = case
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((batch, channels, height, width), np.float32)
    shape = (outputs, channels // groups, *kernel)
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    y = torch.nn.functional.conv2d(torch.from_numpy(x[:1]), torch.zeros(shape), **options)
    return x, rng.standard_normal((batch, *y.shape[1:]), np.float32), shape, options


def exactly(x: np.ndarray, g: np.ndarray, shape: tuple[int, ...], options: dict[str, Any]) -> np.ndarray:
    exact = torch.nn.grad.conv2d_weight(torch.from_numpy(x).double(), shape, torch.from_numpy(g).double(), **options)
    return np.asarray(exact.numpy())


@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_sizes(case: tuple) -> None:  # type: ignore[type-arg]
    x, g, shape, options = arrays(case)
    threads = ft.get_num_threads()
    try:
        ft.set_num_threads(1)
        result = gradient(x, g, shape, options)
        ft.set_num_threads(2)
        np.testing.assert_array_equal(gradient(x, g, shape, options), result)
    finally:
        ft.set_num_threads(threads)
    exact = exactly(x, g, shape, options)
    sizes = exactly(np.abs(x), np.abs(g), shape, options)
    assert (np.abs(result - exact) <= 40 * 2.0**-24 * sizes).all()


@pytest.mark.parametrize("positive", [False, True], ids=["normal", "positive"])
def test_errors_are_no_larger_than_those_of_pytorch(positive: bool) -> None:
    x, g, shape, options = arrays((32, 64, 64, 8, 8, (3, 3), 1, 1, 1, 1))
    if positive:
        x, g = np.abs(x), np.abs(g)
    exact = exactly(x, g, shape, options)
    theirs = torch.nn.grad.conv2d_weight(torch.from_numpy(x), shape, torch.from_numpy(g), **options).numpy()
    ours = gradient(x, g, shape, options)
    assert np.sqrt(np.mean((ours - exact) ** 2)) <= np.sqrt(np.mean((theirs - exact) ** 2))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e-42, -1e-38, 3e38], ids=str)
def test_special_values(value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """One in the image, or in the gradient, where no tap meets padding: what machines without the unit compute."""
    x, g, shape, options = arrays((40, 40, 33, 6, 7, (3, 3), 1, 1, 1, 1))
    for where in (x, g):
        old = where[33, 32, 2, 3]
        where[33, 32, 2, 3] = value
        with np.errstate(all="ignore"):
            ours = gradient(x, g, shape, options)
            monkeypatch.setattr(convolution_weight, "weight_tiles_apply", lambda p: False)
            plain = gradient(x, g, shape, options, 1)
            monkeypatch.setattr(convolution_weight, "weight_tiles_apply", lambda p: True)
            np.testing.assert_array_equal(np.isnan(ours), np.isnan(plain))
            sizes = exactly(np.abs(x), np.abs(g), shape, options)
            fine = sizes < np.finfo(np.float32).max
            assert (np.abs(ours[fine] - plain[fine]) <= 200 * 2.0**-24 * sizes[fine]).all()
            assert not np.isfinite(ours[~np.isfinite(sizes)]).any()
        where[33, 32, 2, 3] = old


def test_tiny_operands() -> None:
    """Denormal products, and operands whose parts would be denormal."""
    x, g, shape, options = arrays((32, 32, 32, 4, 4, (3, 3), 1, 1, 1, 1))
    for left, right in ((1e-20, 1e-20), (1e-37, 1.0), (1e-42, 1.0)):
        a, b = (x * np.float32(left)).astype(np.float32), (g * np.float32(right)).astype(np.float32)
        sizes = exactly(np.abs(a), np.abs(b), shape, options)
        assert (np.abs(gradient(a, b, shape, options) - exactly(a, b, shape, options)) <= 200 * 2.0**-24 * sizes + 1e-43).all()


def test_where_it_applies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many channels and full blocks of images; not a few channels, small batches or pixels that lie apart."""
    seen: list[bool] = []

    def apply(p: Problem) -> bool:
        seen.append(convolution_weight_tiles.weight_tiles_apply(p))
        return seen[-1]

    monkeypatch.setattr(convolution_weight, "weight_tiles_apply", apply)
    for case in ((32, 128, 128, 4, 4, (3, 3), 1, 1, 1, 1), (8, 128, 128, 4, 4, (3, 3), 1, 1, 1, 1), (32, 8, 128, 4, 4, (3, 3), 1, 1, 1, 1)):
        gradient(*arrays(case), 2)
    x, g, shape, options = arrays((32, 128, 128, 4, 4, (3, 3), 1, 1, 1, 1))
    wide = np.zeros((32, 128, 4, 9), np.float32)
    wide[..., ::2] = np.pad(x, ((0, 0), (0, 0), (0, 0), (0, 1)))
    weight = ft.zeros(shape, requires_grad=True)
    ft.nn.functional.conv2d((ft.from_numpy(wide) + 0.0)[..., 0:8:2], weight, **options).backward(ft.from_numpy(g).clone())
    assert weight.grad is not None
    np.testing.assert_allclose(weight.grad.numpy(), exactly(x, g, shape, options), rtol=1e-3, atol=1e-3)
    assert seen == [True, False, False, False]
