"""Writes to the real and imaginary parts of complex results: values and gradients are PyTorch's, whichever view of the memory is known first."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import numpy as np
import pytest

import flambeau as ft

torch = pytest.importorskip("torch")

PARTS = {"real": lambda m, x: x.real, "imag": lambda m, x: x.imag, "pairs": lambda m, x: m.view_as_real(x), "row": lambda m, x: m.view_as_real(x)[1:]}
WRITES = {
    "fill": lambda x, y: y.fill_(0.5), "mul": lambda x, y: y.mul_(3.0), "square": lambda x, y: y.mul_(y.detach().clone()),
    "add": lambda x, y: y.add_(x.real.sum()),
}  # fmt: skip


def run(m: Any, part: str, write: str, look: int, used: bool, again: bool) -> list[Any]:
    """The leaf's gradient, the complex tensor, and its part. `look`: something else is looked at before the write, or before and after."""
    leaf = m.tensor([1 + 2j, 3 - 1j], requires_grad=True)
    x = m.cat([leaf * 1, m.tensor([2.0 + 0j])])
    y = PARTS[part](m, x)
    if look:
        m.ones(2).sum().item()
    if used:
        (y * 2).sum().item()
    WRITES[write](x, y)
    if look == 2:
        m.ones(2).sum().item()
    if again:
        x.mul_(2j)
    (y.sum() + m.view_as_real(x * x).sum()).backward()
    return [np.asarray(t.detach().tolist()) for t in (leaf.grad, x, y)]


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("part", PARTS)
def test_writes_to_parts(part: str, write: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["flambeau.compiler.pipeline"], "_CHECK", True)  # graphs of such writes are legal, too
    for look, used, again in itertools.product((0, 1, 2), (False, True), (False, True)):
        for ours, theirs in zip(run(ft, part, write, look, used, again), run(torch, part, write, look, used, again), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, err_msg=f"{look, used, again}")
