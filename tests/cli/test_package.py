"""The wheel and the sdist: they hold every file of the package, and what they install works. Slow: `scripts/lint` runs it."""

from __future__ import annotations

import os
import shutil
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests import processes

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
USE = """
import pathlib, sys
import flambeau as torch
assert pathlib.Path(torch.__file__).is_relative_to(sys.argv[1]), torch.__file__
x = torch.randn(4, 3, requires_grad=True)
(x @ x.T).softmax(-1).sum().backward()
assert x.grad.shape == (4, 3)
assert "Example:" in torch.softmax.__doc__ and "Example:" in torch.nn.Linear.__doc__
print(torch.__version__)
"""

pytestmark = pytest.mark.slow


def _build(folder: Path) -> None:
    """`folder`/dist, made from the files that git tracks, as they are now."""
    pytest.importorskip("setuptools")
    source = folder / "source"
    for name in processes.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines():
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name)
    for what in ("sdist", "wheel"):
        code = f"from setuptools import build_meta; build_meta.build_{what}({str(folder / 'dist')!r})"
        done = processes.python("-c", code, cwd=source)
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("package")
    (folder / "dist").mkdir()
    _build(folder)
    return folder / "dist"


def test_wheel_and_sdist_hold_every_file(made: Path) -> None:
    tracked = processes.run(["git", "ls-files", "flambeau"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    wanted = {n for n in tracked if (ROOT / n).is_file()}
    assert len(wanted) > 500
    (wheel,), (sdist,) = made.glob("*.whl"), made.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        assert wanted - set(archive.namelist()) == set()
    with tarfile.open(sdist) as archive:
        assert wanted - {n.split("/", 1)[1] for n in archive.getnames() if "/" in n} == set()


def test_wheel_installs_and_runs(made: Path, tmp_path: Path) -> None:
    (wheel,) = made.glob("*.whl")
    place = tmp_path / "installed"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(place), str(wheel)]
    processes.run(command, check=True, capture_output=True, text=True)
    environment = {**os.environ, "PYTHONPATH": str(place)}
    done = processes.python("-c", USE, str(place), cwd=tmp_path, env=environment)
    assert done.returncode == 0 and done.stdout.strip() == PROJECT["version"], done.stderr
    done = processes.python("-m", "flambeau", "--version", cwd=tmp_path, env=environment)
    assert done.stdout.strip() == f"flambeau {PROJECT['version']}", done.stderr
    assert (place / "bin" / "flambeau").is_file()


def test_metadata_names_the_pythons_that_are_tested() -> None:
    named = {c.rpartition(" ")[2] for c in PROJECT["classifiers"] if c.startswith("Programming Language :: Python :: 3.")}
    tested = (ROOT / "scripts" / "pythons").read_text()
    assert PROJECT["requires-python"] == ">=3.11" and named == {"3.11", "3.12", "3.13", "3.14"}
    assert all(version in tested for version in named - {"3.11"})
