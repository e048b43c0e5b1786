"""Random programs in several threads at once, while others look at what they have pending: the bits that each gives alone.

`python -m tests.engine.programs_in_threads N [SEED]` runs N programs and prints those that differ.
"""

from __future__ import annotations

import gc
import random
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

import flambeau as ft
from flambeau.trace.evaluate import end_traces_of_dead_threads
from tests.engine import random_programs
from tests.engine.command import main
from tests.engine.random_programs import Event, Machine, run
from tests.engine.test_whole_programs import program_of, unlike
from tests.threads import Thread, join

THREADS = 3
_running: list[Machine] = []  # machines of all threads: the latest of them


class _Seen(Machine):
    """A machine that others can look at."""

    def __init__(self, m: Any, gradients: bool) -> None:
        super().__init__(m, gradients)
        _running.append(self)
        del _running[: -2 * THREADS]


def _look(chance: random.Random) -> None:
    """Read a tensor of a program that runs, or record with it."""
    machine = chance.choice(_running)
    t = chance.choice(machine.values)
    chance.choice((lambda: t.tolist(), lambda: (t + 1).sum().item(), lambda: repr(t), lambda: t.detach() * 2))()


@contextmanager
def looked_at(seed: int) -> Iterator[None]:
    """While it lasts, a thread looks at the programs that run, and the collector runs often and finds garbage that looks, too."""
    ended = threading.Event()

    def keep_looking(act: Callable[[random.Random], None], chance: random.Random) -> None:
        while not ended.is_set():
            with suppress(Exception):  # a tensor may be written to, or be refused, at any moment
                act(chance)

    class Garbage:
        def __init__(self, chance: random.Random) -> None:
            self.me, self.chance = self, chance

        def __del__(self) -> None:
            if not ended.is_set():
                with suppress(Exception):
                    _look(self.chance)

    def litter(chance: random.Random) -> None:
        Garbage(chance)
        ended.wait(0.002)

    threads = [Thread(target=keep_looking, args=(act, random.Random(seed + i))) for i, act in enumerate((_look, litter))]
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-4)
    gc.set_threshold(200, 5, 5)
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        join(*threads)
        sys.setswitchinterval(interval)
        gc.set_threshold(*threshold)


def differences(seeds: Sequence[int]) -> list[str]:
    """Run the programs of these seeds one by one, then all at once in some threads; what differs."""
    alone: dict[int, list[Event]] = {}
    found: list[str] = []
    with np.errstate(all="ignore"):
        for seed in seeds:
            program, gradients = program_of(seed)
            alone[seed] = run(ft, program, gradients)[0]
    machine, random_programs.Machine = Machine, _Seen  # type: ignore[misc]

    def work(mine: Sequence[int]) -> None:
        for seed in mine:
            program, gradients = program_of(seed)
            try:
                with np.errstate(all="ignore"):
                    difference = unlike(run(ft, program, gradients)[0], alone[seed], False)
            except BaseException as error:
                difference = repr(error)
            if difference:
                found.append(f"seed {seed}: {difference}")

    threads = [Thread(target=work, args=(seeds[i::THREADS],)) for i in range(THREADS)]
    try:
        with looked_at(seeds[0]):
            for thread in threads:
                thread.start()
            join(*threads)
    finally:
        random_programs.Machine = machine  # type: ignore[misc]
        _running.clear()
        end_traces_of_dead_threads()
    return found


if __name__ == "__main__":
    sys.exit(main(differences, "in threads", at_once=60))
