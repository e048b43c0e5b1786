"""Runs one program that was written for PyTorch twice, by PyTorch and by flambeau, and compares what it yields and prints.

A program is a file `tests/programs/<family>/<name>.py`, written as its authors write PyTorch (`import torch` at the top, nothing about
flambeau). The families are vision, language, speech and science; `test_<family>.py` runs all files of its folder. A file is one of two things.

- It has a function `program()`, which is a generator of pairs (name, value), or returns a dict. A value is copied at the moment when it
  is yielded, so yield a model before training, after the first backward pass, and so on. Values may be
    * a Module: compared are repr(model), the names, order, shapes, dtypes and values of its state_dict, and the gradients that its
      parameters have at that moment;
    * tensors and NumPy arrays: shape, dtype, requires_grad, values;
    * numbers, strings, bools, None, and lists, tuples and dicts of all these.
  A name that begins with "initial" or "exact" is compared bit for bit, all others with the file's tolerance.
- It has none: then it is a script and runs as `__main__`, and only what it prints is compared.

What a program prints is compared in both cases: words exactly, numbers within the tolerance and one unit of the last digit. Do not print
times, addresses or versions.

Before the run, `random`, NumPy and `torch.manual_seed` are seeded with 0; the working directory is empty and temporary. Both runs are in
one process: for flambeau's, `torch` and its submodules are what `flambeau run` makes of them (as_torch.py), and come back afterwards.

Dropout draws from another stream in flambeau, so `F.dropout` and its kin (and with them nn.Dropout, ...) are replaced on both sides by one
that takes its mask from `torch.rand`. Dropout inside F.scaled_dot_product_attention, nn.MultiheadAttention and between the layers of
nn.LSTM is not reached: set it to 0 there.

The tolerance of a floating tensor: |a - b| <= t * (max |b| + 0.01 * max of |b| over all that was yielded under the same name), with
t = 1e-4 by default. So gradients that are zero but for rounding (a bias before a batch norm) pass, and the second part is nothing where a
tensor stands alone. After steps of Adam such a bias has moved by the learning rate in a direction that rounding chose: yield losses,
outputs and gradients of the first steps rather than the weights at the end.

What one file needs beyond that stands in OPTIONS of `test_<family>.py`, by the file's name.

By hand: `python -m tests.programs.harness tests/programs/vision/resnet.py` prints the differences and the seconds of both runs.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import math
import os
import random
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from flambeau import as_torch

FOLDER = Path(__file__).parent
# Libraries that look for torch when they are imported: each run imports its own.
FOLLOWERS = ("einops",)
NUMBER = re.compile(r"(?<![A-Za-z_])[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan\b|inf\b)")


@dataclass(frozen=True)
class Options:
    """How a program is run and compared. `masks`: whether dropout takes its masks from torch.rand; `arguments`: sys.argv[1:]."""

    tolerance: float = 1e-4
    arguments: tuple[str, ...] = ()
    masks: bool = True


@dataclass
class Array:
    """A tensor or a NumPy array at the moment when it was yielded."""

    values: np.ndarray[Any, Any]
    dtype: str
    requires_grad: bool


@dataclass
class Model:
    """A module at the moment when it was yielded."""

    text: str
    state: dict[str, Any]
    gradients: dict[str, Any]


@dataclass
class Outcome:
    """What one run yielded and printed."""

    values: list[tuple[str, Any]] = field(default_factory=list)
    printed: str = ""
    seconds: float = 0.0


def _snapshot(torch: Any, value: Any) -> Any:
    """A copy of a yielded value that belongs to neither framework."""
    if isinstance(value, torch.Tensor):
        plain = value.detach()
        if getattr(plain, "is_sparse", False):
            plain = plain.to_dense()
        dtype = str(plain.dtype)
        if dtype in ("torch.bfloat16", "torch.float16"):
            plain = plain.float()
        return Array(np.array(plain.contiguous().resolve_conj().numpy()), dtype, value.requires_grad)
    if isinstance(value, np.ndarray | np.generic):
        return Array(np.array(value), f"numpy.{value.dtype}", False)
    if isinstance(value, torch.nn.Module):
        state = {k: _snapshot(torch, v) for k, v in value.state_dict().items()}
        gradients = {k: _snapshot(torch, p.grad) for k, p in value.named_parameters() if p.grad is not None}
        return Model(repr(value), state, gradients)
    if isinstance(value, Mapping):
        return {str(k) if not isinstance(k, int) else k: _snapshot(torch, v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_snapshot(torch, v) for v in value]
    if value is None or isinstance(value, bool | int | float | complex | str):
        return value
    if isinstance(value, (torch.dtype, torch.device)):
        return str(value)
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    raise TypeError(f"a program yielded a {kind}: yield modules, tensors, numbers, text or lists of these")


def _masks(torch: Any) -> dict[str, Callable[..., Any]]:
    """Replacements for the dropout functions: the mask is `torch.rand(...) >= p`."""

    def checked(p: float) -> None:
        if p < 0.0 or p > 1.0:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")

    def over(dims: int | None) -> Callable[..., Any]:
        def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
            checked(p)
            if not training or p == 0.0:
                return input
            shape = tuple(input.shape) if dims is None else tuple(input.shape[:dims]) + (1,) * (input.dim() - dims)
            scale = (torch.rand(shape) >= p).to(input.dtype) * (0.0 if p == 1.0 else 1.0 / (1.0 - p))
            return input.mul_(scale) if inplace else input * scale

        return dropout

    def alpha(dims: int | None) -> Callable[..., Any]:
        def alpha_dropout(input: Any, p: float = 0.5, training: bool = False, inplace: bool = False) -> Any:
            checked(p)
            if not training or p == 0.0:
                return input
            limit = -1.7580993408473766  # of SELU at minus infinity (Klambauer et al., 2017)
            shape = tuple(input.shape) if dims is None else tuple(input.shape[:dims]) + (1,) * (input.dim() - dims)
            keep = (torch.rand(shape) >= p).to(input.dtype)
            a = ((1 - p) * (1 + p * limit**2)) ** -0.5
            return (input * keep + limit * (1 - keep)) * a - a * p * limit

        return alpha_dropout

    return {
        "dropout": over(None), "dropout1d": over(2), "dropout2d": over(2), "dropout3d": over(2), "alpha_dropout": alpha(None),
        "feature_alpha_dropout": alpha(2),
    }  # fmt: skip


@contextlib.contextmanager
def _as_torch(flambeau: bool) -> Iterator[Any]:
    """Within, `import torch` gives flambeau or PyTorch; gives the module."""

    def names() -> list[str]:
        return [n for n in sys.modules if n.partition(".")[0] in ("torch", *FOLLOWERS)]

    if not flambeau:
        import torch

        for name in [n for n in names() if not n.startswith("torch")]:
            del sys.modules[name]
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # its threads wait busily, which is slow where other tests share the processors
        try:
            yield torch
        finally:
            torch.set_num_threads(threads)
        return
    kept = {n: sys.modules[n] for n in names()}
    for name in kept:
        del sys.modules[name]
    as_torch.install()
    try:
        yield sys.modules["torch"]
    finally:
        as_torch.remove()
        for name in names():
            del sys.modules[name]
        sys.modules.update({n: m for n, m in kept.items() if n.startswith("torch")})


@contextlib.contextmanager
def _surroundings(torch: Any, path: Path, options: Options) -> Iterator[io.StringIO]:
    """Seeds, an empty folder, arguments, standard output in a buffer; everything is put back afterwards."""
    functions, printed = torch.nn.functional, io.StringIO()
    replaced = {name: getattr(functions, name) for name in (_masks(torch) if options.masks else ())}
    arguments, folder, paths = sys.argv, os.getcwd(), list(sys.path)
    torch.manual_seed(0), random.seed(0), np.random.seed(0)
    try:
        with tempfile.TemporaryDirectory() as empty, contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            os.chdir(empty)
            sys.argv = [path.name, *options.arguments]
            for name, function in _masks(torch).items() if options.masks else ():
                setattr(functions, name, function)
            try:
                yield printed
            finally:
                os.chdir(folder)
    finally:
        for name, function in replaced.items():
            setattr(functions, name, function)
        sys.argv, sys.path[:] = arguments, paths
        torch.set_default_dtype(torch.float32), torch.set_grad_enabled(True)


def run(path: Path, flambeau: bool, options: Options = Options()) -> Outcome:
    """Run the program once, by flambeau or by PyTorch."""
    path = path.resolve()
    outcome, start = Outcome(), time.perf_counter()
    with _as_torch(flambeau) as torch, _surroundings(torch, path, options) as printed:
        source = path.read_text()
        script = "def program(" not in source
        name = "__main__" if script else f"program_{path.stem}"
        module = ModuleType(name)
        module.__file__ = str(path)
        before = sys.modules.get(name)
        sys.modules[name] = module
        try:
            exec(compile(source, str(path), "exec"), module.__dict__)
            if not script:
                made = module.program()
                items = made.items() if isinstance(made, Mapping) else made
                assert isinstance(made, Mapping) or inspect.isgenerator(made), f"{path.name}: program() is no generator and returned no dict"
                for key, value in items:
                    outcome.values.append((key, _snapshot(torch, value)))
        finally:
            del sys.modules[name]
            if before is not None:
                sys.modules[name] = before
        outcome.printed = printed.getvalue()
    outcome.seconds = time.perf_counter() - start
    return outcome


def _greatest(value: Any) -> float:
    """The greatest finite magnitude of the floating values in a snapshot."""
    if isinstance(value, Array):
        if value.values.dtype.kind not in "fc":
            return 0.0
        size = np.abs(value.values)
        return float(np.max(size, initial=0.0, where=np.isfinite(size)))
    if isinstance(value, Model):
        return max(_greatest(value.state), _greatest(value.gradients))
    if isinstance(value, float | complex):
        return abs(value) if math.isfinite(abs(value)) else 0.0
    parts = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return max((_greatest(v) for v in parts), default=0.0)


def _close(mine: Any, theirs: Any, tolerance: float, scale: float) -> str:
    """Empty if two float arrays agree; otherwise how they do not."""
    with np.errstate(all="ignore"):
        same = (mine == theirs) | (np.isnan(mine) & np.isnan(theirs))
        finite = np.isfinite(theirs)
        limit = tolerance * (float(np.max(np.abs(theirs), initial=0.0, where=finite)) + 0.01 * scale)
        error = np.where(same, 0.0, np.abs(mine - theirs))
        wrong = ~(error <= limit)
    if not wrong.any():
        return ""
    place = int(np.nanargmax(np.where(np.isfinite(error), error, np.inf)))
    return f"{int(wrong.sum())} of {wrong.size} values differ by more than {limit:.3g}; the worst: {mine.flat[place]!r}, PyTorch {theirs.flat[place]!r}"


def _differences(where: str, mine: Any, theirs: Any, tolerance: float, scale: float) -> Iterator[str]:
    """Lines that say how two snapshots differ."""
    if isinstance(theirs, Model) and isinstance(mine, Model):
        if mine.text != theirs.text:
            first = next((p for p in zip(mine.text.splitlines(), theirs.text.splitlines(), strict=False) if p[0] != p[1]), ("...", "..."))
            yield f"{where}: repr has {first[0]!r}, PyTorch {first[1]!r}"
        yield from _differences(f"{where}.state_dict", mine.state, theirs.state, tolerance, _greatest(theirs.state))
        yield from _differences(f"{where}.grad", mine.gradients, theirs.gradients, tolerance, _greatest(theirs.gradients))
    elif isinstance(theirs, Array) and isinstance(mine, Array):
        for name, a, b in (("dtype", mine.dtype, theirs.dtype), ("shape", mine.values.shape, theirs.values.shape),
                           ("requires_grad", mine.requires_grad, theirs.requires_grad)):  # fmt: skip
            if a != b:
                yield f"{where}: {name} {a}, PyTorch {b}"
        if mine.values.shape != theirs.values.shape:
            return
        if theirs.values.dtype.kind in "fc" and mine.values.dtype == theirs.values.dtype and tolerance:
            found = _close(mine.values, theirs.values, tolerance, scale)
            if found:
                yield f"{where}: {found}"
        elif not np.array_equal(mine.values, theirs.values, equal_nan=theirs.values.dtype.kind in "fc"):
            wrong = np.flatnonzero(mine.values != theirs.values)
            pair = f"{mine.values.flat[wrong[0]]}, PyTorch {theirs.values.flat[wrong[0]]}"
            yield f"{where}: {len(wrong)} of {theirs.values.size} values are not equal; the first: {pair}"
    elif isinstance(theirs, dict) and isinstance(mine, dict):
        if list(mine) != list(theirs):
            missing, more = [k for k in theirs if k not in mine], [k for k in mine if k not in theirs]
            yield f"{where}: keys differ: missing {missing[:8]}, too many {more[:8]}" + ("" if missing or more else ", another order")
        for key in theirs:
            if key in mine:
                yield from _differences(f"{where}[{key!r}]", mine[key], theirs[key], tolerance, scale)
    elif isinstance(theirs, list) and isinstance(mine, list):
        if len(mine) != len(theirs):
            yield f"{where}: {len(mine)} items, PyTorch {len(theirs)}"
        for i, (a, b) in enumerate(zip(mine, theirs, strict=False)):
            yield from _differences(f"{where}[{i}]", a, b, tolerance, scale)
    elif type(theirs) is not type(mine):
        yield f"{where}: {mine!r} is a {type(mine).__name__}, PyTorch's {theirs!r} a {type(theirs).__name__}"
    elif isinstance(theirs, float | complex) and tolerance:
        found = _close(np.array(mine), np.array(theirs), tolerance, scale)
        if found:
            yield f"{where}: {mine!r}, PyTorch {theirs!r}"
    elif mine != theirs:
        yield f"{where}: {mine!r}, PyTorch {theirs!r}"


def _unit(text: str) -> float:
    """One unit of the last digit of a printed number."""
    digits, _, exponent = text.lower().partition("e")
    whole, point, fraction = digits.partition(".")
    return 0.0 if not point and not exponent else 10.0 ** (int(exponent or 0) - len(fraction))


def _printed(mine: str, theirs: str, tolerance: float) -> Iterator[str]:
    """Lines that say how two texts differ, their numbers compared as numbers."""
    ours, other = mine.splitlines(), theirs.splitlines()
    if len(ours) != len(other):
        yield f"printed {len(ours)} lines, PyTorch {len(other)}"
    for i, (a, b) in enumerate(zip(ours, other, strict=False)):
        numbers = list(zip(NUMBER.findall(a), NUMBER.findall(b), strict=False))
        words = [re.sub(r"\s+", " ", NUMBER.sub("#", line)) for line in (a, b)]
        near = all(x == y or math.isclose(float(x), float(y), rel_tol=tolerance, abs_tol=1.001 * _unit(y) if _unit(y) else 0.0) for x, y in numbers)
        if words[0] != words[1] or not near:
            yield f"printed line {i + 1}: {a!r}, PyTorch {b!r}"


def differences(mine: Outcome, theirs: Outcome, options: Options = Options()) -> list[str]:
    """What differs between flambeau's run and PyTorch's, one line each."""
    found: list[str] = []
    names = [[name for name, _ in run.values] for run in (mine, theirs)]
    if names[0] != names[1]:
        found.append(f"yielded {names[0]}, PyTorch {names[1]}")
    for (name, a), (_, b) in zip(mine.values, theirs.values, strict=False):
        exact = name.startswith(("initial", "exact"))
        found += _differences(name, a, b, 0.0 if exact else options.tolerance, _greatest(b))
    return found + list(_printed(mine.printed, theirs.printed, options.tolerance))


def check(path: Path, options: Options = Options()) -> None:
    """Run a program by both and fail with all differences."""
    theirs = run(path, False, options)
    mine = run(path, True, options)
    assert theirs.values or theirs.printed, f"{path.name} yields and prints nothing: there is nothing to compare"
    found = differences(mine, theirs, options)
    assert not found, f"{path.name}: {len(found)} differences\n" + "\n".join(found[:30])


def programs(family: str) -> list[Path]:
    """The programs of a family, by name."""
    return sorted(p for p in (FOLDER / family).glob("*.py") if p.name != "__init__.py")


def main(paths: list[str]) -> int:
    """Compare the named programs and print what differs; returns how many differ."""
    failed = 0
    for path in map(Path, paths):
        family = importlib.import_module(f"tests.programs.test_{path.resolve().parent.name}")
        options = family.OPTIONS.get(path.stem, Options())
        theirs = run(path, False, options)
        mine = run(path, True, options)
        found = differences(mine, theirs, options)
        names = ", ".join(name for name, _ in theirs.values) or "printed text"
        print(f"{path.stem}: {len(found)} differences; flambeau {mine.seconds:.2f} s, PyTorch {theirs.seconds:.2f} s; {names}")
        for line in found[:30]:
            print(f"    {line}")
        failed += bool(found)
    return failed


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
