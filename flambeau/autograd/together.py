"""Backward passes of several threads that add to the same `.grad`: one after the other, and what each has added has its value before the next one adds.

A program whose passes are all of one thread pays a look at the length of a set. As soon as a second thread begins one, passes end their traces
before they begin (as they do for hooks), and hold a lock while a gradient is added and computed. What is under way by then in the first thread is waited for.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any, Final

from flambeau.runtime import forking

if TYPE_CHECKING:
    from flambeau.trace.recorder import Trace

THREADS: Final[weakref.WeakSet[threading.Thread]] = weakref.WeakSet()  # that have begun a pass
_alone: Final[set[int]] = set()  # identities of threads whose passes began when no other had one
_ADDING: Final = threading.RLock()
_BEGINNING: Final = threading.RLock()  # held while the set is changed or read
forking.keep_out(_ADDING)
forking.keep_out(_BEGINNING)
_NAP: Final = 5e-5  # seconds
_PATIENCE: Final = 1.0  # a pass may itself wait for this thread (in a hook): then it is no longer waited for


def begin(tr: Trace, flush: Callable[[Trace, str], Any]) -> bool:
    """Whether other threads have passes beside one that begins now. Then what the first of them has under way has ended, and this trace, too."""
    if tr.thread not in THREADS:
        with _BEGINNING:
            THREADS.add(tr.thread)
    if len(THREADS) < 2:
        return False
    with _BEGINNING:  # others begin meanwhile
        threads = list(THREADS)
    if not any(t is not tr.thread and t.is_alive() for t in threads):
        return False
    this, until = threading.get_ident(), perf_counter() + _PATIENCE
    while _alone - {this} and perf_counter() < until:
        sleep(_NAP)
    flush(tr, "backward passes of several threads")
    return True


def pass_of(beside: bool, function: Callable[[], Any]) -> Any:
    """Run a pass: alone, so that others wait for its end before they begin, or beside those of other threads."""
    this = threading.get_ident()
    if beside or this in _alone:  # or inside of another pass
        return function()
    _alone.add(this)
    try:
        return function()
    finally:
        _alone.discard(this)


def add(tr: Trace, flush: Callable[[Trace, str], Any], function: Callable[..., None], *args: Any) -> None:
    """Add to a gradient that other threads add to."""
    with _ADDING:
        function(*args)
        flush(tr, "a gradient that other threads add to")
