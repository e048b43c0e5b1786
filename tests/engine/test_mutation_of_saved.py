"""torch.autograd.graph.allow_mutation_on_saved_tensors: programs that write over what gradients need, beside PyTorch; outside of the block they are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")


def _leaf_in_no_grad(m: Any, a: Any) -> Any:
    out = (a * a.exp()).sum()
    with m.no_grad():
        a.mul_(3)
    return out


def _later_trace(m: Any, a: Any) -> Any:
    b = a.clone()
    out = (b**2).sum()
    float(out)
    b.sin_()
    float(b.sum())
    b.mul_(2)
    return out + (b * b).sum()


def _base(m: Any, a: Any) -> Any:
    b = a.clone()
    c = b[:2]
    out = (c**3).sum() + b.sum()
    b.sin_()
    return out + c.exp().sum()


def _view(m: Any, a: Any) -> Any:
    b = a.clone()
    out = (b**3).sum()
    b[:].mul_(2)
    return out + b.sum()


def _many(m: Any, a: Any) -> Any:
    b = a.clone()
    parts = []
    for _ in range(4):
        parts.append((b * b).sum())
        b.cos_()
    return sum(parts)


def _custom(m: Any, a: Any) -> Any:
    class Square(m.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return 2 * g * ctx.saved_tensors[0]

    b = a.clone()
    out = Square.apply(b)
    b.mul_(5)
    return out.sum() + b.sum()


def _layer(m: Any, a: Any) -> Any:
    x = a.clone().reshape(1, -1)
    weight = m.ones(3, x.shape[1], dtype=m.float64, requires_grad=True)
    y = m.nn.functional.linear(x, weight)
    x.zero_()
    return (y * y).sum() + x.sum()


PROGRAMS: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {
    "simple": (lambda m, a: [b := a.clone(), (b**2).sum(), b.sin_()][1], True),
    "leaf in no_grad": (_leaf_in_no_grad, True), "later trace": (_later_trace, True),
    "base": (_base, True), "view": (_view, True), "many": (_many, True), "custom": (_custom, True), "layer": (_layer, True),
    "output": (lambda m, a: [y := a.exp(), y.sum(), y.mul_(2)][1], True), "nothing kept": (lambda m, a: (a + 1).mul_(2).sum(), False),
    "out": (lambda m, a: [b := a.clone(), (b**2).sum(), m.add(a.detach(), 1, out=b.detach())][1], True),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    program, refused = PROGRAMS[name]
    for seen in (False, True):
        gradients = []
        for m in (torch, ft):
            for repeat in range(3):
                with m.autograd.graph.allow_mutation_on_saved_tensors():
                    a = m.arange(1.0, 4.0, dtype=m.float64).requires_grad_()
                    out = program(m, a)
                    if seen:
                        out.tolist()
                    out.backward()
                gradients.append(a.grad.tolist())
                if repeat and refused:  # outside of the block the same program is refused, before and after
                    a = m.arange(1.0, 4.0, dtype=m.float64).requires_grad_()
                    with pytest.raises(RuntimeError, match="has been modified by an inplace operation"):
                        program(m, a).backward()
        for found in gradients[1:]:
            assert found == pytest.approx(gradients[0], rel=1e-12), (name, seen)


def test_outside_and_nested() -> None:
    for m in (torch, ft):
        with m.autograd.graph.allow_mutation_on_saved_tensors():
            a = m.ones(3, requires_grad=True)
            out = (a.exp() * 2).sum()
            with pytest.raises(RuntimeError, match="contexts cannot be nested"), m.autograd.graph.allow_mutation_on_saved_tensors():
                pass
        if m is ft:  # PyTorch's block is off after the error
            with pytest.raises(AssertionError, match="Trying to backward outside of the 'allow_mutation_on_saved_tensors' context"):
                out.backward()
