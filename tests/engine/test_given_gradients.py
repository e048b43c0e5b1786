"""Gradients that a program's own code gives (custom functions, hooks): what PyTorch fits to the tensor is fitted, what it refuses is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")

SHAPES = [(3, 4), (3, 1), (1, 4), (1, 1), (4,), (), (2, 3, 4), (1, 3, 1)]
GIVEN: list[tuple[str, Callable[[Any], Any]]] = [
    *((f"shape {s}", lambda m, s=s: m.arange(24.0)[: m.ones(s).numel()].reshape(s)) for s in [(3, 4), (2, 3, 4), (4,), (), (5, 4), (0, 4)]),
    *((f"dtype {d}", lambda m, d=d: m.ones(2, 3, 4, dtype=getattr(m, d))) for d in "float64 int64 bool complex64 float16".split()),
    ("number", lambda m: 2.0),
    ("none", lambda m: None),
]


def outcome(run: Callable[[], Any]) -> Any:
    """Shape, dtype and values, or the type of the exception."""
    try:
        found = run()
    except Exception as error:
        return type(error).__name__
    return None if found is None else (tuple(found.shape), repr(found.dtype).split(".")[-1], found.tolist())


def through_function(m: Any, shape: tuple[int, ...], dtype: str, given: Callable[[Any], Any], leaf: bool) -> Any:
    """The gradient of an argument whose function's backward returns `given`."""

    class F(m.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return given(m)

    x = m.ones(shape, dtype=getattr(m, dtype), requires_grad=True)
    y = F.apply(x if leaf else x * 1)
    y.backward(m.ones_like(y))
    return x.grad


def through_hook(m: Any, given: Callable[[Any], Any], leaf: bool) -> Any:
    """The gradient of a tensor, or of one before it, whose hook returns `given`."""
    x = m.ones(3, 4, requires_grad=True)
    y = x if leaf else x * 2
    y.register_hook(lambda g: given(m))
    (y * 3).sum().backward()
    return x.grad


@pytest.mark.parametrize("leaf", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_what_a_custom_function_gives(dtype: str, leaf: bool) -> None:
    wrong = []
    for shape in SHAPES:
        for name, given in GIVEN:
            ours, theirs = (outcome(partial(through_function, m, shape, dtype, given, leaf)) for m in (ft, torch))
            if ours != theirs:
                wrong.append(f"{shape} {name}: {ours}, PyTorch {theirs}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("leaf", [True, False])
def test_what_a_hook_gives(leaf: bool) -> None:
    wrong = []
    for name, given in GIVEN:
        ours, theirs = (outcome(partial(through_hook, m, given, leaf)) for m in (ft, torch))
        if ours != theirs:
            wrong.append(f"{name}: {ours}, PyTorch {theirs}")
    assert not wrong, "\n".join(wrong)


def test_the_error_says_what_must_hold() -> None:
    with pytest.raises(RuntimeError, match=r"FBackward returned an invalid gradient at index 0 - got \[5, 4\] but expected shape compatible with \[3, 4\]"):
        through_function(ft, (3, 4), "float32", lambda m: m.ones(5, 4), True)
    with pytest.raises(RuntimeError, match=r"has changed the size of value \(was \[3, 4\] got \[2, 3, 4\]\)"):
        through_hook(ft, lambda m: m.ones(2, 3, 4), True)


def test_a_complex_result_needs_a_gradient() -> None:
    for m in (ft, torch):
        x = m.ones(3, dtype=m.complex64, requires_grad=True)
        for run in (lambda: x.sum().backward(), lambda: m.autograd.grad(x.sum(), x), lambda: m.func.grad(lambda t: t.sum())(x.detach())):  # noqa: B023
            with pytest.raises(RuntimeError, match=r"only for real scalar outputs but got torch\.complex64"):
                run()
        assert m.autograd.grad(x.sum(), x, m.ones((), dtype=m.complex64))[0].tolist() == [1, 1, 1]
