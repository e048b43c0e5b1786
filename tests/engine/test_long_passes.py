"""Backward passes of more calls than a trace has at most, and custom functions whose backward is a long program."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau.autograd import engine
from flambeau.trace import recorder

PIECES: list[int] = []  # of each backward of Adjoint


class Adjoint(torch.autograd.Function):
    """An explicit Euler step, `count` times; its backward goes back through the states, a pass inside of a pass each."""

    @staticmethod
    def forward(ctx, x, w, count):
        ctx.count = count
        ctx.save_for_backward(x, w)
        for _ in range(count):
            x = x + 0.01 * torch.tanh(x @ w)
        ctx.end = x
        return x

    @staticmethod
    def backward(ctx, g):
        _, w = ctx.saved_tensors
        before = torch.stats()["pieces"]
        y, of_w = ctx.end, torch.zeros_like(w)
        for _ in range(ctx.count):
            with torch.enable_grad():
                z, v = y.detach().requires_grad_(True), w.detach().requires_grad_(True)
                step = 0.01 * torch.tanh(z @ v)
            a, b = torch.autograd.grad(step, (z, v), g)
            y, g, of_w = y - step.detach(), g + a, of_w + b
        PIECES.append(torch.stats()["pieces"] - before)
        return g, of_w, None


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("count", [40, 300])
@pytest.mark.parametrize("earlier", [False, True])
def test_a_pass_from_more_roots_than_a_trace_has_calls(monkeypatch: pytest.MonkeyPatch, shared: bool, count: int, earlier: bool) -> None:
    """A pass counts on slots of the trace: that does not end in the middle, whatever its limit. It was walked without end."""
    monkeypatch.setattr(recorder, "DEPTH_LIMIT", 64)
    monkeypatch.setattr(engine, "MANY_ROOTS", 64 if shared else 1 << 30)
    torch.manual_seed(count)
    x = torch.randn(count, 3, requires_grad=True)
    torch.neg(x.detach()).sum().item()  # a trace with the limit
    for _ in range(3):
        y = (x * x).sum(1)
        if earlier:
            y.sum().item()
        (found,) = torch.autograd.grad(torch.unbind(y), x)
        assert torch.equal(found, 2 * x.detach())
        torch.autograd.backward(torch.unbind((x * x).sum(1)))
        assert torch.equal(x.grad, 2 * x.detach())
        x.grad = None


def test_gradients_of_many_roots_are_apart() -> None:
    """Where a root itself, or a tensor that is no leaf, is asked for, its gradient is nobody else's."""
    leaves = [torch.full((1,), float(i), requires_grad=True) for i in range(engine.MANY_ROOTS + 6)]
    twice, thrice = [t * 2 for t in leaves], [t * 3 for t in leaves]
    same = [t.view(()) for t in leaves]
    for roots, targets in ((leaves, leaves), (same, leaves), ([t + 0 for t in leaves], leaves), (twice, twice), ([t.view(()) for t in thrice], thrice)):
        found = torch.autograd.grad(roots, targets)
        found[0].mul_(5)
        assert [float(g) for g in found] == [5.0] + [1.0] * (len(leaves) - 1)


def test_gradients_that_are_retained_on_the_way_are_apart() -> None:
    """The same of `.grad`."""
    leaves = [torch.full((1,), float(i), requires_grad=True) for i in range(engine.MANY_ROOTS + 6)]
    twice = [t * 2 for t in leaves]
    for t in twice:
        t.retain_grad()
    torch.autograd.backward([t.view(()) for t in twice])
    for many, ones in ((twice, 1.0), (leaves, 2.0)):
        many[0].grad.mul_(5)
        assert [float(t.grad) for t in many] == [5 * ones] + [ones] * (len(leaves) - 1)


def test_a_custom_function_s_backward_ends_traces_as_a_program_does() -> None:
    """Of new lengths, it runs in pieces: the second and later ones bring few plans. Recorded as a whole each was a plan of thousands of calls."""
    torch.manual_seed(0)
    x, w = torch.randn(4, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)

    def gradient(count: int) -> torch.Tensor:
        return torch.autograd.grad(Adjoint.apply(x, w, count).sum(), (x, w))[1]

    gradient(20)
    for count in (23, 31, 37):
        found = gradient(count)
        z, v = x.detach(), w.detach().requires_grad_(True)
        for _ in range(count):
            z = z + 0.01 * torch.tanh(z @ v)
        (expected,) = torch.autograd.grad(z.sum(), v)
        assert torch.allclose(found, expected, rtol=0.05, atol=0.05)  # the way back is not the way there
        assert PIECES[-1] > count


class Doubling(torch.autograd.Function):
    """Its backward writes into the gradient that it gets."""

    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    def backward(ctx, g):
        return g.mul_(2.0)


@pytest.mark.parametrize("count", [3, 80])
def test_roots_whose_gradients_are_written_into_have_their_own(count: int) -> None:
    x = torch.ones((), requires_grad=True)
    assert torch.autograd.grad([Doubling.apply(x) for _ in range(count)], x)[0].item() == 2.0 * count
    roots = [x * 1.0 for _ in range(count)]
    roots[0].register_hook(lambda g: g.mul_(3.0))
    assert torch.autograd.grad(roots, x)[0].item() == count + 2.0
