"""Finalizers that record: while the garbage collector runs, its thread records into a trace of its own.

A collection may begin at any allocation, in the middle of a call that is being recorded, and run finalizers (`__del__`, callbacks of weak
references) that call tensor operations. For the interrupted call that is as if another thread did it: what is pending in its trace
is evaluated beside it, and inputs that both have are its own again, under the names they had, when the collection ends. What finalizers have
recorded runs then. `flush` does not let a collection begin (see there).

A whole collection that begins between two calls also finds the pending tensors that nobody but their trace holds: programs collect garbage to see
that a tensor is gone.

Not settled: a finalizer that writes to a tensor which recorded operations have yet to read. They may see the new values.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import time
from _thread import start_new_thread
from collections.abc import Callable
from threading import get_ident
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from flambeau.trace.liveness import let_go
from flambeau.trace.recorder import LOCALS, Trace
from flambeau.trace.traces import TAKEN, TRACE_SLOTS, add, enter, holder, remove
from flambeau.trace.whereabouts import between_calls
from flambeau.trace.while_set import surely

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

ASIDE: Final = "aside"  # in a thread's dictionary of `local`: its trace for finalizers, and what it stands in for
INTERRUPTED: Final = "interrupted"
_SOON: Final = 0.001  # seconds
_ALL: Final = 2  # the generation of a whole collection


def _of_another_thread(gen: int) -> bool:
    """Whether this is the generation of a trace that another thread records into or runs."""
    tr = holder(gen)
    return tr is not None and (tr.thread.ident != get_ident() or gen in TAKEN)


def _make() -> Trace:
    """A trace for the finalizers of one collection. It notes in `claims` what its inputs were to others."""
    aside = Trace()
    aside.held = True  # nothing is learned here
    claims: list[Any] = []
    aside.claims = claims
    resolve = aside._resolve

    def claim(t: Tensor) -> int:
        s = t._storage
        # What another thread has named is shared with it as ever: it goes on meanwhile, so that name must not be given back.
        had = None if _of_another_thread(t._gen) else (t._slot, t._gen, t._meta, t._immediate, t._history, t._input_key)
        names = None if s is None or _of_another_thread(s.gen) else (s.gen, s.slot, s.origin, s.buffer)
        claims.append((t, had, s, 0 if s is None else s.version, names))
        return resolve(t)

    aside._resolve = claim  # type: ignore[method-assign]
    return aside


def _end(aside: Trace) -> None:
    """Run what is pending and give back what the interrupted trace had."""
    from flambeau.trace.evaluate import flush

    try:
        flush(aside, "finalizers")
    finally:
        done: set[int] = set()  # tensors that others have named since
        for t, had, storage, version, names in reversed(aside.claims or ()):
            now = t._storage
            if (now is not storage and storage is not None) or (now is not None and now.version != version):
                continue  # it has other contents since
            if had is None:
                done.add(id(t))
            elif id(t) not in done:
                if t._gen >= 0 and t._gen % TRACE_SLOTS == aside.index:  # no call between this and the next line: no other thread comes
                    t._slot, t._gen, t._meta, t._immediate, t._history, t._input_key = had
                    t._storage = storage
                else:
                    done.add(id(t))
            if storage is None or names is None:
                continue
            if storage.gen < 0 or storage.gen % TRACE_SLOTS == aside.index:
                storage.gen, storage.slot, storage.origin, storage.buffer = names
            elif names[3] is not None and (before := holder(names[0])) is not None:
                enter(before, storage, names[1])  # another thread has met it meanwhile


def _begin(places: dict[str, Any], collection: bool) -> None:
    """From now on this thread records aside; `collection`: as long as garbage is collected."""
    aside = places.get(ASIDE)
    if aside is None:
        aside = places[ASIDE] = _make()
    main = places["main"]
    aside.set_grad_enabled(main.grad_enabled)
    aside.set_autocast(main.autocast)
    add(aside)
    places[INTERRUPTED] = places["trace"], main, collection
    places["trace"] = places["main"] = aside


def _finish(places: dict[str, Any]) -> None:
    """The interrupted trace goes on."""
    aside = places[ASIDE]
    try:
        if aside.tensors or aside.inputs or aside.claims:
            del places[ASIDE]  # its plans are not wanted again
            _end(aside)
    finally:
        remove(aside)
        places["trace"], places["main"], _ = places.pop(INTERRUPTED)


def beside(function: Callable[..., Any], *args: Any) -> Any:
    """`function(*args)`, which may observe and record, in the middle of whatever the thread's trace is at (see debugging.py)."""
    places = LOCALS[get_ident()]
    if INTERRUPTED in places:
        return function(*args)
    _begin(places, False)
    try:
        return function(*args)
    finally:
        _finish(places)


def records_aside(thread: int | None) -> bool:
    """Whether a thread records aside."""
    return INTERRUPTED in LOCALS.get(thread or 0, ())


def _by_collection(places: dict[str, Any]) -> bool:
    """Whether a thread records aside because of a collection."""
    return INTERRUPTED in places and places[INTERRUPTED][2]  # type: ignore[no-any-return]


_under_way: set[int] = set()  # threads in which garbage is being collected


def _let_go(main: Trace, at: FrameType | None) -> None:
    """What is pending in the trace that a collection has interrupted, and nobody else holds, is gone."""
    if main.tensors and between_calls(at):
        let_go(main.tensors)
        main.listed = None  # it knows them by their ids


def collecting(phase: str, info: dict[str, int]) -> None:
    """A callback of the garbage collector: before and after each collection. The collector swallows what a callback raises."""
    thread = get_ident()
    places = LOCALS.get(thread)
    try:
        if phase == "start":
            _under_way.add(thread)
            if places is not None and "main" in places and INTERRUPTED not in places:
                surely(_begin, places, True)
                if info.get("generation") == _ALL:
                    _let_go(places[INTERRUPTED][1], sys._getframe().f_back)
        elif places is not None and _by_collection(places):
            surely(_finish, places)
    except BaseException as error:
        if phase == "stop" and places is not None and _by_collection(places):
            _finish(places)
        _pass_on(thread, type(error))
    if phase == "stop":
        _under_way.discard(thread)


def collecting_after_all(phase: str, info: dict[str, int]) -> None:
    """Called right after `collecting`, which an interrupt has kept from running if it came before its first line: does it then."""
    thread = get_ident()
    if (phase == "start") != (thread in _under_way):
        collecting(phase, info)
        _pass_on(thread, KeyboardInterrupt)


def _pass_on(thread: int, error: type[BaseException]) -> None:
    """Let the thread meet the exception when no collection is under way in it: a callback's is swallowed."""

    def wait() -> None:
        time.sleep(_SOON)
        while thread in _under_way:
            time.sleep(_SOON)  # also after the last look: the callback may have a line left
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))

    start_new_thread(wait, ())


gc.callbacks += [collecting, collecting_after_all]
