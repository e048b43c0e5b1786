"""Modules that are there for PyTorch's names alone stand in one folder, and are imported as ever."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import pytest

import flambeau

FOLDER = Path(flambeau.__file__).parent / "torch_names"
MODULES = sorted(info.name for info in pkgutil.walk_packages([str(FOLDER)]) if not info.name.rpartition(".")[2].startswith("__main"))


@pytest.mark.parametrize("name", MODULES)
def test_is_imported_as_the_packages_own(name: str) -> None:
    """One object, whose name does not tell its folder."""
    module = importlib.import_module(f"flambeau.{name}")
    assert module.__name__ == f"flambeau.{name}"
    assert Path(str(module.__file__)).is_relative_to(FOLDER)


def test_hides_no_module_of_the_engine() -> None:
    """A name is in one of the two folders."""
    assert not {info.name for info in pkgutil.iter_modules([str(FOLDER)])} & {info.name for info in pkgutil.iter_modules([str(FOLDER.parent)])}
