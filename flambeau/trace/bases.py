"""The base of a view: the tensor whose memory it shares. Views do not hold it, so it is looked for when somebody asks."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

from flambeau.compiler.graph import contiguous_strides
from flambeau.dtypes import dtype
from flambeau.trace.meta import is_dense
from flambeau.trace.objects import _TENSOR, is_view
from flambeau.trace.recorder import local
from flambeau.trace.storage import Storage

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

Layout = tuple[tuple[int, ...], tuple[int, ...]]  # shape and strides
# Of a memory, by the family (Tensor._detached) of those that share a history, and by dtype: its base, or the layout of what stands for one that is gone.
_found: WeakKeyDictionary[Storage, dict[tuple[int, dtype], ref[Tensor] | Layout]] = WeakKeyDictionary()
# What stands for a base, while somebody has it: views of one memory have one base.
_standing: WeakKeyDictionary[Storage, dict[tuple[int, dtype], ref[Tensor]]] = WeakKeyDictionary()


def base_of(t: Tensor) -> Tensor | None:
    """The tensor of which `t` is a view (itself no view), or None where it is none.

    Among the objects that hold the memory is the base, if anybody has it still. Where nobody has, this is a tensor of its elements without a
    history: of the shape of another tensor over all of the memory, else of the view's if it has all elements, else flat. No call that makes a
    view pays for it, so it is looked for: first where it has been found before, then among what the trace and the view's history know and among
    young objects, and only then among all objects, which takes as long as there are many, and is done once a memory.
    """
    if not is_view(t):
        return None
    storage = t._storage
    assert storage is not None  # a view shares it with its base
    tensor = _TENSOR[0]

    def is_base(h: Any) -> bool:
        return isinstance(h, tensor) and h is not t and h._storage is storage and h._detached == t._detached and not is_view(h)

    of_memory = _found.setdefault(storage, {})
    key = t._detached, t._meta.dtype
    known = of_memory.get(key)
    if isinstance(known, tuple):
        of_standing = _standing.setdefault(storage, {})
        stands = of_standing.get(key)
        found: Tensor | None = None if stands is None else stands()
        if found is None or found._storage is not storage:
            found = t.detach()._read_as(0).as_strided(*known, 0).detach()
            of_standing[key] = ref(found)
        return found
    base = None if known is None else known()
    if base is None or not is_base(base):
        base = next(filter(is_base, _near(t)), None)
    if base is None:
        holders = [h for h in gc.get_referrers(storage) if isinstance(h, tensor) and h is not t and h._storage is storage and not is_view(h)]
        base = next(filter(is_base, holders), None)
        if base is None:
            of_memory[key] = _likely(t) if not holders else (tuple(holders[0].shape), holders[0].stride())
            return base_of(t)
    of_memory[key] = ref(base)
    return base


def _likely(t: Tensor) -> Layout:
    """What a memory was made as, of which only a view is left: its dims in the order of memory if the view has all elements, else one dim."""
    count = t.untyped_storage().nbytes() // t.element_size()
    shape, strides = tuple(t._meta.shape), t._meta.strides
    if t._meta.numel == count and is_dense(shape, strides):
        ordered = sorted(zip(strides, shape, strict=True), reverse=True)
        return tuple([n for _, n in ordered]), contiguous_strides(tuple([n for _, n in ordered]))
    return (count,), (1,)


def _near(t: Tensor) -> Iterator[Any]:
    """Where a base usually is: what the trace knows, the leaves below a view, and objects that the garbage collector has not seen often."""
    trace = local.main
    yield from trace.tensors
    yield from trace.resolved
    histories = [trace.boundaries] if t._history is None else [t._history[0].boundaries, trace.boundaries]
    for boundaries in histories:  # grows as views of earlier segments are met
        for b in list(boundaries.values()):
            if b.history is None and b.tensor._meta.leaf:
                yield b.tensor
            elif b.history is not None and b.tensor._storage is t._storage and not any(b.history[0].boundaries is known for known in histories):
                histories.append(b.history[0].boundaries)
    for generation in (0, 1):
        yield from gc.get_objects(generation)
