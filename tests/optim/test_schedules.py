"""Learning-rate schedules against PyTorch: rates, momenta, state_dict keys, resuming."""

from __future__ import annotations

import copy

import pytest

import flambeau
from tests.nn.oracle import torch

CASES = [
    ("StepLR", {"step_size": 3}),
    ("MultiStepLR", {"milestones": [2, 5, 5]}),
    ("ExponentialLR", {"gamma": 0.9}),
    ("CosineAnnealingLR", {"T_max": 5, "eta_min": 0.01}),
    ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2}),
    ("LambdaLR", {"lr_lambda": lambda epoch: 0.9**epoch}),
    ("MultiplicativeLR", {"lr_lambda": lambda epoch: 0.95}),
    ("LinearLR", {"start_factor": 0.2, "total_iters": 4}),
    ("ConstantLR", {}),
    ("PolynomialLR", {"power": 2.0, "total_iters": 7}),
    ("OneCycleLR", {"max_lr": 1.0, "total_steps": 30}),
    ("OneCycleLR", {"max_lr": 1.0, "epochs": 3, "steps_per_epoch": 10, "three_phase": True, "anneal_strategy": "linear"}),
    ("CyclicLR", {"base_lr": 0.1, "max_lr": 1.0, "step_size_up": 4, "mode": "triangular2"}),
    ("CyclicLR", {"base_lr": 0.1, "max_lr": 1.0, "step_size_up": 4, "step_size_down": 3, "mode": "exp_range", "gamma": 0.9}),
]


def optimizer(module, name):
    extra = {"momentum": 0.9} if name == "SGD" else {}
    groups = [{"params": [module.nn.Parameter(module.zeros(1))]}, {"params": [module.nn.Parameter(module.zeros(1))], "lr": 0.3}]
    return getattr(module.optim, name)(groups, lr=0.5, **extra)


def trajectory(module, name, kwargs, kind):
    o = optimizer(module, kind)
    schedule = getattr(module.optim.lr_scheduler, name)(o, **kwargs)
    rates = [schedule.get_last_lr()]
    for _ in range(18):
        o.step()
        schedule.step()
        rates.append((list(schedule.get_last_lr()), [g.get("momentum", g.get("betas")) for g in o.param_groups]))
    state = copy.deepcopy(schedule.state_dict())
    keys = sorted(state)
    again = optimizer(module, kind)
    resumed = getattr(module.optim.lr_scheduler, name)(again, **kwargs)
    again.load_state_dict(o.state_dict())
    resumed.load_state_dict(state)
    again.step()
    resumed.step()
    rates.append(resumed.get_last_lr())
    return repr(rates), keys


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["SGD", "Adam"])
@pytest.mark.parametrize(("name", "kwargs"), CASES)
def test_schedule(name, kwargs, kind):
    mine, theirs = trajectory(flambeau, name, kwargs, kind), trajectory(torch, name, kwargs, kind)
    assert mine == theirs


@pytest.mark.filterwarnings("ignore")
def test_composed_schedules():
    results = []
    for module in (flambeau, torch):
        schedules = module.optim.lr_scheduler
        o = optimizer(module, "SGD")
        parts = [schedules.LinearLR(o, 0.1, total_iters=3), schedules.ExponentialLR(o, 0.9), schedules.StepLR(o, 2)]
        sequence = schedules.SequentialLR(o, parts, [3, 6])
        rates = []
        for _ in range(10):
            o.step()
            sequence.step()
            rates.append(sequence.get_last_lr())
        o = optimizer(module, "SGD")
        chain = schedules.ChainedScheduler([schedules.LinearLR(o, 0.1, total_iters=3), schedules.ExponentialLR(o, 0.9)])
        for _ in range(6):
            o.step()
            chain.step()
            rates.append(chain.get_last_lr())
        results.append((rates, sequence.state_dict().keys(), chain.state_dict().keys()))
    assert results[0] == results[1]


def test_plateau():
    results = []
    for module in (flambeau, torch):
        o = optimizer(module, "SGD")
        plateau = module.optim.lr_scheduler.ReduceLROnPlateau(o, patience=1, cooldown=1, factor=0.5, min_lr=0.05)
        rates = []
        for metric in [3, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1]:
            o.step()
            plateau.step(metric)
            rates.append(plateau.get_last_lr())
        results.append((rates, plateau.state_dict()))
    assert results[0] == results[1]


def test_warns_when_stepped_before_the_optimizer():
    o = optimizer(flambeau, "SGD")
    schedule = flambeau.optim.lr_scheduler.StepLR(o, 1)
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        schedule.step()


def test_errors():
    with pytest.raises(TypeError, match="is not an Optimizer"):
        flambeau.optim.lr_scheduler.StepLR(3, 1)
    o = optimizer(flambeau, "SGD")
    schedules = flambeau.optim.lr_scheduler
    with pytest.raises(ValueError, match="total_steps OR"):
        schedules.OneCycleLR(o, max_lr=1.0)
    with pytest.raises(ValueError, match=r"Factor should be < 1\.0"):
        schedules.ReduceLROnPlateau(o, factor=1.0)
    with pytest.raises(KeyError, match="initial_lr"):
        schedules.StepLR(optimizer(flambeau, "SGD"), 1, last_epoch=3)
