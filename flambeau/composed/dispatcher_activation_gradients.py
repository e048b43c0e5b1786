"""Operators of torch.ops.aten that are gradients of activations, losses and selections, each by its formula."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau.compiler.kernel import REFUSED


# -- activations --------------------------------------------------------------------------------------------------------
def tanh_backward(grad_output: Any, output: Any) -> Any:
    """The gradient of tanh, by its result."""
    return grad_output * (1 - output * output).conj()


def sigmoid_backward(grad_output: Any, output: Any) -> Any:
    """The gradient of sigmoid, by its result."""
    return grad_output * ((1 - output) * output).conj()


def threshold_backward(grad_output: Any, self: Any, threshold: float) -> Any:
    """The gradient of relu and threshold: it passes where `self` is above `threshold`, or NaN."""
    return torch.where(self <= threshold, torch.zeros((), dtype=grad_output.dtype), grad_output)


def silu_backward(grad_output: Any, self: Any) -> Any:
    """The gradient of x * sigmoid(x)."""
    s = self.sigmoid()
    return grad_output * s * (1 + self * (1 - s))


def mish_backward(grad_output: Any, self: Any) -> Any:
    """The gradient of x * tanh(softplus(x))."""
    t = torch.nn.functional.softplus(self).tanh()
    return grad_output * (t + self * self.sigmoid() * (1 - t * t))


def gelu_backward(grad_output: Any, self: Any, *, approximate: str = "none") -> Any:
    """The gradient of gelu (Hendrycks and Gimpel 2016), exact or by its approximation with tanh."""
    if approximate not in ("none", "tanh"):
        raise RuntimeError(f"gelu_backward(): approximate must be 'none' or 'tanh', got {approximate!r}")
    if approximate == "none":
        density = (self * self * -0.5).exp() / math.sqrt(2 * math.pi)
        return grad_output * (0.5 * (1 + torch.erf(self * math.sqrt(0.5))) + self * density)
    root, cubic = math.sqrt(2 / math.pi), 0.044715
    t = (root * (self + cubic * self**3)).tanh()
    return grad_output * (0.5 * (1 + t) + 0.5 * self * (1 - t * t) * root * (1 + 3 * cubic * self * self))


def leaky_relu_backward(grad_output: Any, self: Any, negative_slope: float, self_is_result: bool) -> Any:
    """The gradient of leaky_relu, by its argument or by its result, which have one sign."""
    if self_is_result and negative_slope < 0:
        raise RuntimeError(f"leaky_relu_backward(): negative_slope must not be negative where the result is given, got {negative_slope}")
    return torch.where(self > 0, grad_output, grad_output * negative_slope)


def elu_backward(grad_output: Any, alpha: float, scale: float, input_scale: float, is_result: bool, self_or_result: Any) -> Any:
    """The gradient of elu, selu and celu, by the argument or by the result."""
    if is_result and alpha < 0:
        raise RuntimeError(f"elu_backward(): alpha must not be negative where the result is given, got {alpha}")
    x, negative = self_or_result, alpha * scale
    below = input_scale * (x + negative) if is_result else input_scale * negative * (x * input_scale).exp()
    return grad_output * torch.where(x <= 0, below, scale)


def hardtanh_backward(grad_output: Any, self: Any, min_val: float, max_val: float) -> Any:
    """The gradient of hardtanh: it passes between the bounds."""
    return torch.where((self <= min_val) | (self >= max_val), 0.0, grad_output).to(grad_output.dtype)


def hardsigmoid_backward(grad_output: Any, self: Any) -> Any:
    """The gradient of hardsigmoid: a sixth between -3 and 3."""
    return torch.where((self > -3) & (self < 3), grad_output / 6, 0.0).to(grad_output.dtype)


def hardswish_backward(grad_output: Any, self: Any) -> Any:
    """The gradient of x * hardsigmoid(x)."""
    inside = grad_output * (self / 3 + 0.5)
    return torch.where(self <= -3, 0.0, torch.where(self < 3, inside, grad_output)).to(grad_output.dtype)


def softplus_backward(grad_output: Any, self: Any, beta: float, threshold: float) -> Any:
    """The gradient of log(1 + exp(beta x)) / beta, which is x above the threshold."""
    scaled = self * beta
    return torch.where(scaled > threshold, grad_output, grad_output * scaled.sigmoid())


def softshrink_backward(grad_output: Any, self: Any, lambd: float) -> Any:
    """The gradient of softshrink: it passes outside of [-lambd, lambd]."""
    return torch.where((self >= -lambd) & (self <= lambd), 0.0, grad_output).to(grad_output.dtype)


def hardshrink_backward(grad_out: Any, self: Any, lambd: float) -> Any:
    """The gradient of hardshrink: it passes outside of [-lambd, lambd]."""
    return softshrink_backward(grad_out, self, lambd)


def log_sigmoid_forward(self: Any) -> tuple[Any, Any]:
    """(logsigmoid, what PyTorch's gradient keeps: exp(-|x|))."""
    return torch.nn.functional.logsigmoid(self), (-self.abs()).exp()


def log_sigmoid_backward(grad_output: Any, self: Any, buffer: Any) -> Any:
    """The gradient of logsigmoid."""
    return grad_output * (-self).sigmoid()


def logit_backward(grad_output: Any, self: Any, eps: float | None = None) -> Any:
    """The gradient of logit: 0 where `eps` clamps, without it NaN outside of [0, 1]."""
    low, outside = (0.0, math.nan) if eps is None else (eps, 0.0)
    return torch.where((self < low) | (self > 1 - low), outside, grad_output / (self * (1 - self))).to(grad_output.dtype)


def glu_backward(grad_output: Any, self: Any, dim: int) -> Any:
    """The gradient of a * sigmoid(b), the halves of `self` along a dim."""
    a, b = self.chunk(2, dim)
    gate = b.sigmoid()
    return torch.cat([grad_output * gate, grad_output * a * gate * (1 - gate)], dim)


def native_dropout_backward(grad_output: Any, mask: Any, scale: float) -> Any:
    """The gradient of dropout: of what the mask kept, scaled as it was."""
    return grad_output * (mask.to(grad_output.dtype) * scale)


def _prelu_kernel_backward(grad_output: Any, self: Any, weight: Any) -> tuple[Any, Any]:
    """The gradients of prelu's argument and of its weight, each of the argument's shape."""
    return torch.where(self > 0, grad_output, weight * grad_output), torch.where(self > 0, 0.0, self * grad_output).to(grad_output.dtype)


# -- softmax and losses -------------------------------------------------------------------------------------------------
def _log_softmax_backward_data(grad_output: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    """The gradient of log_softmax along a dim, by its result."""
    return (grad_output - output.exp() * grad_output.sum(dim, keepdim=True)).to(input_dtype)


def _spread(grad_output: Any, self: Any, reduction: int) -> Any:
    """The gradient of a loss's elements: of a mean, a part for each of them. `reduction`: 0 none, 1 mean, 2 sum."""
    return grad_output / self.numel() if reduction == 1 else grad_output


def mse_loss_backward(grad_output: Any, self: Any, target: Any, reduction: int) -> Any:
    """The gradient of mse_loss."""
    return _spread(2 * grad_output, self, reduction) * (self - target)


def smooth_l1_loss_backward(grad_output: Any, self: Any, target: Any, reduction: int, beta: float) -> Any:
    """The gradient of smooth_l1_loss: the difference over beta, cut to [-1, 1]."""
    difference = self - target
    slope = difference.sign() if beta == 0 else (difference / beta).clamp(-1, 1)
    return _spread(grad_output, self, reduction) * slope


def huber_loss_backward(grad_output: Any, self: Any, target: Any, reduction: int, delta: float) -> Any:
    """The gradient of huber_loss: the difference, cut to [-delta, delta]."""
    return _spread(grad_output, self, reduction) * (self - target).clamp(-delta, delta)


def binary_cross_entropy_backward(grad_output: Any, self: Any, target: Any, weight: Any = None, reduction: int = 1) -> Any:
    """The gradient of binary_cross_entropy; its divisor is at least 1e-12."""
    made = _spread(grad_output, self, reduction) * (self - target) / (self * (1 - self)).clamp(min=1e-12)
    return made if weight is None else made * weight


def _classes(self: Any, target: Any, weight: Any, ignore_index: int) -> tuple[Any, Any, Any]:
    """Of a loss over classes in the dim before `target`'s: that dim, the targets as indices along it, the weight of each."""
    dim = 1 if self.ndim > 1 else 0
    counted = target != ignore_index
    if not self.shape[dim]:  # only what is ignored has a place
        return dim, torch.where(counted, target + REFUSED, 0).unsqueeze(dim), counted.to(self.dtype)
    index = torch.where(counted, target, 0)
    weights = counted.to(self.dtype) if weight is None else torch.where(counted, weight[index], 0.0).to(self.dtype)
    return dim, index.unsqueeze(dim), weights


def nll_loss_forward(self: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> tuple[Any, Any]:
    """(nll_loss, the sum of the weights of the targets that count)."""
    dim, index, weights = _classes(self, target, weight, ignore_index)
    scores = self if self.shape[dim] else self.sum(dim, keepdim=True)
    losses = -scores.gather(dim, index).squeeze(dim) * weights
    if reduction == 0:
        return losses, weights.new_zeros(())
    total = weights.sum()
    return losses.sum() / total if reduction == 1 else losses.sum(), total


def nll_loss_backward(grad_output: Any, self: Any, target: Any, weight: Any, reduction: int, ignore_index: int, total_weight: Any) -> Any:
    """The gradient of nll_loss, which is at the targets alone."""
    dim, index, weights = _classes(self, target, weight, ignore_index)
    if not self.shape[dim]:
        return torch.zeros_like(self)
    each = grad_output / total_weight if reduction == 1 else grad_output
    return torch.zeros_like(self).scatter(dim, index, -(each * weights).unsqueeze(dim))


nll_loss2d_forward, nll_loss2d_backward = nll_loss_forward, nll_loss_backward


def native_batch_norm_backward(
    grad_out: Any, input: Any, weight: Any, running_mean: Any, running_var: Any, save_mean: Any, save_invstd: Any, train: bool, eps: float,
    output_mask: Sequence[bool],
) -> tuple[Any, Any, Any]:  # fmt: skip
    """The gradients of batch_norm's input, weight and bias, by the batch's statistics (`train`) or by the running ones."""
    dims, shape = [0, *range(2, input.ndim)], (1, -1, *[1] * (input.ndim - 2))
    mean, scale = (save_mean, save_invstd) if train else (running_mean, (running_var + eps).rsqrt())
    scale = scale.reshape(shape)
    normal = (input - mean.reshape(shape)) * scale
    of_bias, of_weight = grad_out.sum(dims), (grad_out * normal).sum(dims)
    of_input = None
    if output_mask[0]:
        count = input.numel() // input.shape[1]
        inner = grad_out - (of_bias.reshape(shape) + normal * of_weight.reshape(shape)) / count if train else grad_out
        of_input = inner * scale if weight is None else inner * scale * weight.reshape(shape)
    return of_input, of_weight if output_mask[1] else None, of_bias if output_mask[2] else None


# -- selections ---------------------------------------------------------------------------------------------------------
def select_backward(grad_output: Any, input_sizes: Sequence[int], dim: int, index: int) -> Any:
    """Zeros with the gradient at one place of a dim."""
    return torch.select_scatter(grad_output.new_zeros(tuple(input_sizes)), grad_output, dim, index)


def slice_backward(grad_output: Any, input_sizes: Sequence[int], dim: int, start: int, end: int, step: int) -> Any:
    """Zeros with the gradient at a slice of a dim."""
    return torch.slice_scatter(grad_output.new_zeros(tuple(input_sizes)), grad_output, dim, start, end, step)


def diagonal_backward(grad_output: Any, input_sizes: Sequence[int], offset: int, dim1: int, dim2: int) -> Any:
    """Zeros with the gradient on a diagonal."""
    return torch.diagonal_scatter(grad_output.new_zeros(tuple(input_sizes)), grad_output, offset, dim1, dim2)


def trace_backward(grad: Any, sizes: Sequence[int]) -> Any:
    """Zeros with the gradient on the diagonal of a matrix."""
    return diagonal_backward(grad.expand(min(sizes)), sizes, 0, 0, 1)


def index_select_backward(grad: Any, self_sizes: Sequence[int], dim: int, index: Any) -> Any:
    """Zeros to which the gradient is added at indices along a dim."""
    return grad.new_zeros(tuple(self_sizes)).index_add(dim, index, grad)


def gather_backward(grad: Any, self: Any, dim: int, index: Any, sparse_grad: bool) -> Any:
    """Zeros to which the gradient is added where it was gathered."""
    return grad.new_zeros(self.shape).scatter_add(dim, index, grad)


def masked_select_backward(grad: Any, input: Any, mask: Any) -> Any:
    """Zeros with the gradient's elements, in order, where the mask is True."""
    mask, like = torch.broadcast_tensors(mask, input)
    return torch.zeros_like(like, dtype=grad.dtype, memory_format=torch.contiguous_format).masked_scatter(mask, grad)


def value_selecting_reduction_backward(grad: Any, dim: int, indices: Any, sizes: Sequence[int], keepdim: bool) -> Any:
    """The gradient of a reduction along a dim that takes one of the values: zeros with it at that value."""
    if not keepdim and len(sizes):
        grad, indices = grad.unsqueeze(dim), indices.unsqueeze(dim)
    return grad.new_zeros(tuple(sizes)).scatter(dim, indices, grad)


def unfold_backward(grad_in: Any, input_sizes: Sequence[int], dim: int, size: int, step: int) -> Any:
    """The gradient of Tensor.unfold: the windows' gradients, added where they overlap."""
    length = input_sizes[dim]
    places = torch.arange(length).unfold(0, size, step).flatten()
    rows = grad_in.movedim(-1, dim % len(input_sizes) + 1).flatten(dim % len(input_sizes), dim % len(input_sizes) + 1)
    return grad_in.new_zeros(tuple(input_sizes)).index_add(dim, places, rows)
