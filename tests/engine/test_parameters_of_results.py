"""Parameters and subclasses made of tensors that have a history: it never becomes theirs, whatever is written to either, as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import flambeau as ft

MADE: dict[str, Callable[[Any, Any], Any]] = {
    "frozen": lambda w, o: w.nn.Parameter(o, requires_grad=False), "trained": lambda w, o: w.nn.Parameter(o),
    "of detach": lambda w, o: w.nn.Parameter(o.detach(), requires_grad=False), "buffer": lambda w, o: w.nn.Buffer(o.detach()),
    "subclass": lambda w, o: w.Tensor._make_subclass(w.Tensor, o.detach(), False),
}  # fmt: skip
BASES: dict[str, Callable[[Any, Any], Any]] = {
    "result": lambda w, a: a * 2, "view": lambda w, a: (a * 2)[:], "sum": lambda w, a: w.zeros(2) - a, "leaf": lambda w, a: w.zeros(2, requires_grad=True),
}  # fmt: skip
WRITES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "plain": lambda p, o, a: o.add_(1), "gradient": lambda p, o, a: o.mul_(a), "data": lambda p, o, a: p.data.mul_(a), "itself": lambda p, o, a: p.mul_(a),
    "other data": lambda p, o, a: setattr(p, "data", a * 3), "data in place": lambda p, o, a: p.__setattr__("data", p.data.__isub__(a)),
}  # fmt: skip


def _outcome(w: Any, made: str, base: str, write: str) -> list[Any]:
    a = w.ones(2, requires_grad=True)
    o = BASES[base](w, a)
    p = MADE[made](w, o)
    error = False
    try:
        WRITES[write](p, o, a)
    except RuntimeError:
        error = True
    return [error, p.requires_grad, p.is_leaf, o.requires_grad, o.is_leaf, p.tolist(), o.tolist()]


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("made", MADE)
def test_as_pytorch(made: str, base: str, write: str) -> None:
    assert _outcome(ft, made, base, write) == _outcome(torch, made, base, write)
