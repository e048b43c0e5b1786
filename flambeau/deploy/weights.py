"""A library's weights as one block of bytes: a header by which the library knows them, then the tensors, each on a boundary of 64 bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from flambeau.io.storage_bytes import bytes_of, storage_of

HEADER: Final = 64  # bytes: the name of the format, its version, the length of the whole, and 32 bytes of the SHA-256 of the rest; zeros
_MAGIC: Final = b"FLAMBEAU"
_VERSION: Final = 1
_SLACK: Final = 256  # at the end: kernels may read a vector beyond it


@dataclass(frozen=True)
class Weights:
    """`content`: the block; `offsets`: where each tensor begins, by its name."""

    content: bytes
    offsets: dict[str, int]

    @property
    def tensors(self) -> int:
        """How many tensors it holds."""
        return len(self.offsets)


def pack(tensors: Sequence[tuple[str, Any]]) -> Weights:
    """The block of these tensors, row-major, in this order."""
    body, offsets = bytearray(), {}
    for name, t in tensors:
        offsets[name] = HEADER + len(body)
        plain = t.detach().contiguous()
        storage = storage_of(plain)
        first, count = plain.storage_offset() * plain.dtype.itemsize, plain.numel() * plain.dtype.itemsize
        if count:
            body += memoryview(bytes_of(storage)).cast("B")[first : first + count]
        body += bytes(-len(body) % 64)
    body += bytes(_SLACK)
    total = HEADER + len(body)
    head = _MAGIC + _VERSION.to_bytes(8, "little") + total.to_bytes(8, "little") + hashlib.sha256(body).digest()
    return Weights(head + bytes(HEADER - len(head)) + bytes(body), offsets)
