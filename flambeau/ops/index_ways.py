"""What an index is to tensors of one layout, for calls that are done at once (at_once.py): from the same steps that a recorded call takes."""

from __future__ import annotations

from math import prod
from typing import Any, Final

from flambeau import dtypes
from flambeau.compiler.plan import SMALL_BYTES
from flambeau.ops.at_once import Rows, Way
from flambeau.ops.indexing import _index_strides, _slice_op, _steps
from flambeau.ops.shape import _select_op, unsqueeze
from flambeau.runtime.buffers import allocator
from flambeau.trace.input_keys import input_key
from flambeau.trace.meta import Meta, contiguous, is_contiguous, meta

_ALL: Final = slice(None)


def way_of(m: Meta, name: tuple[Any, ...]) -> Way | None:
    """See at_once.py."""
    if name.count(Ellipsis) > 1:
        return None
    items = [0 if i is int else slice(*i) if i.__class__ is tuple else _ALL if i is Meta else i for i in name]
    try:
        steps, dims = _steps(m, items)
    except (IndexError, ValueError, TypeError):
        return None  # the usual way tells
    shape, strides, start = list(m.shape), list(m.strides), 0
    moves = []
    for operation, (at, *others) in steps:
        if operation is _select_op:
            (d,) = others
            moves.append((shape.pop(d), strides.pop(d)))
        elif operation is _slice_op:
            d, length, step = others
            start += at * strides[d]
            shape[d], strides[d] = length, strides[d] * step
        else:
            assert operation is unsqueeze
            strides.insert(at, shape[at] * strides[at] if at < len(shape) else 1)
            shape.insert(at, 1)
    moving = m.dynamic or any(operation is not unsqueeze for operation, _ in steps)
    view = meta(tuple(shape), tuple(strides), m.dtype, m.offset, dynamic=moving, bits=m.bits)
    place = _place(name, len(dims)) if Meta in name else -1
    return None if place is None else Way(view, start, tuple(moves), place, {})


def _place(name: tuple[Any, ...], ndim: int) -> int | None:
    """The dim of the view that the index tensor is for; None where that depends on what stands on both sides of an ellipsis."""
    place = name.index(Meta)
    if Ellipsis in name[:place]:
        after = name[place + 1 :]
        return None if Ellipsis in after else ndim - 1 - sum([i is not int for i in after])
    return sum([i is not int for i in name[:place]])


def rows_of(v: Meta, d: int, index: Meta) -> Rows | None:
    """See at_once.py."""
    shape = (*v.shape[:d], *index.shape, *v.shape[d + 1 :])
    made = contiguous(shape, v.dtype)
    itemsize, inner, outer = v.dtype.itemsize, v.shape[d + 1 :], v.shape[:d]
    if v.bits or not index.is_contiguous or made.numel * itemsize > SMALL_BYTES or v.dtype in dtypes.LIMITED:
        return None
    if not v.shape[d] and index.numel:
        return None  # refused
    if not is_contiguous(inner, v.strides[d + 1 :]):
        return None
    of_rows = d == 0 and index.ndim == 1 and v.ndim <= 2 and 0 not in shape and 1 not in shape  # the usual: row-major, as there is only one order
    if not of_rows and made.strides != _index_strides(v, d, 1, [index]):
        return None
    if not all(a == b * n for a, b, n in zip(v.strides[: max(d - 1, 0)], v.strides[1:d], outer[1:], strict=True)):
        return None
    row, outers = prod(inner), prod(outer)
    nbytes = made.numel * itemsize
    words = (v.strides[d - 1] * itemsize if d else 0, v.strides[d] * itemsize, row * itemsize, v.shape[d], outers)
    return Rows(made, input_key(made, nbytes), allocator(nbytes), index.numel if row and outers else 0, words)
