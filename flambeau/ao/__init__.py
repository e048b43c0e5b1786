"""torch.ao: quantization and pruning."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name in ("nn", "pruning", "quantization"):
        import importlib

        return importlib.import_module(f"flambeau.ao.{name}")
    raise AttributeError(f"module 'torch.ao' has no attribute {name!r} in flambeau")
