"""Batching rules: what each primitive does to tensors that carry one more dim, the batch of a `vmap`, in front.

A rule is `rule(c, *inputs) -> result or tuple of results`. `inputs` are the tensors with their batch; those of which
`c.batched[i]` is False have none. Every result has the batch in front. In scope of a rule:

    c.name, c.apply(*inputs, **attrs)   the primitive
    c.attrs                             its attributes, for tensors without the batch
    c.size                              how many samples the batch has
    c.ndim(i), c.shape(i)               of input i, without the batch

Most rules are one of four: pointwise (dims of size one align the inputs), shifted (the attributes that name dims count from the
next one), all batched (inputs without a batch are repeated), folded (the batch becomes part of a dim that is a batch already).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from flambeau import dtypes
from flambeau.compiler.graph import POINTWISE
from flambeau.compiler.kernel import REFUSED
from flambeau.ops.primitive import PRIMITIVES, Primitive, constant, rule_of
from flambeau.ops.primitives import contract, move, view
from flambeau.ops.primitives.pointwise import add, bitwise_or, ge, iota, lt, mul, where
from flambeau.ops.primitives.recurrent import batched
from flambeau.trace.strides import view_strides

RULES: dict[str, Callable[..., Any]] = {}


class BatchContext:
    """What a batching rule sees of one application of a primitive."""

    __slots__ = ("apply", "attrs", "batched", "inputs", "name", "size")

    def __init__(
        self, primitive: Primitive, attrs: dict[str, Any], inputs: list[Any], batched: tuple[bool, ...], size: int
    ) -> None:  # fmt: skip
        self.name = primitive.name
        self.apply = primitive
        self.attrs = attrs
        self.inputs = inputs
        self.batched = batched
        self.size = size

    def ndim(self, i: int) -> int:
        return self.inputs[i]._meta.ndim - self.batched[i]  # type: ignore[no-any-return]

    def shape(self, i: int) -> tuple[int, ...]:
        return tuple(self.inputs[i]._meta.shape[self.batched[i] :])

    def repeated(self, i: int) -> Any:
        """Input i with a batch: repeated (without a copy), if it has none."""
        x = self.inputs[i]
        return x if self.batched[i] else view.expand(x, shape=(self.size, *x._meta.shape))

    def all(self) -> list[Any]:
        """Every input with a batch."""
        return [self.repeated(i) for i in range(len(self.inputs))]


def batch(
    primitive: Primitive, attrs: dict[str, Any], inputs: list[Any], batched: tuple[bool, ...], size: int
) -> Any:  # fmt: skip
    """Record a primitive over inputs of which some have a batch; every result has it."""
    c = BatchContext(primitive, attrs, inputs, batched, size)
    rule = RULES.get(primitive.name)
    if rule is None:
        if primitive.name not in POINTWISE:
            raise NotImplementedError(f"vmap: the primitive {primitive.name} has no batching rule")
        rule = _pointwise
    return rule(c, *inputs)


# -- pointwise ----------------------------------------------------------------------------------------------------
def aligned(x: Any, ndim: int) -> Any:
    """A batched tensor whose samples get dims of size one in front, up to `ndim`."""
    shape = x._meta.shape
    missing = ndim - (len(shape) - 1)
    return x if missing <= 0 else view.reshape(x, shape=(shape[0], *(1,) * missing, *shape[1:]))


def _pointwise(c: BatchContext, *inputs: Any) -> Any:
    ndim = max(c.ndim(i) for i in range(len(inputs)))
    return c.apply(*[aligned(x, ndim) if b else x for x, b in zip(inputs, c.batched, strict=True)], **c.attrs)


@rule_of(RULES, "random_uniform")
def _random(c: BatchContext, *inputs: Any) -> Any:
    if any(c.batched):
        raise RuntimeError("vmap: a random operation's seed must be one number for all samples")
    return c.apply(*inputs, **{**c.attrs, "shape": (c.size, *c.attrs["shape"])})


def _in_range(index: Any, size: int) -> tuple[Any, Any]:
    """(the index with negative ones counted from the end, where it is out of range)."""
    wrapped = where(lt(index, 0), add(index, constant(size, dtypes.int64)), index)
    return wrapped, bitwise_or(lt(wrapped, 0), ge(wrapped, constant(size, dtypes.int64)))


def _row_of_all(c: BatchContext, index: Any, size: int) -> Any:
    """A batched index into dims of this size as an index into all samples' rows, one after another."""
    wrapped, bad = _in_range(index, size)
    first = mul(iota(shape=(c.size, *(1,) * (index._meta.ndim - 1)), dim=0), constant(size, dtypes.int64))
    return where(bad, REFUSED, add(wrapped, first))


