"""Hooks on tensors whose memory was written through a view: they see all of the gradient, whatever was looked at or shared in between."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import flambeau as ft

torch = pytest.importorskip("torch")


def gradient(m: Any, look: bool, write: str, share: bool, early: bool, before: bool, after: bool) -> tuple[float, list[float]]:
    """The leaf's gradient, and what the hook has seen."""
    leaf = m.tensor(-1.0, requires_grad=True)
    x = leaf.sum()
    if look:
        (m.ones(()) * 2).item()
    if write == "view":
        x.transpose(0, -1).copy_(x.clone())
    elif write == "itself":
        x.mul_(2)
    elif write == "view of a view":
        x.view(1).view(()).mul_(x.clone())
    kept = x.detach().numpy() if share else None
    seen: list[float] = []

    def hook(g: Any) -> Any:
        seen.append(round(float(g), 4))
        return g * 0.5

    if early:
        x.register_hook(hook)
    y = x.sin() * 2
    if before:
        y.item()
    if not early:
        x.register_hook(hook)
    if after:
        x.item()
    ((x.to(m.float64) * 0.5).sin() + (y.to(m.float64) * 0.5).sin()).backward()
    assert kept is None or kept.shape == ()
    return leaf.grad.item(), seen


@pytest.mark.parametrize("write", ("", "view", "itself", "view of a view"))
def test_hooks_after_writes(write: str) -> None:
    for look, share, early, before, after in itertools.product((False, True), repeat=5):
        (ours, seen), (theirs, wanted) = (gradient(m, look, write, share, early, before, after) for m in (ft, torch))
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, err_msg=f"{look, share, early, before, after}")
        np.testing.assert_allclose(seen, wanted, rtol=1e-3)


# -- random programs of writes, hooks, kept gradients and reads on a tensor and its views -----------------------------------------------------

VIEWS: tuple[Callable[[Any], Any], ...] = (
    lambda t: t[:], lambda t: t[1:], lambda t: t[0], lambda t: t.reshape(-1), lambda t: t.mT, lambda t: t[..., ::2], lambda t: t.unsqueeze(0),
    lambda t: t.view_as(t), lambda t: t[..., -1], lambda t: t.detach(), lambda t: t.transpose(0, -1),
)  # fmt: skip
WRITES: tuple[Callable[[Any, Any], Any], ...] = (
    lambda t, w: t.mul_(2), lambda t, w: t.mul_(w), lambda t, w: t.copy_(t.clone() * w), lambda t, w: t.add_(1), lambda t, w: t.zero_(),
    lambda t, w: t.__setitem__(0, w), lambda t, w: t.sin_(), lambda t, w: t.__setitem__(..., w * 3),
)  # fmt: skip
ACTIONS = ("view", "view", "write", "write", "write", "hook", "hook", "retain", "use", "use", "item", "other", "no_grad", "gradients", "backward")


Step = tuple[str, int, int]


def steps_of(seed: int) -> list[Step]:
    """The base (one of four) and what is done: (action, tensor, choice), taken modulo what there is."""
    g = np.random.default_rng(seed)
    return [(str(g.choice(ACTIONS)), int(g.integers(1000)), int(g.integers(1000))) for _ in range(int(g.integers(5, 15)))]


