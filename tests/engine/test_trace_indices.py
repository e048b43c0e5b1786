"""Indices and generations of traces: a process that has had more threads, finalizers and takings than there are indices goes on as before."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import flambeau as ft
from flambeau.trace import traces
from flambeau.trace.evaluate import end_traces_of_dead_threads
from flambeau.trace.recorder import local
from flambeau.trace.tiers import MODE, WHOLE
from flambeau.trace.traces import TRACE_SLOTS, TRACES
from tests.threads import Thread, join

LEFT = range(4)  # indices before they begin again


@pytest.fixture(autouse=True, params=LEFT)
def few_left(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The next thread but so many gets this thread's index, if it does not look."""
    end_traces_of_dead_threads()
    monkeypatch.setattr(traces, "_indices", itertools.count(local.main.index + TRACE_SLOTS - request.param))
    before, MODE[0] = MODE[0], WHOLE  # what is pending stays so
    yield
    MODE[0] = before
    end_traces_of_dead_threads()


def _in_a_thread(function: Any) -> Any:
    thread = Thread(target=function)
    thread.start()
    return join(thread)[0]


def _is_whole() -> None:
    assert TRACES[local.main.index] is local.main and all(tr.index == index for index, tr in TRACES.items())


def test_other_threads_see_what_is_pending_here() -> None:
    for _ in range(6):
        x = ft.tensor([1.0, 2.0, 3.0])
        y = x * 2
        x.mul_(3)
        assert _in_a_thread(lambda x=x, y=y: ((x + 1).tolist(), y.tolist())) == ([4.0, 7.0, 10.0], [2.0, 4.0, 6.0])
        _is_whole()


def test_finalizers() -> None:
    class Garbage:
        def __init__(self, seen: list[Any], t: ft.Tensor) -> None:
            self.me, self.seen, self.t = self, seen, t

        def __del__(self) -> None:
            self.seen.append((self.t + 1).tolist())

    for k in range(6):
        seen: list[Any] = []
        x = ft.full((3,), float(k))
        y = x * 2
        Garbage(seen, y)
        gc.collect()
        assert seen == [[2.0 * k + 1] * 3] and (y + 1).tolist() == seen[0]
        _is_whole()


def test_what_an_ended_thread_has_made_is_nothing_of_a_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Generations of one index go on where they were, so a tensor's name never comes again."""
    met: set[int] = set()
    for k in range(6):
        monkeypatch.setattr(traces, "_indices", itertools.count(local.main.index + 1))
        made = _in_a_thread(lambda k=k: ft.ones(3) * k)
        assert made._gen not in met
        met.add(made._gen)
        end_traces_of_dead_threads()
        assert made.tolist() == [float(k)] * 3
        _is_whole()
