"""Hooks on tensors whose memory was written through a view: they see all of the gradient, whatever was looked at or shared in between."""

from __future__ import annotations

import gc
import itertools
import weakref
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


def detached_part(m: Any, where: Any, row: bool, kind: str, look: bool) -> list[Any]:
    """A detached view of a part of the memory is written, watched, and then the memory is written through another family of views."""
    x = m.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
    w = m.tensor(3.0, requires_grad=True)
    base = x * 1
    view = base[where] if row else base[..., where]
    own = view.detach()
    own[0] = w * 2
    if look:
        own.sum().item()
    seen: list[Any] = []
    if kind == "hook":
        own.register_hook(lambda g: (seen.append(g.tolist()), g * 0.5)[1])
    elif kind == "kept":
        own.retain_grad()
    view[0] = w
    result = (own * own).sum() + base.sum()
    if kind == "asked":
        return [g.tolist() for g in m.autograd.grad(result, (own, x, w))]
    result.backward()
    return [seen, x.grad.tolist(), w.grad.tolist(), own.grad.tolist() if kind == "kept" else None]


@pytest.mark.parametrize("kind", ("hook", "kept", "asked"))
def test_detached_parts_whose_place_is_a_number(kind: str) -> None:
    for where, row, look in itertools.product((0, 1, -1, slice(1, None)), (False, True), (False, True)):
        ours, theirs = (detached_part(m, where, row, kind, look) for m in (ft, torch))
        assert ours == theirs, (where, row, look)


def _without_gradients(x: Any, m: Any) -> None:
    with m.no_grad():
        x.copy_(x)


COPIES_OF_ITSELF: dict[str, Callable[[Any, Any], Any]] = {
    "itself": lambda x, m: x.copy_(x), "all": lambda x, m: x.__setitem__(..., x), "row": lambda x, m: x.__setitem__(0, x[0]),
    "view": lambda x, m: (lambda v: v.copy_(v))(x.t()), "two views": lambda x, m: x.t().copy_(x.t()), "alias": lambda x, m: x.copy_(x.view_as(x)),
    "part": lambda x, m: (lambda v: v.copy_(v))(x[:, 1:]), "from detached": lambda x, m: x.copy_(x.detach()),
    "into detached": lambda x, m: x.detach().copy_(x), "no_grad": _without_gradients, "data": lambda x, m: (lambda d: d.copy_(d))(x.data),
}  # fmt: skip


def copied_to_itself(m: Any, form: str, early: bool, used: str, look: bool, kind: str) -> list[Any]:
    """What is seen of a tensor that is copied to itself: versions, gradients before and after the copy, or the error of a gradient that needs the old one."""
    leaf = m.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    x = leaf * 1
    first = {"not": x.new_zeros(()), "linearly": x.sum() * 2, "by value": (x * x).sum()}[used]
    if look:
        x.sum().item()
    seen: list[Any] = []
    if early:
        x.register_hook(lambda g: seen.append(("before", g.tolist())))
    version = x._version
    COPIES_OF_ITSELF[form](x, m)
    events: list[Any] = [x._version - version]
    if kind == "hook":
        x.register_hook(lambda g: (seen.append(("after", g.tolist())), g * 2)[1])
    else:
        x.retain_grad()
    try:
        ((x * x).sum() + first).backward()
    except RuntimeError as error:
        return [*events, "modified by an inplace operation" in str(error)]
    return [*events, seen, leaf.grad.tolist(), x.grad.tolist() if kind == "kept" else None]


@pytest.mark.parametrize("form", COPIES_OF_ITSELF)
def test_a_copy_of_a_tensor_to_itself_is_a_write(form: str) -> None:
    flags = (False, True)
    for early, used, look, kind in itertools.product(flags, ("not", "linearly", "by value"), flags, ("hook", "kept")):
        ours, theirs = (copied_to_itself(m, form, early, used, look, kind) for m in (ft, torch))
        assert ours == theirs, (early, used, look, kind)


# -- random programs of writes, hooks, kept gradients and reads on a tensor and its views -----------------------------------------------------

