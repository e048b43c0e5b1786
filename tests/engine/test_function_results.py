"""Custom functions that write to their inputs (mark_dirty), save their results, or go by vjp and jvp, beside PyTorch's."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import flambeau as ft

WORLDS = (ft, torch)


def _functions(w: Any) -> Any:
    class Add(w.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.mark_dirty(x)
            return x.add_(y)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g, 3 * g

    class Exp(w.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            x.exp_()
            ctx.mark_dirty(x)
            ctx.save_for_backward(x)
            return x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (r,) = ctx.saved_tensors
            return g * r

    class Saved(w.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            r = x.exp()
            ctx.save_for_backward(r)
            return r

        vjp = Exp.backward

    class Twice(w.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            r = x * 2
            return r, r

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            return 2 * (g + h)

    return Add, Exp, Saved, Twice


def _views(w: Any) -> Any:
    Add = _functions(w)[0]
    a = w.ones(4, 4, requires_grad=True)
    b = w.full((2, 2), 2.0, requires_grad=True)
    x = a.clone()
    y = Add.apply(x.narrow(1, 2, 2).narrow(0, 1, 2), b)
    Add.apply(x.narrow(1, 0, 2).narrow(0, 1, 2), b)
    (x * x).sum().backward()
    return x, y, a.grad, b.grad, x.grad_fn.name()


def _itself(w: Any) -> Any:
    Add, Exp = _functions(w)[:2]
    x = w.ones(2)
    y = w.ones(2, requires_grad=True)
    o = Add.apply(x, y)
    e = y * 1
    same = Exp.apply(e) is e
    (x * o * e).sum().backward()
    return o is x, x.requires_grad, x.is_leaf, str(x.grad_fn.name()).split(".")[-1], repr(x), y.grad, same


def _second_gradients(w: Any) -> Any:
    found = []
    for function in _functions(w)[1:3]:
        x = w.tensor([0.5, 0.25], requires_grad=True)
        total = function.apply(x.clone()).sum()  # the result itself is gone
        for _ in range(3):
            (total_gradient,) = w.autograd.grad(total, x, create_graph=True)
            found.append(total_gradient.detach())
            total = total_gradient.sum()
    return found


def _same_twice(w: Any) -> Any:
    x = w.tensor([0.5, 0.25], requires_grad=True)
    a, b = _functions(w)[3].apply(x)
    (a * 3 + b).sum().backward()
    return a is b, x.grad


def _several(w: Any) -> Any:
    called: list[int] = []

    class Several(w.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any, c: Any) -> Any:
            ctx.mark_dirty(a, c)
            ctx.save_for_backward(b)
            return a.add_(b), a + b, c.mul_(2)

        @staticmethod
        def backward(ctx: Any, *g: Any) -> Any:
            called.append(len(ctx.saved_tensors))
            return g[0] + g[1], g[0] + 2 * g[1], g[2] * 2

    found = []
    for write in (False, True):
        a, b = w.ones(2, requires_grad=True), w.full((2,), 3.0, requires_grad=True)
        x, y, z = Several.apply(a.clone(), b, b * 1)
        if write:
            x += 2
        (x * y * z).sum().backward()
        found += [a.grad, b.grad]
    return called, found


def _forward_mode(w: Any) -> Any:
    class Scale(w.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, number: Any, x: Any, y: Any) -> Any:
            ctx.save_for_backward(x)
            ctx.save_for_forward(y)
            whole = y.clone()
            ctx.mark_non_differentiable(whole)
            return number * x * y, whole

        @staticmethod
        def jvp(ctx: Any, number: Any, x: Any, y: Any) -> Any:
            assert number is None and len(ctx.saved_tensors) == 1
            return x * ctx.saved_tensors[0] + y, None

    class Double(w.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def jvp(ctx: Any, t: Any) -> Any:
            return t.mul_(2)

    forward_ad = w.autograd.forward_ad
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(w.ones(2), w.full((2,), 5.0))
        first = [forward_ad.unpack_dual(t).tangent for t in Scale.apply(3, dual, w.full((2,), 7.0))]
        same = Double.apply(dual)
        return first, same is dual, forward_ad.unpack_dual(same).tangent, forward_ad.unpack_dual(same).primal


def _defaults(w: Any) -> Any:
    class Power(w.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(x: Any, y: int = 3) -> Any:
            return x**y

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            x, ctx.y = inputs
            ctx.save_for_backward(x)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * ctx.y * x ** (ctx.y - 1), None

    x = w.tensor(2.0, requires_grad=True)
    return w.autograd.grad(Power.apply(x), x)


def _plain(x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        return [_plain(t) for t in x]
    return pytest.approx(x.flatten().tolist(), rel=1e-6) if hasattr(x, "tolist") else x


@pytest.mark.parametrize("program", [_views, _itself, _second_gradients, _same_twice, _several, _forward_mode, _defaults])
def test_program(program: Any) -> None:
    ours, theirs = (program(w) for w in WORLDS)
    assert _lists(ours) == _plain(theirs)


def _lists(x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        return [_lists(t) for t in x]
    return x.flatten().tolist() if hasattr(x, "tolist") else x


def test_errors() -> None:
    for w in WORLDS:
        Add, Exp = _functions(w)[:2]

        class Forgets(w.autograd.Function):  # type: ignore[misc, name-defined]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.mark_dirty(x)
                return x * 2

        class Both(Add):
            vjp = Add.backward

        class Two(w.autograd.Function):  # type: ignore[misc, name-defined]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.mark_dirty(x)
                return x.mul_(2), x + 1

        leaf = w.ones(2, requires_grad=True)
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            Exp.apply(leaf)
        with pytest.raises(RuntimeError, match="view of a leaf Variable that requires grad"):
            Exp.apply(leaf[:1])
        with pytest.raises(RuntimeError, match="marked as dirty during the forward method were not returned as output"):
            Forgets.apply(leaf.clone())
        with pytest.raises(RuntimeError, match="your Function cannot return more than one Tensor"):
            Two.apply(leaf.clone()[:1])
        with pytest.raises(RuntimeError, match="Implementing both 'backward' and 'vjp' for a custom Function is not allowed"):
            Both.apply(leaf.clone(), leaf).sum().backward()
        changed = Exp.apply(leaf.clone())
        changed.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            changed.sum().backward()
