"""The thread team: Python threads that live in native code (no GIL), spin for a while after each phase, then sleep.

Started at the first parallel phase; a forked child starts its own.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import platform
import struct
import threading
from typing import Any

from flambeau.runtime import native, target

_SPINS = 4000  # spin-wait hints before a worker sleeps: some 50 to 100 microseconds
_MOST = 64  # lanes of the team structure

_count = min(target.usable_processors(), _MOST)
_team: Team | None = None
_lock = threading.Lock()


def count() -> int:
    """The number of threads a plan may use, the calling one included."""
    return _count


get_num_threads = count


def set_num_threads(n: int) -> None:
    """Use `n` threads from now on. Results do not depend on it."""
    global _count
    if not isinstance(n, int) or isinstance(n, bool):
        raise TypeError(f"set_num_threads expects an int, but got {type(n).__name__}")
    if n < 1:
        raise RuntimeError(f"set_num_threads expects a positive integer, got {n}")
    _count = min(n, _MOST)


def module() -> tuple[str, Any]:
    """(key, emit) of the runtime's native code."""
    from flambeau.runtime.jit import symbol

    key = f"{native.KEY} {platform.machine()}"

    def emit() -> str:
        call, declaration = native.pause_instruction(platform.machine())
        return native.text(symbol(key)).replace("PAUSE", call) + declaration + "\n"

    return key, emit


class Team:
    """The shared structure and its threads."""

    def __init__(self) -> None:
        self.memory = ctypes.create_string_buffer(native.TEAM_BYTES + 64)
        self.address = (ctypes.addressof(self.memory) + 63) & -64
        self.semaphores = ctypes.create_string_buffer(64 * _MOST)
        self.workers: list[threading.Thread] = []
        self._write(80, _SPINS)
        libc = ctypes.CDLL(None)
        self._sem_post = libc.sem_post
        for w in range(_MOST):
            at = ctypes.addressof(self.semaphores) + 64 * w
            libc.sem_init(ctypes.c_void_p(at), 0, 0)
            self._write(native.WORKERS_AT + 64 * w + 8, at)

    def _write(self, offset: int, value: int) -> None:
        ctypes.memmove(self.address + offset, struct.pack("<q", value), 8)

    def grow(self, lanes: int) -> None:
        """Have a worker for each lane but the caller's."""
        from flambeau.runtime import jit

        jit.function(*module())
        worker = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(jit.export(module()[0], "_worker"))
        while len(self.workers) < lanes - 1:
            lane = len(self.workers) + 1
            thread = threading.Thread(target=worker, args=(self.address, lane), name=f"flambeau-{lane}", daemon=True)
            self.workers.append(thread)
            thread.start()

    def stop(self) -> None:
        """End the threads: at exit."""
        self._write(56, 1)
        for w in range(1, len(self.workers) + 1):
            self._sem_post(ctypes.c_void_p(ctypes.addressof(self.semaphores) + 64 * w))
        for thread in self.workers:
            thread.join(0.5)


def team(lanes: int) -> int:
    """The address of the team with at least `lanes` lanes (0: no team, run alone)."""
    global _team
    if lanes < 2 or platform.system() != "Linux":  # semaphores in memory are a Linux matter; elsewhere the caller works alone
        return 0
    found = _team
    if found is None or len(found.workers) < lanes - 1:
        with _lock:
            if _team is None:
                _team = Team()
            _team.grow(lanes)
            found = _team
    return found.address


def _after_fork() -> None:
    """A child has none of the parent's threads."""
    global _team, _lock
    _team = None
    _lock = threading.Lock()


def _at_exit() -> None:
    if _team is not None:
        _team.stop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
