"""Random programs whose instructions are done by several threads, one after the other: the values that one thread gives.

Nothing happens at once, so whatever differs, differs each time. `python -m tests.engine.programs_by_turns N [SEED]` runs N programs.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np

import flambeau as ft
from flambeau.trace.evaluate import end_traces_of_dead_threads
from tests.engine import random_programs
from tests.engine.command import main
from tests.engine.random_programs import Event, Instruction, Machine, run
from tests.engine.test_whole_programs import program_of, unlike

THREADS = 3


@contextmanager
def in_turns(seed: int) -> Iterator[None]:
    """While it lasts, each instruction of a program, and its end, is done by one of some threads, or by this one; another one may look at a value before."""
    chance = random.Random(seed)
    pools = [ThreadPoolExecutor(1) for _ in range(THREADS)]

    def somewhere(function: Callable[..., Any], *args: Any) -> Any:
        place = chance.randrange(THREADS + 1)
        return function(*args) if place == THREADS else pools[place].submit(function, *args).result()

    def look(s: Machine) -> None:
        """Use a value, and leave what comes of it pending in a thread of its own."""
        t = chance.choice(s.values)
        kept.append(chance.choice((lambda: t + 1, lambda: t.detach() * 2, lambda: (t + 1).sum().item(), lambda: t.tolist()))())
        del kept[:-5]

    kept: list[Any] = []
    step, finish = random_programs._step, random_programs._finish

    def step_somewhere(s: Machine, instruction: Instruction) -> None:
        if s.values and chance.random() < 0.4:
            somewhere(look, s)
        somewhere(step, s, instruction)

    random_programs._step = step_somewhere
    random_programs._finish = lambda s: somewhere(finish, s)
    try:
        yield
    finally:
        random_programs._step, random_programs._finish = step, finish
        for pool in pools:
            pool.shutdown()
        end_traces_of_dead_threads()


def _until_a_pass_has_failed(events: list[Event]) -> list[Event]:
    """How much of a backward pass was done before its error is nobody's business."""
    failed = next((i + 1 for i, event in enumerate(events) if event[0] == "error" and "grad" in event[2]), len(events))
    return events[:failed]


def difference(seed: int) -> str | None:
    """What differs between a program in one thread and the same by turns."""
    program, gradients = program_of(seed)
    with np.errstate(all="ignore"):
        alone, _ = run(ft, program, gradients)
        for turn in range(2):  # the second time on a learned path
            with in_turns(seed + turn):
                turns, _ = run(ft, program, gradients)
            alone, turns = (_until_a_pass_has_failed(events) for events in (alone, turns))
            found = unlike(turns, alone, False)
            if found and unlike(alone, turns, False):  # else one has ended by an error in a graph that the other has not met
                return found
    return None


def differences(seeds: Sequence[int]) -> list[str]:
    """What differs, of the programs of these seeds."""
    return [f"seed {seed}: {found}" for seed in seeds if (found := difference(seed))]


if __name__ == "__main__":
    sys.exit(main(differences, "by turns of threads"))
