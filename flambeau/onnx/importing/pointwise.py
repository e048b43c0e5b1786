"""Operators that work on each element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

import flambeau
from flambeau.nn import functional
from flambeau.onnx.importing import values
from flambeau.onnx.importing.registry import Call, operator
from flambeau.tensor import Tensor

_WIDE: Final = {"uint16": "int32", "uint32": "int64", "uint64": "int64"}

_UNARY: Final = (
    "Abs abs Acos acos Acosh acosh Asin asin Asinh asinh Atan atan Atanh atanh Ceil ceil Cos cos Cosh cosh Erf erf Exp exp Floor floor Log log Neg neg "
    "Reciprocal reciprocal Round round Sigmoid sigmoid Sign sign Sin sin Sinh sinh Sqrt sqrt Tan tan Tanh tanh Relu relu Not logical_not "
    "BitwiseNot bitwise_not IsNaN isnan"
).split()
_BINARY: Final = (
    "Add add Sub sub Mul mul And logical_and Or logical_or Xor logical_xor Equal eq Greater gt GreaterOrEqual ge Less lt LessOrEqual le "
    "BitwiseAnd bitwise_and BitwiseOr bitwise_or BitwiseXor bitwise_xor"
).split()


def _enter() -> None:
    def unary(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda n, x: narrowed(f, x)

    def binary(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda n, a, b: narrowed(f, *aligned(n, a, b))

    for onnx, ours in zip(_UNARY[::2], _UNARY[1::2], strict=True):
        operator(onnx)(unary(getattr(flambeau, ours)))
    for onnx, ours in zip(_BINARY[::2], _BINARY[1::2], strict=True):
        operator(onnx)(binary(getattr(flambeau, ours)))


def narrowed(f: Callable[..., Any], *xs: Any) -> Any:
    """A function of elements; unsigned integers that have no arithmetic of their own go through wider ones and wrap round."""
    name = xs[0].dtype.name
    if name not in _WIDE:
        return f(*xs)
    if name == "uint64" and f in (flambeau.gt, flambeau.ge, flambeau.lt, flambeau.le, flambeau.maximum, flambeau.minimum):
        least = flambeau.iinfo(flambeau.int64).min  # the order of the bits with the first one turned over
        made = f(*[x.view(flambeau.int64) ^ least for x in xs])
        return made if made.dtype is flambeau.bool else (made ^ least).view(flambeau.uint64)
    wide = getattr(flambeau, _WIDE[name])
    made = f(*[x.view(wide) if name == "uint64" else x.to(wide) for x in xs])
    if made.dtype is not wide:
        return made
    return made.view(flambeau.uint64) if name == "uint64" else made.to(xs[0].dtype)


def aligned(n: Call, a: Any, b: Any) -> tuple[Any, Any]:
    """Two operands; before opset 7 an attribute says at which dim the second one begins."""
    if n.version < 7 and n.get("broadcast", 0) and "axis" in n.attributes and b.ndim:
        after = a.ndim - n.get("axis") % a.ndim - b.ndim
        b = b.reshape(*b.shape, *[1] * after)
    return a, b


@operator("Div")
def div(n: Call, a: Any, b: Any) -> Any:
    """a / b; integers towards 0."""
    a, b = aligned(n, a, b)
    if a.is_floating_point() or a.is_complex():
        return a / b
    if a.dtype is flambeau.uint64:  # no wider integers hold them
        return values.from_array(values.to_array(a) // values.to_array(b))
    return narrowed(lambda x, y: flambeau.div(x, y, rounding_mode="trunc"), a, b)


@operator("Mod")
def mod(n: Call, a: Any, b: Any) -> Any:
    """The remainder, with the divisor's sign, or with `fmod` the dividend's."""
    return narrowed(flambeau.fmod if n.get("fmod", 0) else flambeau.remainder, a, b)


@operator("Pow")
def power(n: Call, a: Any, b: Any) -> Any:
    """a to the power b, in a's dtype."""
    a, b = aligned(n, a, b)
    if a.dtype is b.dtype:
        return flambeau.pow(a, b)
    if b.is_floating_point() and not a.is_floating_point():
        return flambeau.pow(a.to(b.dtype), b).to(a.dtype)
    return flambeau.pow(a, narrowed(lambda x: x, b).to(a.dtype) if b.dtype.name in _WIDE else b.to(a.dtype))


def _folded(f: Callable[..., Any]) -> Callable[..., Any]:
    def fold(n: Call, *xs: Any) -> Any:
        made = xs[0]
        for x in xs[1:]:
            made = narrowed(f, made, x)
        return made

    return fold


operator("Max")(_folded(flambeau.maximum))
operator("Min")(_folded(flambeau.minimum))
operator("Sum")(_folded(flambeau.add))


@operator("Mean")
def mean(n: Call, *xs: Any) -> Any:
    """The mean of several tensors, element by element."""
    return _folded(flambeau.add)(n, *xs) / len(xs)


@operator("Where", raw=True)
def where(n: Call, c: Any, a: Any, b: Any) -> Any:
    """a where c, else b."""
    if any(isinstance(x, np.ndarray) and x.dtype == object for x in (a, b)):
        return np.where(values.to_array(c), a, b)
    return flambeau.where(values.tensor(c), values.tensor(a), values.tensor(b))


