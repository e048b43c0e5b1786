"""Attention: one primitive (ops/primitives/attention.py), or a composition for few queries, or where its mask
needs a gradient."""

from __future__ import annotations

import math
from typing import Any

import flambeau as torch
from flambeau.nn.functional.activation import softmax
from flambeau.nn.functional.dropout import noise
from flambeau.nn.functional.engine import Tensor, functional, primitives, widen
from flambeau.ops.dropout_masks import kept

# So few queries are vectors times matrices: bound by reading the keys and values, which the kernel would copy first.
# Measured (8 heads, 1,024 keys of 64, 2 threads): one query 107 against 480 us, 4 queries 175 against 280, 16 queries alike.
FEW_QUERIES = 4
# What takes the place of scaled_dot_product_attention in a block of context parallelism (distributed/tensor/experimental/_attention.py).
INSTEAD: Any = None


def _composition(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool, scale: float, keep: Tensor | None, p: float,
) -> Tensor:  # fmt: skip
    """softmax(q k^T scale + mask) v; query (..., L, E), key (..., S, E), value (..., S, V)."""
    length, source = query.shape[-2], key.shape[-2]
    scores = torch.matmul(query * scale, key.transpose(-2, -1))
    if is_causal:
        allowed = torch.arange(length).unsqueeze(1) >= torch.arange(source)
        scores = torch.where(allowed, scores, -math.inf)
    if mask is not None:
        scores = torch.where(mask, scores, -math.inf) if mask.dtype == torch.bool else scores + mask
    if not source:
        return torch.matmul(scores, value)  # of no keys: zeros
    shift = scores.detach().amax(-1, keepdim=True)
    if mask is not None:  # a row in which everything is masked gives zeros, as PyTorch's does
        shift = torch.where(shift == -math.inf, 0, shift)
    e = primitives().exp_weight(scores - shift)
    total = e.sum(-1, keepdim=True)
    if mask is not None:
        total = torch.where(total == 0, 1, total)
    weights = e / total
    if keep is not None:
        weights = weights * noise(keep, p, weights.dtype)
    return torch.matmul(weights, value)


def _kernel(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool, scale: float, keep: Tensor | None, p: float,
) -> Tensor:  # fmt: skip
    """The same as one primitive, which never keeps the weights."""
    prim = primitives()
    batch = torch.broadcast_shapes(*(x.shape[:-2] for x in (query, key, value)))
    query, key, value = (x.expand(*batch, *x.shape[-2:]) for x in (query, key, value))
    rest: list[Any] = []
    if mask is not None:
        wide = mask if mask.dtype == torch.bool else mask.to(prim.statistics_dtype(query.dtype))
        rest.append(wide.expand(*query.shape[:-1], key.shape[-2]))
    if keep is not None:
        rest.append(keep.expand(*query.shape[:-1], key.shape[-2]))
    out, _ = prim.attention(query, key, value, *rest, causal=is_causal, dropout=0.0 if keep is None else p, masked=mask is not None, scale=float(scale))
    return out  # type: ignore[no-any-return]


