"""What surprises in PyTorch's autograd, by both: writes in place, views, hooks, `.data`, flags: the same values, or the same type of error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")
PROGRAMS: list[Callable[[Any], Any]] = []
# Where PyTorch refuses and flambeau computes: it needs none of the values that were written, or has no reason to (docs/differences.md).
COMPUTED = set(
    """relu_out_then_inplace mul_self inf_in_autograd inf_inplace_outside
    inf_requires""".split()
)


def program(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Add a program: what it returns, or the error that it ends with, is compared."""
    PROGRAMS.append(f)
    return f


def leaf(t: Any, *shape: int) -> Any:
    """Increasing numbers with gradients."""
    return (t.arange(int(np.prod(shape)), dtype=t.float64) * 0.25 + 1).reshape(shape).clone().requires_grad_()


@program
def expand_inplace(t: Any) -> Any:
    x = leaf(t, 3)
    y = (x * 2).expand(2, 3)
    y.add_(1)


@program
def expand_view_inplace(t: Any) -> Any:
    x = leaf(t, 3)
    y = (x * 2).expand(2, 3)
    y[0].add_(1)


@program
def as_strided_views(t: Any) -> Any:
    x = leaf(t, 6)
    y = x * 2
    v = y.as_strided((2, 2), (3, 1))
    u = v.as_strided((2,), (3,), 1)
    u.mul_(3)
    (y * y).sum().backward()
    return x.grad, y, v, u


@program
def as_strided_leaf(t: Any) -> Any:
    x = leaf(t, 6)
    v = x.as_strided((3, 3), (1, 1))
    (v * v).sum().backward()
    return x.grad


@program
def leaf_inplace(t: Any) -> Any:
    leaf(t, 3).mul_(2)


@program
def leaf_view_inplace(t: Any) -> Any:
    x = leaf(t, 3)
    x.view(3, 1)[1].mul_(2)


@program
def leaf_inplace_nograd_then(t: Any) -> Any:
    x = leaf(t, 3)
    y = x * x
    with t.no_grad():
        x.mul_(2)
    y.sum().backward()


@program
def saved_inplace(t: Any) -> Any:
    x = leaf(t, 3)
    y = x.exp()
    z = y * 1
    y.add_(1)
    (z.sum() + y.sum()).backward()


@program
def sigmoid_out_inplace(t: Any) -> Any:
    x = leaf(t, 3)
    y = x.sigmoid()
    y.mul_(2)
    y.sum().backward()


@program
def relu_inplace_ok(t: Any) -> Any:
    x = leaf(t, 3)
    y = x - 1.2
    y.relu_()
    (y * 1).sum().backward()
    return x.grad


@program
def relu_out_then_inplace(t: Any) -> Any:
    x = leaf(t, 3)
    y = x.relu()
    y.add_(1)
    y.sum().backward()


@program
def hook_writes(t: Any) -> Any:
    x = leaf(t, 3)
    y = x * 2
    y.register_hook(lambda g: g.mul_(3))
    (y * y).sum().backward()
    return x.grad


@program
def hook_writes_leaf(t: Any) -> Any:
    x = leaf(t, 3)
    x.register_hook(lambda g: g.clone().zero_())
    (x * x).sum().backward()
    return x.grad


@program
def hook_modifies_other(t: Any) -> Any:
    x = leaf(t, 3)
    s = t.zeros(3, dtype=t.float64)
    y = x * 2
    y.register_hook(lambda g: s.add_(g) and None if False else (s.add_(g), None)[1])
    (y * y).sum().backward()
    return x.grad, s


@program
def retain_inplace(t: Any) -> Any:
    x = leaf(t, 3)
    y = x * 2
    y.retain_grad()
    y.mul_(3)
    (y * y).sum().backward()
    return x.grad, y.grad


@program
def retain_then_view_inplace(t: Any) -> Any:
    x = leaf(t, 4)
    y = x * 2
    y.retain_grad()
    y[1:].mul_(3)
    (y * y).sum().backward()
    return x.grad, y.grad


@program
def hook_then_inplace(t: Any) -> Any:
    x = leaf(t, 3)
    y = x * 2
    y.register_hook(lambda g: g * 10)
    y.mul_(3)
    (y * y).sum().backward()
    return x.grad


@program
def double_backward_inplace(t: Any) -> Any:
    x = leaf(t, 3)
    y = x * x
    y.mul_(x)
    y[0] = y[1] * 2
    (g,) = t.autograd.grad((y * y).sum(), x, create_graph=True)
    (h,) = t.autograd.grad(g.sum(), x)
    return g, h


