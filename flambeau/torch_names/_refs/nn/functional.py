"""torch._refs.nn.functional: the functions of torch.nn.functional, see torch._refs."""

from __future__ import annotations

from typing import Any

from flambeau.nn import functional as _public


def __getattr__(name: str) -> Any:
    found = None if name.startswith("__") else getattr(_public, name, None)
    if not callable(found):
        raise AttributeError(f"module 'torch._refs.nn.functional' has no attribute '{name}': there is no public function of this name")
    return found
