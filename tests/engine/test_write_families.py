"""Writes in place to memory that has several histories, that gradients still ask for, or that is replaced as a whole: PyTorch's gradients and errors."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")
Program = Callable[..., Any]
PROGRAMS: list[Program] = []


def program(f: Program) -> Program:
    """Add a program: it gets the module, two leaves x (2, 3) and w (3,), a = x * x, b = x * w, and `look`, which observes."""
    PROGRAMS.append(f)
    return f


# -- replaced as a whole: the gradient of what was there is zero, not None ------------------------------------------------


@program
def filled(t: Any, x: Any, w: Any, a: Any, b: Any, look: Any) -> Any:
    b.fill_(2.0)
    return b


@program
def zeroed_in_a_later_trace(t: Any, x: Any, w: Any, a: Any, b: Any, look: Any) -> Any:
    look(b)
    b.zero_()
    return b * 3


@program
def replaced_by_another(t: Any, x: Any, w: Any, a: Any, b: Any, look: Any) -> Any:
    c = (b * 2).sin()
    c.copy_(a)
    return c


@program
def replaced_twice(t: Any, x: Any, w: Any, a: Any, b: Any, look: Any) -> Any:
    c = b.clone()
    c[:] = 1.0
    look(c)
    c.copy_(t.ones(3, dtype=t.float64))
    d = c.t()
    return d


@program
def replaced_before_a_hook(t: Any, x: Any, w: Any, a: Any, b: Any, look: Any) -> Any:
    c = b * 2
    c.register_hook(lambda g: g + 1)
    d = c + 0
    d.zero_()
    return d


@program
def gradient_asked_of_what_was_replaced(t: Any, x: Any, w: Any, a: Any, b: Any, look: Any) -> Any:
    c = b * 2
    c.fill_(1.0)
    found = t.autograd.grad((c * c).sum(), [x, w, b], retain_graph=True)
    look(sum(g.sum() for g in found))
    return c


@program
def replaced_and_asked_in_a_batch(t: Any, x: Any, w: Any, a: Any, b: Any, look: Any) -> Any:
    c = b * 2
    c.fill_(1.0)
    (found,) = t.autograd.grad(c, [x], t.ones(2, 2, 3, dtype=t.float64), is_grads_batched=True, retain_graph=True)
    look(found)
    return c


# -- detached tensors with a history of their own -------------------------------------------------------------------------


@program
def gradients_into_data(t: Any, x: Any, w: Any, a: Any, b: Any, look: Any) -> Any:
    d = a.data
    d.copy_(d.detach() * 0.5 + w.sum())
    return (a * 1).sum() + (d * 2).sum()


@program
def gradients_into_a_part_of_a_detached_tensor(t: Any, x: Any, w: Any, a: Any, b: Any, look: Any) -> Any:
    d = b.detach()
    d[-1:].add_(b.sum())
    return (b * b).sum() + (d * d).sum()


@program
def another_detached_tensor_has_none(t: Any, x: Any, w: Any, a: Any, b: Any, look: Any) -> Any:
    d, e = a.detach(), a.detach()
    d.copy_(b)
    look(e)
    assert not e.requires_grad and d.requires_grad
    return (a * e).sum() + d.sum()


@program
def both_histories_are_written_in_turn(t: Any, x: Any, w: Any, a: Any, b: Any, look: Any) -> Any:
    d = b.detach()
    v = a * 2
    d[-1:].add_(v.sum())
    b.masked_fill_(b < 4, 0.5)
    look(b)
    d[0].add_(w)
    return (b * 3).sum() + (d * t.arange(3, dtype=t.float64)).sum()


@program
def a_view_keeps_the_first_history(t: Any, x: Any, w: Any, a: Any, b: Any, look: Any) -> Any:
    look(b)
    row = b[1:]
    d = b.detach()
    d.add_(w)
    return row.sum() + (d * d).sum()


@program
def detached_alias_of_a_leaf(t: Any, x: Any, w: Any, a: Any, b: Any, look: Any) -> Any:
    d = x.detach()
    d[0] = w * 2
    d[1] = w * 3
    return (d * d).sum() + (x * 2).sum()


# -- writes without gradients ---------------------------------------------------------------------------------------------


@program
def then_a_write_with_gradients(t: Any, x: Any, w: Any, a: Any, b: Any, look: Any) -> Any:
    with t.no_grad():
        a.mul_(0.5)
    a.sin_()
    return a


@program
def of_a_base_then_of_its_view(t: Any, x: Any, w: Any, a: Any, b: Any, look: Any) -> Any:
    v = b[:, :2]
    with t.no_grad():
        b[0] = 0.25
    u = v[0]
    u.sin_()
    return (b * b).sum() + (v * v).sum()


@program
def after_a_partial_write(t: Any, x: Any, w: Any, a: Any, b: Any, look: Any) -> Any:
    a[:, 0] = a[:, -1] * 0.5
    look(b)
    with t.no_grad():
        a.mul_(0.5)
    return a * a


@program
def of_a_view_of_what_was_replaced(t: Any, x: Any, w: Any, a: Any, b: Any, look: Any) -> Any:
    v = a[0:]
    a.zero_()
    with t.no_grad():
        look(b)
        v.mul_(0.5)
    return a + v


@program
def through_data_of_what_a_gradient_uses(t: Any, x: Any, w: Any, a: Any, b: Any, look: Any) -> Any:
    """`.data` is not counted: the gradient uses what is there."""
    with t.no_grad():
        b.mul_(0.5)
    s = b[0].sin()
    b.data.mul_(0.9)
    return s


@program
def through_data_of_a_detached_factor(t: Any, x: Any, w: Any, a: Any, b: Any, look: Any) -> Any:
    look(b)
    a.mul_(b.detach())
    b.data.sin_()
    return a


@program
def views_of_a_leaf_that_is_written(t: Any, x: Any, w: Any, a: Any, b: Any, look: Any) -> Any:
    """They keep their history past the end of the trace in which it was written."""
    v = x[..., ::2]
    x.detach().add_(1)
    look(b)
    with t.no_grad():
        x.mul_(2)
    assert v.requires_grad
    return v * 3


@program
def views_of_a_view_of_a_leaf_that_is_written(t: Any, x: Any, w: Any, a: Any, b: Any, look: Any) -> Any:
    first = x.narrow(1, 1, 1)
    look(b)
    second = first.diagonal()
    x.detach()[0].add_(1)
    look(b)
    assert second.requires_grad
    return first.sum() + second.sum() * 2


@program
def views_in_place_without_gradients(t: Any, x: Any, w: Any, a: Any, b: Any, look: Any) -> Any:
    seen, z = b.detach().numpy(), x.detach().clone().requires_grad_()
    with t.no_grad():
        z.transpose_(0, 1)
        b.squeeze_()
    assert z.is_leaf and z.requires_grad and z.shape == (3, 2) and b.requires_grad and seen.shape == (2, 3)
    (z * z).sum().backward()
    look(z.grad)
    return b * 2


def run(t: Any, f: Program) -> list[Any]:
    seen: list[Any] = []
    x = t.arange(1.0, 7.0, dtype=t.float64).view(2, 3).clone().requires_grad_()
    w = t.full((3,), 1.5, dtype=t.float64, requires_grad=True)
    result = f(t, x, w, x * x, x * w, lambda v: seen.append(v.detach().numpy().copy()))
    ((result * result).sum() + 0.0).backward()
    seen.append(result.detach().numpy())
    return [*seen, *[None if v.grad is None else v.grad.numpy() for v in (x, w)]]


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_gradients(f: Program) -> None:
    expected = run(torch, f)
    for _ in range(2):
        found = run(flambeau, f)
        assert len(found) == len(expected)
        for mine, theirs in zip(found, expected, strict=True):
            assert (mine is None) == (theirs is None)
            if mine is not None:
                np.testing.assert_allclose(mine, theirs, rtol=1e-9)


def _by_its_detached_self(t: Any, x: Any) -> Any:
    y = x * x
    y.mul_(y.detach())
    return y


def _by_a_view(t: Any, x: Any) -> Any:
    y = x * x
    y[0].mul_(y[1:].detach()[0] + y[0:1].detach()[0])
    y[1].mul_(y[0:].detach()[1])
    return y


def _after_detach(t: Any, x: Any) -> Any:
    y = x * x
    z = y * y
    y.detach().zero_()
    return z


def _view_without_gradients(t: Any, x: Any) -> Any:
    y = x * x
    with t.no_grad():
        v = y[0]
    v.add_(x[0])
    return y


ERRORS: list[Program] = [_by_its_detached_self, _by_a_view, _after_detach, _view_without_gradients]


@pytest.mark.parametrize("f", ERRORS, ids=lambda f: f.__name__)
def test_errors(f: Program) -> None:
    for t in (torch, flambeau, flambeau):
        x = t.arange(1.0, 7.0, dtype=t.float64).view(2, 3).clone().requires_grad_()
        with pytest.raises(RuntimeError, match=r"modified by an inplace operation|created in no_grad mode"):
            f(t, x).sum().backward()


def replaced_content(m: Any, operation: str, cut: str, look: bool, rows: int) -> list[Any]:
    """All of a result is written over, and the history of what it was is asked all the same: it gets zeros, whatever stages the pass has."""
    x = m.tensor([[0.5, -1.0], [2.0, 1.5]][:rows], requires_grad=True)
    other = (m.tensor([[3.0, 2.0]]) * 2).sum() * -2
    made = {
        "atan2": lambda: m.atan2(x * 1, other.abs() + 1), "mul": lambda: (x * 1) * (other + 1), "div": lambda: other.sin() / (x * 3),
        "pow": lambda: (x * x) ** 3,
    }  # fmt: skip
    z = made[operation]()
    seen: list[Any] = []
    if cut == "hook":
        z.register_hook(lambda g: (seen.append(g.tolist()), g + 1)[1])
    between = m.utils.checkpoint.checkpoint(lambda t: t.sin() * 0.5, x, use_reentrant=False) if cut == "checkpoint" else (x * 2).sin()
    if cut == "hook between":
        between.register_hook(lambda g: (seen.append(g.tolist()), g * 2)[1])
    z[:] = 2.0
    loss = z.sum() + between.sum()
    if look:
        loss.item()
    if cut == "asked":
        return [None if g is None else g.tolist() for g in m.autograd.grad(loss, (between, x))]
    loss.backward()
    return [seen, x.grad.tolist()]


@pytest.mark.parametrize("operation", ("atan2", "mul", "div", "pow"))
def test_replaced_contents(operation: str) -> None:
    for cut, look, rows in itertools.product(("", "hook", "hook between", "checkpoint", "asked"), (False, True), (1, 2)):
        ours, theirs = (replaced_content(m, operation, cut, look, rows) for m in (flambeau, torch))
        np.testing.assert_allclose(numbers(ours), numbers(theirs), rtol=1e-5, err_msg=f"{cut, look, rows}")


def numbers(found: Any) -> list[float]:
    """The numbers of nested lists, one after the other."""
    return [x for part in found for x in numbers(part)] if isinstance(found, list) else [float(found)]


ASSIGNED: dict[str, Callable[[Any, Any], Any]] = {
    "the base": lambda e, b: e.__setitem__(..., b), "its columns": lambda e, b: e.__setitem__((..., slice(-2, None)), b[..., -2:]),
    "copied": lambda e, b: e.copy_(b), "itself": lambda e, b: e.__setitem__(..., e), "a row of it": lambda e, b: e.__setitem__(..., e[:1]),
    "another": lambda e, b: e.__setitem__(..., b * 1),
}  # fmt: skip


@pytest.mark.parametrize("how", ASSIGNED)
def test_what_an_expanded_tensor_shows_may_be_assigned_to_it(how: str) -> None:
    """PyTorch refuses writes to expanded tensors, but for those that put what is there, as it is broadcast."""
    for shape, expanded in (((2,), (3, 2)), ((1, 2), (2, 1, 2)), ((2, 1), (2, 3)), ((1,), (4,)), ((1, 2), (1, 2)), ((2, 2), (3, 2, 2)), ((1, 3), (2, 3))):
        found = []
        for m in (flambeau, torch):
            base = m.arange(float(np.prod(shape))).reshape(shape)
            try:
                ASSIGNED[how](base.expand(*expanded), base)
                found.append(base.tolist())
            except RuntimeError as error:
                found.append("single memory location" in str(error))
        assert found[0] == found[1], (shape, expanded)