@program
def double_backward_fill(t: Any) -> Any:
    x = leaf(t, 3)
    y = x * x
    y[1:].zero_()
    y.add_(x)
    (g,) = t.autograd.grad((y**3).sum(), x, create_graph=True)
    (h,) = t.autograd.grad((g * g).sum(), x)
    return g, h


@program
def checkpoint_inplace(t: Any) -> Any:
    cp = t.utils.checkpoint.checkpoint

    def f(a):
        b = a * 2
        b.sin_()
        b[0] = a[1]
        return b * a

    x = leaf(t, 3)
    cp(f, x, use_reentrant=False).sum().backward()
    return x.grad


@program
def checkpoint_input_inplace(t: Any) -> Any:
    cp = t.utils.checkpoint.checkpoint
    x = leaf(t, 3)
    a = x * 2
    y = cp(lambda v: v.sin() * v, a, use_reentrant=False)
    a.add_(1)
    y.sum().backward()
    return x.grad


@program
def set_on_leaf(t: Any) -> Any:
    x = leaf(t, 3)
    with t.no_grad():
        x.set_(t.ones(3, dtype=t.float64) * 5)
    y2 = (x * x).sum()
    y2.backward()
    return x.grad, x


@program
def set_grad(t: Any) -> Any:
    x = leaf(t, 3)
    x.set_(t.ones(3, dtype=t.float64) * 5)
    return x


@program
def data_assign(t: Any) -> Any:
    x = leaf(t, 3)
    y = (x * x).sum()
    x.data = t.ones(3, dtype=t.float64) * 7
    y.backward()
    return x.grad, x


@program
def data_assign_shape(t: Any) -> Any:
    x = leaf(t, 3)
    x.data = t.ones(2, 2, dtype=t.float64)
    (x * x).sum().backward()
    return x.grad


@program
def data_assign_dtype(t: Any) -> Any:
    x = leaf(t, 3)
    x.data = t.ones(3)
    (x * x).sum().backward()
    return x.grad


@program
def data_assign_int(t: Any) -> Any:
    x = leaf(t, 3)
    x.data = t.ones(3, dtype=t.int64)


@program
def data_nonleaf(t: Any) -> Any:
    x = leaf(t, 3)
    y = x * 2
    y.data = t.ones(3, dtype=t.float64)
    (y * y).sum().backward()
    return x.grad, y


@program
def req_midway(t: Any) -> Any:
    a = t.ones(3, dtype=t.float64)
    b = a * 2
    a.requires_grad_()
    c_ = a * 3
    (b * c_).sum().backward()
    return a.grad, b.requires_grad


@program
def req_off(t: Any) -> Any:
    a = leaf(t, 3)
    b = a * 2
    a.requires_grad_(False)
    c_ = a * 3
    (b * c_).sum().backward()
    return a.grad, c_.requires_grad


@program
def req_view(t: Any) -> Any:
    a = t.ones(4, dtype=t.float64)
    v = a[1:]
    v.requires_grad_()
    (a * 1).sum()
    (v * v).sum().backward()
    return v.grad, a.requires_grad


@program
def req_view_inplace(t: Any) -> Any:
    a = t.ones(4, dtype=t.float64)
    v = a[1:]
    v.requires_grad_()
    a.mul_(2)
    (v * v).sum().backward()
    return v.grad


@program
def inf_in_autograd(t: Any) -> Any:
    with t.inference_mode():
        a = t.ones(3, dtype=t.float64)
    x = leaf(t, 3)
    return (x * a).sum().backward()


@program
def inf_update(t: Any) -> Any:
    with t.inference_mode():
        a = t.ones(3, dtype=t.float64)
        a.add_(1)
    return a + 1


@program
def inf_inplace_outside(t: Any) -> Any:
    with t.inference_mode():
        a = t.ones(3, dtype=t.float64)
    a.add_(1)
    return a


@program
def inf_requires(t: Any) -> Any:
    with t.inference_mode():
        a = t.ones(3, dtype=t.float64)
    a.requires_grad_()


@program
def unbind_inplace(t: Any) -> Any:
    x = leaf(t, 2, 2)
    y = x * 2
    y.unbind(0)[0].mul_(2)


@program
def split_inplace(t: Any) -> Any:
    x = leaf(t, 4)
    y = x * 2
    y.split(2)[0].mul_(2)


@program
def chunk_nograd_inplace(t: Any) -> Any:
    y = t.ones(4)
    a, b = y.chunk(2)
    a.mul_(3)
    return y, b


