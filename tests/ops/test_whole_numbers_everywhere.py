"""NumPy's numbers, and whole numbers in tensors without dims, in the place of every number of the samples of PyTorch's database: taken where it takes them."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest")

import flambeau
from flambeau.testing.compare import Input
from tests.differential.known import INTERNAL
from tests.differential.samples import OPERATORS, Draw, cases, supported, torch
from tests.differential.sweep import TookTooLong, on_alarm
from tests.errors.calls import _built

# Not mended: a tensor without dims where PyTorch's own Python takes it by chance.
KNOWN = {("multinomial", "tensor")}
FORMS: dict[str, Callable[[Any], Any]] = {
    "int64": lambda x: np.int64(x) if isinstance(x, int) else np.float64(x), "int32": lambda x: np.int32(x) if isinstance(x, int) else np.float32(x),
    "tensor": lambda x: Input(np.asarray(x), "int64") if isinstance(x, int) else x,
}  # fmt: skip


def changed(x: Any, form: str) -> Any:
    """An argument with its numbers, also those of a sequence, in another form."""
    if isinstance(x, (int, float)) and not isinstance(x, bool):
        return FORMS[form](x)
    if isinstance(x, (list, tuple)) and not hasattr(x, "_fields") and not any(isinstance(y, Input) for y in x):
        return type(x)([changed(y, form) for y in x])
    return x


def failure(module: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The error of a call as text; empty if there is none."""
    signal.alarm(30)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module.manual_seed(0)
            function(*_built(args, module), **_built(kwargs, module))
    except (Exception, TookTooLong) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    return ""


def refused(label: str, most: int) -> Iterator[str]:
    """A line on each call of an operator that PyTorch takes, and flambeau does not."""
    dtype = next((d for d in ("float32", "int64", "bool", "complex64") if supported(label, d)), None)
    if dtype is None:
        return
    try:
        found = list(cases(label, dtype, False, 14, Draw(5)))
    except (AttributeError, NotImplementedError, ValueError):
        return  # one that flambeau has not
    for case in found[:: max(len(found) // most, 1)]:
        for form in FORMS:
            args = tuple([changed(a, form) for a in case.args])
            kwargs = {k: changed(v, form) for k, v in case.kwargs.items()}
            if (label, form) not in KNOWN and not failure(torch, case.function[1], args, kwargs):
                error = failure(flambeau, case.function[0], args, kwargs)
                if error:
                    yield f"{form} {case.text[:120]}\n    {error[:200]}"


@pytest.fixture(autouse=True)
def alarms() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, on_alarm)
    yield
    signal.signal(signal.SIGALRM, before)


def test_a_users_function_is_called_once() -> None:
    """The second try is for what flambeau's own code could not do with an argument: what a program does in between is not done twice."""
    calls = []

    def function(*args: Any) -> Any:
        calls.append(args)
        raise TypeError("the program's own")

    from flambeau.utils.checkpoint import checkpoint

    for given in (np.int64(3), flambeau.tensor(3)):
        calls.clear()
        with pytest.raises(TypeError, match="own"):
            checkpoint(function, given, use_reentrant=False)
        assert len(calls) == 1


MENDED = "bincount cov dsplit hsplit vsplit empty_strided new_empty_strided fft.fftshift fft.ifftshift linalg.vector_norm histogramdd split"


@pytest.mark.parametrize("label", MENDED.split())
def test_of_functions_that_are_no_operations(label: str) -> None:
    assert not list(refused(label, 6))


@pytest.mark.parametrize("share", [pytest.param(k, marks=[pytest.mark.slow] if k else []) for k in range(16)])
def test_of_all_operators(share: int) -> None:
    found = [line for label in sorted(set(OPERATORS) - set(INTERNAL))[share::16] for line in refused(label, 3)]
    assert not found, "\n".join(found)
