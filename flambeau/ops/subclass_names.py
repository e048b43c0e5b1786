"""Names that a subclass of Tensor uses for itself and our tensors use inside: each sees its own.

A program cannot know how our tensors keep what they know (`_meta`, `_storage`, `_history`, ...). Where the code of its class uses such a name, the class
gets a descriptor that asks who is asking: our code sees the tensor's, all other code an attribute of the instance. Other classes cost nothing more.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from flambeau.module_names import is_ours
from flambeau.tensor import _INTERNAL, Tensor, users_dict
from flambeau.trace.objects import inner_dict

_CONFLICTS = _INTERNAL - {"_grad"}  # which PyTorch's tensors have, too


class TwoSided:
    """One such name of a class."""

    def __init__(self, name: str, found: Any) -> None:
        """`found`: what our side finds in the class, a descriptor or what a tensor has that does not say otherwise."""
        self.name, self.kept = name, f"user's {name}"
        self.slot: Any = found if hasattr(found, "__get__") else None
        self.default = None if self.slot is not None else found

    def __get__(self, t: Any, owner: Any = None) -> Any:
        if t is None:
            return self
        if is_ours(sys._getframe(1).f_globals.get("__name__", "flambeau")):
            return self.slot.__get__(t, owner) if self.slot is not None else inner_dict(t).get(self.name, self.default)
        try:
            return inner_dict(t)[self.kept]
        except KeyError:
            raise AttributeError(f"'{type(t).__name__}' object has no attribute '{self.name}'") from None

    def __set__(self, t: Any, value: Any) -> None:
        if not is_ours(sys._getframe(1).f_globals.get("__name__", "flambeau")):
            inner_dict(t)[self.kept] = value
        elif self.slot is not None:
            self.slot.__set__(t, value)
        else:
            inner_dict(t)[self.name] = value

    def __delete__(self, t: Any) -> None:
        whole, name = inner_dict(t), self.name
        if not is_ours(sys._getframe(1).f_globals.get("__name__", "flambeau")):
            name = self.kept
        elif self.slot is not None:
            self.slot.__delete__(t)
            return
        if name not in whole:
            raise AttributeError(f"'{type(t).__name__}' object has no attribute '{self.name}'")
        del whole[name]


def _codes(cls: type) -> Iterator[CodeType]:
    for value in vars(cls).values():
        parts = (value.fget, value.fset, value.fdel) if isinstance(value, property) else (getattr(value, "__func__", value),)
        yield from (f.__code__ for f in parts if isinstance(f, FunctionType))


def _names(code: CodeType) -> set[str]:
    return set(code.co_names).union(*(_names(c) for c in code.co_consts if isinstance(c, CodeType)))


class _Dictionary:
    """Before bases that are no tensors, whose `__dict__` would be all that an instance has."""

    __slots__ = ()
    __dict__ = users_dict  # type: ignore[assignment]


def part(cls: type) -> None:
    """Give a new subclass its own side of the names that its code, or that of its other bases, uses."""
    found = next((vars(c)["__dict__"] for c in cls.__mro__ if "__dict__" in vars(c)), None)
    if found is not users_dict and not issubclass(cls.__bases__[0], Tensor):
        cls.__bases__ = (_Dictionary, *cls.__bases__)
    for name in used(cls, _CONFLICTS):
        if not isinstance(getattr(cls, name, None), TwoSided):
            setattr(cls, name, TwoSided(name, Tensor.__dict__.get(name)))


def used(cls: type, names: frozenset[str]) -> set[str]:
    """Those of the names that the program's code of a class and its bases uses."""
    bases = [base for base in cls.__mro__ if base is not object and not is_ours(base.__module__)]
    return {name for base in bases for code in _codes(base) for name in names & _names(code)}


def part_of_level(cls: type, level: type) -> None:
    """The same for a class that is a transform's, too: what tensors of that keep is not the program's either."""
    kept = [name for base in level.__mro__[: level.__mro__.index(Tensor)] for name in inspect.get_annotations(base)]
    for name in used(cls, _CONFLICTS.union(kept)):
        setattr(cls, name, TwoSided(name, vars(cls).get(name, getattr(level, name, None))))