@functional
def _scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, keep: Tensor | None, dropout_p: float,
    is_causal: bool, scale: float | None, enable_gqa: bool,
) -> Tensor:  # fmt: skip
    name = "scaled_dot_product_attention"
    if query.dtype != key.dtype or query.dtype != value.dtype:
        raise RuntimeError(
            f"{name}: Expected query, key, and value to have the same dtype, but got query.dtype: {query.dtype} key.dtype: "
            f"{key.dtype} and value.dtype: {value.dtype} instead."
        )
    shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise RuntimeError(f"{name}: Expected query, key, and value to all be at least 2 dimensional, but got {shapes}.")
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise RuntimeError(f"{name}: query and key need the same last size, key and value the same length, but got {shapes}")
    if attn_mask is not None:
        if is_causal:
            raise RuntimeError(f"{name}: Explicit attn_mask should not be set when is_causal=True")
        if attn_mask.dtype not in (torch.bool, query.dtype, torch.float32):
            raise RuntimeError(
                f"{name}: Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: "
                f"{attn_mask.dtype} and  query.dtype: {query.dtype} instead."
            )
    heads = query.shape
    if enable_gqa:
        groups, rest = divmod(query.shape[-3], key.shape[-3])
        if rest or key.shape[-3] != value.shape[-3]:
            raise RuntimeError(f"{name}: with enable_gqa the heads of key must divide the heads of query, but got {shapes}")
        if groups > 1:  # (..., heads of key, groups, L, E): views, in which the groups share their keys
            query = query.unflatten(-3, (key.shape[-3], groups))
            key, value = key.unsqueeze(-3), value.unsqueeze(-3)
            keep = None if keep is None else keep.unflatten(-3, (key.shape[-4], groups))
            if attn_mask is not None and attn_mask.ndim > 2:
                split = (key.shape[-4], groups) if attn_mask.shape[-3] > 1 else (1, 1)
                attn_mask = attn_mask.unflatten(-3, split)
    factor = 1.0 / math.sqrt(max(1, query.shape[-1])) if scale is None else scale
    arguments = (attn_mask, is_causal, factor, keep, dropout_p)
    composed = query.shape[-2] <= FEW_QUERIES or not all((query.numel(), key.numel(), value.numel()))
    if composed or not query.is_floating_point() or (attn_mask is not None and attn_mask.requires_grad):
        y = _composition(widen(query), widen(key), widen(value), *arguments).to(query.dtype)
    else:
        y = _kernel(query, key, value, *arguments)
    return y if query.shape == heads else y.flatten(-4, -3)


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """softmax(query key^T * scale + mask) value. Vaswani et al., 2017.

    query (N, ..., L, E), key (N, ..., S, E), value (N, ..., S, V); attn_mask broadcasts to (N, ..., L, S): bool (true: may
    attend) or added. `scale` defaults to 1 / sqrt(E). `enable_gqa`: key and value may have fewer heads (dimension -3).
    """
    if INSTEAD is not None:
        return INSTEAD(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    keep = _keep(query, key, dropout_p, enable_gqa) if dropout_p > 0.0 else None
    return _scaled_dot_product_attention(query, key, value, attn_mask, keep, dropout_p, is_causal, scale, enable_gqa)


def _keep(query: Tensor, key: Tensor, p: float, grouped: bool) -> Tensor | None:
    """Which weights (..., L, S) stay; None of operands that the operation will refuse, and of those without weights."""
    if p > 1.0:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p}")
    if min(query.ndim, key.ndim) < 2:
        return None
    if query.shape[:-2] == key.shape[:-2]:
        batch = query.shape[:-2]
    elif grouped:
        batch = (*torch.broadcast_shapes(query.shape[:-3], key.shape[:-3]), *query.shape[-3:-2])
    else:
        batch = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    shape = (*batch, query.shape[-2], key.shape[-2])
    if not math.prod(shape):
        return None
    return kept(shape, p, device=query.device) if p < 1.0 else torch.zeros(shape, dtype=torch.bool, device=query.device)


def canonical_mask(mask: Tensor | None, name: str, dtype: Any) -> Tensor | None:
    """A bool mask (true: may NOT attend, as in MultiheadAttention) as one to be added; a float mask as it is."""
    if mask is None:
        return None
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise AssertionError(f"only bool and floating types of {name} are supported")
    if mask.dtype == torch.bool:
        return _additive_mask(mask, dtype)
    return mask


@functional
def _additive_mask(mask: Tensor, dtype: Any) -> Tensor:
    return torch.where(mask, -math.inf, 0.0).to(dtype)


