"""How weights of float modules are quantized, and the scale of a module's result."""

from __future__ import annotations

from typing import Any

import flambeau as torch


def quantized_weight(mod: Any, weight: Any, channels: int | None = None) -> Any:
    """The weight of qint8, by what the module's QConfig (or its weight_fake_quant) says.

    `channels`: the dim of output channels, where it is not the observer's.
    """
    watcher = getattr(mod, "weight_fake_quant", None)
    if watcher is None:
        watcher = mod.qconfig.weight()
        if channels is not None and hasattr(watcher, "ch_axis"):
            watcher.ch_axis = channels
    weight = weight.detach().float()
    watcher(weight)
    return quantize_by(watcher, weight)


def quantize_by(watcher: Any, weight: Any) -> Any:
    """A float tensor quantized by an observer that has seen it."""
    scale, zero_point = watcher.calculate_qparams()
    if watcher.dtype is not torch.qint8:
        raise AssertionError(f"Weight observer must have dtype torch.qint8, got {watcher.dtype}")
    if watcher.qscheme in (torch.per_tensor_symmetric, torch.per_tensor_affine):
        return torch.quantize_per_tensor(weight, float(scale), int(zero_point), torch.qint8)
    return torch.quantize_per_channel(weight, scale.double(), zero_point.long(), watcher.ch_axis, torch.qint8)


def result_scale(mod: Any) -> tuple[float, int]:
    """(scale, zero point) of a module's result as numbers: its buffers are looked at once."""
    if mod._known is None:
        mod._known = float(mod.scale), int(mod.zero_point)
    return mod._known  # type: ignore[no-any-return]
