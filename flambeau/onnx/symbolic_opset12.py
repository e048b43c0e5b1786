"""torch.onnx.symbolic_opset12: how operators are written in ONNX's operator set 12; every function refuses: there is no exporter."""

from __future__ import annotations

from flambeau.onnx.symbolic_helper import opset as _opset

_opset(
    globals(), 12,
    "argmax argmin binary_cross_entropy_with_logits celu cross_entropy_loss dropout einsum ge le native_dropout nll_loss nll_loss2d nll_loss_nd "
    "outer pow tensordot unfold",
)  # fmt: skip
