"""Backward passes of several threads at once: what each adds to `.grad` is there in the end, none sees an error, hooks are called once a pass."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import flambeau as torch
from tests.processes import python
from tests.threads import Thread, join

COUNT = 5


def passes(function: Callable[[int], None], count: int = COUNT) -> None:
    """Run a function in threads that begin at the same time; what one raises is raised here."""
    ready = threading.Barrier(count)

    def begin(i: int) -> None:
        ready.wait(20)
        function(i)

    threads = [Thread(begin, (i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    join(*threads)


def near(leaf: Any, gradient: Any) -> bool:
    return torch.allclose(leaf.grad, gradient, atol=1e-5)


def _one_pass(out: Any, inputs: Any, i: int) -> None:
    out.backward(inputs=inputs, retain_graph=True)


@pytest.mark.parametrize("inputs", [False, True])
@pytest.mark.parametrize("observed", [False, True])
def test_one_graph(inputs: bool, observed: bool) -> None:
    for _ in range(10):
        x, y = (torch.rand(3, requires_grad=True) for _ in range(2))
        out = (x * y).sum()
        if observed:
            out.item()
        passes(partial(_one_pass, out, (x, y) if inputs else None))
        assert near(x, COUNT * y.detach())
        assert near(y, COUNT * x.detach())


def test_graphs_of_their_own_over_shared_parameters() -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(4, 4)
    data = torch.rand(COUNT, 8, 4)
    for _ in range(5):
        layer.zero_grad()
        passes(lambda i: layer(data[i]).sin().sum().backward())
        found = [p.grad.clone() for p in layer.parameters() if p.grad is not None]
        layer.zero_grad()
        for i in range(COUNT):
            layer(data[i]).sin().sum().backward()
        for p, g in zip(layer.parameters(), found, strict=True):
            assert near(p, g)


def test_hooks_and_a_pass_that_fails() -> None:
    lock, called, failed = threading.Lock(), [0], [0]

    class Once(torch.autograd.Function):  # type: ignore[misc]
        """Fails in the first of all passes."""

        first = True

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            with lock:
                first, Once.first = Once.first, False
            if first:
                raise RuntimeError("the first one")
            return g

    def hook(gradients: Any) -> None:
        with lock:
            called[0] += 1

    x, y = (torch.rand(2, requires_grad=True) for _ in range(2))
    torch.autograd.graph.register_multi_grad_hook((x, y), hook)
    out = (Once.apply(x) * y).sum()

    def one(i: int) -> None:
        try:
            out.backward(inputs=(x, y), retain_graph=True)
        except RuntimeError as error:
            assert "the first one" in str(error)
            with lock:
                failed[0] += 1

    passes(one)
    assert failed == [1]
    assert called == [COUNT - 1]
    assert near(x, (COUNT - 1) * y.detach())


def test_a_hook_that_waits_for_another_threads_pass() -> None:
    """Passes do not wait for each other for ever: one that needs another's end (a collective in a hook) gets it."""
    x = torch.rand(2, requires_grad=True)
    met = threading.Barrier(2)
    outs = []

    def wait(gradient: Any) -> None:
        met.wait(30)

    for _ in range(2):
        y = x * 2
        y.register_hook(wait)
        outs.append(y.sum())
    passes(lambda i: outs[i].backward(), 2)
    assert near(x, torch.full((2,), 4.0))


def test_a_program_that_flambeau_runs(tmp_path: Path) -> None:
    """The frames of `flambeau run` are below all that a program does: they are no call that is under way."""
    (tmp_path / "program.py").write_text(
        "import threading, torch\n"
        "x = torch.ones(2, requires_grad=True)\n"
        "out = (x * 3).sum()\n"
        "threads = [threading.Thread(target=lambda: out.backward(retain_graph=True), daemon=True) for _ in range(3)]\n"
        "[t.start() for t in threads]\n"
        "[t.join(30) for t in threads]\n"
        "print(x.grad.tolist())\n"
    )
    found = python("-m", "flambeau", "run", tmp_path / "program.py")
    assert found.stdout.strip() == "[9.0, 9.0]", found.stderr
