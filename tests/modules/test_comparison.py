"""torch.testing._comparison against PyTorch: the same errors for the same things, by pairs and by pairs of one's own."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")

THINGS: list[Any] = [
    lambda m: (None, None), lambda m: (None, 1), lambda m: (True, False), lambda m: (1, 1.0), lambda m: (1.0, 1.0 + 1e-9), lambda m: (1.0, 1.5),
    lambda m: (m.ones(2), m.ones(3)), lambda m: (m.ones(2), m.ones(2).double()), lambda m: (m.ones(2, 2), m.ones(2, 2) * 1.01), lambda m: (m.ones(2), [1, 1]),
    lambda m: ([m.ones(2), {"a": 1}], [m.ones(2), {"a": 2}]), lambda m: ({"a": 1}, {"b": 1}), lambda m: ([1], [1, 2]), lambda m: ("a", "b"),
    lambda m: (np.float64(1.0), np.float64(2.0)), lambda m: (m.tensor(float("nan")), m.tensor(float("nan"))), lambda m: (m.tensor(1), m.tensor(2)),
]  # fmt: skip
OPTIONS: list[dict[str, Any]] = [{}, {"rtol": 0.1, "atol": 0.0}, {"check_dtype": False}, {"equal_nan": True}, {"rtol": 0.1}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("index", range(len(THINGS)))
def test_pairs(index: int, options: dict[str, Any]) -> None:
    found = []
    for m in (flambeau, torch):
        c = importlib.import_module(f"{m.__name__}.testing._comparison")
        try:
            actual, expected = THINGS[index](m)
            errors = c.not_close_error_metas(actual, expected, pair_types=(c.NonePair, c.BooleanPair, c.NumberPair, c.TensorLikePair), **options)
            found.append([(e.type, str(e.to_error()), e.id) for e in errors])
        except Exception as error:
            found.append((type(error), str(error)))
    assert repr(found[0]).replace("flambeau.tensor.", "torch.") == repr(found[1])


def test_a_pair_of_ones_own() -> None:
    for m in (flambeau, torch):
        c = importlib.import_module(f"{m.__name__}.testing._comparison")

        class Mean(c.TensorLikePair):
            def compare(self) -> None:
                actual, expected = self._equalize_attributes(self.actual, self.expected)
                if abs((actual - expected).mean().item()) > self.atol:
                    self._fail(AssertionError, "far away")

        assert not c.not_close_error_metas(m.tensor([1.0, 3.0]), m.tensor([3.0, 1.0]), pair_types=(Mean,))
        (error,) = c.not_close_error_metas(m.tensor([1.0, 3.0]), m.tensor([3.0, 3.0]), pair_types=(Mean,))
        assert str(error.to_error()) == "far away" and str(error.to_error(lambda text: text + "!")) == "far away!"
