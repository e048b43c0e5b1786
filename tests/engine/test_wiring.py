"""Calls upwards (upward.py): each declaration has its function, which takes what the declaration takes; nothing holds a declaration for the function."""

from __future__ import annotations

import importlib
import inspect
import sys

import pytest

import flambeau
from flambeau import upward, wiring

CALLS = [(module, name) for module, names in upward.HOMES.items() for name in names]


@pytest.mark.parametrize(("module", "name"), CALLS, ids=[f"{m}.{n}" for m, n in CALLS])
def test_each_declaration_has_its_function(module: str, name: str) -> None:
    importlib.import_module(module)
    declared = inspect.signature(upward.DECLARED[module, name]).parameters.values()
    function = inspect.signature(upward.given(module, name)).parameters.values()
    positional = [p.name for p in declared if p.kind is p.POSITIONAL_OR_KEYWORD]
    taken = [p.name for p in function if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    any_number = any(p.kind is p.VAR_POSITIONAL for p in function)  # as a function that native code has taken over
    assert taken[: len(positional)] == positional[: len(taken) if any_number else None]
    more = [p for p in function if p.name not in [d.name for d in declared]]
    assert all(p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in more)


def test_nothing_is_declared_that_has_no_function() -> None:
    for name in list(sys.modules):
        if name.startswith("flambeau.trace."):
            importlib.import_module(name)
    assert set(upward.DECLARED) <= set(CALLS)
    assert wiring.HOMES is upward.HOMES


def test_a_name_becomes_its_function_at_the_first_call() -> None:
    from flambeau import tensor_asks
    from flambeau.ops import shape

    flambeau.ones(2).detach()
    assert vars(tensor_asks)["detach"] is shape.detach


def test_no_module_has_a_copy_of_a_declaration() -> None:
    found = [(key, vars(sys.modules[key[0]]).get(key[1])) for key in CALLS if key[0] in sys.modules]
    first = {id(f): key for key, f in found if getattr(f, "__code__", None) is not None and f.__code__.co_filename == upward.__file__}
    for name, module in list(sys.modules.items()):
        if name.startswith("flambeau.") and module is not None:
            held = [first[id(v)] for n, v in vars(module).items() if id(v) in first and first[id(v)] != (name, n)]
            assert not held or name == "flambeau.trace.evaluate", (name, held)  # which keeps `start` as `start_native` until it has been called
