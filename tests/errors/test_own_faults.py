"""Errors of flambeau's own code are not told as wrong calls: observations, backward passes and optimizers' steps with a defect put into each layer."""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import flambeau
from flambeau.autograd import engine
from flambeau.compiler import pipeline
from flambeau.optim import sgd
from flambeau.trace import classes, evaluate, reading

FAULTS: dict[str, type[Exception]] = {
    "no_such_name": NameError, "len(local); local = 1": UnboundLocalError, "None.nothing": AttributeError, "1 + 'a'": TypeError, "{}['key']": KeyError,
    "[][3]": IndexError, "int('x')": ValueError, "assert not given": AssertionError,
}  # fmt: skip
OF_THE_CALL = frozenset(("{}['key']", "[][3]", "int('x')"))  # where arguments are looked at, these may be those of a dtype or a shape


def faulty(module: ModuleType, fault: str) -> Callable[..., Any]:
    """A function of a module with a fault in it, which Python finds."""
    space = dict(vars(module))
    exec(compile(f"def broken(*given, **named):\n    {fault}", str(module.__file__), "exec"), space)
    made: Callable[..., Any] = space["broken"]
    return made


SIZE = itertools.count(3)


def made() -> Any:
    """A pending tensor of a size that nothing was compiled for."""
    return flambeau.ones(next(SIZE), 5).exp() * 2


def learned(step: bool) -> Any:
    x = flambeau.ones(next(SIZE), 5, requires_grad=True)
    (x.sin() * x).sum().backward()
    return flambeau.optim.SGD([x], lr=0.1).step() if step else None


# What is broken, and the call that meets it; whether the fault is where calls' own arguments are looked at.
PLACES: dict[str, tuple[ModuleType, str, Callable[[], Any], bool]] = {
    "tolist, plan": (evaluate, "make_plan", lambda: made().tolist(), False),
    "numpy, plan": (evaluate, "make_plan", lambda: made().numpy(), False),
    "item, plan": (evaluate, "make_plan", lambda: made().sum().item(), False),
    "repr, plan": (evaluate, "make_plan", lambda: repr(made()), False),
    "bool, compiler": (pipeline, "lower_group", lambda: bool(made().sum() > 0), False),
    "numpy, compiler": (pipeline, "lower_group", lambda: made().numpy(), False),
    "numpy, the function": (reading, "to_numpy", lambda: made().numpy(), False),
    "tolist, the function": (reading, "to_list", lambda: made().tolist(), False),
    "backward, engine": (engine, "differentiate", lambda: learned(False), True),
    "step": (sgd, "assign", lambda: learned(True), True),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("place", PLACES)
def test_own_faults(place: str, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, call, of_calls = PLACES[place]
    if of_calls and fault in OF_THE_CALL:
        pytest.skip("may be said of the call")
    with monkeypatch.context() as patched:
        patched.setattr(pipeline, "USE_STORED", [False])
        patched.setattr(classes, "ENABLED", [False])  # what other tests have taught would be used without a look at the broken function
        patched.setattr(module, name, faulty(module, fault))
        with pytest.raises(FAULTS[fault]) as caught:
            call()
    assert type(caught.value) is FAULTS[fault]
    assert "invalid combination" not in str(caught.value)
    assert [n for n in getattr(caught.value, "__notes__", []) if "inside of flambeau" in n] != []
    assert "broken" in [frame.name for frame in traceback.extract_tb(caught.tb)]  # our frames are shown
    call()


def test_errors_of_calls_are_told_of_calls() -> None:
    x = flambeau.ones(2, requires_grad=True)
    calls: tuple[Callable[[], Any], ...] = (lambda: flambeau.ones(2).numpy(force="a"), lambda: flambeau.ones(2).sum("a"), lambda: x.sum().backward("a"))
    for call in calls:
        with pytest.raises(TypeError) as caught:
            call()
        assert not getattr(caught.value, "__notes__", [])
