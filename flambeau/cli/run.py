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

PYTORCH = "2.13.0"  # whose API this is


class _Loader(importlib.abc.Loader):
    """Gives the flambeau module under its torch name."""

    def __init__(self, target: str) -> None:
        self.target = target

    def create_module(self, spec: Any) -> ModuleType:
        module = importlib.import_module(self.target)
        self.spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec  # the import system has put the alias's in its place


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
        # Not entered into sys.modules here: the import system would then take the module's own spec, and execute its file again.
        return importlib.machinery.ModuleSpec(fullname, _Loader(ours))


class _InChildren:
    """Pickled into what a spawned process is told first: reading it makes `import torch` give flambeau there too."""

    def __reduce__(self) -> Any:
        return install, ()


def _follow_into_children() -> None:
    """Let processes that are started by "spawn" or "forkserver" import the script under the same aliases."""
    from multiprocessing import spawn

    prepare: Any = spawn.get_preparation_data
    if getattr(prepare, "_flambeau", False):
        return

    def get_preparation_data(name: str) -> dict[str, Any]:
        return {"flambeau": _InChildren(), **prepare(name)}

    get_preparation_data._flambeau = True  # type: ignore[attr-defined]
    spawn.get_preparation_data = get_preparation_data


def install() -> None:
    """Make `import torch` give flambeau in this process, and in those that it starts."""
    import flambeau

    _follow_into_children()

    if not any(isinstance(finder, TorchFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, TorchFinder())
    for name in [n for n in sys.modules if n == "torch" or n.startswith("torch.")]:
        del sys.modules[name]
    sys.modules["torch"] = flambeau
    from flambeau import version
    from flambeau.torch_version import TorchVersion

    if "+" not in flambeau.__version__:  # programs ask which PyTorch they run on
        flambeau.__version__ = version.__version__ = TorchVersion(f"{PYTORCH}+flambeau{flambeau.__version__}")


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
