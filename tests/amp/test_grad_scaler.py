"""GradScaler against PyTorch's: the same gradients, skipped steps, scales, states and errors."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch as pytorch

import flambeau as torch

OPTIONS: dict[str, Any] = {"init_scale": 8.0, "growth_interval": 2, "growth_factor": 4.0}


def simulate(module: Any, kind: str) -> list[Any]:
    """Losses, scales, weights and the tracker over steps of which some have gradients that are not finite."""
    rng = np.random.default_rng(0)
    w = module.nn.Parameter(module.tensor(rng.standard_normal((4, 3)).astype(np.float32)))
    unused = module.nn.Parameter(module.zeros(2))
    optimizer = module.optim.Adam([w, unused], lr=0.1) if kind == "adam" else module.optim.SGD([w, unused], lr=0.1, momentum=0.9)
    scaler = module.amp.GradScaler("cpu", **OPTIONS)
    record: list[Any] = []
    for i in range(9):
        x = rng.standard_normal((5, 4)).astype(np.float32)
        if i in (3, 4):
            x[0, 0] = np.inf if i == 3 else np.nan
        optimizer.zero_grad()
        with module.autocast("cpu", dtype=module.float16, enabled=kind == "half"):
            loss = (module.tensor(x) @ w).float().square().mean()
        scaled = scaler.scale(loss)
        scaled.backward()
        if i % 3 == 0:
            scaler.unscale_(optimizer)
            if i not in (3, 4):
                record.append(w.grad.detach().numpy().copy())
        result = scaler.step(optimizer)
        assert result is None
        scaler.update()
        record += [scaler.get_scale(), scaler._get_growth_tracker(), w.detach().numpy().copy()]
    return [*record, scaler.state_dict()]


@pytest.mark.parametrize("kind", ["sgd", "adam", "half"])
def test_same_as_pytorch(kind: str) -> None:
    for ours, theirs in zip(simulate(torch, kind), simulate(pytorch, kind), strict=True):
        if isinstance(theirs, np.ndarray):
            np.testing.assert_allclose(ours, theirs, rtol=2e-5 if kind != "half" else 2e-2, atol=1e-6 if kind != "half" else 1e-3)
        else:
            assert ours == theirs


def test_scale_of_containers_and_its_dtype() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    half = torch.full((), 3.0, dtype=torch.float16)
    assert scaler.scale(half).item() == 3.0 * 2**16  # a 0-d float16 loss must not overflow
    a, (b,) = scaler.scale([torch.ones(2), (torch.ones(1),)])
    assert a.tolist() == [65536.0] * 2 and b.tolist() == [65536.0]
    with pytest.raises(ValueError, match="must be a Tensor or an iterable"):
        scaler.scale(3)  # type: ignore[arg-type]


def test_one_plan_for_forward_backward_and_check() -> None:
    """The check for infinities and the division run in the trace that made the gradients: one observation a step before the step."""
    layer = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    x = torch.randn(4, 8)

    def step() -> None:
        optimizer.zero_grad()
        scaler.scale(layer(x).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()

    from flambeau.statistics import counters

    for _ in range(4):
        step()
    before = counters.traces_run
    for _ in range(5):
        step()
    torch.cpu.synchronize()
    assert counters.traces_run - before <= 2 * 5 + 1


def test_errors() -> None:
    w = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([w], lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    with pytest.raises(AssertionError, match="_scale is None"):
        scaler.step(optimizer)
    scaler.scale(w.sum()).backward()
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.unscale_(optimizer)
    with pytest.raises(AssertionError, match="pickled at the beginning"):
        pickle.dumps(scaler)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="step\\(\\) has already been called"):
        scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="called after step"):
        scaler.unscale_(optimizer)
    scaler.update()
    with pytest.raises(AssertionError, match="No inf checks"):
        scaler.update()
    with pytest.raises(RuntimeError, match="Closure"):
        scaler.step(optimizer, closure=lambda: 1.0)
    with pytest.raises(AssertionError, match="growth factor"):
        torch.amp.GradScaler("cpu", growth_factor=1.0)
    half = torch.nn.Parameter(torch.ones(2, dtype=torch.float16))
    second = torch.optim.SGD([half], lr=0.1)
    scaler.scale(half.float().sum()).backward()
    with pytest.raises(ValueError, match="FP16 gradients"):
        scaler.unscale_(second)


def test_state_and_new_scale() -> None:
    scaler = torch.amp.GradScaler("cpu", **OPTIONS)
    w = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([w], lr=0.1)
    scaler.scale(w.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    restored = torch.amp.GradScaler("cpu")
    restored.load_state_dict(scaler.state_dict())
    assert restored.state_dict() == scaler.state_dict() == pickle.loads(pickle.dumps(scaler)).state_dict()
    with pytest.raises(RuntimeError, match="state dict is empty"):
        restored.load_state_dict({})
    scaler.update(32.0)
    assert scaler.get_scale() == 32.0
    scaler.update(torch.tensor([64.0]))
    assert scaler.get_scale() == 64.0
    off = torch.amp.GradScaler("cpu", enabled=False)
    x = torch.ones(1)
    assert off.scale(x) is x and off.get_scale() == 1.0 and off.state_dict() == {}


def test_optimizer_that_scales_by_itself() -> None:
    class Own(torch.optim.SGD):
        _step_supports_amp_scaling = True

        def step(self, closure: Any = None) -> Any:
            seen.append((self.grad_scale.item(), self.found_inf.item()))

    seen: list[Any] = []
    w = torch.nn.Parameter(torch.ones(2))
    optimizer = Own([w], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(w.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert seen == [(8.0, 0.0)] and w.grad.tolist() == [8.0, 8.0]
