"""`python -m flambeau.pipeline.call FILE.py:NAME`: a step's function in a process of its own, with paths and parameters as keyword arguments.

`import torch` gives flambeau, as in `flambeau run`. What the function returns are its metrics. DVC can use this as the command of a stage.
"""

from __future__ import annotations

import argparse
import inspect
import json
import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from flambeau.names import meant
from flambeau.pipeline import conditions
from flambeau.runtime import whole_files


def function(file: Path, name: str) -> Callable[..., Any]:
    """A function of a Python file, which is run for it. AttributeError, with what is meant, if it has none of that name."""
    sys.path.insert(0, str(file.resolve().parent))
    members = runpy.run_path(str(file), run_name=file.stem)
    found = members.get(name)
    if not callable(found):
        functions = [n for n, m in members.items() if inspect.isfunction(m)]
        raise AttributeError(f"{file} has no function {name}; it has {', '.join(functions) or 'none'}.{meant(name, functions)}")
    return found


def accepted(called: Callable[..., Any], arguments: dict[str, Any], optional: Sequence[str] = ()) -> dict[str, Any]:
    """The arguments, but for the optional ones that the function has not. TypeError that says which it lacks or has too many."""
    parameters = inspect.signature(called).parameters
    given = {n: a for n, a in arguments.items() if n not in optional or n in parameters}
    try:
        inspect.signature(called).bind(**given)
    except TypeError as error:
        raise TypeError(f"{getattr(called, '__name__', called)}{inspect.signature(called)} is called with {', '.join(given) or 'nothing'}: {error}") from None
    return given


def write_metrics(returned: Any, path: Path) -> dict[str, float]:
    """Write what a function has returned as JSON. TypeError unless it is a table of numbers."""
    metrics = conditions.flatten(returned)
    with whole_files.replacing(path) as file:
        file.write(json.dumps(returned, indent=1).encode() + b"\n")
    return metrics


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r} must have the form NAME=VALUE")
    return name, value


def value_of(text: str) -> Any:
    """A parameter's value from JSON; what is none is a text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def main(argv: Sequence[str] | None = None) -> int:
    """Call the function; 1 if a condition does not hold, 2 if the call is wrong."""
    parser = argparse.ArgumentParser(prog="python -m flambeau.pipeline.call", description=__doc__)
    parser.add_argument("function", metavar="FILE.py:NAME")
    parser.add_argument("--path", type=_pair, action="append", default=[], metavar="NAME=PATH", help="an input or output")
    parser.add_argument("--parameter", type=_pair, action="append", default=[], metavar="NAME=JSON")
    parser.add_argument("--metrics", metavar="FILE", help="where the returned table is written, as JSON")
    parser.add_argument("--require", action="append", default=[], metavar="CONDITION", help="such as 'accuracy >= 0.97'")
    parser.add_argument("--scratch", metavar="DIR", help="the argument scratch, if the function has it")
    options = parser.parse_args(argv)
    from flambeau.as_torch import install

    install()
    try:
        require = [conditions.parse(text) for text in options.require]
        if require and options.metrics is None:
            raise ValueError("--require needs --metrics")
        file, _, name = options.function.rpartition(":")
        called = function(Path(file), name)
        arguments = {n: Path(p) for n, p in options.path} | {n: value_of(v) for n, v in options.parameter}
        optional = ["scratch"] if options.scratch else []
        arguments = accepted(called, arguments | {n: Path(options.scratch) for n in optional}, optional)
    except (AttributeError, TypeError, ValueError, OSError) as error:
        print(f"{options.function}: {error}", file=sys.stderr)
        return 2
    for path in (a for a in arguments.values() if isinstance(a, Path)):
        path.parent.mkdir(parents=True, exist_ok=True)
    returned = called(**arguments)
    if options.metrics is None:
        return 0
    wrong = conditions.failed(require, write_metrics(returned, Path(options.metrics)))
    for text in wrong:
        print(f"{options.function}: the condition {text} does not hold", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
