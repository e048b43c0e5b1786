"""The cache of huggingface_hub on disk, read and filled without a network: files by repository and revision, a model's weights, a folder as a new revision.

    CACHE/models--OWNER--NAME/blobs/HASH                      contents: SHA-256 of large files, git's SHA-1 of small ones
    CACHE/models--OWNER--NAME/snapshots/COMMIT/FILE           a link to ../../blobs/HASH
    CACHE/models--OWNER--NAME/refs/BRANCH                     the commit's 40 hexadecimal digits

(huggingface.co/docs/hub/local-cache.) huggingface_hub, and what is built on it, finds there what is pushed here, with `local_files_only=True`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from pathlib import Path, PurePosixPath
from typing import Any, Final

from flambeau.io import safetensors
from flambeau.names import meant
from flambeau.runtime import whole_files
from flambeau.tensor import Tensor

_KINDS: Final = ("model", "dataset", "space")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_REPOSITORY: Final = re.compile(r"[\w.\-]+(/[\w.\-]+)?")
_WEIGHTS: Final = "model.safetensors"
_LARGE: Final = 10 << 20  # bytes from which on the Hub stores a file by its SHA-256

__all__ = ["cache_dir", "cached_file", "load_state_dict", "push_folder", "snapshot"]


def cache_dir() -> Path:
    """The cache's folder: $HF_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub."""
    if given := os.environ.get("HF_HUB_CACHE"):
        return Path(given).expanduser()
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return Path(home).expanduser() / "hub"


def snapshot(repo_id: str, revision: str = "main", *, cache: Any = None, kind: str = "model") -> Path:
    """The folder of a repository's files at a branch, a tag or a commit. FileNotFoundError, with what is there, if it is not in the cache."""
    folder = _repository(repo_id, cache, kind)
    if not folder.is_dir():
        known = [p.name.split("--", 1)[1].replace("--", "/") for p in folder.parent.glob(f"{kind}s--*")]
        raise FileNotFoundError(f"the {kind} {repo_id} is not in the cache {folder.parent}, and nothing is downloaded here.{meant(repo_id, known)}")
    _inside(revision, "revision")
    reference = folder / "refs" / revision
    commit = reference.read_text().strip() if reference.is_file() else revision
    found = folder / "snapshots" / commit
    if not _COMMIT.fullmatch(commit) or not found.is_dir():
        branches = sorted(str(p.relative_to(folder / "refs")) for p in (folder / "refs").rglob("*") if p.is_file())
        raise FileNotFoundError(f"{repo_id} has no revision {revision} in the cache; it has {', '.join(branches) or 'no branch'}.{meant(revision, branches)}")
    return found


def cached_file(repo_id: str, filename: str, revision: str = "main", *, cache: Any = None, kind: str = "model") -> Path:
    """The path of one of a repository's files. FileNotFoundError, with what is there, if it is not in the cache."""
    _inside(filename, "filename")
    folder = snapshot(repo_id, revision, cache=cache, kind=kind)
    if not (folder / filename).is_file():
        there = sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
        raise FileNotFoundError(f"{repo_id} at {revision} has no file {filename} in the cache; it has {', '.join(there) or 'none'}.{meant(filename, there)}")
    return folder / filename


def load_state_dict(repo_id: str, revision: str = "main", *, cache: Any = None, device: Any = "cpu") -> dict[str, Tensor]:
    """A model's weights: model.safetensors, or the files that model.safetensors.index.json names. FileNotFoundError if they are not in the cache."""
    folder = snapshot(repo_id, revision, cache=cache)
    index = folder / f"{_WEIGHTS}.index.json"
    if (folder / _WEIGHTS).is_file() or not index.is_file():
        return safetensors.load_file(cached_file(repo_id, _WEIGHTS, revision, cache=cache), device)
    places = json.loads(index.read_text()).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise ValueError(f"{index}: weight_map must be a table of files by tensor")
    state: dict[str, Tensor] = {}
    for name in dict.fromkeys(places.values()):
        state |= safetensors.load_file(cached_file(repo_id, name, revision, cache=cache), device)
    lacking = sorted(set(places) - set(state))
    if lacking:
        raise ValueError(f"{index} names the tensor {lacking[0]} ({len(lacking)} in all), which {places[lacking[0]]} does not have")
    return {name: state[name] for name in places}


