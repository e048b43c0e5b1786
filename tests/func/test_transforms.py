"""The transforms and their compositions against torch.func."""

from __future__ import annotations

import pytest

import flambeau as ft
from tests.func.oracle import World, same


def f(w: World, x, y=None):
    """A function of vectors with vector values."""
    m = w.torch
    a = w.array(4, 3, seed=1)
    return m.tanh(a @ x) * x.sum() + (0 if y is None else (y * y).sum())


def g(w: World, x):
    """A function of vectors with one value."""
    return (f(w, x) ** 2).sum() + x.prod()


PROGRAMS = {
    "grad": lambda w: w.func.grad(lambda x: g(w, x))(w.array(3)),
    "grad argnums": lambda w: w.func.grad(lambda x, y: f(w, x, y).sum(), argnums=(1, 0))(w.array(3), w.array(2)),
    "grad of trees": lambda w: w.func.grad(lambda t: (t["a"] * t["b"][0]).sum() + t["b"][1].sum())({"a": w.array(3), "b": (w.array(3, seed=1), w.array(2))}),
    "grad aux": lambda w: w.func.grad_and_value(lambda x: (g(w, x), {"y": x * 2}), has_aux=True)(w.array(3)),
    "grad kwargs": lambda w: w.func.grad(lambda x, scale=1.0: (x * scale).sum())(w.array(3), scale=3.0),
    "grad grad": lambda w: w.func.grad(w.func.grad(lambda x: x**3))(w.torch.tensor(2.0)),
    "confusion": lambda w: w.func.grad(lambda x: x * w.func.grad(lambda y: x * y)(w.torch.tensor(3.0)))(w.torch.tensor(2.0)),
    "no dependence": lambda w: w.func.grad(lambda x, y: (y * 2).sum(), argnums=(0, 1))(w.array(3), w.array(2)),
    "no_grad inside": lambda w: w.func.grad(lambda x: _without(w, x))(w.array(3)),
    "no_grad outside": lambda w: _under_no_grad(w, lambda: w.func.grad(lambda x: g(w, x))(w.array(3))),
    "outer graph": lambda w: _outer_graph(w),
    "detached": lambda w: w.func.grad(lambda x: (x.detach() * x).sum())(w.array(3)),
    "vjp": lambda w: _vjp(w),
    "vjp aux": lambda w: _vjp_aux(w),
    "jvp": lambda w: w.func.jvp(lambda x: f(w, x), (w.array(3),), (w.array(3, seed=2),)),
    "jvp two": lambda w: w.func.jvp(lambda x, y: {"a": f(w, x, y), "b": x * 2}, (w.array(3), w.array(2)), (w.array(3, seed=2), w.array(2, seed=3))),
    "jvp aux": lambda w: w.func.jvp(lambda x: (f(w, x), x * 3), (w.array(3),), (w.array(3, seed=2),), has_aux=True),
    "jvp constant": lambda w: w.func.jvp(lambda x: (w.torch.ones(2), x), (w.array(3),), (w.array(3, seed=2),)),
    "linearize": lambda w: _linearize(w),
    "jacrev": lambda w: w.func.jacrev(lambda x: f(w, x))(w.array(3)),
    "jacrev many": lambda w: w.func.jacrev(lambda x, y: {"u": f(w, x, y), "v": (x, y.sum())}, argnums=(0, 1))(w.array(3), w.array(2)),
    "jacrev chunks": lambda w: [w.func.jacrev(lambda x: f(w, x), chunk_size=c)(w.array(3)) for c in (1, 2, 3, 10)],
    "jacrev aux": lambda w: w.func.jacrev(lambda x: (f(w, x), x), has_aux=True)(w.array(3)),
    "jacrev integer argument": lambda w: w.func.jacrev(lambda x, i: x[i] * x, argnums=0)(w.array(3), w.torch.tensor([2, 0, 1])),
    "jacfwd": lambda w: w.func.jacfwd(lambda x: f(w, x))(w.array(3)),
    "jacfwd many": lambda w: w.func.jacfwd(lambda x, y: {"u": f(w, x, y), "v": (x, y.sum())}, argnums=(1, 0))(w.array(3), w.array(2)),
    "jacfwd aux": lambda w: w.func.jacfwd(lambda x: (f(w, x), x), has_aux=True)(w.array(3)),
    "jacobians of scalars": lambda w: [j(lambda x: x**2)(w.torch.tensor(3.0)) for j in (w.func.jacrev, w.func.jacfwd)],
    "hessian": lambda w: w.func.hessian(lambda x: g(w, x))(w.array(3)),
    "hessian argnums": lambda w: w.func.hessian(lambda x, y: (x * x).sum() * y.prod(), argnums=(0, 1))(w.array(3), w.array(2)),
    "hessians": lambda w: [a(b(lambda x: g(w, x)))(w.array(3)) for a in (w.func.jacrev, w.func.jacfwd) for b in (w.func.jacrev, w.func.jacfwd)],
    "third": lambda w: w.func.jacfwd(w.func.jacrev(w.func.jacfwd(lambda x: x.sin())))(w.array(2)),
    "vmap": lambda w: w.func.vmap(lambda x: f(w, x))(w.array(5, 3)),
    "vmap dims": lambda w: w.func.vmap(lambda x, y: (x * y, y.sum()), in_dims=(1, -1), out_dims=(1, 0))(w.array(3, 5), w.array(3, 5)),
    "vmap trees": lambda w: w.func.vmap(lambda t, s: {"a": t["x"] + s, "b": [t["y"]]}, in_dims=({"x": 0, "y": None}, 0))(
        {"x": w.array(4, 2), "y": w.array(3)}, w.array(4)),
    "vmap of unbatched": lambda w: w.func.vmap(lambda x: w.torch.arange(3))(w.array(2, 2)),
    "vmap out None": lambda w: w.func.vmap(lambda x: (x, 7), out_dims=(0, None))(w.array(2, 2)),
    "vmap chunks": lambda w: [w.func.vmap(lambda x: f(w, x), chunk_size=c, out_dims=1)(w.array(5, 3)) for c in (1, 2, 5)],
    "vmap vmap": lambda w: w.func.vmap(w.func.vmap(lambda x, y: x @ y, (None, 0)), (0, None))(w.array(2, 3), w.array(4, 3)),
    "vmap three": lambda w: w.func.vmap(w.func.vmap(w.func.vmap(lambda x, y, z: x * y - z, (0, None, None)), (None, 0, None)), (None, None, 0))(
        w.array(2), w.array(3), w.array(4)),
    "vmap grad": lambda w: w.func.vmap(w.func.grad(lambda x: g(w, x)))(w.array(5, 3)),
    "vmap jacobians": lambda w: [w.func.vmap(j(lambda x: f(w, x)))(w.array(5, 3)) for j in (w.func.jacrev, w.func.jacfwd, w.func.jacrev)],
    "vmap hessian": lambda w: w.func.vmap(w.func.hessian(lambda x: g(w, x)))(w.array(5, 3)),
    "vmap jvp": lambda w: w.func.vmap(lambda x, v: w.func.jvp(lambda y: f(w, y), (x,), (v,)))(w.array(5, 3), w.array(5, 3, seed=2)),
    "vmap of directions": lambda w: w.func.vmap(lambda v: w.func.jvp(lambda y: f(w, y), (w.array(3),), (v,))[1])(w.array(5, 3)),
    "vmap vjp": lambda w: w.func.vmap(lambda v: w.func.vjp(lambda y: f(w, y), w.array(3))[1](v))(w.array(5, 4)),
    "grad vmap": lambda w: w.func.grad(lambda x: (w.func.vmap(lambda y: f(w, y))(x) ** 2).sum())(w.array(5, 3)),
    "jvp vmap": lambda w: w.func.jvp(w.func.vmap(lambda x: f(w, x), 1, 1), (w.array(3, 5),), (w.array(3, 5, seed=2),)),
    "jvp grad": lambda w: w.func.jvp(w.func.grad(lambda x: g(w, x)), (w.array(3),), (w.array(3, seed=2),)),
    "grad jvp": lambda w: w.func.grad(lambda x: w.func.jvp(lambda y: g(w, y), (x,), (w.array(3, seed=2),))[1])(w.array(3)),
    "jvp jvp": lambda w: w.func.jvp(lambda x: w.func.jvp(lambda y: g(w, y), (x,), (x * x,))[1], (w.array(3),), (w.array(3, seed=2),)),
    "jvp of vjp": lambda w: w.func.jvp(lambda x: w.func.vjp(lambda y: f(w, y), x)[1](x.sum() * w.array(4, seed=4))[0], (w.array(3),), (w.array(3, seed=2),)),
    "vmap jvp grad": lambda w: w.func.vmap(lambda x, v: w.func.jvp(w.func.grad(lambda y: g(w, y)), (x,), (v,))[1])(w.array(4, 3), w.array(4, 3, seed=2)),
    "hessian by reverse twice": lambda w: w.func.vmap(lambda v: w.func.vjp(w.func.grad(lambda x: g(w, x)), w.array(3))[1](v)[0])(w.torch.eye(3).double()),
    "per sample": lambda w: w.func.vmap(w.func.grad(lambda p, x: g(w, p * x)), (None, 0))(w.array(3), w.array(5, 3)),
    "writes": lambda w: _writes(w),
    "writes under jacfwd": lambda w: [j(lambda x: _filled(w, x))(w.array(4)) for j in (w.func.jacrev, w.func.jacfwd)],
    "views that are written": lambda w: w.func.vmap(lambda x: _into_views(w, x))(w.array(3, 2, 4)),
    "indices": lambda w: w.func.vmap(lambda x, i: (x[i], x.gather(0, i), x.index_select(0, i), w.torch.take(x, i)))(
        w.array(3, 5), w.torch.tensor([[0, 4], [1, 1], [-5 + 5, 2]])),
    "indices into one": lambda w: w.func.vmap(lambda x, i: (x[i], x[:, i], w.F.embedding(i, x)), (None, 0))(w.array(5, 5), w.torch.tensor([[0, 4], [1, 1]])),
    "scatters": lambda w: w.func.vmap(lambda x, i, s: (x.scatter(0, i, s), x.scatter_add(0, i, s), x.index_add(0, i, s), x.index_put((i,), s)))(
        w.array(3, 5), w.torch.tensor([[0, 4], [1, 2], [3, 0]]), w.array(3, 2, seed=1)),
    "linear algebra": lambda w: w.func.vmap(lambda a, b: (w.torch.linalg.solve(a, b), w.torch.linalg.cholesky(a), w.torch.linalg.slogdet(a)[1]))(
        w.array(3, 4, 4) @ w.array(3, 4, 4).mT + 5 * w.torch.eye(4).double(), w.array(3, 4, 2)),
    "convolutions": lambda w: _convolutions(w),
    "dtypes": lambda w: w.func.vmap(lambda x: (x + 1, x * 1.5, x > 0, x.sum(), x.float() / 2))(w.torch.arange(6).reshape(2, 3)),
    "samples without dims": lambda w: w.func.vmap(lambda x, y: (x + y, x * 2, x.unsqueeze(0), w.torch.stack([x, x]), y + x.int()))(
        w.torch.arange(3).float(), w.torch.arange(3)),
    "empty batch of features": lambda w: w.func.vmap(lambda x: x.sum())(w.torch.zeros(3, 0)),
    "is_grads_batched": lambda w: _grads_batched(w),
    "vmap over autograd.grad": lambda w: _vmap_autograd(w),
    "einsum": lambda w: w.func.vmap(lambda a, b: w.torch.einsum("ij,kj->ik", a, b), (0, None))(w.array(2, 3, 4), w.array(5, 4)),
    "complex": lambda w: (w.func.grad(lambda x: (w.torch.complex(x, x * 2).exp().abs()).sum())(w.array(3)),
                          w.func.jvp(lambda x: w.torch.complex(x, x * x).exp(), (w.array(3),), (w.array(3, seed=1),))),
}  # fmt: skip


