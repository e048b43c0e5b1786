"""Training in mixed precision: loss curves beside those in float32, and modules in half precision."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch as pytorch

import flambeau as torch
from flambeau import nn
from flambeau.cli.demo_gpt import GPT
from flambeau.nn import functional as F


def train_gpt(lower: Any, steps: int = 60) -> list[float]:
    torch.manual_seed(0)
    model = GPT(vocabulary=17, width=32, heads=4, layers=2, context=16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scaler = torch.amp.GradScaler("cpu", enabled=lower is torch.float16)
    rng = np.random.default_rng(0)
    losses = []
    for _ in range(steps):
        start = rng.integers(0, 17, (16, 1))
        text = torch.tensor((start + np.arange(17) ** 2 % 7 + np.arange(17)) % 17)  # a rule that can be learnt
        with torch.autocast("cpu", dtype=lower or torch.bfloat16, enabled=lower is not None):
            logits = model(text[:, :-1])
            assert logits.dtype is (lower or torch.float32)
            loss = F.cross_entropy(logits.reshape(-1, 17), text[:, 1:].reshape(-1))
        assert loss.dtype is torch.float32
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        assert all(p.dtype is p.grad.dtype is torch.float32 for p in model.parameters())
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses


@pytest.fixture(scope="module")
def exact_curve() -> list[float]:
    return train_gpt(None)


@pytest.mark.parametrize("lower", ["bfloat16", "float16"])
def test_gpt_learns_as_in_float32(lower: str, exact_curve: list[float]) -> None:
    curve = train_gpt(getattr(torch, lower))
    assert exact_curve[0] > 2.5 and exact_curve[-1] < 0.8  # it learns at all
    assert abs(curve[0] - exact_curve[0]) < 0.01
    differences = np.abs(np.array(curve) - np.array(exact_curve))
    assert differences.max() < 0.15 and differences.mean() < 0.03, differences


def test_convolution_net_with_gradient_scaling() -> None:
    def train(enabled: bool) -> list[float]:
        torch.manual_seed(1)
        net = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(),
            nn.Linear(8 * 4, 4),
        )  # fmt: skip
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        scaler = torch.amp.GradScaler("cpu", enabled=enabled)
        x = torch.randn(32, 1, 8, 8)
        y = torch.arange(32) % 4
        x = x + torch.nn.functional.one_hot(y, 4).float().reshape(32, 1, 2, 2).repeat(1, 1, 4, 4)
        losses = []
        for _ in range(25):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16, enabled=enabled):
                loss = F.cross_entropy(net(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
        return losses

    exact, mixed = train(False), train(True)
    assert exact[-1] < 0.3 * exact[0]
    assert max(abs(a - b) for a, b in zip(exact[:10], mixed[:10], strict=True)) < 0.1 and mixed[-1] < 0.4 * mixed[0]


@pytest.mark.parametrize("name", ["half", "bfloat16", "double", "float"])
def test_module_conversions(name: str) -> None:
    def build(module: Any) -> Any:
        return module.nn.Sequential(module.nn.Linear(4, 3), module.nn.BatchNorm1d(3), module.nn.Embedding(5, 2))

    ours, theirs = getattr(build(torch), name)(), getattr(build(pytorch), name)()
    kinds = [{k: str(v.dtype) for k, v in m.state_dict().items()} for m in (ours, theirs)]
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize("name", ["half", "bfloat16"])
def test_model_in_half_precision_against_pytorch(name: str) -> None:
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal(s).astype(np.float32) / 4 for s in ((16, 8), (16,), (4, 16), (4,))]
    x = rng.standard_normal((6, 8)).astype(np.float32)
    results = []
    for module in (torch, pytorch):
        net = module.nn.Sequential(module.nn.Linear(8, 16), module.nn.GELU(), module.nn.Linear(16, 4))
        for p, w in zip(net.parameters(), weights, strict=True):
            p.data.copy_(module.tensor(w))
        net = getattr(net, name)()
        y = net(getattr(module.tensor(x), name)())
        y.float().square().sum().backward()
        assert all(p.grad.dtype == p.dtype for p in net.parameters())
        results.append([y.detach().float().numpy(), *[p.grad.float().numpy() for p in net.parameters()]])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=3 * 2.0**-8 * np.abs(theirs).max())


def test_losses_are_finite_where_float16_would_overflow() -> None:
    x = torch.full((4, 4), 300.0, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.mse_loss((x @ torch.eye(4)), torch.zeros(4, 4))
    assert math.isclose(loss.item(), 90000.0)
