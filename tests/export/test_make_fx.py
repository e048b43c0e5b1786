"""make_fx: functions as graphs of aten's operators, beside PyTorch's graphs of the same functions; and what cannot be traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx as theirs

import flambeau
from flambeau.fx.experimental.proxy_tensor import disable_proxy_modes_tracing, get_isolated_graphmodule, get_proxy_mode
from flambeau.fx.experimental.proxy_tensor import make_fx as ours


def _targets(graph_module: Any) -> list[str]:
    """Its calls in order, but for those of sizes, and PyTorch's `detach` of what autograd keeps."""
    found = [str(n.target) for n in graph_module.graph.nodes if n.op == "call_function"]
    return [t for t in found if not t.startswith(("aten.detach", "aten.sym_size", "<built-in"))]


def _array(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("f")


def _linear(t: Any) -> tuple[Callable[..., Any], list[np.ndarray]]:
    w, b = t.tensor(_array(5, 4), requires_grad=True), t.tensor(_array(5))
    return lambda x: t.nn.functional.linear(x, w, b), [_array(3, 4)]


def _model(t: Any) -> tuple[Callable[..., Any], list[np.ndarray]]:
    t.manual_seed(0)
    return t.nn.Sequential(t.nn.Linear(4, 5), t.nn.LayerNorm(5), t.nn.GELU()), [_array(3, 4)]


def _in_place(t: Any) -> tuple[Callable[..., Any], list[np.ndarray]]:
    def f(x: Any) -> Any:
        y = x.clone()
        y.add_(1)
        y[0].mul_(2)
        return {"y": y, "rest": [y.sum(), 3, None]}

    return f, [_array(3, 4)]


def _factories(t: Any) -> tuple[Callable[..., Any], list[np.ndarray]]:
    return lambda x: x + t.ones(4) + t.arange(4) + t.tensor([1.0, 2, 3, 4]), [_array(3, 4)]


FUNCTIONS: dict[str, Callable[[Any], tuple[Callable[..., Any], list[np.ndarray]]]] = {
    "linear": _linear, "model": _model, "in place": _in_place, "factories": _factories,
    "softmax": lambda t: (lambda x: t.cat([x, x]).softmax(0), [_array(3, 4)]),
    "convolution": lambda t: (lambda x, w: t.nn.functional.conv2d(x, w, padding=1).relu(), [_array(1, 3, 8, 8), _array(2, 3, 3, 3)]),
    "statistics": lambda t: (lambda x: (x.var(1), x.sort(1)[0], x.max(1)), [_array(3, 4)]),
    "choice": lambda t: (lambda x: t.where(x > 0, x, -x).masked_fill(x < -1, 1).pow(2) / 3 - 1, [_array(3, 4)]),
    "two arguments": lambda t: (lambda a, b: (a @ b).reshape(-1) * a.shape[0], [_array(3, 4), _array(4, 7)]),
}  # fmt: skip


def _values(x: Any) -> Any:
    if isinstance(x, (tuple, list)):
        return [_values(y) for y in x]
    if isinstance(x, dict):
        return {k: _values(v) for k, v in x.items()}
    return x.detach().numpy() if hasattr(x, "numpy") else x


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_graphs_and_values_are_pytorchs(name: str, mode: str) -> None:
    f, arrays = FUNCTIONS[name](flambeau)
    reference, _ = FUNCTIONS[name](torch)
    made = ours(f, tracing_mode=mode)(*map(flambeau.tensor, arrays))
    wanted = theirs(reference, tracing_mode=mode, _allow_non_fake_inputs=True)(*map(torch.tensor, arrays))
    assert _targets(made) == _targets(wanted)
    assert [n.name for n in made.graph.nodes if n.op == "placeholder"] == [n.name for n in wanted.graph.nodes if n.op == "placeholder"]
    np.testing.assert_equal(_values(made(*map(flambeau.tensor, arrays))), _values(f(*map(flambeau.tensor, arrays))))


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(2, 9), min_size=6, max_size=6, unique=True))
def test_a_symbolic_graph_is_right_for_other_sizes(n: list[int]) -> None:
    def f(a: Any, b: Any, k: int) -> Any:
        joined = (a @ b).reshape(a.shape[0] * b.shape[1])
        return joined + a.shape[1], a.sum(0) * k, flambeau.zeros(b.shape[1], k)

    made = ours(f, tracing_mode="symbolic")(flambeau.randn(n[0], n[1]), flambeau.randn(n[1], n[2]), 11)
    a, b = flambeau.randn(n[3], n[4]), flambeau.randn(n[4], n[5])
    for x, y in zip(made(a, b, n[0]), f(a, b, n[0]), strict=True):
        np.testing.assert_array_equal(x.numpy(), y.numpy())


