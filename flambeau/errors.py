"""How errors are found and shown: each call tried where it stands (`set_sync`), tracebacks with or without our own frames."""

from __future__ import annotations

from flambeau import tracebacks
from flambeau.trace.recorder import SYNC, Trace, local
from flambeau.trace.traces import TRACES


def set_sync(mode: bool) -> None:
    """With True every call runs at once, so that what can only be found by running it (an index out of range among values that are computed, memory
    that cannot be had) is an error of that call. For debugging: calls run beside what is recorded, so results have the same bits as without, in
    about twice the time. FLAMBEAU_SYNC=1 switches it on from the start. TypeError unless `mode` is a bool.
    """
    if not isinstance(mode, bool):
        raise TypeError(f"set_sync(): argument 'mode' must be bool, not {type(mode).__name__}")
    if type(local.trace) is not Trace:
        raise RuntimeError("set_sync() must not be called inside of a transform or an operation's body")
    SYNC[0] = mode
    for tr in list(TRACES.values()):
        tr.mode_changed = True  # other threads see it from their next trace on
    local.main.set_stepwise(mode)


def is_sync() -> bool:
    """Whether every call runs at once: see `set_sync`."""
    return SYNC[0]


def set_traceback(mode: str) -> None:
    """Which frames tracebacks show: "short" (the default), the program's own; "full", flambeau's, too. FLAMBEAU_TRACEBACK says it from the start.

    ValueError for another word.
    """
    if mode not in ("short", "full"):
        raise ValueError(f"set_traceback(): argument 'mode' must be 'short' or 'full', got {mode!r}")
    tracebacks.FULL[0] = mode == "full"


__all__ = ["is_sync", "set_sync", "set_traceback"]
