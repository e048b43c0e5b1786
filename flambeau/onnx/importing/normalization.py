"""Normalisation: of batches, instances, layers, groups, and local response."""

from __future__ import annotations

import math
from typing import Any

import flambeau
from flambeau.nn import functional
from flambeau.onnx.importing.registry import Call, operator


@operator("BatchNormalization")
def batch_normalization(n: Call, x: Any, scale: Any, bias: Any, mean: Any, var: Any) -> Any:
    """With the running statistics, or in training with the batch's, which move the running ones."""
    eps, momentum = n.get("epsilon", 1e-5), n.get("momentum", 0.9)
    if n.version < 9 and not n.get("spatial", 1):
        raise n.refuse("statistics of each element (spatial=0) are not there")
    if not n.get("training_mode", 0):
        made = functional.batch_norm(x, mean, var, scale, bias, False, 0.0, eps)
        return made if len(n.outputs) == 1 else (made, mean, var, mean, var)
    dims = [d for d in range(x.ndim) if d != 1]
    now, spread = x.mean(dims), x.var(dims, unbiased=False)
    view = (1, -1, *[1] * (x.ndim - 2))
    made = (x - now.reshape(view)) / (spread.reshape(view) + eps).sqrt() * scale.reshape(view) + bias.reshape(view)
    return made, mean * momentum + now * (1 - momentum), var * momentum + spread * (1 - momentum)


@operator("InstanceNormalization")
def instance_normalization(n: Call, x: Any, scale: Any, bias: Any) -> Any:
    """Each channel of each sample."""
    return functional.instance_norm(x, None, None, scale, bias, True, 0.0, n.get("epsilon", 1e-5))


@operator("LayerNormalization")
def layer_normalization(n: Call, x: Any, scale: Any, bias: Any = None) -> Any:
    """All dims from `axis` on; also the means and the reciprocal deviations."""
    axis, eps = n.get("axis", -1) % x.ndim, n.get("epsilon", 1e-5)
    shape = x.shape[axis:]
    if len(n.outputs) == 1 and x.dtype is flambeau.float32 and tuple(scale.shape) == tuple(shape) and (bias is None or bias.shape == scale.shape):
        return functional.layer_norm(x, shape, scale, bias, eps)
    wide = x.to(flambeau.float32) if n.get("stash_type", 1) == 1 else x
    dims = tuple(range(axis, x.ndim))
    mean = wide.mean(dims, keepdim=True)
    around = wide - mean
    inverse = ((around * around).mean(dims, keepdim=True) + eps).rsqrt()
    made = (around * inverse).to(x.dtype) * scale
    return (made if bias is None else made + bias), mean, inverse


@operator("RMSNormalization", "SimplifiedLayerNormalization")
def rms_normalization(n: Call, x: Any, scale: Any) -> Any:
    """x divided by its root mean square over all dims from `axis` on."""
    axis, eps = n.get("axis", -1) % x.ndim, n.get("epsilon", 1e-5)
    wide = x.to(flambeau.float32) if n.get("stash_type", 1) == 1 else x
    inverse = ((wide * wide).mean(tuple(range(axis, x.ndim)), keepdim=True) + eps).rsqrt()
    return (wide * inverse).to(x.dtype) * scale


@operator("GroupNormalization")
def group_normalization(n: Call, x: Any, scale: Any, bias: Any) -> Any:
    """Groups of channels; scale and bias of groups in opset 18, of channels from 21."""
    groups = n.get("num_groups")
    if n.version < 21:
        each = x.shape[1] // groups
        scale, bias = scale.repeat_interleave(each), bias.repeat_interleave(each)
    return functional.group_norm(x, groups, scale, bias, n.get("epsilon", 1e-5))


@operator("MeanVarianceNormalization")
def mean_variance_normalization(n: Call, x: Any) -> Any:
    """(x - mean) / deviation over axes."""
    axes = tuple(n.get("axes", [0, 2, 3]))
    mean = x.mean(axes, keepdim=True)
    deviation = ((x * x).mean(axes, keepdim=True) - mean * mean).sqrt()
    return (x - mean) / (deviation + 1e-9)


@operator("LRN")
def lrn(n: Call, x: Any) -> Any:
    """Each element divided by what is around it in other channels."""
    size, alpha, beta, bias = n.get("size"), n.get("alpha", 1e-4), n.get("beta", 0.75), n.get("bias", 1.0)
    before, after = math.floor((size - 1) / 2), math.ceil((size - 1) / 2)
    squares = functional.pad((x * x), [0, 0] * (x.ndim - 2) + [before, after])
    total: Any = 0
    for i in range(size):
        total = total + squares.narrow(1, i, x.shape[1])
    return x / (bias + alpha / size * total) ** beta
