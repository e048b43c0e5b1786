"""Which pending tensors somebody still holds: reference counts on trial, weak references in their place, interpreters that are refused."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flambeau as torch
from flambeau.trace import evaluate, liveness
from flambeau.trace.recorder import bare
from tests import processes

pytestmark = pytest.mark.usefixtures("whole")

WAYS: list[Callable[[list[Any]], bytes]] = [liveness.by_counts, liveness.by_weak_references]


@pytest.mark.parametrize("way", WAYS)
def test_each_way_passes_the_trial(way: Callable[[list[Any]], bytes]) -> None:
    assert liveness.HELD > 0 and liveness.passes(way)


def test_the_way_in_use_passes_the_trial() -> None:
    torch.ones(3).add(1).tolist()
    assert liveness.passes(evaluate.alive_among)


def test_an_interpreter_that_counts_otherwise_fails_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """One reference fewer, as where arguments are borrowed: what only a program's variable holds would be taken for dead."""
    for wrong in (liveness.HELD + 1, liveness.HELD - 1):
        monkeypatch.setattr(liveness, "HELD", wrong)
        assert not liveness.passes(liveness.by_counts)
        assert liveness.passes(liveness.by_weak_references)


def test_what_nobody_holds_is_not_computed_by_weak_references() -> None:
    kept, dropped = bare(torch.Tensor), bare(torch.Tensor)  # of no trace
    tensors = [kept, dropped]
    del dropped
    assert liveness.by_weak_references(tensors) == b"\1\0"
    assert tensors[0] is kept and len(tensors) == 2 and tensors[1]._gen == -1


def test_a_free_threaded_interpreter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    with pytest.raises(ImportError, match=r"free-threaded.*PYTHON_GIL=1"):
        liveness.refuse_free_threads()
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: True, raising=False)
    liveness.refuse_free_threads()


def test_an_unknown_interpreter_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "reference counts" in liveness.describe()
    monkeypatch.setattr(sys, "version_info", (3, 99, 0, "final", 0))
    assert "3.99, not among the known ones" in liveness.describe()


def test_the_engine_by_weak_references() -> None:
    """A few of the engine's own tests in a process that does not use reference counts."""
    environment = os.environ | {"FLAMBEAU_REFERENCE_COUNTS": "0"}
    files = [str(Path(__file__).with_name(name)) for name in ("test_numpy_memory.py", "test_shared_inputs.py", "test_pieces.py")]
    done = processes.python("-m", "pytest", "-q", "-p", "no:cacheprovider", *files, env=environment)
    assert done.returncode == 0, done.stdout[-3000:]
