"""flambeau as `torch`: the one mechanism behind `flambeau run` and an installed `torch` (cli/torch_package.py).

`install` makes `import torch` give flambeau: each module of ours is in `sys.modules` under both names, and modules, classes and functions say that
they are torch's (`torch.nn.modules.linear.Linear`), so that texts, pickles and programs which look at names see PyTorch's. Modules that are
imported later are named when they have been executed. `remove` takes everything back.
"""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import os
import sys
from collections.abc import Iterable
from importlib.abc import Loader
from importlib.util import find_spec
from types import FunctionType, ModuleType
from typing import Any, Final

from flambeau import inner_modules
from flambeau.module_names import HOME, INSTALLED, home, under_flambeau, under_torch

PYTORCH: Final = "2.13.0"  # whose API this is
_NAMES: Final = ("torch", "functorch")  # what PyTorch's distribution has
# What PyTorch's distribution requires. Packages import it without asking for it (captum typing_extensions), since it is there wherever torch is; flambeau
# itself imports none of it.
REQUIRES: Final = ("filelock", "typing-extensions>=4.10.0", "setuptools>=77.0.3", "sympy>=1.13.3", "networkx>=2.5.1", "jinja2", "fsspec>=0.8.5")
# What is no part of torch, and what a process unpickles before it has the alias.
_OWN: Final = ("flambeau.as_torch", "flambeau.cli", "flambeau.distributed.ray")
_changed: list[tuple[Any, str, Any]] = []  # (object, attribute, what it was before)


def version() -> str:
    """What torch.__version__ is: PyTorch's version, whose API this is, and our own behind a plus."""
    return f"{PYTORCH}+{HOME}{sys.modules[HOME].__version__.rpartition(HOME)[2]}"


# -- the distribution "torch" -----------------------------------------------------------------------------------------
def metadata(requires: Iterable[str] = ()) -> dict[str, str]:
    """The texts of the distribution's `dist-info`, but for RECORD. `requires`: beside what PyTorch requires."""
    lines = [
        "Metadata-Version: 2.1", "Name: torch", f"Version: {version()}", "Summary: flambeau under PyTorch's name: `import torch` gives flambeau",
        "Requires-Python: >=3.11", *[f"Requires-Dist: {text}" for text in (*requires, *REQUIRES)],
    ]  # fmt: skip
    return {"METADATA": "\n".join(lines) + "\n", "top_level.txt": "functorch\ntorch\n"}


class _Distribution(importlib.metadata.Distribution):
    """The distribution where no file says it: under `flambeau run`."""

    def read_text(self, filename: str) -> str | None:
        return metadata().get(filename)

    def locate_file(self, path: Any) -> Any:
        raise FileNotFoundError(f"torch is flambeau in this process only; it has no file {os.fspath(path)!r}")


# -- imports ----------------------------------------------------------------------------------------------------------
class _Alias(Loader):
    """Gives the module of ours under its torch name. What reads source or code (`python -m torch.x`) reads ours."""

    def __init__(self, name: str, spec: importlib.machinery.ModuleSpec) -> None:
        self.name, self.target = name, spec
        self.own: importlib.machinery.ModuleSpec | None = None

    def create_module(self, spec: Any) -> ModuleType:
        # Here, not where the spec is looked for: the import system would find the module entered, and execute its file a second time.
        module = importlib.import_module(self.name)
        self.own = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.own or module.__spec__  # the import system has put the alias's in its place

    def get_code(self, name: str) -> Any:
        return self.target.loader.get_code(self.name)  # type: ignore[union-attr]

    def get_source(self, name: str) -> Any:
        return self.target.loader.get_source(self.name)  # type: ignore[union-attr]

    def is_package(self, name: str) -> bool:
        return self.target.submodule_search_locations is not None


def _alias(name: str, spec: importlib.machinery.ModuleSpec, wanted: str | None = None) -> importlib.machinery.ModuleSpec:
    """The spec under torch (or the wanted name) of the module of ours that has this name and spec."""
    made = importlib.machinery.ModuleSpec(wanted or under_torch(name), _Alias(name, spec), origin=spec.origin)
    made.submodule_search_locations, made.has_location, made.cached = spec.submodule_search_locations, spec.has_location, spec.cached
    return made


