"""Running a pipeline: each step when something that it depends on has changed, its outputs under temporary names until it has ended."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import flambeau
from flambeau.names import meant
from flambeau.pipeline import conditions, hashes
from flambeau.pipeline.definition import PLACE, Pipeline, Step
from flambeau.pipeline.order import reached
from flambeau.pipeline.records import Records

_FORMAT: Final = 1  # of keys and records


class StepFailed(RuntimeError):
    """A step that ended with an error, did not write what it must, or whose condition does not hold."""


@dataclass(frozen=True)
class Result:
    """What became of a step: "run", "skipped", or in a dry run "would run"; its metrics, and seconds."""

    step: str
    state: str
    metrics: dict[str, float]
    seconds: float


def run(
    pipeline: Pipeline, only: Iterable[str] = (), *, force: bool = False, dry: bool = False, say: Callable[[str], None] = print,
) -> list[Result]:  # fmt: skip
    """Run the steps (those in `only` and what they need; all by default) that are not up to date; `force`: all of them; `dry`: only say which.

    ValueError for a step that is not there; StepFailed when one fails, and no later one is run; RuntimeError if the pipeline is being run already.
    """
    names = list(only)
    for name in names:
        if name not in pipeline.steps:
            raise ValueError(f"{pipeline.path}: there is no step {name}; there are {', '.join(pipeline.steps)}.{meant(name, pipeline.steps)}")
    needs = {name: step.needs for name, step in pipeline.steps.items()}
    wanted = set().union(*(reached(needs, name) for name in names or needs))
    steps = [step for step in pipeline.steps.values() if step.name in wanted]
    records = Records(pipeline.path)
    results: list[Result] = []
    with ExitStack() as stack:
        lock = -1 if dry else stack.enter_context(records.locked())
        tracked = None if dry or pipeline.mlflow is None else _tracking(pipeline)
        ended = False
        try:
            for step in steps:
                start = time.perf_counter()
                stale = dry and any(r.state == "would run" for r in results if r.step in step.needs)
                key = "" if stale else key_of(step, pipeline.folder)
                record = None if force or stale else _valid(records.read(step.name), key, pipeline.folder)
                if record is None and dry:
                    say(f"{step.name}: would run")
                    results.append(Result(step.name, "would run", {}, 0.0))
                    continue
                skipped = record is not None
                if record is None:
                    say(f"{step.name}: runs")
                    record = _run_step(step, key, pipeline.folder, records, lock)
                result = Result(step.name, "skipped" if skipped else "run", record["metrics"], time.perf_counter() - start)
                shown = "".join(f", {name} {value:g}" for name, value in result.metrics.items())
                say(f"{step.name}: {'up to date' if skipped else f'done in {result.seconds:.1f} s'}{shown}")
                results.append(result)
                if tracked is not None:
                    tracked.step(step.name, skipped, result.seconds, result.metrics, step.metrics)
                _check(step, result.metrics)
            ended = True
        finally:
            if tracked is not None:
                tracked.end(failed=not ended)
    return results


def key_of(step: Step, folder: Path) -> str:
    """SHA-256 of all that a step's outputs depend on: what is run, its code, the contents of its inputs, parameters, and flambeau's version."""
    code = {_shown(f, folder): hashes.of_path(f) for f in hashes.code_files(step.code)}
    parts = {
        "format": _FORMAT, "flambeau": flambeau.__version__, "kind": step.kind, "words": step.words, "code": code, "parameters": step.parameters,
        "inputs": {n: [_shown(p, folder), hashes.of_path(p)] for n, p in step.inputs.items()},
        "outputs": {n: _shown(p, folder) for n, p in step.results.items()},
    }  # fmt: skip
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _valid(record: dict[str, Any] | None, key: str, folder: Path) -> dict[str, Any] | None:
    """The record, if it is of this key and its outputs are what they were."""
    if record is None or record.get("key") != key or not isinstance(record.get("metrics"), dict):
        return None
    try:
        same = all(hashes.of_path(folder / path) == digest for path, digest in record["outputs"].items())
    except OSError:
        return None
    return record if same else None


def _run_step(step: Step, key: str, folder: Path, records: Records, lock: int) -> dict[str, Any]:
    if step.kind == "push":
        from flambeau.pipeline.push import push  # here, so that `python -m` of it finds it not imported yet

        made = [push(next(iter(step.inputs.values())), folder / step.words[0])]
        records.remove(step.name)
        metrics: dict[str, float] = {}
    else:
        made = list(step.results.values())
        with ExitStack() as stack:
            temporary = {name: _temporary(step.name, path, stack) for name, path in step.results.items()}
            _process(step, _words(step, temporary, records.scratch(step.name, key)), folder, lock)
            for name, path in temporary.items():
                if not path.exists():
                    raise StepFailed(f"step {step.name} has ended, but not written its output {name}: it must write to the path that it is given as {name}")
            try:
                metrics = {} if step.metrics is None else conditions.read_metrics(temporary["metrics"])
            except ValueError as error:
                raise StepFailed(f"step {step.name}: {error}") from None
            records.remove(step.name)  # a kill from here to the new record makes the step run again
            for name, path in step.results.items():
                _replace(temporary[name], path)
    record = {"key": key, "metrics": metrics, "outputs": {_shown(path, folder): hashes.of_path(path) for path in made}}
    records.write(step.name, record)
    return record


def _temporary(step: str, path: Path, stack: ExitStack) -> Path:
    """A path of the same name in a new folder beside it. What killed runs have left there is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{step}.part-"
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=path.parent))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    (folder / ".of").write_text(path.name)
    for old in path.parent.glob(f"{prefix}*"):
        with suppress(OSError):
            if old != folder and (old / ".of").read_text() == path.name:
                shutil.rmtree(old, ignore_errors=True)
    return folder / path.name


