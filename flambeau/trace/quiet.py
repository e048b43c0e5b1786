"""No collection of garbage begins while any thread is where finalizers must not run.

The collector's switch is one for all threads: the first that comes turns it off, and the last that leaves turns it on again.
"""

from __future__ import annotations

import gc
import threading
from typing import Final

from flambeau.runtime import forking

_lock: Final = threading.RLock()  # a thread that comes must not take the switch of one that is leaving for the user's
forking.keep_out(_lock)
ALONE: Final = [False]  # whether the only thread that records, which needs no lock, has turned the collector off (evaluate.py)
_inside = 0  # threads, and calls of one thread inside of each other
_was_on = False  # the collector, before the first of them


def begin() -> None:
    """From now on nothing is collected."""
    global _inside, _was_on
    with _lock:
        if not _inside:
            _was_on = gc.isenabled() or ALONE[0]
        gc.disable()
        _inside += 1


def end() -> None:
    """For this thread collections may begin again. Also where an interrupt has kept it from beginning: better a collection too early than none any more."""
    global _inside
    with _lock:
        if _inside:
            _inside -= 1
        if not _inside and _was_on and not ALONE[0]:  # a debugger's look may be inside of what the only thread does
            gc.enable()