class _Triton(Loader):
    """Gives the tile language under a module name of Triton's."""

    def create_module(self, spec: Any) -> ModuleType:
        importlib.import_module("flambeau.tile")
        from flambeau.tile.as_triton import modules

        return modules()[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """It is filled already."""


def _triton(name: str) -> importlib.machinery.ModuleSpec | None:
    """The spec of one of Triton's modules, if there is one here."""
    importlib.import_module("flambeau.tile")
    from flambeau.tile.as_triton import modules

    return importlib.machinery.ModuleSpec(name, _Triton(), is_package=True) if name in modules() else None


class TorchFinder:
    """Finds `torch.x.y` as `flambeau.x.y`, and names each module of ours once it has been executed. `triton` is the tile language."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name == "triton" or name.startswith("triton."):
            return _triton(name)
        if name.partition(".")[0] in _NAMES:
            own = under_flambeau(name)
            ours = find_spec(own)
            if ours is None:
                return None
            return _alias(own, ours, name)
        if not name.startswith("flambeau."):
            return None
        found = importlib.machinery.PathFinder.find_spec(name, path) or inner_modules.find_spec(name)
        if found is not None and found.loader is not None:
            loader: Any = found.loader
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                _enter(module)

            loader.exec_module = exec_module
        return found

    @staticmethod
    def find_distributions(context: Any = None) -> Iterable[importlib.metadata.Distribution]:
        """The distribution "torch", before whatever the path has."""
        if context is None or context.name is None or context.name.lower() == "torch":
            yield _Distribution()

    def invalidate_caches(self) -> None:
        """Nothing is cached."""


def _set(holder: Any, attribute: str, value: Any) -> None:
    _changed.append((holder, attribute, getattr(holder, attribute)))
    setattr(holder, attribute, value)


def _name(members: Iterable[Any]) -> None:
    """Classes and functions of ours say where PyTorch has them."""
    for member in members:
        if not isinstance(member, (type, FunctionType)):
            continue
        module = member.__module__
        if type(module) is str and module.startswith("flambeau") and not module.startswith(_OWN):
            _set(member, "__module__", home(module))
            if isinstance(member, type):
                _name(list(vars(member).values()))


def _enter(module: ModuleType) -> None:
    """Give an executed module its torch name."""
    if not INSTALLED or not module.__name__.startswith("flambeau") or module.__name__.startswith(_OWN):
        return
    name = module.__name__
    _set(module, "__name__", under_torch(name))
    if module.__spec__ is not None:
        _set(module, "__spec__", _alias(name, module.__spec__))
    sys.modules[module.__name__] = module
    _name(list(vars(module).values()))


class _InChildren:
    """Pickled into what a spawned process is told first: reading it makes `import torch` give flambeau there too."""

    def __reduce__(self) -> Any:
        return install, ()


def _follow_into_children() -> None:
    """Let processes that are started by "spawn" or "forkserver" import the script under the same aliases."""
    from multiprocessing import spawn

    prepare: Any = spawn.get_preparation_data

    def get_preparation_data(name: str) -> dict[str, Any]:
        return {"flambeau": _InChildren(), **prepare(name)}

    _set(spawn, "get_preparation_data", get_preparation_data)


def install(children: bool = True) -> None:
    """Make `import torch` give flambeau in this process, and in those that it starts (unless the environment sees to `children`).

    PyTorch's own modules are forgotten, if they have been imported.
    """
    import flambeau
    from flambeau.torch_version import TorchVersion
    from flambeau.tracebacks import AT_END

    if INSTALLED:
        if sys.modules.get("torch") is not flambeau:
            sys.modules["torch"] = flambeau
        return
    for name in [n for n in sys.modules if n.partition(".")[0] in _NAMES]:
        del sys.modules[name]
    finder = TorchFinder()
    INSTALLED.append(finder)
    sys.meta_path.insert(0, finder)  # type: ignore[arg-type]
    if children:
        _follow_into_children()
    text = TorchVersion(version())  # programs ask which PyTorch they run on
    for holder in (flambeau, importlib.import_module("flambeau.version")):
        _set(holder, "__version__", text)
    for value in vars(flambeau).values():  # Tensor, device, dtype, ... are torch's own
        if isinstance(value, type) and value.__module__.startswith("flambeau") and vars(flambeau).get(value.__name__) is value:
            _set(value, "__module__", "torch")
    flambeau.torch = flambeau  # type: ignore[attr-defined]
    for module in [m for n, m in list(sys.modules.items()) if n.partition(".")[0] == HOME]:
        _enter(module)
    AT_END.append(explain_missing)


def remove() -> None:
    """Take back what `install` did: `import torch` is again what it was."""
    import flambeau
    from flambeau.tracebacks import AT_END

    if not INSTALLED:
        return
    sys.meta_path.remove(INSTALLED.pop())  # type: ignore[arg-type]
    while _changed:
        holder, attribute, value = _changed.pop()
        setattr(holder, attribute, value)
    for name in [n for n in sys.modules if n.partition(".")[0] in (*_NAMES, "triton")]:
        del sys.modules[name]
    AT_END.remove(explain_missing)
    del flambeau.torch  # type: ignore[attr-defined]


def explain_missing(error: BaseException) -> None:
    """Say of a ModuleNotFoundError that nobody has caught that it is flambeau which lacks the module."""
    if INSTALLED and isinstance(error, ModuleNotFoundError) and str(error.name).startswith("torch."):
        parent = str(error.name).rpartition(".")[0]
        error.msg = f"PyTorch's module {error.name} does not exist in flambeau yet (imported as a part of {parent})"
