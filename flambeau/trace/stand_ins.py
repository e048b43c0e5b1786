"""What stands in a trace for a tensor that another thread has pending, in the middle of a call.

Such a thread cannot give up its trace (elsewhere.py), and its tensor keeps the name that it has there. The trace that wants to record with it has another
object in its place: over a value that was computed beside, and with the tensor's own history, which is asked for only when a gradient gets there.
By then the trace in which it was pending has ended, as a rule.
"""

from __future__ import annotations

import threading
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from flambeau.runtime import forking
from flambeau.trace.elsewhere import GIVE_UP, NAP, evaluate_elsewhere, is_elsewhere, run_taken, take, without_history
from flambeau.trace.evaluate import flush
from flambeau.trace.objects import from_storage, is_view
from flambeau.trace.recorder import Boundary, Trace, storage_of
from flambeau.trace.traces import SHARING, TAKEN, named, trace_of

if TYPE_CHECKING:
    from flambeau.tensor import Tensor
    from flambeau.trace.storage import Storage

_late: Final[WeakSet[LateBoundary]] = WeakSet()  # those whose histories nobody has asked for yet
MADE: Final = [False]  # whether there ever was one
_lock: Final = threading.Lock()  # held while that set is changed or read
forking.keep_out(_lock)


class LateBoundary(Boundary):
    """A boundary of a tensor whose history another thread has pending."""

    __slots__ = ("__weakref__", "known")

    def __init__(self, tensor: Tensor, version: int) -> None:
        self.tensor = tensor
        self.version = version
        self.known: tuple[Any, int] | None = None
        MADE[0] = True
        with _lock:
            _late.add(self)

    @property
    def settled(self) -> bool:  # type: ignore[override]
        """Whether its history was asked for before."""
        return self.known is not None

    @property
    def history(self) -> tuple[Any, int]:  # type: ignore[override]
        """Where gradients lead on to."""
        if self.known is None:
            self.known = _history_of(self.tensor, self.version)
            with _lock:
                _late.discard(self)
        return self.known


class _Unknown:
    """What a stand-in has for a segment, until its boundary is made."""

    order = float("inf")  # no write is later


_UNKNOWN: Final[Any] = (_Unknown(), -1)


def bring(tr: Trace, t: Tensor) -> int:
    """Let what `tr` is about to record with have its value, and its history, if another trace has them pending.

    The slot of what stands for it, where its thread is in the middle of a call; else -1.
    """
    known = tr.stand_ins.get(id(t))
    if known is not None:
        made, storage, version = known[1:]
        if t._storage is storage and storage.version == version:
            return tr.slot_of(made)
        del tr.stand_ins[id(t)]
    if not is_elsewhere(tr, t):
        return -1
    storage = evaluate_elsewhere(t, to_record=True)
    if t._storage is storage and not is_elsewhere(tr, t):
        return -1
    return _stand_in(tr, t, storage)


def own(tr: Trace, t: Tensor) -> None:
    """Before a write to a tensor: `tr` has it under its own name, not by a stand-in."""
    if tr.stand_ins.pop(id(t), None) is not None or is_elsewhere(tr, t):
        storage = evaluate_elsewhere(t, to_record=True, to_write=True)
        with SHARING:
            _resolve(tr, t, storage)


def _stand_in(tr: Trace, t: Tensor, storage: Storage) -> int:
    """The slot of a new stand-in over this value."""
    m = t._meta
    memory = storage_of(t)  # views of `t` share it
    if storage is not memory:
        storage.version, storage.family = memory.version, t._detached
    made = from_storage(storage, m, offset=t._offset if m.dynamic else 0)
    made._detached, made._view = t._detached, is_view(t)
    late = without_history(t)
    made._history = _UNKNOWN if late else t._history
    tr.stand_ins[id(t)] = t, made, memory, memory.version
    with SHARING:
        slot = _resolve(tr, made, storage)
    if slot in tr.boundaries:
        boundary = tr.boundaries[slot] = LateBoundary(t, memory.version) if late else Boundary(t, t._history)
        boundary.version = memory.version
        if t._hooks and not late:
            tr.hooked[slot] = t
    return slot


def _resolve(tr: Trace, t: Tensor, storage: Storage) -> int:
    """The slot of a tensor over this storage, which has its value."""
    return named(tr, storage, tr._resolve, t) if storage in tr.shared else tr._resolve(t)


def _history_of(t: Tensor, version: int) -> tuple[Any, int]:
    """The history of a tensor that another thread had pending; waits for that thread if it has to."""
    until, lost = perf_counter() + GIVE_UP, 0
    while t._history is None and lost < 3:
        gen = t._gen
        owner = trace_of(gen)
        if gen in TAKEN:
            run_taken(gen)
        elif owner is not None and owner.running == gen:
            sleep(NAP)
        elif owner is None or owner.gen != gen:
            lost += 1  # or it has got its history since we looked
        elif owner.thread is threading.current_thread() or perf_counter() > until:
            raise RuntimeError(
                f"the gradient of a tensor of shape {tuple(t._meta.shape)} leads into thread {owner.thread.name!r}, which has recorded it and is in the "
                "middle of a call (of a hook, or a custom function): call backward when that call has ended"
            )
        else:
            take(owner, gen)
    history, storage = t._history, t._storage
    if history is None or storage is None or storage.version != version:
        raise RuntimeError(
            f"the gradient of a tensor of shape {tuple(t._meta.shape)} cannot be followed: when it was used, another thread had it pending, and "
            + ("has written to it since: use a clone() of it" if history is not None else "what it had recorded has failed")
        )
    return history


def settle(tr: Trace) -> None:
    """Before a backward pass of the thread of `tr`: what other threads have used while this one was in the middle of a call is no longer pending here."""
    if not _late:
        return
    with _lock:
        waiting = [b.tensor for b in _late]
    if any(t._history is None and t._gen == tr.gen for t in waiting):
        flush(tr, "used by another thread")
