"""Whether somebody but the trace holds a tensor: what nobody can read any more is not computed.

The interpreter's reference counts say so, if one knows how many of them are the trace's own: that of its list, of the local variable that looks,
of getrefcount's argument. How many that are differs between interpreters (CPython 3.14 lends the argument its reference), so it is measured here
when flambeau is imported, and tried on every way in which a program can hold an object. An interpreter that fails the trial gets
answers from weak references: the list is emptied, and what is still there is held by somebody. Slower, but it assumes nothing.
FLAMBEAU_REFERENCE_COUNTS=0 chooses that way.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from sys import getrefcount
from typing import Any, Final
from weakref import ref

KNOWN: Final = ("3.11", "3.12", "3.13")  # the versions of CPython that the tests have run on


class _Sample:
    __slots__ = ("__weakref__", "held")
    held: Any


def _own_references() -> int:
    """References of an object in a list, seen through a loop's variable, that nobody else holds."""
    (found,) = [getrefcount(t) for t in [_Sample()]]
    return found


HELD: int = _own_references()  # 0 where counts say nothing: then everything seems to be held


def by_counts(tensors: list[Any]) -> bytes:
    """1 for each of the tensors that somebody but the list holds, else 0."""
    return bytes([getrefcount(t) > HELD for t in tensors])


def by_weak_references(tensors: list[Any]) -> bytes:
    """The same without counts. What nobody holds has left the list afterwards: a tensor that only knows its metadata is in its place."""
    references = [ref(t) for t in tensors]
    metas = [getattr(t, "_meta", None) for t in tensors]
    tensors.clear()
    still = [r() for r in references]
    tensors.extend([_left_of(meta) if t is None else t for t, meta in zip(still, metas, strict=True)])
    return bytes([t is not None for t in still])


def _left_of(meta: Any) -> Any:
    """What is in the place of a tensor that is gone: it knows its metadata alone."""
    from flambeau.trace.objects import _TENSOR, bare

    left = bare(_TENSOR[0])
    if meta is not None:
        left._meta = meta
    return left


def let_go(tensors: list[Any]) -> None:
    """What only the list holds leaves it, so that weak references to it are dead."""
    alive = alive_among(tensors)  # by weak references it has left already
    if HELD:
        for i in [i for i, lives in enumerate(alive) if not lives]:
            tensors[i] = _left_of(tensors[i]._meta)


def _held_in_every_way(list_: list[Any]) -> Iterator[None]:
    """Fills the list with samples: the first is held by nobody else, each of the others in another way, while this generator is suspended."""
    list_.extend([_Sample() for _ in range(9)])
    local = list_[1]
    inside = [list_[2]], {"key": list_[3]}, (list_[4],)
    other = _Sample()
    other.held = list_[5]

    def closure(cell: Any = None, default: Any = list_[6]) -> Any:
        return local, default

    captured = list_[7]
    generator = (x for x in [captured])
    del captured
    bound = list_[8].__sizeof__  # a method holds its object
    yield
    del inside, other, closure, generator, bound


def passes(alive_among: Callable[[list[Any]], bytes]) -> bool:
    """Whether a function says of every sample rightly whether somebody holds it, also of one that is an argument of a call under way."""
    for _ in range(3):  # an interpreter specialises code that has run
        samples: list[Any] = []
        holder = _held_in_every_way(samples)
        next(holder)
        given = (lambda argument: alive_among(samples))(samples[1]), alive_among(samples)
        if any(answer != b"\0" + b"\1" * (len(samples) - 1) for answer in given):
            return False
        if len(samples) != 9 or any(type(s) is not _Sample for s in samples[1:]):
            return False
        del holder
        if alive_among([_Sample()]) != b"\0":
            return False
    return True


def refuse_free_threads() -> None:
    """ImportError in an interpreter that runs without its global lock: reference counts are per thread there, and recording counts on the lock."""
    running = getattr(sys, "_is_gil_enabled", None)
    if running is not None and not running():
        raise ImportError(
            "flambeau needs the interpreter's global lock (GIL), and this free-threaded Python runs without it. "
            "Start it with PYTHON_GIL=1 (or -X gil=1), or use an ordinary build of Python."
        )


def describe() -> str:
    """The interpreter, whether it is one that is known, and how liveness is found: a line of `flambeau info`."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    known = "known" if sys.implementation.name == "cpython" and version in KNOWN else f"not among the known ones ({', '.join(KNOWN)})"
    return f"{sys.implementation.name} {version}, {known}; liveness by {'reference counts' if HELD else 'weak references'}"


refuse_free_threads()
if os.environ.get("FLAMBEAU_REFERENCE_COUNTS") == "0" or not passes(by_counts):
    HELD = 0
alive_among: Callable[[list[Any]], bytes] = by_counts if HELD else by_weak_references
