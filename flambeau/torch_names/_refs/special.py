"""torch._refs.special: the functions of torch.special, see torch._refs."""

from __future__ import annotations

from typing import Any

from flambeau import special as _public


def __getattr__(name: str) -> Any:
    found = None if name.startswith("__") else getattr(_public, name, None)
    if not callable(found):
        raise AttributeError(f"module 'torch._refs.special' has no attribute '{name}': there is no public function of this name")
    return found
