"""Learning rates that are tensors: every schedule writes to the tensor that the user has given, and keeps numbers of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch")

SCHEDULES: dict[str, Callable[[Any, Any], Any]] = {
    "StepLR": lambda m, o: m.optim.lr_scheduler.StepLR(o, 1),
    "LambdaLR": lambda m, o: m.optim.lr_scheduler.LambdaLR(o, lambda e: 0.9**e),
    "MultiplicativeLR": lambda m, o: m.optim.lr_scheduler.MultiplicativeLR(o, lambda e: 0.9),
    "MultiStepLR": lambda m, o: m.optim.lr_scheduler.MultiStepLR(o, [1, 3]),
    "ConstantLR": lambda m, o: m.optim.lr_scheduler.ConstantLR(o, 0.5, 2),
    "LinearLR": lambda m, o: m.optim.lr_scheduler.LinearLR(o, 0.5, total_iters=3),
    "ExponentialLR": lambda m, o: m.optim.lr_scheduler.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda m, o: m.optim.lr_scheduler.PolynomialLR(o, 4),
    "CosineAnnealingLR": lambda m, o: m.optim.lr_scheduler.CosineAnnealingLR(o, 5),
    "CosineAnnealingWarmRestarts": lambda m, o: m.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "CyclicLR": lambda m, o: m.optim.lr_scheduler.CyclicLR(o, 0.1, 0.2, step_size_up=2, cycle_momentum=False),
    "OneCycleLR": lambda m, o: m.optim.lr_scheduler.OneCycleLR(o, 0.2, total_steps=10, cycle_momentum=False),
    "ReduceLROnPlateau": lambda m, o: m.optim.lr_scheduler.ReduceLROnPlateau(o, patience=0),
    "SequentialLR": lambda m, o: m.optim.lr_scheduler.SequentialLR(
        o, [m.optim.lr_scheduler.ConstantLR(o, 0.5, 2), m.optim.lr_scheduler.ExponentialLR(o, 0.9)], [2]
    ),
    "ChainedScheduler": lambda m, o: m.optim.lr_scheduler.ChainedScheduler(
        [m.optim.lr_scheduler.ConstantLR(o, 0.5, 2), m.optim.lr_scheduler.ExponentialLR(o, 0.9)]
    ),
    "SWALR": lambda m, o: m.optim.swa_utils.SWALR(o, 0.05, 3),
}


def test_every_schedule_is_here() -> None:
    made = {name for name, c in vars(torch.optim.lr_scheduler).items() if isinstance(c, type) and issubclass(c, torch.optim.lr_scheduler.LRScheduler)}
    assert made - {"LRScheduler", "_LRScheduler"} == SCHEDULES.keys() - {"SWALR"}


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_tensor_is_written_to(name: str) -> None:
    found = []
    for m in (torch, flambeau):
        p, rate = m.nn.Parameter(m.ones(2, dtype=m.float64)), m.tensor(0.1, dtype=m.float64)
        optimizer = m.optim.SGD([p], lr=rate)
        schedule = SCHEDULES[name](m, optimizer)
        rates = []
        for _ in range(6):
            p.grad = m.ones(2, dtype=m.float64)
            optimizer.step()
            schedule.step(*([1.0] if name == "ReduceLROnPlateau" else []))
            rates.append(rate.item())
        assert optimizer.param_groups[0]["lr"] is rate
        kept = schedule.get_last_lr()[0]
        rate.fill_(7.0)
        assert float(kept) == rates[-1]  # of its own
        found.append((rates, p.tolist()))
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-14)
    assert found[1][1] == pytest.approx(found[0][1], rel=1e-14)
