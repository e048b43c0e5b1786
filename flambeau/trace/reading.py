"""Tensors read from Python as a whole: NumPy arrays over their memory, and nested lists."""

from __future__ import annotations

import ctypes
import weakref
from typing import TYPE_CHECKING, Any

from flambeau import dtypes
from flambeau.runtime.memory import view_as_numpy
from flambeau.trace.evaluate import leave_as_it_is, observe

if TYPE_CHECKING:
    from flambeau.tensor import Tensor


def to_numpy(t: Tensor, read_only: bool = False) -> Any:
    """A NumPy array over the tensor's memory. While it lives, operations on that memory run before they return.

    `read_only`: nobody writes through the array, so that recorded operations on the memory may stay pending.
    """
    import numpy

    m = t._meta
    if m.dtype.numpy_name is None:
        raise TypeError(f"Got unsupported ScalarType {dtypes.C_NAMES[m.dtype.name]}: NumPy has no {m.dtype.name}; convert it first with .float()")
    storage = observe(t)
    if not read_only:
        leave_as_it_is(storage, "external memory")
    buffer = storage.buffer
    assert buffer is not None
    raw = view_as_numpy(buffer.address, buffer.nbytes, storage)
    kind = numpy.dtype(m.dtype.numpy_name)
    usable = raw[: len(raw) // kind.itemsize * kind.itemsize].view(kind)
    offset = t.storage_offset()
    array = numpy.lib.stride_tricks.as_strided(usable[offset:] if m.numel else usable[:0], tuple(m.shape), [s * kind.itemsize for s in m.strides])
    if storage.external is not True and m.numel:
        storage.external = weakref.ref(_ultimate_base(array))
        storage.extent = None  # NumPy may write to it
    return array


def _ultimate_base(array: Any) -> Any:
    """The ctypes object under a NumPy array: alive as long as any array over the memory is."""
    base = array
    while getattr(base, "base", None) is not None:
        base = base.base
    while isinstance(base, memoryview):
        base = base.obj
    return base


_ELEMENT: dict[dtypes.dtype, Any] = {
    dtypes.bool_: ctypes.c_bool, dtypes.uint8: ctypes.c_uint8, dtypes.int8: ctypes.c_int8, dtypes.int16: ctypes.c_int16, dtypes.uint16: ctypes.c_uint16,
    dtypes.uint32: ctypes.c_uint32, dtypes.uint64: ctypes.c_uint64,
    dtypes.int32: ctypes.c_int32, dtypes.int64: ctypes.c_int64, dtypes.float32: ctypes.c_float, dtypes.float64: ctypes.c_double,
}  # fmt: skip
_SHORT = 64  # elements up to which a list is read without NumPy
_arrays: dict[tuple[dtypes.dtype, int], Any] = {}


def to_list(t: Tensor) -> Any:
    """Nested lists of Python numbers."""
    t = t._plain()
    m = t._meta
    if m.is_contiguous and 0 < m.numel <= _SHORT and m.dtype in _ELEMENT:
        buffer = observe(t).buffer
        assert buffer is not None
        kind = _arrays.get((m.dtype, m.numel))
        if kind is None:
            kind = _arrays[m.dtype, m.numel] = _ELEMENT[m.dtype] * m.numel
        values = kind.from_address(buffer.address + t.storage_offset() * m.dtype.itemsize)[:]
        for size in reversed(m.shape[1:]):
            values = [values[i : i + size] for i in range(0, len(values), size)]
        return values
    if m.dtype.numpy_name is None:
        if m.dtype is dtypes.float4_e2m1fn_x2:
            raise RuntimeError("load_scalar: invalid type: an element of float4_e2m1fn_x2 is two numbers; look at the bytes, .view(uint8)")
        return to_list(t.to(dtypes.complex64 if m.dtype.is_complex else dtypes.float32))  # type: ignore[attr-defined]
    return to_numpy(t.detach(), read_only=True).tolist()