@program
def iter_inplace(t: Any) -> Any:
    y = t.ones(2, 2)
    for r in y:
        r.add_(t.arange(2.0))
    return y


@program
def iter_inplace_grad(t: Any) -> Any:
    y = leaf(t, 2, 2) * 1
    for r in y:
        r.add_(1)


@program
def nograd_view_inplace(t: Any) -> Any:
    x = leaf(t, 3)
    y = x * 2
    with t.no_grad():
        v = y[1:]
    v.mul_(2)
    (y * y).sum().backward()
    return x.grad


@program
def copy_self(t: Any) -> Any:
    x = leaf(t, 3)
    y = x * 2
    z = y.sin()
    y.copy_(y)
    z.sum().backward()


@program
def mul_self(t: Any) -> Any:
    x = leaf(t, 3)
    y = x * 2
    y.mul_(y)
    y.sum().backward()


@program
def pow_self(t: Any) -> Any:
    x = leaf(t, 3)
    y = x * 2
    y.pow_(2)
    y.sum().backward()
    return x.grad


@program
def div_inplace(t: Any) -> Any:
    x = leaf(t, 3)
    w = leaf(t, 3)
    y = x * 2
    y.div_(w)
    y.sum().backward()
    return x.grad, w.grad


@program
def exp_inplace(t: Any) -> Any:
    x = leaf(t, 3)
    y = x * 2
    y.exp_()
    y.sum().backward()
    return x.grad


@program
def exp_inplace_twice(t: Any) -> Any:
    x = leaf(t, 3)
    y = x * 0.1
    y.exp_().exp_()
    y.sum().backward()
    return x.grad


@program
def sort_inplace(t: Any) -> Any:
    x = leaf(t, 3)
    y = x * 2
    s = y.sort()[0]
    s.mul_(2)
    (s * y).sum().backward()
    return x.grad


@program
def index_put_grad(t: Any) -> Any:
    x = leaf(t, 5)
    v = leaf(t, 2)
    y = x * 2
    y[t.tensor([0, 3])] = v
    y.index_put_((t.tensor([1]),), v[:1], accumulate=True)
    (y * y).sum().backward()
    return x.grad, v.grad


@program
def masked_scatter_grad(t: Any) -> Any:
    x = leaf(t, 4)
    v = leaf(t, 4)
    y = x * 2
    y.masked_scatter_(t.tensor([True, False, True, False]), v)
    (y * y).sum().backward()
    return x.grad, v.grad


@program
def backward_frees(t: Any) -> Any:
    x = leaf(t, 3)
    y = x.exp()
    y.sum().backward()
    y.sum().backward()


@program
def grad_is_written(t: Any) -> Any:
    x = leaf(t, 3)
    (x * x).sum().backward()
    g = x.grad
    g.zero_()
    (x * x).sum().backward()
    return g, x.grad, g is x.grad


@program
def grad_alias(t: Any) -> Any:
    x = leaf(t, 3)
    y = leaf(t, 3)
    (x + y).sum().backward()
    x.grad.mul_(2)
    return x.grad, y.grad


@program
def grad_inplace_between(t: Any) -> Any:
    x = leaf(t, 3)
    y = x * x
    y.sum().backward(retain_graph=True)
    x.grad.clamp_(max=2)
    y.sum().backward()
    return x.grad


@program
def swap_(t: Any) -> Any:
    x = leaf(t, 2, 3)
    y = x * 2
    y.t_()
    y.mul_(t.arange(2, dtype=t.float64))
    (y * y).sum().backward()
    return x.grad


@program
def resize_grad(t: Any) -> Any:
    x = leaf(t, 3)
    y = x * 2
    y.resize_(2)


@program
def leaf_detach_(t: Any) -> Any:
    x = leaf(t, 3)
    y = x * 2
    x.detach_()
    return x.requires_grad, y.requires_grad


@program
def view_detach_(t: Any) -> Any:
    x = leaf(t, 3)
    y = x * 2
    y[1:].detach_()


