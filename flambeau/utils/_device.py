"""torch.utils._device: the device of new tensors as a mode, by PyTorch's inner names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flambeau
from flambeau.ops import placing
from flambeau.overrides import TorchFunctionMode


def _device_constructors() -> set[Callable[..., Any]]:
    """The functions whose results a DeviceContext places."""
    return set(placing.constructors())


class DeviceContext(TorchFunctionMode):
    """A block in which new tensors are on `device` unless the call says otherwise; functions ask no mode for it (ops/placing.py)."""

    def __init__(self, device: Any) -> None:
        self.device = flambeau.device(device)

    def __enter__(self) -> Any:
        placing.enter(self.device)
        return self

    def __exit__(self, *exception: Any) -> None:
        placing.leave()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _device_constructors() and kwargs.get("device") is None:
            kwargs = {**kwargs, "device": self.device}
        return func(*args, **kwargs)


def set_device(device: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: new tensors of the function are on `device`."""
    return lambda function: device_decorator(flambeau.device(device), function)


def device_decorator(device: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, in a block of the device each time it is called."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with flambeau.device(device):
            return function(*args, **kwargs)

    return call
