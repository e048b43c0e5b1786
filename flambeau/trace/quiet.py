"""No collection of garbage begins while any thread is where finalizers must not run.

The collector's switch is one for all threads: the first that comes turns it off, and the last that leaves turns it on again.
"""

from __future__ import annotations

import gc
from typing import Final

_inside: Final = [0, False]  # how many threads, and whether the collector was on before. No call stands between reading and writing: no switch of threads


def begin() -> None:
    """From now on nothing is collected."""
    on = gc.isenabled()
    if not _inside[0]:
        _inside[1] = on
    _inside[0] += 1
    gc.disable()


def end() -> None:
    """For this thread collections may begin again."""
    _inside[0] -= 1
    if not _inside[0] and _inside[1]:
        gc.enable()
