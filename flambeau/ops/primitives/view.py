"""Views: no kernel, only another layout of the same storage. Each gives absolute strides and offset over the base.

`Value.base` of a rule's result is the position of the aliased input; the recorder makes it the base's slot.
"""

from __future__ import annotations

from typing import Any

from flambeau.compiler.graph import Value, may_repeat
from flambeau.ops.primitive import Primitive, primitive
from flambeau.trace.meta import CONJ, NEG, Meta
from flambeau.trace.strides import expanded_strides, view_strides


def _view(m: Meta, shape: tuple[int, ...], strides: tuple[int, ...], offset: int | None = None) -> list[Value]:
    return [Value(tuple(shape), m.dtype, tuple(strides), m.offset if offset is None else offset, 0)]


def _reshape_rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    m = metas[0]
    strides = attrs.get("strides") or view_strides(m, attrs["shape"])
    assert strides is not None, "the operation checks that the view is possible"
    return _view(m, attrs["shape"], strides)


@primitive("reshape", _reshape_rule)
def reshape(c, g):
    """attr shape; only where no copy is needed. attr strides, where PyTorch has a rule of its own for those of size 1."""
    return g.reshape(c.shape(0))


def _permute_rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    m = metas[0]
    return _view(m, [m.shape[d] for d in attrs["dims"]], [m.strides[d] for d in attrs["dims"]])


@primitive("permute", _permute_rule)
def permute(c, g):
    """attr dims."""
    dims = c.attrs["dims"]
    inverse = tuple(sorted(range(len(dims)), key=dims.__getitem__))
    return permute(g, dims=inverse)


def _expand_rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    m, shape = metas[0], attrs["shape"]
    return _view(m, shape, expanded_strides(m.shape, m.strides, shape))


@primitive("expand", _expand_rule)
def expand(c, g):
    """attr shape: dimensions of size 1, or missing in front, are repeated with stride 0."""
    return g.sum_to_size(c.shape(0))


def _run_time(metas: list[Meta], stride: int) -> tuple[tuple[int, int], ...]:
    """The dynamic part of an offset: (position of the input, multiplier); the recorder makes the position a slot."""
    return ((1, stride),) if len(metas) > 1 else ()


def _slice_rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    m, dim, step = metas[0], attrs["dim"], attrs["step"]
    shape = list(m.shape)
    shape[dim] = attrs["length"]
    strides = list(m.strides)
    stride = strides[dim]
    strides[dim] = stride * step
    return [Value(tuple(shape), m.dtype, tuple(strides), m.offset + attrs["start"] * stride, 0, _run_time(metas, stride))]


@primitive("slice", _slice_rule)
def slice(c, g):
    """attrs dim, start, length, step; an optional second input adds to start at run time."""
    from flambeau.ops.primitives.move import scatter_view, zeros_of

    zeros = zeros_of(c.shape(0), g._meta.dtype)
    start = c.input(1) if c.count > 1 else None
    return (scatter_view(zeros, g, _slice_of(zeros, c.attrs, start)),) + (None,) * (c.count - 1)


def _slice_of(zeros: Any, attrs: dict[str, Any], start: Any) -> Any:
    return slice(zeros, *(() if start is None else (start,)), **attrs)


def _select_rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    m, dim = metas[0], attrs["dim"]
    shape, strides = list(m.shape), list(m.strides)
    del shape[dim]
    stride = strides.pop(dim)
    offset = m.offset + attrs["index"] * stride
    return [Value(tuple(shape), m.dtype, tuple(strides), offset, 0, _run_time(metas, stride))]


@primitive("select", _select_rule)
def select(c, g):
    """attrs dim, index; an optional second input adds to index at run time."""
    from flambeau.ops.primitives.move import scatter_view, zeros_of

    zeros = zeros_of(c.shape(0), g._meta.dtype)
    extra = (c.input(1),) if c.count > 1 else ()
    return (scatter_view(zeros, g, select(zeros, *extra, **c.attrs)),) + (None,) * (c.count - 1)


