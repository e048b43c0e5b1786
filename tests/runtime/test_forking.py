"""A process forks beside other threads: it waits for what they hold, whatever the order in which they take it, and leaves every lock free."""

from __future__ import annotations

import os
import threading
import time
from functools import partial
from typing import Any

import pytest

import flambeau as ft
from flambeau.runtime import forking
from tests.processes import exit_code_of_child
from tests.threads import Thread, beside, join

pytestmark = [pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here"), pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")]


def _fork_and_compute() -> int:
    """The exit status of a child that computes."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            x = ft.full((5,), 3.0)
            status = 0 if (x * x).tolist() == [9.0] * 5 else 2
        finally:
            os._exit(status)
    return exit_code_of_child(child)


def _takes(locks: list[Any], ended: threading.Event) -> None:
    """Take our locks one within the other, in this order, again and again."""

    def within(rest: list[Any]) -> None:
        if rest:
            with rest[0]:
                time.sleep(0.0001)
                within(rest[1:])

    while not ended.is_set():
        within(locks)


def _forks(statuses: set[int], ended: threading.Event) -> None:
    while not ended.is_set():
        statuses.add(_fork_and_compute())


@pytest.mark.parametrize("order", [1, -1])
def test_locks_are_taken_in_any_order(order: int) -> None:
    with beside(partial(_takes, forking._LOCKS[::order])):
        assert {_fork_and_compute() for _ in range(8)} == {0}


def test_threads_fork_at_once() -> None:
    statuses: set[int] = set()
    with beside(partial(_forks, statuses), partial(_forks, statuses)):
        assert {_fork_and_compute() for _ in range(8)} == {0}
    assert statuses <= {0}

    def look() -> list[bool]:
        free = []
        for lock in (forking._forking, *forking._LOCKS):
            free.append(lock.acquire(timeout=5.0))
            lock.release()
        return free

    other = Thread(look)
    other.start()
    assert all(join(other)[0])


def _compiles(ended: threading.Event) -> None:
    size = 40
    while not ended.is_set():
        size += 1
        (ft.ones(size).reshape(size, 1) * size + float(size)).sum().item()


def test_a_child_is_made_while_others_compile() -> None:
    """What another thread compiles when a process forks is no obstacle in the child."""
    with beside(_compiles):
        assert {_fork_and_compute() for _ in range(8)} == {0}
