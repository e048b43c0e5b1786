"""Compiled object code and plans on disk: one file an entry, in one folder for each (processor, version of the generators).

A file is a line that names the format, the SHA-256 of the content, the content. It is written under a temporary name
and then renamed, so that any number of processes may write at once. A lost, torn or foreign entry is only a miss. A
directory that cannot be written, or that somebody else could write to, switches the cache off and nothing else.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import stat
import time
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

from flambeau.runtime import target, whole_files

CLAIMS: Final = "claims"  # the file of locks of runtime/claims.py, beside the entries
_MAGIC: Final = b"flambeau object 1\n"
_HEAD: Final = len(_MAGIC) + hashlib.sha256().digest_size
_FOLDER: Final = re.compile(r".+-.+-\d+-[0-9a-f]{16}-[0-9a-f]{12}")  # see `folder`
_PLANS_BETWEEN: Final = 128  # how many a process stores between two looks at how many there are: a folder of 35,000 entries takes 100 ms
_MOST_PLANS: Final = 4000  # of a folder; the largest that were seen take 50 KB
_KEEP_SECONDS: Final = 30 * 86400  # folders of other versions that nothing was added to for so long are deleted


def directory() -> Path | None:
    """FLAMBEAU_CACHE_DIR, or flambeau/ in the user's cache directory; None, with a warning, where it is not safe.

    What is in it is executed. So it belongs to the user, nobody else may write to it (it is made with, or gets, the mode 0700), and its place
    does not depend on the working directory.
    """
    given = os.environ.get("FLAMBEAU_CACHE_DIR")
    if given:
        return _trusted(given)
    caches = os.environ.get("XDG_CACHE_HOME") or ""
    if not os.path.isabs(caches):  # as the XDG specification wants it
        caches = os.path.expanduser("~/.cache")
    return _trusted(os.path.join(caches, "flambeau"))


@cache
def _trusted(path: str) -> Path | None:
    """The folder if it is the user's own, now or once it is made; else a warning and None."""
    refusal = _why_not(path)
    if refusal:
        warnings.warn(f"flambeau keeps no compiled code on disk: {refusal}. Set FLAMBEAU_CACHE_DIR to a folder of your own.", RuntimeWarning, stacklevel=2)
        return None
    return Path(path)


def _why_not(path: str) -> str:
    """Why the folder cannot be trusted; empty if it can. Its mode is made 0700 where others could only read."""
    if not os.path.isabs(path):
        return f"the cache folder {path!r} is relative to the working directory"
    try:
        state = os.stat(path)
    except OSError:  # not there yet, or out of reach: `store` tries to make it
        return ""
    if not stat.S_ISDIR(state.st_mode):
        return f"{path} is not a folder"
    if state.st_uid != os.geteuid():
        return f"the folder {path} belongs to user {state.st_uid}, not to {os.geteuid()}"
    if state.st_mode & 0o022:
        return f"others may write to the folder {path} (mode {stat.S_IMODE(state.st_mode):04o}; chmod 700 it after a look at what is in it)"
    if stat.S_IMODE(state.st_mode) != 0o700:
        with suppress(OSError):
            os.chmod(path, 0o700)
    return ""


@cache
def version() -> str:
    """Changes with whatever writes IR or object code: the contents of our sources, llvmlite's version.

    Contents, not times: a copy, a fresh clone or a touched file finds the entries that it can use (reading 1 MB of sources takes 3 ms).
    """
    import llvmlite  # the package alone: this does not load LLVM

    root = Path(__file__).parent.parent
    compiler = root / "compiler"
    digest = hashlib.sha256(llvmlite.__version__.encode())
    for path in (compiler, *(compiler / room for room in ("emit", "kernels", "lower", "tile")), root / "tile", root / "tile" / "kernels", root / "runtime"):
        for name in sorted(os.listdir(path)):
            if name.endswith(".py") and (path.name != "runtime" or name in ("jit.py", "native.py", "target.py")):
                content = (path / name).read_bytes()
                digest.update(f"\n{path.name}/{name} {len(content)}\n".encode())
                digest.update(content)
    return digest.hexdigest()[:12]


def folder() -> Path | None:
    """Where the entries of this processor and version are; None without a cache."""
    root = directory()
    return None if root is None else root / f"{target.fingerprint()}-{version()}"


def _path(key: str, suffix: str = ".o") -> str | None:
    where = folder()
    return None if where is None else os.path.join(where, hashlib.sha256(key.encode()).hexdigest()[:32] + suffix)


def load(key: str, suffix: str = ".o") -> bytes | None:
    """The entry's content, or None. `suffix`: ".o" of object code, ".plan" of plans (compiler/stored_plan.py)."""
    path = _path(key, suffix)
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return None
    if not data.startswith(_MAGIC) or hashlib.sha256(data[_HEAD:]).digest() != data[len(_MAGIC) : _HEAD]:
        return None
    return data[_HEAD:]


def make_folder() -> None:
    """Make the folder of this processor and version, if it is not there. OSError if it cannot be made."""
    where = folder()
    if where is not None and not os.path.isdir(where):
        os.makedirs(os.path.dirname(where), mode=0o700, exist_ok=True)
        os.makedirs(where, mode=0o700, exist_ok=True)
        _delete_old()


def store(key: str, content: bytes, suffix: str = ".o") -> None:
    """Keep an entry; does nothing if the directory cannot be written."""
    path = _path(key, suffix)
    if path is None:
        return
    with suppress(OSError):
        where = os.path.dirname(path)
        make_folder()
        with whole_files.replacing(path, tidy=False) as file:
            file.write(_MAGIC + hashlib.sha256(content).digest() + content)
        _tidy_once(where)
        if suffix == ".plan" and next(_plans_stored) % _PLANS_BETWEEN == 0:
            _drop_plans(where)


_plans_stored = itertools.count()


@cache
def _tidy_once(where: str) -> None:
    """Once a process: what killed ones have left."""
    whole_files.remove_litter_in(where)


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
    root = directory()
    return [] if root is None else [path for path in root.glob("*-*-*") if _FOLDER.fullmatch(path.name) and path.is_dir()]


def _delete(other: Path) -> int:
    """Delete a folder of ours, but nothing that is not ours in it; returns how many entries there were."""
    files = [*other.glob("*.o"), *other.glob("*.plan")]
    for path in files:
        with suppress(OSError):
            path.unlink()
    whole_files.remove_litter_in(str(other))
    with suppress(OSError):
        other.joinpath(CLAIMS).unlink()
    with suppress(OSError):
        other.rmdir()
    return len(files)


def entries() -> list[Path]:
    """The files of all compiled code of this processor and version."""
    where = folder()
    return [] if where is None else sorted(where.glob("*.o"))


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
