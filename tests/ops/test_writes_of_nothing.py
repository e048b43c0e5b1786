"""Writes by index to tensors with dims of no elements, of values of all shapes and of the tensor itself: results and types of errors as PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")
SHAPES = ((0,), (0, 3), (3, 0), (2, 0, 3), (2, 3), (1,), (), (1, 0), (1, 0, 2), (0, 0), (1, 3))
INDICES: dict[str, Callable[[Any], Any]] = {
    "0": lambda m: m.tensor([0]), "0, 0": lambda m: m.tensor([0, 0]), "none": lambda m: m.tensor([], dtype=m.int64), "beyond": lambda m: m.tensor([5]),
    "a number": lambda m: 0, "all": lambda m: slice(None), "a slice": lambda m: slice(0, 1), "a list": lambda m: [0], "a mask": lambda m: m.tensor([True]),
    "a slice and 0": lambda m: (slice(None), m.tensor([0])), "two": lambda m: (m.tensor([0]), m.tensor([0])), "the last": lambda m: (..., m.tensor([0])),
    "a new dim": lambda m: (None, m.tensor([0])), "a matrix": lambda m: m.tensor([[0], [0]]), "an empty matrix": lambda m: m.zeros(0, 2, dtype=m.int64),
    "a place": lambda m: m.tensor(0), "none and 0": lambda m: (m.tensor([], dtype=m.int64), m.tensor([0])),
    "beyond and none": lambda m: (m.tensor([5]), m.tensor([], dtype=m.int64)), "nothing, and beyond": lambda m: (slice(0, 0), m.tensor([5])),
}  # fmt: skip


def outcome(m: Any, how: str, shape: tuple[int, ...], index: str, value: Any) -> Any:
    """The values afterwards, or the type of the error."""
    x = m.zeros(shape)
    given = x if value == "itself" else 7.0 if value == "a number" else m.ones(value)
    try:
        where = INDICES[index](m)
        if how == "set":
            x[where] = given
        else:
            where = where if isinstance(where, tuple) else (where,)
            x.index_put_(where, given, accumulate=how == "accumulate")
    except (IndexError, RuntimeError) as error:
        return IndexError if isinstance(error, IndexError) else RuntimeError
    return tuple(x.shape), x.tolist()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_as_pytorch(shape: tuple[int, ...]) -> None:
    for index in INDICES:
        for value in ("itself", "a number", *SHAPES):
            if (index, value) != ("a mask", "itself"):  # PyTorch looks at what the two have in common before it looks at the mask's shape
                assert outcome(ft, "set", shape, index, value) == outcome(torch, "set", shape, index, value), (index, value)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("how", ["put", "accumulate"])
def test_index_put(how: str, shape: tuple[int, ...]) -> None:
    for index in INDICES:
        where = INDICES[index](torch)
        tensors = where if isinstance(where, tuple) else (where,)
        if all(isinstance(t, torch.Tensor) for t in tensors) and index != "a mask":
            for value in ("itself", *SHAPES):
                assert outcome(ft, how, shape, index, value) == outcome(torch, how, shape, index, value), (index, value)