def _check_dims(query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None, attn_mask: Tensor | None, heads: int) -> None:
    """AssertionError, in PyTorch's words, unless all have as many dims as the query asks for."""
    if query.ndim not in (2, 3):
        raise AssertionError(f"query should be unbatched 2D or batched 3D tensor but received {query.ndim}-D query tensor")
    of = f"For {'batched (3-D)' if query.ndim == 3 else 'unbatched (2-D)'} `query`, expected"
    if key.ndim != query.ndim or value.ndim != query.ndim:
        raise AssertionError(f"{of} `key` and `value` to be {query.ndim}-D but found {key.ndim}-D and {value.ndim}-D tensors respectively")
    if key_padding_mask is not None and key_padding_mask.ndim != query.ndim - 1:
        raise AssertionError(f"{of} `key_padding_mask` to be `None` or {query.ndim - 1}-D but found {key_padding_mask.ndim}-D tensor instead")
    if attn_mask is None:
        return
    if attn_mask.ndim not in (2, 3):
        raise AssertionError(f"{of} `attn_mask` to be `None`, 2-D or 3-D but found {attn_mask.ndim}-D tensor instead")
    if query.ndim == 2 and attn_mask.ndim == 3 and tuple(attn_mask.shape) != (heads, query.shape[0], key.shape[0]):
        raise AssertionError(f"Expected `attn_mask` shape to be {(heads, query.shape[0], key.shape[0])} but got {attn_mask.shape}")


def _thirds(name: str, t: Tensor) -> tuple[Tensor, ...]:
    """The parts of a packed parameter: of query, key and value."""
    parts = t.chunk(3)
    if len(parts) != 3:
        raise ValueError(f"multi_head_attention_forward(): {name} of shape {tuple(t.shape)} does not have a part each for query, key and value")
    return parts


