"""Indexing: x[...] read and written, gather and scatter, selection by index and by mask.

Basic indices (ints, slices, None, ...) give views; an index tensor, list or mask gives a copy. Index values are checked when
the kernel runs: an IndexError, never a wild read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod as product_of
from typing import TYPE_CHECKING, Any, Final

from flambeau import dtypes
from flambeau.compiler.graph import contiguous_strides
from flambeau.compiler.kernel import REFUSED
from flambeau.ops import primitives as prim
from flambeau.ops.creation import _full
from flambeau.ops.dtype_rules import refuse_dtype
from flambeau.ops.expanded_writes import agreeing, is_expanded
from flambeau.ops.expanded_writes import put as expanded_put
from flambeau.ops.from_data import tensor
from flambeau.ops.primitive import laid_out
from flambeau.ops.promotion import convert, fitted
from flambeau.ops.registry import Number, operation
from flambeau.ops.remembered import is_fleeting, not_remembered, remembered, remembered_with_axis
from flambeau.ops.result_strides import like_input, row_major
from flambeau.ops.selection import masked_rows
from flambeau.ops.shape import _select_op, as_shape, contiguous_of, dim_of, unsqueeze
from flambeau.ops.tied import tied
from flambeau.ops.wrapper import numpy_names
from flambeau.trace.limits import fit
from flambeau.trace.meta import Meta, meta
from flambeau.trace.mutation import assign, into, make_ready
from flambeau.trace.objects import _TENSOR
from flambeau.trace.once import warn_here
from flambeau.trace.overlap import refuse_overlaps, refuse_unlike
from flambeau.trace.recorder import Trace, local
from flambeau.trace.strides import iterator_strides, like_strides, view_strides

if TYPE_CHECKING:
    from flambeau.tensor import Tensor


@operation(name="slice_step")
def _slice_op(input: Tensor, start: Number, dim: int, length: int, step: int) -> Tensor:
    if isinstance(start, int):
        return prim.slice(input, dim=dim, start=start, length=length, step=step)
    return prim.slice(input, start, dim=dim, start=0, length=length, step=step)


# A view of a basic index, of any tensor of one metadata: the operations that make it, each with its arguments after the tensor.
Steps = list[tuple[Any, tuple[Any, ...]]]
_LONGEST_STEP = 1 << 31  # of a slice of one element: its stride is looked at and multiplied, but never taken
_MOST_VIEWS = 4096  # that are remembered
_views: dict[tuple[Any, ...], Steps] = {}  # by metadata and index


_SHORT_SEQUENCE: Final = 32  # elements; PyTorch's rule, which was NumPy's


def _slice(steps: Steps, shape: list[int], d: int, index: slice) -> None:
    size = shape[d]
    try:
        start, stop, step = index.indices(size)
    except TypeError:
        raise TypeError("slice indices must be integers or None or have an __index__ method") from None
    except ValueError:
        raise ValueError("slice step cannot be zero: it must be greater than zero") from None
    if step <= 0:
        raise ValueError("step must be greater than zero: negative steps are not supported, use flip")
    shape[d] = length = max(0, -(-(stop - start) // step))
    if start == 0 and length == size and step == 1:
        return
    if length <= 1:
        step = min(step, _LONGEST_STEP)
    steps.append((_slice_op, (start, d, length, step)))


@operation(name="alias")
def _alias(input: Tensor) -> Tensor:
    return prim.alias(input)


def _is_number(i: Any) -> bool:
    return isinstance(i, int) and not isinstance(i, bool)


def _is_sequence(i: Any) -> bool:
    kind = type(i)
    return hasattr(kind, "__getitem__") and hasattr(kind, "__len__") and not isinstance(i, dict)


def _as_tuple(index: Any) -> Any:
    """As a tuple what PyTorch takes for one, as NumPy did: a short sequence with a tensor, a sequence, a slice, None or an ellipsis in it."""
    if index.__class__ is tuple or hasattr(index, "_meta") or hasattr(index, "__array__") or not _is_sequence(index):
        return index
    if len(index) >= _SHORT_SEQUENCE or not any(
        i.__class__ is not int and (i is None or i is Ellipsis or isinstance(i, slice) or hasattr(i, "_meta") or _is_sequence(i)) for i in index
    ):
        return index
    if not isinstance(index, (tuple, str)):
        warn_here("Using a non-tuple sequence for multidimensional indexing is deprecated; use x[tuple(seq)] instead of x[seq]")
    return tuple(index)


def _index_items(x: Any, index: Any) -> list[Any]:
    """The index as a list with the ellipsis filled in; numbers from 0-d integer tensors and NumPy scalars."""
    items = list(index) if isinstance(index, tuple) else [index]
    out: list[Any] = []
    for i in items:
        if i is None or i is Ellipsis or isinstance(i, (slice, bool, int)) or hasattr(i, "_meta"):
            out.append(i)
        elif hasattr(i, "__array__"):
            out.append(int(i) if getattr(i, "ndim", 1) == 0 and i.dtype.kind in "iu" else _as_index(i))
        elif hasattr(i, "__index__"):
            out.append(i.__index__())
        elif isinstance(i, (str, bytes)):
            raise TypeError(f"new(): invalid data type '{type(i).__name__}' as an index")
        elif _is_sequence(i):
            out.append(_as_index(list(i)))
        else:
            raise IndexError(f"only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got {type(i).__name__})")
    return out


_NO_TENSORS: Final = frozenset((int, slice, type(None), type(Ellipsis)))


def _is_place(i: Any) -> bool:
    """Whether an index is an integer tensor of no dims: it means its value, and what it selects is a view."""
    return hasattr(i, "_meta") and not i._meta.ndim and i._meta.dtype.category == 1 and i._meta.dtype is not dtypes.uint8


def _with_numbers(index: Any) -> Any:
    """The index with the values of integer tensors of no dims. Within a transform or an operation's body they have none: it stays as it is."""
    several = isinstance(index, tuple)
    for i in index if several else (index,):
        if i.__class__ not in _NO_TENSORS and _is_place(i):
            break
    else:
        return index
    if type(local.trace) is not Trace:
        return index
    local.trace.looks += 1
    return tuple([i.item() if _is_place(i) else i for i in index]) if several else index.item()


