"""vmap over a graph that is being traced: a `Mapped` tensor is a sample of a tensor that has all of them, and each call becomes one over all samples.

A call without a rule becomes one node whose target is a `Mapping`, which maps the operator when the graph runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import flambeau
from flambeau._ops import OpOverload
from flambeau.export.schemas import Schema
from flambeau.export.shapes import layout_of
from flambeau.export.tracing import Traced, traced
from flambeau.ops import dispatch
from flambeau.trace.meta import meta
from flambeau.trace.objects import bare
from flambeau.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

if TYPE_CHECKING:
    from flambeau.export.make_fx import FunctionTracer

aten: Final = flambeau.ops.aten


class Level:
    """A vmap that is being traced: how many samples, what random operations do (`randomness` of vmap)."""

    def __init__(self, number: int, size: Any, randomness: str) -> None:
        self.number, self.size, self.randomness = number, size, randomness

    def mine(self, t: Any) -> bool:
        """Whether `t` is a sample of this level."""
        return isinstance(t, Mapped) and t.level is self

    def enter(self, t: Any, dim: int) -> Any:
        """A sample of `t` along a dim."""
        return mapped(self, t, dim)

    def leave(self, t: Any, dim: int) -> Any:
        """All samples of `t`, along a dim."""
        made = all_samples(self, t)
        if dim == 0:
            return made
        order = list(range(1, len(layout_of(made).shape)))
        return aten.permute.default(made, [*order[:dim], 0, *order[dim:]])


class Mapped(Traced):
    """A sample, of `batch` along a dim."""

    batch: Any
    along: int
    level: Level


dispatch.admit(Mapped)


def mapped(level: Level, batch: Any, dim: int = 0) -> Any:
    """A sample of `batch`. Of levels in one another the newest is outermost."""
    if isinstance(batch, Mapped) and batch.level.number > level.number:
        place = dim + (dim >= batch.along)
        return mapped(batch.level, mapped(level, batch.batch, place), batch.along - (place < batch.along))
    m = layout_of(batch)
    dim %= len(m.shape)
    made: Mapped = bare(Mapped)
    cut = [d for d in range(len(m.shape)) if d != dim]
    requires_grad = batch.requires_grad
    made._meta = meta(tuple([m.shape[d] for d in cut]), tuple([m.strides[d] for d in cut]), m.dtype, 0, requires_grad, True, False, False, m.device, m.bits)
    made._storage = None
    made.batch, made.along, made.level = batch, dim, level
    return made


def all_samples(level: Level, t: Any) -> Any:
    """What has the samples of `t` along its first dim."""
    if isinstance(t, Mapped) and t.level is level:
        return _first(t.batch, t.along)
    if isinstance(t, Mapped) and t.level.number > level.number:
        inner = all_samples(level, _first(t.batch, t.along))
        return mapped(t.level, inner, 1)
    return aten.expand.default(t, [level.size, *layout_of(t).shape])


def _first(t: Any, dim: int) -> Any:
    if dim == 0:
        return t
    order = [dim, *[d for d in range(len(layout_of(t).shape)) if d != dim]]
    return aten.permute.default(t, order)


class Mapping:
    """An operator over all samples, at run time: `(args, kwargs)`, of which some leaves have samples along their first dim."""

    def __init__(self, function: Callable[..., Any], wanted: tuple[int, ...], randomness: str) -> None:
        self.function, self.wanted, self.randomness = function, wanted, randomness
        self.__name__ = self.__qualname__ = f"vmap_of_{str(getattr(function, '__name__', function)).replace('.', '_')}"

    def __call__(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        leaves, structure = tree_flatten((tuple(args), kwargs))

        def of(*tensors: Any) -> Any:
            given = list(leaves)
            for i, t in zip(self.wanted, tensors, strict=True):
                given[i] = t
            inner, named = tree_unflatten(given, structure)
            result = self.function(*inner, **named)
            return tuple(result) if isinstance(result, (tuple, list)) else result

        return flambeau.vmap(of, randomness=self.randomness)(*[leaves[i] for i in self.wanted])


def newest(args: Any, kwargs: Any) -> Level | None:
    """The innermost level of a call's arguments."""
    levels = [t.level for t in tree_leaves((args, kwargs)) if isinstance(t, Mapped)]
    return max(levels, key=lambda level: level.number) if levels else None


