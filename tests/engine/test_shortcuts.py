"""Whole passes known by one look-up (a backward pass, an optimizer's writes) give what the long way gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as fb

torch: Any = pytest.importorskip("torch")


def run(m: Any, vary: Callable[[Any, int, Any, Any], None]) -> list[list[float]]:
    """Six steps of a small loop; `vary` changes what it likes before each backward pass."""
    a = m.tensor([0.5, -1.0, 2.0], requires_grad=True)
    b = m.tensor([1.5, 0.25, -0.75], requires_grad=True)
    seen: list[list[float]] = []
    for step in range(6):
        loss = (a * b + a).sin().sum()
        vary(m, step, a, b)
        loss.backward(retain_graph=step == 4)
        if step == 4:
            loss.backward()
        seen.append(a.grad.tolist() + b.grad.tolist())
        if step % 2:
            a.grad = b.grad = None
    return seen


def nothing(m: Any, step: int, a: Any, b: Any) -> None:
    pass


def a_hook(m: Any, step: int, a: Any, b: Any) -> None:
    if step == 2:
        a.register_hook(lambda g: g * 3)


def _double(t: Any) -> None:
    t.grad.mul_(2)


def a_hook_after(m: Any, step: int, a: Any, b: Any) -> None:
    if step == 3:
        b.register_post_accumulate_grad_hook(_double)


def one_gradient_gone(m: Any, step: int, a: Any, b: Any) -> None:
    a.grad = None


@pytest.mark.parametrize("vary", [nothing, a_hook, a_hook_after, one_gradient_gone])
def test_backward_again_and_again(vary: Callable[[Any, int, Any, Any], None]) -> None:
    for mine, theirs in zip(run(fb, vary), run(torch, vary), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-5)


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_views_of_parameters_follow_the_optimizers_writes(name: str) -> None:
    results = []
    for m in (fb, torch):
        p = m.nn.Parameter(m.tensor([[1.0, 2.0], [3.0, 4.0]]))
        q = m.nn.Parameter(m.tensor([0.5]))
        optimizer = getattr(m.optim, name)([p, q], lr=0.1)
        seen = []
        for _ in range(5):
            optimizer.zero_grad()
            row, held = p.detach()[0], p.detach().clone()
            ((p * q).pow(2).sum()).backward()
            optimizer.step()
            seen += [row.tolist(), held.tolist(), p.tolist(), q.tolist()]
        results.append(seen)
    for mine, theirs in zip(*results, strict=True):
        assert fb.tensor(mine).flatten().tolist() == pytest.approx(fb.tensor(theirs).flatten().tolist(), rel=1e-5)


def test_shared_storage_among_the_targets_takes_the_long_way() -> None:
    from flambeau.trace.mutation import assign_all

    base = fb.zeros(4)
    for step in range(3):
        with fb.no_grad():
            assign_all([base[:2], base[1:3]], [fb.full((2,), step + 1.0), fb.full((2,), step + 2.0)])
        assert base.tolist() == [step + 1.0, step + 2.0, step + 2.0, 0.0]