def multi_head_attention_forward(
    query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int, in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None, bias_k: Tensor | None, bias_v: Tensor | None, add_zero_attn: bool, dropout_p: float,
    out_proj_weight: Tensor, out_proj_bias: Tensor | None, training: bool = True, key_padding_mask: Tensor | None = None,
    need_weights: bool = True, attn_mask: Tensor | None = None, use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None, k_proj_weight: Tensor | None = None, v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None, static_v: Tensor | None = None, average_attn_weights: bool = True, is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Multi-head attention over (length, batch, width) tensors, or (length, width) without a batch.

    Returns the output (length, batch, width) and the weights (batch, [heads,] length, source), or None for these.
    """
    batched = query.ndim == 3
    _check_dims(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
        if key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(0)
    length, batch, width = query.shape
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
    if width != embed_dim_to_check:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim_to_check}, but got {width}")
    if width % num_heads:
        raise AssertionError(f"embed_dim {width} not divisible by num_heads {num_heads}")
    if key.shape[:2] != value.shape[:2] or (not use_separate_proj_weight and key.shape != value.shape):
        raise AssertionError(f"multi_head_attention_forward: key shape {key.shape} does not match value shape {value.shape}")
    if out_proj_weight.ndim < 2:
        projected = in_proj_weight is None or in_proj_weight.ndim == 2  # PyTorch projects inwards before it looks at this weight
        kind = IndexError if projected and out_proj_bias is None and tuple(out_proj_weight.shape) == (width,) else RuntimeError
        raise kind(f"multi_head_attention_forward(): Dimension out of range: out_proj_weight must be a matrix, but has shape {tuple(out_proj_weight.shape)}")
    head = width // num_heads
    key_padding_mask = canonical_mask(key_padding_mask, "key_padding_mask", query.dtype)
    if is_causal and key_padding_mask is None and not need_weights:
        attn_mask = None
    else:
        attn_mask = canonical_mask(attn_mask, "attn_mask", query.dtype)
        is_causal = False
    linear = torch.nn.functional.linear
    biases = (None, None, None) if in_proj_bias is None else _thirds("in_proj_bias", in_proj_bias)
    if use_separate_proj_weight:
        weights = (q_proj_weight, k_proj_weight, v_proj_weight)
        q, k, v = (linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))
    elif query is key and key is value:
        q, k, v = linear(query, in_proj_weight, in_proj_bias).chunk(3, -1)
    else:
        assert in_proj_weight is not None
        q, k, v = (linear(x, w, b) for x, w, b in zip((query, key, value), _thirds("in_proj_weight", in_proj_weight), biases, strict=True))
    if (bias_k is None) is not (bias_v is None):
        alone = "bias_v" if bias_k is None else "bias_k"
        raise AssertionError(f"multi_head_attention_forward: bias_k and bias_v belong together, but {alone} alone is given")
    if bias_k is not None and bias_v is not None:
        k = torch.cat([k, bias_k.repeat(1, batch, 1)])
        v = torch.cat([v, bias_v.repeat(1, batch, 1)])
        attn_mask, key_padding_mask = _widen_mask(attn_mask), _widen_mask(key_padding_mask)
    q = q.reshape(length, batch * num_heads, head).transpose(0, 1)
    k = k.reshape(k.shape[0], batch * num_heads, head).transpose(0, 1) if static_k is None else static_k
    v = v.reshape(v.shape[0], batch * num_heads, head).transpose(0, 1) if static_v is None else static_v
    if add_zero_attn:
        zeros = torch.zeros(batch * num_heads, 1, head, dtype=k.dtype, device=k.device)
        k, v = torch.cat([k, zeros], 1), torch.cat([v, zeros], 1)
        attn_mask, key_padding_mask = _widen_mask(attn_mask), _widen_mask(key_padding_mask)
    source = k.shape[1]
    if key_padding_mask is not None and tuple(key_padding_mask.shape) != (batch, source):
        raise AssertionError(f"multi_head_attention_forward: Expected key_padding_mask of shape {(batch, source)}, but got {tuple(key_padding_mask.shape)}")
    q = q.reshape(batch, num_heads, length, head)
    k = k.reshape(batch, num_heads, source, head)
    v = v.reshape(batch, num_heads, source, head)
    mask = _merge_masks(attn_mask, key_padding_mask, batch, num_heads, length, source)
    p = dropout_p if training else 0.0
    if need_weights:
        scores = torch.matmul(q * math.sqrt(1.0 / head), k.transpose(-2, -1))
        attention = softmax(scores if mask is None else scores + mask, -1)
        if p > 0.0:
            attention = torch.nn.functional.dropout(attention, p)
        y = torch.matmul(attention, v)
    else:
        y = scaled_dot_product_attention(q, k, v, mask, p, is_causal)
    y = linear(y.permute(2, 0, 1, 3).reshape(length, batch, width), out_proj_weight, out_proj_bias)
    if not batched:
        y = y.squeeze(1)
    if not need_weights:
        return y, None
    if average_attn_weights:
        attention = attention.mean(1)
    return y, attention if batched else attention.squeeze(0)


def _widen_mask(mask: Tensor | None) -> Tensor | None:
    """One more source position, which may be attended."""
    return None if mask is None else torch.nn.functional.pad(mask, (0, 1))


def _merge_masks(attn_mask: Tensor | None, padding: Tensor | None, batch: int, heads: int, length: int, source: int) -> Tensor | None:
    """Both additive masks as one that broadcasts to (batch, heads, length, source)."""
    if attn_mask is not None:
        if attn_mask.ndim == 2:
            if tuple(attn_mask.shape) != (length, source):
                raise RuntimeError(f"The shape of the 2D attn_mask is {attn_mask.shape}, but should be {(length, source)}.")
            attn_mask = attn_mask.unsqueeze(0).unsqueeze(0)
        elif attn_mask.ndim == 3:
            if tuple(attn_mask.shape) != (batch * heads, length, source):
                raise RuntimeError(f"The shape of the 3D attn_mask is {attn_mask.shape}, but should be {(batch * heads, length, source)}.")
            attn_mask = attn_mask.reshape(batch, heads, length, source)
        else:
            raise RuntimeError(f"attn_mask's dimension {attn_mask.ndim} is not supported")
    if padding is not None:
        if tuple(padding.shape) != (batch, source):
            raise AssertionError(f"expecting key_padding_mask shape of {(batch, source)}, but got {padding.shape}")
        padding = padding.reshape(batch, 1, 1, source)
        return padding if attn_mask is None else attn_mask + padding
    return attn_mask


__all__ = ["multi_head_attention_forward", "scaled_dot_product_attention"]
