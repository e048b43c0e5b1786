"""Data movement: copies, concatenation, writes into views, gather and scatter, sorting. Meanings in compiler/graph.py."""

from __future__ import annotations

from typing import Any

from flambeau import dtypes
from flambeau.compiler.graph import Value, contiguous_strides
from flambeau.compiler.kernel import REFUSED
from flambeau.ops.primitive import constant, dense, primitive, same_dtype
from flambeau.ops.primitives.pointwise import _conj, iota, lt, sub, where
from flambeau.trace.meta import Meta
from flambeau.trace.recorder import local
from flambeau.trace.state import COUNT


def zeros_of(shape: tuple[int, ...], dtype_: dtypes.dtype) -> Any:
    """Zeros, materialised."""
    return full_of(shape, constant(0, dtype_))


def full_of(shape: tuple[int, ...], value: Any) -> Any:
    """A 0-d value in every element, materialised."""
    from flambeau.ops.primitives.view import expand

    return copy(expand(value, shape=tuple(shape)), strides=contiguous_strides(tuple(shape)))


def _copy_rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    return [Value(tuple(metas[0].shape), metas[0].dtype, attrs["strides"])]


@primitive("copy", _copy_rule)
def copy(c, g):
    """attr strides: a permutation of contiguous ones."""
    return g


def _concatenate_rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    dim = attrs["dim"]
    shape = list(metas[0].shape)
    shape[dim] = sum([m.shape[dim] for m in metas])
    return dense(tuple(shape), same_dtype("cat", metas))


@primitive("concatenate", _concatenate_rule)
def concatenate(c, g):
    grads = []
    start = 0
    for i in range(c.count):
        length = c.shape(i)[c.attrs["dim"]]
        grads.append(g.narrow(c.attrs["dim"], start, length) if c.needs(i) else None)
        start += length
    return tuple(grads)


def _scatter_view_rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    base = metas[0]
    return [Value(tuple(base.shape), base.dtype, base.strides)]


def scatter_view(base: Any, source: Any, view: Any) -> Any:
    """`base` with the elements of `view`, a view of it, replaced by `source` (the view's shape and dtype)."""
    trace = local.trace
    value = trace.value(view._slot)
    attrs = {
        "shape": tuple(value.shape), "strides": value.strides, "offset": value.offset,
        "multipliers": tuple([m for _, m in value.dynamic]),
    }  # fmt: skip
    offsets = [trace.at(slot) for slot, _ in value.dynamic]
    return scatter_view_primitive(base, source, *offsets, **attrs)


def _written(c: Any, of: Any) -> Any:
    """The elements of `of`, laid out as the base, that the view covers."""
    attrs = {k: c.attrs[k] for k in ("shape", "strides", "offset")}
    return as_strided_dynamic(of, [c.input(i) for i in range(2, c.count)], attrs, c.attrs["multipliers"])


def as_strided_dynamic(of: Any, offsets: list[Any], attrs: dict[str, Any], multipliers: tuple[int, ...]) -> Any:
    """as_strided whose offset grows by offset * multiplier at run time."""
    from flambeau.ops.primitives.view import as_strided, as_strided_at_run_time

    if not offsets:
        return as_strided(of, **attrs)
    return as_strided_at_run_time(of, *offsets, multipliers=multipliers, **attrs)


@primitive("scatter_view", _scatter_view_rule)
def scatter_view_primitive(c, g):
    dense_g = copy(g, strides=c.value(0).strides) if not c.has_layout_of_input(g, 0) else g
    g_base = g_source = None
    if c.needs(1):
        g_source = _written(c, dense_g)
    if c.needs(0):
        zeros = full_of(tuple(c.attrs["shape"]), constant(0, g._meta.dtype))
        offsets = [c.input(i) for i in range(2, c.count)]
        g_base = scatter_view_primitive(dense_g, zeros, *offsets, **c.attrs)
    return (g_base, g_source) + (None,) * (c.count - 2)


def bounded(index: Any, size: int, dim: int, wraps: bool = False, skip: int | None = None, what: str = "index") -> Any:
    """The index (int64) of something of this size, as kernels take it; who calls the operation looks at values that are at hand (trace/bounds.py).

    `wraps`: negative values count from the end. `skip`: values that are not used, whatever the size is.
    """
    expected(index, -size if wraps else 0, size, dim, skip, what)
    return index if wraps else refuse_negative(index)


def expected(index: Any, low: int, size: int, dim: int, skip: int | None = None, what: str = "index") -> None:
    """Who calls the operation sees to it that values that are at hand are from `low` to `size` - 1, or `skip`."""
    if index._meta.numel:
        local.trace.note(index, low, size, dim, skip, what)


