"""The memory of tensors that collectives read and write."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import flambeau
from flambeau.runtime.buffers import allocate
from flambeau.runtime.memory import view_as_numpy
from flambeau.runtime.shared_memory import block_of
from flambeau.trace.evaluate import leave_as_it_is, observe

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

_UNITS = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}


def tensor_of(value: Any, where: str, name: str = "tensor") -> Tensor:
    """The value, which must be a dense tensor with elements. TypeError or RuntimeError otherwise."""
    if not isinstance(value, flambeau.Tensor):
        raise TypeError(f"Invalid function argument. Expected parameter `{name}` of type torch.Tensor but got {type(value)} instead ({where}).")
    if value.is_sparse or value.device.type != "cpu":
        kind = f"layout {value.layout}" if value.is_sparse else f"device {value.device}"
        raise RuntimeError(f"{where}: parameter `{name}` must be a dense tensor of the CPU, got one of {kind}")
    return value


def tensors_of(values: Any, where: str, name: str) -> list[Tensor]:
    """The values, which must be tensors."""
    if not isinstance(values, (list, tuple)):
        raise TypeError(f"Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor] but got {type(values)} instead ({where}).")
    return [tensor_of(value, where, name) for value in values]


def _strided(t: Tensor, address: int, owner: Any) -> Any:
    """The elements as a NumPy array over the tensor's memory, whatever its strides are."""
    import numpy

    m = t._meta
    unit = numpy.dtype(_UNITS[m.dtype.itemsize])
    reach = sum((n - 1) * s for n, s in zip(m.shape, m.strides, strict=True)) + 1 if m.numel else 0
    flat = view_as_numpy(address, reach * unit.itemsize, owner).view(unit)
    return numpy.lib.stride_tricks.as_strided(flat, tuple(m.shape), [s * unit.itemsize for s in m.strides])


class Memory:
    """The bytes of a tensor, in row-major order: its own memory where that is so laid out, else a copy. `finish` brings the copy back."""

    __slots__ = ("address", "array", "copy", "keep", "nbytes")

    def __init__(self, t: Tensor, write: bool) -> None:
        if t._meta.bits:
            if write:
                raise RuntimeError("a tensor that is a view of conjugates or negatives cannot receive: receive into a tensor and copy_ from it")
            t = t._plain()
        storage = observe(t)
        if write:
            leave_as_it_is(storage, "collective")
            storage.version += 1
            storage.extent = None
        m = t._meta
        buffer = storage.buffer
        assert buffer is not None
        self.nbytes = m.numel * m.dtype.itemsize
        self.address = buffer.address + t.storage_offset() * m.dtype.itemsize
        self.keep: Any = (storage, buffer)
        self.copy: Any = None
        if not m.is_contiguous:
            import numpy

            self.array = _strided(t, self.address, self.keep)
            self.copy = numpy.ascontiguousarray(self.array)
            self.address = self.copy.ctypes.data

    @property
    def piece(self) -> tuple[int, int]:
        """(address, bytes)."""
        return self.address, self.nbytes

    def finish(self) -> None:
        """The bytes are there: put them where they belong."""
        if self.copy is not None:
            self.array[...] = self.copy

    def set_aside(self) -> None:
        """Somebody may still write here: the tensor gets a copy of its memory, and this is never used again. NumPy arrays over it stay with the old."""
        storage, buffer = self.keep
        _left.append((buffer, self.copy))
        if self.copy is None and storage.buffer is buffer and block_of(buffer) is None:
            storage.buffer = allocate(buffer.nbytes)
            ctypes.memmove(storage.buffer.address, buffer.address, buffer.nbytes)


_left: list[Any] = []  # memory that was set aside


def scratch(nbytes: int) -> tuple[int, Any]:
    """(address, owner) of memory that nobody needs afterwards."""
    import numpy

    array = numpy.empty(max(nbytes, 1), numpy.uint8)
    return array.ctypes.data, array
