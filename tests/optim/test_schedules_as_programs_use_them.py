"""Schedules whose numbers are tensors, optimizers whose step is overridden, states of older versions: as PyTorch's."""

from __future__ import annotations

import math
import types
import warnings
from typing import Any

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")


def optimizer_of(m: Any, **options: Any) -> Any:
    return m.optim.SGD([m.nn.Parameter(m.ones(1))], lr=0.1, momentum=0.9, **options)


def texts(action: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        action()
    return [str(w.message) for w in seen]


@pytest.mark.parametrize("name", ["CyclicLR", "OneCycleLR"])
def test_later_writes_to_a_tensor_do_not_change_the_schedule(name: str) -> None:
    found = []
    for m in (ft, torch):
        given = {"max_lr": m.tensor(0.2), "base_momentum": m.tensor(0.8), "max_momentum": m.tensor(0.9)}
        more = {"base_lr": 0.1} if name == "CyclicLR" else {"total_steps": 10}
        optimizer = optimizer_of(m)
        schedule = getattr(m.optim.lr_scheduler, name)(optimizer, **given, **more)
        values = []
        for _ in range(3):
            for t in given.values():
                t.mul_(0.5)
            optimizer.step()
            schedule.step()
            group = optimizer.param_groups[0]
            values += [float(group[key]) for key in ("lr", "momentum", "max_momentum", "base_momentum")]
        found.append(values)
    assert found[0] == pytest.approx(found[1], rel=1e-6)


def test_a_step_that_is_overridden_later_is_told_of() -> None:
    for m in (ft, torch):
        optimizer = optimizer_of(m)
        schedule = m.optim.lr_scheduler.StepLR(optimizer, 1)
        before = optimizer.step
        optimizer.step = types.MethodType(lambda self, before=before: before(), optimizer)
        optimizer.step()
        (text,) = texts(schedule.step)
        assert "`optimizer.step()` has been overridden" in text and "how-to-adjust-learning-rate" in text
        optimizer = optimizer_of(m)
        optimizer.step = types.MethodType(lambda self, before=optimizer.step: before(), optimizer)
        schedule = m.optim.lr_scheduler.StepLR(optimizer, 1)
        optimizer.step()
        assert not texts(schedule.step)
        (text,) = texts(m.optim.lr_scheduler.StepLR(optimizer_of(m), 1).step)
        assert "Detected call of `lr_scheduler.step()` before `optimizer.step()`" in text and "how-to-adjust-learning-rate" in text
        (text,) = texts(lambda schedule=schedule: schedule.step(3))
        assert text == m.optim.lr_scheduler.EPOCH_DEPRECATION_WARNING


def test_states_with_a_function_of_annealing() -> None:
    for m in (ft, torch):
        kind = m.optim.lr_scheduler.OneCycleLR
        schedule = kind(optimizer_of(m), max_lr=25, total_steps=10)
        del schedule._anneal_func_type
        schedule.load_state_dict({**schedule.state_dict(), "anneal_func": kind._annealing_cos})
        schedule.optimizer.step()
        schedule.step()
        assert schedule.get_last_lr()[0] == pytest.approx(25 + (1 - 25) / 2 * (math.cos(math.pi / 2) + 1))
