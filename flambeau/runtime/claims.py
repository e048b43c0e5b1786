"""Claims: processes that want the same entry of the cache at the same time make it once.

Ranks of one program reach the same kernels and plans together. A claim is a lock on one byte of a file in the cache's folder, at the place that a hash of the
entry's key gives. It goes with the process that has it, however that ends. Whoever finds an entry claimed makes others first, or waits, and then loads it;
after `PATIENCE` seconds (a process that is stopped keeps what it has) it makes the entry itself. Nobody waits for one while having another of the same kind,
so that no two wait for each other. Where the system has no such locks, or there is no cache, everybody makes everything.
"""

from __future__ import annotations

import hashlib
import os
import struct
import threading
import time
from contextlib import suppress
from typing import Final

from flambeau.runtime import object_cache

PATIENCE: Final = 20.0  # seconds: more than any one entry takes on a busy machine
_FIRST_PAUSE: Final = 0.0005
_LONGEST_PAUSE: Final = 0.02
_PLACES: Final = 1 << 62

_mutex = threading.Lock()
_file: list[int] = []  # the open file of claims


def _command() -> int | None:
    """The number of the call that sets a lock of an open file (not of a process: those are lost when any file of the same name is closed)."""
    try:
        import fcntl
    except ImportError:
        return None
    return getattr(fcntl, "F_OFD_SETLK", None)


_SET: Final = _command()


def _open() -> int | None:
    """The file of claims; None where there is none."""
    with _mutex:
        if _file and os.fstat(_file[0]).st_nlink:
            return _file[0]
        where = object_cache.folder()
        if where is None:
            return None
        object_cache.make_folder()
        found = os.open(os.path.join(where, object_cache.CLAIMS), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if _file:  # the cache was emptied since
            os.close(_file[0])
        _file[:] = [found]
        return found


def _place(key: str) -> int:
    """Where the byte of a key lies in the file, which has no bytes: locks need none."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little") % _PLACES


def _lock(key: str, exclusive: bool) -> bool:
    """Set or take back the lock of a key; False if another process has it."""
    if _SET is None:
        return True
    import fcntl

    kind = fcntl.F_WRLCK if exclusive else fcntl.F_UNLCK
    try:
        file = _open()
        if file is not None:
            fcntl.fcntl(file, _SET, struct.pack("hhqqi4x", kind, os.SEEK_SET, _place(key), 1, 0))
    except (BlockingIOError, PermissionError):
        return False
    except OSError:  # a folder that cannot be written, a file system without locks
        return True
    return True


def claim(key: str) -> bool:
    """Claim an entry, for this process; False if another process has it. Look into the cache once more then: it may have been made just now."""
    return _lock(key, True)


def release(key: str) -> None:
    """Take a claim back, once the entry is stored or given up."""
    _lock(key, False)


def wait(key: str, patience: float = PATIENCE) -> bool:
    """Wait until nobody else has claimed an entry, and claim it; False if another process has it for longer than that many seconds."""
    end = time.monotonic() + patience
    pause = _FIRST_PAUSE
    while not claim(key):
        if time.monotonic() >= end:
            return False
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
    return True


def _after_fork() -> None:
    """A child's claims are its own: by the same open file they would be its parent's."""
    global _mutex
    _mutex = threading.Lock()  # another thread may have had it
    for file in _file:
        with suppress(OSError):
            os.close(file)
    _file.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
