"""Tensors that another thread has pending: their values, and their histories, for a thread that reads them or records with them.

What is pending belongs to the thread that has recorded it, and that thread may be anywhere. If it is between two calls (waiting for this one, say), its
trace is *taken*: it is left with a new one, and what it had is run here, as if it had looked at a value itself. So results, gradients and writes
are what they are in one thread.

Nothing locks a trace, as that would cost every call. What makes the taking safe is the interpreter's own lock: a thread that has just slept has it for
itself until others have waited for a switch interval (`sys.setswitchinterval`, 5 ms). Within that time this thread looks where the other one stands and,
if that is outside of the engine, exchanges the trace.

A thread that is in the middle of a call (of a hook, a custom function, or of a collection of garbage whose finalizer reads here) cannot give up its
trace. Then the value alone is computed beside it; where it is recorded with, something stands in for it (stand_ins.py).
"""

from __future__ import annotations

import sys
import threading
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any, Final

from flambeau.trace import quiet
from flambeau.trace.blank import blank
from flambeau.trace.evaluate import flush, graph_of
from flambeau.trace.finalizers import records_aside
from flambeau.trace.meta import CPU
from flambeau.trace.recorder import Trace, local, storage_of
from flambeau.trace.state import State
from flambeau.trace.storage import Storage
from flambeau.trace.traces import ENDING, TAKEN, TAKING, TRACE_SLOTS, trace_of
from flambeau.trace.whereabouts import between_calls

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

NAP: Final = 5e-5  # seconds
_INTERVAL: Final = 0.005  # seconds between switches of threads while a trace is taken
_PATIENCE: Final = 0.1  # seconds until a value is computed beside a thread that is in the middle of a call
_PATIENCE_TO_RECORD: Final = 0.5  # the same where the tensor is recorded with
GIVE_UP: Final = 5.0  # seconds after that, where that cannot be done
_started: Final[set[int]] = set()  # of what is taken, what is being run


def is_elsewhere(tr: Trace, t: Tensor) -> bool:
    """Whether the value of `t`, or its history, is pending in another trace than `tr`."""
    storage, gen = t._storage, t._gen
    owner = trace_of(gen)
    if tr.claims is not None:
        keeper = owner if storage is None or storage.gen < 0 else trace_of(storage.gen)
        if keeper is not None and keeper.thread is tr.thread:
            return False  # a trace of finalizers notes first what it takes from the trace that they have interrupted
    if storage is None:
        return gen != tr.gen and t._immediate is None
    if gen in TAKEN or (owner is not None and owner is not tr and (owner.running == gen or (owner.gen == gen and without_history(t)))):
        return True
    return storage.gen >= 0 and storage.gen != tr.gen and not storage.has_value()


def without_history(t: Tensor) -> bool:
    """Whether gradients lead on from `t`, but nobody knows yet where to: the trace that made it, a view, say, has not ended."""
    return t._history is None and t._meta.requires_grad and not t._meta.leaf


def evaluate_elsewhere(t: Tensor, to_record: bool = False, to_write: bool = False) -> Storage:
    """The storage of a tensor that is pending in another trace, once it has its value; where its thread is in the middle of a call, one with its value.

    `to_record`: the tensor becomes an input here. `to_write`: it gets its value in its own storage, whatever its thread is doing.
    """
    if hasattr(t, "_level"):
        return t._observed()  # type: ignore
    until, lost = perf_counter() + (_PATIENCE_TO_RECORD if to_record else _PATIENCE), 0
    this = threading.current_thread()
    while True:
        storage = t._storage
        gen = t._gen if storage is None or storage.gen < 0 else storage.gen
        if _is_under_way(t, storage, gen, to_record):
            continue
        owner, maker = trace_of(gen), trace_of(t._gen)
        if storage is not None and storage.has_value():
            if to_record and maker is not None and maker.gen == t._gen and maker.thread is not this and without_history(t) and perf_counter() < until:
                take(maker, t._gen)
                continue
            return storage
        if owner is None or owner.gen != gen:
            lost += 1  # or it has got its value since we looked
            if lost > 2:
                return _what_is_left(t, storage)
            continue
        if owner is local.trace:  # a view that another thread has made of what is pending here: its history alone is there
            if maker is None or maker is owner or maker.gen != t._gen or not without_history(t) or perf_counter() >= until:
                return storage or storage_of(t)
            take(maker, t._gen)
            continue
        if owner.thread is this or perf_counter() >= until:
            found = _in_the_middle(t, storage, owner, gen, to_write or (to_record and owner.thread is this), until + GIVE_UP)
            if found is not None:
                return found
        take(owner, gen)


def _is_under_way(t: Tensor, storage: Storage | None, gen: int, to_record: bool) -> bool:
    """Whether what has the tensor pending was run just now, or another thread is running it, so that one looks again."""
    taken = next((g for g in (gen, t._gen) if g in TAKEN), None)
    if taken is not None:
        run_taken(taken)
        return True
    if storage is not None and storage.has_value() and not (to_record and without_history(t)):
        return False
    this = threading.get_ident()
    for g in (gen, t._gen):
        tr = trace_of(g)
        if tr is None or tr.running != g or tr.thread is threading.current_thread():
            continue
        if tr.thread.is_alive() or ENDING.get(g % TRACE_SLOTS, this) != this:
            sleep(NAP)
            return True
    return False


