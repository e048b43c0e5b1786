"""Which pending tensors somebody still holds: reference counts on trial, weak references in their place, interpreters that are refused."""

from __future__ import annotations

import gc
import os
import random
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flambeau as torch
from flambeau.trace import evaluate, liveness
from flambeau.trace.objects import bare
from tests import processes
from tests.engine import random_programs

pytestmark = pytest.mark.usefixtures("whole", "short_collections")

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


def test_a_collection_finds_what_only_its_trace_holds() -> None:
    """Programs look for leaks so: a weak reference, `del`, a collection. What is still held has its value all the same."""
    for _ in range(8):
        x = torch.ones(2)
        base = x * 3
        kept, view, other = base + 1, base[1:], (x * 2).sum()
        gone = [weakref.ref(t) for t in (base, other)]
        there = weakref.ref(kept)
        assert kept in {kept}  # which looks up the trace's list
        del base, other
        gc.collect()
        assert [r() for r in gone] == [None, None] and there() is kept
        later = view * kept
        assert (kept.tolist(), later.tolist(), view.tolist()) == ([4.0, 4.0], [12.0, 12.0], [3.0])


def test_a_collection_in_the_middle_of_a_call_lets_nothing_go() -> None:
    """What a call has under way may be in the trace's list alone."""
    seen: list[Any] = []

    class Collects(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            made = x * 2
            seen.append(weakref.ref(made))
            gc.collect()
            return made + 1

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            gc.collect()
            return grad * 2

    for _ in range(3):
        x = torch.ones(3, requires_grad=True)
        Collects.apply(x * 1).sum().backward()
        assert x.grad.tolist() == [2.0] * 3


@pytest.mark.parametrize("seed", range(24))
def test_programs_collected_at_every_step(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    source = random.Random(seed)
    program = [tuple(source.randrange(1000) for _ in range(4)) for _ in range(40)]
    expected = repr(random_programs.run(torch, program, True))  # type: ignore[arg-type]
    step = random_programs._step

    def collecting(s: Any, instruction: Any) -> None:
        step(s, instruction)
        gc.collect()

    monkeypatch.setattr(random_programs, "_step", collecting)
    assert repr(random_programs.run(torch, program, True)) == expected  # type: ignore[arg-type]
