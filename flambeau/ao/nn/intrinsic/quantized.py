"""torch.ao.nn.intrinsic.quantized: quantized layers with a relu at their end."""

from __future__ import annotations

from typing import Any

from flambeau.ao.nn import quantized as plain
from flambeau.ao.nn.quantized import dynamic as plain_dynamic


def _class(name: str, base: Any) -> Any:
    text = f"{base.__name__} and relu in one, of quantized tensors."
    return type(name, (base,), {"_relu": True, "__doc__": text, "__module__": __name__, "_get_name": lambda self: f"Quantized{name}"})


ConvReLU1d, ConvReLU2d, ConvReLU3d = (_class(f"ConvReLU{d}d", getattr(plain, f"Conv{d}d")) for d in (1, 2, 3))
BNReLU2d, BNReLU3d = (_class(f"BNReLU{d}d", getattr(plain, f"BatchNorm{d}d")) for d in (2, 3))
LinearReLU = _class("LinearReLU", plain.Linear)
DynamicLinearReLU = _class("LinearReLU", plain_dynamic.Linear)
