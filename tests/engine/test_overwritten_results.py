"""Results and arguments that a program writes over before the backward pass: where PyTorch gives gradients, flambeau gives the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")

UNARY = """abs acosh asin asinh atan cos cosh digamma erf erfc erfinv exp exp2 expm1 floor lgamma log log10 log1p log2 neg reciprocal relu round rsqrt
    sigmoid sign sin sinh sqrt square tan tanh""".split()
POWERS = (-2, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4)
OTHERS: dict[str, Callable[[Any, Any], Any]] = {
    "mul": lambda m, x: x * 2, "div": lambda m, x: x / 2, "rsub": lambda m, x: 2 - x, "exponent": lambda m, x: 2**x, "mul itself": lambda m, x: x * x,
    "float_power": lambda m, x: x.float_power(-0.5), "clamp": lambda m, x: x.clamp(0.3, 0.6), "cumsum": lambda m, x: x.cumsum(0),
    "layer_norm": lambda m, x: m.nn.functional.layer_norm(x, x.shape), "matmul": lambda m, x: x.reshape(2, 2) @ m.ones(2, 2),
    "logsumexp": lambda m, x: x.logsumexp(0), "where": lambda m, x: m.where(x > 0.5, x, x * 2), "lerp": lambda m, x: m.lerp(x, m.ones(4), 0.3),
    "softplus": lambda m, x: m.nn.functional.softplus(x), "gelu": lambda m, x: m.nn.functional.gelu(x), "std": lambda m, x: x.std(),
}  # fmt: skip
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    **{n: lambda m, x, n=n: getattr(m, n)(x) for n in UNARY}, **{f"pow {p}": lambda m, x, p=p: x.pow(p) for p in POWERS}, **OTHERS,
}  # fmt: skip
IN_PLACE: dict[str, Callable[[Any], Any]] = {
    **{n: lambda h, n=n: getattr(h, n + "_")() for n in UNARY},
    **{f"pow {p}": lambda h, p=p: h.pow_(p) for p in POWERS},
}


def after_the_result(m: Any, name: str) -> Any:
    """The gradient where the result has been written over through an alias."""
    x = m.tensor([0.21, 0.43, 0.64, 0.85], requires_grad=True)
    y = FUNCTIONS[name](m, x)
    y.detach().mul_(3)
    y.sum().backward()
    return x.grad


def after_the_argument(m: Any, name: str) -> Any:
    """The gradient where the argument has been written over through an alias."""
    x = m.tensor([0.21, 0.43, 0.64, 0.85], requires_grad=True)
    h = x * 1
    y = FUNCTIONS[name](m, h)
    h.detach().mul_(3)
    y.sum().backward()
    return x.grad


def after_in_place(m: Any, name: str) -> Any:
    """The gradient of the function in place, whose result is written over in place too."""
    x = m.tensor([0.21, 0.43, 0.64, 0.85], requires_grad=True)
    h = x * 1
    IN_PLACE[name](h)
    h.masked_fill_(h == 7, 0).mul_(3)
    h.sum().backward()
    return x.grad


@pytest.mark.parametrize("how", [after_the_result, after_the_argument, after_in_place])
def test_gradients_that_pytorch_gives(how: Callable[[Any, str], Any]) -> None:
    wrong, given = [], 0
    for name in IN_PLACE if how is after_in_place else FUNCTIONS:
        try:
            theirs = how(torch, name)
        except (RuntimeError, NotImplementedError):  # refused there; flambeau may know more
            continue
        given += 1
        try:
            ours = how(ft, name)
        except RuntimeError as error:
            wrong.append(f"{name}: {str(error)[:100]}")
            continue
        if not torch.allclose(torch.tensor(ours.tolist()), theirs.float(), rtol=1e-4, atol=1e-5, equal_nan=True):
            wrong.append(f"{name}: {ours.tolist()}, PyTorch {theirs.tolist()}")
    assert given > 20 and not wrong, "\n".join(wrong)


@pytest.mark.parametrize("observed", [False, True])
def test_degrees_of_a_weighted_graph(observed: bool) -> None:
    def gradient(m: Any) -> Any:
        row, column = m.tensor([0, 1, 2, 3, 0]), m.tensor([1, 2, 3, 0, 2])
        w = m.tensor([0.2, 0.4, 0.6, 0.8, 0.3], requires_grad=True)
        degree = m.zeros(6).scatter_add_(0, column, w)
        scale = degree.pow_(-0.5)
        scale.masked_fill_(scale == float("inf"), 0)
        loss = (scale[row] * w * scale[column] * m.arange(5.0)).sum()
        if observed:
            loss.item()
        return m.autograd.grad(loss, w)[0]

    assert torch.allclose(torch.tensor(gradient(ft).tolist()), gradient(torch), rtol=1e-5)
