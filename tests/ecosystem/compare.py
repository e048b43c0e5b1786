"""`scripts/ecosystem page`: each program with flambeau as torch and with PyTorch, in processes of their own; what they print is compared.

Two interpreters: `--flambeau PYTHON` of an environment where `flambeau torch install` was called, `--torch PYTHON` of one with the same packages and
PyTorch. Without the second the programs only have to run. `--speed` measures too: the warm parts that programs name (programs/warm.py), and the processor
time of whole processes. Each program's outcome is kept in a folder (`--results`); `--out FILE` makes a page of all that are kept.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from math import exp, log
from pathlib import Path
from typing import Any

from tests import processes

FOLDER = Path(__file__).parent / "programs"
ROOT = Path(__file__).resolve().parents[2]
TOLERANCE = 1e-4
SUITES_HEADING = "## Their own tests"
VERSIONS = (
    "import importlib.metadata as m, json; print(json.dumps({d.metadata['Name'].lower().replace('_', '-'): d.version for d in reversed([*m.distributions()])}))"
)


@dataclass
class Run:
    """What one process has printed, or how it has failed."""

    found: Any
    error: str
    seconds: float
    processor: float = 0.0  # seconds of processor time, of the process and those it has started and waited for
    warm: dict[str, float] = field(default_factory=dict)  # seconds of processor time of a call, by the name of the part


@dataclass
class Row:
    """One program's lines of the tables; pairs are flambeau's number and PyTorch's."""

    program: str
    packages: list[str]
    what: str
    verdict: str
    ours: float
    theirs: float | None
    processor: tuple[float, float] | None = None
    warm: dict[str, tuple[float, float]] = field(default_factory=dict)


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(python: str, program: Path, timeout: int = 300, warm: bool = False) -> Run:
    """Run a program; its last line is JSON. `warm`: its named parts are run again and again after it, and timed."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "warm"
        if warm:
            environment["WARM_FILE"] = str(file)
        start, before = time.perf_counter(), _processor()
        try:
            done = processes.run([python, "-W", "ignore", str(program)], capture_output=True, text=True, timeout=timeout, env=environment)
        except subprocess.TimeoutExpired:
            return Run(None, f"took more than {timeout} s", timeout)
        seconds, processor = time.perf_counter() - start, _processor() - before
        parts = {entry["what"]: entry["seconds"] for entry in map(json.loads, file.read_text().splitlines())} if file.exists() else {}
    if done.returncode:
        return Run(None, (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1], seconds, processor, parts)
    return Run(json.loads(next(line for line in reversed(done.stdout.splitlines()) if line.startswith("{"))), "", seconds, processor, parts)


def differences(ours: Any, theirs: Any, where: str = "", tolerance: float = TOLERANCE) -> Iterator[str]:
    """Lines that say where two outcomes differ: numbers by more than the tolerance, all else at all."""
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        for key in ours:
            yield from differences(ours[key], theirs[key], f"{where}[{key!r}]", tolerance)
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(a, b, f"{where}[{i}]", tolerance)
    elif isinstance(ours, float) and isinstance(theirs, float):
        if not math.isclose(ours, theirs, rel_tol=tolerance, abs_tol=tolerance) and not (math.isnan(ours) and math.isnan(theirs)):
            yield f"{where}: {ours!r}, with PyTorch {theirs!r}"
    elif type(ours) is not type(theirs) or ours != theirs:
        yield f"{where}: {ours!r}, with PyTorch {theirs!r}"


def head(program: Path) -> tuple[list[str], str]:
    """(the packages, what is run) of a program's first line."""
    found = re.match(r'"""(.*?): (.*?)\.?"""', program.read_text())
    assert found is not None, f"{program.name}: the first line says packages and what is run"
    return found[1].split(", "), found[2]


