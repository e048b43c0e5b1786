"""Printed tensors with infinities, NaN and zeros, beside PyTorch's."""

from __future__ import annotations

import random

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")
NUMBERS = [0.0, 1.0, -1.0, 2.5, 1e9, 1e-5, float("nan"), float("inf"), -float("inf"), 123.0, -0.25]


def test_numbers_that_are_not_finite() -> None:
    draw = random.Random(0)
    for count in (1, 2, 3, 4):
        for _ in range(40):
            values = [draw.choice(NUMBERS) for _ in range(count)]
            assert str(ft.tensor(values)) == str(torch.tensor(values)), values
            parts = [[complex(draw.choice(NUMBERS), draw.choice(NUMBERS)) for _ in range(count)] for _ in range(2)]
            assert str(ft.tensor(parts)) == str(torch.tensor(parts)), parts
