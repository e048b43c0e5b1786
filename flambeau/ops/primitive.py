"""The record of a primitive: name, shape rule, gradient rule; and how one is recorded.

A gradient rule is `rule(context, *output_gradients) -> gradient or tuple of gradients`, one for each input (None: none).
It is written with ordinary tensor operations, so that gradients of gradients need nothing more. In scope of a rule:

    context.input(i), context.output(i)   the forward values (asking for one makes the backward pass keep it)
    context.shape(i), context.dtype(i)    of input i, free of charge
    context.attrs                         the static attributes, a dict
    context.needs(i)                      whether input i wants a gradient

Gradients of pointwise primitives may have the broadcast shape: the engine sums them to the input's shape.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flambeau import dtypes
from flambeau.compiler import graph
from flambeau.compiler.graph import Value, contiguous_strides
from flambeau.symbols import Sym, as_float
from flambeau.trace.meta import Meta, meta, same_layout
from flambeau.trace.recorder import Fragment, local
from flambeau.trace.strides import iterator_strides

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

Infer = Callable[[list[Meta], dict[str, Any]], list[Value]]
Gradient = Callable[..., Any]

PRIMITIVES: dict[str, Primitive] = {}


class Primitive:
    """One primitive of compiler/graph.py; calling it inside an operation's body records it."""

    __slots__ = ("__name__", "differentiable", "gradient", "indexed", "infer", "name", "pointwise")

    def __init__(self, name: str, infer: Infer, gradient: Gradient | None) -> None:
        if name not in graph.PRIMITIVES:
            raise ValueError(f"{name} is not listed in compiler/graph.py")
        self.name = self.__name__ = name
        self.infer = infer
        self.gradient = gradient
        self.differentiable = gradient is not None
        self.pointwise = name in graph.POINTWISE
        self.indexed = name in graph.INDEXED
        PRIMITIVES[name] = self

    def __call__(self, *inputs: Any, **attrs: Any) -> Any:
        trace = local.trace
        if not isinstance(trace, Fragment):
            raise RuntimeError(f"the primitive {self.name!r} can only be recorded inside an operation's body")
        like: dtypes.dtype | None = None
        among_numbers: dtypes.dtype | None = None
        tensors = []
        for x in inputs:
            if not isinstance(x, (int, float, complex)) and not (self.name == "where" and x is inputs[0]):
                if self.pointwise and x._meta.wrapped:
                    among_numbers = among_numbers or x._meta.dtype
                else:
                    like = like or x._meta.dtype
        for x in inputs:
            if isinstance(x, (int, float, complex)):
                x = constant(x, like or among_numbers or dtypes.of_number(x))
            elif like is not None and self.pointwise and x._meta.wrapped and x._meta.dtype.is_floating_point and x._meta.dtype is not like:
                x = constant(x, like)
            tensors.append(x)
        if self.indexed and tensors[1]._meta.dtype is not dtypes.int64:
            tensors[1] = _as_index(self.name, tensors[1])
        return trace.record(self, tensors, attrs)

    def __repr__(self) -> str:
        return f"<primitive {self.name}>"


def primitive(name: str, infer: Infer) -> Callable[[Gradient], Primitive]:
    """Decorator: the function below it is the gradient rule of the primitive `name`."""

    def make(rule: Gradient) -> Primitive:
        return Primitive(name, infer, rule)

    return make


def _as_index(name: str, index: Any) -> Any:
    """An index of any integer dtype that is computed with, as kernels take it: int64."""
    kind = index._meta.dtype
    if kind.category != 1 or kind in dtypes.LIMITED:
        raise RuntimeError(f"{name}: expected an index of integers, got {kind!r}; cast it with .long()")
    return PRIMITIVES["cast"](index, dtype=dtypes.int64)


def constant(value: Any, dtype_: dtypes.dtype) -> Tensor:
    """A static scalar, 0-d, of the given dtype; of a run-time number its cast."""
    trace = local.trace
    if hasattr(value, "_meta"):
        return trace.record(PRIMITIVES["cast"], (value,), {"dtype": dtype_})  # type: ignore[no-any-return]
    number = complex(value) if dtype_.is_complex else as_float(value) if dtype_.is_floating_point else value if value.__class__ is Sym else int(value)
    if dtype_ is dtypes.bool_:
        number = bool(value)
    return trace.record(_CONSTANT, (), {"dtype": dtype_, "value": number})  # type: ignore[no-any-return]


