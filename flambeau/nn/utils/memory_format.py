"""torch.nn.utils.memory_format: the weights of convolutions in another order in memory."""

from __future__ import annotations

from typing import Any

from flambeau.nn.modules.conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d


def _convert(module: Any, kinds: tuple[type, ...], memory_format: Any) -> Any:
    if isinstance(module, kinds):
        module.weight.data = module.weight.detach().clone().contiguous(memory_format=memory_format)
    for child in module.children():
        _convert(child, kinds, memory_format)
    return module


def convert_conv2d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """Convert the weights of all Conv2d and ConvTranspose2d in place; returns the module."""
    return _convert(module, (Conv2d, ConvTranspose2d), memory_format)


def convert_conv3d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """Convert the weights of all Conv3d and ConvTranspose3d in place; returns the module."""
    return _convert(module, (Conv3d, ConvTranspose3d), memory_format)
