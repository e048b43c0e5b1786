"""Calls that go upwards.

Folders import downwards only. Where a lower one needs something of an upper one, as a trace that ends asks autograd what to keep, it declares the
function that it calls, and marks it with `upward`. flambeau/wiring.py, which is above them all, gives each declaration its function. From then on the
declaration's name in its module is that function, so a call costs what any call costs.

Rule: a declaration is called in its own module, or as an attribute of it. A copy of the name (`from module import name`) would stay the declaration.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
DECLARED: list[Callable[..., Any]] = []  # all declarations, for the test that each is given (tests/engine/test_wiring.py)


def upward(declared: Callable[P, T]) -> Callable[P, T]:
    """Mark a declaration: a function with a docstring whose body raises NotImplementedError."""
    DECLARED.append(declared)
    return declared


def give(declared: Callable[P, T], function: Callable[P, T]) -> None:
    """Let a declaration's name stand for this function."""
    vars(sys.modules[declared.__module__])[declared.__name__] = function


def give_later(declared: Callable[..., Any], home: str) -> None:
    """The same for the function of its name in a module that is loaded when it is first called, so that `import flambeau` stays short."""

    def first(*args: Any, **kwargs: Any) -> Any:
        function = getattr(import_module(home), declared.__name__)
        give(declared, function)
        return function(*args, **kwargs)

    give(declared, first)
