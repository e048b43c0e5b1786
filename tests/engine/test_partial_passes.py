"""Passes that ask for some gradients only visit what leads there: nothing else is freed, and no hook or custom function elsewhere is called."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as ft
from flambeau.trace import tiers

torch = pytest.importorskip("torch")

UNARY: list[Callable[[Any], Any]] = [lambda a: a.exp(), lambda a: a * 2, lambda a: a.tanh(), lambda a: a + 1]


def swapped(m: Any) -> Callable[[Any, Any], Any]:
    """a * b as a custom function."""

    class F(m.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            ctx.save_for_backward(a, b)
            return a * b

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            a, b = ctx.saved_tensors
            return g * b, g * a

    return F.apply  # type: ignore[no-any-return]


def program(m: Any, seed: int) -> list[Any]:
    """A random graph, then several passes over parts of it: what each gives, or which exception."""
    draw = random.Random(seed)
    custom = swapped(m)
    tensors = [m.tensor([0.1 * (i + 1), 0.3], dtype=m.float64, requires_grad=True) for i in range(3)]
    leaves, shown, calls = list(tensors), [], []
    looks, with_custom = draw.random() < 0.5, draw.random() < 0.4
    for i in range(draw.randint(3, 9)):
        a, b = draw.choice(tensors), draw.choice(tensors)
        kind = draw.randrange(3)
        made = draw.choice(UNARY)(a) if kind == 0 else a * b if kind == 1 or not with_custom else custom(a, b)
        if draw.random() < 0.2:
            made.register_hook(lambda g, i=i: calls.append(i))
        if looks and draw.random() < 0.4:
            made.sum().item()
        tensors.append(made)
    for _ in range(3):
        root, retain = draw.choice(tensors[3:]).sum(), draw.random() < 0.3
        targets = draw.sample(tensors, draw.randint(1, 2))
        how = draw.randrange(3)
        calls.clear()
        try:
            if how == 0:
                found = [None if g is None else g.tolist() for g in m.autograd.grad(root, targets, retain_graph=retain, allow_unused=True)]
            else:
                root.backward(retain_graph=retain, **({"inputs": [t for t in targets if t.is_leaf] or leaves[:1]} if how == 1 else {}))
                found = [None if t.grad is None else t.grad.tolist() for t in leaves]
            shown.append((found, sorted(calls)))
        except RuntimeError as error:
            shown.append("freed" if "second time" in str(error) else str(error)[:40])
            break
    return shown


def same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, (list, tuple)) and isinstance(theirs, (list, tuple)):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(ours, float) and isinstance(theirs, float):
        return abs(ours - theirs) <= 1e-9 * max(1.0, abs(theirs))
    return bool(ours == theirs)


@pytest.mark.parametrize("first", range(0, 80, 20))
def test_random_graphs(first: int) -> None:
    wrong = []
    for seed in range(first, first + 20):
        ours, theirs = program(ft, seed), program(torch, seed)
        if not same(ours, theirs):
            wrong.append(f"{seed}: {ours}, PyTorch {theirs}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("observed", [False, True])
@pytest.mark.parametrize("how", ["grad", "inputs"])
def test_what_is_not_asked_for_stays(how: str, observed: bool) -> None:
    for m in (ft, torch):
        x, w, calls = m.tensor([0.1, 0.2], requires_grad=True), m.tensor([3.0, 4.0], requires_grad=True), []
        a = x.exp()
        a.register_hook(lambda g: calls.append(1))  # noqa: B023
        if observed:
            a.sum().item()
        y = (a * w).sum()
        if how == "grad":
            m.autograd.grad(y, w)
        else:
            y.backward(inputs=[w])
        assert not calls and x.grad is None
        a.sum().backward()
        assert x.grad.tolist() == a.tolist()


def test_a_pass_inside_of_a_custom_backward() -> None:
    def loss(m: Any) -> Any:
        class Inner(m.autograd.Function):  # type: ignore[misc,name-defined]
            @staticmethod
            def forward(ctx: Any, a: Any, b: Any) -> Any:
                ctx.save_for_backward(a, b)
                return a * b

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                a, b = ctx.saved_tensors
                with m.enable_grad():  # as linear operators do: the gradient by a pass over detached arguments, beside those with a history
                    alone = b.detach().requires_grad_()
                    (found,) = m.autograd.grad((g * a * alone).sum(), alone)
                return g * b, found

        x = m.tensor([0.5, 0.7], dtype=m.float64, requires_grad=True)
        h = x.exp()
        h.sum().item()
        Inner.apply(h, x * 3).sum().backward()
        return x.grad.tolist()

    for _ in range(4):
        assert same(loss(ft), loss(torch))


def test_a_long_history() -> None:
    w, x = ft.tensor([1.0], requires_grad=True), ft.tensor([1.0], requires_grad=True)
    h = x * 1
    for _ in range(300):
        h = h * w
        h.item()
    (g,) = ft.autograd.grad(h.sum(), x)
    assert g.item() == 1.0 and w.grad is None


@pytest.mark.parametrize("tier", [tiers.PIECES, tiers.MIXED, tiers.WHOLE])
@pytest.mark.parametrize(("first", "looked", "of_leaf"), list(itertools.product((True, False), repeat=3)))
def test_where_targets_are_is_asked_after_the_roots(tier: int, first: bool, looked: bool, of_leaf: bool) -> None:
    """A root may end the piece that it is in, and with it the places that targets had: a gradient lost the share of the other root."""

    def gradient(m: Any) -> Any:
        leaf = m.tensor([1.0, 2.0, 3.0], requires_grad=True)
        target = leaf if of_leaf else leaf * 2
        if not of_leaf:
            target.tolist()
        products, total = target * 3, target.sum()
        if looked:
            products.tolist()
        roots, gradients = [total, products], [None, m.tensor([1.0, 10.0, 100.0])]
        if not first:
            roots, gradients = roots[::-1], gradients[::-1]
        (found,) = m.autograd.grad(roots, [target], gradients)
        return found.tolist()

    before, tiers.MODE[0] = tiers.MODE[0], tier
    try:
        for _ in range(6):
            assert gradient(ft) == gradient(torch)
    finally:
        tiers.MODE[0] = before
