"""Writes by masks of every kind, of one value and of several, of the tensor itself and of what shares its memory: results and errors as PyTorch's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")
SHAPES = ((0,), (0, 3), (3, 0), (2, 3), (1,), (2,), (), (1, 0), (1, 3), (2, 2))


def every_other(m: Any, shape: tuple[int, ...], dim: int = 0) -> Any:
    return m.arange(shape[dim] if len(shape) > dim else 1) % 2 == 0


MASKS: dict[str, Callable[[Any, tuple[int, ...]], Any]] = {
    "all": lambda m, s: m.tensor(True), "nothing": lambda m, s: m.tensor(False), "a byte": lambda m, s: m.tensor(1, dtype=m.uint8),
    "rows": every_other, "rows by bytes": lambda m, s: every_other(m, s).to(m.uint8), "elements": lambda m, s: m.ones(s) > 0,
    "columns": lambda m, s: (slice(None), every_other(m, s, 1)), "a new dim": lambda m, s: (None, every_other(m, s)),
    "rows and all": lambda m, s: (every_other(m, s), m.tensor(True)), "a slice": lambda m, s: (slice(0, 1), every_other(m, s, 1)),
    "all and rows": lambda m, s: (m.tensor(True), every_other(m, s)), "places": lambda m, s: (every_other(m, s), m.tensor([0])),
    "a number": lambda m, s: (every_other(m, s), 0),
}  # fmt: skip
VALUES: dict[str, Callable[[Any, Any], Any]] = {
    "itself": lambda m, x: x, "its first": lambda m, x: x.reshape(-1)[:1], "an element": lambda m, x: x.reshape(-1)[0], "detached": lambda m, x: x.detach(),
    "a view": lambda m, x: x.view(x.shape), "a row": lambda m, x: x[:1], "one": lambda m, x: m.tensor(7.0), "one of one dim": lambda m, x: m.tensor([7.0]),
    "one of two dims": lambda m, x: m.tensor([[7.0]]), "a whole number": lambda m, x: m.tensor([7]), "true": lambda m, x: m.tensor(True),
    "as many": lambda m, x: m.ones(x.shape) * 5,
}  # fmt: skip


def outcome(m: Any, how: str, shape: tuple[int, ...], mask: str, value: str) -> Any:
    """The values afterwards, or the type of the error; None for what is not to be compared."""
    x = m.arange(1.0, 1 + m.zeros(shape).numel()).reshape(shape)
    try:
        given = VALUES[value](m, x)
    except IndexError:
        return None
    where = MASKS[mask](m, shape)
    try:
        if how == "set":
            x[where] = given
        else:
            x.index_put_(where if isinstance(where, tuple) else (where,), given, accumulate=how == "accumulate")
    except (IndexError, RuntimeError) as error:
        if "INTERNAL ASSERT" in str(error):
            return None
        return IndexError if isinstance(error, IndexError) else RuntimeError
    return x.tolist()


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("how", ["set", "put", "accumulate"])
def test_as_pytorch(how: str, mask: str) -> None:
    where = MASKS[mask](torch, (2, 3))
    if how != "set" and isinstance(where, tuple) and not all(isinstance(i, torch.Tensor) for i in where):
        pytest.skip("index_put_ takes tensors")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # masks of bytes
        for shape in SHAPES:
            for value in VALUES:
                expected = outcome(torch, how, shape, mask, value)
                if expected is not None:
                    assert outcome(ft, how, shape, mask, value) == expected, (shape, value)


def test_gradients_of_one_value() -> None:
    slopes = []
    for m in (torch, ft):
        x, value = m.ones(2, 3, requires_grad=True), m.tensor(3.0, requires_grad=True)
        (m.index_put(x, (m.tensor([True, False]),), value) * m.arange(6.0).reshape(2, 3)).sum().backward()
        slopes.append((x.grad.tolist(), value.grad.tolist()))
    assert slopes[0] == slopes[1]


def test_gradients_of_all() -> None:
    """PyTorch's backward pass ends in an internal assertion here."""
    x, value = ft.ones(2, 3, requires_grad=True), ft.tensor(3.0, requires_grad=True)
    (ft.index_put(x, (ft.tensor(True),), value) * ft.arange(6.0).reshape(2, 3)).sum().backward()
    assert x.grad.tolist() == [[0.0] * 3] * 2
    assert value.grad.tolist() == 15.0