def _enter(x: Tensor, items: list[Any]) -> None:
    """Let the trace know all tensors of a call before its first operation: a call that meets another one in its middle is not remembered."""
    tr = local.trace
    indices = [i for i in items if i.__class__ is _TENSOR[0] and i._meta.dtype is dtypes.int64]
    if type(tr) is Trace and len(items) > 1 and indices:
        for t in (x, *indices):
            tr.slot_of(t)


def _as_index(data: Any) -> Any:
    """Sequences and arrays are masks, where they are bool or uint8, or whole numbers, whatever kind they have."""
    if isinstance(data, list) and any(isinstance(i, (str, bytes)) for i in data):
        raise TypeError("new(): invalid data type 'str' in a sequence that is an index")
    if isinstance(data, list) and any(isinstance(i, complex) for i in data):
        raise TypeError("'complex' object cannot be interpreted as an integer, in a sequence that is an index")
    if isinstance(data, list) and any(isinstance(i, int) and not -(2**63) <= i < 2**63 for i in data):
        raise ValueError("Overflow when unpacking long long: an index has more than 63 bits and a sign")
    t = tensor(data)
    return t if t.dtype in (dtypes.bool_, dtypes.uint8, dtypes.int64) or t.is_complex() else t.to(dtypes.int64)  # type: ignore[attr-defined]


def _warn_of_bytes() -> None:
    warn_here("indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.")


def _outside(i: int, d: int, size: Any) -> Exception:
    """What to raise for a number that is no place of a dim."""
    if not -(2**63) <= i < 2**63:
        return ValueError(f"Overflow when unpacking long long: the index {i} has more than 63 bits and a sign")
    return IndexError(f"index {i} is out of bounds for dimension {d} with size {size}")


def _consumes(i: Any) -> int:
    if i is None or i is Ellipsis or isinstance(i, bool):
        return 0
    if hasattr(i, "_meta") and i.dtype in (dtypes.bool_, dtypes.uint8):
        return i._meta.ndim  # type: ignore[no-any-return]
    return 1


def _basic(x: Any, items: list[Any]) -> tuple[Any, list[Any]]:
    """Apply ints, slices, None and the ellipsis; returns the view and, for each of its dims, the index tensor or None."""
    steps, tensors = _steps(x._meta, items)
    for operation_, arguments in steps:
        x = operation_(x, *arguments)
    return x, tensors


def _steps(m: Any, items: list[Any]) -> tuple[Steps, list[Any]]:
    """What makes the view of a tensor with this metadata, and, for each of its dims, the index tensor or None."""
    shape = list(m.shape)
    taken = 0  # dims that numbers have taken away: errors count them
    steps: Steps = []
    used = sum([_consumes(i) for i in items])
    if used > m.ndim:
        raise IndexError(f"too many indices for tensor of dimension {m.ndim} (got {used})")
    if not any(i is Ellipsis for i in items):
        items = [*items, Ellipsis]
    tensors: list[Any] = []
    d = 0
    for i in items:
        if i is Ellipsis:
            skip = m.ndim - used  # also of a second ellipsis, which PyTorch takes for another jump of that length
            tensors.extend([None] * skip)
            d += skip
        elif i is None:
            steps.append((unsqueeze, (d,)))
            shape.insert(d, 1)
            tensors.append(None)
            d += 1
        elif isinstance(i, bool):
            steps.append((unsqueeze, (d,)))
            shape.insert(d, 1)
            tensors.append(_as_index([0] if i else []).to(dtypes.int64))
            d += 1
        elif d >= len(shape) and _consumes(i):
            raise IndexError(f"Dimension out of range: the index {i} follows an ellipsis that has passed all {len(shape)} dimensions")
        elif isinstance(i, slice):
            _slice(steps, shape, d, i)
            tensors.append(None)
            d += 1
        elif _is_number(i):
            size = shape.pop(d)
            if not -size <= i < size:
                raise _outside(i, d + taken, size)
            taken += 1
            steps.append((_select_op, (i + size if i < 0 else int(i), d)))
        else:
            kind = i.dtype
            if kind in (dtypes.bool_, dtypes.uint8):
                for k in range(i.ndim):
                    if i.shape[k] != shape[d + k]:
                        raise IndexError(
                            f"The shape of the mask {list(i.shape)} at index {k} does not match the shape of the indexed tensor {shape} at index {d + k}"
                        )
                if kind is dtypes.uint8 and i.ndim:
                    _warn_of_bytes()
                found = i.nonzero()
                if i.ndim == 0:
                    steps.append((unsqueeze, (d,)))
                    shape.insert(d, 1)
                    tensors.append(found.new_zeros(found.shape[0]))
                    d += 1
                else:
                    tensors.extend(found.unbind(1))
                    d += i.ndim
            elif kind in (dtypes.int64, dtypes.int32):
                tensors.append(i)
                d += 1
            else:
                raise IndexError(f"tensors used as indices must be long, int, byte or bool tensors, got {kind.name}")
    return steps, tensors


def _name_of(m: Any, index: Any) -> tuple[Any, ...] | None:
    """What names the view of an index of ints, slices of ints, None and the ellipsis, of tensors with this metadata; None for another index.

    Only exact ints, as True and 1.0 are equal to 1 and mean something else.
    """
    if index.__class__ is slice:
        a, b, c = index.start, index.stop, index.step
        plain = (a is None or a.__class__ is int) and (b is None or b.__class__ is int) and (c is None or c.__class__ is int)
        return (m, (a, b, c)) if plain else None  # as that of a tuple with this slice
    if index.__class__ is not tuple:
        return (m, index) if index is None or index is Ellipsis or index.__class__ is int else None
    name: list[Any] = [m]
    for i in index:
        if i.__class__ is slice:
            a, b, c = i.start, i.stop, i.step
            if not ((a is None or a.__class__ is int) and (b is None or b.__class__ is int) and (c is None or c.__class__ is int)):
                return None
            name.append((a, b, c))
        elif i is None or i is Ellipsis or i.__class__ is int:
            name.append(i)
        else:
            return None
    return tuple(name)


