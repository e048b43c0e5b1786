"""Hooks of `grad_fn`, and of tensors beside them, against PyTorch's: when they are called, with which gradients, and what they may change."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import flambeau as ft

torch = pytest.importorskip("torch")


def plain(x: Any) -> Any:
    """Gradients as hooks get them, without tensors."""
    if x is None:
        return None
    return tuple(map(plain, x)) if isinstance(x, (tuple, list)) else np.round(x.detach().numpy().astype(np.float64), 4).tolist()


def doubled(w: Any) -> Any:
    """A custom function with two results."""

    class Doubled(w.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any, k: int, y: Any) -> Any:
            return x * k, y * 3

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            return g * 2, None, h * 3

    return Doubled.apply


CALLS = (
    lambda w, x, y: [x * y], lambda w, x, y: [x + 2], lambda w, x, y: [x.sin()], lambda w, x, y: [x * x], lambda w, x, y: [w.matmul(x, y)],
    lambda w, x, y: list(x.unbind(0)), lambda w, x, y: list(w.var_mean(x, dim=0)), lambda w, x, y: [x.max(1)[0]], lambda w, x, y: list(doubled(w)(x, 2, y)),
    lambda w, x, y: [x.unsqueeze(0).squeeze(0)], lambda w, x, y: [x.sub(y.cos(), alpha=2)], lambda w, x, y: list(x.split([1, 2])), lambda w, x, y: [x.t()],
    lambda w, x, y: [w.where(x > 0, x, y)], lambda w, x, y: [w.cat([x, y])[1:4]], lambda w, x, y: [(x + y).mul_(y)], lambda w, x, y: [x.clone().add_(y)],
)  # fmt: skip


def run(w: Any, seed: int) -> list[Any]:
    """A random history with hooks of each kind, and a few passes over it. Returns what they saw, and the gradients."""
    rng = random.Random(seed)
    values = np.random.default_rng(seed)
    leaves = [w.tensor(values.normal(size=(3, 3)), requires_grad=True) for _ in range(2)]
    seen: list[Any] = []
    tensors: list[Any] = list(leaves)
    targets: list[Any] = list(leaves)  # not one of several results: hooks of the others are called in PyTorch where nothing else asks for their gradients
    handles = []

    def hooks_of(t: Any, name: str) -> None:
        factor = rng.choice([None, None, 2.0, 0.5])

        def of_tensor(g: Any) -> Any:
            seen.append((name, "tensor", plain(g)))
            return None if factor is None or g is None else g * factor

        def before(gradients: Any) -> Any:
            seen.append((name, "before", plain(gradients)))
            return None if factor is None else tuple([None if g is None else g * factor for g in gradients])

        def after(inputs: Any, outputs: Any) -> Any:
            seen.append((name, "after", plain(inputs), plain(outputs)))
            return None if factor is None else tuple([None if g is None else g * factor for g in inputs])

        kind = rng.randrange(5)
        if kind == 0 or t.grad_fn is None:
            handles.append(t.register_hook(of_tensor))
        elif kind == 1:
            handles.append(t.grad_fn.register_prehook(before))
        elif kind == 2:
            handles.append(t.grad_fn.register_hook(after))
        elif kind == 3:
            t.retain_grad()
        if t.grad_fn is None and kind > 2:
            t.register_post_accumulate_grad_hook(lambda t: seen.append((name, "accumulated", plain(t.grad))))

    for k in range(rng.randrange(3, 9)):
        whole = [t for t in tensors if tuple(t.shape) == (3, 3)]
        made = rng.choice(CALLS)(w, rng.choice(whole), rng.choice(whole))
        tensors += made
        if len(made) == 1:
            targets += made
        for i, t in enumerate(made):
            if rng.random() < 0.4:
                hooks_of(t, f"{k}.{i}")
        if rng.random() < 0.15:
            tensors.pop(rng.randrange(2, len(tensors)))
        if rng.random() < 0.15:
            made[0].detach().sum().item()
    for i, leaf in enumerate(leaves):
        if rng.random() < 0.4:
            hooks_of(leaf, f"leaf {i}")
    loss = sum(t.sum() for t in rng.sample(tensors, min(3, len(tensors)))) + leaves[0].sum()
    found = []
    for _ in range(rng.randrange(1, 4)):
        kind = rng.randrange(4)
        inputs = rng.sample(targets, rng.randrange(1, 3))
        seen.append(("pass", kind))
        if kind == 0:
            found += w.autograd.grad(loss, inputs, retain_graph=True, allow_unused=True, create_graph=rng.random() < 0.3)
        elif kind == 1:
            loss.backward(inputs=inputs, retain_graph=True)
        else:
            loss.backward(retain_graph=True)
        if handles and rng.random() < 0.3:
            handles.pop().remove()
        start = max(i for i, what in enumerate(seen) if what[0] == "pass")
        seen[start:] = sorted(seen[start:], key=repr)
    return [seen, plain(found), [plain(t.grad) if t.is_leaf or t.retains_grad else None for t in tensors]]


def compare(seed: int) -> str | None:
    """In what the libraries differ."""
    ours, theirs = run(ft, seed), run(torch, seed)
    return None if repr(ours).replace("-0.0", "0.0") == repr(theirs).replace("-0.0", "0.0") else f"{ours}\n{theirs}"


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_random_histories(first: int) -> None:
    for seed in range(first, first + 20):
        assert compare(seed) is None, seed


def test_what_is_not_kept_says_so() -> None:
    x = ft.ones(2, 2, requires_grad=True)
    target = ft.tensor([0, 1])
    for hook in (lambda inputs, outputs: print(inputs[0]), lambda inputs, outputs: list(inputs), lambda inputs, outputs: (outputs[0] * 2,)):
        y = ft.nn.functional.cross_entropy(x, target)  # two nodes in PyTorch
        y.grad_fn.register_hook(hook)
        with pytest.raises(NotImplementedError, match=r"hooks of grad_fn: .*register a hook on the input tensors"):
            y.sum().backward()
    with pytest.raises(RuntimeError, match="takes none, as it is a part of a call"):
        y.grad_fn.next_functions[0][0].register_prehook(print)


@pytest.mark.parametrize(
    "answer",
    (
        lambda given: (given[0] * 2,), lambda given: given[0], lambda given: (given[0] * 2, None), lambda given: [*given], lambda given: 3,
        lambda given: (given[0].double(), given[1]), lambda given: (1, 2), lambda given: given, lambda given: (given[0][:1], given[1]),
    ),
)  # fmt: skip
def test_what_hooks_give_back(answer: Any) -> None:
    found = []
    for w in (ft, torch):
        a, b = w.ones(2, requires_grad=True), w.ones(2, requires_grad=True)
        y = a * b
        y.grad_fn.register_hook(lambda inputs, outputs: answer(inputs))
        try:
            y.sum().backward()
            found.append(repr([plain(a.grad), plain(b.grad)]))
        except (RuntimeError, TypeError) as error:
            found.append(f"{type(error).__name__} {error}")
    assert found[0].startswith(found[1])


def accumulated(t: Any) -> None:
    """A hook after accumulation, which changes what was added."""
    t.grad.add_(0.5)


def test_order_at_a_leaf() -> None:
    for w in (ft, torch):
        t, seen = w.ones(3, requires_grad=True), []
        node = t.view_as(t).grad_fn.next_functions[0][0]

        def last(inputs: Any, outputs: Any, t: Any = t) -> None:
            t.grad = outputs[0].mul(10)

        node.register_hook(last)
        t.register_post_accumulate_grad_hook(accumulated)
        node.register_prehook(lambda gradients: (gradients[0].div(5.0),))
        t.register_hook(lambda g, seen=seen: seen.append(plain(g)) or g.sub(2.0))
        t.sum().backward()
        assert t.grad.tolist() == pytest.approx([3.0] * 3) and len(seen) == 1


@pytest.mark.parametrize("shapes", [((2,), (3,)), ((2, 1, 3), (4,)), ((5, 1), (1, 4), (3, 2)), ((0,), (2,))])
def test_shapes_that_do_not_broadcast(shapes: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(RuntimeError) as theirs:
        torch.broadcast_shapes(*shapes)
    with pytest.raises(RuntimeError) as ours:
        ft.broadcast_shapes(*shapes)
    assert str(ours.value) == f"broadcast_shapes: {theirs.value}"