# -- shape rules shared by several families -----------------------------------------------------------------------


def broadcast_shapes(name: str, shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    """NumPy's broadcasting rule; RuntimeError in PyTorch's words if the shapes do not fit."""
    result: list[int] = []
    ndim = max((len(s) for s in shapes), default=0)
    for axis in range(1, ndim + 1):
        size = 1
        for shape in shapes:
            if axis <= len(shape) and shape[-axis] != 1:
                if size != 1 and shape[-axis] != size:
                    raise RuntimeError(
                        f"{name}: The size of tensor a ({size}) must match the size of tensor b ({shape[-axis]}) at "
                        f"non-singleton dimension {ndim - axis}; the shapes are {' and '.join(str(tuple(s)) for s in shapes)}. "
                        "Each dimension, counted from the last, must be equal or 1: unsqueeze or expand one of them."
                    )
                size = shape[-axis]
        result.append(size)
    return tuple(reversed(result))


def pointwise_strides(metas: list[Meta], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a pointwise result. 0-d operands do not count: what a body computes with constants is one step of PyTorch's over the
    tensors (an operation that takes numbers as operands says so itself: `over_operands`)."""
    return iterator_strides([m for m in metas if m.ndim or not shape], shape) if shape else ()


ANY_STRIDES = graph.POINTWISE | {"copy", "host_call", "fourier"}  # primitives whose kernels write any dense layout at the same cost


def laid_out(x: Any, strides: tuple[int, ...]) -> Any:
    """The result `x` of an operation's body with these (dense) strides, in memory of its own. Some primitives write in any order; of others
    strides of dims of size 1 are only another name; else it is a copy, as it is where `x` is a view of an argument."""
    m = x._meta
    trace = local.trace
    if type(trace) is Fragment:
        value = trace.value(x._slot)
        if (x._slot if value.base is None else value.base) >= trace.first:
            if m.strides == strides:
                return x
            last = trace.nodes[-1]
            unread = x._slot in last.outputs and last.op in ANY_STRIDES
            if value.base is None and (unread or same_layout(m.shape, m.strides, strides)):
                value.strides = strides
                return trace.placeholder(x._slot, meta(m.shape, strides, m.dtype, m.offset, m.requires_grad, m.leaf, m.wrapped, m.dynamic, m.device))
    elif m.strides == strides:
        return x
    return PRIMITIVES["copy"](x, strides=strides)


def same_dtype(name: str, metas: list[Meta]) -> dtypes.dtype:
    """The one dtype of all inputs of a primitive."""
    first = metas[0].dtype
    for m in metas[1:]:
        if m.dtype is not first:
            raise RuntimeError(f"{name}: expected inputs of one dtype, got {[m.dtype.name for m in metas]}; cast one of them")
    return first


def pointwise_rule(name: str, out: dtypes.dtype | None = None, real: bool = False) -> Infer:
    """Broadcast shape; the inputs' dtype, or `out`, or the real dtype of a complex one."""

    def infer(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
        dtype_ = same_dtype(name, metas)
        shape = broadcast_shapes(name, [m.shape for m in metas]) if len(metas) > 1 else tuple(metas[0].shape)
        return [Value(shape, out or (dtype_.to_real() if real else dtype_), pointwise_strides(metas, shape))]

    return infer


def dense(shape: tuple[int, ...], dtype_: dtypes.dtype) -> list[Value]:
    """One contiguous result."""
    return [Value(tuple(shape), dtype_, contiguous_strides(tuple(shape)))]


_CONSTANT = Primitive("constant", lambda metas, attrs: [Value((), attrs["dtype"], ())], None)


def rule_of(table: dict[str, Callable[..., Any]], *names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: the function is the rule of these primitives in a table of rules by their names (of vmap, of forward mode)."""

    def add_rule(rule: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            assert name in PRIMITIVES, name
            table[name] = rule
        return rule

    return add_rule
