"""x[index] of memory that is there, at once: a view is a shape, strides and an offset, rows by their numbers are a copy.

As an edge of a trace such a call is worth its recording only where it comes again with the same sizes. Where sizes or paths are new, or a value is among
the indices (indexing.py asks), the result is made here, and what is pending does not learn of it: a later call takes it as an input. A view is what
the recorded call would have given, with a start that is a run-time number, and copied elements are what they are. So no bits depend on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import memmove
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from flambeau import dtypes
from flambeau.devices import CPU
from flambeau.runtime import select
from flambeau.runtime.buffers import Buffer
from flambeau.statistics import counters
from flambeau.trace import evaluate
from flambeau.trace.input_keys import input_key
from flambeau.trace.meta import Meta
from flambeau.trace.objects import _TENSOR
from flambeau.trace.recorder import Trace
from flambeau.trace.saved_hooks import saved
from flambeau.trace.storage import Storage
from flambeau.trace.traces import TRACE_SLOTS, TRACES
from flambeau.upward import upward

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

_new: Final[Callable[[type], Any]] = object.__new__
_MOST: Final = 4096  # layouts and indices that are remembered, places of the program, calls that are counted there
LAYOUTS: Final = 2  # at one place before they count as changing
KNOWN: Final = 16  # of so many calls there one may have a layout that is new: then layouts come back, and the count begins again


class Way(NamedTuple):
    """What an index is to tensors of one layout.

    `start`: by how many elements its slices move the view. `moves`: for each of its numbers the size of the dim, and how many elements one is. `place`: the
    dim of the view that an index tensor is for. `keys`: of the view as an input of a trace, by the bytes of its memory.
    """

    view: Meta
    start: int
    moves: tuple[tuple[int, int], ...]
    place: int
    keys: dict[int, Any]


class Rows(NamedTuple):
    """A copy of `length` rows by their numbers. `key`: of the copy as an input of a trace. `words`: what select.take_rows wants of the layouts."""

    made: Meta
    key: Any
    allocate: Callable[[], Buffer]
    length: int
    words: tuple[int, ...]


@upward
def way_of(m: Meta, name: tuple[Any, ...]) -> Way | None:
    """What an index is to tensors with this metadata; None of one that is not done at once. `name`: a tuple of int (for any number), the numbers of
    slices, None, Ellipsis and Meta, for an index tensor."""
    raise NotImplementedError


@upward
def rows_of(v: Meta, d: int, index: Meta) -> Rows | None:
    """How rows of dim `d` of a view are copied; None for layouts that would take more than two loops, and for much memory, which is worth a plan."""
    raise NotImplementedError


_ways: Final[dict[Any, Way | None]] = {}
_rows: Final[dict[tuple[Meta, int, Meta], Rows | None]] = {}


class _Place:
    """A place of the program where tensors are indexed: how many calls there were, and of which layouts."""

    __slots__ = ("calls", "changes", "met")

    def __init__(self) -> None:
        self.calls = 0
        self.met: set[Meta] = set()
        self.changes = False


_places: Final[dict[tuple[Any, int], _Place]] = {}


def changes(place: tuple[Any, int], m: Meta) -> bool:
    """Note a call at a place of the program; whether the layouts of tensors have gone on changing there. Where they have, they are taken to for good: what a
    path is does not depend on which of them come back."""
    found = _places.get(place)
    if found is None:
        if len(_places) > _MOST:
            _places.clear()
        found = _places[place] = _Place()
    if found.changes:
        return True
    found.calls += 1
    found.met.add(m)
    if found.calls > len(found.met) * KNOWN:
        found.calls = 0
        found.met.clear()
    found.changes = len(found.met) > LAYOUTS
    return found.changes


def memory_of(tr: Trace, t: Tensor) -> Storage | None:
    """The storage of a tensor whose elements are in memory, where nothing is pending of them and nobody asks for gradients; else None."""
    storage, m = t._storage, t._meta
    if storage is None or storage.buffer is None or storage.cut >= 0 or m.requires_grad or m.device is not CPU or m.wrapped:
        return None
    if storage.gen >= 0 and (storage.gen != tr.gen or storage.slot != storage.origin):
        return None
    made = t._immediate
    return storage if made is None or made[1] != tr.gen else None  # a recorded call may take it yet as if it had been pending


def can_be(tr: Trace) -> bool:
    """Whether calls are done at once here at all: no other thread, no call of several edges, nobody who wants to see all calls."""
    return len(TRACES) == 1 and not tr.held and tr.claims is None and tr.taken < 0 and evaluate.PROFILER is None and not tr.state.stepwise


def indexed(tr: Trace, x: Tensor, index: Any, always: bool) -> Any:
    """x[index] of memory that is there. None: it is another call, or one that fails, which the usual way tells, or (if not `always`) one without a tensor that
    stands for a number."""
    found = _found(tr, x, index, always)
    if found is None:
        return None
    storage, way, offset, rows = found
    view, _, _, place, keys = way
    if rows is not None:
        return _taken(tr, storage, view, offset, place, rows)
    counters.indexed_at_once += 1
    t = _new(_TENSOR[0])
    t._gen = t._slot = -1
    t._storage, t._meta, t._immediate, t._view = storage, view, None, True
    nbytes = storage.buffer.nbytes  # type: ignore[union-attr]
    t._input_key = keys.get(nbytes) or _input_key(view, nbytes, keys)
    if view.dynamic:
        t._offset = offset
    if x._detached:
        t._detached = x._detached
    return t


def _found(tr: Trace, x: Tensor, index: Any, always: bool) -> tuple[Storage, Way, int, Any] | None:
    """Of an index: the memory, what it is to the layout, where the view begins, and the index tensor."""
    numbers: list[int] = []
    rows: Any = None
    m = x._meta
    if index.__class__ is int:
        name: Any = m
        numbers.append(index)
    else:
        parts: list[Any] = [m]
        for i in index if index.__class__ is tuple else (index,):
            cls = i.__class__
            if cls is int:
                numbers.append(i)
                parts.append(int)
            elif cls is slice:
                a, b, c = i.start, i.stop, i.step
                if not ((a is None or a.__class__ is int) and (b is None or b.__class__ is int) and (c is None or c.__class__ is int)):
                    return None
                parts.append((a, b, c))
            elif cls is _TENSOR[0]:
                k = i._meta
                if k.dtype is not dtypes.int64:
                    return None
                if k.ndim == 0:
                    numbers.append(i.item())
                    parts.append(int)
                    always = True
                elif rows is None:
                    rows = i
                    parts.append(Meta)
                else:
                    return None
            elif i is None or i is Ellipsis:
                parts.append(i)
            else:
                return None
        name = tuple(parts)
    storage = memory_of(tr, x)
    if storage is None or not always or not can_be(tr):
        return None
    way = _ways.get(name, 0)
    if way.__class__ is int:
        if len(_ways) > _MOST:
            _ways.clear()
        way = _ways[name] = way_of(m, (int,) if name is m else name[1:])
    if way is None:
        return None
    offset = way.start + (x._offset if m.dynamic else m.offset)  # type: ignore[union-attr]
    for (size, step), i in zip(way.moves, numbers, strict=True):  # type: ignore[union-attr]
        if not 0 <= i < size:
            if not -size <= i < 0:
                return None
            i += size
        offset += i * step
    return storage, way, offset, rows  # type: ignore[return-value]


def _input_key(view: Meta, nbytes: int, keys: dict[int, Any]) -> Any:
    if len(keys) > _MOST:
        keys.clear()
    key = keys[nbytes] = input_key(view, nbytes)
    return key


def _rows_named(view: Meta, place: int, index: Meta) -> Rows | None:
    """`rows_of`, remembered."""
    name = view, place, index
    found = _rows.get(name, 0)
    if found.__class__ is int:
        if len(_rows) > _MOST:
            _rows.clear()
        found = _rows[name] = rows_of(*name)
    return found  # type: ignore[return-value]


def _taken(tr: Trace, storage: Storage, view: Meta, offset: int, place: int, index: Tensor) -> Any:
    """The rows of a dim of a view that an index tensor names."""
    among, k = memory_of(tr, index), index._meta
    found = _rows_named(view, place, k)
    if among is None or found is None:
        return None
    made, key, allocate, count, words = found
    buffer = allocate()
    if count:
        numbers = among.buffer.address + (index._offset if k.dynamic else k.offset) * 8  # type: ignore[union-attr]
        source = storage.buffer.address + offset * view.dtype.itemsize  # type: ignore[union-attr]
        if select.take_rows(count, source, numbers, buffer.address, words):
            return None
    tr.looks += 1  # at the numbers: the call is not remembered
    counters.indexed_at_once += 1
    t = _new(_TENSOR[0])
    t._gen = t._slot = -1
    t._storage, t._meta, t._immediate, t._input_key = Storage(buffer), made, None, key
    return t


def _may_write(tr: Trace, storage: Storage, x: Tensor) -> bool:
    """Whether memory may be written at once: nothing is pending, and no history leads to what is written over."""
    return (
        tr.state.parent is None and storage.gen < 0 and storage.external is None and storage.history is None and storage.result is None
        and storage.others is None and not (storage.family or x._detached or x._meta.bits or x._hooks or saved)
    )  # fmt: skip


def written(tr: Trace, x: Tensor, index: Any, value: Tensor) -> bool:
    """x[index] = value, of tensors whose memory is there and which are laid out alike. False, and nothing is done: it is another call."""
    found = _found(tr, x, index, True)
    if found is None or not _may_write(tr, found[0], x):
        return False
    storage, (view, _, _, place, _), offset, rows = found
    source, v, m = memory_of(tr, value), value._meta, x._meta
    if source is None or source is storage or source.external is not None or v.dtype is not m.dtype or v.bits or not v.is_contiguous:
        return False
    itemsize = m.dtype.itemsize
    begin = source.buffer.address + (value._offset if v.dynamic else v.offset) * itemsize  # type: ignore[union-attr]
    to = storage.buffer.address + offset * itemsize  # type: ignore[union-attr]
    if rows is None:
        if v.shape != view.shape or not view.is_contiguous:
            return False
        _settle(tr)
        memmove(to, begin, v.numel * itemsize)
    else:
        among, k = memory_of(tr, rows), rows._meta
        taken = _rows_named(view, place, k)
        if among is None or among is storage or among.external is not None or taken is None or v.shape != taken.made.shape or 0 in view.strides:
            return False
        numbers = among.buffer.address + (rows._offset if k.dynamic else k.offset) * 8  # type: ignore[union-attr]
        if taken.length and not select.are_places(taken.length, numbers, view.shape[place]):
            return False
        _settle(tr)
        if taken.length:
            select.put_rows(taken.length, to, numbers, begin, taken.words)
        tr.looks += 1
    storage.version += 1
    counters.indexed_at_once += 1
    return True


def _settle(tr: Trace) -> None:
    """What was made without a trace, and nobody has looked at, stays as it is: done again it would read what is written now."""
    if tr.state is tr.root:
        tr.gen += TRACE_SLOTS
