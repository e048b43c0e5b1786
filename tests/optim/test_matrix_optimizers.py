"""Adafactor and Muon against PyTorch."""

from __future__ import annotations

import io

import pytest
from torch.optim._muon import _zeropower_via_newtonschulz

import flambeau
from flambeau.optim.matrices import orthogonal
from tests.nn.oracle import close, ours, raises_as_torch, torch

SHAPES = {"Adafactor": ((4, 3), (5,), (2, 3, 4), ()), "Muon": ((4, 6), (6, 3))}
CASES = [
    ("Adafactor", {}), ("Adafactor", {"lr": 0.5, "weight_decay": 0.1, "d": 1.5}), ("Adafactor", {"eps": (1e-6, 1e-2), "maximize": True}),
    ("Adafactor", {"beta2_decay": -0.5}), ("Muon", {"lr": 0.1}), ("Muon", {"lr": 0.1, "ns_steps": 0, "momentum": 0.5}),
    ("Muon", {"nesterov": False, "adjust_lr_fn": "match_rms_adamw", "ns_steps": 0}),
]  # fmt: skip


def train(module, name, options, shapes, steps):
    """Parameters after a few steps on x^3 + x, and the optimizer."""
    generator = torch.Generator().manual_seed(3)
    start = [torch.randn(s, generator=generator) for s in shapes]
    params = [p.clone() if module is torch else ours(p) for p in start]
    params = [p.requires_grad_() for p in params]
    optimizer = getattr(module.optim, name)(params, **options)
    for _ in range(steps):
        optimizer.zero_grad()
        sum((p**3 + p).sum() for p in params).backward()
        optimizer.step()
    return params, optimizer


@pytest.mark.parametrize(("name", "options"), CASES)
def test_steps(name, options):
    mine, a = train(flambeau, name, options, SHAPES[name], 4)
    theirs, b = train(torch, name, options, SHAPES[name], 4)
    # four bfloat16 roundings of the update; the Newton-Schulz steps of the default magnify them (test_orthogonal)
    tolerance = 2e-6 if name == "Adafactor" else 4 * 2**-8 * options.get("lr", 1e-3) * (1 if "ns_steps" in options else 12)
    for m, t in zip(mine, theirs, strict=True):
        close(m, t, tolerance)
    left, right = a.state_dict(), b.state_dict()
    assert left["param_groups"] == right["param_groups"]
    for key, state in right["state"].items():
        assert set(left["state"][key]) == set(state)
        for part, value in state.items():
            close(left["state"][key][part], value, 1e-5 if name == "Adafactor" else 10 * tolerance)


def exact(x, coefficients, steps):
    """The Newton-Schulz steps in float64."""
    y = x.double() / x.double().norm()
    y = y.T if x.shape[0] > x.shape[1] else y
    for _ in range(steps):
        gram = y @ y.T
        y = coefficients[0] * y + (coefficients[1] * gram + coefficients[2] * gram @ gram) @ y
    return y.T if x.shape[0] > x.shape[1] else y


@pytest.mark.parametrize("shape", [(32, 32), (64, 16), (6, 9)])
def test_orthogonal(shape):
    """Against float64, the error of bfloat16 is at most twice PyTorch's: our addmm also rounds the product."""
    mine, theirs = 0.0, 0.0
    coefficients = (3.4445, -4.775, 2.0315)
    for seed in range(8):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        reference = exact(x, coefficients, 5)
        got = torch.tensor(orthogonal(ours(x), coefficients, 5, 1e-7).float().numpy())
        mine += (got - reference).abs().mean().item()
        theirs += (_zeropower_via_newtonschulz(x, coefficients, 5, 1e-7) - reference).abs().mean().item()
    assert mine <= 2 * theirs


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_norm_and_addmm(dtype):
    """Rounded once at the end; beta and alpha keep their digits."""
    x = torch.randn(32, 32, generator=torch.Generator().manual_seed(0)).to(dtype)
    for p in (1, 2, 3, float("inf")):
        close(ours(x).norm(p), x.norm(p), 0)
    got = flambeau.addmm(ours(x), ours(x), ours(x), beta=-4.775, alpha=2.0315)
    reference = -4.775 * x.double() + 2.0315 * (x.double() @ x.double())
    unit = torch.finfo(dtype).eps
    assert ((torch.tensor(got.float().numpy()) - reference).abs() <= unit * (reference.abs() + 2 * (x.double() @ x.double()).abs())).all()


@pytest.mark.parametrize("name", ["Adafactor", "Muon"])
def test_state_goes_on(name):
    whole, _ = train(flambeau, name, {}, SHAPES[name], 4)
    params, first = train(flambeau, name, {}, SHAPES[name], 2)
    buffer = io.BytesIO()
    flambeau.save(first.state_dict(), buffer)
    buffer.seek(0)
    second = getattr(flambeau.optim, name)(params)
    second.load_state_dict(flambeau.load(buffer))
    for _ in range(2):
        second.zero_grad()
        sum((p**3 + p).sum() for p in params).backward()
        second.step()
    for p, q in zip(params, whole, strict=True):
        assert p.tolist() == q.tolist()


def test_errors():
    for name, options in (("Adafactor", {"lr": -1.0}), ("Adafactor", {"beta2_decay": 0.1}), ("Adafactor", {"d": 0.5}), ("Adafactor", {"eps": (-1, 1e-3)}),
                          ("Muon", {"lr": -1.0}), ("Muon", {"adjust_lr_fn": "x"}), ("Muon", {"momentum": -1})):  # fmt: skip
        raises_as_torch(getattr(flambeau.optim, name), getattr(torch.optim, name), [torch.zeros(2, 2, requires_grad=True)], **options)
    raises_as_torch(flambeau.optim.Muon, torch.optim.Muon, [torch.zeros(2, requires_grad=True)])
