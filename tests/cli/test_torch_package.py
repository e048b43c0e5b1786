"""`flambeau torch install`: in an environment of its own, Python, pip, pytest, spawned workers and pickles find flambeau as torch."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import sysconfig
import textwrap
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from flambeau import as_torch
from flambeau.cli import torch_package
from tests import processes

ROOT = Path(__file__).resolve().parents[2]
LENT = ("numpy", "numpy.libs", "llvmlite", "pytest", "_pytest", "py.py", "pluggy", "iniconfig", "packaging", "pygments", "pip")
VERSION = as_torch.version()


class Environment:
    """A virtual environment with links to the few packages that are lent to it, and to flambeau's tree."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, symlinks=True)
        self.folder = folder
        self.python = folder / "bin" / "python"
        self.site = next((folder / "lib").glob("python*")) / "site-packages"
        ours = Path(sysconfig.get_path("purelib"))
        for name in LENT:
            if (ours / name).exists():
                (self.site / name).symlink_to(ours / name)
        (self.site / "flambeau").symlink_to(ROOT / "flambeau")  # the package alone: beside it may lie what pip wrote, or not

    def run(self, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PIP", "COVERAGE"))}
        return processes.run([str(self.python), *arguments], cwd=cwd or self.folder, env=environment, capture_output=True, text=True, timeout=120)

    def flambeau(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run("-m", "flambeau", "torch", *arguments)

    def code(self, text: str, cwd: Path | None = None) -> str:
        done = self.run("-c", textwrap.dedent(text), cwd=cwd)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    if sys.platform == "win32":
        pytest.skip("links to packages need rights on Windows")
    yield Environment(tmp_path_factory.mktemp("environment"))


@pytest.fixture(scope="module")
def installed(place: Environment) -> Environment:
    done = place.flambeau("install")
    assert done.returncode == 0 and VERSION in done.stdout, done.stderr
    return place


def test_python_finds_torch(installed: Environment) -> None:
    found = json.loads(
        installed.code("""
        import importlib.util, importlib.metadata, json
        before = importlib.util.find_spec("torch").name, importlib.metadata.version("torch"), importlib.metadata.packages_distributions()["torch"]
        import torch, torch.nn as nn, torch.nn.functional as F
        from torch.utils.data import DataLoader
        import flambeau
        same = torch is flambeau and nn is flambeau.nn and torch.torch is torch and flambeau.utils.data.DataLoader is DataLoader
        import torch.jit, flambeau.jit  # loaded later than the alias was made
        try:
            import torch.no_such_part
            missing = False
        except ModuleNotFoundError as error:
            missing = error.name
        print(json.dumps({
            "before": before, "same": same and torch.jit is flambeau.jit, "missing": missing,
            "names": [torch.__name__, nn.__name__, torch.jit.__name__, torch.__spec__.name, str(torch.__version__), importlib.metadata.version("torch")],
            "classes": [repr(c) for c in (torch.Tensor, torch.device, torch.dtype, torch.Size, nn.Linear, nn.Parameter, torch.optim.Adam, torch.FloatTensor)],
            "functions": [F.relu.__module__, torch.save.__module__], "specs": [importlib.util.find_spec("torch.nn.functional").name,
            importlib.util.find_spec("torch.no_such_part")], "absent": hasattr(torch, "no_such_name"),
        }))""")
    )
    assert found["before"] == ["torch", VERSION, ["torch"]] and found["same"]
    assert found["missing"] == "torch.no_such_part" and found["specs"][1] is None and not found["absent"]
    assert found["names"] == ["torch", "torch.nn", "torch.jit", "torch", VERSION, VERSION]
    assert found["classes"][:4] == [f"<class 'torch.{name}'>" for name in ("Tensor", "device", "dtype", "Size")]
    assert found["classes"][4:7] == [f"<class 'torch.{name}'>" for name in ("nn.modules.linear.Linear", "nn.parameter.Parameter", "optim.adam.Adam")]
    assert "flambeau" not in str(found["classes"] + found["functions"])


def test_no_module_is_executed_twice(installed: Environment) -> None:
    counted = installed.code("""
        import sys, collections
        counts = collections.Counter()
        def hook(event, args):
            if event == "exec" and args[0].co_name == "<module>":
                counts[args[0].co_filename] += 1
        sys.addaudithook(hook)
        import torch, torch.nn.functional, torch.distributions, flambeau.fft, torch.fft, torch.jit
        print([f for f, n in counts.items() if n > 1 and "/flambeau/" in f and not f.startswith("<")])""")
    assert counted == "[]"


def test_functorch_comes_along(installed: Environment) -> None:
    """Before torch is imported too, with its submodules."""
    found = installed.code("""
        import functorch, functorch.experimental.control_flow
        from functorch.einops import rearrange
        import flambeau.functorch, torch
        print(functorch is flambeau.functorch, functorch.vmap(lambda x: x + 1)(torch.ones(2)).tolist(), functorch.__version__ == torch.__version__)""")
    assert found == "True [2.0, 2.0] True"


def test_errors_carry_torchs_names(installed: Environment) -> None:
    text = installed.code("""
        import torch, traceback
        class C:
            @classmethod
            def __torch_function__(cls, f, types, args=(), kwargs=None): return NotImplemented
        for wrong in (lambda: torch.add(C(), 1), lambda: torch.nn.Linear(2, 2)(torch.ones(3)), lambda: torch.nn.Linear(2, 2, bais=True),
                      lambda: torch.nn.ReLU()(3), lambda: torch.no_such_name, lambda: torch.zeros(2).reshape(3)):
            try: wrong()
            except Exception as error: print(type(error).__name__, error)""")
    assert "'torch.add'" in text
    assert not re.search(r"flambeau\.\w", text), text


WORKER = """
import multiprocessing, pickle, sys
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)

def work(q, t):
    q.put((torch.__name__, t.sum().item()))

if __name__ == "__main__":
    torch.manual_seed(0)
    for kind in ("spawn", "forkserver"):
        context = multiprocessing.get_context(kind)
        q = context.SimpleQueue()
        p = context.Process(target=work, args=(q, torch.ones(3)))
        p.start(); print(q.get()); p.join()
    from torch.utils.data import DataLoader
    loader = DataLoader(list(range(4)), batch_size=2, num_workers=1, multiprocessing_context="spawn")
    print([b.tolist() for b in loader])
"""


def test_spawned_workers(installed: Environment, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(WORKER)
    done = installed.run("script.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:3] == ["('torch', 3.0)", "('torch', 3.0)", "[[0, 1], [2, 3]]"]


DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128"


def test_pickles_load_under_either_name(installed: Environment, tmp_path: Path) -> None:
    program = """
        import pickle, {0} as torch
        nn = torch.nn
        torch.manual_seed(0)
        things = [torch.ones(2), nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.Parameter(torch.zeros(1)), torch.device("cpu"), torch.float16, torch.Size([1]),
                  torch.distributions.Normal(0.0, 1.0), torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.5), torch.add, nn.functional.relu,
                  torch.optim.lr_scheduler.StepLR, torch.float32, torch.strided, torch.contiguous_format, torch.UntypedStorage(4), torch.Generator,
                  [getattr(torch, n) for n in "{1}".split()]]
        with open("{0}.pickle", "wb") as file:
            pickle.dump(things, file)
        torch.save(things[1], "{0}.pt")"""
    for name in ("torch", "flambeau"):
        installed.code(program.format(name, DTYPES), cwd=tmp_path)
    assert b"flambeau" not in (tmp_path / "torch.pickle").read_bytes()
    for reader in ("torch", "flambeau"):
        for name in ("torch", "flambeau"):
            shown = installed.code(
                f"""
                import pickle, {reader} as torch
                with open("{name}.pickle", "rb") as file:
                    things = pickle.load(file)
                model = torch.load("{name}.pt", weights_only=False)
                assert type(things[1][0]) is type(model[0]) is torch.nn.Linear and isinstance(things[0], torch.Tensor)
                assert torch.equal(things[1][0].weight, model[0].weight) and things[8] is torch.add and things[4] is torch.float16
                assert all(d is getattr(torch, n) for d, n in zip(things[-1], "{DTYPES}".split(), strict=True))
                assert type(things[7]) is torch.optim.SGD and things[3] == torch.device("cpu") and things[12] is torch.strided
                print(things[0].tolist(), things[1](torch.ones(1, 2)).shape)""",
                cwd=tmp_path,
            )
            assert shown == "[1.0, 1.0] torch.Size([1, 2])"


def test_pytest_and_modules_as_programs(installed: Environment, tmp_path: Path) -> None:
    pytest.importorskip("pluggy")
    (tmp_path / "test_it.py").write_text("import torch\ndef test():\n    assert torch.__name__ == 'torch' and torch.ones(2).sum() == 2\n")
    done = installed.run("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=tmp_path)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr
    (tmp_path / "late.py").write_text("import flambeau, pickle\nimport torch\nassert torch is flambeau and torch.__name__ == 'torch'\n")
    assert installed.run("late.py", cwd=tmp_path).returncode == 0
    assert installed.run("-m", "torch.version").returncode == 0
    done = installed.run("-c", "import torch.no_such_part")
    assert done.returncode == 1 and "does not exist in flambeau" in done.stderr


def test_torchrun_comes_with_torch(installed: Environment, tmp_path: Path) -> None:
    text = "import os, sys, torch\nsys.stdout.write(torch.__name__ + ' ' + os.environ['RANK'] + ' of ' + os.environ['WORLD_SIZE'] + chr(10))\n"
    (tmp_path / "script.py").write_text(text)
    command = [str(installed.folder / "bin" / "torchrun"), "--nproc-per-node=2", "script.py"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PIP", "COVERAGE"))}
    done = processes.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and sorted(done.stdout.splitlines()) == ["torch 0 of 2", "torch 1 of 2"], done.stdout + done.stderr


def _pip(place: Environment, *arguments: str) -> subprocess.CompletedProcess[str]:
    if not (place.site / "pip").exists():
        pytest.skip("pip is not installed")
    outside = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}  # a tree in PYTHONPATH may have what pip wrote about it
    environment = {**outside, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INDEX": "1"}
    return processes.run([str(place.python), "-m", "pip", *arguments], capture_output=True, text=True, timeout=120, env=environment, cwd=place.folder)


def _package(folder: Path, name: str, version: str, requires: tuple[str, ...] = ()) -> None:
    """A wheel of a package of one module without anything in it."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    files = {
        f"{module}.py": "",
        f"{info}/METADATA": "\n".join(["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *[f"Requires-Dist: {text}" for text in requires], ""]),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(folder / f"{module}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD")))


def test_requires_what_pytorch_requires() -> None:
    pytest.importorskip("torch")
    theirs = [text for text in importlib.metadata.requires("torch") or () if ";" not in text and not text.startswith(("nvidia", "triton", "cuda"))]
    if importlib.metadata.version("torch").startswith(f"{as_torch.PYTORCH}+cpu") or importlib.metadata.version("torch") == as_torch.PYTORCH:
        assert sorted(theirs) == sorted(as_torch.REQUIRES)


def test_pip_brings_what_packages_expect_beside_torch(place: Environment, tmp_path: Path) -> None:
    """A package that asks for torch alone, and imports what PyTorch requires, as captum does."""
    other = Environment(tmp_path / "other")
    done = other.flambeau("install")
    assert done.returncode == 0 and "pip install filelock 'typing-extensions>=4.10.0' 'setuptools" in done.stdout, done.stdout
    checked = _pip(other, "check")
    assert checked.returncode == 1 and "requires typing-extensions, which is not installed" in checked.stdout
    names = {text.partition(">=")[0]: text.partition(">=")[2] or "1.0" for text in as_torch.REQUIRES}
    assert all(name in checked.stdout for name in names)
    for name, version in names.items():
        _package(tmp_path, name, version)
    _package(tmp_path, "asks-for-torch", "1.0", ("torch>=2.3",))
    done = _pip(other, "install", "--find-links", str(tmp_path), "asks-for-torch")
    assert done.returncode == 0, done.stdout + done.stderr
    assert other.code("import asks_for_torch, typing_extensions, torch; print(torch.__version__)") == VERSION
    checked = _pip(other, "check")
    assert checked.returncode == 0, checked.stdout
    assert "pip install" not in other.flambeau("install").stdout


def test_refused_where_another_torch_is(place: Environment, tmp_path: Path) -> None:
    other = Environment(tmp_path / "other")
    (other.site / "torch").mkdir()
    (other.site / "torch" / "__init__.py").write_text("__version__ = '2.13.0'\n")
    (other.site / "torch-2.13.0.dist-info").mkdir()
    (other.site / "torch-2.13.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0\n")
    before = sorted(str(p) for p in other.site.rglob("*"))
    done = other.flambeau("install")
    assert done.returncode == 2 and "PyTorch 2.13.0 is installed" in done.stderr and "pip uninstall torch" in done.stderr and "flambeau run" in done.stderr
    assert other.flambeau("remove").returncode == 0 and other.flambeau("status").returncode == 1
    assert sorted(str(p) for p in other.site.rglob("*")) == before


def test_status_remove_and_pip(place: Environment, installed: Environment, tmp_path: Path) -> None:
    """The last one that uses the environment: it takes torch away, and puts it back as a wheel."""
    command = place.folder / "bin" / "torchrun"
    assert place.flambeau("status").returncode == 0 and command.is_file()
    assert "already" in place.flambeau("install").stdout
    assert VERSION in _pip(place, "list").stdout
    done = _pip(place, "uninstall", "-y", "torch")
    assert done.returncode == 0, done.stderr
    assert not list(place.site.glob("torch*")) and not command.exists() and place.flambeau("status").returncode == 1
    # What is left of an installation that was cut off does not stop the next one.
    (place.site / f"torch-{VERSION}.dist-info").mkdir()
    assert place.flambeau("status").returncode == 1 and place.flambeau("install").returncode == 0 and place.flambeau("status").returncode == 0
    done = place.flambeau("remove")
    assert done.returncode == 0 and not list(place.site.glob("*torch*")) and not command.exists(), done.stderr
    assert place.run("-c", "import torch").returncode == 1
    done = place.flambeau("wheel", "--out", str(tmp_path))
    wheel = Path(done.stdout.strip())
    assert wheel.name == f"torch-{VERSION}-py3-none-any.whl"
    done = _pip(place, "install", "--no-deps", str(wheel))
    assert done.returncode == 0, done.stderr
    assert place.code("import torch; print(torch.__version__)") == VERSION
    assert command.is_file()  # which pip has made of the wheel's entry point
    assert "requires flambeau" in _pip(place, "check").stdout  # here it comes from its tree, and pip does not know of it
    assert _pip(place, "uninstall", "-y", "torch").returncode == 0 and not list(place.site.glob("torch*"))


def test_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_package, "_site", lambda: tmp_path)
    monkeypatch.setattr(torch_package, "_commands", lambda: tmp_path / "bin")
    monkeypatch.setattr(torch_package, "_check", lambda site: None)
    rename = os.rename

    def failing(source: Path, target: Path) -> None:
        if target.suffix == ".dist-info":
            raise OSError("no space left")
        rename(source, target)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(OSError, match="no space"):
        torch_package.install()
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(os, "rename", rename)
    torch_package.install()
    found = importlib.metadata.Distribution.at(tmp_path / f"torch-{VERSION}.dist-info")
    assert found.version == VERSION and found.files is not None
    for file in found.files:
        data = Path(str(found.locate_file(file))).read_bytes()
        assert file.hash is None or (torch_package._hashed(data) == f"sha256={file.hash.value}" and file.size == len(data))
    assert {str(f) for f in found.files} == {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}


def test_names_are_taken_back() -> None:
    import flambeau

    def names() -> list[str]:
        return [c.__module__ for c in (flambeau.Tensor, flambeau.nn.Linear, flambeau.nn.functional.relu)] + [flambeau.__name__, flambeau.__version__]

    before, kept = names(), {n: m for n, m in sys.modules.items() if n.partition(".")[0] == "torch"}
    try:
        as_torch.install()
        assert names() != before and sys.modules["torch.nn"] is flambeau.nn
        assert importlib.metadata.version("torch") == VERSION
    finally:
        as_torch.remove()
        sys.modules.update(kept)
    assert names() == before and "torch" not in vars(flambeau) and flambeau.__spec__ is not None and flambeau.__spec__.name == "flambeau"


@pytest.mark.parametrize("setter", ["set_overwrite_module_params_on_conversion", "set_swap_module_params_on_conversion"])
def test_conversions_of_modules(setter: str) -> None:
    import flambeau as torch

    future = torch.__future__
    layer = torch.nn.Linear(2, 2)
    weight, values = layer.weight, layer.weight.double()
    try:
        getattr(future, setter)(True)
        layer.double()
    finally:
        getattr(future, setter)(False)
    assert (layer.weight is weight) == ("swap" in setter) and torch.equal(layer.weight, values)
    assert isinstance(layer.weight, torch.nn.Parameter) and layer.weight.requires_grad
    layer(torch.ones(1, 2).double()).sum().backward()
    assert layer.weight.grad is not None and layer.weight.grad.dtype is torch.float64
