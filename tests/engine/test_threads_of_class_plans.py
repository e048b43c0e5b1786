"""Plans over symbols have scratch memory for as many threads as there were when they were made: with more threads they are not used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau
from flambeau.runtime import threads
from flambeau.trace import class_plans


def test_no_plan_runs_with_more_threads_than_it_has_memory_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number changes between sizes, so that plans for one and for two threads are variants of one path."""
    seen: list[tuple[int, int]] = []
    real = class_plans.tried

    def tried(variant: Any, sizes: Any) -> Any:
        seen.append((variant.workers, threads.count()))
        return real(variant, sizes)

    monkeypatch.setattr(class_plans, "tried", tried)
    before = flambeau.get_num_threads()
    rng = np.random.default_rng(0)
    try:
        for m in (3, 5, 9, 17, 40, 70, 130):
            for k, n in ((512, 300), (257, 1024), (1030, 200)):
                x, w = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((n, k)).astype(np.float32)
                found = []
                for count in (1, 2):
                    flambeau.set_num_threads(count)
                    found.append((flambeau.tensor(x).bfloat16() @ flambeau.tensor(w).bfloat16().T).float().numpy())
                np.testing.assert_array_equal(*found)
    finally:
        flambeau.set_num_threads(before)
    assert seen and all(workers >= count for workers, count in seen)
