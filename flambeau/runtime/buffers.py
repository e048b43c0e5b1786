"""Memory for tensors: 64-byte aligned buffers, pooled by size class, so that a fresh result pays no page faults.

Size classes: powers of two up to 1 MiB, above that steps of an eighth of the power of two. Large blocks are anonymous
mappings that ask for huge pages.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Any, Final

from flambeau.runtime import target
from flambeau.statistics import counters

ALIGNMENT: Final = 64
_MAPPED_FROM: Final = 1 << 20  # bytes; smaller blocks come from ctypes
_SLACK: Final = 256  # bytes before the end of a block that a masked vector access may touch

_free: dict[int, list[tuple[int, Any]]] = {}
_kept = 0
_keep_limit = target.physical_memory() // 3


class Buffer:
    """`nbytes` bytes at `address`; gives its block back to the pool when nobody holds it any more."""

    __slots__ = ("__weakref__", "_block", "_size", "address", "nbytes", "owner")

    address: int
    nbytes: int
    owner: Any

    def __del__(self) -> None:
        size = self._size
        if size:
            _give_back(size, self.address, self._block)


def size_class(nbytes: int) -> int:
    """The size of the block that holds `nbytes`."""
    if nbytes <= 64:
        return 64
    power = 1 << (nbytes - 1).bit_length()
    if power <= _MAPPED_FROM:
        return power
    step = power >> 4
    return -(-nbytes // step) * step


def _give_back(size: int, address: int, block: Any) -> None:
    global _kept
    try:
        if _kept + size > _keep_limit:
            return
        _kept += size
        blocks = _free.get(size)
        if blocks is None:
            blocks = _free.setdefault(size, [])
        blocks.append((address, block))
    except (TypeError, AttributeError):  # the interpreter is going down and has cleared this module
        return


_new = Buffer.__new__


def allocate(nbytes: int) -> Buffer:
    """A buffer of uninitialised memory. RuntimeError (PyTorch's) if there is not so much."""
    global _kept
    size = size_class(nbytes)
    b = _new(Buffer)
    b.nbytes = nbytes
    b.owner = None
    b._size = 0
    blocks = _free.get(size)
    if blocks:
        try:
            b.address, b._block = blocks.pop()
            _kept -= size
            counters.bytes_from_pool += nbytes
            b._size = size
            return b
        except IndexError:  # another thread was faster
            pass
    b.address, b._block = _from_system(size)
    b._size = size
    counters.bytes_from_system += size
    return b


def _from_system(size: int) -> tuple[int, Any]:
    if size <= _MAPPED_FROM:
        block = ctypes.create_string_buffer(size + ALIGNMENT + _SLACK)
        start = ctypes.addressof(block)
        return (start + ALIGNMENT - 1) & -ALIGNMENT, block
    check_available(size)
    try:
        mapping = mmap.mmap(-1, size + mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, ValueError, OverflowError):
        raise _out_of_memory(size) from None
    if hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            mapping.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            pass
    return ctypes.addressof(ctypes.c_char.from_buffer(mapping)), mapping


def _out_of_memory(nbytes: int) -> RuntimeError:
    return RuntimeError(
        f"DefaultCPUAllocator: can't allocate memory: you tried to allocate {nbytes} bytes. Error code 12 (Cannot allocate "
        f"memory): the machine has {target.physical_memory()} bytes; use a smaller tensor, batch or dtype"
    )


def check_available(nbytes: int) -> None:
    """RuntimeError if the machine can never hold so many bytes."""
    if nbytes > target.physical_memory():
        raise _out_of_memory(nbytes)


def foreign(address: int, nbytes: int, owner: Any) -> Buffer:
    """Memory that somebody else owns; `owner` is kept alive."""
    b = _new(Buffer)
    b.address = address
    b.nbytes = nbytes
    b.owner = owner
    b._size = 0
    b._block = None
    return b


def empty_pool() -> int:
    """Give all kept blocks back to the system; returns their bytes."""
    global _kept
    freed = sum(size * len(blocks) for size, blocks in _free.items())
    _free.clear()
    _kept = 0
    return freed


def statistics() -> dict[str, int]:
    """Bytes that the pool keeps for reuse, and the most it would keep."""
    return {"kept_bytes": sum(s * len(b) for s, b in _free.items()), "limit_bytes": _keep_limit}
