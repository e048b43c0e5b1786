"""Tensors on the wire: the names of dtypes in the Open Inference Protocol, and how JSON and raw bytes become arrays and come of them.

The binary form is little-endian and row-major; strings (BYTES) are each preceded by their length in 4 bytes.
Sources: the Open Inference Protocol's "Tensor Data Types" and the binary tensor data extension of Triton's documentation.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from flambeau.serve.errors import BadRequest

NUMPY: Final[dict[str, Any]] = {
    "BOOL": np.dtype(np.bool_), "UINT8": np.dtype(np.uint8), "UINT16": np.dtype(np.uint16), "UINT32": np.dtype(np.uint32), "UINT64": np.dtype(np.uint64),
    "INT8": np.dtype(np.int8), "INT16": np.dtype(np.int16), "INT32": np.dtype(np.int32), "INT64": np.dtype(np.int64), "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32), "FP64": np.dtype(np.float64), "BYTES": np.dtype(object),
}  # fmt: skip
NAMES: Final[dict[Any, str]] = {d: n for n, d in NUMPY.items()}


@dataclass(frozen=True)
class TensorSpec:
    """An input or output of a model. `shape`: -1 where any size is taken; the first one is the batch if the model takes several requests at once."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.datatype not in NUMPY:
            raise ValueError(f"tensor {self.name!r}: datatype {self.datatype!r} is none of {', '.join(NUMPY)}")

    @property
    def dtype(self) -> Any:
        """NumPy's dtype; object for BYTES."""
        return NUMPY[self.datatype]

    def described(self) -> dict[str, Any]:
        """As the protocol's metadata has it."""
        return {"name": self.name, "datatype": self.datatype, "shape": list(self.shape)}

    def check_shape(self, shape: Sequence[int]) -> None:
        """BadRequest unless the model takes a tensor of this shape."""
        wanted = self.shape
        if len(shape) != len(wanted) or any(w not in (-1, n) for n, w in zip(shape, wanted, strict=True)):
            raise BadRequest(f"input {self.name!r}: the model takes shape {list(wanted)} (-1: any size), got {list(shape)}")


def datatype_of(dtype: Any) -> str:
    """The protocol's name of a NumPy dtype; TypeError if it has none. Text is BYTES."""
    d = np.dtype(dtype)
    if d.kind in "OSU":
        return "BYTES"
    name = NAMES.get(d)
    if name is None:
        raise TypeError(f"a tensor of dtype {d} has no datatype in the Open Inference Protocol")
    return name


def from_json(data: Any, spec: TensorSpec, shape: Sequence[int]) -> Any:
    """The array of a list of numbers, flat or nested as `shape` says. BadRequest for anything else."""
    count = math.prod(shape)
    if spec.datatype == "BYTES":
        flat: list[Any] = []
        _flatten(data, flat, count, spec.name)
        made = np.empty(len(flat), object)
        made[:] = flat
    else:
        try:
            made = np.array(data)
        except (ValueError, TypeError, OverflowError):
            raise BadRequest(f"input {spec.name!r}: data is no list of numbers with equal lengths at each depth") from None
        made = converted(made, spec)
    if made.shape != tuple(shape):
        if made.size != count:
            raise BadRequest(f"input {spec.name!r}: shape {list(shape)} has {count} elements, data has {made.size}")
        if made.ndim != 1 and made.size:
            raise BadRequest(f"input {spec.name!r}: data is nested as {list(made.shape)}; it must be flat or nested as the shape {list(shape)}")
        made = made.reshape(shape)
    return made


def _flatten(data: Any, into: list[Any], count: int, name: str) -> None:
    if not isinstance(data, list):
        raise BadRequest(f"input {name!r}: data must be a list")
    for d in data:
        if isinstance(d, list):
            _flatten(d, into, count, name)
        elif isinstance(d, str):
            into.append(d.encode())
        else:
            raise BadRequest(f"input {name!r}: data of BYTES must be strings")
        if len(into) > count:
            raise BadRequest(f"input {name!r}: data has more than the {count} elements of its shape")


def converted(a: Any, spec: TensorSpec) -> Any:
    """Numbers as JSON has them in the input's dtype: integers for integers and floats, truth values for BOOL only."""
    wanted, kind = spec.dtype, a.dtype.kind
    if not a.size and kind == "f":  # []
        return a.astype(wanted)
    if wanted.kind == "f":
        if kind not in "fiu":
            raise BadRequest(f"input {spec.name!r}: data of {spec.datatype} must be numbers")
        with np.errstate(over="ignore"):
            return a.astype(wanted)
    if wanted.kind == "b":
        if kind != "b":
            raise BadRequest(f"input {spec.name!r}: data of BOOL must be true and false")
        return a
    if kind not in "iu":
        raise BadRequest(f"input {spec.name!r}: data of {spec.datatype} must be integers")
    limits = np.iinfo(wanted)
    if int(a.min()) < limits.min or int(a.max()) > limits.max:
        raise BadRequest(f"input {spec.name!r}: data of {spec.datatype} must lie between {limits.min} and {limits.max}")
    return a.astype(wanted)


def from_bytes(data: Any, spec: TensorSpec, shape: Sequence[int]) -> Any:
    """The array of raw little-endian elements. BadRequest if the number of bytes is wrong. The array may share their memory: it must not be written to."""
    count = math.prod(shape)
    if spec.datatype == "BYTES":
        return _texts(data, spec.name, count).reshape(shape)
    wanted = spec.dtype
    if len(data) != count * wanted.itemsize:
        raise BadRequest(f"input {spec.name!r}: {spec.datatype} of shape {list(shape)} has {count * wanted.itemsize} bytes, got {len(data)}")
    made = np.frombuffer(data, wanted).reshape(shape)
    if wanted.kind == "b" and made.size and int(made.view(np.uint8).max()) > 1:
        raise BadRequest(f"input {spec.name!r}: bytes of BOOL must be 0 or 1")
    return made


def _texts(data: Any, name: str, count: int) -> Any:
    view, at, found = memoryview(data), 0, []
    while at < len(view):
        if at + 4 > len(view):
            raise BadRequest(f"input {name!r}: BYTES end in the middle of a length")
        (n,) = struct.unpack_from("<I", view, at)
        at += 4
        if at + n > len(view):
            raise BadRequest(f"input {name!r}: BYTES end in the middle of an element")
        found.append(bytes(view[at : at + n]))
        at += n
        if len(found) > count:
            break
    if len(found) != count:
        raise BadRequest(f"input {name!r}: the shape has {count} elements, BYTES has {'more' if len(found) > count else len(found)}")
    made = np.empty(count, object)
    made[:] = found
    return made


def to_json(a: Any) -> Any:
    """What stands for an array's elements in JSON, flat: the array itself (orjson writes it), or a list of texts."""
    flat = np.ascontiguousarray(a).reshape(-1)
    if flat.dtype.kind in "OSU":
        return [t.decode(errors="replace") if isinstance(t, bytes) else str(t) for t in flat.tolist()]
    return flat


def to_bytes(a: Any) -> bytes:
    """The raw elements of an array."""
    if a.dtype.kind in "OSU":
        texts = [t if isinstance(t, bytes) else str(t).encode() for t in a.reshape(-1).tolist()]
        return b"".join([part for t in texts for part in (struct.pack("<I", len(t)), t)])
    made: bytes = a.tobytes()
    return made