def _without(w: World, x):
    with w.torch.no_grad():
        c = x**2
    return (x * c).sum()


def _under_no_grad(w: World, run):
    with w.torch.no_grad():
        return run()


def _outer_graph(w: World):
    """A parameter of the user's that the function closes over keeps its history; what the transform tracked leaves none."""
    p = w.array(3).requires_grad_()
    found = w.func.grad(lambda x: (x * x * p).sum())(w.array(3, seed=1))
    (again,) = w.torch.autograd.grad(found.sum(), p)
    x = w.array(3).requires_grad_()
    first = w.func.grad(lambda y: (y**3).sum())(x)
    (second,) = w.torch.autograd.grad(first.sum(), x)
    free = w.func.grad(lambda y: (y**3).sum())(x.detach())
    return found, again, first, second, free


def _vjp(w: World):
    output, pull = w.func.vjp(lambda x, y: (f(w, x, y), x.sum()), w.array(3), w.array(2))
    return output, pull((output[0], output[1])), pull((w.array(4, seed=9), w.torch.tensor(1.0).double()))


def _vjp_aux(w: World):
    output, pull, aux = w.func.vjp(lambda x: ({"a": x.sin()}, [x * 2]), w.array(3), has_aux=True)
    return output, pull({"a": w.array(3, seed=1)}), aux


