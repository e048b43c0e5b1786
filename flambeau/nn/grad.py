"""torch.nn.grad: gradients of convolutions with respect to their input and to their weight, as functions of the other tensors.

Shapes are those of nn.functional.conv1d, conv2d and conv3d. The results have gradients themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flambeau as torch
from flambeau.nn import functional as F
from flambeau.tensor import Tensor


def _gradient(size: Sequence[int], given: Tensor, grad_output: Tensor, result: Callable[[Tensor], Tensor]) -> Tensor:
    """The gradient of a `result` with respect to a tensor of this size, in which it is linear: the values do not matter."""
    create = torch.is_grad_enabled() and (given.requires_grad or grad_output.requires_grad)
    with torch.enable_grad():
        x = torch.empty(tuple(size), dtype=grad_output.dtype, requires_grad=True)
        (gradient,) = torch.autograd.grad(result(x), x, grad_output, create_graph=create)
    return gradient  # type: ignore[no-any-return]


def conv1d_input(
    input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """The gradient of conv1d with respect to its input, of shape `input_size`."""
    return _gradient(input_size, weight, grad_output, lambda x: F.conv1d(x, weight, None, stride, padding, dilation, groups))


def conv1d_weight(
    input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """The gradient of conv1d with respect to its weight, of shape `weight_size`."""
    return _gradient(weight_size, input, grad_output, lambda w: F.conv1d(input, w, None, stride, padding, dilation, groups))


def conv2d_input(
    input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """The gradient of conv2d with respect to its input, of shape `input_size`."""
    return _gradient(input_size, weight, grad_output, lambda x: F.conv2d(x, weight, None, stride, padding, dilation, groups))


def conv2d_weight(
    input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """The gradient of conv2d with respect to its weight, of shape `weight_size`."""
    return _gradient(weight_size, input, grad_output, lambda w: F.conv2d(input, w, None, stride, padding, dilation, groups))


def conv3d_input(
    input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """The gradient of conv3d with respect to its input, of shape `input_size`."""
    return _gradient(input_size, weight, grad_output, lambda x: F.conv3d(x, weight, None, stride, padding, dilation, groups))


def conv3d_weight(
    input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """The gradient of conv3d with respect to its weight, of shape `weight_size`."""
    return _gradient(weight_size, input, grad_output, lambda w: F.conv3d(input, w, None, stride, padding, dilation, groups))
