"""What PyTorch's own tests need to load where flambeau is torch: names that it does not have, and the modules that the tests share.

A name that is not there stands for an error at its use, so that one of them costs the tests that use it and no others.
"""

import builtins
import importlib.util
import sys
import types
from importlib.machinery import SourceFileLoader

SHARED = ("torch.testing._internal", "torch.testing._comparison", "torch.utils._import_utils")  # modules of PyTorch's that are read from its files

# Lines of shared modules that stop at the first thing that is not there, in flambeau or in a later PyTorch.
CHANGES = {
    "torch.testing._internal.common_quantized": (("supported_qengines.remove('none')", "supported_qengines = [e for e in supported_qengines if e != 'none']"),),
    "torch.testing._internal.opinfo.core": (
        ("        else:\n            raise\n", "        else:\n            return __import__('absent_names').Absent(name)\n"),
        ("            assert foreach_method is None\n            assert torch_ref_method is None\n", ""),
    ),
}


# PyTorch itself goes on without it.
OPTIONAL = "torch.utils._cxx_pytree"


class Absent:
    """A name that is not there: a test that uses it fails, by an error that names it. While files are loaded it may decorate, and be looked at."""

    loading = True

    def __init__(self, name):
        self.__name__ = self.__qualname__ = name

    def __call__(self, *args, **kwargs):
        if Absent.loading:
            return args[0] if len(args) == 1 and isinstance(args[0], (type, types.FunctionType)) else Absent(f"{self.__name__}()")
        raise NotImplementedError(f"{self.__name__} is not there")

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.__name__}.{name}")

    def __bool__(self):
        if Absent.loading:
            return False
        raise NotImplementedError(f"{self.__name__} is not there")

    def __mro_entries__(self, bases):
        return (type(self.__name__, (), {"__init__": self.__call__}),)

    def __instancecheck__(self, instance):
        return False

    __subclasscheck__ = __instancecheck__

    def __or__(self, other):
        return other

    __ror__ = __or__

    def __getitem__(self, key):
        return self

    def __iter__(self):
        return iter(())


class ChangedLoader(SourceFileLoader):
    """Reads a module, some lines of it changed."""

    def __init__(self, name, path, changes):
        super().__init__(name, path)
        self.changes = changes

    def get_code(self, fullname):
        path = self.get_filename(fullname)
        text = self.get_data(path).decode()
        for old, new in self.changes:
            if old not in text:
                raise ValueError(f"{path} has not these lines any more: {old!r}")
            text = text.replace(old, new)
        return self.source_to_code(text.encode(), path)


class SharedFinder:
    """Modules that PyTorch's tests share, from its folder; `folder`: that of the package torch."""

    def __init__(self, folder):
        self.folder = folder

    def find_spec(self, name, path=None, target=None):
        if not name.startswith(SHARED):
            return None
        place = self.folder.joinpath(*name.split(".")[1:])
        for file, folder in ((place.with_suffix(".py"), None), (place / "__init__.py", [str(place)])):
            if file.is_file():
                changes = CHANGES.get(name)
                loader = None if changes is None else ChangedLoader(name, str(file), changes)
                return importlib.util.spec_from_file_location(name, file, loader=loader, submodule_search_locations=folder)
        return None


def absent_module(name):
    """A module of absent names."""
    parent, _, last = name.rpartition(".")
    found = types.ModuleType(name)
    found.__path__ = []
    found.__getattr__ = lambda wanted: absent_attribute(name, wanted)
    sys.modules[name] = found
    setattr(sys.modules[parent], last, found)


def absent_attribute(name, wanted):
    if wanted.startswith("__"):
        raise AttributeError(wanted)
    return Absent(f"{name}.{wanted}")


def install_absent_names():
    """Let an import of a module of torch, or of a name in one, give absent names where there is none."""
    own = builtins.__import__

    def imports(name, globals=None, locals=None, fromlist=(), level=0):
        if level or not (name + ".").startswith("torch.") or OPTIONAL in (name, *[f"{name}.{part}" for part in fromlist or ()]):
            return own(name, globals, locals, fromlist, level)
        parts = name.split(".")
        for k in range(1, len(parts) + 1):
            part = ".".join(parts[:k])
            if part not in sys.modules:
                try:
                    own(part, globals, locals, (), 0)
                except ImportError:
                    if part not in sys.modules:
                        absent_module(part)
        found = sys.modules[name]
        for wanted in fromlist or ():
            if wanted != "*" and not hasattr(found, wanted):
                try:
                    own(f"{name}.{wanted}", globals, locals, (), 0)
                except ImportError:
                    setattr(found, wanted, Absent(f"{name}.{wanted}"))
        return found if fromlist else sys.modules[parts[0]]

    builtins.__import__ = imports


def soften(owner, wanted=lambda name: True):
    """While files are loaded, names that a module (or a class, for its instances) does not have are absent ones."""
    before = vars(owner).get("__getattr__")

    def look_up(*args):
        name = args[-1]
        try:
            if before is None:
                raise AttributeError(name)
            return before(*args)
        except AttributeError:
            if Absent.loading and not name.startswith("__") and wanted(name):
                return Absent(f"{owner.__name__}.{name}")
            raise

    owner.__getattr__ = look_up


def share(folder, ours):
    """Read what the tests share from PyTorch's folder, and let them load where flambeau is torch (`ours`)."""
    import torch

    install_absent_names()  # a later PyTorch has dropped some, too
    sys.meta_path.insert(0, SharedFinder(folder))
    for name in [name for name in sys.modules if name.startswith(SHARED)]:
        del sys.modules[name]
    import torch._utils
    import torch.testing

    vars(torch.testing).pop("_internal", None)
    if not ours:
        return
    torch._utils._is_privateuse1_backend_available = lambda: False
    torch._C._get_cpu_capability = lambda: "DEFAULT"
    torch._C._set_print_stack_traces_on_fatal_signal = lambda on: None
    torch._C._TorchFunctionState = types.SimpleNamespace(ENABLED=0)
    torch._C.ScriptMethod = torch._C.ScriptFunction = type("Script", (), {"__call__": None})


def load(file):
    """The module of a file of tests."""
    for folder in (file.parent, *file.parents):
        if folder.name == "test":
            sys.path[:0] = [str(folder), str(file.parent)]
            break
    spec = importlib.util.spec_from_file_location("tests_of_pytorch", file)
    found = importlib.util.module_from_spec(spec)
    sys.modules["tests_of_pytorch"] = found
    spec.loader.exec_module(found)
    return found
