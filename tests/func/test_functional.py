"""torch.autograd.functional and torch.autograd.forward_ad against PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as ft
from tests.func.oracle import World, same, same_error


def f(w: World, x):
    return w.torch.tanh(w.array(4, 3, seed=1) @ x) * x.sum()


def g(w: World, x):
    return (f(w, x) ** 2).sum() + x.prod()


def two(x, y):
    return (x * y.sum()).exp(), x.sum() * y


def pair(w: World):
    return w.array(3), w.array(2, seed=1)


def one(x, y):
    return (x.exp() * y.sum() ** 2).sum()


PROGRAMS = {
    "vjp": lambda w: w.functional.vjp(lambda x: f(w, x), w.array(3), w.array(4, seed=2)),
    "vjp two": lambda w: w.functional.vjp(two, pair(w), (w.array(3, seed=4), w.array(2, seed=5))),
    "vjp of one": lambda w: w.functional.vjp(lambda x: g(w, x), w.array(3)),
    "vjp graph": lambda w: w.functional.vjp(lambda x: f(w, x), w.array(3).requires_grad_(), w.array(4, seed=2), create_graph=True),
    "jvp": lambda w: w.functional.jvp(lambda x: f(w, x), w.array(3), w.array(3, seed=2)),
    "jvp two": lambda w: w.functional.jvp(two, pair(w), (w.array(3, seed=4), w.array(2, seed=5))),
    "jvp graph": lambda w: w.functional.jvp(lambda x: f(w, x), w.array(3).requires_grad_(), w.array(3, seed=2), create_graph=True),
    "jvp unused": lambda w: w.functional.jvp(lambda x, y: x * 2, pair(w), (w.array(3), w.array(2))),
    "vhp": lambda w: w.functional.vhp(lambda x: g(w, x), w.array(3), w.array(3, seed=2)),
    "vhp two": lambda w: w.functional.vhp(one, pair(w), (w.array(3, seed=4), w.array(2, seed=5))),
    "hvp": lambda w: w.functional.hvp(lambda x: g(w, x), w.array(3), w.array(3, seed=2)),
    "hvp two": lambda w: w.functional.hvp(one, pair(w), (w.array(3, seed=4), w.array(2, seed=5)), create_graph=False),
    "jacobian": lambda w: [w.functional.jacobian(lambda x: f(w, x), w.array(3), vectorize=v) for v in (False, True)],
    "jacobian two": lambda w: [w.functional.jacobian(two, pair(w), vectorize=v) for v in (False, True)],
    "jacobian graph": lambda w: [w.functional.jacobian(lambda x: f(w, x), w.array(3).requires_grad_(), create_graph=True, vectorize=v) for v in (False, True)],
    "jacobian forward": lambda w: w.functional.jacobian(two, pair(w), vectorize=True, strategy="forward-mode"),
    "jacobian strict": lambda w: w.functional.jacobian(lambda x: f(w, x), w.array(3), strict=True),
    "jacobian of matrices": lambda w: w.functional.jacobian(lambda x: x.exp().sum(1), w.array(2, 3)),
    "hessian": lambda w: [w.functional.hessian(lambda x: g(w, x), w.array(3), vectorize=v) for v in (False, True)],
    "hessian two": lambda w: [w.functional.hessian(one, pair(w), vectorize=v) for v in (False, True)],
    "hessian forward": lambda w: w.functional.hessian(one, pair(w), vectorize=True, outer_jacobian_strategy="forward-mode"),
    "dual": lambda w: _dual(w),
    "dual with gradients": lambda w: _dual_gradients(w),
    "dual module": lambda w: _dual_module(w),
    "dual function": lambda w: _dual_function(w),
    "dual writes": lambda w: _dual_writes(w),
}  # fmt: skip


def _dual(w: World):
    x, v = w.array(3), w.array(3, seed=2)
    with w.forward.dual_level():
        dual = w.forward.make_dual(x, v)
        out = f(w, dual)
        primal, tangent = w.forward.unpack_dual(out)
        none = w.forward.unpack_dual(x).tangent
        views = w.forward.unpack_dual(dual.view(3, 1).t()[0, 1:])
        shown = float(dual.sum()) > 0, dual.tolist() == x.tolist()
    after = w.forward.unpack_dual(out)
    return primal, tangent, none is None, views, shown, after.primal, after.tangent is None, out + 1


def _dual_gradients(w: World):
    x, v = w.array(3).requires_grad_(), w.array(3, seed=2)
    with w.forward.dual_level():
        out = w.forward.unpack_dual(g(w, w.forward.make_dual(x, v)))
        (second,) = w.torch.autograd.grad(out.tangent, x)
    return out, second


def _dual_module(w: World):
    """PyTorch's tutorial on forward-mode AD: tangents for the parameters of a module."""
    w.torch.manual_seed(0)
    model = w.nn.Linear(5, 5).double()
    x = w.array(16, 5)
    params = dict(model.named_parameters())
    tangents = {n: w.array(*p.shape, seed=3) for n, p in params.items()}
    with w.forward.dual_level():
        for n, p in params.items():
            delattr(model, n)
            setattr(model, n, w.forward.make_dual(p, tangents[n]))
        return w.forward.unpack_dual(model(x)).tangent.detach()


