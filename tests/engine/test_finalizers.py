"""Finalizers that record, look and write while the garbage collector runs inside a recorded call, a backward pass or an optimizer's step."""

from __future__ import annotations

import gc
import random
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import flambeau as fb
from flambeau import nn
from flambeau.trace.recorder import local
from flambeau.trace.storage import Storage
from flambeau.trace.traces import TRACE_SLOTS, TRACES, note
from tests.threads import Thread, join


class Cycle:
    """Garbage that only the collector finds; its finalizer calls `work`."""

    def __init__(self, work: Any) -> None:
        self.me = self
        self.work = work

    def __del__(self) -> None:
        self.work()


@contextmanager
def collecting_often(work: Any, every: int) -> Iterator[list[int]]:
    """While it lasts, the collector runs after every few allocations, in one of `every` times with garbage whose finalizer calls `work`."""
    before, runs, chance = gc.get_threshold(), [0], random.Random(1)

    def once() -> None:
        runs[0] += 1
        work()

    def again(phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and chance.random() * every < 1:
            Cycle(once)

    gc.collect()
    gc.freeze()  # what there is stays: a collection looks at what is new, and takes 2 ms of a long process, not 200
    gc.callbacks.append(again)
    Cycle(once)
    gc.set_threshold(3, 1, 1)
    try:
        yield runs
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(again)
        gc.unfreeze()


def training(shared: list[Any]) -> tuple[list[float], list[Any]]:
    """What some steps of training give; `shared` has tensors that finalizers look at meanwhile."""
    fb.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    optimizer = fb.optim.Adam(model.parameters(), lr=0.05)
    x, y = fb.arange(20.0).reshape(5, 4) / 20, fb.tensor([0, 1, 2, 1, 0])
    shared[:] = [x, *model.parameters()]
    losses, running = [], fb.zeros(3)
    for _ in range(4):
        optimizer.zero_grad()
        out = model(x)
        shared[-1] = out
        loss = nn.functional.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        running.mul_(0.9).add_(out.detach()[1:3].sum(0))
        losses.append(float(loss))
    return losses, [p.tolist() for p in model.parameters()] + [running.tolist()]


def reads(shared: list[Any]) -> Any:
    def work() -> None:
        for t in shared:
            (t * 2.0).sum().item()

    return work


def records(shared: list[Any]) -> Any:
    mine = fb.zeros(3)

    def work() -> None:
        mine.add_(1.0)
        fb.cat([mine, mine]).chunk(2)
        if shared:
            shared[0] + 1.0

    return work


def writes_its_own(shared: list[Any]) -> Any:
    mine = fb.zeros(3)
    seen: list[float] = []

    def work() -> None:
        mine[0] = float(len(seen))
        seen.append(float(mine[0]))
        assert seen[-1] == len(seen) - 1

    return work


# After `records`, which allocates much, the very next allocation collects again: 20,000 times in these steps if each time had garbage.
@pytest.mark.parametrize(("kind", "every"), [(reads, 4), (records, 4), (writes_its_own, 1)])
def test_a_training_loop_is_as_without_finalizers(kind: Any, every: int) -> None:
    expected = training([])
    shared: list[Any] = []
    failed: list[Any] = []
    work = kind(shared)

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    with collecting_often(guarded, every) as runs:
        # How often the collector runs follows from how much a pass allocates: what is known allocates little. So as many passes as it takes.
        found = [training(shared)]
        while runs[0] <= 100 and len(found) < 10:
            found.append(training(shared))
    assert all(f == expected for f in found)
    assert runs[0] > 100 and not failed
    assert local.trace is local.main and all(tr.index == index for index, tr in TRACES.items())


def test_what_finalizers_recorded_is_there_afterwards() -> None:
    total = fb.zeros(2)
    results = []

    def work() -> None:
        total.add_(1.0)
        results.append(total * 2.0)

    y = fb.ones(2)
    Cycle(work)
    z = y + 1.0  # pending while the collector runs
    gc.collect()
    assert (z * 2.0).tolist() == [4.0, 4.0]
    assert total.tolist() == [1.0, 1.0] and results[0].tolist() == [2.0, 2.0]


def test_modes_are_those_of_the_interrupted_call() -> None:
    """Those of the thread that collects: another one that allocates meanwhile (a compiler's, say) would run the finalizer with its own."""
    found: list[bool] = []
    w = fb.ones(2, requires_grad=True)

    def collected() -> None:
        count = len(found) + 1
        Cycle(lambda: found.append((w * 2.0).requires_grad))
        while len(found) < count:  # `gc.collect` does nothing while another thread collects
            gc.collect()

    gc.disable()  # in all threads
    try:
        with fb.no_grad():
            collected()
        collected()
    finally:
        gc.enable()
    assert found == [False, True]


@pytest.mark.parametrize("requires_grad", [False, True])
def test_what_another_thread_makes_of_a_tensor_that_a_finalizer_looks_at_stays(requires_grad: bool) -> None:
    """The names that the tensor had before the collection are those of the view that it was."""
    w = fb.arange(6.0).reshape(2, 3).requires_grad_(requires_grad)
    x = w * 1.0
    x.tolist()
    looked, turned = threading.Event(), threading.Event()

    def turn() -> None:
        looked.wait(20)
        x.transpose_(0, 1)
        turned.set()

    def work() -> None:
        (x + 1.0).sum()
        looked.set()
        turned.wait(20)

    thread = Thread(target=turn)
    thread.start()
    Cycle(work)
    while not turned.is_set():
        gc.collect()
    join(thread)
    assert tuple(x.shape) == (3, 2) and x.requires_grad is requires_grad
    assert x.tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]


def test_a_trace_that_has_ended_shares_nothing() -> None:
    """Another thread may run what it has pending after one has seen that a storage is its own."""
    tr = local.trace
    storage = Storage(None, tr.gen - TRACE_SLOTS, 0)
    note(tr, storage)
    assert storage not in tr.shared and storage not in tr.reading
    storage.gen = tr.gen
    note(tr, storage)
    assert tr.shared.pop(storage) == 0


def test_callbacks_of_weak_references_record() -> None:
    class Thing:
        pass

    found = []
    thing: Any = Thing()
    thing.me = thing
    reference = weakref.ref(thing, lambda _: found.append((fb.ones(2) * 3.0).tolist()))
    x = fb.ones(2) * 5.0
    del thing
    gc.collect()
    assert reference() is None and found == [[3.0, 3.0]]
    assert (x + 1.0).tolist() == [6.0, 6.0]
