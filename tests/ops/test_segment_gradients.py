"""Gradients of segment_reduce beside PyTorch: ties, ties with the initial value, NaNs, empty segments."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch")


def reduced(m: Any, how: str, data: Any, lengths: list[int], initial: float | None) -> tuple[Any, Any]:
    x = m.tensor(data, dtype=m.float64, requires_grad=True)
    y = m.segment_reduce(x, how, lengths=m.tensor(lengths), unsafe=True, initial=initial)
    weights = m.arange(1.0, y.numel() + 1, dtype=m.float64).reshape(y.shape)
    (y * weights).sum().backward()
    return y.detach().numpy(), x.grad.numpy()


@pytest.mark.parametrize("how", ["max", "min", "sum", "mean"])
def test_infinite_gradients(how: str) -> None:
    """What a reduction does not choose has no part in its gradient."""
    nan, inf = float("nan"), float("inf")
    rows = ([1.0, 2.0, 0.0, 4.0, 5.0], [1.0, nan, 0.0, nan, 5.0], [0.0, inf, -inf, 2.0, 2.0], [1.0, -inf, 3.0, inf, inf])
    for data, gradient, initial, lengths in itertools.product(rows, ((nan, 1.0), (2.0, inf)), (None, 1.0, nan), ((2, 3), (0, 5), (1, 4))):
        found = []
        for m in (flambeau, torch):
            x = m.tensor(data, dtype=m.float64, requires_grad=True)
            y = m.segment_reduce(x, how, lengths=m.tensor(lengths), initial=initial)
            y.backward(m.tensor(gradient, dtype=m.float64))
            found.append(y.tolist() + x.grad.tolist())
        assert found[0] == pytest.approx(found[1], nan_ok=True), (data, gradient, initial, lengths)


@pytest.mark.parametrize("how", ["max", "min", "sum", "mean", "prod"])
def test_gradients_are_pytorchs(how: str) -> None:
    """Few different values, so that most segments have ties; NaNs where PyTorch's own rule is not that of the product's."""
    values = [0.0, 1.0, 2.0, 2.0, -1.0, *([] if how == "prod" else [float("nan")])]
    draw = random.Random(5)
    for initial, columns in itertools.product((None, 1.0, 2.0), (0, 2)):
        for _ in range(4):
            lengths = [draw.choice((0, 1, 2, 4)) for _ in range(3)]
            rows = [[draw.choice(values) for _ in range(columns)] if columns else draw.choice(values) for _ in range(sum(lengths))]
            data = rows if rows else ([[0.0] * columns] if columns else [0.0])
            lengths = lengths if rows else [1, 0, 0]
            for ours, theirs in zip(reduced(flambeau, how, data, lengths, initial), reduced(torch, how, data, lengths, initial), strict=True):
                assert ours == pytest.approx(theirs, nan_ok=True), (data, lengths, initial)
