"""Fake quantization: floats rounded to the numbers that an affine integer code has; gradients pass where nothing is clamped.

q = round(x / scale) + zero_point, clamped to [quant_min, quant_max]; the result is (q - zero_point) * scale (Jacob et al., 2018).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import flambeau as torch


@cache
def _function() -> Any:
    class FakeQuantize(torch.autograd.Function):
        """The straight-through estimator of Bengio et al. (2013), as PyTorch has it."""

        @staticmethod
        def forward(ctx: Any, x: Any, scale: Any, zero_point: Any, low: int, high: int) -> Any:
            q = (x * scale.reciprocal()).round() + zero_point
            ctx.save_for_backward((q >= low) & (q <= high))
            return ((q.clamp(low, high) - zero_point) * scale).to(x.dtype)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            (inside,) = ctx.saved_tensors
            return gradient * inside, None, None, None, None

    return FakeQuantize


def _check(name: str, low: int, high: int) -> None:
    if low > high:
        raise RuntimeError(f"{name}: `quant_min` should be less than or equal to `quant_max`, but they are {low} and {high}.")


def fake_quantize_per_tensor_affine(input: Any, scale: Any, zero_point: Any, quant_min: int, quant_max: int) -> Any:
    """A tensor of input's shape and dtype with one scale and one zero point (numbers, or tensors of one element)."""
    _check("fake_quantize_per_tensor_affine", quant_min, quant_max)
    scale, zero_point = torch.as_tensor(scale, dtype=torch.float32).detach(), torch.as_tensor(zero_point).detach()
    return _function().apply(input, scale.reshape(()), zero_point.reshape(()), quant_min, quant_max)


def fake_quantize_per_channel_affine(input: Any, scale: Any, zero_point: Any, axis: int, quant_min: int, quant_max: int) -> Any:
    """As per tensor, with a scale and a zero point for each index of dim `axis`: both of shape (input.shape[axis],)."""
    _check("fake_quantize_per_channel_affine", quant_min, quant_max)
    for what, t in (("scale", scale), ("zero point", zero_point)):
        if tuple(t.shape) != (input.shape[axis],):
            raise RuntimeError(
                f"fake_quantize_per_channel_affine: the {what} must have one element for each index of dim {axis} of the input, of shape "
                f"{tuple(input.shape)}, but its shape is {tuple(t.shape)}"
            )
    shape = [1] * input.dim()
    shape[axis] = -1
    return _function().apply(input, scale.detach().float().view(shape), zero_point.detach().view(shape), quant_min, quant_max)
