"""Quantised operators: to and from integers of 8 bits and fewer, and products of them."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau.onnx.importing import values
from flambeau.onnx.importing.casts import cast, float4
from flambeau.onnx.importing.convolution import conv
from flambeau.onnx.importing.registry import Call, operator


def _spread(n: Call, t: Any, x: Any, like: Any = None) -> Any:
    """A scale or zero point for each element of x: of all, of each slice along `axis`, or of each block of it."""
    if t is None or t.ndim == 0 or (t.ndim == 1 and t.shape[0] == 1 and not n.get("block_size", 0)):
        return t if t is None else t.reshape(())
    axis = n.get("axis", 1)
    block = n.get("block_size", 0)
    if block:
        return t.repeat_interleave(block, axis).narrow(axis, 0, x.shape[axis])
    view = [1] * x.ndim
    view[axis] = t.shape[0]
    return t.reshape(view)


_LIMITS = {"uint8": (0, 255), "int8": (-128, 127), "uint16": (0, 65535), "int16": (-32768, 32767)}


def to_integers(x: Any, kind: int) -> Any:
    """Rounded values, within the limits of a dtype."""
    if kind in values.FEW:
        few = values.FEW[kind]
        if kind == values.FLOAT4:
            return values.Narrow(float4(x), kind)
        return values.Narrow(x.clamp(few.low, few.high).to(getattr(flambeau, few.holder)), kind)
    low, high = _LIMITS[values.TYPES[kind]]
    x = x.clamp(low, high)
    return x.to(flambeau.int32).to(values.dtype_of(kind))


@operator("QuantizeLinear", raw=True)
def quantize_linear(n: Call, x: Any, scale: Any, zero: Any = None) -> Any:
    """round(x / scale) + zero point, within limits."""
    x, scale = values.tensor(x), values.tensor(scale)
    kind = n.get("output_dtype", 0) or (values.number_of(zero) if zero is not None else 2)
    precise = n.dtype("precision", None) if n.get("precision", 0) else None
    if precise is not None:
        x, scale = x.to(precise), scale.to(precise)
    wide = x.to(flambeau.float32) / _spread(n, scale, x).to(flambeau.float32)
    if scale.dtype is not flambeau.float32 or x.dtype is flambeau.float16:
        wide = (x / _spread(n, scale.to(x.dtype), x)).to(flambeau.float32) if x.is_floating_point() else wide
    name = values.TYPES.get(kind, "")
    if name.startswith("float8"):
        return cast(n, wide, kind, bool(n.get("saturate", 1)))
    if kind != values.FLOAT4:
        wide = flambeau.round(wide)
    if zero is not None:
        wide = wide + _spread(n, values.to_holder(zero).to(flambeau.float32), x)
    return to_integers(wide, kind)


@operator("DequantizeLinear", raw=True)
def dequantize_linear(n: Call, x: Any, scale: Any, zero: Any = None) -> Any:
    """(x - zero point) * scale."""
    held, scale = values.to_holder(x), values.tensor(scale)
    target = n.dtype("output_dtype", None) if n.get("output_dtype", 0) else scale.dtype
    wide = held.to(flambeau.float32)
    if zero is not None:
        wide = wide - _spread(n, values.to_holder(zero).to(flambeau.float32), held)
    return (wide * _spread(n, scale.to(flambeau.float32), held)).to(target)


@operator("DynamicQuantizeLinear")
def dynamic_quantize_linear(n: Call, x: Any) -> Any:
    """To uint8 with the scale and zero point that x's range asks for."""
    zero = flambeau.zeros((), dtype=x.dtype)
    low, high = flambeau.minimum(x.min(), zero), flambeau.maximum(x.max(), zero)
    scale = (high - low) / 255.0
    point = flambeau.round((0 - low) / scale).clamp(0, 255)
    made = (flambeau.round(x / scale) + point).clamp(0, 255)
    return made.to(flambeau.uint8), scale, point.to(flambeau.uint8)


def _around(x: Any, zero: Any, rows: bool) -> Any:
    """x - zero point as int32; the zero points of rows stand in a column."""
    x = x.to(flambeau.int32)
    if zero is None:
        return x
    zero = zero.to(flambeau.int32)
    if zero.ndim == 1 and zero.shape[0] > 1 and rows:
        zero = zero.unsqueeze(1)
    return x - zero


@operator("MatMulInteger")
def matmul_integer(n: Call, a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    """Products of 8-bit integers, as int32."""
    return _around(a, a_zero, True) @ _around(b, b_zero, False)


@operator("QLinearMatMul")
def qlinear_matmul(n: Call, a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, y_scale: Any, y_zero: Any) -> Any:
    """A product of quantised matrices, quantised again."""
    total = _around(a, a_zero, True) @ _around(b, b_zero, False)
    if a_scale.ndim == 1 and a_scale.shape[0] > 1:
        a_scale = a_scale.unsqueeze(1)
    ratio = a_scale.to(flambeau.float32) * b_scale.to(flambeau.float32) / y_scale.to(flambeau.float32)
    made = flambeau.round(total.to(flambeau.float32) * ratio) + y_zero.to(flambeau.float32)
    return to_integers(made, values.number_of(y_zero))


def _convolved(n: Call, x: Any, w: Any) -> Any:
    """A convolution of int32 in float64, where sums are exact."""
    made = conv(n, x.to(flambeau.float64), w.to(flambeau.float64))
    return flambeau.round(made).to(flambeau.int32)


@operator("ConvInteger")
def conv_integer(n: Call, x: Any, w: Any, x_zero: Any = None, w_zero: Any = None) -> Any:
    """A convolution of 8-bit integers, as int32."""
    if w_zero is not None and w_zero.ndim == 1:
        w_zero = w_zero.reshape(-1, *[1] * (w.ndim - 1))
    return _convolved(n, _around(x, x_zero, False), _around(w, w_zero, False))


@operator("QLinearConv")
def qlinear_conv(n: Call, x: Any, x_scale: Any, x_zero: Any, w: Any, w_scale: Any, w_zero: Any, y_scale: Any, y_zero: Any, bias: Any = None) -> Any:
    """A convolution of quantised tensors, quantised again."""
    view = (-1, *[1] * (w.ndim - 1))
    total = _convolved(n, _around(x, x_zero, False), _around(w, w_zero.reshape(view) if w_zero.ndim else w_zero, False))
    channel = (-1, *[1] * (w.ndim - 2))
    if bias is not None:
        total = total + bias.reshape(channel)
    ratio = x_scale * (w_scale.reshape(channel) if w_scale.ndim else w_scale) / y_scale
    made = flambeau.round(total.to(flambeau.float32) * ratio) + y_zero.to(flambeau.float32)
    return to_integers(made, values.number_of(y_zero))
