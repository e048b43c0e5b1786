"""Finalizers that record: while the garbage collector runs, its thread records into a trace of its own.

A collection may begin at any allocation, in the middle of a call that is being recorded, and run finalizers (`__del__`, callbacks of weak
references) that call tensor operations. For the interrupted call that is as if another thread did it: what is pending in its trace
is evaluated beside it, and inputs that both have are its own again, under the names they had, when the collection ends. What finalizers have
recorded runs then. `flush` does not let a collection begin (see there).

Not settled: a finalizer that writes to a tensor which recorded operations have yet to read. They may see the new values.
"""

from __future__ import annotations

import gc
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

from flambeau.trace.recorder import LOCALS, TRACES, Trace, next_index

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

ASIDE: Final = "aside"  # in a thread's dictionary of `local`: its trace for finalizers, and what it stands in for
INTERRUPTED: Final = "interrupted"


def _make() -> Trace:
    """A trace for the finalizers of one collection. It notes in `claims` what its inputs were to others."""
    aside = Trace(next_index())
    aside.held = True  # nothing is learned here
    claims: list[Any] = []
    aside.claims = claims
    resolve = aside._resolve

    def claim(t: Tensor) -> int:
        s = t._storage
        names = None if s is None else (s.gen, s.slot, s.origin, s.buffer)
        claims.append((t, (t._slot, t._gen, t._meta, t._immediate, t._history, t._key), s, 0 if s is None else s.version, names))
        return resolve(t)

    aside._resolve = claim  # type: ignore[method-assign]
    return aside


def _end(aside: Trace) -> None:
    """Run what is pending and give back what the interrupted trace had."""
    from flambeau.trace.evaluate import flush

    try:
        flush(aside, "finalizers")
    finally:
        for t, had, storage, version, names in reversed(aside.claims or ()):
            now = t._storage
            if (now is not storage and storage is not None) or (now is not None and now.version != version):
                continue  # it has other contents since
            t._slot, t._gen, t._meta, t._immediate, t._history, t._key = had
            t._storage = storage
            if storage is not None:
                storage.gen, storage.slot, storage.origin, storage.buffer = names


def collecting(phase: str, info: dict[str, int]) -> None:
    """A callback of the garbage collector: before and after each collection."""
    places = LOCALS.get(get_ident())
    if places is None:
        return
    if phase == "start":
        if "main" not in places or INTERRUPTED in places:
            return
        aside = places.get(ASIDE)
        if aside is None:
            aside = places[ASIDE] = _make()
        interrupted = places[INTERRUPTED] = places["trace"], places["main"]
        main = interrupted[1]
        aside.set_grad_enabled(main.grad_enabled)
        aside.set_autocast(main.autocast)
        TRACES[aside.index] = aside
        places["trace"] = places["main"] = aside
        return
    if INTERRUPTED not in places:
        return
    aside = places[ASIDE]
    try:
        if aside.tensors or aside.inputs or aside.claims:
            del places[ASIDE]  # its plans are not wanted again
            _end(aside)
    finally:
        TRACES.pop(aside.index, None)
        places["trace"], places["main"] = places.pop(INTERRUPTED)


gc.callbacks.append(collecting)
