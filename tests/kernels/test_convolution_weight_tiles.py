"""The weight's gradient by the matrix unit: sizes, errors beside PyTorch's, and values that its parts cannot hold."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as ft
from flambeau.compiler.kernels import convolution_weight, convolution_weight_tiles
from flambeau.compiler.kernels.convolution_problem import Problem
from flambeau.runtime import tiles
from tests.kernels.weight_gradients import SPECIAL, Case, arrays, check_errors, check_sizes, check_special_value, check_tiny_operands, exactly, gradient

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif("bfloat16" not in tiles.dtypes(), reason="this machine has no matrix unit, or the system does not lend it")

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


@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_sizes(case: Case) -> None:
    check_sizes(case, 0)


@pytest.mark.parametrize("positive", [False, True], ids=["normal", "positive"])
@pytest.mark.parametrize(
    "case",
    [(32, 64, 64, 8, 8, (3, 3), 1, 1, 1, 1)],
    ids=str,
)
def test_errors_are_no_larger_than_those_of_pytorch(case: Case, positive: bool) -> None:
    check_errors(case, positive, 0)


@pytest.mark.parametrize("value", SPECIAL, ids=str)
def test_special_values(value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    def switch(on: bool) -> None:
        monkeypatch.setattr(convolution_weight, "weight_tiles_apply", lambda p: on)

    check_special_value((40, 40, 33, 6, 7, (3, 3), 1, 1, 1, 1), (33, 32, 2, 3), value, switch, 0)


def test_tiny_operands() -> None:
    check_tiny_operands((32, 32, 32, 4, 4, (3, 3), 1, 1, 1, 1), 0)


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