def row(program: Path, flambeau: str, torch: str | None, speed: bool = False) -> tuple[Row, list[str]]:
    """Run a program by both: its line, and what differs. With `speed` the parts are timed first, which leaves the kernels in flambeau's cache."""
    packages, what = head(program)
    parts = [run(python, program, 900, warm=True) for python in (flambeau, torch) if speed and python is not None]
    ours = run(flambeau, program)
    theirs = run(torch, program) if torch is not None else None
    lines: list[str] = []
    if ours.error:
        verdict = f"fails: {ours.error}"
    elif theirs is None:
        verdict = "runs"
    elif theirs.error:
        verdict = f"runs; with PyTorch: {theirs.error}"
    else:
        lines = list(differences(ours.found, theirs.found))
        verdict = "equal" if not lines else f"{len(lines)} numbers differ"
    made = Row(program.stem.removeprefix("use_"), packages, what, verdict, ours.seconds, None if theirs is None else theirs.seconds)
    if speed and theirs is not None and not ours.error and not theirs.error:
        made.processor = (ours.processor, theirs.processor)
        made.warm = {name: (seconds, parts[1].warm[name]) for name, seconds in parts[0].warm.items() if name in parts[1].warm}
    return made, lines


def _processor_name() -> str:
    """What /proc/cpuinfo calls the processor, where there is one."""
    file = Path("/proc/cpuinfo")
    found = re.findall(r"^(model name|cpu family|model)\s*: (.*)$", file.read_text() if file.exists() else "", re.MULTILINE)
    facts = dict(found)
    return f"{facts.get('model name', 'an unknown processor')} (family {facts.get('cpu family', '?')}, model {facts.get('model', '?')})"


def speed_table(rows: list[Row], processor: str) -> list[str]:
    """The measured parts and whole processes as Markdown; nothing where none was measured."""
    measured = [r for r in rows if r.processor is not None]
    if not measured:
        return []
    ratios = {"warm": [b / a for r in measured for a, b in r.warm.values()], "whole": [r.processor[1] / r.processor[0] for r in measured if r.processor]}
    mean = {name: exp(sum(map(log, values)) / max(len(values), 1)) for name, values in ratios.items()}
    least = {name: sum(v >= 1 for v in values) for name, values in ratios.items()}
    lines = [
        "", "## As fast", "",
        f"Measured by `scripts/ecosystem page --speed` on {processor}, one thread each. All are seconds of processor time, not of a clock: other work ran",
        "on the machine. \"Warm\" is the least of many calls of the part in one process, after some seconds of them; the whole process is from start to",
        "end, with all imports, flambeau's kernels from its cache. Ratios are PyTorch's time over flambeau's: above 1 flambeau takes less.",
        f"Warm: at least PyTorch's speed in {least['warm']} of {len(ratios['warm'])} parts, geometric mean {mean['warm']:.2f}. "
        f"Whole processes: {least['whole']} of {len(ratios['whole'])}, {mean['whole']:.2f}.", "",
        "| program | part | warm: flambeau, PyTorch (ms) | ratio | whole process: flambeau, PyTorch (s) | ratio |", "|---|---|---|---|---|---|",
    ]  # fmt: skip
    for r in measured:
        assert r.processor is not None
        whole = f"{r.processor[0]:.1f}, {r.processor[1]:.1f} | {r.processor[1] / r.processor[0]:.2f}"
        for i, (part, (a, b)) in enumerate(r.warm.items() or [("-", (0.0, 0.0))]):
            times = f"{1000 * a:.2f}, {1000 * b:.2f} | {b / a:.2f}" if a else "- | -"
            lines.append(f"| {r.program if i == 0 else ''} | {part} | {times} | {whole if i == 0 else ' | '} |")
    return lines


def _standing(before: str, rows: list[Row]) -> dict[str, str]:
    """Lines of a page for programs that these rows do not have, by what was run."""
    done = {r.what for r in rows}
    found = {}
    for line in before.partition(SUITES_HEADING)[0].partition("\n## ")[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) in (3, 4) and cells[0] != "packages" and cells[1] not in done:
            found[cells[1]] = f"| {' | '.join(cells[:3])} |"
    return found


