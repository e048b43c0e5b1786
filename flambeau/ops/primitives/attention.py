"""Attention: softmax(scale q k^T) v as one primitive, and its gradient. Described in compiler/graph.py.

The gradient of the gradient, which training hardly ever asks for, is a composition of matrix products.
"""

from __future__ import annotations

import math
from typing import Any

from flambeau import dtypes
from flambeau.compiler.graph import Value, contiguous_strides
from flambeau.ops.primitive import constant, primitive, same_dtype
from flambeau.ops.primitives.contract import matmul
from flambeau.ops.primitives.pointwise import exp_weight
from flambeau.trace.meta import Meta
from flambeau.trace.recorder import local


def _in_order_of(like: Meta, shape: tuple[int, ...], dtype_: dtypes.dtype) -> Value:
    """A dense value whose dims lie in the order of those of `like`, the last one innermost (PyTorch's empty_like): for
    queries cut out of one projection, the heads of a position stay next to each other, where the next layer wants them."""
    if like.is_contiguous:
        return Value(shape, dtype_, contiguous_strides(shape))
    order = sorted(range(len(shape) - 1), key=lambda d: (-like.strides[d] if like.strides[d] else -math.inf, d))
    inner = contiguous_strides((*(shape[d] for d in order), shape[-1]))
    strides = dict(zip(order, inner, strict=False))
    return Value(shape, dtype_, (*(strides[d] for d in range(len(order))), 1))


def statistics_dtype(d: dtypes.dtype) -> dtypes.dtype:
    """The dtype of sums over a row of weights."""
    return dtypes.float64 if d is dtypes.float64 else dtypes.float32


def _attention_rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    q, _, v = metas[:3]
    dtype_ = same_dtype("attention", metas[:3])
    rows = tuple(q.shape[:-1])
    out = _in_order_of(q, (*rows, v.shape[-1]), dtype_)
    return [out, Value(rows, statistics_dtype(dtype_), contiguous_strides(rows))]


@primitive("attention", _attention_rule)
def attention(c, g, g_lse):
    out, lse = c.output(0), c.output(1)
    if local.trace.grad_enabled:  # create_graph: a second gradient leads past the user's value and its hooks (in PyTorch to the softmax)
        out, lse = attention(*[c.input(i) for i in range(c.count)], **c.attrs)
    if g is None:
        g = out.detach() * 0
    delta = (g.to(lse.dtype) * out.to(lse.dtype)).sum(-1)
    if g_lse is not None:
        delta = delta - g_lse
    rest = [c.input(i) for i in range(3, c.count)]
    dq, dk, dv = attention_gradient(g, c.input(0), c.input(1), c.input(2), lse, delta, *rest, **c.attrs)
    return (dq, dk, dv, *[None] * len(rest))


def _gradient_rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    return [_in_order_of(m, tuple(m.shape), m.dtype) for m in metas[1:4]]


def _weights(c: Any, q: Any, k: Any, lse: Any) -> tuple[Any, Any]:
    """exp(score - lse) of the inputs of an `attention_gradient`, and what dropout multiplies it by."""
    import flambeau as torch

    scores = matmul(q, k.transpose(-2, -1)) * c.attrs["scale"]
    if c.attrs["masked"]:
        mask = c.input(6)
        scores = torch.where(mask, scores, -math.inf) if mask.dtype is dtypes.bool_ else scores + mask
    if c.attrs["causal"]:
        length, source = scores.shape[-2:]
        scores = torch.where(torch.arange(length).unsqueeze(1) >= torch.arange(source), scores, -math.inf)
    weights = exp_weight(scores - lse.unsqueeze(-1))
    p = c.attrs["dropout"]
    if p == 0.0:
        return weights, 1.0
    return weights, torch.where(c.input(c.count - 1), constant(1.0 / (1.0 - p) if p < 1.0 else 0.0, weights.dtype), constant(0.0, weights.dtype))


@primitive("attention_gradient", _gradient_rule)
def attention_gradient(c, to_q, to_k, to_v):
    """`to_q`, `to_k`, `to_v`: gradients of the gradients of q, k and v."""
    wide = c.dtype(4)
    g, q, k, v = (c.input(i).to(wide) for i in range(4))
    lse, delta, scale = c.input(4), c.input(5), c.attrs["scale"]
    to_q, to_k, to_v = (x.detach() * 0 if y is None else y.to(wide) for x, y in zip((q, k, v), (to_q, to_k, to_v), strict=True))
    weights, kept = _weights(c, q, k, lse)
    difference = matmul(g, v.transpose(-2, -1)) * kept - delta.unsqueeze(-1)
    slope = weights * difference
    # of the slopes: dq = scale slope k, dk = scale slope^T q
    of_slope = (matmul(to_q, k.transpose(-2, -1)) + matmul(q, to_k.transpose(-2, -1))) * scale
    of_product = of_slope * weights * kept
    # of the scores, through weights = exp(score - lse); dv = (weights kept)^T g
    of_score = weights * (matmul(g, to_v.transpose(-2, -1)) * kept + of_slope * difference)
    to_rows = of_slope * weights
    results = (
        matmul(of_product, v) + matmul(weights * kept, to_v),
        (matmul(of_score, k) + matmul(slope, to_k)) * scale,
        (matmul(of_score.transpose(-2, -1), q) + matmul(slope.transpose(-2, -1), to_q)) * scale,
        matmul(of_product.transpose(-2, -1), g),
        -of_score.sum(-1),
        -to_rows.sum(-1),
    )
    return (*results, *[None] * (c.count - 6))
