"""`x.view(dtype)`: the same memory, no part of x's history, whichever dtype, and written to like a detached tensor. PyTorch is the reference."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch")


def run(m: Any, dtype: str, made: str, look: bool) -> list[Any]:
    """What can be asked of the view, and all values after a write through it, to the tensor, and with gradients through it."""
    x = m.ones(4, requires_grad=made != "plain")
    y = {"leaf": lambda: x, "plain": lambda: x, "computed": lambda: x * 2, "data": lambda: x.data, "slice": lambda: (x * 2)[:2]}[made]()
    if look:
        y.sum().item()
    v = y.view(getattr(m, dtype))
    seen: list[Any] = [v.requires_grad, v.is_leaf, v._is_view()]
    v[0] = 3
    seen += [v.tolist(), y.tolist(), x.tolist()]
    if y.is_leaf and not y.requires_grad:
        y.mul_(0.5)
        seen += [v.tolist(), y.tolist()]
    if v.dtype == m.float32:
        w = m.full((1,), 2.0, requires_grad=True)
        v.mul_(w)
        v.sum().backward()
        seen += [v.requires_grad, y.requires_grad, y.tolist(), w.grad.tolist()]
    v.detach_() if v.dtype != m.float32 else None
    return seen


@pytest.mark.parametrize("made", ["leaf", "plain", "computed", "data", "slice"])
@pytest.mark.parametrize("dtype", ["float32", "int32", "float16", "int16", "complex64", "uint8"])
def test_views_as_dtypes(dtype: str, made: str) -> None:
    for look in (False, True):
        for _ in range(3):
            assert run(flambeau, dtype, made, look) == run(torch, dtype, made, look)
