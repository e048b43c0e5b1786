"""torch.multiprocessing: Python's multiprocessing, through which tensors travel as shared memory (reductions.py), and `spawn`."""

from __future__ import annotations

import multiprocessing as _multiprocessing
import sys as _sys
from multiprocessing import *
from typing import TYPE_CHECKING
from typing import Any as _Any

from flambeau.runtime.shared_memory import note_owner as _note_owner

if TYPE_CHECKING:
    from flambeau.multiprocessing.spawn import (
        ENV_VAR_PARALLEL_START,
        ProcessContext,
        ProcessExitedException,
        ProcessRaisedException,
        SpawnContext,
        spawn,
        start_processes,
    )  # fmt: skip

__all__ = ["get_all_sharing_strategies", "get_sharing_strategy", "set_sharing_strategy", *_multiprocessing.__all__]

_strategies = {"file_system"} if _sys.platform in ("darwin", "win32") else {"file_descriptor", "file_system"}
_strategy = "file_system" if _sys.platform in ("darwin", "win32") else "file_descriptor"


def set_sharing_strategy(new_strategy: str) -> None:
    """How shared memory is handed over: "file_descriptor" (open files, the default on Linux) or "file_system" (by name)."""
    global _strategy
    if new_strategy not in _strategies:
        raise AssertionError(f"invalid sharing strategy {new_strategy!r}, expected one of {_strategies}")
    _strategy = new_strategy


def get_sharing_strategy() -> str:
    """The present strategy."""
    return _strategy


def get_all_sharing_strategies() -> set[str]:
    """The strategies that this system has."""
    return _strategies


from flambeau.multiprocessing import reductions as reductions
from flambeau.multiprocessing.queues import JoinableQueue, Queue, get_context
from flambeau.multiprocessing.spawn import (
    ENV_VAR_PARALLEL_START,
    ProcessContext,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
    start_processes,
)  # fmt: skip

_MISSING: _Any = object()


def __getattr__(name: str) -> _Any:
    if name.startswith("__"):
        raise AttributeError(name)
    found = getattr(_multiprocessing, name, _MISSING)
    if found is _MISSING:
        from flambeau.names import otherwise

        return otherwise("torch.multiprocessing", name, dir(_multiprocessing))
    return found


reductions.init_reductions()
_note_owner()
