"""`flambeau bench`: the table of ratios. Children of flambeau and PyTorch alternate; the best of all rounds counts."""

from __future__ import annotations

import difflib
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from flambeau.cli.cases import CASES, SWEEP, Case


def _child(module: str, case: Case) -> tuple[float, float, float]:
    """Seconds of one call in a fresh process (infinity if it failed), its peak of memory in bytes, and its floor in seconds."""
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, "-m", "flambeau.cli.bench_child", module, case.name], capture_output=True, text=True, env=environment)
    if done.returncode:
        print(f"{case.name} ({module}) failed:\n{done.stderr}", file=sys.stderr)
        return float("inf"), 0.0, 0.0
    seconds, peak, floor = map(float, done.stdout.split()[-3:])
    return seconds, peak, floor


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6), ("ns", 1e9)):
        if seconds * scale >= 1 or unit == "ns":
            return f"{seconds * scale:.3g} {unit}"
    raise AssertionError


def processor() -> str:
    """The processor's name, for the table's head."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    import platform

    return platform.processor() or platform.machine()


def unmatched(names: Sequence[str], known: Sequence[str]) -> str:
    """What is wrong with names that no case contains: those of the cases that are near them, or all. Empty if each is contained in some."""
    parts = []
    for name in names:
        if any(name.lower() in k.lower() for k in known):
            continue
        words = set(re.findall(r"\w+", name.lower()))
        heard = {k: _likeness(name.lower(), words, k.lower()) for k in known}
        near = sorted((k for k in known if heard[k] >= 0.7), key=lambda k: -heard[k])[:5]
        parts.append(f"nothing has {name!r} in its name; " + (f"near it: {'; '.join(near)}" if near else f"there are: {'; '.join(known)}"))
    return "\n".join(parts)


def _likeness(name: str, words: set[str], known: str) -> float:
    """From 0 to 1: how much a name is like a case's, as a whole or as the mean of its words' best fits."""
    there = re.findall(r"\w+", known)
    fits = [max((difflib.SequenceMatcher(None, w, t).ratio() for t in there), default=0.0) for w in words]
    return max(difflib.SequenceMatcher(None, name, known).ratio(), sum(fits) / len(fits) if fits else 0.0)


def bench(names: Sequence[str], insist: bool, rounds: int, markdown: bool, sweep: bool = False, memory: bool = False) -> int:
    """Measure the cases whose names contain one of `names` (all by default); returns the exit status. Beside the ratios: the floor, the
    least time for the kernels' bytes and operations on this machine, and its share of the time. `memory`: also the peaks of resident
    memory in MiB."""
    cases = [c for c in (*CASES, *(SWEEP if sweep or names else ())) if not names or any(n.lower() in c.name.lower() for n in names)]
    unknown = unmatched(names, [c.name for c in (*CASES, *SWEEP)])
    if unknown:
        print(f"flambeau bench: {unknown}", file=sys.stderr)
        return 2
    there = importlib.util.find_spec("torch") is not None
    if insist and not there:
        print("flambeau bench --torch: PyTorch is not installed (pip install torch==2.13.0)", file=sys.stderr)
        return 2
    from flambeau.runtime import target

    print(f"{processor()}, {os.cpu_count()} processors, {target.vector_bits()}-bit vectors; 2 threads; best of {rounds} rounds")
    head = ("case", "flambeau", "PyTorch", "ratio", "wanted", "floor", "share", *(("MiB", "PyTorch") if memory else ()))
    line = "| {:<58} | {:>9} | {:>9} | {:>6} | {:>6} | {:>9} | {:>5} |" if markdown else "{:<58} {:>9} {:>9} {:>6} {:>6} {:>9} {:>5}"
    line += " {:>7} | {:>7} |" * memory if markdown else " {:>7} {:>7}" * memory
    print(line.format(*head))
    if markdown:
        print("|" + "---|" * len(head))
    for case in cases:
        ours = theirs = floor = float("inf")
        peaks = [0.0, 0.0]
        for _ in range(rounds):
            seconds, peaks[0], least = _child("flambeau", case)
            ours, floor = min(ours, seconds), min(floor, least)
            if there:
                seconds, peaks[1], _ = _child("torch", case)
                theirs = min(theirs, seconds)
        known = theirs != float("inf")
        ratio = f"{theirs / ours:.2f}" if known and ours != float("inf") else "-"
        print(
            line.format(
                case.name,
                _time(ours),
                _time(theirs) if known else "-",
                ratio,
                f"{case.wanted:g}" if case.wanted else "-",
                _time(floor),
                f"{100 * floor / ours:.0f} %",
                *([f"{p / 2**20:.0f}" for p in peaks] if memory else ()),
            ),
            flush=True,
        )
    return 0
