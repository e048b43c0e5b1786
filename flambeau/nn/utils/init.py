"""torch.nn.utils.init: modules without initial values."""

from __future__ import annotations

import inspect
from typing import Any

import flambeau as torch


def skip_init(module_cls: Any, *args: Any, **kwargs: Any) -> Any:
    """A module whose parameters are undefined, and for which no random number has been drawn."""
    if not issubclass(module_cls, torch.nn.Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    generator = torch.default_generator
    state = generator.state.clone()
    try:
        module = module_cls(*args, **kwargs)
    finally:
        generator.state = state
    return module.to_empty(device=kwargs.get("device", "cpu"))
