"""`as_strided` of a view that reaches beyond it: no gradient gets outside of the view until the memory is written to (an in-place view is such a write),
and all of it from then on. And leaves that an in-place view without gradients has given another shape after their use. PyTorch is the reference."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch")

VIEWS: list[Callable[[Any], Any]] = [
    lambda y: y[..., 0], lambda y: y[1:], lambda y: y.t()[0], lambda y: y[:, ::2], lambda y: y.diagonal(),
    lambda y: y.reshape(-1)[3:7], lambda y: y.unsqueeze(0)[:, 1],
]  # fmt: skip
CHANGES: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "nothing": lambda m, y, v, u: None, "write to a view of it": lambda m, y, v, u: u[..., :1].mul_(3),
    "view in place": lambda m, y, v, u: v.unsqueeze_(-1), "base in place": lambda m, y, v, u: y.unsqueeze_(0),
    "write to the view": lambda m, y, v, u: v.mul_(2), "write to it": lambda m, y, v, u: u.mul_(3),
    "copy into it": lambda m, y, v, u: u.copy_(u.detach() * 2), "write to the base": lambda m, y, v, u: y.mul_(2),
    "number": lambda m, y, v, u: v.__setitem__(0, 4.0),
    "two": lambda m, y, v, u: (v.unsqueeze_(0), u.mul_(2)), "without gradients": lambda m, y, v, u: _without_gradients(m, v),
}  # fmt: skip


def _without_gradients(m: Any, v: Any) -> None:
    with m.no_grad():
        v.mul_(2)


def _run(m: Any, seed: int, change: str) -> list[Any]:
    chance = random.Random(seed)
    x = m.arange(12.0, dtype=m.float64).reshape(4, 3).requires_grad_()
    y = x * 1 if chance.random() < 0.5 else x.clone()
    v = chance.choice(VIEWS)(y)
    size, stride = chance.choice([((3,), (2,)), ((2, 2), (3, 1)), ((4,), (3,)), ((2, 3), (4, 1))])
    u = v.as_strided(size, stride, chance.choice([0, 1, 2]))
    observed = chance.random() < 0.4
    if observed:
        u.sum().item()
    CHANGES[change](m, y, v, u)
    if chance.random() < 0.3:
        u.sum().item()
    weights = m.arange(1.0, u.numel() + 1, dtype=m.float64).reshape(u.shape)
    total = (u * weights).sum() + (chance.random() < 0.5) * y.sum() + (v.sum() if chance.random() < 0.5 else 0)
    total.backward()
    return [x.grad.tolist(), u.tolist(), list(v.shape)]


@pytest.mark.parametrize("change", CHANGES)
def test_gradients_of_what_lies_outside(change: str) -> None:
    for seed in range(25):
        expected = _run(torch, seed, change)
        for _ in range(3):  # the last ones on a path that is known
            assert _run(flambeau, seed, change) == expected, seed


@pytest.mark.parametrize("look", [False, True])
@pytest.mark.parametrize("shape", [(1, 2, 3), (3, 2), (1, 1, 2, 3)])
def test_leaves_of_another_shape(shape: tuple[int, ...], look: bool) -> None:
    def run(m: Any, again: bool) -> Any:
        x = m.arange(6.0).reshape(2, 3).requires_grad_()
        y = x * 2
        with m.no_grad():
            if shape == (3, 2):
                x.t_()
            else:
                for _ in range(len(shape) - 2):
                    x.unsqueeze_(0)
        if look:
            y.sum().item()
        try:
            y.sum().backward(retain_graph=True)
            if again:
                y.sum().backward()
        except RuntimeError:
            return "refused"
        return x.grad.tolist()

    for again in (False, True):
        for _ in range(3):
            assert run(flambeau, again) == run(torch, again)
