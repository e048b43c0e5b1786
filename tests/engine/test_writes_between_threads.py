"""A thread writes to memory that calls of another thread have yet to read: these have it as it was, as in an eager program.

Nothing here happens at once: the threads take turns, so whatever differs, differs each time.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import flambeau as ft
from flambeau.trace.evaluate import end_traces_of_dead_threads
from flambeau.trace.recorder import local
from flambeau.trace.tiers import MODE, WHOLE
from flambeau.trace.traces import SHARED
from tests.engine.programs_by_turns import difference
from tests.threads import Thread, join


@pytest.fixture(autouse=True)
def whole() -> Any:
    """Nothing ends a trace early, so that what is pending stays so."""
    before = MODE[0]
    MODE[0] = WHOLE
    yield
    MODE[0] = before
    end_traces_of_dead_threads()


def ended(function: Callable[[], Any]) -> Any:
    """What a thread of its own gives, which has ended then."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def living(pool: ThreadPoolExecutor) -> Callable[[Callable[[], Any]], Any]:
    return lambda function: pool.submit(function).result()


def _optimizer(x: Any) -> None:
    p = ft.nn.Parameter(x)
    p.grad = ft.ones_like(p)
    ft.optim.SGD([p], lr=1.0).step()


def _from_numpy(x: Any) -> None:
    x.numpy()[...] = 5


WRITES: dict[str, Callable[[Any], Any]] = {
    "in place": lambda x: x.mul_(3), "view": lambda x: x[1].fill_(7), "copy": lambda x: x.copy_(ft.zeros(4)),
    "index": lambda x: x.__setitem__(ft.tensor([0, 2]), 9.0),
    "number": lambda x: x.__setitem__(0, 4.0), "data": lambda x: x.data.zero_(), "out": lambda x: ft.add(ft.ones(4), 1, out=x),
    "foreach": lambda x: ft._foreach_mul_([x], 2.0), "optimizer": _optimizer, "NumPy": _from_numpy, "storage": lambda x: x.untyped_storage().fill_(0),
    "set": lambda x: x.set_(ft.zeros(4)), "resized": lambda x: x.resize_(6)[4:].fill_(1),
}  # fmt: skip


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("reader", ["main", "living", "ended"])
@pytest.mark.parametrize("writer", ["main", "living", "ended"])
def test_pending_reads_have_what_was(write: str, reader: str, writer: str) -> None:
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        places: dict[str, tuple[Any, Any]] = {
            "main": (lambda f: f(), lambda f: f()), "living": (living(one), living(other)), "ended": (ended, ended),
        }  # fmt: skip
        read, do = places[reader][0], places[writer][1]
        for _ in range(3):  # the second time on a learned path
            expected = ft.tensor([1.0, 2.0, 3.0, 4.0])
            x = ft.tensor([1.0, 2.0, 3.0, 4.0])
            y, v = read(lambda x=x: (x * 2, x[1:].sin()))
            do(lambda x=x: WRITES[write](x))
            again = read(lambda x=x: x[:4] + 0)
            WRITES[write](expected)
            assert read(lambda y=y: (y + 1).tolist()) == [3.0, 5.0, 7.0, 9.0]
            assert v.tolist() == ft.tensor([2.0, 3.0, 4.0]).sin().tolist()
            assert again.tolist() == expected[:4].tolist() and x.tolist() == expected.tolist()


@pytest.mark.parametrize("looker", ["living", "ended"])
def test_own_writes_after_another_thread_has_read(looker: str) -> None:
    with ThreadPoolExecutor(1) as one:
        look = ended if looker == "ended" else living(one)
        for change in (lambda x, v: x.mul_(3), lambda x, v: v.fill_(7), lambda x, v: x[0].zero_(), lambda x, v: x.copy_(v[:1].expand(4))):
            x = ft.tensor([1.0, 2.0, 3.0, 4.0])
            v = x[1:]
            y = x * 2
            kept = look(lambda x=x: (x + 1, (x * x).sum().item()))
            change(x, v)
            z = y.sin()
            del y
            alone = ft.tensor([1.0, 2.0, 3.0, 4.0])
            change(alone, alone[1:])
            assert z.tolist() == ft.tensor([2.0, 4.0, 6.0, 8.0]).sin().tolist()
            assert (x.tolist(), v.tolist()) == (alone.tolist(), alone[1:].tolist()) and kept[0].tolist() == [2.0, 3.0, 4.0, 5.0]


