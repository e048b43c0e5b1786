"""torch.onnx.symbolic_opset11: how operators are written in ONNX's operator set 11; every function refuses: there is no exporter."""

from __future__ import annotations

from flambeau.onnx.symbolic_helper import opset as _opset

__getattr__ = _opset(11)
