"""Transforms and derivatives inside of functions that make_fx traces; functorch.compile, which is made of that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau
from flambeau.autograd.function import Function
from flambeau.functorch import compile as functorch
from flambeau.fx.experimental.proxy_tensor import make_fx
from flambeau.utils._pytree import tree_leaves

F, func = flambeau.nn.functional, flambeau.func


def _targets(module: Any) -> list[str]:
    return [str(n.target) for n in module.graph.nodes if n.op == "call_function" and not str(n.target).startswith("aten.detach")]


class _Straight(Function):
    """Rounds; its gradient is its argument."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x.round()

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * ctx.saved_tensors[0]


def _backward(x: Any) -> Any:
    x = x.requires_grad_()
    (x.sin() * x).sum().backward()
    return x.grad


def _step(w: Any, x: Any) -> Any:
    w = w.requires_grad_()
    loss = F.cross_entropy(F.linear(F.relu(x), w), flambeau.tensor([0, 1, 2]))
    return flambeau.autograd.grad(loss, [w])


NET = flambeau.nn.Sequential(flambeau.nn.Conv2d(3, 4, 3), flambeau.nn.BatchNorm2d(4), flambeau.nn.ReLU(), flambeau.nn.MaxPool2d(2),
                             flambeau.nn.Flatten(), flambeau.nn.Linear(36, 2))  # fmt: skip


def _network(x: Any, p: Any) -> Any:
    return func.grad(lambda p: func.functional_call(NET, p, (x,)).pow(2).mean())(p)


def _of(*shapes: tuple[int, ...]) -> tuple[Any, ...]:
    flambeau.manual_seed(0)
    return tuple([flambeau.randn(s) for s in shapes])


X, W = (3, 4), (5, 4)
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "grad": (func.grad(lambda x: x.sin().sum()), _of(X)), "backward": (_backward, _of(X)), "step": (_step, _of(W, X)),
    "second gradient": (func.grad(lambda x: func.grad(lambda y: (y.tanh() * y).sum())(x).pow(2).sum()), _of(X)),
    "network": (_network, (*_of((2, 3, 8, 8)), {k: v.detach() for k, v in NET.named_parameters()})),
    "custom function": (func.grad(lambda x: (_Straight.apply(x) * 3).sum()), _of(X)),
    "attention": (func.grad(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True).sum()), _of((2, 2, 4, 3))),
    "normalised": (func.grad(lambda x: F.layer_norm(x, (4,)).pow(3).sum()), _of(X)),
    "embedding": (func.grad(lambda w: F.embedding(flambeau.tensor([0, 2, 2]), w).pow(2).sum()), _of(W)),
    "indexed": (func.grad(lambda w: (w[1] * w[:, 2:].sum() * w[flambeau.tensor([0, 2])]).max(1).values.sum()), _of(W)),
    "without rules": (func.grad(lambda w: (flambeau.linalg.svdvals(w).sum() * w.std(1).prod() + w.logcumsumexp(0).norm())), _of(W)),
    "joined": (func.grad(lambda w: flambeau.cat([w[:2], w[1:] * 2]).clamp(-1, 1).sum() + flambeau.stack([w, w * w]).prod(0).sum()), _of(W)),
    "vmap": (func.vmap(lambda x: (x * x.sum()).softmax(0)), _of(X)), "nested": (func.vmap(func.vmap(lambda a, b: a * b, (0, None)), (None, 0)), _of((4,), W)),
    "out dims": (func.vmap(lambda a, b: (a.outer(b), b.t()), (1, 1), (2, -1)), _of((3, 4), (5, 4))),
    "layers": (func.vmap(lambda x, w, c: F.linear(x, w).sum() + F.conv2d(c, w[None, None]).relu()), _of((2, 3, 4), (2, 5, 4), (2, 1, 1, 8, 8))),
    "per sample": (lambda w, x: func.vmap(func.grad(lambda w, x: F.gelu(w @ x).pow(2).sum()), (None, 0))(w, x), _of(W, X)),
    "mixed dtypes": (func.vmap(lambda a, b: a * b + b.double()), (*_of((3, 2)), flambeau.arange(3.0, dtype=flambeau.float64))),
    "jvp": (lambda x: func.jvp(lambda a: a.sin().cumsum(0), (x,), (x,))[1], _of(X)), "jacrev": (func.jacrev(lambda x: x.sin().prod(1)), _of(X)),
    "jacfwd": (func.jacfwd(lambda x: flambeau.cat([x.exp(), x[1:2] * x[0]])), _of((4,))),
    "hessian": (func.hessian(lambda x: x.sin().pow(3).sum()), _of((4,))),
    "complex": (func.grad(lambda x: flambeau.fft.fft(x).abs().sum()), _of(X)),
}  # fmt: skip


def _equal(ours: Any, wanted: Any) -> None:
    for a, b in zip(tree_leaves(ours), tree_leaves(wanted), strict=True):
        assert a.dtype is b.dtype
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_graph_gives_what_the_function_gives(name: str) -> None:
    f, args = FUNCTIONS[name]
    made = make_fx(f)(*args)
    others = [t.roll(1, 0) if isinstance(t, flambeau.Tensor) else t for t in args]
    for arguments in (args, others):
        _equal(made(*arguments), f(*arguments))


