"""Tensors to bytes and back: the one place of io that knows how a storage lies in memory.

A storage is a run of bytes (little-endian elements); several tensors may share one, each with its shape, strides and offset.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from flambeau.devices import CPU, Device
from flambeau.dtypes import BY_NAME, dtype
from flambeau.runtime.buffers import allocate
from flambeau.runtime.memory import view_as_numpy
from flambeau.tensor import Tensor
from flambeau.trace.meta import meta
from flambeau.trace.objects import from_storage
from flambeau.trace.storage import Storage

NAMED = BY_NAME


def storage_of(t: Tensor) -> Storage:
    """The storage of a tensor with its bytes in place; runs what is pending."""
    from flambeau.trace.evaluate import observe

    return observe(t)


def bytes_of(storage: Storage) -> Any:
    """All bytes of a storage, as a NumPy uint8 array over its memory."""
    buffer = storage.buffer
    assert buffer is not None
    return view_as_numpy(buffer.address, buffer.nbytes, storage)


def new_storage(nbytes: int) -> Storage:
    """A storage of undefined bytes."""
    return Storage(allocate(nbytes))


def storage_from(data: Any) -> Storage:
    """A storage with a copy of an object's bytes."""
    import numpy

    source = numpy.frombuffer(data, numpy.uint8)
    storage = new_storage(source.size)
    bytes_of(storage)[...] = source
    return storage


def tensor_over(storage: Storage, d: dtype, size: Sequence[int], stride: Sequence[int], offset: int, device: Device = CPU, bits: int = 0) -> Tensor:
    """A tensor over a storage; the caller has checked that it lies inside (`check_layout`)."""
    return from_storage(storage, meta(tuple(size), tuple(stride), d, offset, device=device, bits=bits))  # type: ignore[no-any-return]


def check_layout(numel: int, size: Any, stride: Any, offset: Any) -> str | None:
    """Why a tensor of this layout does not lie inside `numel` elements; None if it does."""
    numbers = (offset, *size, *stride)
    if len(size) != len(stride) or any(type(n) is not int or n < 0 for n in numbers):
        return f"sizes {size}, strides {stride} and offset {offset} must be as many non-negative integers"
    if len(size) > 64:
        return f"{len(size)} dimensions are more than 64"
    if 0 in size:
        last = offset - 1
    else:
        last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    if last >= numel:
        return f"element {last} (sizes {size}, strides {stride}, offset {offset}) lies outside the storage of {numel} elements"
    return None


def contiguous_bytes(t: Tensor) -> bytes:
    """The elements of a tensor in row-major order."""
    flat = t.detach()._plain().contiguous()
    start = flat.storage_offset() * flat.element_size()
    return bytes(bytes_of(storage_of(flat))[start : start + flat.nbytes])


def tensor_from_bytes(data: Any, d: dtype, shape: Sequence[int]) -> Tensor:
    """A new tensor with a copy of row-major bytes, which must be as many as the shape needs."""
    from flambeau.compiler.graph import contiguous_strides

    shape = tuple(shape)
    nbytes = math.prod(shape) * d.itemsize
    if len(memoryview(data).cast("B")) != nbytes:
        raise ValueError(f"{len(data)} bytes do not make a tensor of shape {shape} and {d}, which has {nbytes}")
    return tensor_over(storage_from(data) if nbytes else new_storage(0), d, shape, contiguous_strides(shape), 0)
