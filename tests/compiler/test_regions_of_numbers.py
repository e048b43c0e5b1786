"""Writes to tensors without dims: regions of one element."""

from __future__ import annotations

import flambeau as torch
from flambeau.compiler.regions import are_apart


def test_two_regions_without_dims() -> None:
    assert not are_apart(((), (), 0), ((), (), 0))
    assert are_apart(((), (), 0), ((), (), 1))


def test_two_writes_to_one_number() -> None:
    x = torch.zeros(3)
    x[1].copy_(torch.tensor(2.0))
    x[1].add_(1.0)
    x[2].copy_(torch.tensor(4.0))
    assert x.tolist() == [0.0, 3.0, 4.0]
