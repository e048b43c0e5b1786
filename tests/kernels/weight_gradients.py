"""What the tests of the weight's gradient share: the gradient by flambeau and exactly, and checks of one way to compute it.

`again`: a number for each choice of kernels, so that no plan of another choice is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as ft

torch = pytest.importorskip("torch")
# batch, channels, outputs, height, width, kernel, stride, padding, dilation, groups
Case = tuple[Any, ...]
SPECIAL = [np.inf, -np.inf, np.nan, 1e-42, -1e-38, 3e38]


def gradient(x: np.ndarray, g: np.ndarray, shape: tuple[int, ...], options: dict[str, Any], again: int) -> np.ndarray:
    image, weight, given = ft.from_numpy(x).clone(), ft.zeros(shape, requires_grad=True), ft.from_numpy(g).clone()
    for _ in range(again):
        image = image * 1.0
    ft.nn.functional.conv2d(image, weight, **options).backward(given)
    assert weight.grad is not None
    return np.array(weight.grad.numpy())


def arrays(case: Case, seed: int = 0) -> tuple[np.ndarray, np.ndarray, tuple[int, ...], dict[str, Any]]:
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


def check_sizes(case: Case, again: int) -> None:
    """Errors within the bound of sums in blocks, and the same bits by 1 and 2 threads."""
    x, g, shape, options = arrays(case)
    threads = ft.get_num_threads()
    try:
        ft.set_num_threads(1)
        result = gradient(x, g, shape, options, again)
        ft.set_num_threads(2)
        np.testing.assert_array_equal(gradient(x, g, shape, options, again), result)
    finally:
        ft.set_num_threads(threads)
    exact = exactly(x, g, shape, options)
    sizes = exactly(np.abs(x), np.abs(g), shape, options)
    assert (np.abs(result - exact) <= 40 * 2.0**-24 * sizes).all()


def check_errors(case: Case, positive: bool, again: int) -> None:
    """Errors no larger than PyTorch's."""
    x, g, shape, options = arrays(case)
    if positive:
        x, g = np.abs(x), np.abs(g)
    exact = exactly(x, g, shape, options)
    theirs = torch.nn.grad.conv2d_weight(torch.from_numpy(x), shape, torch.from_numpy(g), **options).numpy()
    ours = gradient(x, g, shape, options, again)
    assert np.sqrt(np.mean((ours - exact) ** 2)) <= np.sqrt(np.mean((theirs - exact) ** 2))


def check_special_value(case: Case, place: tuple[int, ...], value: float, switch: Callable[[bool], None], again: int) -> None:
    """One in the image, or in the gradient, where no tap meets padding: what machines without the unit compute. `switch`: has the
    unit used, or not."""
    x, g, shape, options = arrays(case)
    for where in (x, g):
        old = where[place]
        where[place] = value
        with np.errstate(all="ignore"):
            ours = gradient(x, g, shape, options, again)
            switch(False)
            plain = gradient(x, g, shape, options, 1)
            switch(True)
            np.testing.assert_array_equal(np.isnan(ours), np.isnan(plain))
            sizes = exactly(np.abs(x), np.abs(g), shape, options)
            fine = sizes < np.finfo(np.float32).max
            assert (np.abs(ours[fine] - plain[fine]) <= 200 * 2.0**-24 * sizes[fine]).all()
            assert not np.isfinite(ours[~np.isfinite(sizes)]).any()
        where[place] = old


def check_tiny_operands(case: Case, again: int) -> None:
    """Denormal products, and operands whose parts would be denormal."""
    x, g, shape, options = arrays(case)
    for left, right in ((1e-20, 1e-20), (1e-37, 1.0), (1e-42, 1.0)):
        a, b = (x * np.float32(left)).astype(np.float32), (g * np.float32(right)).astype(np.float32)
        sizes = exactly(np.abs(a), np.abs(b), shape, options)
        assert (np.abs(gradient(a, b, shape, options, again) - exactly(a, b, shape, options)) <= 200 * 2.0**-24 * sizes + 1e-43).all()
