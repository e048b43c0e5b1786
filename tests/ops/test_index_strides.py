"""Strides of x[index], for permuted tensors, sizes of 1 and indices of any layout, are PyTorch's."""

from __future__ import annotations

import random
from typing import Any

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")


def strides(m: Any, seed: int) -> Any:
    """Of a random tensor at one index tensor in one or two of its dims."""
    r = random.Random(seed)
    n = r.randint(1, 4)
    order = r.sample(range(n), n)
    x = m.zeros([r.choice((1, 1, 2, 3, 4)) for _ in range(n)]).permute(order)
    indexed = r.sample(range(n), r.randint(1, min(2, n)))
    index = m.zeros(r.choice(((), (2,), (1,), (1, 2), (2, 1), (3, 2))), dtype=m.int64)
    if r.random() < 0.3 and index.ndim == 2:
        index = index.mT
    return tuple(x[tuple([index if d in indexed else slice(None) for d in range(n)])].stride())


def test_random_ones() -> None:
    assert not [seed for seed in range(500) if strides(ft, seed) != strides(torch, seed)]
