"""Arithmetic of sizes on the host: what a model computes from shapes and constants is known without running a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from flambeau.onnx.importing.registry import Call

MOST: Final = 4096  # elements; larger arrays are tensors' work


def run(node: Call, inputs: list[Any]) -> Any:
    """The result where all inputs are small host arrays of numbers and the operator is one of arithmetic of sizes; NotImplemented elsewhere."""
    form = FORMS.get(node.op)
    if form is None or node.domain:
        return NotImplemented
    size = 0
    for x in inputs:
        if x is None:
            continue
        if not isinstance(x, np.ndarray) or x.dtype == object:
            return NotImplemented
        size += x.size
    if size > MOST or not inputs:
        return NotImplemented
    made = form(node, *inputs)
    return made if made is NotImplemented or isinstance(made, tuple) else np.asarray(made)


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda n, *xs: function(*xs)


def _div(n: Call, a: Any, b: Any) -> Any:
    if a.dtype.kind == "f":
        return np.divide(a, b)
    if not np.all(b):
        return NotImplemented
    quotient = np.floor_divide(np.abs(a), np.abs(b))
    return (quotient * np.sign(a) * np.sign(b)).astype(a.dtype) if a.dtype.kind == "i" else quotient.astype(a.dtype)


def _mod(n: Call, a: Any, b: Any) -> Any:
    return (np.fmod if n.get("fmod", 0) else np.mod)(a, b) if np.all(b) else NotImplemented


def _gather(n: Call, x: Any, i: Any) -> Any:
    axis = n.get("axis", 0)
    length = x.shape[axis]
    if i.size and (i.min() < -length or i.max() >= length):
        raise IndexError(f"Gather: index out of range for a dim of size {length}")
    return np.take(x, i, axis=axis)


def _concat(n: Call, *xs: Any) -> Any:
    return np.concatenate(xs, axis=n.get("axis", 0))


def _unsqueeze(n: Call, x: Any, axes: Any = None) -> Any:
    where = n.ints("axes", axes) or []
    return np.expand_dims(x, tuple(where))


def _squeeze(n: Call, x: Any, axes: Any = None) -> Any:
    where = n.ints("axes", axes)
    return np.squeeze(x, None if where is None else tuple(where))


def _slice(n: Call, x: Any, starts: Any = None, ends: Any = None, axes: Any = None, steps: Any = None) -> Any:
    first, last = n.ints("starts", starts) or [], n.ints("ends", ends) or []
    where, by = n.ints("axes", axes), n.ints("steps", steps) or [1] * len(first)
    index: list[Any] = [slice(None)] * x.ndim
    for axis, a, b, s in zip(where if where is not None else range(len(first)), first, last, by, strict=True):
        size = x.shape[axis]
        index[axis] = slice(a, None if s < 0 and b < -size else b, s)
    return x[tuple(index)]


def _cast(n: Call, x: Any) -> Any:
    from flambeau.onnx.importing.values import TYPES

    name = TYPES.get(n.get("to"))
    if name is None or not hasattr(np, name) or (x.dtype.kind == "f" and name[0] in "iu" and not np.all(np.abs(x) < 2**31)):
        return NotImplemented
    return x.astype(name)


def _reshape(n: Call, x: Any, shape: Any = None) -> Any:
    sizes = n.ints("shape", shape) or []
    if not n.get("allowzero", 0):
        sizes = [x.shape[i] if s == 0 else s for i, s in enumerate(sizes)]
    return x.reshape(sizes)


def _reduce(function: Callable[..., Any]) -> Callable[..., Any]:
    def reduce(n: Call, x: Any, axes: Any = None) -> Any:
        where = n.ints("axes", axes)
        if not where:
            if n.get("noop_with_empty_axes", 0):
                return x
            where = None
        return function(x, axis=None if where is None else tuple(where), keepdims=bool(n.get("keepdims", 1))).astype(x.dtype)

    return reduce


def _constant_of_shape(n: Call, shape: Any) -> Any:
    value = n.get("value")
    sizes = shape.tolist()
    fill = np.zeros(1, np.float32) if value is None else value
    if not isinstance(fill, np.ndarray) or int(np.prod(sizes)) > MOST:
        return NotImplemented
    return np.full(sizes, fill.reshape(-1)[0], fill.dtype)


def _range(n: Call, start: Any, limit: Any, delta: Any) -> Any:
    if start.dtype.kind not in "iu" or not delta.item() or abs((limit.item() - start.item()) / delta.item()) > MOST:
        return NotImplemented
    return np.arange(start.item(), limit.item(), delta.item(), dtype=start.dtype)


def _expand(n: Call, x: Any, shape: Any) -> Any:
    sizes = np.broadcast_shapes(x.shape, tuple(shape.tolist()))
    return np.broadcast_to(x, sizes) if int(np.prod(sizes)) <= MOST else NotImplemented


def _split(n: Call, x: Any, sizes: Any = None) -> Any:
    parts = n.ints("split", sizes)
    if parts is None:
        return NotImplemented
    return tuple(np.split(x, np.cumsum(parts)[:-1], axis=n.get("axis", 0)))


def _clip(n: Call, x: Any, low: Any = None, high: Any = None) -> Any:
    return NotImplemented if "min" in n.attributes or "max" in n.attributes or (low is None and high is None) else np.clip(x, low, high)


def _same_kind(function: Callable[..., Any]) -> Callable[..., Any]:
    def all_of(n: Call, *xs: Any) -> Any:
        made = xs[0]
        for x in xs[1:]:
            made = function(made, x)
        return made

    return all_of


def _arithmetic(function: Callable[..., Any]) -> Callable[..., Any]:
    # A broadcast by attributes is of opsets before 7.
    return lambda n, a, b: NotImplemented if "broadcast" in n.attributes else function(a, b)


FORMS: Final[dict[str, Callable[..., Any]]] = {
    "Add": _arithmetic(np.add), "Sub": _arithmetic(np.subtract), "Mul": _arithmetic(np.multiply), "Div": _div, "Mod": _mod, "Neg": _plain(np.negative),
    "Abs": _plain(np.abs), "Floor": _plain(np.floor), "Ceil": _plain(np.ceil), "Identity": _plain(lambda x: x), "Max": _same_kind(np.maximum),
    "Min": _same_kind(np.minimum), "Equal": _plain(np.equal), "Less": _plain(np.less), "Greater": _plain(np.greater), "LessOrEqual": _plain(np.less_equal),
    "GreaterOrEqual": _plain(np.greater_equal), "Not": _plain(np.logical_not), "And": _plain(np.logical_and), "Or": _plain(np.logical_or),
    "Where": _plain(np.where), "Gather": _gather, "Concat": _concat, "Unsqueeze": _unsqueeze, "Squeeze": _squeeze, "Slice": _slice, "Cast": _cast,
    "Reshape": _reshape, "ReduceProd": _reduce(np.prod), "ReduceSum": _reduce(np.sum), "ReduceMax": _reduce(np.max), "ReduceMin": _reduce(np.min),
    "ConstantOfShape": _constant_of_shape, "Range": _range, "Expand": _expand, "Split": _split, "Clip": _clip, "Sqrt": lambda n, x: np.sqrt(x).astype(x.dtype),
}  # fmt: skip
