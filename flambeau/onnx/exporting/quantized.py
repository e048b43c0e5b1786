"""Quantised operators as ONNX nodes: fake quantization as QuantizeLinear and DequantizeLinear, products of integers as MatMulInteger."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau.onnx.exporting.builder import Builder, form


@form("fake_quantize_per_tensor_affine", "fake_quantize_per_channel_affine")
def fake_quantize(b: Builder, self: Any, scale: Any, zero_point: Any, quant_min: int, quant_max: int, axis: int | None = None) -> Any:
    """Rounded to codes and back. Codes of fewer values than 8 bits have are 8 bits, within their limits."""
    codes = flambeau.int8 if quant_min < 0 else flambeau.uint8
    limits = flambeau.iinfo(codes)
    if not limits.min <= quant_min <= quant_max <= limits.max:
        raise b.refuse(f"codes from {quant_min} to {quant_max} are not of 8 bits")
    kind, shape = b.dtype(), None if axis is not None else b.ints([])
    scale, zero = b.operand(scale, kind), b.operand(zero_point, codes)
    if shape is not None:  # tensors of one element
        scale, zero = b.op("Reshape", scale, shape), b.op("Reshape", zero, shape)
    made = b.op("QuantizeLinear", self, scale, zero, axis=axis)
    if (quant_min, quant_max) != (limits.min, limits.max):
        made = b.op("Clip", made, b.number(quant_min, codes), b.number(quant_max, codes))
    return b.op("DequantizeLinear", made, scale, zero, axis=axis)


@form("_int_mm")
def int_mm(b: Builder, self: Any, mat2: Any) -> Any:
    """A product of int8, as int32."""
    return b.op("MatMulInteger", self, mat2)
