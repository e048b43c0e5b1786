"""A program of n steps costs n steps: what flambeau does for a call must not grow with what came before.

Counted are the calls of Python's functions and of built-in ones. Four times as many steps may cost eight times as many calls; what is done anew at each
step for all earlier ones would cost sixteen times as many.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.trace import tiers
from tests.engine.nothing_known import forget_edges, forget_places

FEW, MANY = 64, 256
PROGRAMS: dict[str, Callable[[int], Any]] = {}


def program(function: Callable[[int], Any]) -> Callable[[int], Any]:
    PROGRAMS[function.__name__] = function
    return function


def leaf(*shape: int) -> Any:
    return torch.ones(*shape, requires_grad=True)


@program
def chain(n: int) -> None:
    x = y = leaf(3)
    for _ in range(n):
        y = y * 1.01
    y.sum().backward()
    assert x.grad is not None


@program
def chain_seen(n: int) -> None:
    y = leaf(3)
    for _ in range(n):
        y = y * 1.01
        y.sum().item()
    y.sum().backward()


@program
def kept_values(n: int) -> None:
    made = [leaf(3)]
    for _ in range(n):
        made.append(made[-1] * 1.01)
        made[-1].sum().item()
    made[-1].sum().backward()


@program
def rows_written(n: int) -> None:
    x = torch.zeros(n, 4)
    for i in range(n):
        x[i] = i
        x[i].sum().item()


@program
def rows_written_with_gradients(n: int) -> None:
    w, x = leaf(4), torch.zeros(n, 4)
    for i in range(n):
        x[i] = w * i
    x.sum().backward()


@program
def rows_changed(n: int) -> None:
    y = leaf(n, 3) * 1
    for i in range(n):
        y[i] *= 2
    y.sum().backward()


@program
def rows_of_rows(n: int) -> None:
    y = leaf(n + 1, 3) * 1
    for i in range(n):
        y[i + 1] += y[i].clone()
    y.sum().backward()


@program
def rows_of_rows_seen(n: int) -> None:
    y = leaf(n + 1, 3) * 1
    for i in range(n):
        y[i + 1] += y[i].clone()
        y[i].sum().item()
    y.sum().backward()


@program
def many_views(n: int) -> None:
    x = torch.zeros(2 * n, 4)
    views = [x[i:] for i in range(n)]
    x.add_(1)
    for v in views:
        v.add_(1)
    x.sum().item()


@program
def deep_network(n: int) -> None:
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(n)])
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()


@program
def recurrent_cell(n: int) -> None:
    cell, h = nn.GRUCell(4, 4), torch.zeros(2, 4)
    for _ in range(n):
        h = cell(torch.ones(2, 4), h)
    h.sum().backward()


@program
def hooks(n: int) -> None:
    y, calls = leaf(3), []
    for _ in range(n):
        y = y * 1.01
        y.register_hook(calls.append)
        y.retain_grad()
    y.sum().backward()
    assert len(calls) == n


@program
def custom_functions(n: int) -> None:
    class Same(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * 1.0

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient * ctx.saved_tensors[0]

    y = leaf(3)
    for _ in range(n):
        y = Same.apply(y)
    y.sum().backward()


@program
def inner_steps(n: int) -> None:
    w = p = leaf(3)
    for _ in range(n):
        (gradient,) = torch.autograd.grad((p * p).sum(), p, create_graph=True)
        p = p - 0.01 * gradient
    p.sum().backward()
    assert w.grad is not None


@program
def attack(n: int) -> None:
    """Projected gradient descent: a loop with a backward pass and writes in each round, which looks at nothing."""
    model, x = nn.Linear(4, 2), torch.rand(2, 4)
    d = torch.zeros_like(x, requires_grad=True)
    for _ in range(n):
        model(x + d).sum().backward()
        with torch.no_grad():
            d.add_(0.01 * d.grad.sign()).clamp_(-0.1, 0.1)
            d.grad.zero_()
    d.sum().item()


@program
def long_rounds(n: int) -> None:
    cost = torch.rand(6, 6, requires_grad=True)
    u, v = torch.zeros(6), torch.zeros(6)
    for _ in range(n):
        u = -torch.logsumexp(-cost + v, 1) + 0.1 * u.sin().cos()
        v = -torch.logsumexp(-cost + u[:, None], 0) + 0.1 * v.tanh().exp()
    (u.sum() + v.sum()).backward()


@program
def losses(n: int) -> None:
    model = nn.Linear(4, 4)
    made = [model(torch.ones(2, 4)).sum() for _ in range(n)]
    torch.stack(made).sum().backward()


@program
def branches(n: int) -> None:
    y = leaf(3)
    for _ in range(n):
        y = y * 1.01 if y.sum() > 3.5 else y + 0.01
    y.sum().backward()


@pytest.fixture(autouse=True, params=[tiers.PIECES, tiers.MIXED], ids=["pieces", "mixed"])
def _tier(request: pytest.FixtureRequest) -> Iterator[None]:
    before = tiers.MODE[0]
    tiers.MODE[0] = request.param
    yield
    tiers.MODE[0] = before


def calls(function: Callable[[int], Any], n: int) -> int:
    """How many functions a run calls."""
    count = 0

    def seen(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        function(n)
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("name", PROGRAMS)
def test_growth(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function = PROGRAMS[name]
    forget_places(monkeypatch)
    forget_edges()
    function(8)
    for _ in range(2):  # new, and known
        few, many = calls(function, FEW), calls(function, MANY)
        assert many < 8 * few + 20_000, f"{name}: {few} calls for {FEW} steps, {many} for {MANY}"
