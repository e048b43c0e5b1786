"""The file of a pipeline: TOML that names steps with their inputs, outputs and parameters, read into `Pipeline`.

Everything that can be wrong is said here, before a step is run.
"""

from __future__ import annotations

import keyword
import os
import re
import shlex
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from flambeau.names import meant
from flambeau.pipeline import conditions
from flambeau.pipeline.order import ordered, reached

_TABLES: Final = ("parameters", "steps", "mlflow")
_KEYS: Final = ("function", "command", "push", "inputs", "outputs", "parameters", "metrics", "require", "after", "code")
_KINDS: Final = ("function", "command", "push")
_MLFLOW: Final = ("uri", "experiment")
_RESERVED: Final = ("metrics", "scratch")
MODELS: Final = (".pt2", ".onnx", ".py")  # what flambeau serve reads
PLACE: Final = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Step:
    """One step. Paths are absolute. `needs`: the steps that come before it."""

    name: str
    kind: str  # function, command or push
    words: tuple[str, ...]  # ("train.py", "train"), a command's words, or (the folder that is pushed to,)
    inputs: dict[str, Path]
    outputs: dict[str, Path]
    parameters: dict[str, Any]
    metrics: Path | None
    require: list[conditions.Condition]
    code: list[Path]
    needs: list[str] = field(default_factory=list)

    @property
    def results(self) -> dict[str, Path]:
        """All files that the step leaves, its metrics among them."""
        return self.outputs if self.metrics is None else {**self.outputs, "metrics": self.metrics}


@dataclass(frozen=True)
class Pipeline:
    """The steps in an order in which they can run, and where their file lies."""

    path: Path
    parameters: dict[str, Any]
    steps: dict[str, Step]
    mlflow: dict[str, str] | None

    @property
    def folder(self) -> Path:
        """The folder of the file: paths are relative to it, and steps run in it."""
        return self.path.parent


def read(path: str | os.PathLike[str], parameters: Mapping[str, Any] | None = None) -> Pipeline:
    """The pipeline of a TOML file, with other values for some of its parameters. FileNotFoundError, or ValueError that says what is wrong and where."""
    file = Path(path).absolute()
    if not file.is_file():
        raise FileNotFoundError(f"flambeau pipeline: {'this is a folder' if file.is_dir() else 'no such file'}: {path}")
    try:
        return _pipeline(file, tomllib.loads(file.read_text()), dict(parameters or {}))
    except (ValueError, TypeError) as error:  # TOMLDecodeError and UnicodeDecodeError are ValueErrors
        raise ValueError(f"{path}: {error}") from None


def _pipeline(file: Path, table: dict[str, Any], changed: dict[str, Any]) -> Pipeline:
    _known(table, _TABLES, "the file")
    values = _table(table.get("parameters", {}), "[parameters]")
    for name, value in values.items():
        if not _plain(value):
            raise ValueError(f"parameter {name} = {value!r}: must be a number, a text, true, false, or lists and tables of these")
    for name in changed:
        if name not in values:
            raise ValueError(f"there is no parameter {name}; [parameters] has {_listed(values)}.{meant(name, values)}")
    values |= changed
    written = _table(table.get("steps", {}), "[steps]")
    if not written:
        raise ValueError("there are no steps; a step is a table [steps.NAME]")
    steps = {name: _step(name, _table(t, f"[steps.{name}]"), file.parent, values) for name, t in written.items()}
    unused = sorted(set(values) - {p for s in steps.values() for p in s.parameters})
    if unused:
        raise ValueError(f"no step has the parameter {unused[0]} among its parameters")
    _connect(steps, {name: _texts(t.get("after", []), f"[steps.{name}] after") for name, t in written.items()})
    order = ordered({name: s.needs for name, s in steps.items()})
    mlflow = None
    if "mlflow" in table:
        mlflow = _table(table["mlflow"], "[mlflow]")
        _known(mlflow, _MLFLOW, "[mlflow]")
        if not all(isinstance(v, str) for v in mlflow.values()):
            raise ValueError("[mlflow]: uri and experiment are texts")
    return Pipeline(file, values, {name: steps[name] for name in order}, mlflow)


