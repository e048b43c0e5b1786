"""Files of PyTorch's own tests of torch.distributed (of its repository) that need no GPU, with PyTorch or with flambeau in its name.

`FOLDER` is where PyTorch is installed: what its tests share comes from there. Each test runs in forked ranks, those for ranks that are threads too. Writes a
line of JSON for each: its file, class and name, and "passed", "skipped", or what went wrong. Names that flambeau does not have stand for an error at their use.

    python tests/distributed/scripts/pytorch_files.py FOLDER OUT FILE [PART OF NAMES ...]                     with PyTorch
    python -m flambeau run tests/distributed/scripts/pytorch_files.py FOLDER OUT FILE [PART OF NAMES ...]     with flambeau
"""

import builtins
import importlib.util
import json
import os
import sys
import tempfile
import time
import traceback
import types
import unittest
from pathlib import Path

FOLDER, OUT, FILE = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
LIMIT = float(os.environ.get("LIMIT", "60"))  # seconds for a test
os.environ.update(BACKEND="gloo", OMP_NUM_THREADS="1", TORCH_DISTRIBUTED_DEBUG="OFF")
SHARED = ("torch.testing._internal", "torch.testing._comparison", "torch.utils._import_utils")  # modules of PyTorch's that are read from its installation

import torch  # noqa: E402
from forked_ranks import outcome  # noqa: E402 - of this folder

OURS = "flambeau" in torch.__file__


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


class SharedFinder:
    """Modules that PyTorch's tests share, from its installation."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if not name.startswith(SHARED):
            return None
        place = FOLDER.joinpath(*name.split(".")[1:])
        for file, folder in ((place.with_suffix(".py"), None), (place / "__init__.py", [str(place)])):
            if file.is_file():
                return importlib.util.spec_from_file_location(name, file, submodule_search_locations=folder)
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
        if level or not (name + ".").startswith("torch."):
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
    sys.meta_path.insert(0, SharedFinder())


def load():
    """The module of the file of tests."""
    for folder in (FILE.parent, *FILE.parents):
        if folder.name == "test":
            sys.path[:0] = [str(folder), str(FILE.parent)]
            break
    spec = importlib.util.spec_from_file_location("tests_of_pytorch", FILE)
    found = importlib.util.module_from_spec(spec)
    sys.modules["tests_of_pytorch"] = found
    spec.loader.exec_module(found)
    return found


def run_rank(common, cls, size, name, file, rank, pipe):
    """One rank of a test."""
    log = open(os.environ.get("RANK_OUTPUT", os.devnull), "a")  # noqa: SIM115
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    if issubclass(cls, common.MultiProcessTestCase):
        cls._run(rank, name, file, pipe)
        return
    import torch.distributed as dist

    try:
        if issubclass(cls, common.MultiThreadedTestCase):
            test = cls(name)
            test.rank = rank
            dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=size)
            test.perThreadSetUp()
            getattr(test, name)()
            test.perThreadTearDown()
            dist.barrier()
            dist.destroy_process_group()
        else:
            result = unittest.TestResult()
            cls(name).run(result)
            bad = result.errors + result.failures
            if bad:
                pipe.send(bad[0][1])
                os._exit(1)
            if result.skipped:
                pipe.send("skipped")
    except unittest.SkipTest:
        pipe.send("skipped")
    except BaseException:
        pipe.send(traceback.format_exc())
        os._exit(1)


def run_test(common, cls, name):
    """A test's outcome."""
    many = issubclass(cls, (common.MultiProcessTestCase, common.MultiThreadedTestCase))
    size = cls(name).world_size if many else 1
    skips = {skip.exit_code for skip in common.TEST_SKIPS.values()}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TEMP_DIR"] = folder
        return outcome(size, run_rank, (common, cls, size, name, os.path.join(folder, "shared")), LIMIT, skips, 2500)


def main():
    """Run the tests of a file whose names have one of the parts; those that have an outcome already are left out."""
    if OURS:
        install_absent_names()
        for name in [name for name in sys.modules if name.startswith(SHARED)]:
            del sys.modules[name]
        import torch._utils
        import torch.testing

        vars(torch.testing).pop("_internal", None)
        import torch.distributed as dist

        dist.Backend.register_backend = lambda *args, **kwargs: None
        dist.Backend.FAKE = "fake"
        torch._utils._is_privateuse1_backend_available = lambda: False
        torch._C._get_cpu_capability = lambda: "DEFAULT"
        torch._C._set_print_stack_traces_on_fatal_signal = lambda on: None
        torch._C._TorchFunctionState = types.SimpleNamespace(ENABLED=0)
        torch._C.ScriptMethod = torch._C.ScriptFunction = type("Script", (), {"__call__": None})
    import torch.testing._internal.common_distributed as common

    if OURS:
        sys.modules["torch.testing._internal.common_utils"].open_source_signpost = lambda **facts: None
    module = load()
    Absent.loading = False
    done = {tuple(json.loads(line)["test"]) for line in OUT.read_text().splitlines()} if OUT.exists() else set()
    for cls in [c for c in vars(module).values() if isinstance(c, type) and issubclass(c, unittest.TestCase) and c.__module__ == module.__name__]:
        for name in sorted(n for n in dir(cls) if n.startswith("test")):
            test = (str(FILE.name), cls.__name__, name)
            if test in done or not (len(sys.argv) < 5 or any(part in f"{cls.__name__}.{name}" for part in sys.argv[4:])):
                continue
            start = time.monotonic()
            skipped = getattr(getattr(cls, name), "__unittest_skip__", False) or getattr(cls, "__unittest_skip__", False)
            try:
                found = "skipped" if skipped else run_test(common, cls, name)
            except Exception:
                found = traceback.format_exc()
            with OUT.open("a") as file:
                file.write(json.dumps({"test": test, "outcome": found, "seconds": round(time.monotonic() - start, 2)}) + "\n")


if __name__ == "__main__":
    main()
