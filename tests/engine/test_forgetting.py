"""Plans that have not run for long make room for new ones, and are made again when they are wanted."""

from __future__ import annotations

import pytest

import flambeau as ft
from flambeau.trace import forgetting
from flambeau.trace.recorder import local

pytestmark = pytest.mark.usefixtures("whole")


def _work(size: int, turns: int = 1) -> float:
    x = ft.linspace(0.0, 1.0, size, requires_grad=True)
    for _ in range(turns):
        y = (x * 2 + 1).sin() * x
        y.sum().backward()
    assert x.grad is not None
    return float(x.grad.sum())


def _states() -> int:
    pending, count = list(local.trace.roots.values()), 0
    while pending:
        state = pending.pop()
        count += 1
        pending.extend(state.children.values())
    return count


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    forgetting.keep(0)
    monkeypatch.setattr(forgetting, "_held", 0)
    monkeypatch.setattr(forgetting, "limit", lambda: 400)


@pytest.mark.usefixtures("small")
def test_new_sizes_take_bounded_memory() -> None:
    sizes = range(3000, 3060)
    expected = [_work(3000 + 2 * i) for i in range(3)]
    states = []
    forgotten = ft.stats()["plans_forgotten"]
    for size in sizes:
        _work(size)
        states.append(_states())
    assert ft.stats()["plans_forgotten"] > forgotten + 30
    assert max(states[30:]) <= max(states[:30])
    assert [_work(3000 + 2 * i) for i in range(3)] == expected  # made again


@pytest.mark.usefixtures("small")
def test_what_runs_often_stays() -> None:
    for size in range(4000, 4040):
        _work(size)
        before = ft.stats()["plans_made"]
        _work(3999)
        if size > 4002:
            assert ft.stats()["plans_made"] == before, size


def test_what_is_recorded_and_what_is_kept_for_gradients_survives() -> None:
    x = ft.ones(7, requires_grad=True)
    y = (x * 3).exp()
    assert float(y.sum()) > 0  # a segment of a plan that is forgotten next
    pending = y * 2
    forgetting.keep(0)
    (pending.sum() + y.sum()).backward()
    assert x.grad is not None
    assert ft.allclose(x.grad, 9 * (ft.ones(7) * 3).exp())


def test_remembered_calls_are_forgotten_with_what_they_lead_to() -> None:
    def run() -> list[float]:
        t = ft.linspace(0.0, 1.0, 71) * 3
        t[2] = 5.0
        return (t[1:9:2].view(2, 2) + 1).sum(0).tolist()

    expected = run()
    assert run() == expected
    forgetting.keep(0)
    known = forgetting.states()
    calls = [state.call for state in known if state.call is not None]
    assert all(call.end is None or call.end in known for call in calls)
    assert run() == expected and run() == expected