@program
def fn_saved_modified(t: Any) -> Any:
    class D(t.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            ctx.save_for_backward(a)
            return a * 2

        @staticmethod
        def backward(ctx, g):
            (a,) = ctx.saved_tensors
            return g * a

    x = leaf(t, 3)
    y = x * 2
    z = D.apply(y)
    y.add_(1)
    z.sum().backward()


@program
def fn_out_inplace(t: Any) -> Any:
    class D(t.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a * 2

        @staticmethod
        def backward(ctx, g):
            return g * 7

    x = leaf(t, 3)
    z = D.apply(x * 1)
    z.mul_(3)
    z[0] = 1.0
    (z * z).sum().backward()
    return x.grad


@program
def cumsum_loop(t: Any) -> Any:
    x = leaf(t, 4)
    y = x * 1
    for i in range(1, 4):
        y[i] = y[i] + y[i - 1]
    y.sum().backward()
    return x.grad


@program
def cumsum_loop_iadd(t: Any) -> Any:
    x = leaf(t, 4)
    y = x * 1
    for i in range(1, 4):
        y[i] += y[i - 1].detach() * x[i]
    y.sum().backward()
    return x.grad


@program
def version_counts(t: Any) -> Any:
    x = leaf(t, 3)
    y = x * 1
    v = y[1:]
    a = [y._version]
    v.mul_(1)
    a.append(y._version)
    y.detach().add_(0)
    a.append(v._version)
    y.data.add_(0)
    a.append(y._version)
    y[0] = 1
    a.append(y._version)
    return a


@program
def zero_grad_of_unused(t: Any) -> Any:
    x = leaf(t, 3)
    y = x * 0
    y.fill_(1)
    return t.autograd.grad(y.sum(), x)


@program
def sign_grad(t: Any) -> Any:
    x = leaf(t, 3)
    x.sign().sum().backward()
    return x.grad


@program
def floor_grad(t: Any) -> Any:
    x = leaf(t, 3)
    (x.floor() + x.round() + x.ceil() + x.trunc()).sum().backward()
    return x.grad


@program
def zeros_like_grad(t: Any) -> Any:
    x = leaf(t, 3)
    y = t.zeros_like(x)
    return y.requires_grad


@program
def masked_fill_all(t: Any) -> Any:
    x = leaf(t, 3)
    y = (x * 2).masked_fill(x > -1, 0.0)
    y.sum().backward()
    return x.grad


@program
def where_all(t: Any) -> Any:
    x = leaf(t, 3)
    w = leaf(t, 3)
    t.where(x > -1, x, w).sum().backward()
    return x.grad, w.grad


@program
def clamp_out(t: Any) -> Any:
    x = leaf(t, 3)
    x.clamp(5, 6).sum().backward()
    return x.grad


@program
def empty_index(t: Any) -> Any:
    x = leaf(t, 3)
    x[t.tensor([], dtype=t.int64)].sum().backward()
    return x.grad


@program
def empty_slice(t: Any) -> Any:
    x = leaf(t, 3)
    x[3:].sum().backward()
    return x.grad


@program
def copy_partial_self(t: Any) -> Any:
    x = leaf(t, 6)
    y = x * 1
    y[3:].copy_(y[:3])
    (y * y).sum().backward()
    return x.grad


@program
def nan_hook(t: Any) -> Any:
    x = leaf(t, 3)
    y = x * 2
    h = y.register_hook(lambda g: None)
    h.remove()
    y.sum().backward()
    return x.grad


@program
def post_acc(t: Any) -> Any:
    x = leaf(t, 3)

    def upd(p):
        with t.no_grad():
            p.sub_(p.grad)
            p.grad = None

    x.register_post_accumulate_grad_hook(upd)
    (x * x).sum().backward()
    return x.detach(), x.grad


@program
def real_view_inplace(t: Any) -> Any:
    x = t.tensor([1 + 2j, 3 - 1j], dtype=t.complex128).requires_grad_()
    y = x * 2
    t.view_as_real(y)[:, 0].mul_(3)
    (y * y.conj()).real.sum().backward()
    return x.grad.real, x.grad.imag


def flat(value: Any) -> list[Any]:
    if value is None or isinstance(value, (bool, int)):
        return [value]
    if isinstance(value, (tuple, list)):
        return [part for parts in value for part in flat(parts)]
    return [value.detach().numpy()]


def outcome(t: Any, f: Callable[[Any], Any]) -> Any:
    try:
        return flat(f(t))
    except Exception as error:
        return type(error)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_surprise(f: Callable[[Any], Any], each_tier: str) -> None:
    theirs = outcome(torch, f)
    for _ in range(2):
        ours = outcome(flambeau, f)
        if f.__name__ in COMPUTED:
            assert isinstance(theirs, type) and not isinstance(ours, type)
        elif isinstance(theirs, type) or isinstance(ours, type):
            assert ours is theirs
        else:
            assert [v is None for v in ours] == [v is None for v in theirs]
            for mine, expected in zip(ours, theirs, strict=True):
                if mine is not None:
                    np.testing.assert_allclose(mine, expected, rtol=1e-9)
