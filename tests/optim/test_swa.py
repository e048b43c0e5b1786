"""optim.swa_utils against PyTorch: averages of weights, their statistics, and the schedule."""

from __future__ import annotations

import copy
import io

import pytest

import flambeau
from tests.nn.oracle import close, ours, torch

BOTH = (flambeau, torch)
AVERAGES = {
    "swa": lambda s: {},
    "swa buffers": lambda s: {"use_buffers": True},
    "swa fn": lambda s: {"avg_fn": s.get_swa_avg_fn()},
    "swa multi": lambda s: {"multi_avg_fn": s.get_swa_multi_avg_fn()},
    "ema": lambda s: {"avg_fn": s.get_ema_avg_fn(0.9)},
    "ema multi": lambda s: {"multi_avg_fn": s.get_ema_multi_avg_fn(0.9)},
    "ema multi buffers": lambda s: {"multi_avg_fn": s.get_ema_multi_avg_fn(0.5), "use_buffers": True},
    "own": lambda s: {"avg_fn": lambda a, b, n: a * 0.5 + b * (0.5 / n)},
}


def train(m, options, x):
    m.manual_seed(0)
    model = m.nn.Sequential(m.nn.Linear(3, 4), m.nn.BatchNorm1d(4), m.nn.Linear(4, 1))
    optimizer = m.optim.SGD(model.parameters(), lr=0.1)
    average = m.optim.swa_utils.AveragedModel(model, **options)
    for _ in range(4):
        optimizer.zero_grad()
        (model(x) ** 2).mean().backward()
        optimizer.step()
        average.update_parameters(model)
    return model, average


@pytest.mark.parametrize("name", AVERAGES)
def test_averages(name):
    torch.manual_seed(1)
    x = torch.randn(6, 3)
    results = []
    for m, given in ((flambeau, ours(x)), (torch, x)):
        _, average = train(m, AVERAGES[name](m.optim.swa_utils), given)
        m.optim.swa_utils.update_bn([(given, 0), [given * 2]], average)
        results.append((average, average.eval()(given)))
    (mine, y), (theirs, z) = results
    close(y, z, 1e-5)
    assert list(mine.state_dict()) == list(theirs.state_dict()) and mine.n_averaged.item() == 4
    for a, b in zip(mine.state_dict().values(), theirs.state_dict().values(), strict=True):
        close(a, b, 1e-5)
    file = io.BytesIO()
    torch.save(theirs.state_dict(), file)
    file.seek(0)
    mine.load_state_dict(flambeau.load(file))
    close(mine(ours(x)), z, 1e-5)
    twin = copy.deepcopy(mine)
    twin.update_parameters(mine.module)
    assert twin.n_averaged.item() == 5 and mine.n_averaged.item() == 4


def test_update_bn_restores_modes():
    for m in BOTH:
        net = m.nn.Sequential(m.nn.BatchNorm1d(2, momentum=0.3)).eval()
        m.optim.swa_utils.update_bn([m.ones(3, 2), m.ones(3, 2) * 4], net)
        assert net[0].momentum == 0.3 and not net.training and net[0].running_mean.tolist() == [2.5, 2.5]
        m.optim.swa_utils.update_bn([], m.nn.Linear(1, 1))


@pytest.mark.parametrize("strategy", ["cos", "linear"])
@pytest.mark.parametrize("epochs", [0, 1, 4])
def test_schedule(strategy, epochs):
    results = []
    for m in BOTH:
        p = [m.nn.Parameter(m.ones(1)), m.nn.Parameter(m.ones(1))]
        optimizer = m.optim.SGD([{"params": [p[0]], "lr": 0.5}, {"params": [p[1]], "lr": 1.0}])
        schedule = m.optim.swa_utils.SWALR(optimizer, swa_lr=[0.05, 0.1], anneal_epochs=epochs, anneal_strategy=strategy)
        rates = []
        for step in range(7):
            optimizer.step()
            schedule.step()
            rates.append(schedule.get_last_lr())
            if step == 3:
                state = schedule.state_dict()
                schedule.load_state_dict(state)
        results.append((rates, sorted(state), optimizer.param_groups[0]["swa_lr"]))
    for a, b in zip(results[0][0], results[1][0], strict=True):
        assert a == pytest.approx(b)
    assert results[0][1:] == results[1][1:]


def test_errors():
    for m in BOTH:
        s = m.optim.swa_utils
        model = m.nn.Linear(1, 1)
        optimizer = m.optim.SGD(model.parameters(), lr=1.0)
        with pytest.raises(ValueError, match="Invalid decay value"):
            s.get_ema_avg_fn(1.5)
        with pytest.raises(ValueError, match="Invalid decay value"):
            s.get_ema_multi_avg_fn(-1)
        with pytest.raises(AssertionError, match="Only one of"):
            s.AveragedModel(model, avg_fn=s.get_swa_avg_fn(), multi_avg_fn=s.get_swa_multi_avg_fn())
        with pytest.raises(ValueError, match="anneal_strategy"):
            s.SWALR(optimizer, 0.1, anneal_strategy="x")
        with pytest.raises(ValueError, match="anneal_epochs"):
            s.SWALR(optimizer, 0.1, anneal_epochs=-1)
