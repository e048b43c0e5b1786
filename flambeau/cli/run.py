"""`flambeau run script.py`: an unmodified PyTorch script, with `torch` and its submodules as aliases of flambeau's."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any


class _Loader(importlib.abc.Loader):
    """Gives the flambeau module under its torch name."""

    def __init__(self, target: str) -> None:
        self.target = target

    def create_module(self, spec: Any) -> ModuleType:
        return importlib.import_module(self.target)

    def exec_module(self, module: ModuleType) -> None:
        return None


class TorchFinder(importlib.abc.MetaPathFinder):
    """Finds `torch` and `torch.x.y` as `flambeau` and `flambeau.x.y`."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if fullname != "torch" and not fullname.startswith("torch."):
            return None
        ours = "flambeau" + fullname[5:]
        try:
            importlib.import_module(ours)
        except ModuleNotFoundError as error:
            if error.name is None or not error.name.startswith("flambeau"):
                raise
            parent, _, name = fullname.rpartition(".")
            raise ModuleNotFoundError(
                f"PyTorch's module {fullname} does not exist in flambeau yet (imported as a part of {parent})", name=fullname
            ) from None
        spec = importlib.machinery.ModuleSpec(fullname, _Loader(ours))
        sys.modules[fullname] = sys.modules[ours]
        return spec


def install() -> None:
    """Make `import torch` give flambeau in this process."""
    import flambeau

    if not any(isinstance(finder, TorchFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, TorchFinder())
    for name in [n for n in sys.modules if n == "torch" or n.startswith("torch.")]:
        del sys.modules[name]
    sys.modules["torch"] = flambeau


def run(arguments: Sequence[str], module: str | None = None) -> int:
    """Run a script (the first of the arguments) or a module as __main__, with its own arguments."""
    if module is None:
        path = Path(arguments[0])
        if not path.exists():
            print(f"flambeau run: no such file: {path}", file=sys.stderr)
            return 2
    install()
    if module is not None:
        sys.argv = [module, *arguments]
        sys.path.insert(0, "")
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return 0
    sys.argv = list(arguments)
    sys.path.insert(0, str(path.resolve().parent))
    runpy.run_path(str(path), run_name="__main__")
    return 0
