"""Functions under random compositions of transforms, beside PyTorch: `python -m tests.func.transform_programs [SEED] [--count N]`.

A function of the last dimension is made of a few random operations; over it go up to three transforms of `torch.func`, of `torch.autograd`, of checkpoints,
of compiling. Each is called with a few shapes, twice each, so that the second call goes the way that the first has taught. Without a seed: 200 of today's.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import flambeau
from tests import daily
from tests.daily import relative, scale_of

Function = Callable[[Any], Any]
TOLERANCE = 1e-7  # of float64, relative: third derivatives of a few operations lose some digits
MOST = 1e6  # numbers that are greater come from sines of great numbers, mostly, and are noise
SHAPES = ((4,), (3, 4), (5,), (2, 3, 4))


class Draw:
    """Random choices and constants, the same for both libraries."""

    def __init__(self, m: Any, seed: int, nudge: int = 0) -> None:
        self.m, self.choose = m, random.Random(seed)
        self.nudge = None if not nudge else np.random.default_rng([nudge, seed])

    def constant(self, *shape: int) -> Any:
        """Numbers of [-1, 1]."""
        numbers = [round(self.choose.uniform(-1, 1), 3) for _ in range(math.prod(shape))]
        data = np.asarray(numbers).reshape(shape)
        if self.nudge is not None:
            data = data * (1 + self.nudge.choice([-1, 1], shape) * 2.0**-52)
        return self.m.tensor(data.tolist(), dtype=self.m.float64)

    def index(self, most: int, *shape: int) -> Any:
        """Whole numbers below `most`."""
        return self.m.tensor(np.asarray([self.choose.randrange(most) for _ in range(math.prod(shape))]).reshape(shape).tolist())


def _written(m: Any, x: Any, k: int) -> Any:
    y = x.sin().clone()
    y[..., k % 2] = y[..., 1] * 2
    y.mul_(x).add_(0.25)
    return y


def _square(m: Any, x: Any) -> Any:
    """A vector divided by a positive definite matrix of it. (PyTorch's `solve` has wrong second derivatives: docs/differences.md.)"""
    matrix = x.unsqueeze(-1) * x.unsqueeze(-2) + 2 * m.eye(x.shape[-1], dtype=x.dtype)
    return (m.linalg.inv(matrix) @ x.unsqueeze(-1)).squeeze(-1)


def _factor(m: Any, x: Any) -> Any:
    matrix = x.unsqueeze(-1) * x.unsqueeze(-2) + 2 * m.eye(x.shape[-1], dtype=x.dtype)
    return m.linalg.cholesky(matrix).sum(-1)


def operations(d: Draw) -> list[Callable[[], Function]]:
    """Makers of operations: each takes (..., n), n from 2, and gives (..., k), k from 2."""
    m, r = d.m, d.choose
    F = m.nn.functional

    def plain(f: Function) -> Callable[[], Function]:
        return lambda: f

    def product() -> Function:
        w = d.constant(6, 3)
        return lambda x: x @ w[: x.shape[-1]] if x.shape[-1] <= 6 else x[..., :6] @ w

    def gathered() -> Function:
        i = d.index(2, 3)
        return lambda x: x[..., i] if r_odd else x.index_select(-1, i)

    def placed() -> Function:
        i = d.index(2, 2)
        return lambda x: m.zeros_like(x).index_add(-1, i, x[..., :2]) + x

    def scattered() -> Function:
        i = d.index(2, 2)
        return lambda x: x.scatter_add(-1, i.expand(*x.shape[:-1], 2), x[..., :2] * 3)

    def masked() -> Function:
        t = round(r.uniform(-0.5, 0.5), 3)
        return lambda x: m.where(x > t, x * 2, x.exp())

    def convolved() -> Function:
        w = d.constant(1, 1, 3)
        return lambda x: F.conv1d(x.reshape(-1, 1, x.shape[-1]), w, padding=1).reshape(x.shape)

    def summed() -> Function:
        c = d.constant(3, 2)
        return lambda x: m.einsum("...i,ij->...j", x[..., :2], c[:2])

    def shifted() -> Function:
        a, b = r.randrange(1, 3), r.randrange(-2, 3)
        return lambda x: F.pad(x, (a, 1)).roll(b, -1)

    r_odd, k = r.random() < 0.5, r.randrange(4)
    return [
        plain(lambda x: x.sin()), plain(lambda x: (-x * x).exp()), plain(lambda x: x.tanh() * x), plain(lambda x: F.softplus(x)), plain(lambda x: F.gelu(x)),
        plain(lambda x: x.cumsum(-1)), plain(lambda x: x.softmax(-1)), plain(lambda x: x.sort(-1).values), plain(lambda x: x.flip(-1) * x),
        plain(lambda x: x - x.mean(-1, keepdim=True)), plain(lambda x: m.cat([x, x.cos()], -1)), plain(lambda x: m.stack([x, x * x], -1).flatten(-2)),
        plain(lambda x: x * x.logsumexp(-1, keepdim=True)), plain(lambda x: x / (1 + x.norm(dim=-1, keepdim=True))), plain(lambda x: x.clamp(-0.4, 0.6)),
        # (PyTorch's layer_norm has a wrong gradient of its tangent: docs/differences.md.)
        plain(lambda x: F.group_norm(x.reshape(-1, 1, x.shape[-1]), 1).reshape(x.shape)), plain(lambda x: x.erf() + x.sigmoid()),
        plain(lambda x: x.amax(-1, keepdim=True) * x), plain(lambda x: x.prod(-1, keepdim=True) + x), plain(lambda x: (x + 2).cumprod(-1)),
        plain(lambda x: x.var(-1, keepdim=True) * x), plain(lambda x: x.atan2(x.cos())), plain(lambda x: F.log_softmax(x, -1)),
        plain(lambda x: _written(m, x, k)), plain(lambda x: _square(m, x)), plain(lambda x: _factor(m, x)), plain(lambda x: x.narrow(-1, 0, 2)),
        plain(lambda x: x.unfold(-1, 2, 1).sum(-1).repeat_interleave(2, -1)), plain(lambda x: m.linalg.vector_norm(x + 1, 3, -1, keepdim=True) * x),
        plain(lambda x: x.diff(dim=-1, prepend=x[..., :1])), plain(lambda x: x.chunk(2, -1)[0].expand(*x.shape[:-1], -1).repeat_interleave(2, -1)),
        product, gathered, placed, scattered, masked, convolved, summed, shifted,
    ]  # fmt: skip


def function(d: Draw) -> Function:
    """A chain of random operations."""
    chosen = [d.choose.choice(operations(d))() for _ in range(d.choose.randrange(1, 6))]

    def f(x: Any) -> Any:
        for one in chosen:
            x = one(x)
        return x

    return f


def transforms(d: Draw) -> list[Callable[[Function], Function]]:
    """What is made of a function of one tensor: another such function."""
    m, r = d.m, d.choose
    T = m.func
    i, o, chunk = r.randrange(2), r.randrange(2), r.choice([None, 2])
    scale = round(r.uniform(0.5, 1.5), 3)

    def vjp(f: Function) -> Function:
        def g(x: Any) -> Any:
            out, pull = T.vjp(f, x)
            return pull(out.cos() * scale)[0]

        return g

    def jvp(f: Function) -> Function:
        def g(x: Any) -> Any:
            out, tangent = T.jvp(f, (x,), (x.cos() * scale,))
            return out * tangent

        return g

    def linear(f: Function) -> Function:
        def g(x: Any) -> Any:
            if m is not flambeau:  # PyTorch's is wrong where something is written in place, and has no second derivatives (docs/differences.md)
                out, tangent = T.jvp(f, (x,), (x * scale,))
                return out + tangent
            out, push = T.linearize(f, x)
            return out + push(x * scale)

        return g

    def tape(f: Function) -> Function:
        def g(x: Any) -> Any:
            leaf = x.detach().clone().requires_grad_()
            out = f(leaf)
            if not out.requires_grad:  # of constants each library says it or gives zeros
                return leaf.detach() * 0
            (first,) = m.autograd.grad((out * out).sum(), leaf, create_graph=True)
            (second,) = m.autograd.grad(first.sum(), leaf, allow_unused=True)
            return first.detach() if second is None else first.detach() + second

        return g

    def value_and_gradient(f: Function) -> Function:
        def g(x: Any) -> Any:
            gradient, out = T.grad_and_value(lambda y: f(y).sum() * scale)(x)
            return gradient * out.sin()

        return g

    def with_state(f: Function) -> Function:
        def g(x: Any) -> Any:
            gradient, kept = T.grad(lambda y: ((out := f(y)).pow(2).sum(), out.detach()), has_aux=True)(x)
            return gradient + kept.sum()

        return g

    return [
        lambda f: lambda x: T.grad(lambda y: (f(y) * scale).sum())(x), vjp, jvp, linear, value_and_gradient, with_state,
        lambda f: lambda x: T.jacrev(lambda y: f(y).flatten()[:3])(x).sum(0), lambda f: lambda x: T.jacfwd(lambda y: f(y).flatten()[:3])(x).sum(0),
        lambda f: lambda x: T.hessian(lambda y: f(y).sin().sum())(x).flatten(x.ndim).sum(-1),
        lambda f: lambda x: T.vmap(f, in_dims=i, out_dims=o, chunk_size=chunk)(m.stack([x, x * 0.5, x + 1], i)),
        lambda f: lambda x: T.vmap(f)(x) if x.ndim > 1 else f(x),
        lambda f: lambda x: T.vmap(lambda y, c: f(y) * c, in_dims=(None, 0))(x, m.linspace(0, 1, 2, dtype=x.dtype)).sum(0),
        tape, lambda f: lambda x: m.utils.checkpoint.checkpoint(f, x, use_reentrant=False), lambda f: m.compile(f, backend="eager"),
    ]  # fmt: skip


def program(m: Any, seed: int, nudge: int = 0) -> tuple[Function, list[Any], str]:
    """The function, the tensors that it is called with, and what it is made of."""
    d = Draw(m, seed, nudge)
    f, names = function(d), []
    for _ in range(d.choose.randrange(1, 4)):
        choice = transforms(d)
        n = d.choose.randrange(len(choice))
        names.append(str(n))
        f = choice[n](f)
    inputs = [d.constant(*d.choose.choice(SHAPES)) for _ in range(2)]
    return f, [inputs[0], inputs[0] * 0.75, *inputs, inputs[1] - 0.125], " ".join(names)


def results(m: Any, seed: int, nudge: int = 0) -> list[Any]:
    """What the calls give: arrays, or the exceptions' names."""
    f, inputs, _ = program(m, seed, nudge)
    out: list[Any] = []
    for x in inputs:
        try:
            y = f(x)
            out.append((bool(y.requires_grad), np.asarray(y.detach().tolist()).reshape(tuple(y.shape))))
        except Exception as error:
            out.append(error)
    return out


def distance(a: Any, b: Any) -> float:
    """The greatest difference of two results, relative to the greater of 1 and the greatest number; infinite where kinds, shapes or flags differ."""
    if isinstance(a, Exception) or isinstance(b, Exception):
        return 0.0 if isinstance(a, Exception) and isinstance(b, Exception) else math.inf
    (needs, p), (needs_too, q) = a, b
    if needs != needs_too or p.shape != q.shape:
        return math.inf
    apart = relative(p, q)
    return apart if apart == math.inf or scale_of(q) <= MOST else 0.0


def difference(seed: int) -> str | None:
    """In what the two libraries differ, or None."""
    import torch

    theirs, ours = results(torch, seed), results(flambeau, seed)
    for i, (x, y) in enumerate(zip(ours, theirs, strict=True)):
        if isinstance(y, Exception) or distance(x, y) <= TOLERANCE:
            continue  # what PyTorch refuses may be taken
        own = max([distance(results(m, seed, k)[i], z) for m, z in ((torch, y), (flambeau, x)) for k in (1, 2)])
        if own * 100 < distance(x, y):
            return f"call {i} of transforms {program(torch, seed)[2]}, off by {distance(x, y)}, of its own by {own}:\n  flambeau {x!r}\n  PyTorch  {y!r}"
    return None


if __name__ == "__main__":
    sys.exit(daily.run("functions under transforms", difference, 200))
