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


def values_and_gradients(m: Any, how: str, data: Any, lengths: Any, initial: float | None, gradient: Any) -> list[float]:
    x = m.tensor(data, dtype=m.float64, requires_grad=True)
    y = m.segment_reduce(x, how, lengths=m.tensor(lengths), initial=initial)
    y.backward(m.tensor(gradient, dtype=m.float64))
    return [*y.tolist(), *x.grad.tolist()]


@pytest.mark.parametrize("how", ["max", "min", "sum", "mean"])
def test_infinite_gradients(how: str) -> None:
    """What a reduction does not choose has no part in its gradient."""
    nan, inf = float("nan"), float("inf")
    rows = ([1.0, 2.0, 0.0, 4.0, 5.0], [1.0, nan, 0.0, nan, 5.0], [0.0, inf, -inf, 2.0, 2.0], [1.0, -inf, 3.0, inf, inf])
    for data, gradient, initial, lengths in itertools.product(rows, ((nan, 1.0), (2.0, inf)), (None, 1.0, nan), ((2, 3), (0, 5), (1, 4))):
        found = [values_and_gradients(m, how, data, lengths, initial, gradient) for m in (flambeau, torch)]
        assert found[0] == pytest.approx(found[1], nan_ok=True), (data, gradient, initial, lengths)


@pytest.mark.parametrize("how", ["max", "min", "sum", "mean", "prod"])
def test_gradients_are_pytorchs(how: str) -> None:
    """Few different values, so that most segments have ties."""
    values = [0.0, 1.0, 2.0, 2.0, -1.0, float("nan")]
    draw = random.Random(5)
    for initial, columns in itertools.product((None, 1.0, 2.0), (0, 2)):
        for _ in range(4):
            lengths = [draw.choice((0, 1, 2, 4)) for _ in range(3)]
            rows = [[draw.choice(values) for _ in range(columns)] if columns else draw.choice(values) for _ in range(sum(lengths))]
            data = rows if rows else ([[0.0] * columns] if columns else [0.0])
            lengths = lengths if rows else [1, 0, 0]
            for ours, theirs in zip(reduced(flambeau, how, data, lengths, initial), reduced(torch, how, data, lengths, initial), strict=True):
                assert ours == pytest.approx(theirs, nan_ok=True), (data, lengths, initial)


def test_any_values() -> None:
    """Zeros, NaNs and infinities among the entries, the gradients and the initial value; empty segments."""
    nan, inf = float("nan"), float("inf")
    draw = random.Random(7)
    for how in ["prod"] * 60 + ["max", "min", "sum", "mean"] * 10:
        lengths = [draw.choice([0, 1, 2, 3]) for _ in range(draw.choice([1, 2, 3]))]
        data = [draw.choice([nan, 0.0, 1.0, 2.0, -3.0, inf, -inf, 0.0]) for _ in range(sum(lengths))]
        initial, gradient = draw.choice([None, None, 0.0, 1.0, 2.0, nan, inf]), [draw.choice([1.0, 2.0, 0.0, inf, nan]) for _ in lengths]
        if how in ("max", "min") and initial is None and not any(abs(v) != inf for v in data):
            continue  # as extreme as the value of an empty segment: documented
        found = [values_and_gradients(m, how, data, lengths, initial, gradient) for m in (flambeau, torch)]
        assert found[0] == pytest.approx(found[1], nan_ok=True), (how, data, lengths, initial, gradient)


def test_second_gradients_of_products() -> None:
    x = flambeau.tensor([2.0, 3.0, 0.5, 4.0, 1.5, 0.0, 2.0], dtype=flambeau.float64, requires_grad=True)
    lengths = flambeau.tensor([3, 0, 2, 2])
    assert flambeau.autograd.gradgradcheck(lambda t: flambeau.segment_reduce(t, "prod", lengths=lengths, initial=2.0)[:3], (x,))


def test_products_in_transforms() -> None:
    x, lengths = flambeau.tensor([[2.0, 3.0, 0.0], [1.0, 0.0, 0.0]]), flambeau.tensor([2, 1])
    slope = flambeau.func.grad(lambda t: flambeau.segment_reduce(t, "prod", lengths=lengths, unsafe=True).sum())
    assert [slope(row).tolist() for row in x] == [[3.0, 2.0, 1.0], [0.0, 1.0, 1.0]]