def _linearize(w: World):
    output, push = w.func.linearize(lambda x, y: f(w, x, y), w.array(3), w.array(2))
    return output, push(w.array(3, seed=2), w.array(2, seed=3)), push(w.array(3, seed=4), w.array(2, seed=5))


def _writes(w: World):
    def body(x):
        y = x.clone()
        y[0] = 5
        y.mul_(x)
        z = w.torch.zeros_like(x)
        z[1:] = y[1:] ** 2
        z += x.sum()
        n = x.new_zeros(2)
        n[0] = x[1]
        return y, z, n

    def scalar(x):
        y, z, n = body(x)
        return (y * z).sum() + n.sum()

    return w.func.vmap(body)(w.array(3, 4)), w.func.grad(scalar)(w.array(4)), w.func.vmap(w.func.grad(scalar))(w.array(3, 4))


def _filled(w: World, x):
    y = w.torch.zeros(4, dtype=w.torch.float64)
    y[1:] = x[1:] ** 2
    y[0] = x[0] * x[3]
    return y * 2


def _into_views(w: World, x):
    y = x * 1
    y.t()[1].mul_(2)
    y.view(-1)[::3] += 1
    y.select(0, 1).copy_(x[0])
    return y, x


def _convolutions(w: World):
    x, k = w.array(3, 2, 4, 7, 7), w.array(3, 6, 4, 3, 3, seed=1)
    conv = w.F.conv2d
    results = [w.func.vmap(conv, d)(a, b) for a, b, d in ((x, k, (0, 0)), (x, k[0], (0, None)), (x[0], k, (None, 0)))]
    grouped = w.func.vmap(lambda a, b: conv(a, b, groups=2, padding=1))(x, w.array(3, 6, 2, 3, 3, seed=1))
    loss = lambda b, a: (conv(a, b, stride=2) ** 2).sum()
    each = w.func.vmap(w.func.grad(loss), (None, 0))(k[0], x)
    both = w.func.vmap(w.func.grad(loss, (0, 1)))(k, x)
    transposed = w.func.vmap(w.F.conv_transpose2d, (0, None))(x, w.array(4, 5, 3, 3, seed=2))
    return results, grouped, each, both, transposed


