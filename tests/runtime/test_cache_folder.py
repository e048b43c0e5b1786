"""The folder of compiled code is executed from: whose it is, who may write to it, where it is."""

from __future__ import annotations

import os
import stat
import warnings
from pathlib import Path

import pytest

from flambeau.runtime import object_cache
from tests import processes

_PROGRAM = "import flambeau as torch; print((torch.arange(3.) * 2).tolist())"


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def _forget() -> None:
    object_cache._trusted.cache_clear()


def test_the_folder_is_the_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mask = os.umask(0)
    try:
        monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "made"))
        object_cache.store("key", b"content")
    finally:
        os.umask(mask)
    where = object_cache.folder()
    assert where is not None and object_cache.load("key") == b"content"
    assert _mode(tmp_path / "made") == 0o700 and _mode(where) == 0o700


def test_a_folder_that_others_could_only_read_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    tmp_path.chmod(0o755)
    object_cache.store("key", b"content")
    assert object_cache.load("key") == b"content" and _mode(tmp_path) == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o720, 0o1777])
def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int) -> None:
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    tmp_path.chmod(mode)
    with pytest.warns(RuntimeWarning, match=rf"others may write to the folder .*{mode:04o}.*FLAMBEAU_CACHE_DIR"):
        object_cache.store("key", b"content")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once
        assert object_cache.load("key") is None and object_cache.entries() == [] and object_cache.clear() == 0
    assert list(tmp_path.iterdir()) == [] and object_cache.statistics()["directory"] == "None"


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.warns(RuntimeWarning, match="belongs to user"):
        assert object_cache.folder() is None


def test_what_is_no_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "file"))
    with pytest.warns(RuntimeWarning, match="is not a folder"):
        assert object_cache.folder() is None


@pytest.mark.parametrize("settings", [{"FLAMBEAU_CACHE_DIR": "cache"}, {"HOME": "", "XDG_CACHE_HOME": "caches"}, {"HOME": "home", "XDG_CACHE_HOME": ""}])
def test_nothing_depends_on_the_working_directory(tmp_path: Path, settings: dict[str, str]) -> None:
    environment = {k: v for k, v in os.environ.items() if k not in ("FLAMBEAU_CACHE_DIR", "XDG_CACHE_HOME")} | settings
    root = str(Path(__file__).parents[2])
    done = processes.python("-c", _PROGRAM, cwd=tmp_path, env=environment | {"PYTHONPATH": root})
    assert done.stdout == "[0.0, 2.0, 4.0]\n" and list(tmp_path.iterdir()) == [], done.stderr
    assert done.stderr.count("relative to the working directory") == 1 or settings.get("HOME") == ""


def test_entries_are_found_by_content_not_by_time(tmp_path: Path) -> None:
    """A copy of the package with other times has the same version, one with other generators another."""
    package = Path(object_cache.__file__).parents[1]
    version = "from flambeau.runtime import object_cache; print(object_cache.version())"

    def version_of(root: Path) -> str:
        return processes.python("-c", version, cwd=root, env=os.environ | {"PYTHONPATH": str(root)}).stdout

    copy = tmp_path / "flambeau"
    processes.run(["cp", "-r", str(package), str(copy)], check=True)  # with the times of now
    assert version_of(tmp_path) == version_of(package.parent) != ""
    seen = {version_of(package.parent)}
    for name in ("compiler/fuse.py", "compiler/tile/contract.py", "tile/generator.py", "tile/kernels/products.py"):
        with open(copy / name, "a") as file:
            file.write("# another generator\n")
        seen.add(version_of(tmp_path))
    assert len(seen) == 5
