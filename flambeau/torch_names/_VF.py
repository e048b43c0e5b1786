"""torch._VF: functions of the torch namespace, by the name of the module from which PyTorch's own layers call them."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import flambeau as torch


def __getattr__(name: str) -> Any:
    found = None if name.startswith("__") else getattr(torch, name, None)
    if not isinstance(found, FunctionType):
        raise AttributeError(f"module 'torch._VF' has no attribute {name!r}", name=name)
    return found