def _diagonal_rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    m, offset, a, b = metas[0], attrs["offset"], attrs["dim1"], attrs["dim2"]
    if offset >= 0:
        length = max(0, min(m.shape[a], m.shape[b] - offset))
        start = offset * m.strides[b]
    else:
        length = max(0, min(m.shape[a] + offset, m.shape[b]))
        start = -offset * m.strides[a]
    keep = [d for d in range(m.ndim) if d not in (a, b)]
    shape = [m.shape[d] for d in keep] + [length]
    strides = [m.strides[d] for d in keep] + [m.strides[a] + m.strides[b]]
    return _view(m, shape, strides, m.offset + (start if length else 0))


@primitive("diagonal", _diagonal_rule)
def diagonal(c, g):
    """attrs offset, dim1, dim2."""
    from flambeau.ops.primitives.move import scatter_view, zeros_of

    zeros = zeros_of(c.shape(0), g._meta.dtype)
    return scatter_view(zeros, g, diagonal(zeros, **c.attrs))


def _unfold_rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    m, dim, size, step = metas[0], attrs["dim"], attrs["size"], attrs["step"]
    shape, strides = list(m.shape), list(m.strides)
    stride = strides[dim]
    shape[dim] = (shape[dim] - size) // step + 1
    strides[dim] = stride * step
    return _view(m, [*shape, size], [*strides, stride])


@primitive("unfold", _unfold_rule)
def unfold(c, g):
    """attrs dim, size, step: sliding windows as a new last dimension."""
    return _overlapping_gradient(c, g, lambda index: unfold(index, **c.attrs))


def _overlapping_gradient(c: Any, g: Any, view: Any) -> Any:
    """Gradient of a view whose elements may repeat: add each into the flat input by its index."""
    from flambeau.ops.primitives.move import put, zeros_of

    shape = tuple(c.shape(0))
    count = 1
    for size in shape:
        count *= size
    from flambeau.ops.primitives.pointwise import iota

    index = reshape(iota(shape=(count,), dim=0), shape=shape)
    flat = put(zeros_of((count,), g._meta.dtype), view(index).reshape(-1), g.reshape(-1), mode="add")
    return reshape(flat, shape=shape)


def _as_strided_rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    dynamic = tuple(enumerate(attrs.get("multipliers", ()), start=1))
    return [Value(attrs["shape"], metas[0].dtype, attrs["strides"], attrs["offset"], 0, dynamic)]


