"""A write that is refused changes nothing: what was computed before has the gradients that it has without the write."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress

import pytest

import flambeau as torch
from flambeau import Tensor

Write = Callable[[Tensor], object]
Wrong = Callable[[Tensor, Tensor, Tensor], object]

WRITES: dict[str, Write] = {
    "nothing": lambda v: None,
    "no elements": lambda v: v.__setitem__(slice(2, None), 0.5),
    "one element": lambda v: v.__setitem__(slice(1, None), 0.5),
    "all": lambda v: v.mul_(2),
    "a view": lambda v: v[:1].mul_(2),
}
# Of what was computed (v), a detached view of it (d) and a leaf of another shape (b, 2 x 1).
WRONG: dict[str, Wrong] = {
    "copied": lambda v, d, b: d.copy_(b),
    "multiplied": lambda v, d, b: d.mul_(b),
    "added": lambda v, d, b: d.add_(b.expand(2, 5)),
    "assigned": lambda v, d, b: d.__setitem__(slice(None), b.expand(2, 5)),
    "no place": lambda v, d, b: d.__setitem__(5, b[0]),
    "cast": lambda v, d, b: d.add_(b[:, 0].to(torch.complex64)),
    "of the result": lambda v, d, b: v.copy_(b),
    "out": lambda v, d, b: torch.mul(b, b, out=d),
    "view": lambda v, d, b: d.view(7).copy_(b),
}
LATER = {"sum": lambda v: v.sum(), "double": lambda v: (v.to(torch.float64) * 0.5).sin().sum(), "views": lambda v: v[0] * 3 + v[1]}


def _gradient(write: str, later: str, wrong: str | None) -> float:
    a, b = torch.tensor(0.5, requires_grad=True), torch.tensor([[1.0], [2.0]], requires_grad=True)
    v = torch.stack([a, a])
    WRITES[write](v)
    d = v.detach()
    if wrong is not None:
        with suppress(RuntimeError, IndexError):
            WRONG[wrong](v, d, b)
            raise AssertionError(f"{wrong} was taken")
    LATER[later](v).backward()
    assert a.grad is not None, (write, later, wrong)
    return float(a.grad.item())


@pytest.mark.parametrize("wrong", WRONG)
def test_a_refused_write_keeps_gradients(wrong: str, each_tier: str) -> None:
    for write, later in itertools.product(WRITES, LATER):
        without = _gradient(write, later, None)
        for _ in range(3):  # learned after the first times
            assert _gradient(write, later, wrong) == without, (write, later)


@pytest.mark.parametrize("view", [False, True])
@pytest.mark.parametrize("wrong", ["shape", "more dims", "dtype", "leaf"])
def test_a_refused_write_keeps_hooks(view: bool, wrong: str) -> None:
    """Before a write gradients are led past the hooks of a view: not before a write that is refused."""
    operand = {"shape": torch.ones(2), "more dims": torch.ones(4, 1, 3, 3), "dtype": torch.ones(3, dtype=torch.complex64), "leaf": torch.ones(5)}[wrong]
    for _ in range(3):
        leaf = torch.linspace(-1, 1, 27).reshape(3, 3, 3).requires_grad_()
        v = (leaf * 1.5).narrow(0, 1, 1) if view else leaf * 1.5
        v.register_hook(lambda g: g * 0.5)
        with pytest.raises(RuntimeError):
            v.mul_(operand.requires_grad_(wrong == "leaf"))
        v.sum().backward()
        assert leaf.grad is not None and leaf.grad[1].tolist() == [[0.75] * 3] * 3
