"""PyTorch's own samples of its operators (its OpInfo database), as cases for `flambeau.testing.compare`.

The database comes with PyTorch (torch.testing._internal) and needs the package expecttest. It has about 700 operators with their
variants, and for each sample inputs of every dtype: empty, zero-dimensional, broadcast, not contiguous, with all arguments.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
import pytest

import flambeau
from flambeau.testing.compare import Input, Named, describe

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")

from torch.testing._internal import common_utils  # noqa: E402 - the two above may skip
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

torch.backends.__allow_nonbracketed_mutation_flag = True  # the import above forbids what programs do

common_utils.extract_test_fn = lambda: None  # it reads the source of every frame of the stack: a quarter of the time

OPERATORS = {f"{op.name}/{op.variant_test_name}" if op.variant_test_name else op.name: op for op in op_db}


class Case(NamedTuple):
    """One call: what to compare, and a line that describes it."""

    function: tuple[Callable[..., Any], Callable[..., Any]]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    text: str


class Unsupported(Exception):
    """A sample that no case can be made of: a sparse or a nested tensor, or one on another device."""


def case_of(value: Any) -> Any:
    """An argument of a sample, as `compare` takes it."""
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided or value.is_nested or value.device.type != "cpu" or value.ndim > 64:  # NumPy has 64 dims
            raise Unsupported
        return describe(value)
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, torch.nn.Module):  # one of PyTorch's as an argument
        raise Unsupported
    if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
        return Named(str(value).removeprefix("torch."))
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)([case_of(v) for v in value])
    if isinstance(value, dict):
        return {k: case_of(v) for k, v in value.items()}
    return value


def for_flambeau(function: Any, name: str) -> Callable[..., Any]:
    """flambeau's function for one of the database: the same name, or the same lambda with `torch` meaning flambeau."""
    if isinstance(function, FunctionType) and function.__module__.startswith("torch.testing"):
        scope = dict(function.__globals__)
        for helper, value in scope.items():  # helpers that seed, for instance, must call flambeau too
            if helper in function.__code__.co_names and isinstance(value, FunctionType) and value.__module__.startswith("torch.testing"):
                scope[helper] = FunctionType(value.__code__, {**value.__globals__, "torch": flambeau}, helper, value.__defaults__, value.__closure__)
        scope["torch"] = flambeau
        return FunctionType(function.__code__, scope, function.__name__, function.__defaults__, function.__closure__)
    if isinstance(function, partial):  # such as functions with inplace=True
        inner = f"{function.func.__module__}.{function.func.__name__}".removeprefix("torch.")
        return partial(for_flambeau(function.func, inner), *function.args, **function.keywords)
    if function is getattr(torch.Tensor, name, None):
        return getattr(flambeau.Tensor, name)  # type: ignore[no-any-return]
    for spelling in (name, getattr(function, "__name__", name)):
        for root in (flambeau, flambeau.Tensor):
            place: Any = root
            try:
                for part in spelling.split("."):
                    place = getattr(place, part)
            except AttributeError as error:
                last = error
            else:
                return place  # type: ignore[no-any-return]
    raise last


class Draw(NamedTuple):
    """Which samples of an operator: `seed` None takes them in steps, with the database's own numbers; a seed draws both."""

    seed: int | None = None
    reference: bool = False  # from the database's larger set, `reference_inputs`

    def samples(self, label: str, dtype: str, gradients: bool, most: int) -> Sequence[Any]:
        """At most `most` samples, spread over all that the database has."""
        return _samples(self, label, dtype, gradients, most)


@lru_cache(maxsize=48)  # the forms of an operator have the same samples
def _samples(draw: Draw, label: str, dtype: str, gradients: bool, most: int) -> Sequence[Any]:
    op = OPERATORS[label]
    make = op.reference_inputs if draw.reference else op.sample_inputs
    chance = random.Random(f"{draw.seed} {label} {dtype}")
    if draw.seed is not None:
        for generator in (torch.manual_seed, random.seed, np.random.seed):
            generator(chance.randrange(2**31))
    try:  # with a seed the database must not set its own before each sample: all would have the same numbers
        samples = list(make("cpu", getattr(torch, dtype), requires_grad=gradients, set_seed=draw.seed is None))
    except ValueError:  # the larger sets of `clamp` and `where` ask for bools and integers that require gradients
        if not gradients:
            raise
        return _samples(draw, label, dtype, False, most)
    if draw.seed is None:
        return samples[:: max(1, -(-len(samples) // most))]
    return [samples[i] for i in sorted(chance.sample(range(len(samples)), min(most, len(samples))))]


ALWAYS = Draw()


def cases(label: str, dtype: str, gradients: bool, most: int, draw: Draw = ALWAYS) -> Iterator[Case]:
    """At most `most` cases of an operator."""
    op = OPERATORS[label]
    function = for_flambeau(op.op, op.name), op.op
    for sample in draw.samples(label, dtype, gradients, most):
        try:
            args, kwargs = (case_of(sample.input), *case_of(tuple(sample.args))), case_of(dict(sample.kwargs))
        except Unsupported:
            continue
        yield Case(function, args, kwargs, f"{label}{text_of(args, kwargs)}")


def text_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    def show(x: Any) -> str:
        if isinstance(x, (list, tuple)) and not isinstance(x, Named):
            return "[" + ", ".join(show(y) for y in x) + "]"
        if isinstance(x, Input) and x.values.size == 1:
            return f"{x!r}={x.values.reshape(-1)[0]}"
        return x.name if isinstance(x, Named) else repr(x)

    return "(" + ", ".join([*[show(a) for a in args], *[f"{k}={show(v)}" for k, v in kwargs.items()]]) + ")"


def supported(label: str, dtype: str) -> bool:
    """Whether PyTorch has the operator for this dtype on the CPU, and it is one of strided tensors."""
    op = OPERATORS[label]
    return getattr(torch, dtype) in op.supported_dtypes("cpu") and "sparse" not in op.name and not op.name.startswith("jiterator")
