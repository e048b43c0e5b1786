"""gradcheck(fast_mode=True): PyTorch's verdicts, a number of calls that does not grow with the sizes, no draws from the default generator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")


def scaled(m: Any, factor: Any, gradient: Any) -> Callable[[Any], Any]:
    """x * factor, whose backward multiplies by `gradient`."""

    class F(m.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * factor

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * gradient

    return F.apply  # type: ignore[no-any-return]


FUNCTIONS: dict[str, Callable[[Any], tuple[Callable[..., Any], Any]]] = {
    "products": lambda m: (lambda x: (x @ x.T).sin(), m.float64),
    "several outputs": lambda m: (lambda x: (x * x, x.sum()), m.float64),
    "no history": lambda m: (lambda x: x.detach() * 2, m.float64),
    "constant": lambda m: (lambda x: x.round(), m.float64),
    "complex from real": lambda m: (lambda x: m.complex(x, x * 2), m.float64),
    "real from complex": lambda m: (lambda z: z.abs(), m.complex128),
    "not holomorphic": lambda m: (lambda z: z * z.conj() + z.imag, m.complex128),
    "holomorphic": lambda m: (lambda z: z.exp(), m.complex128),
    "right": lambda m: (scaled(m, 2, 2), m.float64),
    "wrong": lambda m: (scaled(m, 2, 3), m.float64),
    "nearly right": lambda m: (scaled(m, 2, 2 + 1e-6), m.float64),
    "complex, right": lambda m: (scaled(m, 1 + 2j, 1 - 2j), m.complex128),
    "complex, not conjugated": lambda m: (scaled(m, 1 + 2j, 1 + 2j), m.complex128),
    "no gradient": lambda m: (lambda x: x * 0 + 1, m.float64),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_verdict(name: str) -> None:
    found = []
    for m in (ft, torch):
        m.manual_seed(0)
        function, dtype = FUNCTIONS[name](m)
        x = (m.rand(3, 4, dtype=m.float64) + (1j * m.rand(3, 4, dtype=m.float64) if dtype is m.complex128 else 0)).requires_grad_()
        found.append(m.autograd.gradcheck(function, (x,), fast_mode=True, raise_exception=False))
    assert found[0] == found[1]


def test_calls_do_not_grow_with_the_size() -> None:
    calls = []

    def function(x: Any) -> Any:
        calls.append(1)
        return (x @ x).tanh()

    x = ft.rand(50, 50, dtype=ft.float64, requires_grad=True)
    assert ft.autograd.gradcheck(function, (x,), fast_mode=True)
    assert len(calls) == 4
    assert ft.autograd.gradgradcheck(function, (x,), fast_mode=True)
    assert len(calls) < 20


def test_the_generator_stays() -> None:
    x = ft.rand(3, dtype=ft.float64, requires_grad=True)
    before = ft.get_rng_state()
    assert ft.autograd.gradcheck(lambda t: t * 2, (x,), fast_mode=True)
    assert before.equal(ft.get_rng_state())


@pytest.mark.parametrize("fast_mode", [False, True])
def test_the_very_tensors_are_moved(fast_mode: bool) -> None:
    """As PyTorch does: functions that hold the inputs themselves (a module's parameters) are checked too, and see their classes."""
    layer, x = ft.nn.Linear(3, 2).double(), ft.randn(4, 3, dtype=ft.float64)
    before = [p.tolist() for p in layer.parameters()]
    assert ft.autograd.gradcheck(lambda *_: layer(x).tanh(), tuple(layer.parameters()), fast_mode=fast_mode)
    assert [p.tolist() for p in layer.parameters()] == before
    seen = set()

    def registered(p: Any) -> Any:
        holder = ft.nn.Module()
        holder.register_parameter("weight", p)
        seen.add(type(p))
        return x @ holder.weight

    weight = ft.nn.Parameter(ft.randn(3, 3, dtype=ft.float64))
    version = weight._version
    assert ft.autograd.gradcheck(registered, (weight,), fast_mode=fast_mode) and seen == {ft.nn.Parameter} and weight._version == version
