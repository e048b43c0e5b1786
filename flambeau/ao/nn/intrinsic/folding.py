"""Normalisation folded into the weights of the layer before it, and fused modules taken apart for that."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import flambeau as torch
from flambeau.nn.parameter import Parameter


def folded_weights(weight: Any, bias: Any, mean: Any, var: Any, eps: float, gamma: Any, beta: Any, transpose: bool = False) -> tuple[Any, Any]:
    """(weight, bias) of a layer that does what a layer and the normalisation behind it do (by running statistics)."""
    bias = torch.zeros_like(mean) if bias is None else bias
    slope = torch.rsqrt(var + eps) * (1.0 if gamma is None else gamma)
    shape = [1] * weight.ndim
    shape[1 if transpose else 0] = -1
    return weight * slope.reshape(shape), (bias - mean) * slope + (0.0 if beta is None else beta)


def folded_into(layer: Any, norm: Any, transpose: bool = False) -> Any:
    """A copy of a layer with the normalisation folded into it; AssertionError in training."""
    import copy

    if layer.training or norm.training:
        raise AssertionError("Fusion only for eval!")
    made = copy.deepcopy(layer)
    weight, bias = folded_weights(layer.weight, layer.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias, transpose)
    made.weight = Parameter(weight.detach(), layer.weight.requires_grad)
    made.bias = Parameter(bias.detach(), layer.weight.requires_grad)
    return made


def folded_linear(mod: Any) -> Any:
    """The layer (its weight, bias and sizes) of a module: itself, the first of a fused pair, or with the normalisation that it has (`bn`) folded into it."""
    if hasattr(mod, "bn"):
        bn = mod.bn
        weight, bias = folded_weights(mod.weight, mod.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
        sizes = {name: getattr(mod, name) for name in ("in_features", "out_features") if hasattr(mod, name)}
        return SimpleNamespace(weight=weight.detach(), bias=bias.detach(), **sizes)
    return mod if hasattr(mod, "weight") else mod[0]


folded_conv = folded_linear