def test_graphs_are_pytorchs() -> None:
    x = flambeau.randn(3, 4)
    assert _targets(make_fx(func.grad(lambda x: x.sin().sum()))(x)) == [f"aten.{n}.default" for n in ("sin", "sum", "ones_like", "expand", "cos")] + [
        "aten.mul.Tensor"
    ]
    made = make_fx(func.grad(lambda x: F.relu(x).sum()))(x)
    assert _targets(made)[-1] == "aten.threshold_backward.default" and not any("alias" in t for t in _targets(made))


def test_random_operations_under_vmap() -> None:
    x = flambeau.ones(4, 1000)
    with pytest.raises(RuntimeError, match="randomness error mode"):
        make_fx(func.vmap(lambda x: F.dropout(x, 0.5)))(x)
    different = make_fx(func.vmap(lambda x: F.dropout(x, 0.5), randomness="different"))(x)(x)
    same = make_fx(func.vmap(lambda x: F.dropout(x, 0.5), randomness="same"))(x)(x)
    assert (different[0] != different[1]).any().item() and (same == same[0]).all().item()


def test_what_cannot_be_differentiated_is_told() -> None:
    def view(x: Any) -> Any:
        y = x * 1
        y[0].mul_(2)
        return y.sum()

    def modified(x: Any) -> Any:
        y = x.sin()
        z = y * y
        y.mul_(2)
        return z.sum()

    x, w = flambeau.randn(3), flambeau.nn.Parameter(flambeau.randn(3))
    for f, error, words in ((view, NotImplementedError, "write to a view"), (modified, RuntimeError, "modified by an inplace operation")):
        with pytest.raises(error, match=words):
            make_fx(func.grad(f))(x)
    with pytest.raises(NotImplementedError, match="tensor that the function holds"):
        make_fx(lambda x: (x * w).sum().backward())(x)
    with pytest.raises(RuntimeError, match="only for scalar outputs"):
        make_fx(lambda x: flambeau.autograd.grad(x.requires_grad_().sin(), x))(x)
    with pytest.raises(RuntimeError, match="more elements than"):
        make_fx(lambda x, y: func.vmap(lambda y: x.add_(y))(y))(x, flambeau.randn(2, 3))


# -- functorch.compile ------------------------------------------------------------------------------------------------------
def _pointwise(a: Any, b: Any) -> Any:
    c = (a @ b).sin().cos().exp()
    return {"c": c, "count": a.shape[0], "largest": c.detach().argmax()}


@pytest.mark.parametrize("partition", [functorch.default_partition, functorch.min_cut_rematerialization_partition])
def test_aot_function(partition: Any) -> None:
    graphs: list[Any] = []

    def keep(graph: Any, inputs: list[Any]) -> Any:
        graphs.append((functorch.get_aot_graph_name().split("_")[-1], graph))
        return functorch.make_boxed_func(graph.forward)

    compiled = functorch.aot_function(_pointwise, keep, partition_fn=partition)
    results = []
    for f in (compiled, _pointwise, compiled):
        a, b = (t.requires_grad_() for t in _of((3, 4), (4, 5)))
        made = f(a, b)
        (made["c"] * flambeau.arange(5.0)).sum().backward()
        results.append([made["c"], made["largest"], a.grad, b.grad])
        assert made["count"] == 3
    _equal(results[0], results[1])
    _equal(results[2], results[1])
    assert [name for name, _ in graphs] == ["forward", "backward"]
    kept = len(next(n for n in graphs[0][1].graph.nodes if n.op == "output").args[0]) - 3
    assert kept == (3 if partition is functorch.min_cut_rematerialization_partition else len(graphs[0][1].graph.nodes) and kept)
    with flambeau.no_grad():
        _equal(compiled(a, b)["c"], results[1][0])
    assert graphs[-1][0] == "inference"


@settings(max_examples=10, deadline=None)
@given(st.lists(st.sampled_from(["sin", "exp", "tanh", "matmul", "view", "relu"]), min_size=1, max_size=6), st.booleans())
def test_partitions_give_the_gradients(chain: list[str], small: bool) -> None:
    def f(x: Any) -> Any:
        for name in chain:
            x = x @ x if name == "matmul" else x.t() if name == "view" else getattr(flambeau, name)(x * 0.5)
        return x

    partition = functorch.min_cut_rematerialization_partition if small else functorch.default_partition
    (x,) = _of((3, 3))
    wanted = func.grad(lambda x: f(x).sum())(x)
    x.requires_grad_()
    functorch.aot_function(f, functorch.nop, partition_fn=partition)(x).sum().backward()
    _equal(x.grad, wanted)


def test_aot_module_trains_and_keeps_its_buffers() -> None:
    losses = []
    for wrap in (lambda m: m, lambda m: functorch.aot_module(m, functorch.nop), functorch.memory_efficient_fusion):
        flambeau.manual_seed(0)
        net = flambeau.nn.Sequential(flambeau.nn.Linear(4, 8), flambeau.nn.BatchNorm1d(8), flambeau.nn.GELU(), flambeau.nn.Linear(8, 1))
        module, optimizer = wrap(net), flambeau.optim.SGD(net.parameters(), 0.1)
        found = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = module(flambeau.arange(12.0).view(3, 4)).pow(2).mean()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        losses.append([*found, *net[1].running_mean.tolist()])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    np.testing.assert_allclose(losses[2], losses[0], rtol=1e-5)


def test_aot_refuses_what_is_no_function() -> None:
    with pytest.raises(TypeError, match="fw_compiler"):
        functorch.aot_function(lambda x: x, None)  # type: ignore[arg-type]
