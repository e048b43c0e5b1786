"""torch.nn.grad: gradients of convolutions with respect to their input and to their weight, as functions of the other tensors.

Shapes are those of nn.functional.conv1d, conv2d and conv3d. The results have gradients themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flambeau as torch
from flambeau.nn import functional as F
from flambeau.tensor import Tensor


def _gradient(wanted: Tensor, result: Callable[[Tensor], Tensor], grad_output: Tensor, given: Tensor) -> Tensor:
    """d result / d wanted for a `result` that is linear in `wanted`: its values do not matter."""
    create = torch.is_grad_enabled() and (given.requires_grad or grad_output.requires_grad)
    with torch.enable_grad():
        x = wanted.requires_grad_()
        (gradient,) = torch.autograd.grad(result(x), x, grad_output, create_graph=create)
    return gradient  # type: ignore[no-any-return]


def _input(
    convolution: Callable[..., Tensor], size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: Any, padding: Any, dilation: Any, groups: int
) -> Tensor:
    zeros = torch.zeros(tuple(size), dtype=grad_output.dtype)
    return _gradient(zeros, lambda x: convolution(x, weight, None, stride, padding, dilation, groups), grad_output, weight)


def _weight(
    convolution: Callable[..., Tensor], input: Tensor, size: Sequence[int], grad_output: Tensor, stride: Any, padding: Any, dilation: Any, groups: int
) -> Tensor:
    zeros = torch.zeros(tuple(size), dtype=grad_output.dtype)
    return _gradient(zeros, lambda w: convolution(input, w, None, stride, padding, dilation, groups), grad_output, input)


def conv1d_input(
    input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """The gradient of conv1d with respect to its input, of shape `input_size`."""
    return _input(F.conv1d, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv1d_weight(
    input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """The gradient of conv1d with respect to its weight, of shape `weight_size`."""
    return _weight(F.conv1d, input, weight_size, grad_output, stride, padding, dilation, groups)


def conv2d_input(
    input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """The gradient of conv2d with respect to its input, of shape `input_size`."""
    return _input(F.conv2d, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv2d_weight(
    input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """The gradient of conv2d with respect to its weight, of shape `weight_size`."""
    return _weight(F.conv2d, input, weight_size, grad_output, stride, padding, dilation, groups)


def conv3d_input(
    input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """The gradient of conv3d with respect to its input, of shape `input_size`."""
    return _input(F.conv3d, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv3d_weight(
    input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """The gradient of conv3d with respect to its weight, of shape `weight_size`."""
    return _weight(F.conv3d, input, weight_size, grad_output, stride, padding, dilation, groups)
