"""`flambeau bench --fresh`: its programs compute with flambeau what they compute with PyTorch, and its figures are what they are called."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau
from flambeau.cli.bench_fresh import Run, best, percentile, run, summary
from flambeau.cli.fresh_programs import PROGRAMS

torch = pytest.importorskip("torch")


def _flat(x: Any) -> list[float]:
    return [float(x)] if isinstance(x, (bool, int, float)) else [v for part in x for v in _flat(part)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_give_pytorchs_numbers(name: str) -> None:
    """Same seed, same steps: weights, draws and masks are PyTorch's."""
    found = []
    for module in (torch, flambeau):
        module.manual_seed(3)
        step = PROGRAMS[name](module, 3)
        found.append([_flat(step(i)) for i in range(2)])
    for theirs, ours in zip(*found, strict=True):
        assert len(ours) == len(theirs)
        np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=2e-4)


def test_figures() -> None:
    assert percentile([3.0, 1.0, 2.0, 4.0], 0.5) == 2.0 and percentile(range(100), 0.99) == 98 and percentile([5.0], 0.99) == 5.0
    found = {"new": [1.0, 0.5, 0.1, 0.1, 0.1, 0.13], "seen": [0.2, 0.1, 0.3], "first": 2.0, "total": 3.0, "resident": 7.0, "collections": [0.01, 0.05]}
    got = summary(found)
    assert got[:6] == (2.0, 0.1, 1.0, 0.2, 3.0, 7.0) and len(got.pauses) == 2 and got.pauses[1] == 0.05
    other = Run(1.0, 0.2, 0.9, 0.3, 4.0, 6.0, ())
    assert best([got, other]) == Run(1.0, 0.1, 0.9, 0.2, 3.0, 6.0, ())


def test_one_run(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    got = run("flambeau", "decoding, greedy", 0, 4, str(tmp_path), str(tmp_path / "bytecode"))
    assert got is not None and 0 < got.median <= got.slowest <= got.first < got.total and got.resident > 1 << 20
    assert run("no_such_module", "decoding, greedy", 0, 4, str(tmp_path), str(tmp_path)) is None
    assert "no_such_module" in capsys.readouterr().err
