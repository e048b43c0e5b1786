"""Gradients in `.grad` have memory of their own: writes to one reach neither what hooks, custom functions and `autograd.grad` have handed out, nor another
leaf's gradient, nor the other way round. PyTorch is the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch")


def same_for_both(m: Any) -> Any:
    class Same(m.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            return a + b

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g, g

    return Same.apply


def leaves(m: Any) -> tuple[Any, Any]:
    return m.arange(3.0, requires_grad=True), (m.arange(3.0) + 1).requires_grad_()


def hook_keeps(m: Any, write: Callable[[Any], Any]) -> list[Any]:
    x, y = leaves(m)
    seen: list[Any] = []
    x.register_hook(lambda g: seen.append(g))
    (x * y).sum().backward()
    write(seen[0])
    return [x.grad, y.grad]


def hook_keeps_and_grad_changes(m: Any, write: Callable[[Any], Any]) -> list[Any]:
    x, y = leaves(m)
    seen: list[Any] = []
    x.register_hook(lambda g: seen.append(g))
    (x * y).sum().backward()
    write(x.grad)
    return [x.grad, y.grad, seen[0]]


def one_for_two(m: Any, write: Callable[[Any], Any]) -> list[Any]:
    x, y = leaves(m)
    given = m.ones(3)
    x.register_hook(lambda g: given)
    y.register_hook(lambda g: given)
    (x * y).sum().backward()
    write(x.grad)
    return [x.grad, y.grad, given]


def custom_of_an_expanded(m: Any, write: Callable[[Any], Any]) -> list[Any]:
    x, y = leaves(m)
    same_for_both(m)(x, y).sum().backward()
    write(x.grad)
    return [x.grad, y.grad, list(x.grad.stride())]


def custom_of_a_given(m: Any, write: Callable[[Any], Any]) -> list[Any]:
    x, y = leaves(m)
    given = m.tensor([1.0, 2.0, 3.0])
    same_for_both(m)(x, y).backward(given)
    write(x.grad)
    return [x.grad, y.grad, given]


def retained(m: Any, write: Callable[[Any], Any]) -> list[Any]:
    x, y = leaves(m)
    v = x * y
    v.retain_grad()
    (found,) = m.autograd.grad((v * v).sum(), [v], retain_graph=True)
    write(found)
    return [found, v.grad]


def retained_along_a_chain(m: Any, write: Callable[[Any], Any]) -> list[Any]:
    x, y = leaves(m)
    a = x * y
    b = a * 1
    c = b.view(3)
    for t in (a, b, c):
        t.retain_grad()
    (c * y).sum().backward()
    write(b.grad)
    return [a.grad, b.grad, c.grad, x.grad]


def by_inputs(m: Any, write: Callable[[Any], Any]) -> list[Any]:
    x, y = leaves(m)
    v = x * y
    v.sum().backward(inputs=[x, y], retain_graph=True)
    alias = x.grad
    v.sum().backward(inputs=[x, y])
    write(alias)
    return [x.grad, y.grad, alias]


SCRIPTS = (hook_keeps, hook_keeps_and_grad_changes, one_for_two, custom_of_an_expanded, custom_of_a_given, retained, retained_along_a_chain, by_inputs)
WRITES: dict[str, Callable[[Any], Any]] = {
    "mul": lambda g: g.mul_(5), "part": lambda g: g[1:].fill_(7.0), "zero": lambda g: g.zero_(), "unsqueeze": lambda g: g.unsqueeze_(0),
}  # fmt: skip


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("script", SCRIPTS)
def test_gradients_of_their_own(script: Callable[..., list[Any]], write: str) -> None:
    for _ in range(3):  # the last ones on a path that is known
        ours, theirs = ([t if isinstance(t, list) else t.tolist() for t in script(m, WRITES[write])] for m in (flambeau, torch))
        assert ours == theirs