@operator("Clip", raw=True)
def clip(n: Call, x: Any, low: Any = None, high: Any = None) -> Any:
    """x within limits: numbers of attributes before opset 11, tensors later."""
    if n.version < 11:
        x = values.tensor(x)
        return flambeau.clamp(x, n.get("min"), n.get("max")) if "min" in n.attributes or "max" in n.attributes else x
    if isinstance(x, Tensor) and x.is_floating_point() and all(v is None or isinstance(v, np.ndarray) for v in (low, high)):
        if low is None and high is None:
            return x
        if low is None or high is None or low <= high:  # numbers fuse better than tensors
            return flambeau.clamp(x, None if low is None else low.item(), None if high is None else high.item())
    x, low, high = [values.tensor(v) for v in (x, low, high)]
    if low is not None:
        x = narrowed(flambeau.maximum, x, low)
    return x if high is None else narrowed(flambeau.minimum, x, high)


@operator("BitShift")
def bit_shift(n: Call, x: Any, by: Any) -> Any:
    """Shifts of unsigned integers."""
    left = n.get("direction") == "LEFT"
    if x.dtype is flambeau.uint64 and not left:  # the sign bit must not be drawn in
        x, by = x.view(flambeau.int64), by.view(flambeau.int64)
        mask = flambeau.bitwise_not(flambeau.bitwise_left_shift(flambeau.full_like(x, -2), 63 - by))
        return flambeau.where(by > 0, flambeau.bitwise_right_shift(x, by) & mask, x).view(flambeau.uint64)
    return narrowed(flambeau.bitwise_left_shift if left else flambeau.bitwise_right_shift, x, by)


@operator("IsInf")
def is_inf(n: Call, x: Any) -> Any:
    """Where x is infinite, of the signs that are asked for."""
    if n.get("detect_positive", 1) and n.get("detect_negative", 1):
        return flambeau.isinf(x)
    if not n.get("detect_positive", 1):
        return flambeau.isneginf(x) if n.get("detect_negative", 1) else flambeau.zeros_like(x, dtype=flambeau.bool)
    return flambeau.isposinf(x)


def _activation(f: Callable[..., Any], **names: Any) -> Callable[..., Any]:
    """A function of x and of numbers that attributes give, with their defaults."""
    return lambda n, x: f(x, *[n.get(name, default) for name, default in names.items()])


operator("Elu")(_activation(functional.elu, alpha=1.0))
operator("LeakyRelu")(_activation(functional.leaky_relu, alpha=0.01))
operator("ThresholdedRelu")(_activation(lambda x, alpha: flambeau.where(x > alpha, x, flambeau.zeros((), dtype=x.dtype)), alpha=1.0))
operator("HardSigmoid")(_activation(lambda x, a, b: flambeau.clamp(x * a + b, 0, 1), alpha=0.2, beta=0.5))
operator("Celu")(_activation(functional.celu, alpha=1.0))
operator("Softplus")(lambda n, x: functional.softplus(x))
operator("Softsign")(lambda n, x: functional.softsign(x))
operator("HardSwish")(lambda n, x: functional.hardswish(x))
operator("Mish")(lambda n, x: functional.mish(x))
operator("Swish")(_activation(lambda x, alpha: x * flambeau.sigmoid(x if alpha == 1 else x * alpha), alpha=1.0))
operator("Gelu")(lambda n, x: functional.gelu(x, approximate=n.get("approximate", "none")))


@operator("Selu")
def selu(n: Call, x: Any) -> Any:
    """gamma * (x above 0, alpha * (exp(x) - 1) below)."""
    alpha, gamma = n.get("alpha", 1.67326319217681884765625), n.get("gamma", 1.05070102214813232421875)
    return gamma * flambeau.where(x > 0, x, alpha * flambeau.expm1(x))


@operator("Shrink")
def shrink(n: Call, x: Any) -> Any:
    """0 within [-lambd, lambd]; others move towards 0 by `bias`."""
    limit, bias = n.get("lambd", 0.5), n.get("bias", 0.0)
    if not x.is_floating_point():
        wide = x.to(flambeau.float32)
        return shrink(n, wide).to(x.dtype)
    zero = flambeau.zeros((), dtype=x.dtype)
    return flambeau.where(x < -limit, x + bias, flambeau.where(x > limit, x - bias, zero))


@operator("PRelu")
def prelu(n: Call, x: Any, slope: Any) -> Any:
    """x above 0, slope * x below."""
    if n.version < 7 and slope.ndim == 1 and x.ndim > 1 and slope.shape[0] != 1:
        slope = slope.reshape(-1, *[1] * (x.ndim - 2))
    return flambeau.where(x < 0, x * slope, x)


@operator("Identity", raw=True)
def identity(n: Call, x: Any) -> Any:
    """x."""
    return list(x) if isinstance(x, list) else x


@operator("Dropout")
def dropout(n: Call, x: Any, ratio: Any = None, training: Any = None) -> Any:
    """x, or in training with elements dropped; and what is kept."""
    active = bool(values.number(training)) if training is not None else False
    p = float(values.number(ratio)) if ratio is not None else n.get("ratio", 0.5)
    if not active or p == 0:
        return x, flambeau.ones_like(x, dtype=flambeau.bool if n.version >= 10 else x.dtype)
    if "seed" in n.attributes:
        flambeau.manual_seed(n.get("seed"))
    kept = flambeau.rand(x.shape) >= p
    return flambeau.where(kept, x / (1 - p), flambeau.zeros((), dtype=x.dtype)), kept


_enter()
