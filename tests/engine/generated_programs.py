"""Whole programs as Python text, wider than random_programs.py, each repeated with other dtypes, shapes, strides and requires_grad, beside PyTorch.

`python -m tests.engine.generated_programs [SEED] [--count N] [--processes P]`: with a seed that program alone (or N from there), else 500 of
today's. What differs is made as short as it can be and printed as Python that runs with either import. The statements are those of
random_operations.py and the wider ones of generated_statements.py. All repeats of a program run the same code, so that learned edges,
immediate calls and remembered calls have to answer for other arguments than those that they were learned with.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import inspect
import os
import random
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

import flambeau as ft
from tests.engine import random_operations
from tests.engine.generated_statements import OTHER, Run
from tests.engine.random_programs import DTYPES, ENDS, Event

# Which arguments the 16 repeats have: the same until they are learned, then others, and the first ones again.
REPEATS = (0, 0, 0, 0, 1, 0, 1, 1, 2, 0, 3, 2, 0, 4, 5, 0)
# PyTorch's own faults: an internal error, no gradient of a write to an expanded tensor (docs/differences.md), a copy of a number with a
# negative bit into bools, and backward passes that make a view of a conjugated gradient.
ALSO_ENDS = (
    "\"neg_cpu\" not implemented for 'Bool'", "Could this error message be improved", "ComplexHalf",
    "in a backward pass: unsupported operation: more than one element of the written-to", "in a backward pass: view_as_real doesn't work on unresolved",
)  # fmt: skip
LONGEST = 60  # statements of a program
Program = list[str]


def _absorbed(table: str, call: str) -> list[str]:
    """The functions of a table of random_operations.py as templates. `call`: what its parameters are called here."""
    tree = ast.parse(inspect.getsource(random_operations))
    values: dict[str, ast.Tuple] = {}
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(target, ast.Name) and isinstance(node.value, ast.Tuple):  # type: ignore[union-attr]
            values[target.id] = node.value  # type: ignore[union-attr]
    made = []
    for function in values[table].elts:
        if isinstance(function, ast.Lambda):
            names = dict(zip([p.arg for p in function.args.args], call.split(", "), strict=True))
            made.append(ast.unparse(_Renamed(names).visit(function.body)))
        else:
            made.append(f"{ast.unparse(function)}({call})")
    return made


class _Renamed(ast.NodeTransformer):
    """Parameters by the names of registers and numbers."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.names.get(node.id, node.id), node.ctx)


@cache
def groups() -> tuple[tuple[str, ...], ...]:
    """Templates of statements, in groups that are equally likely."""

    def made(table: str, call: str) -> tuple[str, ...]:
        return tuple("X = " + t for t in _absorbed(table, call))

    view = made("VIEWS", "Y, I, J")
    write = tuple(f"s.write(lambda: {t}, X, Y)" for t in _absorbed("WRITES", "s, X, Y, I"))
    return (
        made("UNARY", "s, Y"), made("BINARY", "s, Y, Z"), view, view, made("REDUCTIONS", "s, Y, I, J"), made("MOVES", "s, Y, I, J"), write, *OTHER,
    )  # fmt: skip


def program_of(seed: int) -> Program:
    """The statements of a seed's program."""
    source = random.Random(seed)
    return [_filled(source.choice(source.choice(groups())), source) for _ in range(source.randint(10, LONGEST))]