POINTWISE: Final = frozenset(
    """abs acos acosh add addcdiv addcmul asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor ceil clamp clamp_max clamp_min clone
    conj copysign cos cosh deg2rad div digamma elu eq erf erfc erfinv exp exp2 expm1 floor fmax fmin fmod gelu ge gt hardsigmoid hardswish hardtanh hypot
    isfinite isinf isnan isneginf isposinf leaky_relu lerp lgamma log log10 log1p log2 logaddexp logical_and logical_not logical_or logical_xor logit lt le
    masked_fill maximum minimum mish mul nan_to_num ne neg pow positive reciprocal relu remainder round rsqrt rsub sgn sigmoid sign signbit silu sin sinc sinh
    softplus sqrt sub tan tanh threshold trunc where xlogy zeros_like ones_like full_like empty_like detach alias lift_fresh_copy _to_copy tanh_backward
    sigmoid_backward threshold_backward silu_backward gelu_backward hardtanh_backward leaky_relu_backward elu_backward softplus_backward mish_backward
    hardswish_backward hardsigmoid_backward""".split()
)
RANDOM: Final = frozenset("bernoulli rand randn randint randperm normal uniform native_dropout rand_like randn_like randint_like multinomial poisson".split())


class Batcher:
    """One call over all samples of `level`."""

    def __init__(self, tracer: FunctionTracer, level: Level) -> None:
        self.tracer, self.level = tracer, level

    def mine(self, t: Any) -> bool:
        """Whether `t` is a sample of this level."""
        return self.level.mine(t)

    def call(self, s: Schema, args: Sequence[Any], kwargs: dict[str, Any], function: Any, call: tuple[Sequence[Any], dict[str, Any]]) -> Any:
        """The results of a call, each a sample."""
        op = function if isinstance(function, OpOverload) and function.namespace != "aten" else getattr(getattr(aten, s.name), s.overload)
        written = s.name.endswith("_") and bool(s.parameters) and s.parameters[0].written
        if written and not self.mine(args[0]):
            raise RuntimeError(
                f"vmap: aten::{s.name}(self, *extra_args) is not possible because there exists a Tensor `other` in extra_args that has more elements than "
                "`self`. This happened due to `other` being vmapped over but `self` not being vmapped over in a vmap."
            )
        plain = s.name.removesuffix("_") if written else s.name
        if plain in RANDOM and self.level.randomness == "error":
            raise RuntimeError(
                "vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' randomness flags on vmap or "
                "perform the randomness operation out of vmap"
            )
        if plain in POINTWISE:
            result = self._pointwise(op, args, kwargs, written)
            return args[0] if written else result
        if s.name == "bernoulli_":
            self._bernoulli(args[0].batch, args[0].along, op, args[1:])
            return args[0]
        if written:
            raise NotImplementedError(f"make_fx: {s.name} under vmap writes in place; use the form that returns its result")
        rule = _RULES.get(plain)
        result = rule(self, op, args, kwargs) if rule is not None else None
        return result if result is not None else self._by_mapping(op, args, kwargs, function, call)

    def _pointwise(self, op: Any, args: Sequence[Any], kwargs: dict[str, Any], written: bool) -> Any:
        tensors = [t for t in tree_leaves((tuple(args), kwargs)) if isinstance(t, flambeau.Tensor)]
        rank = max([len(layout_of(t).shape) for t in tensors])
        numbers = {layout_of(t).dtype for t in tensors}

        def aligned(t: Any) -> Any:
            if not self.mine(t):
                return t
            own = len(layout_of(t).shape)
            b = all_samples(self.level, t)
            if own == 0 and rank and len(numbers) > 1 and layout_of(t).dtype is not flambeau.bool:
                others = [x for x in tensors if len(layout_of(x).shape)]
                b = aten._to_copy.default(b, dtype=flambeau.result_type(_like(others[0]), _like(t)))  # a sample without dims promotes as a number does
            for _ in range(rank - own):
                b = aten.unsqueeze.default(b, 1)
            return b

        result = op(*tree_map(aligned, tuple(args)), **tree_map(aligned, kwargs))
        return None if written else mapped(self.level, result)

    def _bernoulli(self, batch: Any, along: int, op: Any, rest: Sequence[Any]) -> None:
        if self.level.randomness == "same":
            aten.copy_.default(batch, aten.unsqueeze.default(op(aten.empty_like.default(aten.select.int(batch, along, 0)), *rest), along))
        else:
            self.tracer.draws, before = True, self.tracer.draws
            try:
                op(batch, *rest)
            finally:
                self.tracer.draws = before

    def _by_mapping(self, op: Any, args: Sequence[Any], kwargs: dict[str, Any], function: Any, call: tuple[Sequence[Any], dict[str, Any]]) -> Any:
        """By one node that maps the operator when the graph runs."""
        sample = self.tracer.like(op, args, kwargs, function, call)
        single = isinstance(sample, flambeau.Tensor)
        results = self.opaque(op, tuple(args), [sample] if single else list(sample), single, kwargs)
        return results[0] if single else tuple(results)

    def opaque(self, target: Any, args: tuple[Any, ...], likes: Sequence[Any], single: bool, kwargs: dict[str, Any] | None = None) -> list[Any]:
        """The samples of a call's results; `likes` say what one of each is like."""
        leaves, structure = tree_flatten((args, kwargs or {}))
        positions = tuple([i for i, t in enumerate(leaves) if self.mine(t)])
        given, named = tree_unflatten([all_samples(self.level, t) if self.mine(t) else t for t in leaves], structure)
        over = Mapping(target, positions, self.level.randomness)
        return [mapped(self.level, b) for b in self.tracer.opaque(over, (list(given), named), [self._batch(t) for t in likes], single)]

    def _batch(self, sample: Any) -> Any:
        m = layout_of(sample)
        return traced(meta((self.level.size, *m.shape), None, m.dtype, device=m.device))


