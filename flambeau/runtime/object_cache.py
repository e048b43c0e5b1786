"""Compiled object code on disk. One file an entry, written under a temporary name and then replaced: safe with several
writers. A lost, torn or foreign entry is only a miss. A directory that cannot be written switches the cache off."""

from __future__ import annotations

import hashlib
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Final

from flambeau.runtime import target

_MAGIC: Final = b"flambeau object 1\n"


def directory() -> Path:
    """FLAMBEAU_CACHE_DIR, or flambeau/ in the user's cache directory."""
    given = os.environ.get("FLAMBEAU_CACHE_DIR")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flambeau"


@cache
def version() -> str:
    """Changes with the text generators: names, sizes and times of the compiler's sources, and the Python and LLVM wheels."""
    import importlib.metadata

    root = Path(__file__).resolve().parent.parent / "compiler"
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        stat = path.stat()
        digest.update(f"{path.relative_to(root)} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    try:
        digest.update(importlib.metadata.version("llvmlite").encode())
    except importlib.metadata.PackageNotFoundError:
        pass
    return digest.hexdigest()[:12]


def _folder() -> Path:
    return directory() / f"{target.fingerprint()}-{version()}"


def _path(key: str) -> Path:
    return _folder() / (hashlib.sha256(key.encode()).hexdigest()[:32] + ".o")


def load(key: str) -> bytes | None:
    """The entry's bytes, or None."""
    try:
        data = _path(key).read_bytes()
    except OSError:
        return None
    head = len(_MAGIC) + 32
    if not data.startswith(_MAGIC) or hashlib.sha256(data[head:]).digest() != data[len(_MAGIC) : head]:
        return None
    return data[head:]


def store(key: str, content: bytes) -> None:
    """Keep an entry; does nothing if the directory cannot be written."""
    path = _path(key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_MAGIC + hashlib.sha256(content).digest() + content)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError:
        return


def entries() -> list[Path]:
    """All entries of this machine and version."""
    try:
        return sorted(_folder().glob("*.o"))
    except OSError:
        return []


def statistics() -> dict[str, Any]:
    """Where the cache is, how many entries it has, and their bytes (of all versions)."""
    files = list(directory().rglob("*.o")) if directory().exists() else []
    return {"directory": str(directory()), "entries": len(files), "bytes": sum(f.stat().st_size for f in files)}


def clear() -> int:
    """Delete all entries of all versions; returns how many."""
    count = 0
    for path in list(directory().rglob("*.o")) if directory().exists() else []:
        try:
            path.unlink()
            count += 1
        except OSError:
            continue
    return count
