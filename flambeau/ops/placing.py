"""Where new tensors are made that are given no device: `with torch.device(...)` and `torch.set_default_device`.

While a device other than the CPU is asked for anywhere, the functions that make tensors of nothing have stubs (ops/instrument.py) that fill in the
argument `device`; else they are as they are, and cost what they cost. What flambeau's own functions make on their way, where PyTorch has C++, is not asked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import FrameType, FunctionType
from typing import Any, Final

from flambeau.devices import CPU, Device, check, on_blocks
from flambeau.module_names import under_flambeau
from flambeau.ops import instrument
from flambeau.trace.recorder import Fragment, local
from flambeau.trace.while_set import begun

# PyTorch's list (torch.utils._device): names in the torch namespace, then in others.
NAMES: Final = (
    "empty empty_permuted empty_strided ones arange bartlett_window blackman_window eye full hamming_window hann_window kaiser_window linspace "
    "logspace rand randn randint randperm range sparse_coo_tensor sparse_compressed_tensor sparse_csr_tensor sparse_csc_tensor sparse_bsr_tensor "
    "sparse_bsc_tensor tril_indices triu_indices zeros asarray tensor as_tensor scalar_tensor"
).split()
ELSEWHERE: Final = (("flambeau.fft", "fftfreq"), ("flambeau.fft", "rfftfreq"))
_INNER: Final = ("flambeau.ops.", "flambeau.composed.", "flambeau.nn.functional", "flambeau.fft", "flambeau.linalg", "flambeau.func", "flambeau.functional")


class _Places(threading.local):
    """Per thread: the devices of the blocks that it is in, innermost last."""

    def __init__(self) -> None:
        self.blocks: list[Device] = []


_places = _Places()
_default: list[Device | None] = [None]  # of set_default_device, for all threads
_wanted = [0]  # blocks and defaults that ask for another device than the CPU


def _choose(original: Callable[..., Any], caller: FrameType) -> Callable[..., Any]:
    """What a function that makes tensors is for a caller while a device is asked for: itself, with the argument `device` filled in."""
    device = current()
    if device is None or isinstance(local.trace, Fragment) or under_flambeau(caller.f_globals.get("__name__", "")).startswith(_INNER):
        return original

    def there(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **(kwargs if kwargs.get("device") is not None else {**kwargs, "device": device}))

    return there


def current() -> Device | None:
    """The device of new tensors in this thread; None if nobody has asked for one."""
    return _places.blocks[-1] if _places.blocks else _default[0]


def constructors() -> list[FunctionType]:
    """The functions that make tensors of nothing."""
    import importlib

    import flambeau

    found = [getattr(flambeau, name, None) for name in NAMES]
    found += [getattr(importlib.import_module(module), name) for module, name in ELSEWHERE]
    return [f for f in found if type(f) is FunctionType]


def _want(change: int) -> None:
    """Stubs from the first that wants them to the last."""
    before = _wanted[0]
    _wanted[0] = before + change
    if bool(before) != bool(_wanted[0]):
        for function in constructors():
            instrument.choose(function, _choose if _wanted[0] else None)


def enter(device: Device) -> None:
    """A block of this thread in which new tensors are on `device`. RuntimeError if there are no tensors there."""
    check(device)
    if device.type == CPU.type:
        _places.blocks.append(device)
        return
    blocks, wanted = list(_places.blocks), _wanted[0]

    def begin() -> None:
        _places.blocks.append(device)
        _want(1)

    def undo() -> None:
        _places.blocks[:] = blocks
        if _wanted[0] != wanted:
            _want(-1)

    begun(begin, undo)


def leave() -> None:
    """The end of the innermost block."""
    if _places.blocks.pop().type != CPU.type:
        _want(-1)


on_blocks(enter, leave)


def set_default(device: Any) -> None:
    """The device of new tensors outside of blocks; None: the CPU. RuntimeError if there are no tensors there."""
    check(device)
    before, wanted = _default[0], _wanted[0]
    after = None if device is None or Device(device).type == CPU.type else Device(device)

    def begin() -> None:
        _default[0] = after
        _want((after is not None) - (before is not None))

    def undo() -> None:
        _default[0] = before
        if _wanted[0] != wanted:
            _want(wanted - _wanted[0])

    begun(begin, undo)
