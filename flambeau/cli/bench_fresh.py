"""`flambeau bench --fresh`: programs in which every step brings something new, beside PyTorch, with an empty cache and with a warm one."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flambeau.cli.bench import processor, unmatched
from flambeau.cli.fresh_programs import PROGRAMS

STEPS = 60
PAUSE = 0.02  # seconds: a collection that takes longer, or a step that takes so much longer than the median, is a pause


class Run(NamedTuple):
    """What one run of a program measured; seconds and bytes."""

    first: float  # from process start to the end of the first step
    median: float  # of steps with something new
    slowest: float  # their 99th percentile
    seen: float  # the median of the same steps done again
    total: float  # from process start to the end of the last new step
    resident: float
    pauses: tuple[float, ...]  # collections of garbage, and what steps took beyond the median, where it is over 20 ms; after the third step


def percentile(values: Sequence[float], share: float) -> float:
    """The least value that this share of the values does not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


def summary(found: dict[str, Any]) -> Run:
    """The line of a run from what its process printed."""
    new = found["new"]
    median = percentile(new, 0.5)
    long = [s - median for s in new[3:] if s - median > PAUSE] + [s for s in found["collections"] if s > PAUSE]
    return Run(found["first"], median, percentile(new, 0.99), percentile(found["seen"], 0.5), found["total"], found["resident"], tuple(long))


def run(module: str, program: str, seed: int, steps: int, cache: str, bytecode: str) -> Run | None:
    """One run in a fresh process; None, with its error printed, if it failed.

    `bytecode`: a folder for Python's bytecode. An installer compiles a package once, as it has done for PyTorch; a clone has to do it here.
    """
    child = Path(__file__).resolve().with_name("fresh_child.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(child.parents[2]), os.environ.get("PYTHONPATH", "")]), "FLAMBEAU_CACHE_DIR": cache}
    if module == "flambeau":
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environment["PYTHONPYCACHEPREFIX"] = bytecode
    command = [sys.executable, "-P", str(child), module, program, str(seed), str(steps), repr(time.time())]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        print(f"{program} ({module}) failed:\n{done.stderr}", file=sys.stderr)
        return None
    return summary(json.loads(done.stdout.splitlines()[-1]))


def best(runs: Sequence[Run]) -> Run:
    """The least of each figure over several runs; the pauses are those of the run that had fewest."""
    first, median, slowest, seen, total, resident = [min(column) for column in list(zip(*runs, strict=True))[:-1]]
    return Run(first, median, slowest, seen, total, resident, min([r.pauses for r in runs], key=len))


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g}"


def _cells(name: str, run: Run, theirs: Run | None) -> list[str]:
    """A row: each figure, and PyTorch's over it where that is known."""
    cells = [name, f"{run.first:.2f}", _ms(run.median), _ms(run.slowest), _ms(run.seen), f"{run.total:.2f}", f"{run.resident / 2**20:.0f}"]
    cells.append(f"{len(run.pauses)}" + (f" ({max(run.pauses) * 1e3:.0f} ms)" if run.pauses else ""))
    if theirs is None:
        return [*cells, "-", "-", "-", "-"]
    ratios = theirs.median / run.median, theirs.slowest / run.slowest, theirs.seen / run.seen, theirs.total / run.total
    return [*cells, *[f"{ratio:.2f}" for ratio in ratios]]


def bench_fresh(names: Sequence[str], insist: bool, rounds: int, markdown: bool, steps: int = STEPS) -> int:
    """Measure the programs whose names contain one of `names` (all by default); returns the exit status.

    For each: seconds of the first step from process start; milliseconds of the median and the 99th percentile of steps with something new and of
    the median of the same steps done again; seconds of all new steps from process start; resident MiB; pauses; and PyTorch's time over ours. A warm
    cache is one that the same program has filled from another seed, so with other sizes.
    """
    chosen = [p for p in PROGRAMS if not names or any(n.lower() in p.lower() for n in names)]
    unknown = unmatched(names, list(PROGRAMS))
    if unknown:
        print(f"flambeau bench --fresh: {unknown}", file=sys.stderr)
        return 2
    there = importlib.util.find_spec("torch") is not None
    if insist and not there:
        print("flambeau bench --torch: PyTorch is not installed (pip install torch==2.13.0)", file=sys.stderr)
        return 2
    print(f"{processor()}, {os.cpu_count()} processors; 2 threads; {steps} steps, best of {rounds} rounds; times of steps in ms, others in s")
    head = ["program", "first", "new", "99 %", "seen", "total", "MiB", "pauses", "new x", "99 % x", "seen x", "total x"]
    line = ("| {:<44} |" + " {:>8} |" * 11) if markdown else "{:<44}" + " {:>8}" * 11
    print(line.format(*head))
    if markdown:
        print("|" + "---|" * len(head))
    failed = False
    for program in chosen:
        found: dict[str, list[Run | None]] = {"PyTorch": [], "empty cache": [], "warm cache": []}
        with tempfile.TemporaryDirectory() as warm, tempfile.TemporaryDirectory() as bytecode:
            run("flambeau", program, 1, steps, warm, bytecode)
            for _ in range(rounds):
                with tempfile.TemporaryDirectory() as empty:
                    found["empty cache"].append(run("flambeau", program, 0, steps, empty, bytecode))
                if there:
                    found["PyTorch"].append(run("torch", program, 0, steps, empty, bytecode))
                found["warm cache"].append(run("flambeau", program, 0, steps, warm, bytecode))
        lines = {kind: best(runs) for kind, all_runs in found.items() if (runs := [r for r in all_runs if r is not None])}
        failed = failed or any(None in runs for runs in found.values())
        for kind, measured in lines.items():
            print(line.format(*_cells(f"{program}: {kind}", measured, lines.get("PyTorch") if kind != "PyTorch" else None)), flush=True)
    return int(failed)
