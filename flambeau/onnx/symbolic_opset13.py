"""torch.onnx.symbolic_opset13: how operators are written in ONNX's operator set 13; every function refuses: there is no exporter."""

from __future__ import annotations

from flambeau.onnx.symbolic_helper import opset as _opset

_opset(
    globals(), 13,
    "diagonal fake_quantize_per_channel_affine fake_quantize_per_tensor_affine frobenius_norm log_softmax nonzero_numpy quantized_conv1d "
    "quantized_conv1d_relu quantized_conv2d quantized_conv2d_relu quantized_conv3d quantized_conv3d_relu quantized_conv_transpose1d "
    "quantized_conv_transpose2d quantized_conv_transpose3d quantized_linear quantized_linear_relu repeat_interleave softmax split "
    "split_with_sizes tensor_split tile unbind unflatten unsafe_chunk unsafe_split unsafe_split_with_sizes where",
)  # fmt: skip
