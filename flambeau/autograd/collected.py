"""Lists of another length at each step: `stack` and `cat` of their tensors are done at once, beside the trace, by copies of memory.

As an edge of a trace such a call is another one for each length, and so are the plans of the forward and the backward pass around it. Here it ends the trace,
and what it gives is a plain input of the next one. For gradients it is a segment of its own, without a tape: one node, whose backward hands each tensor
its part. The values are those of the recorded call, bit by bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import memmove
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final
from weakref import ref

from flambeau.autograd import hooks
from flambeau.autograd.segment import NoTape, Segment
from flambeau.devices import CPU
from flambeau.trace import tiers
from flambeau.trace.evaluate import flush, observed
from flambeau.trace.existing import maker
from flambeau.trace.meta import contiguous, meta
from flambeau.trace.objects import _TENSOR, from_storage
from flambeau.trace.place import line_here
from flambeau.trace.recorder import _PARAMETER, Boundary

if TYPE_CHECKING:
    from flambeau.tensor import Tensor
    from flambeau.trace.recorder import Trace

LENGTHS: Final = 2  # lengths that are recorded before a list counts as one that changes
KNOWN: Final = 10  # of so many lists at a place one may have a length that is new: then lengths come back, and are recorded
MOST_PLACES: Final = 10_000  # that are remembered


class _Lengths:
    """The lengths of the lists at one place of the program."""

    __slots__ = ("lists", "met")

    def __init__(self) -> None:
        self.lists = 0
        self.met: set[int] = set()

    def change(self, length: int) -> bool:
        """Note a list; whether lengths are new so often that none is worth an edge."""
        self.lists += 1
        self.met.add(length)
        return len(self.met) > LENGTHS and len(self.met) * KNOWN > self.lists


_lengths: Final[dict[Any, _Lengths]] = {}


def collected(tr: Trace, op: Any, tensors: Sequence[Tensor], dim: Any) -> Any:
    """The result of a call of `stack` or `cat`, or None where it is to be recorded."""
    if dim != 0 or dim.__class__ is not int or tr.held or tr.autocast is not None or hooks.saved or tiers.MODE[0] == tiers.WHOLE:
        return None
    if len(_lengths) > MOST_PLACES:
        _lengths.clear()
    if not _lengths.setdefault((op, line_here()), _Lengths()).change(len(tensors)) or not _alike(op, tensors):
        return None
    for t in tensors:
        if t._immediate is not None:
            observed(t)
    if any(t._gen == tr.gen and not _at_rest(t) for t in tensors):
        if tiers.in_pieces(tr):
            tr.end_piece("list of another length")
        else:
            flush(tr, "list of another length")
    if not all(_at_rest(t) for t in tensors):
        return None
    first = tensors[0]._meta
    shape = (len(tensors), *first.shape) if op.name == "stack" else (sum([t._meta.shape[0] for t in tensors]), *first.shape[1:])
    result, address = maker(shape, first.dtype)()
    for t in tensors:
        m = t._meta
        nbytes = m.numel * m.dtype.itemsize
        offset = t._offset if m.dynamic else m.offset
        memmove(address, t._storage.buffer.address + offset * m.dtype.itemsize, nbytes)  # type: ignore[union-attr]
        address += nbytes
    if tr.grad_enabled and any(t._meta.requires_grad for t in tensors):
        return _with_history(op, result, tensors)
    return result


def _alike(op: Any, tensors: Sequence[Tensor]) -> bool:
    """Whether the tensors are plain ones, of one dtype, of sizes that fit, row by row in memory."""
    kind, own = type(tensors[0]), op.name == "stack"
    if kind is not _TENSOR[0] and kind is not _PARAMETER[0]:
        return False
    first = tensors[0]._meta
    if first.ndim == 0 and not own:
        return False
    shape = tuple(first.shape) if own else tuple(first.shape[1:])
    for t in tensors:
        if type(t) is not kind:
            return False
        m = t._meta
        if m.dtype is not first.dtype or m.device is not CPU or m.wrapped or m.bits or not m.is_contiguous or m.ndim != first.ndim:
            return False
        if (tuple(m.shape) if own else tuple(m.shape[1:])) != shape:
            return False
        if m.requires_grad and (t._hooks or t._retains_grad or t._post_hooks):
            return False
    return True


def _at_rest(t: Tensor) -> bool:
    """Whether the tensor's value is in memory, and its history, if it has one, is its own: nobody has written to it since."""
    storage = t._storage
    if storage is None or storage.external is not None or not storage.has_value():
        return False
    if not t._meta.requires_grad:
        return storage.cut < 0
    return storage.cut < 0 and t._detached == storage.family and (t._meta.leaf or t._history is not None)


def _with_history(op: Any, plain: Tensor, tensors: Sequence[Tensor]) -> Any:
    """The result as one that leads back to the tensors."""
    m = plain._meta
    storage = plain._storage
    assert storage is not None
    result = from_storage(storage, meta(tuple(m.shape), m.strides, m.dtype, 0, True, False))
    slot = len(tensors)
    segment = Segment(NoTape(slot, result._meta))
    for i, t in enumerate(tensors):
        if t._meta.requires_grad:
            boundary = segment.boundaries[i] = Boundary(t, t._history)
            boundary.version = t._storage.version  # type: ignore[union-attr]
    segment.custom = {slot: Parts(op, tensors, slot)}
    result._history = storage.history = (segment, slot)
    storage.result = (ref(segment), slot)
    return result


class Parts:
    """The node of a collected list: what the engine asks of a custom function's context (autograd/function.py)."""

    def __init__(self, op: Any, tensors: Sequence[Tensor], slot: int) -> None:
        self.kind = {"stack": "StackBackward0", "cat": "CatBackward0"}[op.name]
        self.own = op.name == "stack"
        self.metas = [t._meta for t in tensors]
        self.input_slots = [i if m.requires_grad else None for i, m in enumerate(self.metas)]
        self.output_slots = [slot]

    def run_backward(self, grads: Sequence[Any], retain: bool, create: bool, owner: Any = None) -> list[Any]:
        """The gradient of each tensor: its part of that of the result."""
        from flambeau.trace.recorder import Trace, local

        (gradient,) = grads
        tr = local.trace
        rows = [1 if self.own else m.shape[0] for m in self.metas]
        if create or gradient.is_sparse or type(tr) is not Trace:
            return [g.squeeze(0) if self.own else g for g in gradient.split(rows)]
        if not gradient._meta.is_contiguous:
            gradient = gradient.contiguous()
        if gradient._gen == tr.gen:
            flush(tr, "list of another length")
        storage, m = gradient._storage, gradient._meta
        row = m.numel // max(m.shape[0], 1)
        starts = accumulate(rows, initial=0)
        return [
            from_storage(storage, meta(tuple(given.shape), contiguous(tuple(given.shape), m.dtype).strides, m.dtype, m.offset + start * row))
            for given, start in zip(self.metas, starts, strict=False)
        ]
