"""torch.utils._foreach_utils: what optimizers of packages ask before they take lists of tensors at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.devices import device as Device
from flambeau.tensor import Tensor

_foreach_supported_types = [Tensor]


def _group_tensors_by_device_and_dtype(tensorlistlist: Sequence[Sequence[Any]], with_indices: bool = False) -> dict[Any, tuple[list[list[Any]], list[int]]]:
    """{(device, dtype) of the first list's tensor: (the lists' tensors at these places, the places)}."""
    groups: dict[Any, tuple[list[list[Any]], list[int]]] = {}
    for i, first in enumerate(tensorlistlist[0]):
        lists, indices = groups.setdefault((first.device, first.dtype), ([[] for _ in tensorlistlist], []))
        for column, tensors in zip(lists, tensorlistlist, strict=True):
            if tensors:
                column.append(tensors[i])
        if with_indices:
            indices.append(i)
    return groups


def _get_foreach_kernels_supported_devices() -> list[str]:
    """Accelerators that take lists at once; the CPU does too, and is not in PyTorch's list."""
    return ["cuda", "xpu", "mtia", "privateuseone"]


def _get_fused_kernels_supported_devices() -> list[str]:
    """Devices on which optimizers take `fused=True`."""
    return ["mps", "cuda", "xpu", "hpu", "cpu", "mtia", "privateuseone"]


def _device_has_foreach_support(device: Device) -> bool:
    """Whether functions of lists run on the device."""
    return device.type in [*_get_foreach_kernels_supported_devices(), "cpu"]


def _has_foreach_support(tensors: Sequence[Any], device: Device) -> bool:
    """Whether these tensors, on that device, can go into a function of lists: None, or tensors of no subclass."""
    return _device_has_foreach_support(device) and all(t is None or type(t) in _foreach_supported_types for t in tensors)
