"""`grad_fn._saved_*`: what a node has saved, beside PyTorch, of pending results, of finished traces, after writes in place, and when it is given up."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")


def _function(name: str, m: Any, x: Any, y: Any) -> Any:
    return getattr(m, name)(x)


CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "mul": lambda m, x, y: x * y, "mul of a number": lambda m, x, y: x * 2.5, "mul of a constant": lambda m, x, y: x * y.detach(),
    "div": lambda m, x, y: x / y, "div by a number": lambda m, x, y: x / 2.0, "pow": lambda m, x, y: x**2, "pow of tensors": lambda m, x, y: x**y,
    **{name: partial(_function, name) for name in (
        "exp expm1 tanh relu sigmoid sqrt rsqrt reciprocal log log2 log10 log1p sin cos sinh cosh atan abs erf lgamma digamma".split())},
    "gelu": lambda m, x, y: m.nn.functional.gelu(x), "silu": lambda m, x, y: m.nn.functional.silu(x), "softmax": lambda m, x, y: x.softmax(1),
    "log_softmax": lambda m, x, y: x.log_softmax(1), "sum": lambda m, x, y: x.sum(), "sum over a dim": lambda m, x, y: x.sum(1, keepdim=True),
    "mean": lambda m, x, y: x.mean(), "mean over dims": lambda m, x, y: x.mean((0, 1)), "amax": lambda m, x, y: x.amax(1),
    "logsumexp": lambda m, x, y: x.logsumexp(1), "prod": lambda m, x, y: x.prod(), "cumsum": lambda m, x, y: x.cumsum(0),
    "mm": lambda m, x, y: x.mm(y), "mm of a constant": lambda m, x, y: x.mm(y.detach()), "bmm": lambda m, x, y: m.bmm(x[None], y[None]),
    "atan2": lambda m, x, y: m.atan2(x, y), "view": lambda m, x, y: x.view(-1), "expand": lambda m, x, y: x.expand(2, 3, 3), "select": lambda m, x, y: x[0],
    "stack": lambda m, x, y: m.stack([x, y], 1), "cat": lambda m, x, y: m.cat([x, y], 1), "where": lambda m, x, y: m.where(x > y, x, y),
    "masked_fill": lambda m, x, y: x.masked_fill(y > 1.0, 0.0), "gather": lambda m, x, y: x.gather(1, m.tensor([[0], [1]])),
    "embedding": lambda m, x, y: m.nn.functional.embedding(m.tensor([0, 2]), x), "mse_loss": lambda m, x, y: m.nn.functional.mse_loss(x, y),
    "layer_norm": lambda m, x, y: m.nn.functional.layer_norm(x, (3,), y[0]), "after a chain": lambda m, x, y: ((x * 2).exp() + y) * (y * 3).sin(),
}  # fmt: skip


def _leaves(m: Any) -> Any:
    return (m.arange(1.0, 10.0).view(3, 3) / 4).requires_grad_(), (m.arange(9.0, 0.0, -1.0).view(3, 3) / 5).requires_grad_()


def _plain(value: Any) -> Any:
    return (tuple(value.shape), [round(v, 4) for v in value.detach().reshape(-1).tolist()]) if hasattr(value, "detach") else value


def _facts(result: Any, names: list[str]) -> dict[str, Any]:
    return {name: _plain(getattr(result.grad_fn, name)) for name in names}


@pytest.mark.parametrize("name", CALLS)
def test_names_and_values(name: str) -> None:
    for seen in (False, True):
        x, y = _leaves(ft)
        result = CALLS[name](ft, x, y)
        if seen:
            result.tolist()
        theirs = CALLS[name](torch, *_leaves(torch))
        names = [n for n in dir(result.grad_fn) if n.startswith("_saved_")]
        assert names or (seen and name == "embedding"), result.grad_fn  # what no gradient needs as it was given is gone
        assert set(names) <= set(dir(theirs.grad_fn))
        assert _facts(result, names) == _facts(theirs, names), (name, seen)


def test_the_leaf_itself_and_a_write_in_place() -> None:
    for m in (ft, torch):
        x, y = _leaves(m)
        product = x * y
        assert product.grad_fn._saved_self is x and product.grad_fn._saved_other is y
        with pytest.raises(AttributeError):
            _ = product.grad_fn._saved_nothing
    x, y = _leaves(ft)
    middle = x.exp()
    product = middle * y
    before = middle.tolist()
    assert product.grad_fn._saved_self.tolist() == before


def test_given_up() -> None:
    for seen in (False, True):
        for m in (ft, torch):
            x, y = _leaves(m)
            product = x.exp() * y
            node = product.grad_fn
            if seen:
                product.tolist()
            product.sum().backward()
            if m is ft:
                float(x.grad.sum())
            with pytest.raises(RuntimeError, match="after they have already been freed"):
                _ = node._saved_self
