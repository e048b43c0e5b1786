"""Forward rules: the derivative of each primitive in the direction of its inputs' tangents.

`push(primitive, attrs, primals, tangents)` records the primitive and its derivative; a tangent is None where it is zero. Most rules
are one of four:

    pointwise       each element depends on the elements at its place, so the Jacobian is diagonal and the gradient rule is the forward
                    rule (for holomorphic functions of complex numbers, up to conjugation)
    linear          the primitive itself, applied to tangents (of which missing ones are zeros)
    bilinear        the product rule
    by places       extremes and orders take the tangents from where the values were

All others follow from their gradient rule: the map from the gradients of the results to the gradients of the inputs is linear,
and its own gradient is the derivative (the double-backward trick, Townsend 2017).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.compiler.graph import POINTWISE, Value
from flambeau.ops.primitive import Primitive, constant, rule_of
from flambeau.ops.primitives import contract, move, pointwise, view
from flambeau.trace.recorder import local
from flambeau.upward import upward

RULES: dict[str, Callable[..., Any]] = {}


class ForwardContext:
    """What a forward rule sees; for a gradient rule it looks like the context of one (see ops/primitive.py)."""

    __slots__ = ("apply", "attrs", "count", "outputs", "primals", "region", "tangents", "wanted")
    dry = False

    def __init__(self, primitive: Primitive, attrs: dict[str, Any], primals: list[Any], tangents: list[Any], outputs: tuple[Any, ...]) -> None:
        self.apply = primitive
        self.attrs = attrs
        self.primals = primals
        self.tangents = tangents
        self.outputs = outputs
        self.count = len(primals)
        self.wanted = -1  # the only input whose gradient the rule is asked for; -1: all that have a tangent
        self.region = self

    def input(self, i: int) -> Any:
        return self.primals[i]

    def output(self, i: int) -> Any:
        return self.outputs[i]

    def value(self, i: int) -> Value:
        return local.trace.value(self.primals[i]._slot)  # type: ignore[no-any-return]

    def shape(self, i: int) -> tuple[int, ...]:
        return tuple(self.primals[i]._meta.shape)

    def dtype(self, i: int) -> Any:
        return self.primals[i]._meta.dtype

    def needs(self, i: int) -> bool:
        return self.tangents[i] is not None and self.wanted in (-1, i)

    def has_layout_of_input(self, x: Any, i: int) -> bool:
        v = local.trace.value(x._slot)
        return v.base is None and v.strides == self.value(i).strides

    def tangent(self, i: int) -> Any:
        """The tangent of input i, zeros if it has none."""
        t = self.tangents[i]
        return move.zeros_of(self.shape(i), self.dtype(i)) if t is None else t


def push(primitive: Primitive, attrs: dict[str, Any], primals: list[Any], tangents: list[Any]) -> tuple[Any, Any]:
    """(the result, its tangent): each a tensor, or a tuple of them; a tangent may be None."""
    result = primitive(*primals, **attrs)
    outputs = result if isinstance(result, tuple) else (result,)
    if primitive.gradient is None or not any(_smooth(o) for o in outputs):
        return result, None if outputs is not result else (None,) * len(outputs)
    rule = RULES.get(primitive.name) or (_pointwise if primitive.name in POINTWISE else _by_transposition)
    moved = rule(ForwardContext(primitive, attrs, primals, tangents, outputs))
    return result, moved


def _smooth(x: Any) -> bool:
    d = x._meta.dtype
    return bool(d.is_floating_point or d.is_complex)


# -- pointwise ----------------------------------------------------------------------------------------------------
def _conj(x: Any) -> Any:
    return pointwise.conj_physical(x) if x._meta.dtype.is_complex else x


def _pointwise(c: ForwardContext) -> Any:
    shape = tuple(c.outputs[0]._meta.shape)
    total = None
    for i, t in enumerate(c.tangents):
        if t is None:
            continue
        c.wanted = i
        wide = t if tuple(t._meta.shape) == shape else view.expand(t, shape=shape)
        parts = c.apply.gradient(c, _conj(wide))  # type: ignore[misc]
        part = parts[i] if isinstance(parts, tuple) else parts
        if part is None:
            continue
        part = _conj(part)
        if tuple(part._meta.shape) != shape:
            part = view.expand(part, shape=shape)
        total = part if total is None else total + part
    return total


@rule_of(RULES, "abs")
def _abs(c: ForwardContext) -> Any:
    if not c.dtype(0).is_complex:
        return _pointwise(c)
    return pointwise.real_part(_conj(pointwise.sgn(c.input(0))) * c.tangents[0])


@rule_of(RULES, "sgn")
def _sgn(c: ForwardContext) -> Any:
    """For complex numbers d(x / |x|) = (t - s Re(conj(s) t)) / |x|: the map is its own adjoint."""
    if not c.dtype(0).is_complex:
        return None
    return c.apply.gradient(c, c.tangents[0])  # type: ignore[misc]


@rule_of(RULES, "cast")
def _cast(c: ForwardContext) -> Any:
    d = c.attrs["dtype"]
    return pointwise.cast(c.tangents[0], dtype=d) if d.is_floating_point or d.is_complex else None


# -- linear -------------------------------------------------------------------------------------------------------
def _linear_in(*positions: int) -> Callable[[ForwardContext], Any]:
    def rule(c: ForwardContext) -> Any:
        if all(c.tangents[i] is None for i in positions):
            return None
        given = [c.tangent(i) if i in positions else x for i, x in enumerate(c.primals)]
        return c.apply(*given, **c.attrs)

    return rule


for _name in (
    "coded_matmul two_of_four_matmul permute expand slice select diagonal unfold alias copy sum cumsum fourier average_pool average_pool_gradient "
    "real_view real_part imag_part "
    "conj_physical take take_rows gather max_pool_gradient as_strided"
).split():
    rule_of(RULES, _name)(_linear_in(0))
rule_of(RULES, "scatter_view", "make_complex")(_linear_in(0, 1))


@rule_of(RULES, "reshape")
def _reshape(c: ForwardContext) -> Any:
    """A tangent may lie in memory otherwise than its primal: then it is copied."""
    t = c.tangents[0]
    return t.reshape(c.attrs["shape"])


@rule_of(RULES, "concatenate")
def _concatenate(c: ForwardContext) -> Any:
    return c.apply(*[c.tangent(i) for i in range(c.count)], **c.attrs)


def _scatter(c: ForwardContext) -> Any:
    if c.attrs["mode"] not in ("add", "set"):
        return _by_transposition(c)
    return _linear_in(0, 2)(c)


rule_of(RULES, "put_rows", "scatter", "put")(_scatter)


@rule_of(RULES, "matmul", "convolution", "convolution_input_gradient", "convolution_weight_gradient")
def _bilinear(c: ForwardContext) -> Any:
    a, b = c.primals
    ta, tb = c.tangents
    left = None if ta is None else c.apply(ta, b, **c.attrs)
    if tb is None:
        return left
    right = c.apply(a, tb, **c.attrs)
    return right if left is None else left + right


@rule_of(RULES, "host_call")
def _host_call(c: ForwardContext) -> Any:
    return _by_transposition(c)


# -- by places ----------------------------------------------------------------------------------------------------
@rule_of(RULES, "sort", "topk", "cummax", "cummin")
def _picked(c: ForwardContext) -> Any:
    return move.gather(c.tangents[0], c.output(1), dim=c.attrs["dim"]), None


@rule_of(RULES, "max_pool")
def _max_pool(c: ForwardContext) -> Any:
    indices, t = c.output(1), c.tangents[0]
    lead = t.shape[:-2]
    picked = move.gather(t.reshape(*lead, -1), indices.reshape(*lead, -1), dim=t.ndim - 2)
    return picked.reshape(indices.shape), None


# -- any other ----------------------------------------------------------------------------------------------------
@upward
def transposed(pull: Callable[..., Any], outputs: Any, tangents: Any) -> tuple[Any, ...]:
    """The transpose of a linear map from gradients to gradients, at `tangents` (func/tape.py)."""
    raise NotImplementedError


def _by_transposition(c: ForwardContext) -> Any:
    """The derivative as the gradient of the gradient rule, which is linear in the gradients of the results."""

    def pull(take: Callable[[Any], Any], *gradients: Any) -> Any:
        inner = ForwardContext(c.apply, c.attrs, [take(x) for x in c.primals], c.tangents, tuple([take(o) for o in c.outputs]))
        results = c.apply.gradient(inner, *gradients)  # type: ignore[misc]
        return results if isinstance(results, tuple) else (results,)

    moved = transposed(pull, c.outputs, c.tangents)
    return moved if len(c.outputs) > 1 else moved[0]


assert contract.matmul.name == "matmul" and constant is not None  # the modules are imported so that every primitive is known here
