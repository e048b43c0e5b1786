"""Files that appear whole or not at all: written under a temporary name in the same folder, then renamed.

A process that is killed meanwhile leaves its temporary file. The writer holds a lock on it, which the system takes away with the process: so the
next one that writes the same file finds what has no owner any more, on this or another machine, and removes it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, Final

_SUFFIX: Final = ".flambeau-part"
_LONGEST: Final = 120  # characters of a file's name that its temporary file shows: names have 255 bytes at most


@contextmanager
def replacing(path: Any, *, tidy: bool = True) -> Iterator[IO[bytes]]:
    """A binary file to write to. It is found under `path` once the block has ended without an error; else `path` is as it was.

    A link is followed, as by `open`, and an existing file keeps its permissions. What is no regular file (a pipe, /dev/stdout), or lies in a folder where
    no file can be made, is written to directly. `tidy`: look for what killed processes have left of the same file. OSError as of `open`.
    """
    target = os.path.realpath(os.fspath(path))
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        mode = 0
    handle, temporary = -1, ""
    if not mode or stat.S_ISREG(mode):
        if tidy:
            remove_litter(target)
        try:
            handle, temporary = _locked_temporary(target)
        except PermissionError:
            if not os.access(target, os.W_OK):
                raise
    if not temporary:
        with open(target, "wb") as file:
            yield file
        return
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            os.fchmod(file.fileno(), stat.S_IMODE(mode) if mode else 0o666 & ~_mask())  # mkstemp makes it private
            file.flush()
            os.replace(temporary, target)  # while the lock is held
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def remove_litter(target: str) -> int:
    """Remove the temporary files of writers of this file that are no longer there; returns how many."""
    return remove_litter_in(os.path.dirname(target) or ".", _prefix(target))


def remove_litter_in(folder: str, prefix: str = ".") -> int:
    """Remove what writers that are no longer there have left in a folder; returns how many files."""
    removed = 0
    with suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(prefix) and name.endswith(_SUFFIX):
                removed += _remove_unowned(os.path.join(folder, name))
    return removed


def _remove_unowned(path: str) -> bool:
    try:
        handle = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)
        return True
    except OSError:  # somebody is writing it, or it has just become the file
        return False
    finally:
        os.close(handle)


def _locked_temporary(target: str) -> tuple[int, str]:
    while True:
        handle, path = tempfile.mkstemp(suffix=_SUFFIX, prefix=_prefix(target), dir=os.path.dirname(target) or ".")
        with suppress(OSError):  # a file system without locks: litter stays there
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            if os.stat(path).st_ino == os.fstat(handle).st_ino:
                return handle, path
        except FileNotFoundError:
            pass  # somebody tidied up before it was locked
        os.close(handle)


def _prefix(target: str) -> str:
    """The beginning of the temporary files' names: hidden, and another for each target."""
    name = os.path.basename(target)
    if len(name) <= _LONGEST:
        return f".{name}."
    return f".{name[:_LONGEST]}~{hashlib.sha256(os.fsencode(name)).hexdigest()[:12]}."


def _mask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
