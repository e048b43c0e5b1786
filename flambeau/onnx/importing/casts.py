"""Casts between dtypes, those of 4 bits and fewer and strings too."""

from __future__ import annotations

from typing import Any

import numpy as np

import flambeau
from flambeau.onnx.importing import values
from flambeau.onnx.importing.registry import Call, operator
from flambeau.onnx.package import ml_dtypes


def cast(n: Call, x: Any, to: int, saturate: bool = True) -> Any:
    """A value as the dtype of a number of the format."""
    if to == values.STRING:
        return _text(values.to_array(x))
    if isinstance(x, np.ndarray) and x.dtype == object:
        if not x.size:
            return values.from_array(x.astype(np.float32)) if to not in values.TYPES else flambeau.zeros(x.shape, dtype=values.dtype_of(to))
        whole = values.TYPES.get(to, "float").startswith(("int", "uint"))
        parsed = np.array([int(s) if whole else float(s) for s in x.reshape(-1)], np.int64 if whole else np.float64).reshape(x.shape)
        return cast(n, values.from_array(parsed if whole else parsed.astype(np.float32) if to != 11 else parsed), to, saturate)
    if isinstance(x, values.Narrow):
        if x.kind == to:
            return x
        return cast(n, x.tensor if x.kind == values.FLOAT4 else x.tensor.to(flambeau.int32), to, saturate)
    x = values.tensor(x)
    if to in values.FEW:
        return _few(x, to)
    target = values.dtype_of(to)
    name = target.name
    if x.dtype is target:
        return x
    if name.startswith("float8"):
        return _float8(x, name, saturate, n.get("round_mode", "up"))
    if name in ("uint16", "uint32", "uint64") and x.is_floating_point():
        return x.to(flambeau.int64).to(target)
    return x.to(target)


def _few(x: Any, to: int) -> values.Narrow:
    """Elements of 4 bits and fewer: integers keep their low bits, floats are cut and then do the same; float4 rounds to the nearest."""
    few = values.FEW[to]
    if to == values.FLOAT4:
        return values.Narrow(float4(x.to(flambeau.float32)), to)
    whole = x.to(flambeau.int64)
    span = int(few.high - few.low) + 1
    low = int(few.low)
    return values.Narrow((flambeau.remainder(whole - low, span) + low).to(getattr(flambeau, few.holder)), to)


def float4(x: Any) -> Any:
    """The nearest of 0, 0.5, 1, 1.5, 2, 3, 4, 6, ties to the even one; NaN, for which there are no bits, is -0, as NumPy's dtype of it has it."""
    size = x.abs().clamp(max=6.0)
    step = flambeau.where(size < 2, 0.5, flambeau.where(size < 4, 1.0, 2.0))
    near = flambeau.round(size / step) * step
    return flambeau.where(flambeau.isnan(x), -0.0, flambeau.copysign(near, x))


def _float8(x: Any, name: str, saturate: bool, mode: str) -> Any:
    target = getattr(flambeau, name)
    if name == "float8_e8m0fnu":
        return _powers_of_two(x.to(flambeau.float32), saturate, mode)
    wide = x.to(flambeau.float32)
    limit = flambeau.finfo(target).max
    if saturate:
        made = wide.clamp(-limit, limit).to(target)
        return made
    kind = getattr(ml_dtypes("flambeau.onnx"), name)  # what overflows becomes infinite or NaN as the format's tables say
    return values.from_array(wide.detach().numpy().astype(kind))


def _powers_of_two(x: Any, saturate: bool, mode: str) -> Any:
    """The format's float8 of exponents: the power of two above, below or next to x."""
    a = x.detach().numpy().astype(np.float32)
    bits = a.view(np.uint32)
    exponent, rest = (bits >> 23) & 0xFF, bits & 0x7FFFFF
    up = (rest > 0) if mode == "up" else (rest >= 0x400000) if mode == "nearest" else np.zeros(a.shape, bool)
    if mode == "nearest":
        up = (rest > 0x400000) | ((rest == 0x400000) & (exponent > 0)) | ((rest == 0x400000) & (exponent == 0))
    largest = 0xFE
    nan = (exponent == 0xFF) & (rest > 0)
    made = np.where(up & (exponent < 0xFF), exponent + 1, exponent)
    over = (made >= 0xFF) & ~nan
    made = np.where(over, largest if saturate else 0xFF, made)
    made = np.where(nan, 0xFF, made).astype(np.uint8)
    return values.own(made).view(flambeau.float8_e8m0fnu)


def _text(a: Any) -> Any:
    """Numbers as the format writes them: floats as NumPy prints them, shortest."""
    if a.dtype == object:
        return a
    kind = a.dtype.type
    if a.dtype.kind in "fV":
        return np.array([np.format_float_positional(v, unique=True, trim="-") if kind is not np.float64 and np.isfinite(v) else str(v) for v in a.reshape(-1)],
                        object).reshape(a.shape)  # fmt: skip
    return np.array([str(v) for v in a.reshape(-1).tolist()], object).reshape(a.shape)


@operator("Cast", raw=True)
def cast_operator(n: Call, x: Any) -> Any:
    """To the dtype that an attribute names."""
    return cast(n, x, n.get("to"), bool(n.get("saturate", 1)))


@operator("CastLike", raw=True)
def cast_like(n: Call, x: Any, like: Any) -> Any:
    """To the dtype of another value."""
    return cast(n, x, values.number_of(like), bool(n.get("saturate", 1)))


@operator("BitCast", raw=True)
def bit_cast(n: Call, x: Any) -> Any:
    """The same bits as another dtype of the same size."""
    to = n.get("to")
    array = values.to_array(x)
    name = values.TYPES[to] if to in values.TYPES else values.FEW[to].name
    if to in values.FEW:
        few = np.dtype(getattr(ml_dtypes("flambeau.onnx"), name))
        return values.from_array(np.ascontiguousarray(array).view(few))
    if isinstance(x, values.Narrow):
        raise n.refuse("bits of elements of 4 bits as a wider dtype are not there")
    x = values.tensor(x)
    if flambeau.bool in (x.dtype, values.dtype_of(to)):
        return values.from_array(np.ascontiguousarray(array).view(getattr(np, name)))
    return x.view(values.dtype_of(to))
