"""torch._C._nn: the functions that PyTorch's nn.functional calls, here that module's own, and how arguments of `to` are read."""

from __future__ import annotations

from typing import Any


def _parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """(device, dtype, non_blocking, memory_format) of the argument forms of `Tensor.to`."""
    from flambeau.devices import Device
    from flambeau.nn.modules.module import _parse_to as parse

    device, dtype, non_blocking, memory_format = parse(args, kwargs)
    return (None if device is None else Device(device)), dtype, non_blocking, memory_format


def __getattr__(name: str) -> Any:
    from flambeau.nn import functional

    return getattr(functional, name)
