"""`scripts/ecosystem page`: each program with flambeau as torch and with PyTorch, in processes of their own; what they print is compared.

Two interpreters: `--flambeau PYTHON` of an environment where `flambeau torch install` was called, `--torch PYTHON` of one with the same packages and
PyTorch. Without the second the programs only have to run. `--out FILE` writes the table as a page.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "programs"
ROOT = Path(__file__).resolve().parents[2]
TOLERANCE = 1e-4
SUITES_HEADING = "## Their own tests"
VERSIONS = "import importlib.metadata as m, json; print(json.dumps({d.metadata['Name'].lower().replace('_', '-'): d.version for d in m.distributions()}))"


@dataclass
class Run:
    """What one process has printed, or how it has failed."""

    found: Any
    error: str
    seconds: float


@dataclass
class Row:
    """One program's line of the table."""

    program: str
    packages: list[str]
    what: str
    verdict: str
    ours: float
    theirs: float | None


def run(python: str, program: Path, timeout: int = 300) -> Run:
    """Run a program; its last line is JSON."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "OMP_NUM_THREADS": "1"}
    start = time.perf_counter()
    try:
        done = subprocess.run([python, "-W", "ignore", str(program)], capture_output=True, text=True, timeout=timeout, env=environment)
    except subprocess.TimeoutExpired:
        return Run(None, f"took more than {timeout} s", timeout)
    seconds = time.perf_counter() - start
    if done.returncode:
        return Run(None, (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1], seconds)
    return Run(json.loads(done.stdout.strip().splitlines()[-1]), "", seconds)


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


def row(program: Path, flambeau: str, torch: str | None) -> tuple[Row, list[str]]:
    """Run a program by both: its line, and what differs."""
    packages, what = head(program)
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
    return Row(program.stem.removeprefix("use_"), packages, what, verdict, ours.seconds, None if theirs is None else theirs.seconds), lines


def page(rows: list[Row], versions: dict[str, str]) -> str:
    """The table as Markdown."""
    lines = [
        "# Packages written for PyTorch", "",
        "Installed by pip, unmodified, in an environment where flambeau is `torch` (`flambeau torch install`). Made by `scripts/ecosystem page`; the",
        "programs are in tests/ecosystem/programs, each one real use of a package from a seed. \"Equal\": every number is PyTorch's within 1e-4, every",
        "token and count exactly. Seconds are of the whole process with its imports: flambeau with kernels from its cache, then PyTorch.", "",
        "| packages | what was run | result | seconds |", "|---|---|---|---|",
    ]  # fmt: skip
    for r in rows:
        named = ", ".join(f"{p} {versions.get(p.lower().replace('_', '-'), '?')}" for p in r.packages)
        seconds = f"{r.ours:.1f}" + ("" if r.theirs is None else f", {r.theirs:.1f}")
        lines.append(f"| {named} | {r.what} | {r.verdict.replace('|', '/')} | {seconds} |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """The command; returns how many programs fail or differ."""
    parser = argparse.ArgumentParser(prog="scripts/ecosystem page", description=__doc__.partition("\n")[0])
    parser.add_argument("programs", nargs="*", help="names of programs, or parts of them; all by default")
    parser.add_argument("--flambeau", metavar="PYTHON", default=sys.executable, help="where flambeau is torch")
    parser.add_argument("--torch", metavar="PYTHON", help="where PyTorch is")
    parser.add_argument("--out", metavar="FILE", help="write the page")
    options = parser.parse_args(arguments)
    rows, wrong = [], 0
    for program in sorted(FOLDER.glob("use_*.py")):
        if options.programs and not any(part in program.stem for part in options.programs):
            continue
        made, lines = row(program, options.flambeau, options.torch)
        rows.append(made)
        wrong += made.verdict.startswith("fails") or bool(lines)
        print(f"{made.program}: {made.verdict} ({made.ours:.1f} s{'' if made.theirs is None else f', PyTorch {made.theirs:.1f} s'})", flush=True)
        for line in lines[:10]:
            print(f"    {line}")
    if options.out is not None:
        done = subprocess.run([options.flambeau, "-c", VERSIONS], capture_output=True, text=True, check=True)
        written = Path(options.out)
        _, heading, suites = written.read_text().partition(SUITES_HEADING) if written.exists() else ("", "", "")  # of `scripts/ecosystem suites`
        written.write_text(page(rows, json.loads(done.stdout)) + (f"\n{heading}{suites}" if heading else ""))
    return wrong


if __name__ == "__main__":
    sys.exit(main())
