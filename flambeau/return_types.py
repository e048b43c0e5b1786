"""torch.return_types: the named tuples that functions return."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    from flambeau.ops.results import TYPES

    if name not in TYPES:
        raise AttributeError(f"module 'torch.return_types' has no attribute {name!r}, or no function has returned one yet")
    return TYPES[name]
