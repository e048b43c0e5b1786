"""Calls that go upwards.

Folders import downwards only. Where a lower one needs something of an upper one, as a trace that ends asks autograd what to keep, it declares the
function that it calls, and marks it with `upward`. flambeau/wiring.py, which is above them all, says where each declaration has its function. The first
call finds it; from then on the declaration's name in its module is that function, and a call costs what any call costs.

Rule: a declaration is called in its own module, or as an attribute of it. A copy of the name (`from module import name`) would look for the function at
each call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
# By module and name of a declaration: the module that has the function, "module:name" where it has another name there (wiring.py).
HOMES: dict[str, dict[str, str]] = {}
DECLARED: dict[tuple[str, str], Callable[..., Any]] = {}  # by module and name


def upward(declared: Callable[P, T]) -> Callable[P, T]:
    """Mark a declaration: a function with a docstring whose body raises NotImplementedError."""
    scope, name = declared.__globals__, declared.__name__
    module = scope["__spec__"].name  # that of a module which runs as a program, too
    DECLARED[module, name] = declared

    @functools.wraps(declared)
    def first(*args: P.args, **kwargs: P.kwargs) -> T:
        function = scope[name] = given(module, name)
        return function(*args, **kwargs)  # type: ignore[no-any-return]

    return first


def given(module: str, name: str) -> Callable[..., Any]:
    """The function of a declaration."""
    home, _, other = HOMES[module][name].partition(":")
    return getattr(import_module(home), other or name)  # type: ignore[no-any-return]
