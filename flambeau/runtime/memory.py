"""Reading and writing memory from Python: single numbers, NumPy arrays over the same bytes."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

from flambeau import dtypes
from flambeau.small_floats import numbers


def _reader(kind: Any) -> Callable[[int], Any]:
    at = kind.from_address
    return lambda address: at(address).value


def _complex_reader(kind: Any) -> Callable[[int], complex]:
    pair = kind * 2
    return lambda address: complex(*pair.from_address(address))


def _read_bfloat16(address: int) -> float:
    bits = ctypes.c_uint16.from_address(address).value
    return float(struct.unpack("<f", struct.pack("<I", bits << 16))[0])


def _read_float16(address: int) -> float:
    return float(struct.unpack("<e", ctypes.string_at(address, 2))[0])


def _read_complex32(address: int) -> complex:
    return complex(*struct.unpack("<ee", ctypes.string_at(address, 4)))


def _small_reader(name: str) -> Callable[[int], float]:
    return lambda address: numbers(name)[ctypes.c_uint8.from_address(address).value]


def _read_float4(address: int) -> float:
    raise NotImplementedError("\"_local_scalar_dense_cpu\" not implemented for 'Float4_e2m1fn_x2': an element is two numbers; look at the bytes, .view(uint8)")


READERS: dict[dtypes.dtype, Callable[[int], Any]] = {
    dtypes.bool_: lambda address: ctypes.c_uint8.from_address(address).value != 0,
    dtypes.uint8: _reader(ctypes.c_uint8),
    dtypes.int8: _reader(ctypes.c_int8),
    dtypes.int16: _reader(ctypes.c_int16),
    dtypes.int32: _reader(ctypes.c_int32),
    dtypes.int64: _reader(ctypes.c_int64),
    dtypes.float16: _read_float16,
    dtypes.bfloat16: _read_bfloat16,
    dtypes.float32: _reader(ctypes.c_float),
    dtypes.float64: _reader(ctypes.c_double),
    dtypes.complex64: _complex_reader(ctypes.c_float),
    dtypes.complex128: _complex_reader(ctypes.c_double),
    dtypes.uint16: _reader(ctypes.c_uint16),
    dtypes.uint32: _reader(ctypes.c_uint32),
    dtypes.uint64: _reader(ctypes.c_uint64),
    dtypes.complex32: _read_complex32,
    dtypes.float4_e2m1fn_x2: _read_float4,
    **{d: _small_reader(d.name) for d in dtypes.FLOATS8},
}


def view_as_numpy(address: int, nbytes: int, owner: Any) -> Any:
    """The bytes at an address as a NumPy uint8 array that keeps `owner` alive."""
    import numpy

    if nbytes == 0:
        return numpy.empty(0, numpy.uint8)
    raw: Any = (ctypes.c_uint8 * nbytes).from_address(address)
    raw._owner = owner
    return numpy.frombuffer(raw, numpy.uint8)
