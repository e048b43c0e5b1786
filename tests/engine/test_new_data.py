"""`target.data = value`: the memory is shared, and no history goes from one to the other, in whatever order it comes to be."""

from __future__ import annotations

import random
from typing import Any

import pytest

import flambeau

theirs = pytest.importorskip("torch")


def outcome(torch: Any, seed: int) -> list[Any]:
    """A random program of new data and writes with gradients: flags, values and gradients after each step."""
    r = random.Random(seed)
    w = torch.nn.Parameter(torch.ones(3, 2), requires_grad=r.random() < 0.4)
    a, x = torch.nn.Parameter(torch.ones(3, 2) * 2), torch.ones(4, 2)
    o, base = torch.zeros(3, 2), torch.zeros(2, 3, 2)
    log: list[Any] = []
    for _ in range(8):
        step = r.randrange(11)
        if step == 0:
            o = w.data.clone()
        elif step == 1:
            w.data = o
        elif step == 2:
            o += a * 2
        elif step == 3:
            w.data = base[1]
        elif step == 4:
            base += a
        elif step == 5:
            log.append((x @ w.T).sum().item())
        elif step == 6:
            base, o = torch.zeros(2, 3, 2), torch.ones(3, 2)
        elif step == 7:
            w.data.mul_(2.0)
        elif step == 8:
            w.data -= a
        elif step == 9 and not w.requires_grad:
            w.set_(o.detach())
        else:
            w.data = a * 3
        log.append((step, w.requires_grad, w.is_leaf, o.requires_grad, base.requires_grad, w.sum().item(), o.sum().item()))
    if w.requires_grad:
        (x @ w.T).sum().backward()
        log.append(w.grad.sum().item())
    if o.requires_grad:
        o.sum().backward()
        log.append(a.grad.sum().item())
    try:
        torch.nn.Linear(2, 3).weight = w
        log.append("a parameter")
    except ValueError:
        log.append("refused")
    return log


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_random_programs(first: int) -> None:
    for seed in range(first, first + 100):
        assert outcome(flambeau, seed) == outcome(theirs, seed), seed