def _grads_batched(w: World):
    x = w.array(3).requires_grad_()
    y = f(w, x)
    (jacobian,) = w.torch.autograd.grad(y, x, w.torch.eye(4).double(), is_grads_batched=True, retain_graph=True)
    y.sum().item()
    unused = w.array(2).requires_grad_()
    return jacobian, w.torch.autograd.grad(y, [x, unused], w.torch.eye(4).double(), is_grads_batched=True, allow_unused=True, materialize_grads=True)


def _vmap_autograd(w: World):
    x = w.array(3).requires_grad_()
    y = f(w, x)
    return w.torch.vmap(lambda v: w.torch.autograd.grad(y, x, v, retain_graph=True)[0])(w.torch.eye(4).double())


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    same(PROGRAMS[name])


def test_a_second_call_records_nothing_new() -> None:
    """Transformed functions follow edges that are known; nothing is expanded or compiled again."""
    w = World("flambeau")
    x = w.array(5, 3)
    transformed = w.func.vmap(w.func.hessian(lambda y: g(w, y)))

    def once() -> float:
        return float(transformed(x).sum())

    for _ in range(16):  # calls on a path in pieces are kept after some visits (trace/kept.py)
        expected = once()
    before = ft.stats()
    assert once() == expected
    after = ft.stats()
    assert after["slow_path_entries"] == before["slow_path_entries"]
    assert after["plans_made"] == before["plans_made"]
