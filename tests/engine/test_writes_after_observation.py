"""Writes in place to parts of tensors that an earlier trace has computed, and through `.data`: values and gradients are PyTorch's."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")
Case = Callable[..., Any]

pytestmark = pytest.mark.usefixtures("short_collections")


def _masked(t: Any, x: Any, m: Any) -> Any:
    y = x * x
    m.any().item()
    y[1:][m[1:]] = 0.0
    return y


def _scaled(t: Any, x: Any, m: Any) -> Any:
    y = x * x
    m.any().item()
    y[:1].mul_(m[1:])
    return y


def _of_a_view(t: Any, x: Any, m: Any) -> Any:
    y = (x * x)[1:]
    m.any().item()
    y[0, :2] = 0.0
    return y


def _without_gradients(t: Any, x: Any, m: Any) -> Any:
    y = x * x
    m.any().item()
    with t.no_grad():
        y[0] = 1.0
    y[1].mul_(x[0])
    return y


def _column(t: Any, x: Any, m: Any) -> Any:
    y = x * x
    m.any().item()
    z = y * 1
    y[:, 1].add_(z[:, 0])
    return y


def _in_a_loop(t: Any, x: Any, m: Any) -> Any:
    y = x * x
    for i in range(2):
        y = y * 1.5
        if m.any():
            y[i][m[i]] = x[i][m[i]] * 10
    return y


def _retained(t: Any, x: Any, m: Any) -> Any:
    y = x * x
    m.any().item()
    y.retain_grad()
    y[0].mul_(2)
    return y


def _transposed(t: Any, x: Any, m: Any) -> Any:
    y = x.t() * x.t()
    v = y[1:]
    m.any().item()
    y[0] = 1.0
    v[1, 0].mul_(3)
    return y


def _of_a_later_view(t: Any, x: Any, m: Any) -> Any:
    y = x * x
    m.any().item()
    v = y[1:]
    m.all().item()
    v[0, 0] = 0.0
    return y


CASES: list[Case] = [_transposed, _of_a_later_view, _masked, _scaled, _of_a_view, _without_gradients, _column, _in_a_loop, _retained]


@pytest.mark.parametrize("case", CASES)
def test_writes_to_a_part(case: Case) -> None:
    """The part that is not written keeps its history."""
    found = []
    for t in (flambeau, torch):
        x = t.arange(1.0, 7.0).view(2, 3).clone().requires_grad_()
        y = case(t, x, t.tensor([[True, False, True], [False, True, False]]))
        (y * t.arange(float(y.numel())).view(y.shape)).sum().backward()
        found.append((y.detach().numpy(), x.grad.numpy()))
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)


def _saved(t: Any, x: Any) -> Any:
    y = x * 2
    z = (y * y).sum()
    y.data.zero_()
    return z


def _a_view_of_data(t: Any, x: Any) -> Any:
    y = x * 2
    z = (y * y).sum()
    y.data[1:].fill_(5.0)
    y[:1].data.mul_(4.0)
    return z


def _own_result(t: Any, x: Any) -> Any:
    y = t.exp(x)
    y.data.mul_(2.0)
    return y.sum()


def _loop(t: Any, x: Any) -> Any:
    for _ in range(3):
        y = x * 2
        z = y * y
        y.data.add_(1.0)
        (z.sum() + y.sum()).backward()
    return (x * 0).sum()


@pytest.mark.parametrize("case", [_saved, _a_view_of_data, _own_result, _loop])
def test_writes_to_data(case: Case) -> None:
    """A backward pass does not notice them, and uses what is there."""
    found = []
    for t in (flambeau, torch):
        x = t.tensor([1.0, 2.0, 3.0], requires_grad=True)
        z = case(t, x)
        z.backward()
        found.append((z.detach().numpy(), x.grad.numpy()))
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)


def test_writes_to_a_detached_tensor_are_noticed() -> None:
    for t in (flambeau, torch):
        x = t.tensor([1.0, 2.0, 3.0], requires_grad=True)
        y = x * 2
        z = (y * y).sum()
        y.detach().zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.backward()


def test_detached_results_do_not_keep_what_made_them() -> None:
    from flambeau.autograd.segment import Segment

    def living() -> int:
        gc.collect()
        return sum(isinstance(o, Segment) for o in gc.get_objects())

    before, kept = living(), []
    w = flambeau.ones(5, requires_grad=True)
    for _ in range(6):
        loss = (w * w).sum()
        kept += [loss.detach(), loss.data]
        loss.item()
        kept.append(loss.detach())
        loss.backward()
    del loss
    assert living() <= before + 1
    assert all(k.item() == 5.0 for k in kept)


WITHOUT_GRADIENTS: dict[str, Case] = {
    "data of the whole": lambda t, y, v: y.data.mul_(0.9),
    "data of the view": lambda t, y, v: v.data.mul_(0.9),
    "no_grad": lambda t, y, v: t.no_grad()(lambda: y[0].fill_(0.25))(),
    "no_grad through the view": lambda t, y, v: t.no_grad()(lambda: v[:1].fill_(0.25))(),
}


@pytest.mark.parametrize("write", WITHOUT_GRADIENTS)
@pytest.mark.parametrize("first", [lambda y: None, lambda y: y.mul_(1.5), lambda y: y[0].fill_(2.0)], ids=["", "scaled", "row written"])
def test_writes_without_gradients_keep_the_history_of_views(write: str, first: Case) -> None:
    """Of tensors of an earlier trace: the tensor and a view that the write has made stale lead to where they came from."""
    found = []
    for t in (flambeau, torch):
        x = t.arange(1.0, 7.0).view(2, 3).clone().requires_grad_()
        y = x * x
        first(y)
        y.detach().sum().item()
        v = y[1:]
        WITHOUT_GRADIENTS[write](t, y, v)
        (y * y).sum().backward(retain_graph=True)
        (v.sum() * 2).backward()
        found.append((y.detach().numpy(), x.grad.numpy()))
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)


def _square(t: Any) -> Any:
    class Square(t.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.saved_tensors[0] * 3  # not its slope: told from one that went around it

    return Square


ORIGINS: dict[str, Case] = {
    "an operation": lambda t, x: x.sin(),
    "a checkpoint": lambda t, x: t.utils.checkpoint.checkpoint(lambda a: a.sin(), x, use_reentrant=False),
    "a custom function": lambda t, x: _square(t).apply(x),
}
SEEN_AS: tuple[Case, ...] = (
    lambda y: y, lambda y: y.transpose_(0, 1), lambda y: y.unsqueeze_(0), lambda y: y.mul_(2), lambda y: y.t(), lambda y: y[1:], lambda y: y.view(-1),
)  # fmt: skip
LOOKS: tuple[Case, ...] = (
    lambda t, x, y: None, lambda t, x, y: y.tolist(), lambda t, x, y: y.sum().backward(retain_graph=True),
    lambda t, x, y: t.autograd.grad((y * 2).sum(), x, retain_graph=True), lambda t, x, y: t.ones(1).item(),
)  # fmt: skip
LATER_WRITES: tuple[Case, ...] = (lambda y: y[0:1].zero_(), lambda y: y.zero_(), lambda y: y.mul_(3), lambda y: y[..., 0].mul_(y[..., -1].clone()))


@pytest.mark.parametrize("origin", ORIGINS)
def test_whoever_keeps_a_result_its_history_goes_on(origin: str) -> None:
    """Of what a function has given only a view is left, or the tensor has become a view of itself; its trace ends, and then it is written."""
    for (i, seen_as), (j, look), (k, write) in itertools.product(enumerate(SEEN_AS), enumerate(LOOKS), enumerate(LATER_WRITES)):
        found = []
        for t in (flambeau, torch):
            leaf = t.tensor([[0.3, 0.7], [0.2, 0.9], [0.4, 0.1]]).requires_grad_()
            y = seen_as(ORIGINS[origin](t, leaf * 2))
            look(t, leaf, y)
            write(y)
            (y * t.arange(1.0, y.numel() + 1).view(y.shape)).sum().backward()
            found.append((y.detach().numpy(), leaf.grad.numpy()))
        for mine, theirs in zip(*found, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, err_msg=str((i, j, k)))
