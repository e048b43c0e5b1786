"""A fixed sample of training programs beside PyTorch; CI runs 100 of each day (scripts/sweep)."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from tests.engine import training_programs
from tests.engine.training_programs import Event, difference

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("seed", [1, 14, 36])
def test_programs(seed: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, of what is deprecated
        assert difference(seed) is None


def test_what_differs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number that is a little off in one library, and none of what its own rounding does."""

    class Off(training_programs.Program):
        def run(self) -> Iterator[Event]:
            for kind, seen in super().run():
                yield kind, _plus(copy.deepcopy(seen), 1e-4) if self.m is not torch and kind == "end" else seen

    monkeypatch.setattr(training_programs, "Program", Off)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert "off by" in (difference(1) or "")


def _plus(x: Any, more: float) -> Any:
    if isinstance(x, (list, tuple)):
        return type(x)(_plus(y, more) for y in x)
    return x + more if isinstance(x, float) else x
