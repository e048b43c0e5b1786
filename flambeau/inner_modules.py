"""PyTorch's modules that are no files of flambeau's, because what is in them is elsewhere: `torch.optim.adamw`, `torch.export.dynamic_shapes`.

`data/torch_modules.txt` lists the modules that PyTorch has in memory when it has been imported, one a line. A name alone is a module of ours, too. One
with a home (or some) behind it, and names there, is made of these names when it is imported. A module is an attribute of its package without an import,
as with PyTorch; those with "!" are not, for PyTorch deletes them there.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
from functools import cache
from importlib.abc import Loader
from pathlib import Path
from types import ModuleType
from typing import Any, Final

_HOME: Final = "flambeau."


@cache
def _table() -> tuple[frozenset[str], dict[str, dict[str, str]]]:
    """The modules that are attributes of their packages, and module -> {name: home}; all without "torch."."""
    attributes, gathered = set(), {}
    for line in (Path(__file__).parent / "data" / "torch_modules.txt").read_text().splitlines():
        module, *homes = line.split("  ")
        own = module.rstrip("!").partition(".")[2]
        if own == module.partition(".")[2]:
            attributes.add(own)
        found = {}
        for text in homes:
            home, _, members = text.partition(": ")
            found.update(dict.fromkeys(members.split(), home.partition(".")[2]))
        if found:
            gathered[own] = found
    return frozenset(attributes), gathered


class _Gathered(Loader):
    """Fills a module with names that are elsewhere."""

    def create_module(self, spec: Any) -> None:
        """The usual one."""

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        assert spec is not None
        own = spec.name[len(_HOME) :]
        for name, home in _table()[1][own].items():
            setattr(module, name, getattr(importlib.import_module(_HOME + home if home else _HOME[:-1]), name))
        module.__doc__ = f"torch.{own}: names that PyTorch has there."
        names = importlib.import_module("flambeau.names")  # which asks this module, in turn
        module.__getattr__ = names.answering(f"torch.{own}", vars(module))  # type: ignore[method-assign]


def find_spec(name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
    """The spec of a module that is made of names elsewhere; None for any other."""
    if not name.startswith(_HOME) or name[len(_HOME) :] not in _table()[1]:
        return None
    inside = name[len(_HOME) :] + "."
    return importlib.machinery.ModuleSpec(name, _Gathered(), origin=f"names of {_HOME[:-1]}", is_package=any(m.startswith(inside) for m in _table()[1]))


def submodule(space: str, name: str) -> ModuleType | None:
    """The module `space.name` ("torch.fx", "passes"), imported now, if it is one that PyTorch has as an attribute."""
    own = f"{space}.{name}".partition(".")[2]
    return importlib.import_module(_HOME + own) if own in _table()[0] else None


def submodules(space: str) -> list[str]:
    """The names of the modules that `submodule` knows in a namespace."""
    inside = f"{space}.".partition(".")[2]
    return [own[len(inside) :] for own in _table()[0] if own.startswith(inside) and "." not in own[len(inside) :]]


class _Finder:
    """Asked last, when no file has the module's name."""

    find_spec = staticmethod(find_spec)

    @staticmethod
    def invalidate_caches() -> None:
        """Nothing is cached."""


def install() -> None:
    """Let imports find these modules."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())  # type: ignore[arg-type]
