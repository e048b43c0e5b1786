"""torch.utils."""

from typing import Any


def __getattr__(name: str) -> Any:
    if name in ("checkpoint", "data"):
        from importlib import import_module

        return import_module(f"flambeau.utils.{name}")
    raise AttributeError(f"module 'flambeau.utils' has no attribute {name!r}")