def _what_is_left(t: Tensor, storage: Storage | None) -> Storage:
    """Of a tensor that no trace has pending: what was pending has failed, or was a finalizer's."""
    if storage is not None and storage.buffer is not None:
        return storage
    raise RuntimeError(f"a tensor of shape {tuple(t._meta.shape)} has no value: the computation that should have made it failed earlier")


def _in_the_middle(t: Tensor, storage: Storage | None, owner: Trace, gen: int, keep: bool, end: float) -> Storage | None:
    """The value of a tensor whose thread is in the middle of a call; None if one has to look again. `keep`: see `_beside`."""
    written = keep and owner.thread is not threading.current_thread() and storage is not None and storage.buffer is not None
    found = None if written else _beside(t, owner, gen, keep)  # its thread will write into that buffer
    if found is None and perf_counter() > end:
        raise RuntimeError(
            f"a tensor of shape {tuple(t._meta.shape)} has a write pending in thread {owner.thread.name!r}, which is in the middle of a call (of a hook, "
            "or a custom function): look at its value in that thread first"
        )
    return found


def take(owner: Trace, gen: int) -> None:
    """Take what a trace has pending, if its thread is between two calls."""
    apart, barrier = Trace(), State(None, None)
    barrier.grad_enabled, barrier.stepwise = owner.grad_enabled, owner.state.stepwise
    with TAKING:
        interval = sys.getswitchinterval()
        try:
            quiet.begin()  # finalizers are Python code
            if interval < _INTERVAL:
                sys.setswitchinterval(_INTERVAL)
            began = perf_counter()
            sleep(NAP)
            thread = owner.thread.ident
            at = sys._current_frames().get(thread or 0)  # none: it has ended
            place = -1 if at is None else at.f_lasti
            whole = between_calls(at) and not records_aside(thread)  # finalizers' names go back when they end: until then it is not
            if whole and perf_counter() - began < _INTERVAL / 2 and owner.gen == gen and (at is None or at.f_lasti == place):
                # No call from here on: the interpreter's lock is given away at calls and jumps only.
                TAKEN[gen] = apart
                apart.gen, apart.state, apart.tensors, apart.inputs = owner.gen, owner.state, owner.tensors, owner.inputs
                apart.params, apart.resolved, apart.boundaries = owner.params, owner.resolved, owner.boundaries
                apart.custom, apart.hooked, apart.faces, apart.view = owner.custom, owner.hooked, owner.faces, owner.view
                apart.shared, owner.shared = owner.shared, {}
                apart.grad_enabled, apart.autocast, apart.inference = owner.grad_enabled, owner.autocast, owner.inference
                owner.gen, owner.root, owner.state, owner.tensors, owner.inputs = gen + TRACE_SLOTS, barrier, barrier, [], []
                owner.params, owner.resolved, owner.boundaries = [], [], {}
                owner.custom, owner.hooked, owner.faces, owner.view = {}, {}, {}, None
                owner.taken = gen
        finally:
            if interval < _INTERVAL:
                sys.setswitchinterval(interval)
            quiet.end()


def run_taken(gen: int) -> None:
    """Run what has been taken, or wait until another thread has. Within its own run (which ends the traces of threads that have ended) nothing is done."""
    with TAKING:
        apart = TAKEN.get(gen)
        if apart is not None and gen not in _started:
            try:
                _started.add(gen)
                flush(apart, "another thread")
            finally:
                TAKEN.pop(gen, None)
                _started.discard(gen)


def _beside(t: Tensor, owner: Trace, gen: int, keep: bool) -> Storage | None:
    """The value alone, computed beside the trace, which is left as it is and runs again when it is observed in its thread. None if it has gone on meanwhile.

    `keep`: from now on the tensor, and what shares its storage, has this value: whoever wants to write to it can.
    """
    from flambeau.compiler.pipeline import compile_graph

    storage = t._storage
    state: State = owner.standing()
    inputs, params = owner.inputs[:], owner.params[:]
    slot = t._slot if storage is None else storage.slot
    graph = graph_of(state)
    if slot >= len(graph.values) or owner.gen != gen:
        return None
    root = graph.root(slot)
    if t._meta.device is not CPU:
        v = graph.values[root]
        buffers: list[Any] = [blank(v.numel * v.dtype.itemsize)]
    else:
        graph.outputs.append(root)
        plan = compile_graph(graph)
        held: list[Any] = [s.buffer for s in inputs[: len(graph.inputs)]]
        try:
            buffers = plan.run(held, params[: len(graph.parameters)])
        except Exception as error:
            from flambeau.trace.salvage import locate_run

            locate_run(error, plan, state)
            raise
    made = Storage(buffers[0])
    if owner.gen != gen or t._storage is not storage or (storage is not None and storage.slot != slot):
        return None
    if not keep:
        return made
    if storage is None:
        t._storage = made
        return made
    storage.buffer, storage.gen = buffers[0], -1
    return storage