def push_folder(folder: Any, repo_id: str, revision: str = "main", *, cache: Any = None, kind: str = "model") -> Path:
    """A folder's files (hidden ones left out) as a branch's newest revision in the cache; returns its snapshot.

    Readers see the old revision or the new one. The same files give the same commit; nothing is uploaded. NotADirectoryError, ValueError for wrong names.
    """
    source = Path(folder)
    if not source.is_dir():
        raise NotADirectoryError(f"push_folder: {source} is no folder")
    if _COMMIT.fullmatch(revision):
        raise ValueError(f"push_folder: {revision} is a commit, which cannot change; give the name of a branch")
    _inside(revision, "revision")
    files = sorted(p for p in source.rglob("*") if p.is_file() and not any(part.startswith(".") for part in p.relative_to(source).parts))
    if not files:
        raise ValueError(f"push_folder: there is no file in {source}")
    place = _repository(repo_id, cache, kind)
    for name in ("blobs", "snapshots", "refs"):
        (place / name).mkdir(parents=True, exist_ok=True)
    contents = {p.relative_to(source): _blob(p, place / "blobs") for p in files}
    commit = hashlib.sha1("".join(f"{blob} {path}\n" for path, blob in contents.items()).encode(errors="surrogateescape"), usedforsecurity=False).hexdigest()
    made = place / "snapshots" / commit
    if not made.is_dir():
        _link(contents, made)
    reference = place / "refs" / revision
    reference.parent.mkdir(parents=True, exist_ok=True)
    with whole_files.replacing(reference) as file:
        file.write(commit.encode())
    return made


def _link(contents: dict[Path, str], made: Path) -> None:
    """A snapshot of links, that appears by one rename. It is built outside of `snapshots`, which others list."""
    unfinished = Path(tempfile.mkdtemp(prefix=".new-", dir=made.parent.parent))
    try:
        unfinished.chmod(0o755)
        for path, blob in contents.items():
            (unfinished / path).parent.mkdir(parents=True, exist_ok=True)
            (unfinished / path).symlink_to(os.path.join(*[".."] * (len(path.parts) + 1), "blobs", blob))
        try:
            unfinished.rename(made)
        except OSError:
            if not made.is_dir():  # else somebody has pushed the same files
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _blob(path: Path, folder: Path) -> str:
    """Put a file's contents among the blobs, and return their name there."""
    size = path.stat().st_size
    digest = hashlib.sha256() if size >= _LARGE else hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    name = digest.hexdigest()
    if not (folder / name).is_file():
        with path.open("rb") as file, whole_files.replacing(folder / name) as copy:
            shutil.copyfileobj(file, copy, 1 << 20)
    return name


def _repository(repo_id: str, cache: Any, kind: str) -> Path:
    if kind not in _KINDS:
        raise ValueError(f"kind must be {', '.join(_KINDS)}, got {kind!r}")
    if not _REPOSITORY.fullmatch(repo_id) or "--" in repo_id or ".." in repo_id:
        raise ValueError(f"repo_id must have the form OWNER/NAME, of letters, digits, -, _ and ., without -- and .., got {repo_id!r}")
    return (cache_dir() if cache is None else Path(cache)) / f"{kind}s--{repo_id.replace('/', '--')}"


def _inside(path: str, what: str) -> None:
    """ValueError for a name that leads out of the repository's folder."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path:
        raise ValueError(f"{what} must be a relative path without .., got {path!r}")
