"""Operators of torch.ops.aten that are gradients of others: what graphs of training steps call, each as a composition."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import flambeau as torch


def _by_autograd(function: Callable[..., Any], inputs: Sequence[Any], wanted: Sequence[bool], gradient: Any) -> tuple[Any, ...]:
    """The gradients of a function at its inputs, None where they are not wanted."""
    with torch.enable_grad():
        leaves = [x.detach().requires_grad_(bool(w)) for x, w in zip(inputs, wanted, strict=True)]
        found = iter(torch.autograd.grad(function(*leaves), [x for x, w in zip(leaves, wanted, strict=True) if w], gradient) if any(wanted) else ())
    return tuple([next(found) if w else None for w in wanted])


def _adaptive_avg_pool2d_backward(grad_output: Any, self: Any) -> Any:
    """The gradient of adaptive_avg_pool2d to the size of `grad_output`."""
    size = tuple(grad_output.shape[-2:])
    return _by_autograd(lambda x: torch.nn.functional.adaptive_avg_pool2d(x, size), (self,), (True,), grad_output)[0]


def avg_pool2d_backward(
    grad_output: Any, self: Any, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, count_include_pad: bool, divisor_override: int | None
) -> Any:
    """The gradient of avg_pool2d."""

    def pool(x: Any) -> Any:
        return torch.nn.functional.avg_pool2d(x, kernel_size, stride or None, padding, ceil_mode, count_include_pad, divisor_override)

    return _by_autograd(pool, (self,), (True,), grad_output)[0]


def max_pool2d_with_indices_backward(
    grad_output: Any, self: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, indices: Any
) -> Any:
    """The gradient of max_pool2d, whose maxima are at `indices` of each plane."""
    planes = torch.zeros_like(self).flatten(-2)
    return planes.scatter_add(-1, indices.flatten(-2), grad_output.flatten(-2)).view(self.shape)


def convolution_backward(
    grad_output: Any, input: Any, weight: Any, bias_sizes: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any,
    groups: int, output_mask: Sequence[bool],
) -> tuple[Any, Any, Any]:  # fmt: skip
    """The gradients of a convolution's input, weight and bias, None where `output_mask` is False."""

    def convolved(x: Any, w: Any) -> Any:
        return torch.convolution(x, w, None, stride, padding, dilation, transposed, output_padding, groups)

    of_input, of_weight = _by_autograd(convolved, (input, weight), output_mask[:2], grad_output)
    return of_input, of_weight, grad_output.sum([0, *range(2, grad_output.ndim)]) if output_mask[2] else None


def embedding_dense_backward(grad_output: Any, indices: Any, num_weights: int, padding_idx: int, scale_grad_by_freq: bool) -> Any:
    """The gradient of an embedding's table: the gradients of each row's uses, added; zero for `padding_idx`."""
    flat = indices.flatten().long()
    rows = grad_output.reshape(-1, grad_output.shape[-1])
    if scale_grad_by_freq:
        counts = torch.zeros(num_weights, dtype=torch.int64).index_add(0, flat, torch.ones_like(flat))
        rows = rows / counts[flat].unsqueeze(1)
    rows = torch.where((flat == padding_idx).unsqueeze(1), 0.0, rows)
    return torch.zeros(num_weights, rows.shape[-1], dtype=grad_output.dtype).index_add(0, flat, rows)


def native_layer_norm_backward(
    grad_out: Any, input: Any, normalized_shape: Sequence[int], mean: Any, rstd: Any, weight: Any, bias: Any, output_mask: Sequence[bool]
) -> tuple[Any, Any, Any]:
    """The gradients of layer_norm's input, weight and bias, by its means and 1 / its standard deviations."""
    outer = list(range(input.ndim - len(normalized_shape)))
    inner = list(range(len(outer), input.ndim))
    normal = (input - mean) * rstd
    of_input = _normalised_backward(grad_out if weight is None else grad_out * weight, normal, rstd, inner) if output_mask[0] else None
    of_weight = (grad_out * normal).sum(outer) if output_mask[1] and outer else grad_out * normal if output_mask[1] else None
    of_bias = grad_out.sum(outer) if output_mask[2] and outer else grad_out.clone() if output_mask[2] else None
    return of_input, of_weight, of_bias


def native_group_norm_backward(
    grad_out: Any, input: Any, mean: Any, rstd: Any, weight: Any, N: int, C: int, HxW: int, group: int, output_mask: Sequence[bool]
) -> tuple[Any, Any, Any]:
    """The gradients of group_norm's input, weight and bias, by its means and 1 / its standard deviations, of shape (N, group)."""

    def grouped(t: Any) -> Any:
        return t.reshape(N, group, C // group, HxW)

    scale = rstd.reshape(N, group, 1, 1)
    gradient, normal = grouped(grad_out), (grouped(input) - mean.reshape(N, group, 1, 1)) * scale
    weighted = gradient if weight is None else gradient * weight.reshape(1, group, C // group, 1)
    of_input = _normalised_backward(weighted, normal, scale, [2, 3]).reshape(input.shape) if output_mask[0] else None
    of_weight = (gradient * normal).sum([0, 3]).reshape(C) if output_mask[1] else None
    return of_input, of_weight, gradient.sum([0, 3]).reshape(C) if output_mask[2] else None


def _normalised_backward(gradient: Any, normal: Any, scale: Any, dims: list[int]) -> Any:
    """Of (x - mean) / deviation over these dims (Ba, Kiros and Hinton 2016): the part of the gradient along the mean and the deviation is taken off."""
    return scale * (gradient - gradient.mean(dims, keepdim=True) - normal * (gradient * normal).mean(dims, keepdim=True))


# -- Fourier transforms, whose scale is a number here -----------------------------------------------------------------
def _scaled(result: Any, count: int, normalization: int) -> Any:
    return result if normalization == 0 else result / (math.sqrt(count) if normalization == 1 else count)


def _fft_r2c(self: Any, dim: Sequence[int], normalization: int, onesided: bool) -> Any:
    """The transform of real numbers along dims, the last of them halved if `onesided`. `normalization`: 0 none, 1 by the root of the size, 2 by it."""
    transform = torch.fft.rfftn if onesided else torch.fft.fftn
    return _scaled(transform(self, dim=tuple(dim)), math.prod([self.shape[d] for d in dim]), normalization)


def _fft_c2r(self: Any, dim: Sequence[int], normalization: int, last_dim_size: int) -> Any:
    """The inverse transform along dims to real numbers, of which there are `last_dim_size` along the last of them."""
    sizes = [*[self.shape[d] for d in dim[:-1]], last_dim_size]
    return _scaled(torch.fft.irfftn(self, s=tuple(sizes), dim=tuple(dim), norm="forward"), math.prod(sizes), normalization)


def _fft_c2c(self: Any, dim: Sequence[int], normalization: int, forward: bool) -> Any:
    """The transform of complex numbers along dims, or its inverse."""
    count = math.prod([self.shape[d] for d in dim])
    made = torch.fft.fftn(self, dim=tuple(dim)) if forward else torch.fft.ifftn(self, dim=tuple(dim), norm="forward")
    return _scaled(made, count, normalization)
