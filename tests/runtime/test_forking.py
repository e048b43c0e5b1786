"""A process forks beside other threads: it waits for what they hold, whatever the order in which they take it, and leaves every lock free."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import flambeau as ft
from flambeau.runtime import forking
from tests import processes
from tests.threads import Thread, join

pytestmark = [pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here"), pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")]

_SECONDS = 60.0  # after which a child or a thread counts as hung


def _fork_and_compute() -> int:
    """The exit status of a child that computes; 9 (killed) if it hangs."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            x = ft.full((5,), 3.0)
            status = 0 if (x * x).tolist() == [9.0] * 5 else 2
        finally:
            os._exit(status)
    try:
        return processes.exit_code_of_child(child, _SECONDS)
    except pytest.fail.Exception:  # here, which may be a thread, it is a status
        return 9


@contextmanager
def _beside(*threads: threading.Thread) -> Iterator[threading.Event]:
    stop = threading.Event()
    for t in threads:
        t.stop = stop  # type: ignore[attr-defined]
        t.start()
    try:
        yield stop
    finally:
        stop.set()
        for t in threads:
            t.join(_SECONDS)
            assert not t.is_alive(), "a thread waits for a lock that nobody gives back"


class _Takes(threading.Thread):
    """Takes our locks one within the other, in an order of its own, again and again."""

    def __init__(self, locks: list[object]) -> None:
        super().__init__(daemon=True)
        self.locks = locks

    def run(self) -> None:
        while not self.stop.is_set():  # type: ignore[attr-defined]
            self._within(self.locks)

    def _within(self, locks: list[object]) -> None:
        if locks:
            with locks[0]:  # type: ignore[attr-defined]
                time.sleep(0.0001)
                self._within(locks[1:])


class _Forks(threading.Thread):
    """Forks again and again."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.statuses: set[int] = set()

    def run(self) -> None:
        while not self.stop.is_set():  # type: ignore[attr-defined]
            self.statuses.add(_fork_and_compute())


@pytest.mark.parametrize("order", [1, -1])
def test_locks_are_taken_in_any_order(order: int) -> None:
    with _beside(_Takes(forking._LOCKS[::order])):
        assert {_fork_and_compute() for _ in range(8)} == {0}


def test_threads_fork_at_once() -> None:
    threads = [_Forks(), _Forks()]
    with _beside(*threads):
        assert {_fork_and_compute() for _ in range(8)} == {0}
    assert threads[0].statuses | threads[1].statuses <= {0}
    free: list[bool] = []

    def look() -> None:
        for lock in (forking._forking, *forking._LOCKS):
            free.append(lock.acquire(timeout=5.0))
            lock.release()

    other = Thread(look)
    other.start()
    join(other)
    assert free and all(free)


def test_a_child_is_made_while_others_compile() -> None:
    """What another thread compiles when a process forks is no obstacle in the child."""

    class Compiles(threading.Thread):
        def run(self) -> None:
            size = 40
            while not self.stop.is_set():  # type: ignore[attr-defined]
                size += 1
                (ft.ones(size).reshape(size, 1) * size + float(size)).sum().item()

    with _beside(Compiles(daemon=True)):
        assert {_fork_and_compute() for _ in range(8)} == {0}
