"""Devices: PyTorch's device objects. Only the CPU can be used so far; another name is accepted where PyTorch accepts it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.foreign import refuse

_KNOWN = tuple("cpu cuda ipu xpu mkldnn opengl opencl ideep hip ve fpga maia xla lazy vulkan mps meta hpu mtia privateuseone".split())


def _checked_index(index: Any) -> int:
    """An index of a device. TypeError of what is no int, ValueError beyond 64 bits, RuntimeError of a negative one."""
    if isinstance(index, bool) or not isinstance(index, int):
        raise TypeError(f"device(): argument 'index' (position 2) must be int, not {type(index).__name__}")
    if not -(2**63) <= index < 2**63:
        raise ValueError(f"device(): Overflow when unpacking long long: the index {index} has more than 64 bits")
    if index < 0:
        raise RuntimeError(f"device(): Device index must not be negative, got {index}")
    return index


class Device:
    """`torch.device`: a type ("cpu") and an optional index. TypeError, ValueError and RuntimeError of what names no device, as in PyTorch."""

    __slots__ = ("index", "type")

    index: int | None
    type: str

    def __init__(self, device: Any = "cpu", index: int | None = None, **named: Any) -> None:
        """device(device), device(type, index): both arguments may be given by name."""
        if named:
            if set(named) != {"type"}:
                raise TypeError(f"device() got an unexpected keyword argument {next(n for n in named if n != 'type')!r}")
            device = named["type"]
        if isinstance(device, bytes):
            device = device.decode("utf-8", "replace")
        alone = index is None and not named  # else it must be the name of a type
        if alone and isinstance(device, Device):
            self.type, self.index = device.type, device.index
            return
        if alone and isinstance(device, int) and not isinstance(device, bool):
            raise RuntimeError(f"device(): Cannot access accelerator device {_checked_index(device)} when none is available: name a device, as 'cpu'")
        if not isinstance(device, str):
            raise TypeError(f"device(): argument 'device' must be str, int or device, not {type(device).__name__}")
        if index is not None and (isinstance(index, bool) or not isinstance(index, int)):
            _checked_index(index)  # its kind before the name, its value after it
        name, colon, number = device.partition(":")
        if name not in _KNOWN:
            raise RuntimeError(f"Expected one of {', '.join(_KNOWN)} device type at start of device string: {device!r}")
        if colon and (not (number.isascii() and number.isdigit()) or str(int(number)) != number):
            raise RuntimeError(f"Invalid device string: {device!r}: after the colon there must be an index, as in 'cuda:0'")
        if colon and not alone:
            raise RuntimeError(f"type (string) must not include an index because index was passed explicitly: {device}")
        self.type = name
        self.index = int(number) if colon else None if index is None else _checked_index(index)

    def __repr__(self) -> str:
        return f"device(type={self.type!r})" if self.index is None else f"device(type={self.type!r}, index={self.index})"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __enter__(self) -> Device:
        """From here on new tensors of this thread are on this device, unless a call says otherwise."""
        _blocks[0](self)
        return self

    def __exit__(self, *_: Any) -> None:
        _blocks[1]()

    def __reduce__(self) -> tuple[Any, ...]:
        return (Device, (str(self),))


_blocks: list[Any] = []  # what the beginning of a `with` block does, and its end


def on_blocks(enter: Callable[[Device], None], leave: Callable[[], None]) -> None:
    """What `with torch.device(...)` does at its beginning and its end: ops/placing.py says it, which is above this file."""
    _blocks[:] = enter, leave


Device.__name__ = Device.__qualname__ = "device"  # as it is called in texts and pickles
device = Device
CPU = Device("cpu")
META = Device("meta")  # of tensors that have shapes and no elements (trace/blank.py)


class NoDeviceError(RuntimeError, AssertionError):
    """A device that is not there: PyTorch without CUDA or XPU raises an AssertionError, for other devices a RuntimeError."""


def check(device: Any) -> None:
    """NoDeviceError unless there are tensors on this device."""
    if device is None:
        return
    refuse((device,), "the argument `device`")
    device = Device(device)
    if device.type not in ("cpu", "meta"):
        raise NoDeviceError(
            f"Torch not compiled with {device.type.upper()} enabled: there is no {device.type} device, flambeau runs on the CPU so far; use device='cpu', or "
            "device='meta' for shapes without elements"
        )


def is_meta(device: Any) -> bool:
    """Whether this is the device `meta`; RuntimeError if there are no tensors on the device."""
    if device is None or device is CPU or device == "cpu":
        return False
    check(device)
    return Device(device).type == "meta"
