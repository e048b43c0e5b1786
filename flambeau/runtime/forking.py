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
_LOCKS: list[Any] = []  # of ours, in the order in which they are taken


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


_held: list[Any] = []


def _before() -> None:
    end = time.monotonic() + _PATIENCE
    while True:
        for lock in (*_LOCKS, getattr(_llvm_lock(), "_lock", None)):
            if lock is not None:
                lock.acquire()
                _held.append(lock)
        _imp.acquire_lock()  # while it is held no import begins
        if not _others_import() or time.monotonic() > end:
            return
        _after()  # an import may itself need one of the locks
        time.sleep(_PAUSE)


def _after() -> None:
    with suppress(RuntimeError):  # not held: another version of Python has cleared it in the child
        _imp.release_lock()
    while _held:
        _held.pop().release()


def keep_out(lock: Any) -> None:
    """Take this re-entrant lock before every fork, and release it after, in parent and child."""
    if not _LOCKS and hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
    _LOCKS.append(lock)