def test_gradients_of_what_another_thread_writes_over() -> None:
    def work(x: Any) -> tuple[Any, Any]:
        h = x * 2
        view = h[1:]
        return h, (view.exp() * 1).sum() + h.sum()

    with ThreadPoolExecutor(1) as one:
        for _ in range(3):
            x = ft.tensor([0.5, 1.0, 1.5], requires_grad=True)
            h, loss = living(one)(lambda x=x: work(x))
            with ft.no_grad():
                h.detach().add_(0)
            loss.backward()
            assert x.grad.tolist() == [2.0, *(2 + 2 * ft.tensor([2.0, 3.0]).exp()).tolist()]


def test_an_input_of_two_traces_is_ones_own_again() -> None:
    x = ft.tensor([1.0, 2.0])
    y = x + 1
    with ThreadPoolExecutor(1) as one:
        kept = living(one)(lambda: x * 2)
        assert x._storage.gen == SHARED
        assert x._storage in local.main.shared
        living(one)(kept.tolist)
        y.tolist()
        assert x._storage.gen == -1


def test_what_finalizers_have_interrupted_is_not_taken() -> None:
    """Their thread's names go back when they end: what had been taken and run meanwhile would be pending for ever."""
    for _ in range(3):
        x = ft.tensor([1.0, 2.0, 3.0])
        y, z = x * 2, x * 3
        seen: list[Any] = []

        class Garbage:
            def __init__(self) -> None:
                self.me = self

            def __del__(self, y: Any = y, z: Any = z, seen: list[Any] = seen) -> None:
                seen.append((y + 1).tolist())
                other = Thread(target=lambda: seen.append(z.tolist()))
                other.start()
                join(other)

        Garbage()
        gc.collect()
        assert seen == [[3.0, 5.0, 7.0], [3.0, 6.0, 9.0]]
        assert (y.tolist(), z.tolist()) == ([2.0, 4.0, 6.0], [3.0, 6.0, 9.0])


@pytest.mark.parametrize("places", [(0, 1, 0), (1, 0, 0), (1, 0, 1), (1, 2, 0), (0, 1, 1), (0, 0, 1)])
def test_hooks_and_views_in_place_of_another_threads_results(places: tuple[int, int, int]) -> None:
    """One thread computes, a second one changes what the result is to gradients, a third one goes on; another may have it among its inputs."""
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as two:
        run = [lambda f: f(), living(one), living(two)]
        made, changed, used = (run[place] for place in places)
        for read in (False, True):
            x = ft.ones(3, 2, requires_grad=True)
            y, v = made(lambda x=x: (x * 2, x * 3))
            kept = [run[2](lambda t=t: t.sum()) for t in (y, v)] if read else []
            seen: list[Any] = []
            changed(lambda y=y, seen=seen: (y.retain_grad(), y.register_hook(seen.append)))
            changed(lambda v=v: v.transpose_(0, 1))
            assert v.requires_grad
            used(lambda y=y, v=v: ((y * y).sum() + (v * 2).sum()).backward())
            assert y.grad.tolist() == seen[0].tolist() == [[4.0, 4.0]] * 3
            assert x.grad.tolist() == [[14.0, 14.0]] * 3
            assert all(t.requires_grad for t in kept)


@pytest.mark.parametrize("seed", [38, 41, 52, 40044, 40190, 40221, *range(2000, 2020)])
def test_programs_by_turns(seed: int) -> None:
    assert difference(seed) is None
