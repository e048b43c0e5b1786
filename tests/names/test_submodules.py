"""A package's name that is also the name of one of its modules stays what it was when that module is imported later."""

from __future__ import annotations

from tests import processes

# In a process of its own: a module that has been imported already replaces nothing any more.
PROGRAM = """
import importlib, pathlib, flambeau
root = pathlib.Path(flambeau.__file__).parent
for init in sorted(root.rglob("__init__.py")):
    name = ".".join(("flambeau", *[part for part in init.parent.relative_to(root).parts if part != "torch_names"]))  # whose files are flambeau's own
    try:
        package = importlib.import_module(name)
    except ImportError:
        continue  # an extra is not installed
    for module in sorted({p.name.removesuffix(".py") for p in init.parent.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()} & {*vars(package)}):
        before = vars(package)[module]
        if not module.startswith("__"):
            try:
                importlib.import_module(f"{name}.{module}")
            except ImportError:
                continue
            if vars(package)[module] is not before:
                print(f"{name}.{module}")
"""


def test_importing_a_module_replaces_no_name_of_its_package() -> None:
    done = processes.python("-c", PROGRAM, check=True)
    assert done.stdout == "", done.stdout


# A lazy name that has not been asked for when the module of the same name is imported.
FIRST = """
import importlib, pathlib, types, flambeau
root = pathlib.Path(flambeau.__file__).parent
for init in sorted(root.rglob("__init__.py")):
    name = ".".join(("flambeau", *[part for part in init.parent.relative_to(root).parts if part != "torch_names"]))
    try:
        package = importlib.import_module(name)
    except ImportError:
        continue
    if not hasattr(package, "__getattr__"):
        continue
    for module in sorted({p.name.removesuffix(".py") for p in init.parent.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()} - {"__init__"}):
        try:
            importlib.import_module(f"{name}.{module}")
            found = getattr(package, module)
        except (ImportError, AttributeError, SystemExit):
            continue
        if isinstance(found, types.ModuleType) and module in vars(package):
            del vars(package)[module]
            try:
                asked = getattr(package, module)
            except AttributeError:
                asked = found
            vars(package)[module] = found
            if not isinstance(asked, types.ModuleType):
                print(f"{name}.{module}")
"""


def test_a_module_that_is_imported_first_does_not_take_a_lazy_names_place() -> None:
    done = processes.python("-c", FIRST, check=True)
    assert done.stdout == "", done.stdout