def _by_values(self: Tensor, index: Tensor | Any) -> Any:
    """x[index] of a bool mask or of integer tensors of no dims, whose values decide what it is; None for another index."""
    cls = index.__class__
    if cls is _TENSOR[0] and index._meta.dtype is dtypes.bool_:
        return masked_rows(self, index)
    if cls is _TENSOR[0] or cls is tuple:
        plain = _with_numbers(index)
        if plain is not index:  # not remembered: the numbers will be others
            steps = _remembered(self._meta, plain)
            return getitem(self, plain) if steps is None else _applied(self, steps)
    tr = local.trace
    if tr.__class__ is Trace and (state := tr.state).sizes and self.__class__ is _TENSOR[0] and is_fleeting(state, getitem.body):
        try:
            made = _fleeting(self, index)
        except IndexError:
            return None  # told with the usual words
        if made is not None:
            not_remembered(state)
        return made
    return None


def _fleeting(x: Tensor, index: Any) -> Any:
    """x[index] where the call is not remembered, for the usual indices; None for another."""
    m = x._meta
    if index.__class__ is int:
        return _select_op(x, index, 0) if m.ndim and 0 <= index < m.shape[0] else None
    if index.__class__ is _TENSOR[0]:
        return _index_op(x, [index], (True,)) if index._meta.dtype is dtypes.int64 and m.ndim and index._meta.ndim else None
    steps = _remembered(m, index)
    if steps is None:
        return _mixed(x, index) if index.__class__ is tuple else None
    return _applied(x, steps)


@partial(remembered, by_values=_by_values)
def getitem(self: Tensor, index: Tensor | Any) -> Tensor:
    """x[index]: a view for basic indices, a copy where tensors, lists or masks are among them."""
    if index.__class__ is int:
        m = self._meta
        if m.ndim == 0:
            raise IndexError("invalid index of a 0-dim tensor. Use `tensor.item()` to convert a 0-dim tensor to a number")
        size = m.shape[0]
        if 0 <= index < size:
            return _select_op(self, index, 0)  # type: ignore[no-any-return]
        if not -size <= index < 0:
            raise _outside(index, 0, size)
        return _select_op(self, index + size, 0)  # type: ignore[no-any-return]
    steps = _remembered(self._meta, index)
    if steps is None:
        if index.__class__ is self.__class__ and index._meta.dtype is dtypes.int64 and self._meta.ndim and index._meta.ndim:
            return _index_op(self, [index], (True,))  # type: ignore[no-any-return]
        if index.__class__ is tuple and (made := _mixed(self, index)) is not None:
            return made
        plain = _with_numbers(_as_tuple(index))
        if plain is not index:
            return getitem(self, plain)  # type: ignore[no-any-return]
        items = _index_items(self, index)
        _enter(self, items)
        x, tensors = _basic(self, items)
        if not all_none(tensors):
            return _index_tensors(x, tensors)
        return _alias(x) if x is self else x  # type: ignore[no-any-return]
    return _applied(self, steps)


def _applied(x: Tensor, steps: Steps) -> Tensor:
    """The view that some steps make."""
    if not steps:
        return _alias(x)  # type: ignore[no-any-return]
    for operation_, arguments in steps:
        x = operation_(x, *arguments)
    return x


def _remembered(m: Any, index: Any) -> Steps | None:
    """What makes the view of an index that `_name_of` names; None for another index."""
    name = _name_of(m, index)
    if name is None:
        return None
    steps = _views.get(name)
    if steps is None:
        if len(_views) >= _MOST_VIEWS:
            _views.clear()
        steps = _views[name] = _steps(m, list(index) if index.__class__ is tuple else [index])[0]
    return steps


_AN_INDEX: Final = object()  # in the name of an index, for a tensor
_mixes: dict[tuple[Any, ...], tuple[Steps, tuple[bool, ...]]] = {}  # as `_views`, with which dims have index tensors


def _mixed(x: Tensor, index: tuple[Any, ...]) -> Tensor | None:
    """x[index] of vectors (or more) of int64 among ints, slices of ints, None and the ellipsis; None for another index."""
    tensors = [i for i in index if i.__class__ is _TENSOR[0]]
    if not tensors or not all(t._meta.dtype is dtypes.int64 and t._meta.ndim for t in tensors):
        return None
    name = _name_of(x._meta, tuple([Ellipsis if i.__class__ is _TENSOR[0] else i for i in index]))
    if name is None:
        return None
    name = (*[_AN_INDEX if i.__class__ is _TENSOR[0] else part for i, part in zip(index, name[1:], strict=True)], name[0])
    found = _mixes.get(name)
    if found is None:
        steps, dims = _steps(x._meta, list(index))
        while dims and dims[-1] is None:
            dims.pop()
        if len(_mixes) >= _MOST_VIEWS:
            _mixes.clear()
        found = _mixes[name] = steps, tuple([t is not None for t in dims])
    _enter(x, list(index))
    for operation_, arguments in found[0]:
        x = operation_(x, *arguments)
    return _index_op(x, tensors, found[1])  # type: ignore[no-any-return]


def all_none(tensors: list[Any]) -> bool:
    return all(t is None for t in tensors)


def _index_tensors(x: Any, tensors: list[Any]) -> Any:
    while tensors and tensors[-1] is None:
        tensors.pop()
    present = tuple([t is not None for t in tensors])
    return _index_op(x, [t for t in tensors if t is not None], present)


def _broadcast_indices(indices: Any) -> list[Any]:
    from flambeau.ops.primitive import broadcast_shapes

    try:
        shape = broadcast_shapes("index", [i._meta.shape for i in indices])
    except RuntimeError:
        raise IndexError(
            "shape mismatch: indexing tensors could not be broadcast together with shapes " + ", ".join([str(list(i._meta.shape)) for i in indices])
        ) from None
    return [prim.expand(convert(i, dtypes.int64), shape=shape) for i in indices]


def _index_plan(x: Any, present: tuple[bool, ...]) -> tuple[Any, int, int]:
    """Bring the indexed dims together: (permuted x, where they start, how many). PyTorch's rule: in place if adjacent, else in front."""
    dims = [d for d, here in enumerate(present) if here]
    adjacent = dims[-1] - dims[0] + 1 == len(dims)
    if adjacent:
        return x, dims[0], len(dims)
    order = dims + [d for d in range(x._meta.ndim) if d not in dims]
    return prim.permute(x, dims=tuple(order)), 0, len(dims)