@primitive("as_strided", _as_strided_rule)
def as_strided(c, g):
    """attrs shape, strides, offset: absolute over the base's storage, whatever the layout of the input."""
    from flambeau.ops.primitives.move import as_strided_dynamic, put, zeros_of
    from flambeau.ops.primitives.pointwise import iota

    value = c.value(0)
    storage = 1 + value.offset + sum((size - 1) * stride for size, stride in zip(value.shape, value.strides, strict=True))
    if 0 in value.shape:
        return zeros_of(tuple(value.shape), g._meta.dtype)
    storage = max(storage, 1 + c.attrs["offset"] + sum(
        (size - 1) * stride for size, stride in zip(c.attrs["shape"], c.attrs["strides"], strict=True)
    ))  # fmt: skip
    offsets = [c.input(i) for i in range(1, c.count)]
    if offsets or value.dynamic:  # they start where run-time numbers say: anywhere in the storage
        root = value if value.base is None else c.region.value(value.base)
        storage = max(storage, root.numel * root.dtype.itemsize // value.dtype.itemsize)
    index = as_strided(iota(shape=(storage,), dim=0), *offsets, **c.attrs)
    flat = put(zeros_of((storage,), g._meta.dtype), index.reshape(-1), g.reshape(-1), mode="add")
    starts = [c.at(slot) for slot, _ in value.dynamic]
    attrs = {"shape": tuple(value.shape), "strides": value.strides, "offset": value.offset}
    multipliers = tuple([multiplier for _, multiplier in value.dynamic])
    if may_repeat(value.shape, value.strides):  # the elements of one place share its gradient
        places = as_strided_dynamic(iota(shape=(storage,), dim=0), starts, attrs, multipliers).reshape(-1)
        real = flat._meta.dtype.to_real() if flat._meta.dtype.is_complex else flat._meta.dtype
        count = put(zeros_of((storage,), real), places, zeros_of((value.numel,), real) + 1, mode="add")
        flat = flat / count.clamp_min(1)
    grad = as_strided_dynamic(flat, starts, attrs, multipliers)
    return (grad,) + (None,) * (c.count - 1)


@primitive("alias", lambda metas, attrs: _view(metas[0], metas[0].shape, metas[0].strides))
def alias(c, g):
    """The same layout under another number. attr bits: as conjugates or negatives (trace/meta.py). A node of a graph has no such attribute: it is of what
    is in memory, and so is its gradient. One of a transform's tape is of the tensors."""
    from flambeau.ops.primitives.pointwise import conj_physical, neg

    bits = c.attrs.get("bits", 0)
    if bits & CONJ:
        g = conj_physical(g)
    return neg(g) if bits & NEG else g


detach = Primitive("view", lambda metas, attrs: _view(metas[0], metas[0].shape, metas[0].strides), None)
"""The same layout; gradients stop here."""


def _bitcast_rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    m, d = metas[0], attrs["dtype"]
    old, new = m.dtype.itemsize, d.itemsize
    shape, strides, offset = list(m.shape), list(m.strides), m.offset
    if new < old:
        ratio = old // new
        shape[-1] *= ratio
        strides = [s * ratio for s in strides[:-1]] + [1]
        offset *= ratio
    elif new > old:
        ratio = new // old
        shape[-1] //= ratio
        strides = [s // ratio for s in strides[:-1]] + [1]
        offset //= ratio
    return [Value(tuple(shape), d, tuple(strides), offset, 0)]


bitcast = Primitive("bitcast", _bitcast_rule, None)
"""attr dtype: the same bytes read as another type; the last dimension grows or shrinks with the item size."""


def _real_view_rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    m = metas[0]
    if m.dtype.is_complex:
        return [Value((*m.shape, 2), m.dtype.to_real(), (*(2 * s for s in m.strides), 1), 2 * m.offset, 0)]
    strides = tuple(s // 2 for s in m.strides[:-1])
    return [Value(tuple(m.shape[:-1]), m.dtype.to_complex(), strides, m.offset // 2, 0)]


@primitive("real_view", _real_view_rule)
def real_view(c, g):
    """A complex tensor as pairs of reals in a new last dimension, and back."""
    if c.dtype(0).is_complex:
        from flambeau.ops.primitives.pointwise import make_complex

        return make_complex(select(g, dim=g._meta.ndim - 1, index=0), select(g, dim=g._meta.ndim - 1, index=1))
    return real_view(g.contiguous())


def flat_in(x: Any, dtype: Any) -> Any:
    """All of the memory of `x`, which fills it, as elements of another dtype in one dim. Between complex and real: with gradients."""
    have, n = x._meta.dtype, x._meta.numel
    if have.is_complex and dtype is have.to_real():
        return reshape(real_view(as_strided(x, shape=(n,), strides=(1,), offset=0)), shape=(2 * n,))
    if dtype.is_complex and have is dtype.to_real():
        return real_view(as_strided(x, shape=(n // 2, 2), strides=(2, 1), offset=0))
    return bitcast(as_strided(x, shape=(n,), strides=(1,), offset=0), dtype=dtype)


def as_strided_at_run_time(x: Any, *offsets: Any, shape: Any, strides: Any, offset: int, multipliers: Any) -> Any:
    """as_strided with run-time offsets: one select of length-one windows each would do the same, more slowly."""
    from flambeau.trace.recorder import local

    attrs = {"multipliers": multipliers, "offset": offset, "shape": shape, "strides": strides}
    return local.trace.record(as_strided, (x, *offsets), attrs)
