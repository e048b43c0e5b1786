"""torch.ao: quantization, which is not there yet."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "quantization":
        import importlib

        return importlib.import_module("flambeau.ao.quantization")
    raise AttributeError(f"module 'torch.ao' has no attribute {name!r} in flambeau: quantization is not there yet")
