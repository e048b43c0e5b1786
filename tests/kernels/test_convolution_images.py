"""Convolutions of small images in large batches by the matrix unit: sizes, what follows, errors, and values its parts cannot hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as ft
from flambeau.compiler.kernels import convolution
from flambeau.compiler.kernels.convolution_images import images_apply
from flambeau.compiler.kernels.convolution_problem import Problem
from flambeau.runtime import tiles

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif("bfloat16" not in tiles.dtypes(), reason="this machine has no matrix unit, or the system does not lend it")
Case = tuple[int, int, int, int, int, tuple[int, int], Any, Any, Any, int]
# batch, channels, outputs, height, width, kernel, stride, padding, dilation, groups
SHAPES: list[Case] = [
    (32, 32, 32, 4, 4, (3, 3), 1, 1, 1, 1), (27, 96, 70, 5, 7, (3, 3), 1, 1, 1, 1), (40, 64, 33, 9, 9, (3, 3), 2, 0, 2, 1),
    (32, 64, 64, 6, 6, (5, 5), 1, 2, 1, 2), (33, 33, 40, 3, 11, (2, 3), (1, 3), (1, 2), 1, 1), (64, 20, 300, 1, 17, (1, 4), 1, (0, 3), 1, 1),
]  # fmt: skip


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution, "images_apply", lambda p, gradient: True)


def results(x: Any, w: Any, g: Any, case: Case, module: Any, follow: bool = False) -> list[np.ndarray]:
    """The convolution (and what follows it) and the gradient of its input."""
    x = x.requires_grad_()
    y = module.nn.functional.conv2d(x, w, None, *case[6:])
    if follow:
        y = module.relu(y * 2.0 + 0.5)
    y.backward(g)
    return [np.array(y.detach().numpy()), np.array(x.grad.numpy())]


def arrays(case: Case) -> list[np.ndarray]:
    batch, channels, outputs, height, width, kernel = case[:6]
    rng = np.random.default_rng(0)
    x = rng.standard_normal((batch, channels, height, width), np.float32)
    w = rng.standard_normal((outputs, channels // case[9], *kernel), np.float32)
    y = torch.nn.functional.conv2d(torch.from_numpy(x[:1]), torch.from_numpy(w), None, *case[6:])
    return [x, w, rng.standard_normal((batch, *y.shape[1:]), np.float32)]


def ours(given: list[np.ndarray], case: Case, follow: bool = False, again: int = 0) -> list[np.ndarray]:
    """`again`: a number for each choice of kernels, so that no plan of another choice is found."""
    x, w, g = (ft.from_numpy(a).clone() for a in given)
    for _ in range(again):
        w = w * 1.0
    return results(x, w, g, case, ft, follow)


def exactly(given: list[np.ndarray], case: Case, follow: bool = False) -> list[np.ndarray]:
    x, w, g = (torch.from_numpy(a).double() for a in given)
    return results(x, w, g, case, torch, follow)


@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_sizes(case: Case) -> None:
    given = arrays(case)
    threads = ft.get_num_threads()
    try:
        ft.set_num_threads(1)
        one = ours(given, case)
        ft.set_num_threads(2)
        two = ours(given, case)
    finally:
        ft.set_num_threads(threads)
    for result, other, exact, size in zip(one, two, exactly(given, case), exactly([np.abs(a) for a in given], case), strict=True):
        np.testing.assert_array_equal(result, other)
        assert (np.abs(result - exact) <= 40 * 2.0**-24 * size).all()


def test_what_follows() -> None:
    case = SHAPES[1]
    given = arrays(case)
    for result, exact in zip(ours(given, case, follow=True), exactly(given, case, follow=True), strict=True):
        np.testing.assert_allclose(result, exact, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("positive", [False, True], ids=["normal", "positive"])
def test_errors_are_no_larger_than_those_of_pytorch(positive: bool) -> None:
    case: Case = (32, 256, 64, 4, 4, (3, 3), 1, 1, 1, 1)
    given = [np.abs(a) if positive else a for a in arrays(case)]
    x, w, g = (torch.from_numpy(a.copy()) for a in given)
    theirs = results(x, w, g, case, torch)
    for result, their, exact in zip(ours(given, case), theirs, exactly(given, case), strict=True):
        assert np.sqrt(np.mean((result - exact) ** 2)) <= np.sqrt(np.mean((their - exact) ** 2))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e-42, -1e-38, 3e38], ids=str)
def test_special_values(value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the image, the weight or the gradient, where no tap meets padding: what machines without the unit compute."""
    case: Case = (40, 40, 70, 5, 5, (3, 3), 1, 1, 1, 1)
    for which, at in ((0, (33, 32, 2, 2)), (1, (65, 7, 1, 1)), (2, (3, 40, 2, 2))):
        given = arrays(case)
        given[which][at] = value
        with np.errstate(all="ignore"):
            fast = ours(given, case)
            monkeypatch.setattr(convolution, "images_apply", lambda p, gradient: False)
            plain = ours(given, case, again=1)
            monkeypatch.setattr(convolution, "images_apply", lambda p, gradient: True)
            for result, other, size in zip(fast, plain, exactly([np.abs(a) for a in given], case), strict=True):
                np.testing.assert_array_equal(np.isnan(result), np.isnan(other))
                fine = size < np.finfo(np.float32).max
                assert (np.abs(result[fine] - other[fine]) <= 200 * 2.0**-24 * size[fine]).all()
                assert not np.isfinite(result[~np.isfinite(size)]).any()


def test_where_it_applies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small images, or an input gradient with a stride, in batches of nearly 32; not few channels, small batches, large images."""
    seen: list[bool] = []

    def apply(p: Problem, gradient: bool) -> bool:
        seen.append(images_apply(p, gradient))
        return seen[-1]

    monkeypatch.setattr(convolution, "images_apply", apply)
    for case in (
        (32, 64, 64, 4, 4, (3, 3), 1, 1, 1, 1), (32, 64, 64, 16, 16, (3, 3), 2, 1, 1, 1), (32, 64, 64, 20, 20, (3, 3), 1, 1, 1, 1),
        (20, 64, 64, 4, 4, (3, 3), 1, 1, 1, 1), (32, 8, 64, 4, 4, (3, 3), 1, 1, 1, 1),
    ):  # fmt: skip
        ours(arrays(case), case, again=2)
    assert seen == [True, True, True, True, False, False, False, False, False, False]