@rule_of(RULES, "take")
def _take(c: BatchContext, x: Any, index: Any) -> Any:
    if not c.batched[0]:
        return c.apply(x, index)
    index = c.repeated(1)
    shape = tuple(index._meta.shape)
    return move.gather(x, index.reshape(c.size, -1), dim=1).reshape(shape)


@rule_of(RULES, "searchsorted")
def _searchsorted(c: BatchContext, ordered: Any, values: Any) -> Any:
    if not c.batched[0] and c.ndim(0) == 1:
        return c.apply(ordered, values, **c.attrs)
    ordered, values = c.all()
    if c.ndim(0) > 1:
        return c.apply(ordered, values, **c.attrs)
    return c.apply(ordered, values.reshape(c.size, -1), **c.attrs).reshape(values._meta.shape)


# -- shifted ------------------------------------------------------------------------------------------------------
def _shift(attrs: dict[str, Any]) -> dict[str, Any]:
    """Attributes that name dims, for tensors with a batch in front."""
    made = dict(attrs)
    for key in ("dim", "dim1", "dim2"):
        if key in made:
            made[key] += 1
    if "dims" in made:
        made["dims"] = tuple([d + 1 for d in made["dims"]])
    return made


@rule_of(RULES,
    "slice", "select", "diagonal", "unfold", "sum", "prod", "amax", "amin", "argmax", "argmin", "var_mean", "fourier", "cumsum", "cumprod", "cummax",
    "cummin", "logcumsumexp", "sort", "topk", "alias", "view", "bitcast", "real_view",
)  # fmt: skip
def _shifted(c: BatchContext, x: Any, *numbers: Any) -> Any:
    if any(c.batched[1:]):
        raise RuntimeError(f"vmap: where a view starts must be one number for all samples ({c.name})")
    return c.apply(x, *numbers, **_shift(c.attrs))


@rule_of(RULES, "permute")
def _permute(c: BatchContext, x: Any) -> Any:
    return c.apply(x, dims=(0, *(d + 1 for d in c.attrs["dims"])))


@rule_of(RULES, "reshape")
def _reshape(c: BatchContext, x: Any) -> Any:
    return c.apply(x, shape=(c.size, *c.attrs["shape"]))


@rule_of(RULES, "expand")
def _expand(c: BatchContext, x: Any) -> Any:
    return c.apply(aligned(x, len(c.attrs["shape"])), shape=(c.size, *c.attrs["shape"]))


@rule_of(RULES, "as_strided")
def _as_strided(c: BatchContext, x: Any, *offsets: Any) -> Any:
    """The samples start one step of the batch's stride after another, whatever lies between."""
    attrs = {**c.attrs, "shape": (c.size, *c.attrs["shape"]), "strides": (x._meta.strides[0], *c.attrs["strides"])}
    return c.apply(x, *offsets, **attrs)


@rule_of(RULES, "copy")
def _copy(c: BatchContext, x: Any) -> Any:
    return c.apply(x, strides=(max(prod(c.shape(0)), 1), *c.attrs["strides"]))


# -- all batched --------------------------------------------------------------------------------------------------
@rule_of(RULES, "concatenate", "gather", "scatter")
def _all_batched(c: BatchContext, *inputs: Any) -> Any:
    return c.apply(*c.all(), **_shift(c.attrs))


