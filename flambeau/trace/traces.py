"""The traces of all threads, by their generations, and the inputs that several of them have at once.

A storage knows one name: (generation, slot) in the trace that has it. What two traces have as an input is SHARED: each keeps its own slot of it in
`Trace.shared`, and nobody writes to it before the others have what it is now (sharing.py).
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from flambeau.runtime import forking

if TYPE_CHECKING:
    from flambeau.tensor import Tensor
    from flambeau.trace.recorder import Trace
    from flambeau.trace.state import State
    from flambeau.trace.storage import Storage

TRACE_SLOTS: Final = 1 << 16  # generation % TRACE_SLOTS is the index of the trace
SHARED: Final = (1 << 62) - 1  # a generation that no trace has: native code, which knows nothing of other traces, leaves such a storage alone
NOWHERE: Final = -1  # the index of a trace that is not one of these
TRACES: Final[dict[int, Trace]] = {}
TAKEN: Final[dict[int, Trace]] = {}  # by generation: what another thread has taken and has not run yet (elsewhere.py)
TAKING: Final = threading.RLock()  # held while a trace is taken from its thread, or is that of one that has ended, and while it is run
ENDING: Final[dict[int, int]] = {}  # by index: the identity of the thread that runs what a thread that has ended left pending
forking.keep_out(TAKING)
SHARING: Final = threading.RLock()  # held while a tensor is made known to one of several traces, and while one of them writes
forking.keep_out(SHARING)
_indices = itertools.count()
_last_generations: Final[dict[int, int]] = {}  # by index: of the trace that had it last, and is gone


def add(tr: Trace) -> Trace:
    """Give a trace an index that no other has, and a generation that none ever had: tensors of traces that are gone keep theirs."""
    for number in _indices:
        index = number % TRACE_SLOTS
        if TRACES.setdefault(index, tr) is tr:
            tr.index, tr.gen = index, _last_generations.get(index, index) + TRACE_SLOTS
            break
    return tr


def remove(tr: Trace) -> None:
    """A trace is gone; its index is another's in time."""
    if TRACES.get(tr.index) is tr:
        _last_generations[tr.index] = tr.gen
        del TRACES[tr.index]


def trace_of(gen: int) -> Trace | None:
    """The trace that has, or had, this generation; None if it is gone, or if it is of no trace."""
    return TRACES.get(gen % TRACE_SLOTS) if gen >= 0 else None


def roots() -> list[State]:
    """The roots of the tries of all threads."""
    return [root for tr in list(TRACES.values()) for root in list(tr.roots.values())]


def holder(gen: int) -> Trace | None:
    """What has this generation pending, or runs it."""
    taken = TAKEN.get(gen)
    if taken is not None:
        return taken
    tr = trace_of(gen)
    return tr if tr is not None and gen in (tr.gen, tr.running) else None


def holders(storage: Storage) -> Iterator[Trace]:
    """The traces that have a shared storage among their inputs, pending or running."""
    for tr in (*TRACES.values(), *TAKEN.values()):
        if storage in tr.shared or (storage in tr.reading and tr.running >= 0):
            yield tr


def note(other: Trace, storage: Storage) -> None:
    """Another thread's trace, which had this storage as its own a moment ago, shares it from now on; if it has not ended since.

    Between a comparison and what it decides is no call: threads switch at calls and jumps only.
    """
    gen, slot = storage.gen, storage.slot
    if gen in TAKEN:
        other = TAKEN[gen]
    if other.running == gen:  # first: for a moment a trace that begins to run has both
        other.reading[storage] = slot
    elif other.gen == gen:
        other.shared[storage] = slot


def enter(tr: Trace, storage: Storage, root: int) -> None:
    """A storage that has its value is an input of `tr` from now on, under this slot."""
    with SHARING:
        other = holder(storage.gen)
        if other is tr or (other is not None and tr.claims is not None and other.thread is tr.thread):
            other = None  # a trace of finalizers stands in for the one that they have interrupted, which gets its names back
        if other is None and storage.gen != SHARED:
            storage.slot = storage.origin = root
            storage.gen = tr.gen
            return
        if other is not None:
            note(other, storage)
        tr.shared[storage] = root
        storage.gen = SHARED


def named(tr: Trace, storage: Storage, function: Callable[[Tensor], int], t: Tensor) -> int:
    """`function(t)`, while a shared storage has the name that it has in `tr`."""
    storage.slot = storage.origin = tr.shared[storage]
    storage.gen = tr.gen
    try:
        return function(t)
    finally:
        storage.gen = SHARED


def release(inputs: Iterable[Storage], gen: int, names: dict[Storage, int]) -> None:
    """The generation has ended: its inputs are no longer its own. `names`: those that were shared."""
    for storage in inputs:
        if storage.gen == gen:
            storage.gen = -1
    if names and SHARING.acquire(blocking=False):  # who has it may wait for this; what is left SHARED costs its next reader some time
        try:
            for storage in names:
                if storage.gen == SHARED and next(holders(storage), None) is None:
                    storage.gen = -1
        finally:
            SHARING.release()
