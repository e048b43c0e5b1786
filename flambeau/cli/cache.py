"""`flambeau cache`: what is in the cache of compiled code, emptying it, and filling it before it is needed."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Any

from flambeau.runtime import object_cache, twice
from flambeau.runtime.signals import caught
from flambeau.statistics import counters


def show_cache(action: str) -> int:
    """Print the cache's place and size; with "clear", delete its entries."""
    if action == "clear":
        print(f"deleted {object_cache.clear()} entries of {object_cache.directory()}")
        return 0
    for name, value in object_cache.statistics().items():
        print(f"{name:<12} {value}")
    return 0


class _Settled(BaseException):
    """Ends the script from outside: no `except Exception` of its own shall catch it."""


def warm(script: str, arguments: Sequence[str], settled: float | None) -> int:
    """Run the script, so that all its kernels are on disk, and say how many were new.

    With `settled`, the script ends when no plan was made for so many seconds (where the system has timers: not on Windows);
    without, it runs to its end. Returns the script's exit status.
    """
    from flambeau.cli.run import missing, run
    from flambeau.trace import evaluate

    if missing(script, "cache warm"):
        return 2
    status = 0
    timed = settled is not None and hasattr(signal, "setitimer")

    def again(plan: Any, reason: str) -> None:
        assert settled is not None
        signal.setitimer(signal.ITIMER_REAL, settled)

    def stop(number: int, frame: Any) -> None:
        raise _Settled

    try:
        with caught([signal.SIGALRM] if timed else [], stop):
            try:
                if timed:
                    evaluate.OBSERVERS.append(again)
                    again(None, "")
                status = run([script, *arguments])
            finally:
                if timed:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    evaluate.OBSERVERS.remove(again)
    except _Settled:
        print(f"nothing was compiled for {settled:g} seconds: the script was ended")
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    twice.settle()
    print(f"compiled {counters.kernels_compiled} kernels, found {counters.kernels_from_disk} on disk, in {object_cache.folder()}")
    return status