@rule_of(RULES, "scatter_view")
def _scatter_view(c: BatchContext, base: Any, source: Any, *offsets: Any) -> Any:
    base = c.repeated(0)
    if not c.batched[0]:
        base = move.copy(base, strides=(max(prod(c.shape(0)), 1), *c.inputs[0]._meta.strides))
    attrs = {**c.attrs, "shape": (c.size, *c.attrs["shape"]), "strides": (base._meta.strides[0], *c.attrs["strides"])}
    return c.apply(base, c.repeated(1), *offsets, **attrs)


def _rows_merged(x: Any, dim: int) -> Any:
    """(batch, ..., n at dim, ...) as (batch * n, the rest): all samples' rows one after another."""
    moved = x.movedim(dim + 1, 1)
    return moved.reshape(moved.shape[0] * moved.shape[1], *moved.shape[2:])


@rule_of(RULES, "take_rows")
def _take_rows(c: BatchContext, x: Any, index: Any) -> Any:
    dim = c.attrs["dim"]
    if not c.batched[1]:
        return c.apply(x, index, dim=dim + 1)
    if not c.batched[0]:
        found = c.apply(x, index, dim=dim)
        return found if dim == 0 else found.movedim(dim, 0)
    found = c.apply(_rows_merged(x, dim), _row_of_all(c, index, c.shape(0)[dim]), dim=0)
    if dim == 0:
        return found
    places = index._meta.ndim - 1  # (batch, *index, *before, *after) -> (batch, *before, *index, *after)
    order = [0, *range(1 + places, 1 + places + dim), *range(1, 1 + places), *range(1 + places + dim, found.ndim)]
    return found.permute(order)


@rule_of(RULES, "put_rows")
def _put_rows(c: BatchContext, x: Any, index: Any, source: Any) -> Any:
    dim, mode = c.attrs["dim"], c.attrs["mode"]
    x, source = c.repeated(0).contiguous(), c.repeated(2)
    if not c.batched[1]:
        return c.apply(x, index, source, dim=dim + 1, mode=mode)
    places = index._meta.ndim - 1  # the source: (batch, *before, *index, *after) -> (batch, *index, *before, *after)
    order = [0, *range(1 + dim, 1 + dim + places), *range(1, 1 + dim), *range(1 + dim + places, source.ndim)]
    rows = _rows_merged(x, dim).contiguous()
    written = c.apply(rows, _row_of_all(c, index, c.shape(0)[dim]), source.permute(order), dim=0, mode=mode)
    shape = c.shape(0)
    whole = written.reshape(c.size, shape[dim], *shape[:dim], *shape[dim + 1 :])
    return whole if dim == 0 else whole.movedim(1, dim + 1)


@rule_of(RULES, "put")
def _put(c: BatchContext, x: Any, index: Any, source: Any) -> Any:
    x, index, source = c.all()
    return move.scatter(x.contiguous(), index.reshape(c.size, -1), source.reshape(c.size, -1), dim=1, mode=c.attrs["mode"])


@rule_of(RULES, "host_call")
def _host_call(c: BatchContext, *inputs: Any) -> Any:
    attrs = dict(c.attrs)
    attrs["results"] = tuple([((c.size, *shape), d) for shape, d in attrs["results"]])
    return c.apply(*c.all(), **attrs)


# -- products -----------------------------------------------------------------------------------------------------
@rule_of(RULES, "matmul")
def _matmul(c: BatchContext, a: Any, b: Any) -> Any:
    if not c.batched[1] and c.ndim(0) == 2:
        merged = (c.size * a._meta.shape[1], a._meta.shape[2])
        if view_strides(a._meta, merged) is not None:  # one product of all samples' rows
            return view.reshape(c.apply(view.reshape(a, shape=merged), b, **c.attrs), shape=(c.size, *a._meta.shape[1:-1], b._meta.shape[-1]))
    return c.apply(*c.all(), **c.attrs)


def _fold(x: Any, dim: int) -> Any:
    """(batch, ..., n at dim, ...) as (..., batch * n, ...)."""
    moved = x if dim == 0 else x.movedim(0, dim)
    shape = moved.shape
    return moved.reshape(*shape[:dim], shape[dim] * shape[dim + 1], *shape[dim + 2 :])


