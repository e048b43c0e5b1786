"""Programs of any number of steps, for the question what a step costs when many came before (test_growth.py).

`python -m tests.engine.growing_programs` prints, for growing numbers of steps, the processor time of each beside PyTorch: of a first run and of one more.
"""

from __future__ import annotations

import gc
import importlib
import sys
import time
from collections.abc import Callable
from typing import Any

SIZES = 100, 200, 400, 800
Program = Callable[[Any, int], None]
PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    PROGRAMS[function.__name__] = function
    return function


def leaf(torch: Any, *shape: int) -> Any:
    return torch.ones(*shape, requires_grad=True)


def same_function(torch: Any) -> Any:
    """A custom function that gives its argument, and saves it."""

    class Same(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * 1.0

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            (x,) = ctx.saved_tensors
            return gradient * (x == x)

    return Same


@program
def chain(torch: Any, n: int) -> None:
    x = y = leaf(torch, 3)
    for _ in range(n):
        y = y * 1.01
    y.sum().backward()
    assert x.grad is not None


@program
def chain_seen(torch: Any, n: int) -> None:
    y = leaf(torch, 3)
    for _ in range(n):
        y = y * 1.01
        y.sum().item()
    y.sum().backward()


@program
def kept_values(torch: Any, n: int) -> None:
    made = [leaf(torch, 3)]
    for _ in range(n):
        made.append(made[-1] * 1.01)
        made[-1].sum().item()
    made[-1].sum().backward()


@program
def rows_written(torch: Any, n: int) -> None:
    x = torch.zeros(n, 4)
    for i in range(n):
        x[i] = i
        x[i].sum().item()


@program
def rows_written_with_gradients(torch: Any, n: int) -> None:
    w, x = leaf(torch, 4), torch.zeros(n, 4)
    for i in range(n):
        x[i] = w * i
    x.sum().backward()


@program
def rows_changed(torch: Any, n: int) -> None:
    y = leaf(torch, n, 3) * 1
    for i in range(n):
        y[i] *= 2
    y.sum().backward()


@program
def rows_of_rows(torch: Any, n: int, seen: bool = False) -> None:
    y = leaf(torch, n + 1, 3) * 1
    for i in range(n):
        y[i + 1] += y[i].clone()
        if seen:
            y[i].sum().item()
    y.sum().backward()


@program
def rows_of_rows_seen(torch: Any, n: int) -> None:
    rows_of_rows(torch, n, seen=True)


@program
def many_views(torch: Any, n: int) -> None:
    x = torch.zeros(2 * n, 4)
    views = [x[i:] for i in range(n)]
    x.add_(1)
    for v in views:
        v.add_(1)
    x.sum().item()


@program
def deep_network(torch: Any, n: int) -> None:
    model = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(n)])
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()


@program
def recurrent_cell(torch: Any, n: int) -> None:
    cell, h = torch.nn.GRUCell(4, 4), torch.zeros(2, 4)
    for _ in range(n):
        h = cell(torch.ones(2, 4), h)
    h.sum().backward()


@program
def hooks(torch: Any, n: int) -> None:
    y, calls = leaf(torch, 3), []
    for _ in range(n):
        y = y * 1.01
        y.register_hook(calls.append)
        y.retain_grad()
    y.sum().backward()
    assert len(calls) == n


@program
def custom_functions(torch: Any, n: int) -> None:
    same, y = same_function(torch), leaf(torch, 3)
    for _ in range(n):
        y = same.apply(y)
    y.sum().backward()


@program
def inner_steps(torch: Any, n: int) -> None:
    w = p = leaf(torch, 3)
    for _ in range(n):
        (gradient,) = torch.autograd.grad((p * p).sum(), p, create_graph=True)
        p = p - 0.01 * gradient
    p.sum().backward()
    assert w.grad is not None


@program
def attack(torch: Any, n: int) -> None:
    """Projected gradient descent: a loop with a backward pass and writes in each round, which looks at nothing."""
    model, x = torch.nn.Linear(4, 2), torch.rand(2, 4)
    d = torch.zeros_like(x, requires_grad=True)
    for _ in range(n):
        model(x + d).sum().backward()
        with torch.no_grad():
            d.add_(0.01 * d.grad.sign()).clamp_(-0.1, 0.1)
            d.grad.zero_()
    d.sum().item()


@program
def long_rounds(torch: Any, n: int) -> None:
    cost = torch.rand(6, 6, requires_grad=True)
    u, v = torch.zeros(6), torch.zeros(6)
    for _ in range(n):
        u = -torch.logsumexp(-cost + v, 1) + 0.1 * u.sin().cos()
        v = -torch.logsumexp(-cost + u[:, None], 0) + 0.1 * v.tanh().exp()
    (u.sum() + v.sum()).backward()


@program
def losses(torch: Any, n: int) -> None:
    model = torch.nn.Linear(4, 4)
    made = [model(torch.ones(2, 4)).sum() for _ in range(n)]
    torch.stack(made).sum().backward()


@program
def branches(torch: Any, n: int) -> None:
    y = leaf(torch, 3)
    for _ in range(n):
        y = y * 1.01 if y.sum() > 3.5 else y + 0.01
    y.sum().backward()


def seconds(torch: Any, name: str, n: int) -> float:
    """The processor time of one run, of this thread."""
    gc.collect()
    start = time.thread_time()
    PROGRAMS[name](torch, n)
    return time.thread_time() - start


def main(names: list[str]) -> None:
    packages = [importlib.import_module(name) for name in ("flambeau", "torch")]
    packages[1].set_num_threads(1)
    print(f"{'milliseconds, first run and next':34}" + "".join([f"{n:>28}" for n in SIZES]))
    for name in names or PROGRAMS:
        for package in packages:
            PROGRAMS[name](package, 10)
            cells = [f"{1e3 * seconds(package, name, n):12.1f} {1e3 * seconds(package, name, n):12.1f}" for n in SIZES]
            print(f"{name:24}{package.__name__:10}" + "".join([f"{cell:>28}" for cell in cells]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