def counted(mask: Any, most: int, numel: int) -> None:
    """Who calls the operation sees to it that a mask that is at hand, broadcast to `numel` elements, is True for `most` of them or fewer."""
    if numel:
        local.trace.note(mask, 0, most // (numel // mask._meta.numel), 0, COUNT, "mask")


def refuse_negative(index: Any) -> Any:
    """The index (int64), but where it is negative out of every range: kernels would count it from the end."""
    return where(lt(index, 0), sub(index, REFUSED), index)  # also where that wraps around, it is out of range


def _take_rows_rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    x, index = metas
    dim = attrs["dim"]
    return dense((*x.shape[:dim], *index.shape, *x.shape[dim + 1 :]), x.dtype)


@primitive("take_rows", _take_rows_rule)
def take_rows(c, g):
    return put_rows(zeros_of(tuple(c.shape(0)), g._meta.dtype), c.input(1), g, dim=c.attrs["dim"], mode="add"), None


def _base_rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    return dense(tuple(metas[0].shape), metas[0].dtype)


def _scatter_gradient(c: Any, g: Any, read: Any, write: Any) -> Any:
    """Gradients of base and source of a scatter, for the modes set, add, prod, amax, amin.

    `read(x)` picks the elements that the index names; `write(base, source, mode)` is the scatter itself."""
    mode = c.attrs["mode"]
    index = c.input(1)
    if mode == "add":
        return g, None, read(g, index) if c.needs(2) else None
    if mode == "set":
        zeros = index.new_zeros(c.shape(2), dtype=g._meta.dtype)
        return (write(g, index, zeros, "set") if c.needs(0) else None, None, read(g, index) if c.needs(2) else None)
    base, source, out = c.input(0), c.input(2), c.output(0)
    if mode == "prod":
        # The product of the others: zeros are counted and left out of the product.
        zero_base, zero_source = base.eq(0), source.eq(0)
        base, source = where(zero_base, 1.0, base), where(zero_source, 1.0, source)
        zeros = write(zero_base.to(dtypes.int64), index, zero_source.to(dtypes.int64), "add")
        product = write(base, index, source, "prod")
        g_base = g * _conj(where((zeros - zero_base.to(dtypes.int64)).gt(0), 0.0, product / base))
        g_source = read(g, index) * _conj(where((read(zeros, index) - zero_source.to(dtypes.int64)).gt(0), 0.0, read(product, index) / source))
        return g_base, None, g_source
    hits_base = base.eq(out).to(g.dtype)
    hits_source = source.eq(read(out, index)).to(g.dtype)
    share = g / write(hits_base, index, hits_source, "add")
    return share * hits_base, None, hits_source * read(share, index)


@primitive("put_rows", _base_rule)
def put_rows(c, g):
    dim = c.attrs["dim"]
    return _scatter_gradient(c, g, lambda x, i: take_rows(x, i, dim=dim), lambda b, i, s, mode: put_rows(b, i, s, dim=dim, mode=mode))


def _gather_rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    return dense(tuple(metas[1].shape), metas[0].dtype)


@primitive("gather", _gather_rule)
def gather(c, g):
    dim, index, shape = c.attrs["dim"], c.input(1), tuple(c.shape(0))
    if shape and tuple(c.shape(1)) == (*shape[:dim], 1, *shape[dim + 1 :]):
        # One element of each row, as cross_entropy picks it: a comparison fuses with what follows, a scatter does not.
        place = where(index < 0, index + shape[dim], index)
        return where(iota(shape=shape, dim=dim).eq(place), g, constant(0, g._meta.dtype)), None
    return scatter(zeros_of(shape, g._meta.dtype), index, g, dim=dim, mode="add"), None


@primitive("scatter", _base_rule)
def scatter(c, g):
    dim = c.attrs["dim"]
    return _scatter_gradient(c, g, lambda x, i: gather(x, i, dim=dim), lambda b, i, s, mode: scatter(b, i, s, dim=dim, mode=mode))


@primitive("put", _base_rule)
def put(c, g):
    from flambeau.ops.primitives.pointwise import take

    return _scatter_gradient(c, g, take, lambda b, i, s, mode: put(b, i, s, mode=mode))


def _sort_rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    shape = list(metas[0].shape)
    if "k" in attrs:
        shape[attrs["dim"]] = attrs["k"]
    return dense(tuple(shape), metas[0].dtype) + dense(tuple(shape), dtypes.int64)


def _sort_gradient(c: Any, g: Any) -> Any:
    if g is None:
        return None
    zeros = zeros_of(tuple(c.shape(0)), g._meta.dtype)
    return scatter(zeros, c.output(1), g, dim=c.attrs["dim"], mode="add")


@primitive("sort", _sort_rule)
def sort(c, g, _):
    return _sort_gradient(c, g)


@primitive("topk", _sort_rule)
def topk(c, g, _):
    return _sort_gradient(c, g)
