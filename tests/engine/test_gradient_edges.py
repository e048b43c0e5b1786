"""Places in a history (GradientEdge) as ends and beginnings of passes, the order of hooks, and what a pass is asked beside: as PyTorch's."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import flambeau as ft

WORLDS = (ft, torch)


def _ends(w: Any) -> Any:
    graph = w.autograd.graph
    x = w.ones(2, requires_grad=True).clone()
    edge = graph.get_gradient_edge(x)
    x *= 2  # the edge is where it was
    found = list(w.autograd.grad((x * x).sum(), (edge, x)))
    x, y = w.ones(2, requires_grad=True).clone(), w.ones(2, requires_grad=True).clone()
    edges = [graph.GradientEdge(t.grad_fn, t.output_nr) for t in (x, y)]
    out = (x * 3 + y).sum()
    out.item()  # the history goes on behind a trace
    found += w.autograd.grad(out, edges)
    a, b = w.var_mean(w.tensor([1.0, 2.0], requires_grad=True))
    found += w.autograd.grad(b * 3, graph.GradientEdge(b.grad_fn, 1))
    return a.output_nr, b.output_nr, [t.tolist() for t in found]


def _beginnings(w: Any) -> Any:
    x = w.tensor([1.0, 2.0], requires_grad=True)
    middle = x.sin().cos().sum()
    out = middle.exp().clone().sin().sum()
    edge = w.autograd.graph.get_gradient_edge(middle)
    (at_edge,) = w.autograd.grad(out, (edge,))
    (found,) = w.autograd.grad(edge, (x,), grad_outputs=(at_edge,))
    return pytest.approx(found.tolist(), rel=1e-5)


def _order(w: Any) -> Any:
    log: list[int] = []

    def of_tensor(g: Any) -> Any:
        log.append(1)
        return g * 3

    def of_node(gradients: Any) -> Any:
        log.append(2)
        return tuple(g * 2 for g in gradients)

    a = w.tensor(1.0, requires_grad=True)
    b = a.clone()
    b.grad_fn.register_prehook(of_node)
    b.register_hook(of_tensor)
    b.grad_fn.register_prehook(of_node)
    accumulate = b.grad_fn.next_functions[0][0]
    a.register_hook(of_tensor)
    accumulate.register_prehook(of_node)
    a.register_hook(of_tensor)
    b.sum().backward(retain_graph=True)
    w.autograd.grad(b.sum(), inputs=(a,), retain_graph=True)
    b.sum().backward(inputs=(b,))
    return log, a.grad.item(), b.grad.item()


def _callbacks(w: Any) -> Any:
    called: list[Any] = []
    a = w.ones(3, requires_grad=True)
    b = a * 2
    queue = w.autograd.Variable._execution_engine.queue_callback
    b.register_hook(lambda g: queue(lambda: (called.append(a.grad is not None), queue(lambda: called.append("again")))))
    b.sum().backward()
    with pytest.raises(RuntimeError, match="Final callbacks can only be installed during backward pass"):
        queue(called.clear)
    return called


def _coroutine(w: Any) -> Any:
    seen: list[Any] = []

    @w.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
    def numbers() -> Any:
        for i in range(10):
            try:
                yield i, w.is_grad_enabled()
            except ValueError:
                seen.append(("error", w.is_grad_enabled()))
            except GeneratorExit:
                seen.append(("exit", w.is_grad_enabled()))
                raise

    running = numbers()
    seen.append(next(running))
    seen.append(running.throw(ValueError()))
    running.close()
    return seen, w.is_grad_enabled()


def _materialized(w: Any) -> Any:
    x = w.tensor(0.5, requires_grad=True)
    a = w.tensor(1.0, requires_grad=True)
    first = w.autograd.grad(x * a, x, create_graph=True)
    second = w.autograd.grad(first, x, create_graph=True, allow_unused=True, materialize_grads=True)
    return [t.item() for t in (*second, *w.autograd.grad(second, x, materialize_grads=True))]


@pytest.mark.parametrize("program", [_ends, _beginnings, _order, _callbacks, _coroutine, _materialized])
def test_program(program: Any) -> None:
    ours, theirs = (program(w) for w in WORLDS)
    assert getattr(ours, "expected", ours) == theirs


def test_errors_and_warnings() -> None:
    for w in WORLDS:
        x = w.ones(2, 2, requires_grad=True)
        with pytest.raises(RuntimeError, match="can't assign Variable as its own grad"):
            x.grad = x
        with pytest.raises(RuntimeError, match="If `is_grads_batched=True`, we interpret the first"):
            w.autograd.grad(x * 2, x, w.ones(2, 2), is_grads_batched=True)
        with pytest.raises(RuntimeError, match="required to have the same dtype"):
            w.autograd.grad(x * 2, x, w.ones(2, 2, dtype=w.complex64))
        with pytest.raises(ValueError, match="Expected allow_unused to be True or not passed when"):
            w.autograd.grad((x * 2).sum(), x, allow_unused=False, materialize_grads=True)
        with pytest.warns(UserWarning, match="that is not a leaf Tensor is being accessed"):
            assert (x * 2).grad is None
        with pytest.warns(FutureWarning, match="Decorating classes is deprecated"):
            w.no_grad()(type("Decorated", (), {}))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            kept = x * 2
            kept.retain_grad()
            assert kept.grad is None and x.grad is None


def test_what_a_hook_enters_ends_with_the_pass() -> None:
    for w in WORLDS:
        seen: list[Any] = []
        block = w.autograd.graph.saved_tensors_hooks(lambda t, seen=seen: (seen.append("packed"), t)[1], lambda t: t)
        x = w.ones(2, requires_grad=True)
        y = x * 2
        y.register_hook(lambda g, block=block: block.__enter__() and None)
        y.sum().backward()
        z = (x.exp() * x).sum()
        z.backward()
        assert seen == [] and x.grad is not None


def test_a_block_that_its_own_hook_enters_ends() -> None:
    for w in WORLDS:
        seen: list[Any] = []

        def unpack(t: Any, w: Any = w, seen: list[Any] = seen) -> Any:
            seen[0].__enter__()
            return t

        seen.append(w.autograd.graph.saved_tensors_hooks(lambda t, seen=seen: (seen.append("packed"), t)[1], unpack))
        x = w.ones(3, requires_grad=True)
        with seen[0]:
            x.sin().sum().backward()
        del seen[1:]
        (x.exp() * x).sum().backward()
        assert seen[1:] == []


def test_what_a_hook_leaves_is_left_once_more_afterwards() -> None:
    for w in WORLDS:
        seen: list[Any] = []
        x = w.ones(2, requires_grad=True)
        block = w.autograd.graph.saved_tensors_hooks(lambda t, seen=seen: (seen.append("packed"), t)[1], lambda t: t)
        block.__enter__()
        y = x * 2
        y.register_hook(lambda g, block=block: block.__exit__(None, None, None))
        y.sum().backward()
        block.__exit__(None, None, None)
        del seen[:]
        (x.exp() * x).sum().backward()
        assert seen == []
