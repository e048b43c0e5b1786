"""torch.nn.utils.fusion: batch normalisation in evaluation folded into the layer before it."""

from __future__ import annotations

import copy
from typing import Any

import flambeau as torch
from flambeau.nn.parameter import Parameter
from flambeau.tensor import Tensor


def _check(layer: Any, bn: Any) -> None:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("bn.running_mean and bn.running_var must not be None")


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A copy of a convolution (`transpose`: a transposed one) that computes what it and the batch normalisation after it compute."""
    _check(conv, bn)
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, transpose)
    return fused


def fuse_conv_bn_weights(
    conv_w: Tensor, conv_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float, bn_w: Tensor | None, bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:  # fmt: skip
    """Weight and bias of the convolution with the normalisation folded in."""
    bias = torch.zeros_like(bn_rm) if conv_b is None else conv_b
    scale = torch.rsqrt(bn_rv + bn_eps)
    gain = torch.ones_like(bn_rm) if bn_w is None else bn_w
    shift = torch.zeros_like(bn_rm) if bn_b is None else bn_b
    shape = ([1, -1] if transpose else [-1, 1]) + [1] * (conv_w.ndim - 2)
    weight = (conv_w * (gain * scale).reshape(shape)).to(conv_w.dtype)
    offset = ((bias - bn_rm) * scale * gain + shift).to(conv_w.dtype if conv_b is None else conv_b.dtype)
    return Parameter(weight, conv_w.requires_grad), Parameter(offset, bias.requires_grad)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A copy of a dense layer that computes what it and the batch normalisation after it compute."""
    _check(linear, bn)
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1, got "
            f"linear.out_features={linear.out_features} and bn.num_features={bn.num_features}"
        )
    fused = copy.deepcopy(linear)
    fused.weight, fused.bias = fuse_linear_bn_weights(fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
    return fused


def fuse_linear_bn_weights(
    linear_w: Tensor, linear_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float, bn_w: Tensor, bn_b: Tensor
) -> tuple[Parameter, Parameter]:  # fmt: skip
    """Weight and bias of the dense layer with the normalisation folded in."""
    bias = torch.zeros_like(bn_rm) if linear_b is None else linear_b
    scale = bn_w * torch.rsqrt(bn_rv + bn_eps)
    weight = linear_w * scale.unsqueeze(-1).to(linear_w.dtype)
    offset = ((bias - bn_rm) * scale + bn_b).to(linear_w.dtype if linear_b is None else linear_b.dtype)
    return Parameter(weight, linear_w.requires_grad), Parameter(offset, bias.requires_grad)
