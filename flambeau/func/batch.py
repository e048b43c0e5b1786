"""The level of a vmap: its tensors are samples, around tensors that have all samples in a first dim.

A call with at least one batched argument becomes the call of a derived operation below, made once for each pattern of batched
arguments; a call without one is passed on as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from flambeau.compiler.graph import Value
from flambeau.func.levels import Expansion, Level, LevelTensor, Packed, _new, derive, expand_in, levels, packed, rebuild, refuse_observation
from flambeau.ops.primitives.batching import batch
from flambeau.ops.shape import expand, movedim, unsqueeze
from flambeau.tensor import Tensor
from flambeau.trace.meta import Meta, meta
from flambeau.trace.objects import _TENSOR
from flambeau.trace.recorder import local, run_in


@cache
def sample_meta(m: Meta) -> Meta:
    """The metadata of one sample of a batched tensor (batch first)."""
    return meta(m.shape[1:], m.strides[1:], m.dtype, m.offset, m.requires_grad, m.leaf, m.wrapped, m.dynamic, m.device, m.bits)


class BatchedTensor(LevelTensor):
    """One sample, whichever: `_inner` has all of them in its first dim."""

    @property
    def _meta(self) -> Meta:  # type: ignore[override]
        return sample_meta(self._inner._meta)

    def _lift(self, made: Tensor) -> Tensor:
        """A tensor made like this one, with a memory for each sample, so that it can be written to as this one can."""
        level = self._level
        if level.mine(made):
            return made
        return wrap(level, level.call_below(lambda: self._inner._lift(expand(made, (level.size, *made.shape)).clone())))  # type: ignore[attr-defined]

    def _take(self, source: Tensor) -> None:
        level = self._level
        self._inner._take(source._inner if level.mine(source) else level.call_below(expand, source, (level.size, *source.shape)))  # type: ignore[attr-defined]

    def _replace(self, source: Tensor) -> None:
        self._take(source)

    def _observed(self) -> Any:
        if not any(level is self._level for level in levels()):
            raise RuntimeError(
                f"a tensor (of shape {tuple(self.shape)}) that belongs to a vmap was used outside of it: return it from the function instead of "
                "storing it, so that it gets the dim of the samples"
            )
        refuse_observation("a function whose result depends on values")

    def item(self) -> Any:
        refuse_observation("item")

    def __bool__(self) -> bool:
        refuse_observation("control flow")

    def tolist(self) -> Any:
        refuse_observation(".tolist()")

    def numpy(self, *, force: bool = False) -> Any:
        refuse_observation(".numpy()")

    def data_ptr(self) -> int:
        refuse_observation(".data_ptr()")

    _address = data_ptr

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        level = self._level
        lines = level.call_below(repr, self._inner).replace("\n", "\n    ")
        return f"BatchedTensor(lvl={level.number}, bdim=0, value=\n    {lines}\n)"

    def __format__(self, spec: str) -> str:
        return repr(self)


def wrap(level: Any, inner: Any) -> Any:
    """A tensor of the level around one that has the batch in front."""
    t = _new(BatchedTensor)
    t._level = level
    t._inner = inner
    return t


class VmapLevel(Level):
    """`size` samples. `randomness`: "error", "same" or "different"."""

    kind = "vmap"

    def __init__(self, size: int, randomness: str) -> None:
        super().__init__()
        self.size = size
        self.randomness = randomness

    def batched(self, t: Any) -> Any:
        """What is inside `t`, with the batch in front: repeated, if `t` is no tensor of this level. Called below the level."""
        return t._inner if self.mine(t) else expand(t, (self.size, *t.shape))

    def slow(self, op: Any, key: Any, args: Sequence[Any]) -> Any:
        tensor = _TENSOR[0]
        inner: list[Any] = []
        pattern: list[Any] = []
        found = False
        for kind, a in zip(op.kinds, args, strict=True):
            if isinstance(a, tensor):
                mine = isinstance(a, BatchedTensor) and a._level is self
                found |= mine
                pattern.append(mine)
                inner.append(a._inner if mine else a)
            elif kind == "tensors" and a is not None:
                flags = tuple([isinstance(t, BatchedTensor) and t._level is self for t in a])
                found |= any(flags)
                pattern.append(flags)
                inner.append([t._inner if f else t for t, f in zip(a, flags, strict=True)])
            else:
                inner.append(a)
        random = "seed" in op.names
        if random and self.randomness == "error":
            refuse_random()
        if not found and not (random and self.randomness == "different"):
            return self.call_below(op.call, args)
        size = self.size if random else 0
        result = self.call_below(batched_operation(op, tuple(pattern), size, self.randomness if random else "").function, *inner)
        if isinstance(result, Packed):
            return rebuild(result.like, [wrap(self, t) if flag else t for t, flag in zip(result, result.note, strict=True)])
        return wrap(self, result)

    def assign(self, target: Tensor, source: Tensor, name: str, fresh: bool) -> Tensor:
        from flambeau.trace.mutation import assign

        mine, theirs = self.mine(target), self.mine(source)
        if not mine:
            if theirs:
                raise RuntimeError(
                    f"vmap: inplace arithmetic(self, *extra_args) is not possible because there exists a Tensor `other` in extra_args that has "
                    f"more elements than `self` ({name}). This happened due to `other` being vmapped over but `self` not being vmapped over in a "
                    "vmap. Please try to use out-of-place operators instead of inplace arithmetic. If said operator is being called inside the "
                    "PyTorch framework, please file a bug report instead."
                )
            self.call_below(assign, target, source, name, fresh)
            return target
        have, wanted = source._meta.shape, target._meta.shape
        if theirs:
            value = self.call_below(aligned_below, source._inner, target._meta.ndim)  # type: ignore[attr-defined]
        else:
            value = source
            while len(have) > len(wanted) and have[0] == 1:
                value = self.call_below(value.squeeze, 0)
                have = value._meta.shape
            fresh = False
        self.call_below(assign, target._inner, value, name, fresh)  # type: ignore[attr-defined]
        return target

    # -- random numbers ---------------------------------------------------------------------------------------------
    def stream(self, count: int) -> int:
        if self.randomness == "error":
            refuse_random()
        below = count * self.size if self.randomness == "different" else count
        return self.below.stream(below) if isinstance(self.below, Level) else below

    def random(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        from flambeau.func.randomness import draw

        return draw(self, function, args, kwargs)

    def custom_function(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        from flambeau.func.custom import apply_batched

        return apply_batched(self, function, args, kwargs)

    def pull(self, outputs: list[Any], inputs: list[Any], gradients: list[Any], extra: int, retain: bool, create: bool) -> list[Any]:
        from flambeau.func.pullback import pull_batched

        return pull_batched(self, outputs, inputs, gradients, extra, retain, create)

    def enter(self, t: Any, dim: int) -> Any:
        """A tensor from below as a tensor of this level, its dim `dim` as the batch."""
        return wrap(self, t if dim == 0 else self.call_below(movedim, t, dim, 0))

    def leave(self, t: Any, dim: int) -> Any:
        """The reverse; a tensor that has no batch is repeated. The dim counts in the result."""
        inner = self.call_below(self.batched, t)
        return inner if dim == 0 else self.call_below(movedim, inner, 0, dim)


def aligned_below(x: Any, ndim: int) -> Any:
    """A batched tensor whose samples get dims of size one in front, up to `ndim`; or lose them."""
    while x._meta.ndim - 1 > ndim and x._meta.shape[1] == 1:
        x = x.squeeze(1)
    while x._meta.ndim - 1 < ndim:
        x = unsqueeze(x, 1)
    return x


def refuse_random() -> None:
    """The error of randomness="error"."""
    raise RuntimeError(
        "vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' randomness flags on vmap "
        "or perform the randomness operation out of vmap"
    )


# -- derived operations -------------------------------------------------------------------------------------------------
@cache
def batched_operation(op: Any, pattern: tuple[Any, ...], size: int, randomness: str) -> Any:
    """`op` over batches. `pattern`: which of its tensors have one (a tuple for a list of them), None and numbers left out.
    `size` is only for operations that draw random numbers: of others the arguments tell it."""

    def body(*args: Any) -> Any:
        expansion = BatchExpansion(local.trace, size, randomness == "different")
        flags = iter(pattern)
        given: list[Any] = []
        tensor = _TENSOR[0]
        for kind, a in zip(op.kinds, args, strict=True):
            if kind == "tensors" and a is not None:
                given.append([expansion.take(t, f) for t, f in zip(a, next(flags), strict=True)])
            elif isinstance(a, tensor):
                given.append(expansion.take(a, False if a._meta.wrapped and kind != "tensor" else next(flags)))
            else:
                given.append(a)
        return expansion.give(expand_in(expansion, op, given))

    return derive(op, "vmap", body)


class BatchExpansion(Expansion):
    """Items: (tensor outside, whether it has a batch)."""

    def __init__(self, outer: Any, size: int, different: bool) -> None:
        super().__init__(outer)
        self.size = size
        self.different = different

    def take(self, t: Any, flag: bool) -> Any:
        """A tensor from outside; None stays None."""
        if t is None:
            return None
        if flag:
            self.size = t._meta.shape[0]
        return self.enter((t, flag), sample_meta(t._meta) if flag else t._meta)

    def plain(self, t: Any) -> Tensor:
        return self.enter((t, False), t._meta)

    def tensor_of(self, item: Any) -> Any:
        return item[0]

    def _sample(self, item: Any, v: Value) -> Value:
        return Value(v.shape[1:], v.dtype, v.strides[1:], v.offset, v.base, v.dynamic, v.device) if item[1] else v

    def record(self, primitive: Any, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
        items = [self.item(t) for t in inputs]
        flags = tuple([flag for _, flag in items])
        tensors = [t for t, _ in items]
        if any(flags) or (self.different and primitive.name == "random_uniform"):
            result = run_in(self.outer, batch, (primitive, attrs, tensors, flags, self.size))
            flag = True
        else:
            result = self.outer.record(primitive, tensors, attrs)
            flag = False
        if isinstance(result, tuple):
            return tuple([self.take(t, flag) for t in result])
        return self.take(result, flag)

    def give(self, result: Any) -> Any:
        """The results of the operation, outside; with a note of which have a batch, unless it is one that has."""
        if isinstance(result, _TENSOR[0]):
            t, flag = self.items[result._slot]
            return t if flag else packed((False,), None)(t)
        if result is None:
            return None
        items = [self.items[t._slot] for t in result]
        return packed(tuple([flag for _, flag in items]), type(result))(*[t for t, _ in items])


__all__ = ["BatchExpansion", "BatchedTensor", "VmapLevel", "aligned_below", "batched_operation", "refuse_random", "sample_meta", "wrap"]
