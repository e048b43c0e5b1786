"""Which dtypes and which numbers operators take: `python -m tests.errors.dtypes [--numbers] [OPERATOR ...]`, beside PyTorch.

Each operator of PyTorch's database is called with two of its own samples, whose tensors of the sample's dtype are made tensors of every other dtype
(`--numbers`: and whose numbers are made numbers that may not fit). Compared are whether it raises, the error's type, and the dtypes of the results.
"""

from __future__ import annotations

import argparse
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

import flambeau
from flambeau.testing.compare import Input
from tests.differential import samples
from tests.differential.samples import OPERATORS, supported, torch
from tests.differential.sweep import TookTooLong, on_alarm

DTYPES: Final = (
    "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64", "complex128",
)  # fmt: skip
NUMBERS: Final = (300, -1, 70000, 2**40, 0.5, 1e5, 1e300, float("inf"), float("-inf"), float("nan"), 1j, True)


# Where more than one answer is right, or something is not there: why.
KNOWN: Final = {
    "max_pool2d_with_indices_backward": "not there", "round/decimals_0": "PyTorch tells a given default from one that is not given",
    "nn.functional.conv1d": "PyTorch's kernel depends on sizes", "nn.functional.conv2d": "PyTorch's kernel depends on sizes",
    "nn.functional.pdist": "PyTorch has a kernel where there is no result", "masked.softmax": "two faults", "masked.log_softmax": "two faults",
    "masked.softmin": "two faults", "masked.logsumexp": "bools have no identity", "svd_lowrank": "two faults", "pca_lowrank": "two faults",
    "nn.functional.linear_cross_entropy/chunked": "two faults", "nn.functional.linear_cross_entropy/chunked_none": "two faults",
}  # fmt: skip


def as_dtype(x: Any, old: str, new: str) -> Any:
    """An argument with its tensors of one dtype made tensors of another."""
    if isinstance(x, Input):
        if x.dtype != old:
            return x
        values = x.values
        if "complex" not in new and np.iscomplexobj(values):
            values = values.real
        if "float" not in new and "complex" not in new:
            values = np.nan_to_num(np.abs(values) if new.startswith(("uint", "bool")) else values, nan=1, posinf=1, neginf=1)
        held = getattr(flambeau, new).numpy_name or ("complex64" if "complex" in new else "float32")
        return Input(values.astype(held), new, strides=x.strides, offset=x.offset)
    if isinstance(x, (list, tuple)) and not hasattr(x, "_fields"):
        return type(x)([as_dtype(y, old, new) for y in x])
    return x


def small_samples(label: str) -> Iterator[tuple[str, samples.Case]]:
    """The first and the richest small sample of an operator, with its dtype."""
    dtype = next((d for d in ("float32", "int64", "bool", "complex64") if supported(label, d)), None)
    if dtype is None:
        return
    try:
        found = list(samples.cases(label, dtype, False, 30))
    except (AttributeError, NotImplementedError, ValueError, samples.Unsupported):
        return  # one that flambeau has not
    small = [c for c in found if all(not isinstance(a, Input) or 0 < a.values.size < 1000 for a in c.args)]
    if small:
        yield dtype, small[0]
        richest = max(small, key=lambda c: len(c.args) + len(c.kwargs))
        if richest is not small[0]:
            yield dtype, richest


def emptied(x: Any, size: int) -> Any:
    """An argument with all dims of one size made dims of size 0."""
    if isinstance(x, Input):
        values = x.values
        for d, n in enumerate(values.shape):
            values = np.take(values, [], axis=d) if n == size else values
        return Input(values, x.dtype)
    if isinstance(x, (list, tuple)) and not hasattr(x, "_fields"):
        return type(x)([emptied(y, size) for y in x])
    return x


def refused_empties(label: str) -> Iterator[str]:
    """A line on each call with empty tensors of some dtype that PyTorch takes and flambeau refuses."""
    for dtype, case in small_samples(label):
        sizes = {n for a in case.args for x in (a if isinstance(a, (list, tuple)) else (a,)) if isinstance(x, Input) for n in x.values.shape}
        for size in sorted(sizes):
            for other in DTYPES:
                args = tuple([emptied(as_dtype(a, dtype, other), size) for a in case.args])
                kwargs = {k: emptied(as_dtype(v, dtype, other), size) for k, v in case.kwargs.items()}
                ours = outcome(flambeau, case.function[0], args, kwargs)
                if ours[1] and not outcome(torch, case.function[1], args, kwargs)[1]:
                    yield f"{label} [{other}] size {size} -> 0 {case.text[:100]}\n    flambeau {': '.join(ours)}"


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float, complex))


def with_numbers(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """A call's arguments with each number replaced in turn; ints only where they are data, which nobody can see: so floats too."""
    for number in NUMBERS:
        for i, a in enumerate(args):
            if isinstance(a, (float, complex)) or (_is_number(a) and not isinstance(a, bool)):
                yield f"argument {i} = {number!r}", (*args[:i], number, *args[i + 1 :]), kwargs
        for k, a in kwargs.items():
            if isinstance(a, (float, complex)) or (_is_number(a) and not isinstance(a, bool)):
                yield f"{k} = {number!r}", args, {**kwargs, k: number}


def outcome(module: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, str]:
    """What a call comes to: an error's type and text, or the dtypes of its results."""
    from tests.errors.calls import _built

    signal.alarm(20)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module.manual_seed(0)
            result = function(*_built(args, module), **_built(kwargs, module))
        return dtypes_of(result, module), ""
    except TookTooLong:
        return "took too long", ""
    except Exception as error:
        return next(k.__name__ for k in type(error).__mro__ if k.__module__ == "builtins"), str(error).split("\n")[0][:160]
    finally:
        signal.alarm(0)


def dtypes_of(x: Any, module: Any) -> str:
    """The dtypes of the tensors of a result, as text."""
    if isinstance(x, module.Tensor):
        return str(x.dtype)
    if isinstance(x, (list, tuple)):
        return f"({', '.join([dtypes_of(y, module) for y in x])})"
    return type(x).__name__


def differences(label: str, numbers: bool) -> Iterator[str]:
    """A line on each call of an operator that comes to something else."""
    for dtype, case in small_samples(label):
        for other in DTYPES:
            args, kwargs = as_dtype(case.args, dtype, other), {k: as_dtype(v, dtype, other) for k, v in case.kwargs.items()}
            calls = [("", args, kwargs)] if not numbers else list(with_numbers(args, kwargs))
            for what, a, k in calls:
                theirs = outcome(torch, case.function[1], a, k)
                ours = outcome(flambeau, case.function[0], a, k)
                if ours[0].replace("flambeau.", "torch.") != theirs[0]:
                    yield f"{label} [{other}] {what} {case.text[:100]}\n    flambeau {': '.join(ours)}\n    PyTorch  {': '.join(theirs)}"


def main() -> int:
    """Print every difference; 0 if there is none."""
    parser = argparse.ArgumentParser(description="Compares which dtypes and numbers operators take with PyTorch.")
    parser.add_argument("operators", nargs="*")
    parser.add_argument("--numbers", action="store_true")
    given = parser.parse_args()
    signal.signal(signal.SIGALRM, on_alarm)
    count = 0
    for label in given.operators or [label for label in OPERATORS if label not in KNOWN]:
        for line in differences(label, given.numbers):
            count += 1
            print(line, flush=True)
    print(f"{count} differences")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