def _dual_function(w: World):
    class Scale(w.torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_forward(x)
            return x * x

        @staticmethod
        def jvp(ctx, t):
            return 2 * ctx.saved_tensors[0] * t if hasattr(ctx, "saved_tensors") else t

        @staticmethod
        def backward(ctx, g):
            return g

    with w.forward.dual_level():
        found = w.forward.unpack_dual(Scale.apply(w.forward.make_dual(w.array(3), w.array(3, seed=2))) * 2)
    return found.primal


def _dual_writes(w: World):
    x, v = w.array(4), w.array(4, seed=2)
    with w.forward.dual_level():
        d = w.forward.make_dual(x.clone(), v)
        y = w.torch.zeros(2, 4, dtype=w.torch.float64)
        first = y[0]
        y[1] = d * d
        first.add_(d)
        d2 = d * 3
        d2[1:3] = 0
        d2.mul_(d)
        return [w.forward.unpack_dual(t) for t in (y, first, y[1, 2:], d2)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    same(PROGRAMS[name])


ERRORS = {
    "types": (lambda w: w.functional.vjp(lambda x: x, [1.0]), "must be either a Tensor or a tuple of Tensors but the given inputs has type"),
    "type of an entry": (lambda w: w.functional.vjp(lambda *x: x[0], (w.array(3), 2)), "value at index 1 has type"),
    "type of outputs": (lambda w: w.functional.vjp(lambda x: [x], w.array(3)), "outputs of the user-provided function"),
    "v is needed": (lambda w: w.functional.vjp(lambda x: x, w.array(3)), "The vector v can only be None if"),
    "v of jvp is needed": (lambda w: w.functional.jvp(lambda x: x, w.array(3)), "The vector v can only be None if the input to the user-provided"),
    "size of v": (lambda w: w.functional.vjp(lambda x: x, w.array(3), w.array(2)), "v has invalid size: should be torch.Size([3]) but got torch.Size([2])."),
    "length of v": (lambda w: w.functional.jvp(two, pair(w), (w.array(3),)), "v is a tuple of invalid length: should be 2 but got 1."),
    "strict vjp": (lambda w: w.functional.vjp(lambda x: w.array(3), w.array(3), w.array(3), strict=True), "does not require gradients"),
    "strict input": (lambda w: w.functional.vjp(lambda x, y: x * 2, pair(w), w.array(3), strict=True), "is independent of input 1"),
    "strict jacobian": (lambda w: w.functional.jacobian(lambda x, y: x * 2, pair(w), strict=True), "Output 0 of the user-provided function is"),
    "strict hessian": (lambda w: w.functional.hessian(lambda x: x.sum(), w.array(3), strict=True), "jacobian"),
    "strict vectorized": (lambda w: w.functional.jacobian(lambda x: x, w.array(3), strict=True, vectorize=True), "are not supported together"),
    "strategy": (lambda w: w.functional.jacobian(lambda x: x, w.array(3), strategy="any"), "forward-mode"),
    "forward without vectorize": (lambda w: w.functional.jacobian(lambda x: x, w.array(3), strategy="forward-mode"), "vectorize=True"),
    "forward graph": (lambda w: w.functional.jacobian(lambda x: x, w.array(3), create_graph=True, strategy="forward-mode"), "not supported together"),
    "hessian of two": (lambda w: w.functional.hessian(lambda x: (x.sum(), x.sum()), w.array(3)), "should return a single Tensor"),
    "hessian of a vector": (lambda w: w.functional.hessian(lambda x: x, w.array(3)), "should contain a single element"),
    "vhp of a vector": (lambda w: w.functional.vhp(lambda x: x, w.array(3), w.array(3)), "should contain a single element"),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_error(name: str) -> None:
    program, *parts = ERRORS[name]
    same_error(program, *parts)


def test_dual_numbers_end_with_their_level() -> None:
    forward = ft.autograd.forward_ad
    with forward.dual_level():
        kept = forward.make_dual(ft.ones(2), ft.ones(2)) * 2
    assert type(kept) is ft.Tensor
    assert (kept + 1).tolist() == [3.0, 3.0]


def test_draws_from_dual_numbers() -> None:
    """What is drawn by probabilities, means and rates has tangents of zero, as PyTorch's; a binomial draw has none, and says so."""
    torch = pytest.importorskip("torch")
    calls: dict[str, Any] = {
        "bernoulli": lambda m, d: m.bernoulli(d),
        "normal of means": lambda m, d: m.normal(d, 1.0),
        "normal of deviations": lambda m, d: m.normal(0.0, d),
        "normal of both": lambda m, d: m.normal(d, m.ones(3)),
        "poisson": lambda m, d: m.poisson(d),
        "bernoulli_": lambda m, d: d.clone().bernoulli_(0.5),
        "normal_": lambda m, d: d.clone().normal_(),
        "rand_like": lambda m, d: m.rand_like(d),
        "dropout": lambda m, d: m.nn.functional.dropout(d),
        "binomial": lambda m, d: m.binomial(d * 6, d),
    }
    for name, call in calls.items():
        found: list[Any] = []
        for m in (ft, torch):
            m.manual_seed(0)
            with m.autograd.forward_ad.dual_level():
                d = m.autograd.forward_ad.make_dual(m.full((3,), 0.5), m.full((3,), 2.0))
                try:
                    primal, tangent = m.autograd.forward_ad.unpack_dual(call(m, d))
                    found.append(([round(v, 4) for v in primal.tolist()], None if tangent is None else tangent.tolist()))
                except NotImplementedError:
                    found.append("not implemented")
        assert found[0] == found[1], name
