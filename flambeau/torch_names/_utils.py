"""torch._utils: the names of it that programs use: several tensors as one flat tensor, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as torch


def _flatten_dense_tensors(tensors: Sequence[Any]) -> Any:
    """All elements in one vector."""
    tensors = list(tensors)
    return torch.cat([t.contiguous().view(-1) for t in tensors]) if len(tensors) > 1 else tensors[0].contiguous().view(-1)


def _unflatten_dense_tensors(flat: Any, tensors: Sequence[Any]) -> tuple[Any, ...]:
    """Views of a vector with the shapes of `tensors`."""
    outputs, start = [], 0
    for t in tensors:
        outputs.append(flat.narrow(0, start, t.numel()).view_as(t))
        start += t.numel()
    return tuple(outputs)


def _take_tensors(tensors: Sequence[Any], size_limit: int) -> Any:
    """Groups of tensors of one dtype, each of at most so many bytes unless it is one tensor."""
    groups: dict[Any, list[Any]] = {}
    sizes: dict[Any, int] = {}
    for t in tensors:
        nbytes = t.numel() * t.element_size()
        if groups.get(t.dtype) and sizes[t.dtype] + nbytes > size_limit:
            yield groups.pop(t.dtype)
        groups.setdefault(t.dtype, []).append(t)
        sizes[t.dtype] = nbytes + (sizes[t.dtype] if len(groups[t.dtype]) > 1 else 0)
    yield from groups.values()


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The index of a device; -1 for the CPU."""
    if isinstance(device, int):
        return device
    if isinstance(device, str):
        device = torch.device(device)
    if device is not None and device.index is not None:
        return device.index  # type: ignore[no-any-return]
    if optional or allow_cpu:
        return -1
    raise ValueError(f"Expected a torch.device with a specified index or an integer, but got:{device}")


def _get_all_device_indices() -> list[int]:
    """None: there are no numbered devices."""
    return []


def _get_available_device_type() -> str | None:
    """None: there is no accelerator."""
    return None


def _get_device_module(device_type: str) -> Any:
    """The module of a kind of devices, `torch.cpu`. RuntimeError if there is none."""
    import flambeau

    module = getattr(flambeau, device_type, None)
    if module is None:
        raise RuntimeError(f"Device '{device_type}' does not have a corresponding module registered as 'torch.{device_type}'.")
    return module


class ExceptionWrapper:
    """An exception of another thread or process, to be raised here."""

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        import sys
        import traceback

        kind, value, trace = exc_info or sys.exc_info()
        self.exc_type = kind
        self.exc_msg = "".join(traceback.format_exception(kind, value, trace))
        self.where = where

    def reraise(self) -> None:
        """Raise it, with its own traceback as text."""
        assert self.exc_type is not None
        message = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        if self.exc_type is KeyError:
            raise KeyError(message)
        try:
            error = self.exc_type(message)
        except Exception:
            raise RuntimeError(message) from None
        raise error


_REBUILDERS = {
    f"_{name}": name for name in ("rebuild_tensor", "rebuild_tensor_v2", "rebuild_tensor_v3", "rebuild_parameter", "rebuild_parameter_with_state")
} | {"_rebuild_sparse_tensor": "rebuild_sparse", "_rebuild_meta_tensor_no_storage": "rebuild_meta"} | {
    "_rebuild_qtensor": "rebuild_quantized", "_rebuild_wrapper_subclass": "rebuild_wrapper"}  # fmt: skip


def __getattr__(name: str) -> Any:
    """What pickles of PyTorch's tensors name."""
    if name in _REBUILDERS:
        from flambeau.io import globals as rebuilders

        return getattr(rebuilders, _REBUILDERS[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _element_size(dtype: Any) -> int:
    """The bytes of an element of a dtype."""
    if not isinstance(dtype, torch.dtype):
        raise RuntimeError(f"expected torch.dtype, but got {type(dtype)}")
    return dtype.itemsize
