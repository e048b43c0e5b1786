"""The engine's records are not walked by the garbage collector, and are freed all the same when plans are forgotten."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from typing import Any

import pytest

import flambeau as torch
from flambeau.compiler.graph import Node, Value
from flambeau.compiler.kernel import Kernel
from flambeau.runtime import untracked
from flambeau.trace import forgetting
from flambeau.trace.place import Place
from flambeau.trace.recorder import local
from flambeau.trace.state import Out, State

pytestmark = pytest.mark.usefixtures("short_collections")


def _step(n: int) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    torch.nn.functional.cross_entropy(net(torch.ones(n, 3)), torch.arange(n) % 2).backward()
    optimizer.step()


def _tracked() -> int:
    gc.collect()
    return len(gc.get_objects())


def _records() -> Counter[type]:
    return Counter(map(type, gc.get_objects()))


def test_new_sizes_leave_little_to_walk(whole: None) -> None:
    """A training step makes some 1,000 records; what is tracked of it is the plan itself."""
    for n in range(2, 40):  # past the sizes at which a kernel is chosen otherwise, whatever the processor: a plan over symbols has 3,000 objects
        _step(n)
    before, of_others = _tracked(), _records()
    for n in range(40, 50):
        _step(n)
    assert (_tracked() - before) / 10 < 150
    made = _records() - of_others
    assert not set(made) & {Out, Node, Value, Place, Kernel}
    assert made[State] < 100  # where only a mode changes: a few a step


def test_anything_may_be_given() -> None:
    things: list[Any] = [None, 1, "a", (), (1, 2), [1], {}, {1: [2]}, object(), len, int, 1.5, frozenset(), State(None, None)]
    untracked.untrack_all(things)
    untracked.keep(*things)
    assert things[5] == [1] and not gc.is_tracked(things[-1])


@pytest.mark.parametrize("writes", [False, True])
def test_forgotten_states_are_freed(writes: bool) -> None:
    """An edge of a custom function holds its class: when the class dies, the states are gone. They are cycles that the collector does not see."""

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    class Text(str):
        """A static argument whose class is part of the key."""

    x = torch.ones(3, requires_grad=True)
    for _ in range(3):
        y = Twice.apply(x.div(1.5, rounding_mode=None) * 3).sum()
        if writes:
            with torch.no_grad():
                x.mul_(1.0)
        y.backward()
        x.grad = None
    made = [weakref.ref(plan.plan) for state in forgetting.states() for plan in state.plans.values()]
    assert made
    dead = weakref.ref(Twice)
    del x, y, Twice
    torch.ones(1).tolist()
    local.main.reset()
    forgetting.keep(0)
    gc.collect()
    assert not any(ref() for ref in made)
    assert dead() is None
