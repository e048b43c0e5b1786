"""huggingface_hub's cache on disk: what is pushed is found, by ourselves and by huggingface_hub where it is installed; what is wrong is said."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

import flambeau as torch
from flambeau.io import hub_cache, safetensors


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    (folder / "onnx").mkdir(parents=True)
    safetensors.save_file({"w": torch.arange(6.0).reshape(2, 3)}, folder / "model.safetensors")
    (folder / "config.json").write_text("{}")
    (folder / "onnx" / "config.json").write_text("{}")
    (folder / ".hidden").write_text("")
    return folder


def test_what_is_pushed_is_found(model: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = hub_cache.push_folder(model, "someone/small", cache=cache)
    assert hub_cache.push_folder(model, "someone/small", cache=cache) == first
    assert hub_cache.snapshot("someone/small", cache=cache) == first == hub_cache.snapshot("someone/small", first.name, cache=cache)
    assert hub_cache.load_state_dict("someone/small", cache=cache)["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    nested = hub_cache.cached_file("someone/small", "onnx/config.json", cache=cache)
    assert nested.is_symlink() and nested.resolve().name == hashlib.sha1(b"blob 2\0{}").hexdigest()
    safetensors.save_file({"w": torch.zeros(1)}, model / "model.safetensors")
    second = hub_cache.push_folder(model, "someone/small", "pr/1", cache=cache)
    assert hub_cache.load_state_dict("someone/small", "pr/1", cache=cache)["w"].tolist() == [0]
    assert hub_cache.snapshot("someone/small", cache=cache) == first != second
    assert len(list((second.parents[1] / "blobs").iterdir())) == 3  # the two equal files are one
    assert sorted(p.name for p in second.parents[1].iterdir()) == ["blobs", "refs", "snapshots"]


def test_weights_in_several_files(tmp_path: Path) -> None:
    folder, cache = tmp_path / "model", tmp_path / "cache"
    folder.mkdir()
    for i in (1, 2):
        safetensors.save_file({f"w{i}": torch.full((2,), float(i))}, folder / f"model-{i}-of-2.safetensors")
    index = {"weight_map": {"w1": "model-1-of-2.safetensors", "w2": "model-2-of-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    hub_cache.push_folder(folder, "parts", cache=cache)
    assert {n: t.tolist() for n, t in hub_cache.load_state_dict("parts", cache=cache).items()} == {"w1": [1, 1], "w2": [2, 2]}
    for places, error in (({"w3": "model-1-of-2.safetensors"}, "w3"), ({"w1": "../../refs/main"}, "must be a relative path"), (3, "weight_map")):
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
        hub_cache.push_folder(folder, "parts", cache=cache)
        with pytest.raises(ValueError, match=error):
            hub_cache.load_state_dict("parts", cache=cache)


def test_what_is_not_there_is_said(model: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    hub_cache.push_folder(model, "someone/small", cache=cache)
    with pytest.raises(FileNotFoundError, match="Did you mean someone/small"):
        hub_cache.snapshot("someone/smal", cache=cache)
    with pytest.raises(FileNotFoundError, match="it has main"):
        hub_cache.snapshot("someone/small", "mian", cache=cache)
    with pytest.raises(FileNotFoundError, match=r"it has config.json, model.safetensors, onnx/config.json. Did you mean config.json"):
        hub_cache.cached_file("someone/small", "confg.json", cache=cache)
    for repo in ("", "a/b/c", "../x", "a--b", "/x"):
        with pytest.raises(ValueError, match="OWNER/NAME"):
            hub_cache.snapshot(repo, cache=cache)
    for name in ("../x", "/etc/passwd", "a/../../b", ""):
        with pytest.raises(ValueError, match="must be a relative path"):
            hub_cache.cached_file("someone/small", name, cache=cache)
        with pytest.raises(ValueError, match="must be a relative path"):
            hub_cache.push_folder(model, "someone/small", name, cache=cache)
    with pytest.raises(ValueError, match="kind must be"):
        hub_cache.snapshot("x", cache=cache, kind="models")
    with pytest.raises(ValueError, match="is a commit"):
        hub_cache.push_folder(model, "x", "0" * 40, cache=cache)
    with pytest.raises(NotADirectoryError):
        hub_cache.push_folder(model / "nothing", "x", cache=cache)
    os.mkdir(tmp_path / "bare")
    with pytest.raises(ValueError, match="no file"):
        hub_cache.push_folder(tmp_path / "bare", "x", cache=cache)


def test_the_folder_of_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert hub_cache.cache_dir() == Path.home() / ".cache" / "huggingface" / "hub"
    for name, expected in (("XDG_CACHE_HOME", "/c/huggingface/hub"), ("HF_HOME", "/c/hub"), ("HF_HUB_CACHE", "/c")):
        monkeypatch.setenv(name, "/c")
        assert hub_cache.cache_dir() == Path(expected)


def test_huggingface_hub_reads_it_and_the_other_way_round(model: Path, tmp_path: Path) -> None:
    library = pytest.importorskip("huggingface_hub")
    cache = tmp_path / "cache"
    made = hub_cache.push_folder(model, "someone/small", cache=cache)
    assert Path(library.snapshot_download("someone/small", cache_dir=cache, local_files_only=True)) == made
    one = library.hf_hub_download("someone/small", "onnx/config.json", cache_dir=cache, local_files_only=True)
    assert Path(one) == hub_cache.cached_file("someone/small", "onnx/config.json", cache=cache)
    seen = library.scan_cache_dir(cache)
    assert not seen.warnings
    (repository,) = seen.repos
    (revision,) = repository.revisions
    assert (repository.repo_id, revision.commit_hash, revision.refs, len(revision.files)) == ("someone/small", made.name, {"main"}, 3)