def page(rows: list[Row], versions: dict[str, str], before: str = "") -> str:
    """The tables as Markdown; programs without a row stay as the page `before` has them."""
    lines = [
        "# Packages written for PyTorch", "",
        "Installed by pip, unmodified, in an environment where flambeau is `torch` (`flambeau torch install`). Made by `scripts/ecosystem page`; the",
        "programs are in tests/ecosystem/programs, each one real use of a package from a seed. \"Equal\": every number is PyTorch's within 1e-4, every",
        "token and count exactly.", "",
        "| packages | what was run | result |", "|---|---|---|",
    ]  # fmt: skip
    made = []
    for r in rows:
        named = ", ".join(f"{p} {versions.get(p.lower().replace('_', '-'), '?')}" for p in r.packages)
        made.append(f"| {named} | {r.what} | {r.verdict.replace('|', '/')} |")
    lines += sorted([*made, *_standing(before, rows).values()], key=str.lower)
    timed = speed_table(rows, _processor_name())
    if not timed:  # measured earlier
        _, heading, table = before.partition(SUITES_HEADING)[0].partition("\n## As fast")
        timed = [heading + table.rstrip()] if heading else []
    return "\n".join([*lines, *timed]) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """The command; returns how many programs fail or differ."""
    parser = argparse.ArgumentParser(prog="scripts/ecosystem page", description=__doc__.partition("\n")[0])
    parser.add_argument("programs", nargs="*", help="names of programs, or patterns of them; all by default")
    parser.add_argument("--flambeau", metavar="PYTHON", default=sys.executable, help="where flambeau is torch")
    parser.add_argument("--torch", metavar="PYTHON", help="where PyTorch is")
    parser.add_argument("--speed", action="store_true", help="time warm parts and whole processes too")
    parser.add_argument("--results", metavar="FOLDER", default=".ecosystem/programs", help="where each program's outcome is kept")
    parser.add_argument("--kept", action="store_true", help="run nothing: write the page of the results that are kept")
    parser.add_argument("--out", metavar="FILE", help="write the kept results of all programs as this page")
    options = parser.parse_args(arguments)
    kept, wrong = Path(options.results), 0
    kept.mkdir(parents=True, exist_ok=True)
    for program in sorted(FOLDER.glob("use_*.py")):
        if options.kept or (options.programs and not any(program.match(f"use_{pattern}.py") for pattern in options.programs)):
            continue
        made, lines = row(program, options.flambeau, options.torch, options.speed)
        (kept / f"{made.program}.json").write_text(json.dumps(asdict(made), indent=1))
        wrong += made.verdict.startswith("fails") or bool(lines)
        print(f"{made.program}: {made.verdict} ({made.ours:.1f} s{'' if made.theirs is None else f', PyTorch {made.theirs:.1f} s'})", flush=True)
        for name, (mine, others) in made.warm.items():
            print(f"    {name}: {1000 * mine:.2f} ms, PyTorch {1000 * others:.2f} ms, ratio {others / mine:.2f}")
        if made.processor is not None:
            print(f"    whole process: {made.processor[0]:.1f} s, PyTorch {made.processor[1]:.1f} s of processor time")
        for line in lines[:10]:
            print(f"    {line}")
    if options.out is not None:
        done = processes.run([options.flambeau, "-c", VERSIONS], capture_output=True, text=True, check=True)
        written = Path(options.out)
        before = written.read_text() if written.exists() else ""
        _, heading, suites = before.partition(SUITES_HEADING)  # of `scripts/ecosystem suites`
        names = [program.stem.removeprefix("use_") for program in sorted(FOLDER.glob("use_*.py"))]
        rows = [Row(**json.loads(file.read_text())) for name in names if (file := kept / f"{name}.json").exists()]
        written.write_text(page(rows, json.loads(done.stdout), before) + (f"\n{heading}{suites}" if heading else ""))
    return wrong


if __name__ == "__main__":
    sys.exit(main())
