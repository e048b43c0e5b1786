"""Attention and rotary positions: flambeau's own where it has the same formula, else the format's steps."""

from __future__ import annotations

import math
from typing import Any

import flambeau
from flambeau.nn import functional
from flambeau.onnx.importing.registry import Call, operator


def _heads(n: Call, x: Any, name: str) -> Any:
    """[batch, heads, time, size] of what may be [batch, time, heads * size]."""
    if x.ndim == 4:
        return x
    count = n.get(name)
    return x.reshape(x.shape[0], x.shape[1], count, -1).transpose(1, 2)


@operator("Attention")
def attention(n: Call, q: Any, k: Any, v: Any, mask: Any = None, past_k: Any = None, past_v: Any = None, lengths: Any = None) -> Any:
    """Scaled dot products: masks, causal, grouped heads, a cache, soft caps; also the scores at four points."""
    if n.get("left_window_size", -1) >= 0 or n.get("right_window_size", -1) >= 0:
        return NotImplemented
    flat = q.ndim == 3
    q, k, v = _heads(n, q, "q_num_heads"), _heads(n, k, "kv_num_heads"), _heads(n, v, "kv_num_heads")
    kind = q.dtype
    if past_k is not None:
        k, v = flambeau.cat([past_k, k], 2), flambeau.cat([past_v, v], 2)
    cache = k, v
    size = q.shape[3]
    scale = n.get("scale") or 1.0 / math.sqrt(size)
    causal, cap = bool(n.get("is_causal", 0)), n.get("softcap", 0.0)
    many = q.shape[1] // k.shape[1]
    bias = None if mask is None else mask if mask.dtype is not flambeau.bool else flambeau.where(mask, 0.0, -math.inf).to(kind)
    total = k.shape[2]
    if bias is not None and bias.shape[-1] < total:  # what a mask does not reach is not seen
        bias = functional.pad(bias, (0, total - bias.shape[-1]), value=-math.inf)
    if lengths is not None:
        seen = flambeau.arange(total) < lengths.reshape(-1, 1, 1, 1)
        shown = flambeau.where(seen, 0.0, -math.inf).to(kind)
        bias = shown if bias is None else bias + shown
    if causal:
        if lengths is not None and past_k is None:
            offset: Any = (lengths - q.shape[2]).reshape(-1, 1, 1, 1)
        else:
            offset = 0 if past_k is None else past_k.shape[2]
    plain = not cap and not n.wants(3) and kind is flambeau.float32 and not n.get("softmax_precision")
    own = plain and not (causal and (bias is not None or past_k is not None))
    if own and (bias is None or mask is None or mask.dtype is not flambeau.bool):
        if many > 1:
            k, v = k.repeat_interleave(many, 1), v.repeat_interleave(many, 1)
        made = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=causal, scale=scale)
        scores = None
    else:
        if many > 1:
            k, v = k.repeat_interleave(many, 1), v.repeat_interleave(many, 1)
        root = math.sqrt(scale)
        raw = (q * root) @ (k * root).transpose(2, 3)
        if causal:
            rows, columns = flambeau.arange(q.shape[2]).reshape(-1, 1), flambeau.arange(total)
            shown = flambeau.where(columns <= rows + offset, 0.0, -math.inf).to(kind)
            bias = shown if bias is None else bias + shown
        capped = flambeau.tanh(raw / cap) * cap if cap else raw
        masked = capped if bias is None else capped + bias
        precise = n.dtype("softmax_precision") or kind
        weights = flambeau.softmax(masked.to(precise), -1).to(kind)
        dead = (masked == -math.inf).all(-1, keepdim=True)
        weights = flambeau.where(dead, flambeau.zeros((), dtype=kind), weights)
        made = weights @ v
        scores = [raw, capped, masked, weights][n.get("qk_matmul_output_mode", 0)] if n.wants(3) else None
        if n.wants(3) and n.version >= 24:
            scores = [raw, masked, capped, weights][n.get("qk_matmul_output_mode", 0)] if n.get("qk_matmul_output_mode", 0) in (0, 3) else scores
    if flat:
        made = made.transpose(1, 2).reshape(made.shape[0], made.shape[2], -1)
    return made, *cache, scores


@operator("RotaryEmbedding")
def rotary_embedding(n: Call, x: Any, cos: Any, sin: Any, positions: Any = None) -> Any:
    """Pairs of elements turned by an angle of their position."""
    flat = x.ndim == 3
    shape = x.shape
    if flat:
        x = x.reshape(shape[0], shape[1], n.get("num_heads"), -1)
    else:
        x = x.transpose(1, 2)
    turned = n.get("rotary_embedding_dim", 0) or x.shape[3]
    rest, x = x[..., turned:], x[..., :turned]
    if positions is not None:
        cos, sin = cos[positions.to(flambeau.int64)], sin[positions.to(flambeau.int64)]
    cos, sin = cos.unsqueeze(2), sin.unsqueeze(2)
    if n.get("interleaved", 0):
        a, b = x[..., 0::2], x[..., 1::2]
        made = flambeau.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
    else:
        a, b = x.chunk(2, -1)
        made = flambeau.cat([a * cos - b * sin, a * sin + b * cos], -1)
    made = flambeau.cat([made, rest], -1) if rest.shape[-1] else made
    return made.reshape(shape) if flat else made.transpose(1, 2)