def _linear(x: Any, start: int, count: int, indices: list[Any], present: tuple[bool, ...]) -> Any:
    """One index over the merged indexed dims. Each index is checked against its own dim by wrapping it there first."""
    shape = x._meta.shape[start : start + count]
    if 0 in shape and 0 not in indices[0]._meta.shape:
        raise IndexError(f"index is out of bounds for dimension with size 0: the tensor has shape {list(x._meta.shape)}; an index into it must be empty")
    if 0 not in (*x._meta.shape[:start], *x._meta.shape[start + count :]):  # else nothing is looked up
        for size, i, dim in zip(shape, indices, [d for d, here in enumerate(present) if here], strict=True):
            prim.bounded(i, size, dim, wraps=True)
    if count == 1:
        return indices[0]
    linear = None
    half = REFUSED // 2
    for size, i in zip(shape, indices, strict=True):
        wrapped = prim.where(prim.lt(i, 0), prim.add(i, prim.constant(size, dtypes.int64)), i)
        bad = prim.bitwise_or(prim.lt(wrapped, 0), prim.ge(wrapped, prim.constant(size, dtypes.int64)))
        # an index outside its own dim must not land on another row: send it outside of everything
        wrapped = prim.where(bad, prim.add(prim.minimum(prim.maximum(i, -half), half), REFUSED), wrapped)
        if linear is None:
            linear = wrapped
            continue
        scaled = prim.add(prim.mul(linear, prim.constant(size, dtypes.int64)), wrapped)
        linear = prim.where(prim.ge(linear, half), linear, prim.where(bad, wrapped, scaled))
    return linear


@operation(name="index")
def _index_op(input: Tensor, indices: Sequence[Tensor], present: tuple[bool, ...]) -> Tensor:
    moved, start, count = _index_plan(input, present)
    expanded = _broadcast_indices(indices)
    linear = _linear(moved, start, count, expanded, present)
    m = moved._meta
    merged = as_shape(moved, (*m.shape[:start], product_of(m.shape[start : start + count]), *m.shape[start + count :]))
    return laid_out(prim.take_rows(merged, linear, dim=start), _index_strides(m, start, count, [i._meta for i in expanded]))


def _index_strides(m: Meta, start: int, count: int, indices: list[Meta]) -> tuple[int, ...]:
    """Strides of x[indices]: PyTorch's iterator reads x with a stride of 0 along the dims of the indices, and then those."""
    among = indices[0].shape
    after = m.ndim - start - count
    shape = (*m.shape[:start], *among, *m.shape[start + count :])
    source = meta(shape, (*m.strides[:start], *[0] * len(among), *m.strides[start + count :]), m.dtype)
    wide = []
    for i in indices:  # reshaped: the dims of size 1 around those of the index have strides, which decide where the result's size is 1, too
        around = (1,) * start + tuple(among) + (1,) * after
        wide.append(meta(around, view_strides(i, around) or contiguous_strides(around), i.dtype))
    return iterator_strides([source, *wide], shape)


