"""What is missing says so by Python's own rules: AttributeError for a name, in every namespace; ModuleNotFoundError for a module."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import warnings
from types import ModuleType
from typing import Any

import pytest

import flambeau
from flambeau.names import torch_names

# Names that programs look for with hasattr, in whatever namespace they are in.
ASKED = ("no_such_name", "_no_such_name", "__no_such_name__", "tensor", "nn", "optim", "fsdp", "rpc", "Foo", "__wrapped__", "__path__x", "compile")


def _modules() -> list[str]:
    found = ["flambeau"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found += [m.name for m in pkgutil.walk_packages(flambeau.__path__, "flambeau.") if not m.name.endswith("__main__")]
    return found


def _wrong(thing: Any, name: str) -> str | None:
    """What asking for a name raises, if it is no AttributeError; that it is a missing module's may hide an import error of ours."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            getattr(thing, name)
    except AttributeError:
        return None
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def test_missing_names_of_all_modules() -> None:
    wrong = []
    for path in _modules():
        module = importlib.import_module(path)
        own = "__getattr__" in vars(module)
        for name in (*ASKED, *sorted(torch_names().get("torch" + path[8:], ()))[::10]) if own else ASKED[:1]:
            found = _wrong(module, name)
            if found is not None:
                wrong.append(f"{path}.{name}: {found}")
        assert not hasattr(module, "no_such_name") or path == "flambeau.ops"  # torch.ops has a namespace of operators for every name
    assert not wrong, "\n".join(wrong)


def test_missing_names_of_all_classes() -> None:
    wrong = []
    for path in _modules():
        for cls in [c for c in vars(importlib.import_module(path)).values() if inspect.isclass(c) and c.__module__.startswith("flambeau")]:
            if hasattr(cls, "no_such_name"):
                continue  # answers for every name
            for name in ASKED:
                found = _wrong(cls, name)
                if found is not None:
                    wrong.append(f"{cls.__module__}.{cls.__qualname__}.{name}: {found}")
    assert not wrong, "\n".join(sorted(set(wrong)))


OBJECTS = {
    "tensor": lambda: flambeau.ones(2), "parameter": lambda: flambeau.nn.Parameter(flambeau.ones(2)), "module": lambda: flambeau.nn.Linear(1, 1),
    "empty module": flambeau.nn.Module, "optimizer": lambda: flambeau.optim.SGD([flambeau.ones(1)], lr=0.1), "dtype": lambda: flambeau.float32,
    "device": lambda: flambeau.device("cpu"), "size": lambda: flambeau.Size((1,)), "storage": lambda: flambeau.ones(2).untyped_storage(),
    "sparse": lambda: flambeau.ones(2, 2).to_sparse(), "generator": flambeau.Generator, "compiled": lambda: flambeau.compile(flambeau.nn.Linear(1, 1)),
    "loader": lambda: flambeau.utils.data.DataLoader([1]), "distribution": lambda: flambeau.distributions.Normal(0.0, 1.0),
    "namespace of operators": lambda: flambeau.ops.aten,
}  # fmt: skip


@pytest.mark.parametrize("kind", OBJECTS)
def test_missing_names_of_objects(kind: str) -> None:
    thing = OBJECTS[kind]()
    assert not hasattr(thing, "no_such_name")
    assert [found for name in ASKED if (found := _wrong(thing, name)) is not None] == []


MODULES = "distributed.no_such_module distributed.fsdp.no_such_module no_such_module nn.no_such_module cuda.no_such_module nn.Linear".split()


@pytest.mark.parametrize("name", MODULES)
def test_missing_modules(name: str) -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"flambeau.{name}")
    space, _, last = name.rpartition(".")
    if last != "Linear":
        with pytest.raises(ImportError):
            exec(f"from flambeau{'.' * bool(space)}{space} import {last}")
        parent: ModuleType = importlib.import_module(f"flambeau{'.' * bool(space)}{space}")
        assert not hasattr(parent, last)


def test_all_modules_of_pytorch() -> None:
    """Each can be imported, or is a ModuleNotFoundError."""
    torch = pytest.importorskip("torch")
    wrong = []
    for finder in pkgutil.iter_modules(torch.__path__):
        for name in (finder.name, *[f"{finder.name}.{inner}" for inner in torch_names().get(f"torch.{finder.name}", ()) if inner.islower()][::10]):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    importlib.import_module(f"flambeau.{name}")
            except ModuleNotFoundError:
                pass
            except Exception as error:
                wrong.append(f"{name}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)