def _filled(template: str, source: random.Random) -> str:
    """A template with registers, numbers and dtypes."""
    chosen: dict[str, str] = {name: f"v[{source.randrange(Run.REGISTERS)}]" for name in "XYZ"}
    chosen |= {name: str(source.randrange(12)) for name in "IJ"}
    chosen |= {"N": repr(source.choice(random_operations.NUMBERS)), "D": source.choice(DTYPES)}

    class Chosen(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return ast.parse(chosen[node.id], mode="eval").body if node.id in chosen else node

        def visit_Attribute(self, node: ast.Attribute) -> ast.Attribute:
            return ast.Attribute(self.visit(node.value), chosen.get(node.attr, node.attr), node.ctx)

    return ast.unparse(Chosen().visit(ast.parse(template)))


def text(program: Program) -> str:
    """The program as a function of a run."""
    lines = ["def program(torch, s, v):"]
    for statement in program:
        lines.append("    with s:")
        lines.extend("        " + line for line in statement.splitlines())
    return "\n".join([*lines, "    s.finish()"])


def printed(program: Program, seed: int, repeats: Sequence[int]) -> str:
    """The program as a file that runs with either import; it prints all that is seen."""
    names = sorted({n.id for n in ast.walk(ast.parse(text(program))) if isinstance(n, ast.Name) and n.id in vars(random_operations)})
    lines = ["import flambeau as torch  # or: import torch", "from tests.engine.generated_statements import Run"]
    lines += [f"from tests.engine.random_operations import {', '.join(names)}"] if names else []
    loop = [f"s = Run(torch, {seed})", f"for repeat in {tuple(repeats)}:", "    s.start(repeat)", "    program(torch, s, s.values)"]
    return "\n".join([*lines, text(program), *loop, "print(*s.events, sep='\\n')"])


def events_of(m: Any, code: Callable[..., None], seed: int, repeats: Sequence[int], nudge: int = 0) -> list[Event]:
    """All that one library's run shows."""
    s = Run(m, seed, nudge)
    with np.errstate(all="ignore"):
        for repeat in repeats:
            s.start(repeat)
            code(m, s, s.values)
            if s.ended:
                break
    return s.events


def difference(program: Program, seed: int, repeats: Sequence[int] = REPEATS) -> str | None:
    """What differs between the two libraries, or None."""
    import torch

    space = dict(vars(random_operations))
    exec(compile(text(program), f"<program {seed}>", "exec"), space)  # once: both run, and all repeats run, the same code
    code = space["program"]
    theirs = events_of(torch, code, seed, repeats)
    ours = events_of(ft, code, seed, repeats)
    nudged: list[list[Event]] = []
    for i, (x, y) in enumerate(zip(ours, theirs, strict=False)):
        if _ends(x) or _ends(y):
            return None
        found = _unlike(x, y)
        if not found:
            continue
        # What a library's own results do when its inputs change in the last place says nothing about the other. (Signs and comparisons of what cancels:
        # where one library always has noise, the other may have zeros by chance.)
        again = events_of(ft, code, seed, repeats)
        if i >= len(again) or _unlike(again[i], x):
            return f"event {i}, not the same twice:\n  first {x}\n  then {again[i] if i < len(again) else None}"
        nudged = nudged or [events_of(m, code, seed, repeats, k) for m in (torch, ft) for k in (1, 2, 3)]
        if any(i >= len(n) or _as_far(n[i], *pair) for n, pair in zip(nudged, [(x, y)] * 3 + [(y, x)] * 3, strict=True)):
            return None
        return f"event {i}, {found}:\n  flambeau {x}\n  PyTorch  {y}"
    if len(ours) != len(theirs):
        return f"{len(ours)} events and {len(theirs)}"
    return None


def _ends(event: Event) -> bool:
    return event[0] == "error" and any(words in event[2] for words in (*ENDS, *ALSO_ENDS))


def _unlike(x: Event, y: Event) -> str | None:
    """In what two events differ, or None."""
    if x[0] == y[0] == "error" and "requires grad is being used in an in-place operation" in x[2] + y[2]:
        return None  # of two faults each library may name the one that it sees first
    if x[0] == y[0] == "error" and x[1] == "IndexRangeError" and y[1] in ("IndexError", "RuntimeError"):
        return None  # it is both: PyTorch raises one or the other, depending on the function
    if x[0] != y[0] or x[0] in ("error", "none"):
        return None if x[:2] == y[:2] else "kind"
    if x[1:3] != y[1:3]:
        return "dtype or shape"
    if x[3] != y[3] and ("float" in x[1] or "complex" in x[1]):  # PyTorch marks some integer results
        return "requires_grad"
    return "values" if _distance(x, y) > 1 else None


def _distance(x: Event, y: Event) -> float:
    """The greatest distance of two values, in tolerances; infinite where they are of different kinds."""
    p, q = x[4], y[4]
    if q.dtype.kind not in "fc":
        return 0.0 if np.array_equal(p, q) else np.inf
    p, q = (np.stack([t.real, t.imag]) for t in (p, q))
    with np.errstate(all="ignore"):
        same = (p == q) | (np.isnan(p) & np.isnan(q))
        finite = np.isfinite(p) & np.isfinite(q)
        if not np.all(same | finite):
            return np.inf
        scale = float(np.max(np.abs(np.where(finite, q, 0)), initial=1.0))
        return float(np.max(np.where(same, 0, np.abs(p - q)), initial=0.0)) / (scale * max(x[5], y[5]))


def _as_far(nudged: Event, ours: Event, theirs: Event) -> bool:
    """Whether a library's nudged event is about as far from its own (`theirs`) as the other one's (`ours`) is."""
    if nudged[:4] != theirs[:4] or nudged[0] != "seen":
        return nudged[:2] != theirs[:2] or nudged[0] == "seen"
    return ours[:3] == theirs[:3] and _distance(nudged, theirs) * 10 >= min(_distance(ours, theirs), 1e300)


def checked(program: Program, seed: int, repeats: Sequence[int]) -> str | None:
    """`difference`, or the error that is none of the program's own."""
    try:
        return difference(program, seed, repeats)
    except Exception as error:
        return f"raised {type(error).__name__}: {error}"


_OF_ONE_PROCESS = 300  # programs: each leaves some thousands of mappings of memory behind, of which a process can have 65,530


def shortened(program: Program, seed: int) -> tuple[Program, tuple[int, ...]]:
    """The fewest statements and repeats that still differ, by leaving out ever smaller pieces."""
    repeats = REPEATS
    repeats = next((repeats[:n] for n in range(1, len(repeats)) if checked(program, seed, repeats[:n])), repeats)
    size = len(program) // 2
    while size:
        for start in reversed(range(0, len(program), size)):
            shorter = program[:start] + program[start + size :]
            if checked(shorter, seed, repeats):
                program = shorter
        size //= 2
    for i in reversed(range(len(repeats))):
        fewer = repeats[:i] + repeats[i + 1 :]
        if fewer and checked(program, seed, fewer):
            repeats = fewer
    return program, repeats


def run_programs(seeds: Sequence[int]) -> int:
    """Run the programs of some seeds; print those that differ, made short. How many did."""
    warnings.simplefilter("ignore")  # PyTorch's, of what is deprecated
    wrong = 0
    for seed in seeds:
        program = program_of(seed)
        if checked(program, seed, REPEATS):
            wrong += 1
            short, repeats = shortened(program, seed)
            print(f"seed {seed}: {checked(short, seed, repeats)}\n{printed(short, seed, repeats)}\n", flush=True)
    return wrong


def main() -> int:
    """Run generated programs, in several processes; 0 if none differs."""
    parser = argparse.ArgumentParser(description="Compares generated programs with PyTorch.")
    parser.add_argument("seed", type=int, nargs="?", help="the first program (default: of today)")
    parser.add_argument("--count", type=int, help="how many programs (default: 1 with a seed, else 500)")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--stride", type=int, default=1, help=argparse.SUPPRESS)
    given = parser.parse_args()
    count = given.count or (500 if given.seed is None else 1)
    seed = datetime.date.today().toordinal() * 100_000 if given.seed is None else given.seed
    if given.stride == 1 and count > _OF_ONE_PROCESS * given.processes:  # some after the others
        command = [sys.executable, "-m", "tests.engine.generated_programs", "--processes", str(given.processes)]
        parts = range(0, count, _OF_ONE_PROCESS * given.processes)
        return max(subprocess.call([*command, str(seed + k), "--count", str(min(parts.step, count - k))]) for k in parts)
    if given.stride > 1 or given.processes == 1:
        started = time.perf_counter()
        seeds = range(seed, seed + count, given.stride)
        wrong = run_programs(seeds)
        print(f"{wrong} of {len(seeds)} generated programs from seed {seed} differ ({time.perf_counter() - started:.0f} s)", flush=True)
        return int(wrong > 0)
    print(f"{count} generated programs from seed {seed}", flush=True)
    command = [sys.executable, "-m", "tests.engine.generated_programs"]
    # Each worker has a core. Code of the same bits that is made sooner: half of the time went into it.
    one = {"FLAMBEAU_CODE_LEVEL": "0", **os.environ, "FLAMBEAU_COMPILE_PROCESSES": "1", "OMP_NUM_THREADS": "1"}
    workers = [
        subprocess.Popen([*command, str(seed + k), "--count", str(count - k), "--stride", str(given.processes)], env=one)
        for k in range(min(given.processes, count))
    ]
    return int(max([worker.wait() for worker in workers]))


if __name__ == "__main__":
    sys.exit(main())