VIEWS: tuple[Callable[[Any], Any], ...] = (
    lambda t: t[:], lambda t: t[1:], lambda t: t[0], lambda t: t.reshape(-1), lambda t: t.mT, lambda t: t[..., ::2], lambda t: t.unsqueeze(0),
    lambda t: t.view_as(t), lambda t: t[..., -1], lambda t: t.detach(), lambda t: t.transpose(0, -1),
)  # fmt: skip
WRITES: tuple[Callable[[Any, Any], Any], ...] = (
    lambda t, w: t.mul_(2), lambda t, w: t.mul_(w), lambda t, w: t.copy_(t.clone() * w), lambda t, w: t.add_(1), lambda t, w: t.zero_(),
    lambda t, w: t.__setitem__(0, w), lambda t, w: t.sin_(), lambda t, w: t.__setitem__(..., w * 3),
    lambda t, w: t.add_(t), lambda t, w: t.mul_(t[:]), lambda t, w: t.sub_(t, alpha=3),
    lambda t, w: t.__setitem__(t > 1, 2), lambda t, w: t.masked_fill_(t < 0, 0.5),
)  # fmt: skip
ACTIONS = ("view", "view", "write", "write", "write", "hook", "hook", "retain", "use", "use", "item", "other", "no_grad", "gradients", "backward")


Step = tuple[str, int, int]


def steps_of(seed: int) -> list[Step]:
    """The base (one of six) and what is done: (action, tensor, choice), taken modulo what there is."""
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
        base = steps[0][2] % 6
        x = self.leaf
        bases: tuple[Callable[[], Any], ...] = (
            lambda: x * 1, lambda: x.mT * 1, lambda: (x * 1).mT, lambda: self.m.zeros(2, 3, dtype=self.m.float64), lambda: x,
            lambda: (x * 1).detach().requires_grad_(),
        )  # fmt: skip
        self.tensors.append(bases[base]())
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
    count, lines = 1, [f"base {steps[0][2] % 6}"]
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


# -- writes of each kind through a view with a hook -------------------------------------------------------------------------------------------

KINDS: dict[str, Callable[[Any, Any], Any]] = {
    "all": lambda m, v: v.__setitem__(..., 1.0), "mask": lambda m, v: v.__setitem__(v > 0, 1), "place": lambda m, v: v.__setitem__(m.tensor([0]), 1.0),
    "part": lambda m, v: v.__setitem__((slice(None), m.tensor([1])), v[:, :1] * 2), "index_put": lambda m, v: v.index_put_((m.tensor([0]),), v[1:2] * 1),
    "scatter": lambda m, v: v.scatter_(0, m.zeros(v.shape, dtype=m.int64), 1.0), "scatter itself": lambda m, v: v.scatter_(0, m.ones(1, 2, dtype=m.int64), v),
    "masked_fill": lambda m, v: v.masked_fill_(v > 0, 1), "index_fill": lambda m, v: v.index_fill_(0, m.tensor([0]), 1),
    "itself": lambda m, v: v.add_(v),
    "named itself": lambda m, v: v.sub_(other=v, alpha=3), "clamp": lambda m, v: v.clamp_(0, 3), "lerp": lambda m, v: v.lerp_(v, 0.5),
    "tril": lambda m, v: v.tril_(),
    "put": lambda m, v: v.put_(m.tensor([0]), m.tensor([1.0])), "many": lambda m, v: m._foreach_add_([v], [v]),
    "addbmm": lambda m, v: v.addbmm_(m.ones(1, 2, 2), m.ones(1, 2, 2)),
}  # fmt: skip
WAYS: dict[str, Callable[[Any], Any]] = {
    "": lambda y: y, "all": lambda y: y[:], "turned": lambda y: y.movedim(0, -1),
    "flat": lambda y: y.reshape(4).reshape(2, 2),
}  # fmt: skip


def written_through(m: Any, way: str, kind: str) -> list[Any]:
    """The leaf's gradient and what the hook has seen, three times, the later ones on a learned path."""
    found = []
    for _ in range(3):
        leaf = (m.arange(12.0) - 5).reshape(2, 3, 2).requires_grad_()
        seen: list[Any] = []
        y = leaf.sum(1)
        v = WAYS[way](y)
        v.register_hook(lambda g, seen=seen: (seen.append(g.tolist()), g * 0.5)[1])
        try:
            KINDS[kind](m, v)
            (v.sum() + y.sum() * 3).backward()
        except RuntimeError:
            found.append("error")
            continue
        found.append([seen, leaf.grad.tolist()])
    return found


