"""GGUF files: read and written.

Layout (the specification in ggml's docs/gguf.md): the word GGUF, version (2 or 3), counts of tensors and of metadata; metadata as (name, type, value); of each
tensor a name, sizes (innermost first), a type and an offset; then the data, each tensor at a multiple of the alignment. Little-endian.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from flambeau import dtypes
from flambeau.io import gguf_codes
from flambeau.io.storage_bytes import contiguous_bytes, tensor_from_bytes
from flambeau.runtime import whole_files
from flambeau.tensor import Tensor

# Types of metadata: struct's letter, by number; 8 is a string, 9 an array.
_NUMBERS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_PLAIN: Final = {
    0: dtypes.float32, 1: dtypes.float16, 24: dtypes.int8, 25: dtypes.int16, 26: dtypes.int32, 27: dtypes.int64, 28: dtypes.float64, 30: dtypes.bfloat16,
}  # fmt: skip
_CODED: Final = {
    2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K",
}  # fmt: skip
_NUMBER_OF: Final = {name: number for number, name in _CODED.items()} | {d: number for number, d in _PLAIN.items()}
_NESTED: Final = 8  # arrays of arrays deeper than this are refused


class CodedBlocks:
    """A tensor of a GGUF file as its blocks: `kind` ("Q4_K"), `shape`, `data` (uint8, flat); `decoded()` gives the numbers."""

    def __init__(self, kind: str, shape: tuple[int, ...], data: Any) -> None:
        self.kind, self.shape, self.data = kind, shape, data

    def decoded(self) -> Tensor:
        """The numbers, in float32."""
        return tensor_from_bytes(gguf_codes.decode(self.data, self.kind).tobytes(), dtypes.float32, self.shape)

    def __repr__(self) -> str:
        return f"CodedBlocks({self.kind}, shape={self.shape})"


class _Reader:
    """Fields of a file, each checked to lie inside."""

    def __init__(self, data: Any, path: str) -> None:
        self.data, self.path, self.at = data, path, 0

    def bytes(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            raise ValueError(f"load_gguf: {self.path} ends inside of a field of {count} bytes at {self.at}: it is damaged or no GGUF file")
        found = self.data[self.at : self.at + count].tobytes()
        self.at += count
        return found  # type: ignore[no-any-return]

    def number(self, letter: str) -> Any:
        return struct.unpack("<" + letter, self.bytes(struct.calcsize("<" + letter)))[0]

    def text(self) -> str:
        return self.bytes(self.number("Q")).decode("utf-8", "replace")

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY or depth == _NESTED:
            raise ValueError(f"load_gguf: {self.path} has metadata of the unknown type {kind} at byte {self.at}")
        inner, count = self.number("I"), self.number("Q")
        if inner in _NUMBERS:
            letter = _NUMBERS[inner]
            return list(struct.unpack(f"<{count}{letter}", self.bytes(count * struct.calcsize("<" + letter))))
        if count > len(self.data):
            raise ValueError(f"load_gguf: {self.path} has an array of {count} elements, more than it has bytes")
        return [self.value(inner, depth + 1) for _ in range(count)]


def load_gguf(filename: str | os.PathLike[str], decode: bool = True) -> tuple[dict[str, Any], dict[str, Any]]:
    """(tensors by name, metadata) of a GGUF file.

    Tensors of coded types become float32, or CodedBlocks with `decode=False`. Sizes are in the order of PyTorch, outermost first. ValueError for a
    damaged file, NotImplementedError, which names the tensor, for a type that is not read.
    """
    path = os.fspath(filename)
    data = np.memmap(path, np.uint8, "r") if os.path.getsize(path) else np.zeros(0, np.uint8)
    r = _Reader(data, path)
    if r.bytes(4) != b"GGUF":
        raise ValueError(f"load_gguf: {path} is no GGUF file: it does not begin with GGUF")
    version = r.number("I")
    if version not in (2, 3):
        raise ValueError(f"load_gguf: {path} is of version {version}; versions 2 and 3 (little-endian) are read")
    tensors, pairs = r.number("Q"), r.number("Q")
    metadata = {}
    for _ in range(pairs):
        name = r.text()
        metadata[name] = r.value(r.number("I"))
    described = []
    for _ in range(tensors):
        name, ndim = r.text(), r.number("I")
        if ndim > 64:
            raise ValueError(f"load_gguf: {path}: tensor {name!r} has {ndim} dims")
        shape = tuple(reversed([r.number("Q") for _ in range(ndim)]))
        described.append((name, shape, r.number("I"), r.number("Q")))
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or alignment <= 0:
        raise ValueError(f"load_gguf: {path}: general.alignment is {alignment!r}, it must be a positive number")
    start = -(-r.at // alignment) * alignment
    return {name: _tensor(data, path, name, shape, kind, start + offset, decode) for name, shape, kind, offset in described}, metadata


def _tensor(data: Any, path: str, name: str, shape: tuple[int, ...], kind: int, at: int, decode: bool) -> Any:
    count = 1
    for n in shape:
        count *= n
    if kind in _PLAIN:
        nbytes = count * _PLAIN[kind].itemsize
    elif kind in _CODED:
        weights, size, _ = gguf_codes.CODED[_CODED[kind]]
        if count and shape[-1] % weights:
            raise ValueError(f"load_gguf: {path}: rows of tensor {name!r}, {shape}, are not whole blocks of {weights}")
        nbytes = count // weights * size
    else:
        raise NotImplementedError(f"load_gguf: tensor {name!r} is of ggml's type {kind}; types {', '.join(_CODED.values())} and plain numbers are read")
    if at + nbytes > len(data):
        raise ValueError(f"load_gguf: {path}: tensor {name!r} lies outside of the file: {nbytes} bytes at {at} of {len(data)}")
    raw = data[at : at + nbytes]
    if kind in _PLAIN:
        return tensor_from_bytes(raw.tobytes(), _PLAIN[kind], shape)
    blocks = CodedBlocks(_CODED[kind], shape, np.array(raw))
    return blocks.decoded() if decode else blocks


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _described(value: Any, name: str) -> bytes:
    """Type and value of a metadata entry."""
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        kind = 4 if 0 <= value < 1 << 32 else 5 if -(1 << 31) <= value < 0 else 11 if value < 0 else 10
        return struct.pack("<I" + _NUMBERS[kind], kind, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _text(value)
    if isinstance(value, (list, tuple)) and value and len({type(v) for v in value}) == 1:
        if isinstance(value[0], int) and not isinstance(value[0], bool):
            kind = 5 if all(-(1 << 31) <= v < 1 << 31 for v in value) else 11
            return struct.pack(f"<IIQ{len(value)}{_NUMBERS[kind]}", _ARRAY, kind, len(value), *value)
        parts = [_described(v, name) for v in value]
        return struct.pack("<I", _ARRAY) + parts[0][:4] + struct.pack("<Q", len(value)) + b"".join([p[4:] for p in parts])
    raise TypeError(f"save_gguf: metadata {name!r} is {value!r}; numbers, strings and lists of one of them are written")


def save_gguf(
    tensors: Mapping[str, Any], filename: str | os.PathLike[str], metadata: Mapping[str, Any] | None = None, kinds: Mapping[str, str] | str | None = None
) -> None:
    """Write tensors and metadata as a GGUF file of version 3. `kinds`: "Q8_0" or "Q4_0", for all tensors of two dims with rows of whole blocks, or by name.

    CodedBlocks are written as they are. The file gets its name at the end. TypeError for a dtype that GGUF has not.
    """
    head = [b""]
    blobs: list[bytes] = []
    offset = 0
    pairs = {"general.architecture": "flambeau", "general.alignment": 32, **(metadata or {})}
    alignment = pairs["general.alignment"]
    for name, t in tensors.items():
        kind = kinds.get(name) if isinstance(kinds, Mapping) else kinds if kinds and t.ndim == 2 and t.shape[-1] % 32 == 0 else None
        if isinstance(t, CodedBlocks):
            number, blob = _NUMBER_OF[t.kind], bytes(t.data)
        elif kind is not None:
            if t.shape[-1] % 32:
                raise ValueError(f"save_gguf: rows of {name!r}, {tuple(t.shape)}, are not whole blocks of 32")
            number, blob = _NUMBER_OF[kind], gguf_codes.encode(t.detach().float().numpy(), kind).tobytes()
        elif t.dtype in _NUMBER_OF:
            number, blob = _NUMBER_OF[t.dtype], contiguous_bytes(t)
        else:
            raise TypeError(f"save_gguf: tensor {name!r} is of {t.dtype}, which GGUF has not; convert it first with .to(dtype)")
        sizes = tuple(reversed(t.shape))
        head.append(_text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, number, offset))
        blobs.append(blob + b"\0" * (-len(blob) % alignment))
        offset += len(blobs[-1])
    head[0] = b"GGUF" + struct.pack("<IQQ", 3, len(blobs), len(pairs)) + b"".join([_text(k) + _described(v, k) for k, v in pairs.items()])
    top = b"".join(head)
    with whole_files.replacing(os.fspath(filename)) as file:
        file.write(top + b"\0" * (-len(top) % alignment))
        for blob in blobs:
            file.write(blob)
