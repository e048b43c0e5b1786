"""A mask of a weight's rows, as a parametrisation; and the layer's bias, which is added behind the layer while there is a mask."""

from __future__ import annotations

from typing import Any

from flambeau.ao.pruning.sparsifier.utils import module_contains_param as module_contains_param
from flambeau.nn.modules.linear import Linear
from flambeau.nn.modules.module import Module
from flambeau.nn.utils.parametrize import type_before_parametrizations
from flambeau.tensor import Tensor


class FakeStructuredSparsity(Module):
    """The parametrisation that multiplies each row of a tensor by its element of a mask. The mask is not saved with the module."""

    mask: Tensor

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        if not isinstance(self.mask, Tensor):
            raise AssertionError("mask must be a torch.Tensor")
        if self.mask.shape[0] != x.shape[0]:
            raise AssertionError(f"FakeStructuredSparsity: mask shape[0] ({self.mask.shape[0]}) must match x shape[0] ({x.shape[0]})")
        return self.mask.reshape(-1, *[1] * (x.dim() - 1)) * x

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Nothing: the sparsifier saves the mask."""
        return {}


class BiasHook:
    """A forward hook that adds `module._bias`, without the elements of rows that are masked out if `prune_bias`."""

    def __init__(self, parametrization: FakeStructuredSparsity, prune_bias: bool) -> None:
        self.param = parametrization
        self.prune_bias = prune_bias

    def __call__(self, module: Any, input: Any, output: Any) -> Any:
        bias = getattr(module, "_bias", None)
        if bias is None:
            return output
        if self.prune_bias:
            bias = bias * self.param.mask
        behind = 0 if issubclass(type_before_parametrizations(module), Linear) else module.weight.dim() - 2
        return output + bias.reshape(-1, *[1] * behind)