def _unfold(x: Any, dim: int, size: int) -> Any:
    """The reverse of `_fold`."""
    shape = x.shape
    split = x.reshape(*shape[:dim], size, shape[dim] // size, *shape[dim + 1 :])
    return split if dim == 0 else split.movedim(dim, 0)


@rule_of(RULES, "convolution")
def _convolution(c: BatchContext, x: Any, w: Any) -> Any:
    """Images are folded; with a batch of weights, every sample is a group of channels (or of output channels alone)."""
    if not c.batched[1]:
        return _unfold(c.apply(_fold(x, 0), w, **c.attrs), 0, c.size)
    if not c.batched[0] and c.attrs["groups"] == 1:
        return _unfold(c.apply(x, _fold(w, 0), **c.attrs), 1, c.size)
    x = c.repeated(0)
    return _unfold(c.apply(_fold(x, 1), _fold(w, 0), **{**c.attrs, "groups": c.attrs["groups"] * c.size}), 1, c.size)


@rule_of(RULES, "convolution_input_gradient")
def _convolution_input_gradient(c: BatchContext, g: Any, w: Any) -> Any:
    n, channels, *spatial = c.attrs["shape"]
    if not c.batched[1]:
        shape = (c.size * n, channels, *spatial)
        return _unfold(c.apply(_fold(g, 0), w, **{**c.attrs, "shape": shape}), 0, c.size)
    g = c.repeated(0)
    attrs = {**c.attrs, "groups": c.attrs["groups"] * c.size, "shape": (n, c.size * channels, *spatial)}
    return _unfold(c.apply(_fold(g, 1), _fold(w, 0), **attrs), 1, c.size)


@rule_of(RULES, "convolution_weight_gradient")
def _convolution_weight_gradient(c: BatchContext, g: Any, x: Any) -> Any:
    out, per_group, *kernel = c.attrs["shape"]
    attrs = {**c.attrs, "shape": (c.size * out, per_group, *kernel)}
    if not c.batched[1] and c.attrs["groups"] == 1:
        return _unfold(c.apply(_fold(g, 1), x, **attrs), 0, c.size)
    attrs["groups"] *= c.size
    return _unfold(c.apply(_fold(c.repeated(0), 1), _fold(c.repeated(1), 1), **attrs), 0, c.size)


@rule_of(RULES, "max_pool", "average_pool", "max_pool_gradient", "average_pool_gradient")
def _pool(c: BatchContext, *inputs: Any) -> Any:
    n, *rest = c.attrs["shape"]
    folded = [_fold(x, 0) for x in c.all()]
    results = c.apply(*folded, **{**c.attrs, "shape": (c.size * n, *rest)})
    return tuple([_unfold(r, 0, c.size) for r in results]) if isinstance(results, tuple) else _unfold(results, 0, c.size)


@rule_of(RULES, "attention", "attention_gradient")
def _attention(c: BatchContext, *inputs: Any) -> Any:
    """One more leading dim of everything."""
    return c.apply(*c.all(), **c.attrs)


@rule_of(RULES, "recurrent", "recurrent_gradient")
def _recurrent(c: BatchContext, *inputs: Any) -> Any:
    """Step by step."""
    return batched(c.name, c.attrs, inputs, c.batched, c.size)


@rule_of(RULES, "coded_matmul", "two_of_four_matmul")
def _coded(c: BatchContext, *inputs: Any) -> Any:
    """A batch of rows is more rows."""
    if any(c.batched[1:]):
        raise NotImplementedError("vmap: coded or semi-structured weights with a batch; decode them first")
    x = inputs[0]
    rows = c.apply(view.reshape(x, shape=(c.size * x.shape[1], x.shape[2])), *inputs[1:], **c.attrs)
    return view.reshape(rows, shape=(c.size, x.shape[1], rows.shape[1]))


def without_rule() -> list[str]:
    """Primitives that no rule covers (none; the tests look)."""
    return sorted(name for name in PRIMITIVES if name not in RULES and name not in POINTWISE)


assert contract.matmul.name == "matmul"  # the module is imported so that every primitive is known here
