"""A package whose names are found when they are asked for: a module that has one of these names does not take its place when it is imported."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class LazyPackage(ModuleType):
    """A package with the table `_HOMES`, name -> module."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType) and name in self._HOMES:
            return  # by the import of `package.name`
        super().__setattr__(name, value)


def keep_lazy_names(package: str) -> None:
    """`package.name` stays what `_HOMES` says, whatever is imported first."""
    sys.modules[package].__class__ = LazyPackage
