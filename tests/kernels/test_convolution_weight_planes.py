"""The weight's gradient by the matrix unit from planes of pixels: sizes, errors beside PyTorch's, and values that parts cannot hold."""

from __future__ import annotations

import pytest

from flambeau.compiler.kernels import convolution_weight, convolution_weight_planes
from flambeau.compiler.kernels.convolution_problem import Problem
from flambeau.runtime import tiles
from tests.kernels.weight_gradients import SPECIAL, Case, arrays, check_errors, check_sizes, check_special_value, check_tiny_operands, gradient

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif("bfloat16" not in tiles.dtypes(), reason="this machine has no matrix unit, or the system does not lend it")

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
def test_sizes(case: Case) -> None:
    check_sizes(case, 3)


@pytest.mark.parametrize("positive", [False, True], ids=["normal", "positive"])
@pytest.mark.parametrize(
    "case",
    [(8, 64, 64, 32, 32, (3, 3), 1, 1, 1, 1), (32, 32, 32, 8, 8, (3, 3), 1, 1, 1, 1), (2, 64, 64, 7, 7, (3, 3), 1, 1, 1, 1)],
    ids=str,
)
def test_errors_are_no_larger_than_those_of_pytorch(case: Case, positive: bool) -> None:
    check_errors(case, positive, 3)


@pytest.mark.parametrize("value", SPECIAL, ids=str)
def test_special_values(value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    def switch(on: bool) -> None:
        monkeypatch.setattr(convolution_weight, "weight_planes_apply", lambda p: on)

    check_special_value((3, 40, 33, 36, 37, (3, 3), 1, 1, 1, 1), (2, 32, 22, 3), value, switch, 3)


def test_tiny_operands() -> None:
    check_tiny_operands((2, 32, 32, 20, 24, (3, 3), 1, 1, 1, 1), 3)


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
