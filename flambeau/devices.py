"""Devices: PyTorch's device objects. Only the CPU can be used so far; another name is accepted where PyTorch accepts it."""

from __future__ import annotations

from typing import Any

from flambeau.foreign import refuse

_KNOWN = ("cpu", "cuda", "mps", "xpu", "meta", "hpu", "mtia", "vulkan", "xla", "ipu")


class Device:
    """`torch.device`: a type ("cpu") and an optional index."""

    __slots__ = ("index", "type")

    index: int | None
    type: str

    def __init__(self, device: Any = "cpu", index: int | None = None) -> None:
        if isinstance(device, Device):
            self.type, self.index = device.type, device.index
            return
        if isinstance(device, int):
            if not -(2**63) <= device < 2**63:
                raise ValueError(f"device(): Overflow when unpacking long long: the index {device} has more than 64 bits")
            if device < 0:
                raise RuntimeError(f"device(): Device index must not be negative, got {device}")
            self.type, self.index = "cuda", device
            return
        if not isinstance(device, str):
            raise TypeError(f"device(): argument 'device' must be str, int or device, not {type(device).__name__}")
        name, colon, number = device.partition(":")
        if name not in _KNOWN or (colon and not number.isdigit()):
            raise RuntimeError(f"Expected one of {', '.join(_KNOWN)} device type at start of device string: {device!r}")
        self.type = name
        self.index = int(number) if number else index

    def __repr__(self) -> str:
        return f"device(type={self.type!r})" if self.index is None else f"device(type={self.type!r}, index={self.index})"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __enter__(self) -> Device:
        check(self)
        return self

    def __exit__(self, *_: Any) -> None:
        return None

    def __reduce__(self) -> tuple[Any, ...]:
        return (Device, (str(self),))


Device.__name__ = Device.__qualname__ = "device"  # as it is called in texts and pickles
device = Device
CPU = Device("cpu")


def check(device: Any) -> None:
    """RuntimeError unless tensors can be made on this device."""
    if device is None:
        return
    refuse((device,), "the argument `device`")
    device = Device(device)
    if device.type != "cpu":
        raise RuntimeError(f"no {device.type} device: flambeau runs on the CPU so far; use device='cpu'")