def _step(name: str, table: dict[str, Any], folder: Path, values: dict[str, Any]) -> Step:
    where = f"[steps.{name}]"
    if not re.fullmatch(r"[\w-]+", name):
        raise ValueError(f"{where}: a step's name has letters, digits, _ and - only")
    _known(table, _KEYS, where)
    kinds = [k for k in _KINDS if k in table]
    if len(kinds) != 1:
        raise ValueError(f"{where}: must have one of function, command and push, has {' and '.join(kinds) or 'none'}")
    inputs = _paths(table.get("inputs", {}), f"{where} inputs", folder)
    outputs = _paths(table.get("outputs", {}), f"{where} outputs", folder)
    names = _texts(table.get("parameters", []), f"{where} parameters")
    for parameter in names:
        if parameter not in values:
            raise ValueError(f"{where}: there is no parameter {parameter}; [parameters] has {_listed(values)}.{meant(parameter, values)}")
    for one in [*inputs, *outputs, *names]:
        if not one.isidentifier() or keyword.iskeyword(one) or one in _RESERVED:
            raise ValueError(
                f"{where}: {one!r} cannot be the name of an input, output or parameter: it must be a name of Python's, and not {' or '.join(_RESERVED)}"
            )
        if [*inputs, *outputs, *names].count(one) > 1:
            raise ValueError(f"{where}: the name {one} stands twice among inputs, outputs and parameters")
    metrics = table.get("metrics")
    if metrics is not None and not isinstance(metrics, str):
        raise ValueError(f"{where}: metrics must be the path of a JSON file, got {metrics!r}")
    require = [conditions.parse(text) for text in _texts(table.get("require", []), f"{where} require")]
    if require and metrics is None:
        raise ValueError(f"{where}: require needs metrics, the file that the step's metrics are written to")
    words = _words(where, kinds[0], table[kinds[0]], {*inputs, *outputs, *names, *(["metrics"] if metrics else []), "scratch"})
    if kinds[0] == "push":
        if len(inputs) != 1 or outputs or metrics:
            raise ValueError(f"{where}: push takes one input, the model's file, and has no outputs and no metrics")
        if next(iter(inputs.values())).suffix not in MODELS:
            raise ValueError(f"{where}: flambeau serve reads files that end in {', '.join(MODELS)}, got {next(iter(inputs.values())).name}")
    code = [folder / p for p in _texts(table.get("code", []), f"{where} code")]
    if kinds[0] == "function":
        code.insert(0, folder / words[0])
    elif kinds[0] == "command":
        code += [p for w in words if not PLACE.search(w) and (p := folder / w).is_file() and p not in inputs.values()]
    missing = [p for p in code if not p.exists()]
    if missing:
        raise ValueError(f"{where}: there is no {missing[0]}")
    return Step(
        name, kinds[0], words, inputs, outputs, {n: values[n] for n in names}, None if metrics is None else folder / metrics, require, code,
    )  # fmt: skip


def _words(where: str, kind: str, value: Any, names: set[str]) -> tuple[str, ...]:
    if kind == "command" and isinstance(value, list):
        words = _texts(value, f"{where} command")
    elif isinstance(value, str) and value.strip():
        words = shlex.split(value) if kind == "command" else [value]
    else:
        raise ValueError(f"{where}: {kind} must be a text{' or a list of texts' if kind == 'command' else ''}, got {value!r}")
    if kind == "function":
        file, colon, function = words[0].rpartition(":")
        if not colon or not file.endswith(".py") or not function.isidentifier():
            raise ValueError(f"{where}: function must have the form FILE.py:NAME, got {value!r}")
        return file, function
    if kind == "command":
        if not words:
            raise ValueError(f"{where}: command is empty")
        for name in PLACE.findall(" ".join(words)):
            if name not in names:
                raise ValueError(
                    f"{where}: the command's {{{name}}} is no input, output or parameter of the step; there are {_listed(names)}.{meant(name, names)}"
                )
    return tuple(words)


def _connect(steps: dict[str, Step], after: dict[str, list[str]]) -> None:
    """Fill in which steps each one needs."""
    makers: dict[Path, str] = {}
    for step in steps.values():
        for path in step.results.values():
            if path in makers:
                raise ValueError(f"[steps.{makers[path]}] and [steps.{step.name}] both write {path}")
            makers[path] = step.name
    for step in steps.values():
        for path in [*step.inputs.values(), *step.code]:
            found = [maker for p, maker in makers.items() if path.is_relative_to(p) or p.is_relative_to(path)]  # a folder, and what lies in it
            step.needs.extend(found)
            if not found and not path.exists():
                known = [p.name for p in makers]
                raise ValueError(f"[steps.{step.name}]: there is no {path}, and no step has it among its outputs.{meant(path.name, known)}")
        for other in after[step.name]:
            if other not in steps:
                raise ValueError(f"[steps.{step.name}] after: there is no step {other}; there are {_listed(steps)}.{meant(other, steps)}")
            step.needs.append(other)
    needs = {name: s.needs for name, s in steps.items()}
    ordered(needs)  # a circle is said before anything is added
    for step in steps.values():  # nothing is pushed before all conditions hold, but for those of steps that need the push
        if step.kind == "push":
            step.needs.extend(s.name for s in steps.values() if s.require and step.name not in reached(needs, s.name))
    for step in steps.values():
        step.needs[:] = dict.fromkeys(step.needs)


def _known(table: Mapping[str, Any], keys: Iterable[str], where: str) -> None:
    for key in table:
        if key not in keys:
            raise ValueError(f"{where} has the unknown key {key!r}; known: {_listed(keys)}.{meant(key, keys)}")


def _table(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where} must be a table, got {value!r}")
    return dict(value)


def _texts(value: Any, where: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(v, str) and v for v in value):
        raise ValueError(f"{where} must be a list of texts, got {value!r}")
    return list(value)


def _paths(value: Any, where: str, folder: Path) -> dict[str, Path]:
    if not isinstance(value, dict) or not all(isinstance(v, str) and v for v in value.values()):
        raise ValueError(f'{where} must be a table of paths by name, as in {{ model = "model.pt2" }}, got {value!r}')
    return {name: Path(os.path.normpath(folder / path)) for name, path in value.items()}


def _plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_plain, value))
    return all(map(_plain, value.values())) if isinstance(value, dict) else isinstance(value, bool | int | float | str)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
