"""safetensors, written and read directly: 8 bytes length of the header, a JSON header, then the tensors' bytes.

header: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ..., "__metadata__": {text: text}};
offsets count from the end of the header. (huggingface/safetensors, README, "Format".)
"""

from __future__ import annotations

import json
import math
import mmap
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

from flambeau import dtypes
from flambeau.io.storage_bytes import contiguous_bytes, tensor_from_bytes
from flambeau.runtime import whole_files
from flambeau.tensor import Tensor

_NAMES = {
    "BOOL": dtypes.bool_, "U8": dtypes.uint8, "I8": dtypes.int8, "I16": dtypes.int16, "I32": dtypes.int32, "I64": dtypes.int64,
    "F16": dtypes.float16, "BF16": dtypes.bfloat16, "F32": dtypes.float32, "F64": dtypes.float64, "C64": dtypes.complex64,
    "U16": dtypes.uint16, "U32": dtypes.uint32, "U64": dtypes.uint64, "F8_E4M3": dtypes.float8_e4m3fn, "F8_E5M2": dtypes.float8_e5m2,
    "F8_E8M0": dtypes.float8_e8m0fnu, "F8_E4M3FNUZ": dtypes.float8_e4m3fnuz, "F8_E5M2FNUZ": dtypes.float8_e5m2fnuz, "F4": dtypes.float4_e2m1fn_x2,
}  # fmt: skip
_CODES = {d: name for name, d in _NAMES.items()}
_LONGEST_HEADER = 100_000_000  # the reference implementation's limit


def _is_pair(d: dtypes.dtype) -> bool:
    """Whether an element is two numbers, which the format counts one by one."""
    return d is dtypes.float4_e2m1fn_x2


class SafetensorError(Exception):
    """A file that breaks the format."""


def save(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """The tensors as one bytes object."""
    return b"".join(_parts(tensors, metadata))


def save_file(tensors: Mapping[str, Tensor], filename: Any, metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors to a path: a temporary file, then a rename."""
    with whole_files.replacing(os.fspath(filename)) as file:
        write(file, tensors, metadata)


def write(file: IO[bytes], tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors to a binary file object."""
    file.writelines(_parts(tensors, metadata))


def _parts(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None) -> list[bytes]:
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    parts = []
    at = 0
    # Wider elements first, so that all are aligned to their size, as the reference implementation orders them.
    for name, t in sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])):
        if t.dtype not in _CODES:
            raise SafetensorError(f"the tensor {name!r} has {t.dtype}, which safetensors cannot hold")
        data = contiguous_bytes(t)
        shape = [*t.shape[:-1], 2 * t.shape[-1]] if _is_pair(t.dtype) and t.ndim else list(t.shape)
        header[name] = {"dtype": _CODES[t.dtype], "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
        parts.append(data)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little"), text, *parts]


def load(data: bytes) -> dict[str, Tensor]:
    """The tensors in a bytes object."""
    header, start = _header(memoryview(data))
    return {name: _tensor(memoryview(data), start, name, entry) for name, entry in header.items()}


def load_file(filename: Any, device: Any = "cpu") -> dict[str, Tensor]:
    """The tensors in a file, on the CPU."""
    from flambeau import devices

    devices.check(device)
    with open(os.fspath(filename), "rb") as file:
        return load(file.read())


class Opened:
    """A file whose tensors are read one by one: only the bytes of those that are asked for."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._entries, self._start = _header(data)
        self.metadata = metadata_of(data)

    def names(self) -> list[str]:
        """The names of the tensors."""
        return list(self._entries)

    def kind(self, name: str) -> tuple[dtypes.dtype, tuple[int, ...]]:
        """The dtype and the shape of a tensor."""
        entry = self._entries[name]
        kind, shape = _NAMES[entry["dtype"]], tuple(entry["shape"])
        return kind, (*shape[:-1], shape[-1] // 2) if _is_pair(kind) else shape

    def tensor(self, name: str) -> Tensor:
        """A tensor, with memory of its own. KeyError where there is none of that name."""
        return _tensor(self._data, self._start, name, self._entries[name])


@contextmanager
def opened(filename: Any) -> Iterator[Opened]:
    """A file to read some tensors of. SafetensorError where it breaks the format."""
    with open(os.fspath(filename), "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            raise SafetensorError(f"{os.fspath(filename)} is empty")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as data:
            yield Opened(data)


def metadata_of(data: bytes | memoryview) -> dict[str, str]:
    """The texts that were saved with the tensors."""
    length = int.from_bytes(data[:8], "little")
    return dict(json.loads(bytes(data[8 : 8 + length])).get("__metadata__", {}))


def _header(data: memoryview) -> tuple[dict[str, Any], int]:
    if len(data) < 8:
        raise SafetensorError("the file is shorter than the 8 bytes of its header's length")
    length = int.from_bytes(data[:8], "little")
    if length > _LONGEST_HEADER or 8 + length > len(data):
        raise SafetensorError(f"the header's length {length} is more than the file of {len(data)} bytes can hold")
    try:
        header = json.loads(bytes(data[8 : 8 + length]))
    except (ValueError, RecursionError) as error:
        raise SafetensorError(f"the header is not valid JSON: {error}") from error
    if not isinstance(header, dict):
        raise SafetensorError("the header is not a JSON object")
    header.pop("__metadata__", None)
    spans = []
    for name, entry in header.items():
        spans.append(_check(name, entry, len(data) - 8 - length))
    at = 0
    for begin, end in sorted(spans):
        if begin != at:
            raise SafetensorError(f"the tensors' bytes overlap or leave a hole at {at}")
        at = end
    if at != len(data) - 8 - length:
        raise SafetensorError("the tensors do not cover the file's data")
    return header, 8 + length


def _check(name: str, entry: Any, available: int) -> tuple[int, int]:
    """(begin, end) of a well-formed entry."""
    if not isinstance(entry, dict) or entry.get("dtype") not in _NAMES:
        raise SafetensorError(f"the entry {name!r} has no known dtype")
    shape, offsets = entry.get("shape"), entry.get("data_offsets")
    for what in (shape, offsets):
        if not isinstance(what, list) or any(type(n) is not int or n < 0 for n in what):
            raise SafetensorError(f"the entry {name!r} has a malformed shape or offsets")
    assert isinstance(shape, list) and isinstance(offsets, list)
    nbytes = math.prod(shape) * _NAMES[entry["dtype"]].itemsize
    if _is_pair(_NAMES[entry["dtype"]]):
        if not shape or shape[-1] % 2:
            raise SafetensorError(f"the entry {name!r} of shape {shape} has half a byte in a row")
        nbytes //= 2
    if len(offsets) != 2 or not offsets[0] <= offsets[1] <= available or offsets[1] - offsets[0] != nbytes or len(shape) > 64:
        raise SafetensorError(f"the entry {name!r} of shape {shape} needs {nbytes} bytes inside the file, but has offsets {offsets}")
    return offsets[0], offsets[1]


def _tensor(data: memoryview, start: int, name: str, entry: dict[str, Any]) -> Tensor:
    begin, end = entry["data_offsets"]
    shape, kind = entry["shape"], _NAMES[entry["dtype"]]
    return tensor_from_bytes(data[start + begin : start + end], kind, [*shape[:-1], shape[-1] // 2] if _is_pair(kind) else shape)
