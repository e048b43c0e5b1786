"""Calls whose results depend on values that are at hand: what one call has decided by them never stands for another call (ops/remembered.py)."""

from __future__ import annotations

import random
from typing import Any

import pytest

import flambeau
from flambeau.trace import tiers

torch = pytest.importorskip("torch")

MASKS = ((), (6,), (6, 2))  # shapes


def looked_at(m: Any, kind: int, x: Any, mask: Any) -> Any:
    """A result whose shape, or what was recorded for it, follows from the mask's values."""
    index = (slice(None),) * (kind % 2) if mask.ndim == 0 else ()
    if kind < 2:
        return x[(*index, mask)]
    if kind == 2:
        return x[mask, None]
    if kind == 3:
        found = mask.nonzero()
        return found.new_zeros(found.shape[0])
    if kind == 4:
        return x.new_ones(len(m.argwhere(mask))) + 1
    if kind == 5:
        return x * 2 if mask.flatten()[0].item() else x + 1
    if kind == 6:
        return m.zeros(int(mask.sum()), 2)
    y = x.clone()
    y[(*index, mask)] = 5.0
    return y


def program(m: Any, seed: int) -> list[Any]:
    draw, shown = random.Random(seed), []
    kinds = [draw.randrange(8) for _ in range(draw.randint(1, 3))]
    shape, fresh, gradients, at_end = draw.choice(MASKS), draw.random() < 0.5, draw.random() < 0.3, draw.random() < 0.5
    masks = [m.zeros(shape) > 0, m.ones(shape) > 0]
    base = m.arange(12.0).reshape(6, 2)
    for turn in [draw.randrange(2) for _ in range(12)]:
        x = m.arange(12.0).reshape(6, 2) if fresh else base
        x = (x * 1).requires_grad_() if gradients else x
        mask = m.tensor(bool(turn)) if not shape and draw.random() < 0.5 else masks[turn]
        results = [looked_at(m, kind, x, mask) for kind in kinds]
        shown += [tuple(r.shape) for r in results]
        if at_end:
            shown += [r.tolist() for r in results]
    return shown


@pytest.mark.parametrize("tier", [tiers.PIECES, tiers.WHOLE, tiers.MIXED])
def test_as_pytorch(tier: str) -> None:
    before, tiers.MODE[0] = tiers.MODE[0], tier
    try:
        wrong = [seed for seed in range(30) if program(flambeau, seed) != program(torch, seed)]
    finally:
        tiers.MODE[0] = before
    assert not wrong
