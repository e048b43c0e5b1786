"""Random whole programs, fused, unfused and by PyTorch: the same values, errors and gradients; pointwise bit for bit.

`python -m tests.engine.test_whole_programs N [SEED] [--processes P]` runs N programs and prints those that differ, made as
short as they can be. CI (.ci/run) runs 2,000 of them in two processes; 100,000 take some hours.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flambeau as ft
from flambeau.compiler.pipeline import disabled
from flambeau.trace.evaluate import synchronize
from flambeau.trace.replan import forget_plans
from tests.engine.random_programs import ENDS, Event, Instruction, run

torch = pytest.importorskip("torch")
LONGEST = 10  # instructions of a program
UNFUSED = 4  # of so many programs one is run without fusion, too: most of the time is the compiler's
EVERY_PLAN = 1 << 30  # more threads than any plan was made for


def difference(program: Sequence[Instruction], gradients: bool, unfused: bool = True) -> str | None:
    """What differs between the ways to run a program, or None."""
    with np.errstate(all="ignore"):
        theirs, exact = run(torch, program, gradients)
        first, _ = run(ft, program, gradients)
        found = unlike(first, theirs, False)
        if found:
            return "flambeau, PyTorch: " + found
        # PyTorch's error where ours may go on, too: whether a graph that was freed is refused can depend on where a path was cut before.
        ends = next((i for i, e in enumerate(theirs) if e[0] == "error" and any(words in e[2] for words in ENDS)), len(theirs))
        first = first[:ends]
        second, _ = run(ft, program, gradients)
        found = unlike(second[:ends], first, True)
        if found:
            return "second run, first run: " + found
        if unfused:
            synchronize()
            forget_plans(EVERY_PLAN)
            with disabled("fuse"):
                third, _ = run(ft, program, gradients)
            synchronize()
            forget_plans(EVERY_PLAN)
            found = unlike(first, third[:ends], exact and not gradients)
            if found:
                return "fused, unfused: " + found
    return None


def unlike(a: list[Event], b: list[Event], exact: bool) -> str | None:
    """The first difference of two lists of events."""
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if "error" in (x[0], y[0]):
            if y[0] == "error" and any(words in y[2] for words in ENDS):
                return None  # what ours does not need, or can do
            if x[0] == "error" and "single memory location" in x[2]:
                return None  # PyTorch, warning that it is deprecated, fills expanded memory through a mask
            if x[:2] == y[:2]:
                continue
            return f"event {i}: {x} and {y}"
        if x[:-1] != y[:-1] and (x[:2] != y[:2] or "float" in x[0]):  # PyTorch 2.13 marks some integer results
            return f"event {i}: {x} and {y}"
        if x[0] == "none":
            continue
        p, q = np.asarray(x[-1]), np.asarray(y[-1])
        if exact:
            if not np.array_equal(p, q, equal_nan=p.dtype.kind == "f"):
                return f"event {i}: {x} and {y}"
            continue
        scale = float(np.max(np.abs(np.where(np.isfinite(q), q, 0)), initial=1.0)) if q.dtype.kind == "f" else 0.0
        if not np.allclose(p, q, rtol=2e-4 if scale else 0, atol=2e-4 * scale, equal_nan=True):
            return f"event {i}: {x} and {y}"
    if len(a) != len(b):
        return f"{len(a)} events and {len(b)}: {a[len(b) :][:1]} {b[len(a) :][:1]}"
    return None


NUMBER = st.integers(0, 60)
PROGRAMS = st.lists(st.tuples(NUMBER, NUMBER, NUMBER, NUMBER), min_size=3, max_size=LONGEST - 1)


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(PROGRAMS, st.booleans())
def test_programs(program: list[Instruction], gradients: bool) -> None:
    assert difference(program, gradients) is None


def shorten(program: list[Instruction], gradients: bool) -> list[Instruction]:
    """Leave instructions out as long as the program still differs."""
    changed = True
    while changed:
        changed = False
        for i in reversed(range(len(program))):
            shorter = program[:i] + program[i + 1 :]
            if shorter and difference(shorter, gradients):
                program, changed = shorter, True
    return program


def program_of(seed: int) -> tuple[list[Instruction], bool]:
    """The program of a seed, and whether it has gradients."""
    source = random.Random(seed)
    program = [(source.randrange(61), source.randrange(61), source.randrange(61), source.randrange(61)) for _ in range(source.randrange(3, LONGEST))]
    return program, source.random() < 0.6


def run_programs(count: int, seed: int, stride: int) -> int:
    """Run the programs of seed, seed + stride, ...; print those that differ, made short. How many did."""
    warnings.simplefilter("ignore")  # PyTorch's, of what is deprecated
    wrong = 0
    for k in range(seed, seed + count, stride):
        program, gradients = program_of(k)
        try:
            found = difference(program, gradients, unfused=k // stride % UNFUSED == 0)
        except Exception as error:
            found = repr(error)
            wrong += 1
            print(f"seed {k} gradients={gradients}: {found}\n{program}", flush=True)
            continue
        if found:
            wrong += 1
            print(f"seed {k} gradients={gradients}: {found}\n{program}", flush=True)
            short = shorten(program, gradients)
            print(f"shortened: {difference(short, gradients)}\n{short}", flush=True)
    return wrong


def main() -> int:
    """Run random programs, in several processes; 0 if none differs."""
    parser = argparse.ArgumentParser(description="Compares random programs with PyTorch.")
    parser.add_argument("count", type=int)
    parser.add_argument("seed", type=int, nargs="?", default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--stride", type=int, default=1, help=argparse.SUPPRESS)
    given = parser.parse_args()
    started = time.perf_counter()
    if given.stride == 1 and given.processes > 1:
        command = [sys.executable, "-m", "tests.engine.test_whole_programs"]
        one = {**os.environ, "FLAMBEAU_COMPILE_PROCESSES": "1", "OMP_NUM_THREADS": "1"}  # each worker has a core
        workers = [
            subprocess.Popen([*command, str(given.count - k), str(given.seed + k), "--stride", str(given.processes)], env=one) for k in range(given.processes)
        ]
        wrong = max([worker.wait() for worker in workers])
    else:
        wrong = run_programs(given.count, given.seed, given.stride)
    if given.stride == 1:
        took = time.perf_counter() - started
        print(f"{'some' if given.processes > 1 and wrong else wrong} of {given.count} random programs differ ({took:.0f} s)")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