@remembered
def index(self: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """x[indices] for index tensors (None keeps a dim)."""
    return _index_tensors(self, list(indices))  # type: ignore[no-any-return]


@operation(name="index_put_value")
def _index_put_op(input: Tensor, indices: Sequence[Tensor], values: Tensor, present: tuple[bool, ...], mode: str) -> Tensor:
    moved, start, count = _index_plan(input, present)
    expanded = _broadcast_indices(indices)
    linear = _linear(moved, start, count, expanded, present)
    m = moved._meta
    merged = as_shape(moved, (*m.shape[:start], product_of(m.shape[start : start + count]), *m.shape[start + count :]))
    wanted = (*m.shape[:start], *linear._meta.shape, *m.shape[start + count :])
    source = values
    have = tuple(source._meta.shape)
    if 0 in m.shape[start : start + count] and 0 not in linear._meta.shape:  # PyTorch looks at this first
        raise IndexError(f"index is out of bounds for dimension with size 0: the tensor has shape {list(input._meta.shape)}")
    while len(have) > len(wanted) and have[0] == 1:
        source = as_shape(source, have[1:])
        have = have[1:]
    lead = len(wanted) - len(have)
    if lead < 0 or any(a not in (1, b) for a, b in zip(have, wanted[lead:], strict=True)):
        raise RuntimeError(f"shape mismatch: value tensor of shape {list(values._meta.shape)} cannot be broadcast to indexing result of shape {list(wanted)}")
    refuse_other_dtype(m, values)
    written = prim.put_rows(contiguous_of(merged), linear, prim.expand(source, shape=wanted), dim=start, mode=mode)
    result = as_shape(written, tuple(m.shape))
    if moved is not input:
        order = [d for d, here in enumerate(present) if here]
        order += [d for d in range(m.ndim) if d not in order]
        result = prim.permute(result, dims=tuple(sorted(range(m.ndim), key=order.__getitem__)))
    return laid_out(result, like_strides(input._meta.shape, input._meta.strides))


def refuse_other_dtype(m: Meta, values: Any) -> None:
    """RuntimeError if what is written at index tensors has another dtype than the tensor with the metadata `m`."""
    if values._meta.dtype is not m.dtype:
        raise RuntimeError(
            f"Index put requires the source and destination dtypes match, got {m.dtype.name} for the destination and {values._meta.dtype.name} for the "
            "source: convert the values with .to(...)"
        )


def index_put(input: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    """A copy with input[indices] replaced by (or, with accumulate, increased by) values, which have its dtype."""
    items = _index_items(input, tuple(indices))
    if not items:
        return _put_everywhere(input, values, accumulate)
    fills = not accumulate and _fills_by_mask(items, values)
    if fills:
        if any(i.dtype is dtypes.uint8 for i in items if hasattr(i, "_meta")):
            raise RuntimeError("index_put(): masked_fill_ only supports boolean masks, but got mask with dtype uint8: convert the mask with .bool()")
        values = values.to(input.dtype)
    items = [i for i in items if not _is_flag(i)] or items  # beside other indices PyTorch leaves them out
    x, tensors = _basic(input, items)
    while tensors and tensors[-1] is None:
        tensors.pop()
    present = tuple([t is not None for t in tensors])
    mode = "add" if accumulate else "set"
    used = [t for t in tensors if t is not None]
    result = _index_put_op(x, used, values, present, mode)
    most = x._meta.ndim - len(used) + max([t._meta.ndim for t in used], default=0) - any(_is_flag(i) for i in items)
    if values._meta.ndim > most and not fills:  # an assignment takes sizes of 1 in front away, this does not
        raise RuntimeError(f"shape mismatch: value tensor of shape {list(values._meta.shape)} cannot be broadcast to an indexing result of {most} dimensions")
    return result.reshape(tuple(input._meta.shape)) if any(_is_flag(i) for i in items) else result  # type: ignore[no-any-return]


def _is_flag(index: Any) -> bool:
    """Whether an index is a mask without dims: it stands for all or for nothing."""
    return is_mask(index) and not index._meta.ndim


def _fills_by_mask(items: list[Any], values: Any) -> bool:
    """Whether a write is one value wherever one mask is true, which PyTorch takes as masked_fill: the value is read before, and cast."""
    if values._meta.numel != 1:
        return False
    masks = [i for i in items if is_mask(i)]
    return len(masks) == 1 and not any((hasattr(i, "_meta") and i is not masks[0]) or isinstance(i, bool) for i in items)


def _put_everywhere(input: Any, values: Any, accumulate: bool) -> Any:
    """`index_put` without an index: the whole tensor, without the dims of size 1 that an assignment would let values have in front."""
    wanted, have = list(input._meta.shape), list(values._meta.shape)
    if len(have) > len(wanted) or any(a not in (1, b) for a, b in zip(have[::-1], wanted[::-1], strict=False)):
        raise RuntimeError(f"shape mismatch: value tensor of shape {have} cannot be broadcast to indexing result of shape {wanted}")
    refuse_other_dtype(input._meta, values)
    return input + values if accumulate else input.clone().copy_(values)


def index_put_(input: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    """input[indices] = values (or += with accumulate), in place."""
    if is_expanded(input):
        expanded_put(input, tuple(indices), values, accumulate)
        return input
    items = _index_items(input, tuple(indices))
    if len(items) > input._meta.ndim and all(hasattr(i, "_meta") for i in items):
        raise IndexError(f"index_put_(): too many indices for tensor of dimension {input._meta.ndim} (got {len(items)})")
    if values is input or any(i is input for i in indices):
        _basic(input, items)  # an index that does not fit is told of first
    fills = not accumulate and _fills_by_mask(items, values)
    refuse_overlaps(input, indices if fills else (values, *indices), "index_put_")
    (values,) = make_ready(input, (values,), "index_put_")
    return assign(input, index_put(input, indices, values, accumulate), "index_put_", again=lambda t: index_put(t, indices, values, accumulate))


def _given_value(self: Tensor, value: Any) -> Any:
    """What is written, as a tensor."""
    if hasattr(value, "_meta"):
        return value
    if isinstance(value, (bool, int, float, complex)):
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise ValueError(f"__setitem__(): Overflow when unpacking long long: {value} has more than 63 bits and a sign")
        return _full(fit(value, self.dtype, "__setitem__", single=True), (), self.dtype)
    return tensor(value).to(self.dtype)  # type: ignore[attr-defined]


def _set_by_values(self: Tensor, index: Tensor | Any, value: Tensor | Any) -> Any:
    """x[index] = value where integer tensors of no dims stand for numbers among basic indices; None for another index."""
    cls = index.__class__
    if cls is not _TENSOR[0] and cls is not tuple:
        return None
    plain = _with_numbers(index)
    steps = None if plain is index else _remembered(self._meta, plain)
    if steps is None:
        return None
    assign(_applied(self, steps) if steps else self, _given_value(self, value), "__setitem__")
    return self


@partial(remembered, writes=True, nothing=True, by_values=_set_by_values)
def setitem(self: Tensor, index: Tensor | Any, value: Tensor | Any) -> Tensor:
    """x[index] = value, in place: value is broadcast and cast. Nothing is returned to its caller."""
    given, value = value, _given_value(self, value)
    steps = _remembered(self._meta, index)
    if steps is not None:
        assign(_applied(self, steps) if steps else self, value, "__setitem__")
        return self
    plain = _with_numbers(_as_tuple(index))
    if plain is not index:
        setitem(self, plain, value)
        return self
    items = _index_items(self, index)
    if is_expanded(self) and any(hasattr(i, "_meta") for i in items):
        expanded_put(self, tuple(items), value, False)
        return self
    if len(items) == 1 and is_mask(items[0]) and value.numel() == 1:
        mask = items[0]
        if not mask.ndim:
            mask = mask.bool()  # a byte without dims is true or false
            if given is value:  # for PyTorch this is an index 0, or none, into a new dim
                refuse_other_dtype(self._meta, value)
                refuse_overlaps(self, (value,), "index_put_")
        if mask.ndim > self.ndim or tuple(mask.shape) != tuple(self.shape[: mask.ndim]):
            _basic(self, items)  # raises
        flat = value.reshape(())
        wide = mask.reshape((*mask.shape, *([1] * (self.ndim - mask.ndim))))
        refuse_overlaps(self, (wide,), "masked_fill_")
        make_ready(self, (), "__setitem__")
        assign(self, agreeing(self, self.masked_fill(wide, flat), lambda t: t.masked_fill(wide, flat)), "__setitem__")
        return self
    x, tensors = _basic(self, items)
    if all_none(tensors):
        assign(x, value, "__setitem__")
        return self
    while tensors and tensors[-1] is None:
        tensors.pop()
    present = tuple([t is not None for t in tensors])
    # PyTorch takes sizes of 1 in front away from a value, which makes it another tensor: without elements it has nothing in common with itself.
    apart = value is x and not value._meta.numel and value._meta.shape[0] == 1
    if _fills_by_mask(items, value) and not any(_is_flag(i) for i in items):
        apart, value = True, value.to(x.dtype)
    refuse_overlaps(x, tensors if apart else (value, *tensors), "index_put_")
    (value,) = make_ready(x, (value,), "__setitem__")
    used = [t for t in tensors if t is not None]
    result = _index_put_op(x, used, value, present, "set")
    assign(x, agreeing(x, result, lambda t: _index_put_op(t, used, value, present, "set")), "__setitem__")
    return self


def delitem(self: Tensor, index: Any) -> None:
    """del x[index]: TypeError, as of PyTorch's tensors."""
    raise TypeError("Tensor does not support deleting items: select those to keep, as in torch.cat([x[:i], x[i + 1 :]])")


def is_mask(index: Any) -> bool:
    """Whether an index is a mask, which PyTorch fills with a single value whatever its dtype."""
    return hasattr(index, "_meta") and index.dtype in (dtypes.bool_, dtypes.uint8)


# -- gather, scatter and relatives --------------------------------------------------------------------------------


def _check_index(index: Any, name: str, x: Any, dim: int | None, wraps: bool = False) -> Any:
    """The index into a dim of x (None: into all of its elements) as int64. `wraps`: negative ones count from the end, as only some functions
    of PyTorch let them."""
    if index.dtype not in (dtypes.int64, dtypes.int32) and index._meta.numel:
        raise RuntimeError(f"{name}(): Expected dtype int64 for index, got {index.dtype.name}; convert it with .long()")
    m = x._meta
    size = m.numel if dim is None else m.shape[dim] if m.ndim else 1
    position = convert(index, dtypes.int64)
    elsewhere = dim is not None and m.ndim > 0 and 0 in (*m.shape[:dim], *m.shape[dim + 1 :])
    if (elsewhere and name != "index_select") or (name == "index_add" and m.ndim > 1 and not m.numel):  # nothing is looked up
        return position if wraps else prim.refuse_negative(position)
    return prim.bounded(position, size, dim or 0, wraps)


def _crop(x: Any, shape: tuple[int, ...], but: int, name: str) -> Any:
    """The leading part of x that an index of this shape addresses."""
    for d, size in enumerate(shape):
        if d == but:
            continue
        if size > x._meta.shape[d]:
            raise RuntimeError(
                f"Size does not match at dimension {d} expected index {list(shape)} to be no larger than self {list(x._meta.shape)} "
                f"apart from dimension {but} ({name})"
            )
        if size != x._meta.shape[d]:
            x = prim.slice(x, dim=d, start=0, length=size, step=1)
    return x


def _lift(x: Any) -> Any:
    return as_shape(x, (1,)) if x._meta.ndim == 0 else x


@operation(method=True, out=True)
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """out[i][j] = input[index[i][j]][j] for dim 0, and so on."""
    d = dim_of(dim, input._meta.ndim)
    position = _check_index(index, "gather", input, d)
    x, i = _lift(input), _lift(position)
    if not index._meta.numel:  # PyTorch takes an empty index of any shape
        return tied(prim.zeros_of(tuple(index._meta.shape), input.dtype), input)  # type: ignore[no-any-return]
    if x._meta.ndim != i._meta.ndim:
        raise RuntimeError(f"Index tensor must have the same number of dimensions as input tensor: {index._meta.ndim} and {input._meta.ndim}")
    if x._meta.shape[d] == 0:
        raise RuntimeError(f"gather(): index 0 is out of bounds for dimension {dim} with size 0: there is nothing to take (input {tuple(input._meta.shape)})")
    result = prim.gather(_crop(x, tuple(i._meta.shape), d, "gather"), i, dim=d)
    return as_shape(result, tuple(index._meta.shape)) if index._meta.ndim == 0 else result


def _scatter(input: Any, dim: int, index: Any, src: Any, mode: str, name: str) -> Any:
    d = dim_of(dim, input._meta.ndim)
    position = _lift(_check_index(index, name, input, d))
    x = _lift(input)
    is_tensor = hasattr(src, "_meta") and not src._meta.wrapped
    if is_tensor and src.dtype is not x.dtype:
        raise RuntimeError(f"{name}(): Expected self.dtype to be equal to src.dtype, got {x.dtype} and {src.dtype}")
    if not index._meta.numel:  # of any shape: nothing is written
        copy = prim.copy(input, strides=contiguous_of(input)._meta.strides)
        return tied(copy, src) if is_tensor else copy
    if x._meta.ndim != position._meta.ndim:
        raise RuntimeError(f"{name}(): Index tensor must have the same number of dimensions as self tensor: {index._meta.ndim} and {input._meta.ndim}")
    shape = tuple(position._meta.shape)
    for axis, size in enumerate(shape):
        if axis != d and size > x._meta.shape[axis]:
            raise RuntimeError(f"{name}(): Expected index {list(shape)} to be no larger than self {list(x._meta.shape)} apart from dimension {d}")
    if not is_tensor:
        source = prim.expand(fitted(src, x.dtype, name), shape=shape)
    else:
        source = _lift(src)
        if source._meta.ndim != len(shape):
            raise RuntimeError(f"{name}(): Index tensor must have the same number of dimensions as src tensor: {index._meta.ndim} and {src._meta.ndim}")
        for axis, size in enumerate(shape):
            if size > source._meta.shape[axis]:
                raise RuntimeError(f"{name}(): Expected index {list(shape)} to be no larger than src {list(source._meta.shape)} in dimension {axis}")
            if size != source._meta.shape[axis]:
                source = prim.slice(source, dim=axis, start=0, length=size, step=1)
    whole = all(axis == d or size == x._meta.shape[axis] for axis, size in enumerate(shape))
    if whole:
        result = prim.scatter(contiguous_of(x), position, source, dim=d, mode=mode)
    else:
        inner = contiguous_of(_crop(x, shape, d, name))
        written = prim.scatter(inner, position, source, dim=d, mode=mode)
        base = prim.copy(x, strides=contiguous_of(x)._meta.strides)
        view = base
        for axis, size in enumerate(shape):
            if axis != d and size != x._meta.shape[axis]:
                view = prim.slice(view, dim=axis, start=0, length=size, step=1)
        result = prim.scatter_view(base, written, view)
    return as_shape(result, tuple(input._meta.shape)) if input._meta.ndim == 0 else result


_REDUCE = {"add": "add", "multiply": "prod", "sum": "add", "prod": "prod", "amax": "amax", "amin": "amin"}


@operation(name="scatter_values")
@row_major
def _scatter_op(input: Tensor, dim: int, index: Tensor, src: Tensor | Number, mode: str, name: str) -> Tensor:
    return _scatter(input, dim, index, src, mode, name)  # type: ignore[no-any-return]


@remembered_with_axis
def scatter(
    input: Tensor, dim: int, index: Tensor, src: Tensor | Any = None, *, value: Any = None, reduce: str | None = None, out: Any = None,
) -> Tensor:  # fmt: skip
    """A copy with out[index[i][j]][j] = src[i][j] for dim 0, and so on; `reduce` may be "add" or "multiply"."""
    if (src is None) == (value is None):
        raise TypeError("scatter() takes either 'src' (a tensor) or 'value' (a number), got " + ("neither" if src is None else "both"))
    if reduce is not None and reduce not in ("add", "multiply"):
        raise RuntimeError("reduce argument must be either add or multiply.")
    if out is not None:
        refuse_overlaps(out, (index, src), "scatter")
    return into(out, _scatter_op(input, dim, index, value if src is None else src, _REDUCE.get(reduce or "", "set"), "scatter"), "scatter")


@operation(method=True, inplace=True, out=True)
@row_major
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A copy with src added at the places that index names."""
    return _scatter(input, dim, index, src, "add", "scatter_add")  # type: ignore[no-any-return]


@operation(method=True, inplace=True, out=True)
@row_major
def scatter_reduce(input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True) -> Tensor:
    """A copy with src combined at the places that index names: sum, prod, mean, amax or amin."""
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    refuse_dtype(f"scatter_reduce_{reduce}", input.dtype)
    x = input
    if not include_self:
        start = {"sum": 0, "prod": 1, "mean": 0, "amax": float("-inf"), "amin": float("inf")}[reduce]
        if x.dtype.category < 2 and isinstance(start, float):
            start = _integer_extreme(x.dtype, reduce == "amax")
        shape = tuple(index._meta.shape)
        x = _scatter(x, dim, index, prim.expand(prim.constant(start, x.dtype), shape=shape), "set", "scatter_reduce")
    if reduce != "mean":
        return _scatter(x, dim, index, src, _REDUCE[reduce], "scatter_reduce")  # type: ignore[no-any-return]
    total = _scatter(x, dim, index, src, "add", "scatter_reduce")
    kind = x.dtype.to_real() if x.dtype.is_complex else x.dtype
    ones = prim.full_of(tuple(src._meta.shape), prim.constant(1, kind))
    start = prim.full_of(tuple(x._meta.shape), prim.constant(1 if include_self else 0, kind))
    count = _scatter(start, dim, index, ones, "add", "scatter_reduce")
    count = convert(prim.maximum(count, prim.constant(1, kind)), x.dtype)
    return prim.div(total, count) if x.dtype.category > 1 else prim.div_floor(total, count)


def _integer_extreme(d: Any, lowest: bool) -> int:
    bits = 8 * d.itemsize
    if not d.is_signed:
        return 0 if lowest else (1 << bits) - 1
    return -(1 << (bits - 1)) if lowest else (1 << (bits - 1)) - 1


@operation(method=True, out=True)
def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The entries of one dim that index (1-d) names, in its order."""
    d = dim_of(dim, input._meta.ndim)
    if index._meta.ndim > 1:
        raise IndexError(f"index_select(): Index is supposed to be a vector, got shape {tuple(index._meta.shape)}")
    if input._meta.ndim > 1 and not input._meta.shape[d] and index._meta.numel:  # of one dim: an index out of range, as in PyTorch
        raise RuntimeError(f"index_select(): self indexing axis dim should be positive: dim {d} of a tensor of shape {tuple(input._meta.shape)} has no entries")
    position = _lift(_check_index(index, "index_select", input, d))
    if input._meta.ndim == 0:
        if position._meta.shape[0] != 1:
            raise RuntimeError(f"index_select(): Index to scalar can have only 1 value, got {position._meta.shape[0]} value(s)")
        return as_shape(prim.take_rows(as_shape(input, (1,)), position, dim=0), ())
    return prim.take_rows(input, position, dim=d)


def check_rows(input: Any, d: int, index: Any, source: Any, name: str) -> None:
    """Errors of index_add, index_reduce and index_copy where index or source have the wrong shape; for copies a tensor without dims is one of one element."""
    x, s, number = tuple(input._meta.shape), tuple(source._meta.shape), index._meta.numel
    lifted = name == "index_copy"
    if index._meta.ndim > 1:
        raise IndexError(f"{name}(): Index is supposed to be a vector, but got dim: {index._meta.ndim} with size: {tuple(index._meta.shape)}")
    if not s and number != 1:
        raise IndexError(f"{name}(): When source is scalar, index should have one element (got {number})")
    if lifted and s and x and len(s) != len(x):
        raise IndexError(f"{name}(): source and destination must have the same number of dims, got {len(s)} (shape {s}) and {len(x)} (shape {x})")
    unequal = x[:d] + x[d + 1 :] != s[:d] + s[d + 1 :]
    if s and number != s[min(d, len(s) - 1)] and not (lifted and unequal):
        kind = IndexError if lifted else RuntimeError
        raise kind(f"{name}(): Number of indices ({number}) should be equal to source.size(dim) ({s[min(d, len(s) - 1)]}), for dim {d} of source of shape {s}")
    if unequal or (not lifted and len(x) != len(s)):
        raise RuntimeError(
            f"{name}(): source tensor shape must match self tensor shape, excluding the specified dimension ({d}). Got self.shape = {x}, source.shape = {s}"
        )


def _put_rows(input: Any, dim: int, index: Any, source: Any, mode: str, name: str) -> Any:
    d = dim_of(dim, input._meta.ndim)
    if name != "index_fill":
        check_rows(input, d, index, source, name)
    position = _lift(_check_index(index, name, input, d, wraps=name == "index_fill"))
    x, s = _lift(input), _lift(source)
    if s.dtype is not x.dtype:
        raise RuntimeError(f"{name}(): self ({x.dtype}) and source ({s.dtype}) must have the same scalar type")
    return as_shape(prim.put_rows(contiguous_of(x), position, s, dim=d, mode=mode), tuple(input._meta.shape))


@operation(method=True, inplace=True, out=True)
@row_major
def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Number = 1) -> Tensor:
    """A copy with alpha * source added to the entries of one dim that index names."""
    s = source if not hasattr(alpha, "_meta") and alpha == 1 else prim.mul(source, fitted(alpha, source.dtype, "index_add"))
    return _put_rows(input, dim, index, s, "add", "index_add")  # type: ignore[no-any-return]


@operation(method=True, inplace=True, out=True)
@row_major
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy with the entries of one dim that index names replaced by source."""
    return _put_rows(input, dim, index, source, "set", "index_copy")  # type: ignore[no-any-return]


@operation(method=True, inplace=True)
@like_input
def index_fill(input: Tensor, dim: int, index: Tensor, value: Tensor | Number) -> Tensor:
    """A copy with the entries of one dim that index names set to a number."""
    d = dim_of(dim, input._meta.ndim)
    if input._meta.ndim and 0 in (*input._meta.shape[:d], *input._meta.shape[d + 1 :]):
        return prim.copy(input, strides=contiguous_of(input)._meta.strides)  # nothing is looked up
    if (value.dtype.is_complex if hasattr(value, "_meta") else isinstance(value, complex)) and not input.dtype.is_complex:
        raise RuntimeError("index_fill_(): Converting complex Scalar to non-complex type is not supported")
    shape = _lift(input)._meta.shape
    rows = tuple([index._meta.numel if j == d else 1 for j in range(len(shape))])
    plain = prim.full_of(tuple([s if j == d else 1 for j, s in enumerate(shape)]), prim.constant(False, dtypes.bool_))
    # By a mask of the rows: an entry that index names twice is filled once, which matters to the gradient of a tensor value.
    named = _put_rows(plain, dim, index, prim.full_of(rows, prim.constant(True, dtypes.bool_)), "set", "index_fill")
    if input._meta.ndim == 0:
        named = as_shape(named, ())
    return prim.where(named, fitted(value, input.dtype, "index_fill"), input)  # type: ignore[no-any-return]


@operation(method=True, out=True)
def take(input: Tensor, index: Tensor) -> Tensor:
    """Elements of the flattened tensor."""
    flat = as_shape(input, (input._meta.numel,))
    return prim.take_rows(flat, _check_index(index, "take", input, None, wraps=True), dim=0)


@operation(method=True, out=True)
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """gather with broadcasting of the other dims, indices modulo the size; over the flattened tensor without a dim, where they must be inside."""
    if dim is None:
        position = _check_index(indices, "take_along_dim", input, None)
        return prim.gather(as_shape(input, (input._meta.numel,)), as_shape(position, (position._meta.numel,)), dim=0)
    d = dim_of(dim, input._meta.ndim)
    if indices.dtype is not dtypes.int64 and indices._meta.numel:
        raise RuntimeError(f"torch.take_along_dim(): dtype of indices should be Long but got {dtypes.C_NAMES[indices.dtype.name]}; convert them with .long()")
    if input._meta.ndim and not input._meta.shape[d] and indices._meta.numel:
        raise RuntimeError(f"take_along_dim(): dimension {d} of the input has size 0 (shape {list(input._meta.shape)}); indices into it must be empty")
    # modulo the size, as PyTorch takes them
    position = prim.remainder(convert(indices, dtypes.int64), prim.constant(max(input._meta.shape[d] if input._meta.ndim else 1, 1), dtypes.int64))
    if input._meta.ndim == 0 == indices._meta.ndim:
        raise IndexError("torch.take_along_dim(): Dimension specified as 0 but tensor has no dimensions")
    if input._meta.ndim != indices._meta.ndim:
        raise RuntimeError(
            f"torch.take_along_dim(): input and indices should have the same number of dimensions, but got {input._meta.ndim} "
            f"dimensions for input, and {indices._meta.ndim} dimensions for indices"
        )
    from flambeau.ops.primitive import broadcast_shapes

    a, b = list(input._meta.shape), list(indices._meta.shape)
    a[d] = b[d] = 1
    common = list(broadcast_shapes("take_along_dim", [tuple(a), tuple(b)]))
    common[d] = input._meta.shape[d]
    x = prim.expand(input, shape=tuple(common))
    common[d] = indices._meta.shape[d]
    return prim.gather(x, prim.expand(position, shape=tuple(common)), dim=d)


@operation(method=True, inplace=True)
@row_major
def masked_fill(input: Tensor, mask: Tensor, value: Tensor | Number) -> Tensor:
    """A copy with a number where mask holds."""
    if mask.dtype is not dtypes.bool_:
        raise RuntimeError(f"masked_fill_ only supports boolean masks, but got mask with dtype {mask.dtype.name}")
    if not isinstance(value, (int, float, complex)) and value._meta.ndim:
        raise RuntimeError(f"masked_fill_ only supports a 0-dimensional value tensor, but got tensor with {value._meta.ndim} dimension(s).")
    if not input.dtype.is_complex and not isinstance(value, (int, float, complex)) and value._meta.dtype.is_complex:
        raise RuntimeError(f"masked_fill(): value cannot be converted to type {input.dtype.name} without overflow: it is complex")
    return prim.where(mask, fitted(value, input.dtype, "masked_fill"), input)


@operation(method=True)
@row_major
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy with the elements where mask holds taken, in order, from source."""
    from flambeau.ops.primitive import broadcast_shapes

    if mask.dtype is not dtypes.bool_:
        raise RuntimeError(f"masked_scatter_ only supports boolean masks, but got mask with dtype {mask.dtype.name}")
    shape = broadcast_shapes("masked_scatter", [input._meta.shape, mask._meta.shape])
    prim.counted(mask, source._meta.numel, product_of(shape))
    wide = prim.expand(mask, shape=shape)
    flat = as_shape(wide, (product_of(shape),))
    empty = not source._meta.numel  # then there is no element but one that may not be taken
    rank = prim.sub(prim.cumsum(convert(flat, dtypes.int64), dim=0), prim.constant(0 if empty else 1, dtypes.int64))
    position = prim.where(flat, rank, 0)
    row = prim.full_of((1,), prim.constant(0, source.dtype)) if empty else as_shape(source, (source._meta.numel,))
    result = prim.where(wide, as_shape(prim.take_rows(row, position, dim=0), shape), prim.expand(input, shape=shape))
    return tied(result, source) if empty else result


def install_methods(cls: Any) -> None:
    """Indexing syntax and the methods with several forms."""
    cls.__getitem__, cls.__setitem__, cls.__delitem__ = getitem, setitem, delitem
    cls.index_put, cls.index_put_ = index_put, index_put_
    cls.scatter = scatter

    @numpy_names
    def scatter_(self: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None) -> Tensor:
        """In-place form of `scatter`."""
        refuse_unlike(self, (index, src), "scatter_", lambda: scatter(self, dim, index, src, value=value, reduce=reduce))
        (src,) = make_ready(self, (src,), "scatter_")
        again = partial(scatter, dim=dim, index=index, src=src, value=value, reduce=reduce)
        return assign(self, again(self), "scatter_", again=again)

    cls.scatter_ = scatter_
