"""Tensors over memory that somebody else has: NumPy's arrays, buffers, DLPack's capsules, storages. Nothing is copied."""

from __future__ import annotations

import ctypes
import sys
import weakref
from typing import TYPE_CHECKING, Any

from flambeau import devices, dtypes
from flambeau.compiler.graph import contiguous_strides
from flambeau.dtypes import dtype
from flambeau.runtime.buffers import foreign
from flambeau.trace.meta import meta
from flambeau.trace.objects import from_storage
from flambeau.trace.once import warn_once
from flambeau.trace.storage import Storage
from flambeau.upward import upward

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

_FROM_NUMPY = {d.numpy_name: d for d in dtypes.HELD if d.numpy_name is not None}


def finish(t: Any, requires_grad: bool) -> Any:
    """A new tensor as its caller wants it."""
    return t.requires_grad_() if requires_grad else t


def is_array(x: Any) -> bool:
    """Whether it is a NumPy array; a program that has none has not imported NumPy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(x, numpy.ndarray)


def dtype_of_array(array: Any) -> dtype:
    """The dtype of a NumPy array; TypeError where there is none."""
    name = array.dtype.name
    if name in _FROM_NUMPY:
        return _FROM_NUMPY[name]
    raise TypeError(f"can't convert np.ndarray of type {array.dtype}. The only supported types are: {', '.join(sorted(map(str, _FROM_NUMPY)))}.")


def check_array(array: Any) -> None:
    """ValueError for what PyTorch takes from no NumPy array: negative strides, bytes in the other order."""
    if any(s < 0 for s in array.strides):
        raise ValueError(
            "At least one stride in the given numpy array is negative, and tensors with negative strides are not currently "
            "supported. (You can probably work around this by making a copy of your array with array.copy().)"
        )
    if not array.dtype.isnative:
        raise ValueError("given numpy array has byte order different from the native byte order. Conversion is not supported.")


def _over(address: int, shape: tuple[int, ...], strides: tuple[int, ...], d: dtype, owner: Any) -> Tensor:
    """The tensor of these elements at an address; `owner` keeps them there. Others may look at any time, so nothing on it stays pending."""
    count = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    storage = Storage(foreign(address, count * d.itemsize, owner))
    storage.external = True
    return from_storage(storage, meta(shape, strides, d))  # type: ignore[no-any-return]


def over_array(array: Any) -> Tensor:
    """A tensor over the memory of a NumPy array, writable or not; ValueError for strides that no tensor has."""
    d = dtype_of_array(array)
    check_array(array)
    if any(s % d.itemsize for s in array.strides):
        raise ValueError("given numpy array strides not a multiple of the element byte size. Copy the numpy array to reallocate the memory.")
    return _over(array.__array_interface__["data"][0], array.shape, tuple([s // d.itemsize for s in array.strides]), d, array)


def from_numpy(array: Any) -> Tensor:
    """A tensor over the memory of a NumPy array: writes are seen on both sides."""
    if not is_array(array):
        raise TypeError(f"expected np.ndarray (got {type(array).__name__})")
    if not array.flags.writeable:
        warn_of_constant_memory("NumPy array", "array")
    return over_array(array)


def warn_of_constant_memory(whose: str, what: str) -> None:
    """Warn of memory that its owner does not write to: tensors do."""
    warn_once(
        f"The given {whose} is not writable, and PyTorch does not support non-writable tensors. This means you can write to the underlying "
        f"(supposedly non-writable) {whose} using the tensor. You may want to copy the {what} to protect its data or make it writable "
        "before converting it to a tensor. This type of warning will be suppressed for the rest of this program."
    )


def bytes_of(buffer: Any) -> memoryview:
    """The bytes of an object with the buffer protocol; ValueError if it has none, RuntimeError if they do not lie one after another."""
    try:
        view = memoryview(buffer.view("u1") if is_array(buffer) and buffer.dtype.kind in "mM" else buffer)  # dates have no code in a buffer
    except TypeError:
        raise ValueError(f"object does not implement Python buffer protocol: {type(buffer).__name__}") from None
    if not view.c_contiguous:
        raise RuntimeError("could not retrieve buffer from object: its elements do not lie one after another; give a copy of it, as bytes(object)")
    if view.readonly:
        warn_of_constant_memory("buffer", "buffer")
    return view


def frombuffer(buffer: Any, *, dtype: dtype, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """A 1-d tensor over the bytes of an object with the buffer protocol, from byte `offset` on, `count` elements (-1: all).

    ValueError if they are not so many, or not a whole number of elements; RuntimeError if the bytes do not lie one after another.
    """
    import numpy

    view = bytes_of(buffer)
    size, item = view.nbytes, dtype.itemsize
    if not (size and count):
        raise ValueError(f"frombuffer: both buffer length ({size}) and count ({count}) must not be 0")
    if not 0 <= offset < size:
        raise ValueError(f"frombuffer: offset ({offset} bytes) must be non-negative and no greater than buffer length ({size} bytes) minus 1")
    if count < 0:
        if (size - offset) % item:
            raise ValueError(f"frombuffer: buffer length ({size - offset} bytes) after offset ({offset} bytes) must be a multiple of element size ({item})")
        count = (size - offset) // item
    if offset + count * item > size:
        raise ValueError(
            f"frombuffer: requested buffer length ({count} * {item} bytes) after offset ({offset} bytes) must not be greater than actual buffer "
            f"length ({size} bytes)"
        )
    raw = numpy.frombuffer(view, numpy.uint8)  # keeps the object and its bytes where they are
    return finish(_over(raw.__array_interface__["data"][0] + offset, (count,), (1,), dtype, raw), requires_grad)  # type: ignore[no-any-return]


@upward
def tensor_over(untyped: Any, d: dtype, size: Any) -> Tensor:
    """A tensor over a storage (storage.py)."""
    raise NotImplementedError


def over_storage(storage: Any, d: dtype | None) -> Tensor:
    """All elements of a storage (torch.storage) as a 1-d tensor over the same memory: of a typed one in its dtype, of an untyped one in `d`."""
    own = getattr(storage, "dtype", None)
    if own is not None and own is not (d or dtypes.get_default_dtype()):
        wanted = d or dtypes.get_default_dtype()
        raise RuntimeError(f"Expected a Storage of type {wanted.name} or an UntypedStorage, but got {own.name}; give dtype=torch.{own.name}")
    kind = own or d or dtypes.int64
    untyped = storage.untyped()
    return tensor_over(untyped, kind, (untyped.nbytes() // kind.itemsize,))


# -- DLPack (github.com/dmlc/dlpack, dlpack.h) --------------------------------------------------------------------


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)))


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint32 * 2), ("context", ctypes.c_void_p), ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
        ("flags", ctypes.c_uint64), ("tensor", _Tensor),
    )  # fmt: skip


_DTYPES = {  # by code and bits
    (0, 8): dtypes.int8, (0, 16): dtypes.int16, (0, 32): dtypes.int32, (0, 64): dtypes.int64, (1, 8): dtypes.uint8, (2, 16): dtypes.float16,
    (2, 32): dtypes.float32, (2, 64): dtypes.float64, (4, 16): dtypes.bfloat16, (5, 64): dtypes.complex64, (5, 128): dtypes.complex128,
    (6, 8): dtypes.bool_, (1, 16): dtypes.uint16, (1, 32): dtypes.uint32, (1, 64): dtypes.uint64, (5, 32): dtypes.complex32,
}  # fmt: skip
_BFLOAT = 4
_NAMES = (b"dltensor_versioned", b"dltensor")
_USED = {name: ctypes.create_string_buffer(b"used_" + name) for name in _NAMES}  # a capsule keeps the address of its name


def _managed(capsule: Any) -> tuple[Any, bytes]:
    """The struct in a capsule, and the capsule's name; RuntimeError if it is none of DLPack's or was used before."""
    api = ctypes.pythonapi
    for name in _NAMES:
        if type(capsule).__name__ == "PyCapsule" and api.PyCapsule_IsValid(ctypes.py_object(capsule), name):
            pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", api))(capsule, name)
            return (_Versioned if name == _NAMES[0] else _Managed).from_address(pointer), name
    raise RuntimeError(
        "from_dlpack received an invalid capsule. Note that DLTensor capsules can be consumed only once, so you might have already constructed "
        f"a tensor from it once. It takes an object with __dlpack__ or such a capsule, not {type(capsule).__name__}."
    )


def from_dlpack(x: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor over the memory of any object with `__dlpack__`, or of a capsule that one gave. `copy`: True gives a copy of it.

    RuntimeError for another object, a used capsule, another device or a dtype that is not there.
    """
    devices.check(device)
    kind = x.__dlpack_device__()[0] if hasattr(x, "__dlpack_device__") else 1
    if kind != 1:
        raise RuntimeError(f"from_dlpack: the memory is on a device of kind {int(kind)}; flambeau runs on the CPU so far")
    capsule = x
    if hasattr(x, "__dlpack__"):
        try:
            capsule = x.__dlpack__(max_version=(1, 0))
        except TypeError:  # an older one
            capsule = x.__dlpack__()
    managed, name = _managed(capsule)
    t = managed.tensor
    d = _DTYPES.get((t.code, t.bits))
    if d is None or t.lanes != 1 or t.device[0] != 1:
        raise RuntimeError(f"from_dlpack: there is no dtype for {t.bits} bits of kind {t.code} (in {t.lanes} lanes, on a device of kind {t.device[0]})")
    shape = tuple(t.shape[: t.ndim])
    strides = tuple(t.strides[: t.ndim]) if t.ndim and t.strides else contiguous_strides(shape)
    if min(strides, default=0) < 0:
        raise ValueError(f"from_dlpack: strides {strides}: tensors with negative strides are not there; give a copy of the array")
    # From here on the memory is ours: its owner is told when the last tensor over it is gone.
    ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(("PyCapsule_SetName", ctypes.pythonapi))(capsule, ctypes.addressof(_USED[name]))
    made = _over((t.data or 0) + t.byte_offset, shape, strides, d, _Consumed(managed))
    return made.clone() if copy else made  # type: ignore[attr-defined, no-any-return]


class _Consumed:
    """Keeps the memory of a capsule that was taken over, and gives it back to its owner at the end."""

    def __init__(self, managed: Any) -> None:
        if managed.deleter:
            weakref.finalize(self, managed.deleter, ctypes.addressof(managed)).atexit = False


def as_bfloat16(capsule: Any) -> Any:
    """A capsule of 16-bit integers, as one of bfloat16, which NumPy cannot make."""
    _managed(capsule)[0].tensor.code = _BFLOAT
    return capsule
