"""Executes examples and notes what an interactive Python would show: one Outcome a statement.

`run_here` uses the `torch` that this process imports. `run_apart` gives the examples to a process in which `torch` is flambeau
(as under `flambeau run`), and starts another where one dies.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests import processes
from tests.documentation.extract import Example

SECONDS = 60  # an example's limit


class Outcome(NamedTuple):
    """What a statement showed. `error`: the type of the exception, "" if there was none; `message`: its text."""

    text: str
    error: str
    message: str


class _TooLong(BaseException):
    pass


def _on_alarm(*_: Any) -> None:
    raise _TooLong


def execute(source: str, scope: dict[str, Any]) -> Outcome:
    """One statement, its output and the repr of its value."""
    shown = io.StringIO()

    def display(value: Any) -> None:
        if value is not None:
            print(repr(value), file=shown)

    before = sys.displayhook
    sys.displayhook = display
    try:
        tree = ast.parse(source)
        with contextlib.redirect_stdout(shown):
            if len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr):
                exec(compile(ast.Interactive(tree.body), "<example>", "single"), scope)
            else:
                exec(compile(tree, "<example>", "exec"), scope)
    except _TooLong:
        raise
    except BaseException as error:  # SystemExit, too, is an outcome
        return Outcome(shown.getvalue(), type(error).__name__, str(error))
    finally:
        sys.displayhook = before
    return Outcome(shown.getvalue(), "", "")


def fresh(torch: Any) -> dict[str, Any]:
    """The names that examples take for granted, after the settings and the seed are as at the start."""
    torch.set_default_device(None)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float32)
    torch.set_printoptions(profile="default")
    torch.set_grad_enabled(True)
    import importlib
    import math
    import random

    import numpy

    random.seed(0)
    numpy.random.seed(0)
    scope = {
        "torch": torch, "nn": importlib.import_module("torch.nn"), "F": importlib.import_module("torch.nn.functional"),
        "optim": importlib.import_module("torch.optim"), "np": numpy, "math": math, "Tensor": torch.Tensor, "__name__": "__main__",
    }  # fmt: skip
    return scope


def run_example(torch: Any, example: Example) -> list[Outcome]:
    """All statements of an example in one namespace; those after one that takes too long are left out."""
    outcomes: list[Outcome] = []
    scope = fresh(torch)
    previous = signal.signal(signal.SIGALRM, _on_alarm)
    signal.alarm(SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for source in (s for chunk in example.chunks for s in chunk):
                outcomes.append(execute(source, scope))
    except _TooLong:
        outcomes.append(Outcome("", "_TooLong", f"more than {SECONDS} s"))
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
    return outcomes


@contextlib.contextmanager
def _elsewhere() -> Iterator[None]:
    """A temporary folder as the current one: examples write files. Standard input is empty there, and standard error unseen."""
    with tempfile.TemporaryDirectory() as folder, open(os.devnull) as nothing:
        before, inputs = os.getcwd(), sys.stdin
        os.chdir(folder)
        sys.stdin = nothing
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                yield
        finally:
            sys.stdin = inputs
            os.chdir(before)


def run_here(examples: list[Example]) -> list[list[Outcome]]:
    """Every example by this process's `torch`."""
    import torch

    with _elsewhere():
        return [run_example(torch, e) for e in examples]


def run_apart(examples: list[Example]) -> list[list[Outcome]]:
    """Every example by flambeau, in another process; where it dies, the example's outcome says so and the rest goes on in a new one."""
    results: list[list[Outcome]] = []
    while len(results) < len(examples):
        rest = examples[len(results) :]
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        done = processes.python("-m", "tests.documentation.execute", input=json.dumps(rest), cwd=root)
        lines = [line.split("\x1e", 1)[1] for line in done.stdout.split("\n") if "\x1e" in line]
        results += [[Outcome(*o) for o in json.loads(line)] for line in lines]
        if len(lines) < len(rest):
            results.append([Outcome("", "Died", f"exit status {done.returncode}: {done.stderr[-500:]}")])
    return results


def main() -> None:
    """The other process: examples from standard input, a line of outcomes each to standard output, behind a mark of their own."""
    examples = [Example(name, chunks) for name, chunks in json.load(sys.stdin)]
    from flambeau.as_torch import install

    install()
    import torch

    with _elsewhere():
        for example in examples:
            outcomes = run_example(torch, example)
            print("\x1e" + json.dumps(outcomes), flush=True)


if __name__ == "__main__":
    main()
