"""A detached tensor that becomes a leaf has a family of its own: the tensor that it shares memory with is no view of it, on a known path neither."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch")


def _program(m: Any, looked: bool, found: bool, doubled: bool, observed: bool, write: str) -> list[Any]:
    leaf = m.arange(5.0).requires_grad_()
    x = leaf * 1.5
    if looked:
        x.detach()[0].item()
    d = x.detach()
    d.requires_grad_()
    other = d.argmax(0) if found else None
    twice = (d * 3).sum() if doubled else None
    if observed and (found or doubled):
        (twice if doubled else other).item()
    if write == "index":
        x[m.tensor([1, 0])] = 0.5
    elif write == "view":
        x[1:3].mul_(2)
    else:
        x.add_(1)
    x.sum().backward()
    answer = [x.tolist(), d.tolist(), leaf.grad.tolist(), x.requires_grad, x.is_leaf, d.is_leaf]
    if doubled:
        twice.backward()
        answer.append(d.grad.tolist())
    return answer


@pytest.mark.parametrize("write", ["index", "view", "whole"])
def test_the_owner_of_the_memory_is_written(write: str) -> None:
    for flags in itertools.product((False, True), repeat=4):
        expected = _program(torch, *flags, write)
        for _ in range(8):
            assert _program(flambeau, *flags, write) == expected, flags
