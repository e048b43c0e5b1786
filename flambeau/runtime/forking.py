"""What must be so when a process forks beside other threads: nobody is inside LLVM, inside our JIT, or in the middle of an import.

The child has only the thread that forked. A lock that another thread held stays held in it for ever, and what that thread was building
stays half built. So the fork waits until those threads are out, and keeps them out while it happens.
"""

from __future__ import annotations

import _imp
import importlib
import os
import sys
import threading
import time
from contextlib import suppress
from typing import Any

_PATIENCE = 3.0  # seconds to wait for imports of other threads: a module that is a whole program would not end
_PAUSE = 0.001  # seconds between two looks
_LOCKS: list[Any] = []  # of ours


def _others_import() -> bool:
    """Whether another thread is executing a module (the locks of modules, which no child could take)."""
    me = threading.get_ident()
    locks = getattr(importlib._bootstrap, "_module_locks", {})  # type: ignore[attr-defined]
    for reference in list(locks.values()):
        lock = reference()
        owner = getattr(lock, "owner", None)
        if owner is not None and owner != me:
            return True
    return False


def _llvm_lock() -> Any:
    """llvmlite's own lock, if it is loaded."""
    module = sys.modules.get("llvmlite.binding.ffi")
    return getattr(getattr(module, "lib", None), "_lock", None)


_forking = threading.Lock()  # one fork at a time
_held: list[Any] = []  # by the thread that forks


def _take(first: int) -> int | None:
    """Wait for one of the locks, and take all others if they are free; if one is not, take none and say which.

    Who waits for a lock while holding another waits for ever if another thread takes the two in the other order.
    """
    locks = [lock for lock in (_forking, *_LOCKS, getattr(_llvm_lock(), "_lock", None)) if lock is not None]
    mine = [locks[first]]
    mine[0].acquire()
    for k, lock in enumerate(locks):
        if k != first:
            if not lock.acquire(blocking=False):
                _release(mine)
                return k
            mine.append(lock)
    _held[:] = mine
    _imp.acquire_lock()  # while it is held no import begins
    return None


def _before() -> None:
    end = time.monotonic() + _PATIENCE
    first = 0
    while True:
        missing = _take(first)
        if missing is not None:
            first = missing
            continue
        if not _others_import() or time.monotonic() > end:
            return
        _after()  # an import may itself need one of the locks
        time.sleep(_PAUSE)


def _release(locks: list[Any]) -> None:
    for lock in reversed(locks):
        lock.release()


def _after() -> None:
    with suppress(RuntimeError):  # not held: another version of Python has cleared it in the child
        _imp.release_lock()
    mine = _held.copy()  # whoever takes the locks next has the list
    _held.clear()
    _release(mine)


def keep_out(lock: Any) -> None:
    """Take this re-entrant lock before every fork, and release it after, in parent and child."""
    if not _LOCKS and hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
    _LOCKS.append(lock)
