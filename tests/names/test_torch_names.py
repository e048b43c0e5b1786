"""Modules that are there for PyTorch's names alone stand in one folder, and are imported as ever."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import pytest

import flambeau

FOLDER = Path(flambeau.__file__).parent / "torch_names"
FILES = [path.relative_to(FOLDER).with_suffix("").parts for path in FOLDER.rglob("*.py")]  # not by walk_packages: it imports the real functorch
MODULES = sorted(".".join(parts[:-1] if parts[-1] == "__init__" else parts) for parts in FILES if not parts[-1].startswith("__main"))


@pytest.mark.parametrize("name", MODULES)
def test_is_imported_as_the_packages_own(name: str) -> None:
    """One object, whose name does not tell its folder."""
    module = importlib.import_module(f"flambeau.{name}")
    assert module.__name__ == f"flambeau.{name}"
    assert Path(str(module.__file__)).is_relative_to(FOLDER)


def test_hides_no_module_of_the_engine() -> None:
    """A name is in one of the two folders."""
    assert not {info.name for info in pkgutil.iter_modules([str(FOLDER)])} & {info.name for info in pkgutil.iter_modules([str(FOLDER.parent)])}
