"""A few of the modules of random options that are compared with PyTorch each day; and that the comparison can fail."""

from __future__ import annotations

import pytest

import flambeau
from tests.nn import module_programs

pytest.importorskip("torch")


@pytest.mark.parametrize("seed", range(30))
def test_modules_of_random_options(seed: int) -> None:
    assert module_programs.difference(seed) is None


def test_a_wrong_number_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = module_programs.run

    def off(m: object, seed: int, nudge: int = 0) -> list[module_programs.Seen]:
        seen = right(m, seed, nudge)
        what, (kind, shape, needs, numbers) = next((what, x) for what, x in seen if isinstance(x, tuple) and x[0] in module_programs.TOLERANCE)
        return [(what, (kind, shape, needs, numbers + (0.01 if m is flambeau else 0)))]

    monkeypatch.setattr(module_programs, "run", off)
    assert module_programs.difference(0) is not None
