"""The level of a jvp (and of forward-mode AD's dual numbers): its tensors carry a tangent.

A call with at least one dual argument becomes the call of a derived operation below, over the primals and the tangents that there
are. What is no dual tensor has no tangent, until a dual one is written into its memory: then the memory gets a shadow, the
tangents of its elements in the same places, of which every tensor over that memory reads its part.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from flambeau.compiler.graph import contiguous_strides
from flambeau.func.batch import BatchedTensor, wrap
from flambeau.func.levels import Expansion, Level, LevelTensor, _new, bottom, derive, expand_in, packed, rebuild
from flambeau.ops.primitives.forward import push
from flambeau.tensor import Tensor
from flambeau.trace.meta import Meta, dense_strides, is_dense
from flambeau.trace.objects import _TENSOR, inner_dict
from flambeau.trace.programs import program_of
from flambeau.trace.recorder import local, run_in, storage_of


class DualTensor(LevelTensor):
    """A primal (`_inner`) and its tangent, of the same shape and dtype."""

    _tangent: Any

    @property
    def _meta(self) -> Meta:  # type: ignore[override]
        return self._inner._meta  # type: ignore[no-any-return]

    def _lift(self, made: Tensor) -> Tensor:
        return self._level.call_below(self._inner._lift, made)  # type: ignore[no-any-return]

    def _take(self, source: Tensor) -> None:
        primal, tangent = self._level.parts(source)  # type: ignore[attr-defined]
        self._inner._take(primal)
        self._tangent = tangent if tangent is not None else self._level.call_below(_zeros, primal)

    def _replace(self, source: Tensor) -> None:
        self._take(source)

    def _observed(self) -> Any:
        from flambeau.trace.evaluate import observe

        return self._level.call_below(observe, self._inner)

    def __bool__(self) -> bool:
        return self._level.call_below(bool, self._inner)  # type: ignore[no-any-return]

    def item(self) -> Any:
        return self._level.call_below(self._inner.item)

    def data_ptr(self) -> int:
        return self._level.call_below(self._inner.data_ptr)  # type: ignore[no-any-return]

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        level = self._level
        return f"{level.call_below(repr, self._inner)[:-1]}, tangent={level.call_below(repr, self._tangent)})"


def _zeros(like: Any) -> Any:
    from flambeau.ops.creation import zeros_like

    return zeros_like(like.detach())


_DRAWN_FROM = ("bernoulli", "binomial", "normal", "poisson")  # by probabilities, means, rates in tensors: a draw does not move with them


class JvpLevel(Level):
    """`shadows`: tangents by the storage of their primals (see the module's docstring)."""

    kind = "jvp"

    def __init__(self) -> None:
        super().__init__()
        self.shadows: dict[int, tuple[Any, Any]] = {}
        self.remembered: list[weakref.ref[DualTensor]] | None = None

    def dual(self, primal: Any, tangent: Any) -> DualTensor:
        """A tensor of this level."""
        if program_of("torch.func.jvp and its like", (primal, tangent)) is not None:
            raise NotImplementedError("make_fx: dual tensors (torch.autograd.forward_ad) in a function that is traced; use torch.func.jvp")
        t: DualTensor = _new(DualTensor)
        t._level = self
        t._inner = primal
        t._tangent = tangent
        if self.remembered is not None:
            self.remembered.append(weakref.ref(t))
        return t

    def parts(self, t: Any) -> tuple[Any, Any]:
        """(primal, tangent or None)."""
        if isinstance(t, DualTensor) and t._level is self:
            return t._inner, t._tangent
        if self.shadows and isinstance(t, _TENSOR[0]):
            found = self.shadows.get(id(bottom(t)._storage))
            if found is not None and _smooth(t):
                return t, self.call_below(_view_of, found[1], t)
        return t, None

    def slow(self, op: Any, key: Any, args: Sequence[Any]) -> Any:
        tensor = _TENSOR[0]
        inner: list[Any] = []
        pattern: list[bool] = []
        tangents: list[Any] = []

        def part(t: Any) -> Any:
            if t is None:
                return None
            primal, tangent = self.parts(t)
            pattern.append(tangent is not None)
            if tangent is not None:
                tangents.append(tangent)
            return primal

        for kind, a in zip(op.kinds, args, strict=True):
            if isinstance(a, tensor):
                inner.append(part(a))
            elif kind == "tensors" and a is not None:
                inner.append([part(t) for t in a])
            else:
                inner.append(a)
        if not tangents:
            return self.call_below(op.call, inner)
        result = self.call_below(dual_operation(op, tuple(pattern)).function, *inner, tangents)
        flags = result.note
        count = len(flags)
        rest = iter(result[count:])
        return rebuild(result.like, [self.dual(p, next(rest)) if f else p for p, f in zip(result[:count], flags, strict=True)])

    def assign(self, target: Tensor, source: Tensor, name: str, fresh: bool) -> Tensor:
        from flambeau.trace.mutation import assign

        primal, tangent = self.parts(target)
        value, moved = self.parts(source)
        self.call_below(assign, primal, value, name, fresh)
        if (tangent is None and moved is None) or not _smooth(primal):
            return target
        if tangent is None:
            tangent = self._cast_shadow(primal, moved)
        if moved is None:
            moved = self.call_below(_zeros, value)
        self.call_below(assign, tangent, moved, name, False)
        return target

    def _cast_shadow(self, primal: Any, moved: Any) -> Any:
        """The tangent of what has had none, as zeros: of all memory that it shares. It gets the samples that `moved` has."""
        storage = storage_of(bottom(primal))
        if storage.gen == self.main.gen:
            v = self.main.value(storage.slot)
            nbytes = v.numel * v.dtype.itemsize
        else:
            assert storage.buffer is not None
            nbytes = storage.buffer.nbytes
        numel = nbytes // primal._meta.dtype.itemsize
        from flambeau.ops.creation import zeros

        flat = self.call_on_trace(lambda _: zeros(numel, dtype=primal._meta.dtype), None)
        if not isinstance(primal, LevelTensor):
            flat = self.call_below(moved._lift, flat)
        self.shadows[id(storage)] = (storage, flat)  # the storage lives as long as its name
        return self.call_below(_view_of, flat, primal)

    def random(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if function.__name__ in ("standard_gamma", "sample_dirichlet") and any(self.parts(a)[1] is not None for a in args):
            raise NotImplementedError(
                f"Trying to use forward AD with {function.__name__} that does not support it because it has not been implemented yet: use reverse "
                "mode (torch.func.grad, vjp, jacrev)"
            )
        inner = [self.parts(a)[0] for a in args]
        named = {k: self.parts(v)[0] for k, v in kwargs.items()}
        result = self.call_below(function, *inner, **named)
        if args and result is inner[0] and self.mine(args[0]):  # filled in place: what was drawn has no tangent
            tangent = args[0]._tangent
            self.call_below(tangent.zero_)
            return args[0]
        if function.__name__ in _DRAWN_FROM and kwargs.get("out") is None and any(self.parts(a)[1] is not None for a in (*args, *kwargs.values())):
            if function.__name__ == "binomial":
                raise NotImplementedError("Trying to use forward AD with aten::binomial that does not support it because it has not been implemented yet")
            if not (function.__name__ == "bernoulli" and (len(args) > 1 or kwargs.get("p") is not None)):
                return self.dual(result, self.call_below(_zeros, result))
        return result

    def stream(self, count: int) -> int:
        return self.below.stream(count) if isinstance(self.below, Level) else count

    def custom_function(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        from flambeau.func.custom import apply_dual

        return apply_dual(self, function, args, kwargs)

    def pull(self, outputs: list[Any], inputs: list[Any], gradients: list[Any], extra: int, retain: bool, create: bool) -> list[Any]:
        from flambeau.func.pullback import pull_dual

        return pull_dual(self, outputs, inputs, gradients, extra, retain, create)

    def enter(self, primal: Any, tangent: Any) -> DualTensor:
        """A dual tensor; the tangent gets the dtype and the layout of the primal, so that views of both can be made alike."""
        return self.dual(primal, self.call_below(_laid_out, tangent.to(primal.dtype), primal))

    def let_go(self) -> None:
        """Its dual tensors become their primals."""
        for reference in self.remembered or ():
            t = reference()
            if t is not None:
                primal = t._inner
                inner = inner_dict(t)
                inner.clear()
                inner.update(inner_dict(primal))
                t.__class__ = type(primal)
                if isinstance(primal, LevelTensor):
                    continue
                t._gen, t._slot, t._meta, t._storage, t._immediate = primal._gen, primal._slot, primal._meta, primal._storage, primal._immediate
                if primal._gen == self.main.gen:
                    self.main.tensors.append(t)


def _smooth(t: Any) -> bool:
    d = t._meta.dtype
    return bool(d.is_floating_point or d.is_complex)


def _laid_out(tangent: Any, primal: Any) -> Any:
    m = primal._meta
    if tangent._meta.strides == m.strides and not isinstance(tangent, BatchedTensor):
        return tangent
    from flambeau.ops.shape import _relayout

    strides = dense_strides(m.shape, m.strides)
    return tangent if tangent._meta.strides == strides else _relayout(tangent, strides)


def _view_of(shadow: Any, t: Any) -> Any:
    """The part of a flat shadow that a tensor over the shadowed memory has."""
    from flambeau.ops.elementwise import view_as_complex, view_as_real
    from flambeau.ops.shape import as_strided

    if isinstance(t, BatchedTensor) and not isinstance(shadow, BatchedTensor):
        level = t._level
        return wrap(level, level.call_below(_view_of, shadow, t._inner))
    m = t._meta
    if shadow._meta.dtype is not m.dtype:  # parts of complex numbers, or what they are parts of
        shadow = view_as_real(shadow).reshape(-1) if shadow._meta.dtype.is_complex else view_as_complex(shadow.reshape(-1, 2))
    return as_strided(shadow, tuple(m.shape), m.strides, t.storage_offset())._read_as(m.bits)


# -- derived operations -------------------------------------------------------------------------------------------------
_TANGENTS = (inspect.Parameter("tangents", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation="Sequence[Tensor]"),)


@cache
def dual_operation(op: Any, pattern: tuple[bool, ...]) -> Any:
    """`op` over primals and tangents. `pattern`: which of its tensors have one; None and numbers left out."""

    def body(*args: Any) -> Any:
        *given, tangents = args
        expansion = DualExpansion(local.trace)
        rest, flags = iter(tangents), iter(pattern)
        expansion.given = {t._slot for t in tangents}
        tensor = _TENSOR[0]

        def entered(t: Any) -> Any:
            return None if t is None else expansion.take(t, next(rest) if next(flags) else None)

        inner: list[Any] = []
        for kind, a in zip(op.kinds, given, strict=True):
            if kind == "tensors" and a is not None:
                inner.append([entered(t) for t in a])
            elif isinstance(a, tensor):
                inner.append(expansion.take(a, None) if a._meta.wrapped and kind != "tensor" else entered(a))
            else:
                inner.append(a)
        return expansion.give(expand_in(expansion, op, inner))

    return derive(op, "jvp", body, _TANGENTS)


class DualExpansion(Expansion):
    """Items: (primal, tangent or None), outside. `given`: slots of the tangents that the operation was called with."""

    given: set[int]
    forward_mode = True

    def take(self, primal: Any, tangent: Any) -> Any:
        """A tensor with a tangent says that it requires gradients: bodies take care of what is differentiated."""
        m = primal._meta
        if tangent is not None and not m.requires_grad:
            m = m.variant(requires_grad=True, leaf=False)
        return self.enter((primal, tangent), m)

    def plain(self, t: Any) -> Tensor:
        return self.take(t, None)  # type: ignore[no-any-return]

    def tensor_of(self, item: Any) -> Any:
        return item[0]

    def record(self, primitive: Any, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
        items = [self.item(t) for t in inputs]
        primals = [p for p, _ in items]
        tangents = [t for _, t in items]
        if any(t is not None for t in tangents):
            result, moved = run_in(self.outer, push, (primitive, attrs, primals, tangents))
        else:
            result, moved = self.outer.record(primitive, primals, attrs), None
        if isinstance(result, tuple):
            return tuple([self.take(p, t) for p, t in zip(result, moved or (None,) * len(result), strict=True)])
        return self.take(result, moved)

    def give(self, result: Any) -> Any:
        """Primals, then the tangents that there are; the note says of which."""
        from flambeau.trace.mutation import _normal_strides

        single = isinstance(result, _TENSOR[0])
        items = [self.items[t._slot] for t in ([result] if single else result or ())]
        seen = set(self.given)
        tangents = []
        for p, t in items:
            if t is None:
                continue
            v, w = self.outer.value(p._slot), self.outer.value(t._slot)
            if v.base is None:  # memory of its own for the primal: so for the tangent, in the same layout
                strides = _normal_strides(v.shape, v.strides) if is_dense(v.shape, v.strides) else contiguous_strides(v.shape)
                if w.base is not None or t._slot in seen or tuple(w.strides) != tuple(v.strides):
                    from flambeau.ops import primitives as prim

                    t = run_in(self.outer, lambda x, s: prim.copy(x, strides=s), (t, strides))
            seen.add(t._slot)
            tangents.append(t)
        note = tuple([t is not None for _, t in items])
        return packed(note, None if single else type(result))(*[p for p, _ in items], *tangents)


__all__ = ["DualTensor", "JvpLevel", "dual_operation"]
