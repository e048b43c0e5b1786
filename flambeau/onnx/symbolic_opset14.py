"""torch.onnx.symbolic_opset14: how operators are written in ONNX's operator set 14; every function refuses: there is no exporter."""

from __future__ import annotations

from flambeau.onnx.symbolic_helper import opset as _opset

_opset(
    globals(), 14,
    "batch_norm hardswish quantized_hardswish reshape scaled_dot_product_attention tril triu",
)  # fmt: skip