class Watched:
    """One run: tensors that share memory (and some detached ones), and what hooks and kept gradients have seen."""

    def __init__(self, m: Any) -> None:
        self.m = m
        self.leaf, self.w = m.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], dtype=m.float64, requires_grad=True), m.tensor(1.5, dtype=m.float64)
        self.w.requires_grad_()
        self.tensors: list[Any] = []
        self.uses: list[Any] = []
        self.seen: dict[int, list[list[float]]] = {}
        self.events: list[Any] = []

    def run(self, steps: Sequence[Step]) -> list[Any]:
        base = steps[0][2] % 4
        x = self.leaf
        self.tensors.append(x * 1 if base == 0 else x.mT * 1 if base == 1 else (x * 1).mT if base == 2 else self.m.zeros(2, 3, dtype=self.m.float64))
        for number, (action, which, choice) in enumerate(steps[1:]):
            try:
                self.act(action, self.tensors[which % len(self.tensors)], choice, number)
            except (RuntimeError, IndexError) as error:
                self.events.append((action, type(error).__name__))
                if action in ("backward", "gradients"):  # what else it has reached by then depends on the order
                    return self.events
            if self.m.__name__ == "torch":
                for t in self.tensors:
                    _ = t.grad_fn  # a view knows of a history that its base got through another view only once it is asked (docs/differences.md)
        with suppress(RuntimeError):
            self.backward()
        return [*self.events, *[(number, sorted(seen)) for number, seen in sorted(self.seen.items())]]

    def act(self, action: str, t: Any, choice: int, number: int) -> None:
        if action == "view":
            self.tensors.append(VIEWS[choice % len(VIEWS)](t))
        elif action == "write":
            WRITES[choice % len(WRITES)](t, self.w)
        elif action == "hook" and t.requires_grad:
            seen = self.seen.setdefault(number, [])
            factor = (None, 0.5, 3.0)[choice % 3]

            def hook(g: Any) -> Any:
                seen.append(rounded(g))
                return None if factor is None else g * factor

            t.register_hook(hook)
        elif action == "retain" and t.requires_grad:
            t.retain_grad()
        elif action == "use":
            self.uses.append((t * t).sum() * (number + 1))
        elif action == "item":
            self.events.append(rounded(t))
        elif action == "other":
            (self.m.ones(()) * 2).item()
        elif action == "no_grad":
            with self.m.no_grad():
                t.mul_(0.5)
        elif action == "gradients" and self.loss().requires_grad:
            wanted = [x for x in (*self.tensors, self.leaf, self.w) if x.requires_grad]
            found = self.m.autograd.grad(self.loss(), wanted, allow_unused=True, retain_graph=True)
            self.events.append([None if g is None else rounded(g) for g in found])
        elif action == "backward":
            self.backward()

    def loss(self) -> Any:
        return sum([*self.uses, *[(t * (i + 1)).sum() for i, t in enumerate(self.tensors)]])

    def backward(self) -> None:
        loss = self.loss()
        if loss.requires_grad:
            loss.backward(retain_graph=True)
        for t in (*self.tensors, self.leaf, self.w):
            self.events.append(rounded(t))
            if t.requires_grad and (t.is_leaf or t.retains_grad):
                self.events.append(None if t.grad is None else rounded(t.grad))


def described(steps: Sequence[Step]) -> str:
    """The program in words."""
    count, lines = 1, [f"base {steps[0][2] % 4}"]
    for number, (action, which, choice) in enumerate(steps[1:]):
        name, detail = f"t{which % count}", ""
        if action in ("view", "write"):
            table: Any = VIEWS if action == "view" else WRITES
            detail = f" {choice % len(table)}"
            count += action == "view"
        lines.append(f"{number}: {action}{detail} of {name}" + (f" factor {choice % 3}" if action == "hook" else ""))
    return "; ".join(lines)


def rounded(t: Any) -> list[float]:
    """Its numbers, six digits of them."""
    return [float(f"{x:.6g}") + 0.0 for x in t.detach().reshape(-1).tolist()]


def differs(steps: list[Step]) -> str | None:
    """What differs between the libraries, or None."""
    theirs, ours = (Watched(m).run(steps) for m in (torch, ft))
    if repr(ours) == repr(theirs):
        return None
    pairs = [(x, y) for x, y in itertools.zip_longest(ours, theirs) if repr(x) != repr(y)]
    return "\n".join([described(steps), *[f"  {x}\n  PyTorch {y}" for x, y in pairs[:3]]])


def shortened(steps: list[Step]) -> str | None:
    """What differs in the shortest program that is left when steps are taken away one by one."""
    i = 1
    while i < len(steps):
        shorter = [*steps[:i], *steps[i + 1 :]]
        steps, i = (shorter, 1) if differs(shorter) else (steps, i + 1)
    return differs(steps)


@pytest.mark.parametrize("start", range(0, 200, 50))
def test_random_hooks_and_writes(start: int) -> None:
    assert not [shortened(steps_of(seed)) for seed in range(start, start + 50) if differs(steps_of(seed))]
