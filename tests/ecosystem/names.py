"""Which dotted names exist: `python names.py MODULE` reads names under `torch` from standard input and prints those that MODULE lacks.

It imports nothing but MODULE ("torch" or "flambeau"), so that any interpreter can run it as a file.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Iterable
from types import ModuleType
from typing import Any


def exists(name: str, module: str) -> bool:
    """Whether `module` (in place of "torch") has what a dotted name says, as far as it goes through modules and classes."""
    parts = name.split(".")
    found: Any = importlib.import_module(module)
    path = module
    for part in parts[1:]:
        if not isinstance(found, (ModuleType, type)):
            return True  # an attribute of an object: not ours to follow
        path = f"{path}.{part}"
        try:
            found = getattr(found, part)
        except Exception:
            if not isinstance(found, ModuleType):
                return False
            try:
                found = importlib.import_module(path)
            except Exception:
                return False
    return True


def lacking(names: Iterable[str], module: str) -> list[str]:
    """Those of the names that `module` has not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [name for name in names if not exists(name, module)]


if __name__ == "__main__":
    print("\n".join(lacking(sys.stdin.read().split(), sys.argv[1])))
