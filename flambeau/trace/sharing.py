"""Before a thread writes to what other threads' pending calls have yet to read: they keep what it is now.

In an eager program those calls have read it by then. So a trace that has the storage among its inputs is given a copy of its content, and its tensors
over that memory no longer know a slot: when they are used again, they are read anew, with the write in them. Where one of them has its history from a
call that is still pending, the trace is taken (elsewhere.py) and run instead, if its thread is between two calls.
"""

from __future__ import annotations

from collections.abc import Iterable
from ctypes import memmove
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Final

from flambeau.runtime.buffers import allocate
from flambeau.trace.elsewhere import NAP, run_taken, take, without_history
from flambeau.trace.recorder import Trace
from flambeau.trace.storage import Storage
from flambeau.trace.traces import SHARED, SHARING, TAKEN, holder, holders, note, release

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

_PATIENCE: Final = 0.02  # seconds in which a trace is to be taken, else its gradients go without what is written over


def make_own(tr: Trace, storages: Iterable[Storage]) -> None:
    """Before `tr`, which has them among its inputs, writes to these: no other trace reads them from now on."""
    for storage in storages:
        if storage.gen == SHARED:
            leave_to_others(storage, tr)
            with SHARING:
                root = tr.shared.pop(storage, -1)
                if storage.gen == SHARED and root >= 0:
                    storage.slot = storage.origin = root
                    storage.gen = tr.gen


def leave_to_others(storage: Storage, writer: Trace) -> None:
    """Before the memory is written to: traces other than the writer's keep what it is now."""
    until = perf_counter() + _PATIENCE
    with SHARING:
        alone = holder(storage.gen)
        if alone is not None and alone is not writer and storage.has_value():
            note(alone, storage)
            storage.gen = SHARED
    if storage.gen != SHARED:
        return
    while others := [tr for tr in holders(storage) if tr is not writer and (storage in tr.shared or tr.thread is not writer.thread)]:
        for other in others:
            if other.running >= 0 and storage in other.reading:
                sleep(NAP)  # until its run has ended
            elif other not in TAKEN.values() and perf_counter() < until and any(t._storage is storage and without_history(t) for t in _tensors(other)):
                gen = other.gen
                take(other, gen)
                if gen in TAKEN:
                    run_taken(gen)
            else:
                _leave_copy(storage, other)
    release((), -1, {storage: -1})


def _tensors(tr: Trace) -> list[Tensor]:
    return [*tr.tensors, *tr.resolved]


def _leave_copy(storage: Storage, other: Trace) -> None:
    """Give a trace a copy of one of its inputs."""
    buffer = storage.buffer
    assert buffer is not None
    kept = Storage(buffer)
    if buffer.address:
        kept.buffer = allocate(buffer.nbytes)
        memmove(kept.buffer.address, buffer.address, buffer.nbytes)
    kept.version, kept.history, kept.result, kept.cut, kept.family = storage.version, storage.history, storage.result, storage.cut, storage.family
    with SHARING:
        gen, inputs = other.gen, other.inputs
        root = other.shared.get(storage)
        if root is None:
            return  # it has begun to run meanwhile
        for t in _tensors(other):
            if t._storage is storage and t._gen == gen and not without_history(t):
                t._gen = -1
        kept.gen, kept.slot, kept.origin = gen, root, root
        for i, known in enumerate(inputs):
            if known is storage:
                inputs[i] = kept
        other.shared.pop(storage, None)
