"""Threads that record at once with the same inputs: each trace has slots of its own for them."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as ft
from tests.threads import Thread, join


@pytest.fixture
def often() -> object:
    """Threads take turns after 10 instead of 5000 microseconds."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def at_once(work: Callable[[int], None], mine: Callable[[], Any] = lambda: None) -> Any:
    """`work(0)` to `work(3)` in threads of their own, and `mine()` in this one, whose result it is."""
    threads = [Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    result = mine()
    join(*threads)
    return result


@pytest.mark.usefixtures("often")
def test_values_with_shared_inputs() -> None:
    ft.manual_seed(0)
    a, b, w = ft.rand(16), ft.rand(16), ft.nn.Parameter(ft.rand(16))

    def work(seed: int, count: int) -> list[float]:
        choose, found = random.Random(seed), []
        for _ in range(count):
            y = a
            for _ in range(choose.randrange(1, 7)):
                kind = choose.randrange(6)
                y = [lambda y: y * b, lambda y: y + 1.5, lambda y: y - 2, lambda y: y.relu(), lambda y: y * w, lambda y: ft.where(y > 0.5, y, b)][kind](y)
            kind = choose.randrange(4)
            if kind == 0:
                found.append((y.detach() + b)[choose.randrange(16)].item())
            elif kind == 1:
                found.append(y.sum().item())
            elif kind == 2 and y.requires_grad:
                found.append(ft.autograd.grad(y.sum(), [w])[0].tolist()[3])
            else:
                found.append((a + b)[3].item())
        return found

    expected = [work(seed, 60) for seed in range(4)]
    results: dict[int, list[float]] = {}
    mine = at_once(lambda seed: results.__setitem__(seed, work(seed, 60)), lambda: work(2, 60))
    assert mine == expected[2]
    assert [results.get(seed) for seed in range(4)] == expected


@pytest.mark.usefixtures("often")
def test_one_model_in_several_threads() -> None:
    ft.manual_seed(0)
    model = ft.nn.Sequential(ft.nn.Linear(16, 32), ft.nn.GELU(), ft.nn.LayerNorm(32), ft.nn.Linear(32, 4)).eval()
    given = [ft.randn(5 + i, 16) for i in range(4)]
    with ft.no_grad():
        expected = [model(x).tolist() for x in given]
    wrong: list[int] = []

    def work(i: int) -> None:
        for _ in range(50):
            with ft.no_grad():
                if model(given[i]).tolist() != expected[i]:
                    wrong.append(i)

    at_once(work)
    assert not wrong


def test_a_tensor_that_is_taken_while_its_gradient_is_recorded(monkeypatch: pytest.MonkeyPatch, whole: None) -> None:
    """Another thread takes the inputs of a backward pass after it has looked up their slots: they have others there."""
    from flambeau.autograd.engine import Engine

    x, w = ft.rand(19), ft.nn.Parameter(ft.rand(19))
    recorded, stages = Engine._new_stage, []

    def gradient() -> list[float]:
        y = (x * w).sum()
        y.item()  # from here on x and w are inputs of an earlier trace
        return ft.autograd.grad((y * y * 0.25).sigmoid(), [w])[0].tolist()  # type: ignore[no-any-return]

    def take() -> None:
        z = ft.ones(19)
        for _ in range(40):
            z = z * 1.25
        (z * w + x).tolist()

    def taken(self: Any, *args: Any) -> Any:
        thread = Thread(target=take)
        thread.start()
        join(thread)
        stages.append(args)
        return recorded(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Engine, "_new_stage", taken)
        found = gradient()
    assert stages and found == gradient()


def _in_a_thread(work: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = Thread(target=lambda: found.append(work()))
    thread.start()
    join(thread)
    return found[0] if found else None


@pytest.mark.parametrize("observed", [False, True])
@pytest.mark.parametrize("looked", [False, True])
def test_gradients_lead_through_what_other_threads_have_pending(observed: bool, looked: bool) -> None:
    """Through a tensor of this thread that others record with, and through results that they leave pending when they end."""
    weights = [1.0, 10.0, 100.0]
    for count in (1, 2, 3):
        x = ft.arange(4.0, requires_grad=True)
        y = x * 2
        if observed:
            y.sum().item()
        results = [_in_a_thread(lambda y=y, w=w: _sum_of(y * w, looked)) for w in weights[:count]]
        sum(results).backward()
        assert x.grad.tolist() == [2 * sum(weights[:count])] * 4


def _sum_of(y: Any, looked: bool) -> Any:
    result = y.sum()
    if looked:
        result.item()
    return result


def test_a_write_by_another_thread_to_what_is_pending() -> None:
    x = ft.arange(4.0, requires_grad=True)
    y = x * 3
    z = y[1:]

    def write() -> None:
        with ft.no_grad():
            y.mul_(2)

    _in_a_thread(write)
    assert y.tolist() == [0.0, 6.0, 12.0, 18.0] and z.tolist() == [6.0, 12.0, 18.0]
    (z * y[:3]).sum().backward()
    assert x.grad.tolist() == [18.0, 36.0, 72.0, 36.0]  # as PyTorch: the write was not recorded


def test_a_hook_that_waits_for_a_thread_that_reads_what_is_pending() -> None:
    """The backward pass is in the middle of a call: its trace cannot be taken, so the value is computed beside it."""
    x = ft.arange(3.0, requires_grad=True)
    other = ft.ones(3) * 7
    seen: list[Any] = []
    y = x * 2
    y.register_hook(lambda g: seen.append(_in_a_thread(lambda: ((g * 1).tolist(), other.tolist()))))
    (y * 5).sum().backward()
    assert seen == [([5.0, 5.0, 5.0], [7.0, 7.0, 7.0])]
    assert x.grad.tolist() == [10.0, 10.0, 10.0] and other.tolist() == [7.0, 7.0, 7.0]