@pytest.mark.parametrize("way", WAYS)
def test_writes_of_each_kind_go_past_the_hooks_of_a_view(way: str) -> None:
    for kind in KINDS:
        assert written_through(ft, way, kind) == written_through(torch, way, kind), kind


# -- views of a leaf that is written without gradients ------------------------------------------------------------------------------------------

LEAVES: dict[str, Callable[[Any], Any]] = {
    "leaf": lambda m: m.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True),
    "detached": lambda m: (m.ones(2, 3) * 3).detach().requires_grad_(), "parameter": lambda m: m.nn.Parameter(m.ones(2, 3) * 2),
}  # fmt: skip
SEEN_BY_LEAVES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "no write": lambda m, leaf, v: None, "leaf": lambda m, leaf, v: _in_no_grad(m, leaf), "view": lambda m, leaf, v: _in_no_grad(m, v),
    "another view": lambda m, leaf, v: _in_no_grad(m, leaf[1]), "detached": lambda m, leaf, v: leaf.detach().mul_(2),
    "detached view": lambda m, leaf, v: v.detach().mul_(2), "data": lambda m, leaf, v: leaf.data.mul_(2),
    "step": lambda m, leaf, v: (leaf.grad is None and leaf.sum().backward(), m.optim.SGD([leaf], lr=0.5).step()),
}  # fmt: skip
PARTS: tuple[Callable[[Any], Any], ...] = (lambda t: t[0], lambda t: t.t(), lambda t: t[:, 1:][0])


def _in_no_grad(m: Any, t: Any) -> None:
    with m.no_grad():
        t.mul_(2)


def hooks_of_views_of_a_leaf(m: Any, leaf_kind: str, write: str, part: int, kind: str, look: bool) -> list[Any]:
    """A hooked view of a leaf (or one whose gradient is kept), and a view of that, used before and after a write; a hook after it; a second write."""
    leaf = LEAVES[leaf_kind](m)
    view = PARTS[part](leaf)
    seen: list[Any] = []

    def watch(number: int) -> None:
        if kind == "kept":
            view.retain_grad()
        else:
            view.register_hook(lambda g: (seen.append((number, g.tolist())), g * 10)[1])

    watch(1)
    below = view[...]
    uses = [(view * 3).sum(), (below * 5).sum()]
    for number in (2, 3):
        if look:
            view.sum().item()
        SEEN_BY_LEAVES[write](m, leaf, view)
        uses += [(view * 7 * number).sum(), (below * 11).sum(), (view[...] * 13).sum()]
        watch(number)
        uses += [(view * 17).sum(), (leaf * 19).sum()]
    leaf.grad = None
    sum(uses).backward()
    return [sorted(seen), leaf.grad.tolist(), view.grad.tolist() if kind == "kept" else None, view.tolist()]


@pytest.mark.parametrize("leaf_kind", LEAVES)
@pytest.mark.parametrize("write", SEEN_BY_LEAVES)
def test_hooks_of_views_of_a_leaf_over_writes_without_gradients(leaf_kind: str, write: str) -> None:
    for part, kind, look in itertools.product(range(3), ("hook", "kept"), (False, True)):
        ours, theirs = (hooks_of_views_of_a_leaf(m, leaf_kind, write, part, kind, look) for m in (ft, torch))
        assert ours == theirs, (part, kind, look)


def test_a_hooked_view_does_not_keep_its_leaf() -> None:
    leaf = ft.ones(3, requires_grad=True)
    view = leaf[1:]
    view.register_hook(lambda g: g)
    with ft.no_grad():
        leaf.mul_(2)
    view.sum().backward()
    assert leaf.grad.tolist() == [0, 1, 1]  # what is pending holds the leaf on a path that is known as a whole
    gone = weakref.ref(leaf)
    del leaf, view
    gc.collect()
    assert gone() is None


def test_a_leaf_with_hooked_views_may_stop_to_be_one() -> None:
    for m in (ft, torch):
        leaf = m.ones(3, requires_grad=True)
        view = leaf[1:]
        view.register_hook(lambda g: g)
        with m.no_grad():
            leaf.mul_(2)
        leaf.requires_grad_(False)
        assert not (leaf * 2).requires_grad
        assert not leaf[1:].requires_grad
        assert leaf.tolist() == [2.0, 2.0, 2.0]
