"""Whatever fails in a random program, everything else has its values, and its gradients, afterwards."""

from __future__ import annotations

import pytest

import flambeau as ft
from tests.engine import failing_programs


@pytest.mark.parametrize("kind", failing_programs.LATE)
def test_found_late(kind: str, each_tier: str) -> None:
    """Learned paths, too: each program comes three times."""
    for seed in range(9):
        for _ in range(3):
            assert not failing_programs.wrong_after(seed, kind), seed


@pytest.mark.parametrize("kind", failing_programs.AT_ONCE)
def test_found_at_the_call(kind: str, each_tier: str) -> None:
    for seed in range(3):
        for _ in range(3):
            assert not failing_programs.wrong_after(seed, kind), seed


@pytest.mark.usefixtures("whole")
def test_gradients_of_what_was_pending_beside_it() -> None:
    x, layer = ft.ones(3, requires_grad=True), ft.nn.Linear(3, 1)
    y = (layer(x) * 2).exp().sum()
    bad = ft.ones(4).gather(0, ft.tensor([8]) + 1)
    with pytest.raises(IndexError):
        bad.tolist()
    y.backward()
    right = (ft.exp(layer(ft.ones(3)) * 2) * 2 * layer.weight[0]).tolist()
    assert x.grad.tolist() == pytest.approx(right)


@pytest.mark.usefixtures("whole")
def test_a_history_that_is_lost_says_so() -> None:
    """A write to memory that exists, after the failing call, is undone: what it would have handed on has no gradient, and that is an error."""
    w = ft.ones(3, requires_grad=True)
    h = ft.zeros(3)
    h.tolist()
    bad = ft.ones(4).gather(0, ft.tensor([8]) + 1)
    h.add_(w)
    with pytest.raises(IndexError):
        bad.tolist()
    assert h.tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(RuntimeError, match="no history any more"):
        h.sum().backward()


@pytest.mark.usefixtures("whole")
def test_what_the_failed_run_had_computed_before_it_wrote_over_its_source() -> None:
    """A value of what memory held, computed in the run that then wrote to that memory, and failed."""
    for _ in range(3):
        m = ft.arange(6.0)
        m.tolist()
        old = m.sin()
        m[::2] = 5.0
        bad = m.gather(0, m.long() + 7)
        with pytest.raises(IndexError):
            bad.tolist()
        assert old.tolist() == ft.arange(6.0).sin().tolist() and m.tolist() == [5.0, 1.0, 5.0, 3.0, 5.0, 5.0]
