"""Compiled object code and plans on disk: one file an entry, in one folder for each (processor, version of the generators).

A file is a line that names the format, the SHA-256 of the content, the content. It is written under a temporary name
and then renamed, so that any number of processes may write at once. A lost, torn or foreign entry is only a miss. A
directory that cannot be written switches the cache off and nothing else.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

from flambeau.runtime import target

_MAGIC: Final = b"flambeau object 1\n"
_HEAD: Final = len(_MAGIC) + hashlib.sha256().digest_size
_FOLDER: Final = re.compile(r".+-.+-\d+-[0-9a-f]{16}-[0-9a-f]{12}")  # see `folder`
_MOST_PLANS: Final = 2000  # of a folder; the largest that were seen take 50 KB
_KEEP_SECONDS: Final = 30 * 86400  # folders of other versions that nothing was added to for so long are deleted


def directory() -> Path:
    """FLAMBEAU_CACHE_DIR, or flambeau/ in the user's cache directory."""
    given = os.environ.get("FLAMBEAU_CACHE_DIR")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "flambeau"


@cache
def version() -> str:
    """Changes with whatever writes IR or object code: the contents of our sources, llvmlite's version.

    Contents, not times: a copy, a fresh clone or a touched file finds the entries that it can use (reading 1 MB of sources takes 3 ms).
    """
    import llvmlite  # the package alone: this does not load LLVM

    root = Path(__file__).parent.parent
    compiler = root / "compiler"
    digest = hashlib.sha256(llvmlite.__version__.encode())
    for path in (compiler, compiler / "emit", compiler / "kernels", compiler / "lower", root / "runtime"):
        for name in sorted(os.listdir(path)):
            if name.endswith(".py") and (path.name != "runtime" or name in ("jit.py", "native.py")):
                content = (path / name).read_bytes()
                digest.update(f"\n{path.name}/{name} {len(content)}\n".encode())
                digest.update(content)
    return digest.hexdigest()[:12]


def folder() -> Path:
    """Where the entries of this processor and version are."""
    return directory() / f"{target.fingerprint()}-{version()}"


def _path(key: str, suffix: str = ".o") -> str:
    return os.path.join(folder(), hashlib.sha256(key.encode()).hexdigest()[:32] + suffix)


def load(key: str, suffix: str = ".o") -> bytes | None:
    """The entry's content, or None. `suffix`: ".o" of object code, ".plan" of plans (compiler/stored_plan.py)."""
    try:
        with open(_path(key, suffix), "rb") as file:
            data = file.read()
    except OSError:
        return None
    if not data.startswith(_MAGIC) or hashlib.sha256(data[_HEAD:]).digest() != data[len(_MAGIC) : _HEAD]:
        return None
    return data[_HEAD:]


def store(key: str, content: bytes, suffix: str = ".o") -> None:
    """Keep an entry; does nothing if the directory cannot be written."""
    path = _path(key, suffix)
    temporary = f"{path}.{os.getpid()}-{threading.get_ident()}.new"
    try:
        if not os.path.isdir(os.path.dirname(path)):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            _delete_old()
        with open(temporary, "wb") as file:
            file.write(_MAGIC + hashlib.sha256(content).digest() + content)
        os.replace(temporary, path)
        if suffix == ".plan":
            _drop_plans(os.path.dirname(path))
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)


def _drop_plans(where: str) -> None:
    """Delete the older half of the plans if there are too many: a program of many sizes makes one for each."""
    plans = [entry for entry in os.scandir(where) if entry.name.endswith(".plan")]
    if len(plans) > _MOST_PLANS:
        for entry in sorted(plans, key=lambda x: x.stat().st_mtime)[: len(plans) // 2]:
            with suppress(OSError):
                os.unlink(entry.path)


def _delete_old() -> None:
    """Delete folders of other versions that are old: called once, when a version's folder is made."""
    limit = time.time() - _KEEP_SECONDS
    for other in _folders():
        with suppress(OSError):
            if other.stat().st_mtime < limit:
                _delete(other)


def _folders() -> list[Path]:
    """The folders of all processors and versions."""
    return [path for path in directory().glob("*-*-*") if _FOLDER.fullmatch(path.name) and path.is_dir()]


def _delete(other: Path) -> int:
    """Delete a folder of ours, but nothing that is not ours in it; returns how many entries there were."""
    files = [*other.glob("*.o"), *other.glob("*.plan")]
    for path in [*files, *other.glob("*.new")]:
        with suppress(OSError):
            path.unlink()
    with suppress(OSError):
        other.rmdir()
    return len(files)


def entries() -> list[Path]:
    """The files of all compiled code of this processor and version."""
    return sorted(folder().glob("*.o"))


def statistics() -> dict[str, Any]:
    """Where the cache is; how many entries of code and how many plans it has, and their bytes, of all processors and versions."""
    sizes: dict[str, list[int]] = {".o": [], ".plan": []}
    for path in [file for other in _folders() for suffix in sizes for file in other.glob("*" + suffix)]:
        with suppress(OSError):
            sizes[path.suffix].append(path.stat().st_size)
    return {
        "directory": str(directory()), "entries": len(sizes[".o"]), "plans": len(sizes[".plan"]),
        "bytes": sum([sum(found) for found in sizes.values()]),
    }  # fmt: skip


def clear() -> int:
    """Delete all entries of all processors and versions; returns how many there were."""
    return sum([_delete(other) for other in _folders()])