def test_dropout_draws_anew() -> None:
    x = flambeau.ones(1000)
    made = ours(lambda x: flambeau.nn.functional.dropout(x, 0.25))(x)
    assert _targets(made) == ["aten.empty_like.default", "aten.bernoulli_.float", "aten.div_.Scalar", "aten.mul.Tensor"]
    a, b = made(x), made(x)
    assert 0.7 < (a != 0).float().mean().item() < 0.8 and a.max().item() == pytest.approx(4 / 3) and (a != b).any().item()
    dropped, kept = ours(lambda x: flambeau.ops.aten.native_dropout.default(x, 0.25, True))(x)(x)
    assert kept.dtype is flambeau.bool and ((dropped != 0) == kept).all().item()


def test_trees_of_arguments() -> None:
    def f(x: Any, parts: Any) -> Any:
        return x * parts["a"][0] - parts["b"]

    x, parts = flambeau.randn(3), {"a": [flambeau.randn(3)], "b": 2.0}
    made = ours(f)(x, parts)
    np.testing.assert_array_equal(made(x, parts).numpy(), f(x, parts).numpy())
    with pytest.raises(ValueError, match="structure"):
        made(x, {"a": [x, x], "b": 2.0})


def test_decompositions_of_ones_own_and_whole_operators() -> None:
    x, w = flambeau.randn(3, 4), flambeau.randn(5, 4)
    table = {flambeau.ops.aten.mean.default: lambda x: x.sum() / x.numel()}
    assert _targets(ours(lambda x: x.mean(), decomposition_table=table)(x)) == ["aten.sum.default", "aten.div.Tensor"]
    assert _targets(ours(lambda x: flambeau.nn.functional.linear(x, w), pre_dispatch=True)(x)) == ["aten.linear.default"]


def test_the_mode_and_blocks_that_are_not_recorded() -> None:
    seen: list[Any] = []

    def f(x: Any) -> Any:
        seen.append(get_proxy_mode())
        inner = get_isolated_graphmodule(lambda a, b=1: a + b, (flambeau.ones(2),), {"b": 2})
        with disable_proxy_modes_tracing():
            seen.append(get_proxy_mode())
            number = flambeau.ones(3).sum().item()
        seen.append(_targets(inner))
        return x * number

    made = ours(f, tracing_mode="fake")(flambeau.ones(2))
    assert seen[0].tracing_mode == "fake" and seen[1:] == [None, ["aten.add.Tensor"]] and get_proxy_mode() is None
    assert _targets(made) == ["aten.ones.default", "aten.mul.Tensor"] and made(flambeau.ones(2)).tolist() == [3.0, 3.0]


def test_what_cannot_be_traced_is_told() -> None:
    x = flambeau.randn(3, requires_grad=True)
    for f in (lambda x: x if x.sum() > 0 else -x, lambda x: x * x.sum().item()):
        with pytest.raises(RuntimeError, match="trying to get value out of a tracing tensor"):
            ours(f)(x)
    scale = flambeau.tensor(2.0)
    assert ours(lambda x: x * scale.item())(x)(x).tolist() == (x * 2).tolist()  # the function's own tensors have values

    class Differentiates(flambeau.nn.Module):
        def forward(self, x: Any) -> Any:
            return flambeau.func.grad(lambda y: y.sin().sum())(x)

    with pytest.raises(NotImplementedError, match="has no history"):  # gradients were zeros
        flambeau.export.export(Differentiates(), (x,))
    with pytest.raises(ValueError, match="tracing_mode"):
        ours(lambda x: x, tracing_mode="imaginary")
    with pytest.raises(TypeError, match="takes 1 arguments by position, got 2"):
        ours(lambda x: x)(x, x)
