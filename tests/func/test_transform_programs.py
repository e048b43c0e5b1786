"""A few of the functions under random transforms that are compared with PyTorch each day; and that the comparison can fail."""

from __future__ import annotations

import pytest

import flambeau
from tests.func import transform_programs

pytest.importorskip("torch")


@pytest.mark.parametrize("seed", range(20))
def test_functions_under_transforms(seed: int) -> None:
    assert transform_programs.difference(seed) is None


def test_a_wrong_number_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = transform_programs.results

    def off(m: object, seed: int, nudge: int = 0) -> list[object]:
        return [(needs, numbers * (1 + 1e-5)) if m is flambeau else (needs, numbers) for needs, numbers in right(m, seed, nudge)]

    monkeypatch.setattr(transform_programs, "results", off)
    assert transform_programs.difference(0) is not None