def _like(t: Any) -> Any:
    m = layout_of(t)
    return flambeau.empty((1,) * len(m.shape), dtype=m.dtype, device="meta")


def _rank(t: Any) -> int:
    return len(layout_of(t).shape)


def _one(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A rule for a call of one tensor: (samples, rank of one, the other arguments) -> the result's samples."""

    def call(b: Batcher, op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if not b.mine(args[0]) or any(b.mine(t) for t in tree_leaves((tuple(args[1:]), kwargs))):
            return None
        result = rule(all_samples(b.level, args[0]), _rank(args[0]), op, args, kwargs, b)
        if result is None:
            return None
        return [mapped(b.level, t) for t in result] if isinstance(result, (tuple, list)) else mapped(b.level, result)

    return call


def _dim(d: int, rank: int, more: int = 0) -> int:
    return d % (rank + more) + 1 if rank + more else 0


def _reduction(x: Any, rank: int, op: Any, args: Any, kwargs: Any, b: Batcher) -> Any:
    dims = args[1] if len(args) > 1 else kwargs.get("dim")
    rest = {k: v for k, v in kwargs.items() if k != "dim"}
    if isinstance(dims, int) or (rank and dims):
        return op(x, _dim(dims, rank) if isinstance(dims, int) else [_dim(d, rank) for d in dims], *args[2:], **rest) if rank else None
    named = getattr(getattr(aten, op.overloadpacket.__name__), "dim_IntList" if op.overloadpacket.__name__ == "sum" else "dim", None)
    if not rank or op.overloadpacket.__name__ not in ("sum", "mean") or named is None:
        return None
    return named(x, list(range(1, rank + 1)), *args[2:], **rest)


def _sized(x: Any, rank: int, op: Any, args: Any, kwargs: Any, b: Batcher) -> Any:
    return op(x, [b.level.size, *args[1]])


def _expand(x: Any, rank: int, op: Any, args: Any, kwargs: Any, b: Batcher) -> Any:
    for _ in range(len(args[1]) - rank):
        x = aten.unsqueeze.default(x, 1)
    return op(x, [b.level.size, *args[1]])


def _by_dim(x: Any, rank: int, op: Any, args: Any, kwargs: Any, b: Batcher) -> Any:
    if op.overloadpacket.__name__ == "squeeze" and rank and len(args) > 1 and isinstance(args[1], (list, tuple)):
        return op(x, [_dim(d, rank) for d in args[1]])
    return op(x, _dim(args[1], rank), *args[2:], **kwargs) if rank and len(args) > 1 and isinstance(args[1], int) else None


def _split(x: Any, rank: int, op: Any, args: Any, kwargs: Any, b: Batcher) -> Any:
    return op(x, args[1], _dim((*args[2:], 0)[0], rank))


def _new(x: Any, rank: int, op: Any, args: Any, kwargs: Any, b: Batcher) -> Any:
    return op(x, [b.level.size, *args[1]], *args[2:], **kwargs)


def _sized_backward(b: Batcher, op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """select_backward and slice_backward: (gradient, sizes, dim, ...)."""
    x = all_samples(b.level, args[0])
    return mapped(b.level, op(x, [b.level.size, *args[1]], _dim(args[2], len(args[1])), *args[3:]))


def _product(b: Batcher, op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """mm, bmm, mv, dot: products of what has one more dim."""
    x, y = [all_samples(b.level, t) if b.mine(t) else t for t in args[:2]]
    ranks = _rank(args[0]), _rank(args[1])
    if ranks == (2, 2) and b.mine(args[0]) and not b.mine(args[1]):
        m, k = layout_of(args[0]).shape
        flat = aten.mm.default(aten.reshape.default(x, [b.level.size * m, k]), y)
        return mapped(b.level, aten.view.default(flat, [b.level.size, m, layout_of(y).shape[1]]))
    if ranks == (2, 2):
        return mapped(b.level, aten.bmm.default(x if b.mine(args[0]) else all_samples(b.level, x), y if b.mine(args[1]) else all_samples(b.level, y)))
    if ranks == (1, 1):
        return mapped(b.level, aten.sum.dim_IntList(aten.mul.Tensor(x, y), [-1]))
    if ranks == (2, 1):
        column = aten.unsqueeze.default(y, -1)
        x, column = (t if b.mine(a) else all_samples(b.level, t) for t, a in ((x, args[0]), (column, args[1])))
        return mapped(b.level, aten.squeeze.dim(aten.bmm.default(x, column), -1))
    return None


def _addmm(b: Batcher, op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if kwargs:
        return None
    return aten.add.Tensor(aten.mm.default(args[1], args[2]), args[0])


def _joined(b: Batcher, op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    parts = [all_samples(b.level, t) for t in args[0]]
    rank = _rank(args[0][0])
    dim = args[1] if len(args) > 1 else 0
    if len({_rank(t) for t in args[0]}) > 1:
        return None
    return mapped(b.level, op(parts, _dim(dim, rank, 1 if op.overloadpacket.__name__ == "stack" else 0)))


_RULES: Final[dict[str, Callable[..., Any]]] = {
    **{n: _one(_reduction) for n in ("sum", "mean", "amax", "amin")},
    "view": _one(_sized), "reshape": _one(_sized), "_unsafe_view": _one(_sized), "expand": _one(_expand),
    **{n: _one(_by_dim) for n in ("select", "slice", "cumsum", "cumprod", "_softmax", "_log_softmax", "squeeze")},
    "unbind": _one(lambda x, rank, op, args, kwargs, b: op(x, _dim((*args[1:], 0)[0], rank))),
    "split": _one(_split), "split_with_sizes": _one(_split),
    "unsqueeze": _one(lambda x, rank, op, args, kwargs, b: op(x, _dim(args[1], rank, 1))),
    "t": _one(lambda x, rank, op, args, kwargs, b: aten.transpose.int(x, 1, 2) if rank == 2 else aten.clone.default(x)),
    "transpose": _one(lambda x, rank, op, args, kwargs, b: op(x, _dim(args[1], rank), _dim(args[2], rank)) if rank else None),
    "permute": _one(lambda x, rank, op, args, kwargs, b: op(x, [0, *[_dim(d, rank) for d in args[1]]])),
    "flip": _one(lambda x, rank, op, args, kwargs, b: op(x, [_dim(d, rank) for d in args[1]])),
    **{n: _one(_new) for n in ("new_zeros", "new_ones", "new_empty", "new_full")},
    "select_backward": _sized_backward, "slice_backward": _sized_backward,
    "mm": _product, "mv": _product, "dot": _product, "addmm": _addmm, "cat": _joined, "stack": _joined,
}  # fmt: skip
