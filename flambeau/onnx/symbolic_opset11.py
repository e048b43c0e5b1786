"""torch.onnx.symbolic_opset11: how operators are written in ONNX's operator set 11; every function refuses: there is no exporter."""

from __future__ import annotations

from flambeau.onnx.symbolic_helper import opset as _opset

_opset(
    globals(), 11,
    "Delete add append arange argsort atleast_1d atleast_2d atleast_3d cat chunk clamp clamp_max clamp_min constant_pad_nd cumsum embedding_bag "
    "embedding_renorm flatten gather hardtanh hstack im2col index index_copy index_fill index_put insert linalg_det linalg_vector_norm logdet "
    "masked_scatter masked_select mm narrow normal pad pixel_shuffle pop prim_constant_chunk reflection_pad relu6 remainder replication_pad round "
    "scatter select size sort split split_with_sizes squeeze stack topk unbind unique_dim unsqueeze vstack",
)  # fmt: skip