def _replace(new: Path, path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rename(new.parent / ".old")  # removed with the temporary folder
    elif new.is_dir():
        path.unlink(missing_ok=True)
    os.replace(new, path)


def _words(step: Step, temporary: dict[str, Path], scratch: Path) -> list[str]:
    paths = {**step.inputs, **temporary}
    if step.kind == "command":
        texts = {n: str(p) for n, p in paths.items()} | {n: _text(v) for n, v in step.parameters.items()} | {"scratch": str(scratch)}
        return [PLACE.sub(lambda found: texts[found[1]], word) for word in step.words]
    words = [sys.executable, "-m", "flambeau.pipeline.call", ":".join(step.words), "--scratch", str(scratch)]
    words += [f"--path={n}={p}" for n, p in paths.items() if n != "metrics"]
    words += [f"--parameter={n}={json.dumps(v)}" for n, v in step.parameters.items()]
    return words if step.metrics is None else [*words, f"--metrics={temporary['metrics']}"]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _process(step: Step, words: list[str], folder: Path, lock: int) -> None:
    package = str(Path(flambeau.__file__).parents[1])
    path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))  # the step's flambeau is this one
    # Python takes a module's bytecode for current by its time in seconds and its size: a helper changed at once, to the same size, would run as it was.
    own = {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        process = subprocess.Popen(words, cwd=folder, pass_fds=(lock,), env={**os.environ, **own})
    except OSError as error:
        raise StepFailed(f"step {step.name}: {words[0]} cannot be run: {error}") from None
    try:
        status = process.wait()
    except BaseException:
        process.kill()
        process.wait()
        raise
    if status:
        end = f"was ended by signal {-status}" if status < 0 else f"has ended with status {status}"
        raise StepFailed(f"step {step.name} {end}; later steps were not run")


def _check(step: Step, metrics: dict[str, float]) -> None:
    try:
        wrong = conditions.failed(step.require, metrics)
    except KeyError as error:
        raise StepFailed(f"step {step.name}: {error.args[0]}") from None
    if wrong:
        raise StepFailed(f"step {step.name}: the condition {' and '.join(wrong)} does not hold; later steps were not run")


def _shown(path: Path, folder: Path) -> str:
    """A path as it stands in keys and records: relative where it lies in the pipeline's folder, so that this can be moved."""
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def _tracking(pipeline: Pipeline) -> Any:
    from flambeau.pipeline.tracking import MlflowRun

    settings = pipeline.mlflow or {}
    tracked = MlflowRun(settings.get("experiment", pipeline.path.stem), settings.get("uri"), pipeline.path.stem)
    tracked.parameters(pipeline.parameters)
    return tracked
