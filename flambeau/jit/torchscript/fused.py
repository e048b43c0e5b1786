"""The operators that PyTorch's fast paths of attention and transformer layers call, composed of flambeau's own; scripted modules take them in eval mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import flambeau
from flambeau.tensor import Tensor

_F: Final = flambeau.nn.functional


def _masked(mask: Tensor | None, mask_type: int | None) -> Tensor | None:
    """-inf where a key must not be seen. `mask_type`: 0 is of queries and keys, 1 of batches and keys, 2 of both; what is not zero is hidden."""
    if mask is None:
        return None
    hidden = mask.to(flambeau.bool)
    return hidden[:, None, None, :] if mask_type == 1 else hidden


def native_attention(
    query: Tensor, key: Tensor, value: Tensor, embed_dim: int, num_heads: int, qkv_weight: Tensor, qkv_bias: Tensor, proj_weight: Tensor, proj_bias: Tensor,
    mask: Tensor | None = None, need_weights: bool = True, average_attn_weights: bool = True, mask_type: int | None = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """aten::_native_multi_head_attention: inputs (batch, length, embed_dim); the result, and the weights if they are asked for."""
    heads = []
    for x, w, b in zip((query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True):
        heads.append(_F.linear(x, w, b).unflatten(-1, (num_heads, embed_dim // num_heads)).transpose(1, 2))
    q, k, v = heads
    scores = q @ k.transpose(-2, -1) * (embed_dim // num_heads) ** -0.5
    hidden = _masked(mask, mask_type)
    if hidden is not None:
        scores = scores.masked_fill(hidden, float("-inf"))
    weights = scores.softmax(-1)
    made = _F.linear((weights @ v).transpose(1, 2).flatten(2), proj_weight, proj_bias)
    if not need_weights:
        return made, None
    return made, weights.mean(1) if average_attn_weights else weights


def encoder_layer(
    src: Tensor, embed_dim: int, num_heads: int, qkv_weight: Tensor, qkv_bias: Tensor, proj_weight: Tensor, proj_bias: Tensor, use_gelu: bool,
    norm_first: bool, eps: float, norm_weight_1: Tensor, norm_bias_1: Tensor, norm_weight_2: Tensor, norm_bias_2: Tensor, ffn_weight_1: Tensor,
    ffn_bias_1: Tensor, ffn_weight_2: Tensor, ffn_bias_2: Tensor, mask: Tensor | None = None, mask_type: int | None = None,
) -> Tensor:  # fmt: skip
    """aten::_transformer_encoder_layer_fwd: torch.nn.TransformerEncoderLayer without dropout."""

    def attend(x: Tensor) -> Tensor:
        return native_attention(x, x, x, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, False, True, mask_type)[0]

    def forward(x: Tensor) -> Tensor:
        y = _F.linear(x, ffn_weight_1, ffn_bias_1)
        return _F.linear(_F.gelu(y) if use_gelu else _F.relu(y), ffn_weight_2, ffn_bias_2)

    def first(x: Tensor) -> Tensor:
        return _F.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second(x: Tensor) -> Tensor:
        return _F.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    if norm_first:
        x = src + attend(first(src))
        return x + forward(second(x))
    x = first(src + attend(src))
    return second(x + forward(x))


OPERATORS: Final[dict[str, Callable[..., Any]]] = {
    "_native_multi_head_attention": native_attention, "_transformer_encoder_layer_fwd": encoder_layer,
}  # fmt: skip
