"""Memory for tensors: 64-byte aligned buffers, pooled by size class, so that a fresh result pays no page faults.

Classes: powers of two up to 1 MiB, above that steps of an eighth of the power of two below. Blocks above 1 MiB are
anonymous mappings that ask for huge pages. The pool keeps as many freed bytes of them as were lately in use at once, at most a third of the memory;
above that, the class unused for longest gives. Arenas (a plan's temporaries, which nobody sees outside of its run) above 1 MiB have no classes: a run takes any
free arena that is large enough, so that a process keeps one for each run at the same time, and not one for each plan.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Final

from flambeau.runtime import resources
from flambeau.statistics import counters

ALIGNMENT: Final = 64
_SMALL: Final = 1 << 20  # bytes: up to here blocks come from ctypes and have classes of powers of two
_SMALL_KEPT: Final = 64 << 20  # bytes that a small class keeps at most
_SLACK: Final = 256  # bytes after the end of a block that may be read (a vector that straddles the end)
_HUGE_PAGE: Final = 2 << 20  # bytes, on x86-64 and on AArch64 with 4 KiB pages
_LOOK_FROM: Final = 256 << 20  # from this size on, look first whether the kept blocks must make room
_KEEP_LIMIT: Final = resources.physical_memory() // 3
_KEPT_ALWAYS: Final = 256 << 20  # bytes of large blocks
_WINDOW: Final = 10_000  # large blocks that come back: what is "lately" (several steps of a large network)


class _Use:
    """How many bytes of large blocks are in use, and the most at once in this window and in the one before."""

    __slots__ = ("before", "bytes", "most", "returns")

    def __init__(self) -> None:
        self.bytes = self.most = self.before = self.returns = 0

    def take(self, size: int) -> None:
        """A block goes out. Threads may lose an addition among them: then a little more or less is kept."""
        self.bytes += size
        if self.bytes > self.most:
            self.most = self.bytes

    def give(self, size: int) -> None:
        """A block comes back."""
        self.bytes = max(self.bytes - size, 0)
        self.returns += 1
        if self.returns >= _WINDOW:
            self.returns, self.before, self.most = 0, self.most, self.bytes

    def limit(self) -> int:
        """How many free bytes are worth keeping: what a step takes that is like those before it."""
        return min(_KEEP_LIMIT, max(_KEPT_ALWAYS, self.most, self.before))


_use: Any = _Use()
_Block = tuple[int, Any]  # (address, what owns the memory; for an arena, that and its bytes)
_clock: Any = count()


class _Class(list[_Block]):
    """The free blocks of one size."""

    __slots__ = ("limit", "size", "used")

    def __init__(self, size: int, limit: int) -> None:
        self.size = size
        self.limit = limit  # blocks that are kept without further thought
        self.used = 0  # time of the last use (large classes)

    def full(self, block: _Block) -> None:
        """Keep a block beyond `limit`: a large class does, if another gives way."""
        if _use is None or _clock is None or self.size <= _SMALL:  # None: the interpreter is going, the module's names are gone
            return
        self.used = next(_clock)
        self.append(block)
        _use.give(self.bytes_of(block))
        classes = [*list(_large.values()), _arenas]
        limit = _use.limit()
        while sum([c.kept() for c in classes]) > limit:
            oldest = min([c for c in classes if c], key=_last_use, default=None)
            if oldest is None:
                return
            with suppress(IndexError):  # another thread took it
                oldest.pop()

    def kept(self) -> int:
        """Bytes of the free blocks."""
        return self.size * len(self)

    def bytes_of(self, block: _Block) -> int:
        """Bytes of one of its blocks."""
        return self.size


class _Arenas(_Class):
    """The free arenas, of any sizes above that of small blocks."""

    __slots__ = ()

    def kept(self) -> int:
        return sum([size for _, (_, size) in self.copy()])

    def bytes_of(self, block: _Block) -> int:
        return _arena_size(block)

    def take(self, nbytes: int) -> _Block | None:
        """The smallest that holds `nbytes`; if none does, None, and the largest goes back to the system: a larger one takes its place."""
        free = sorted(self.copy(), key=_arena_size)
        for block in [b for b in free if _arena_size(b) >= nbytes] or free[-1:]:
            with suppress(ValueError):  # another thread took it
                self.remove(block)
                return block if _arena_size(block) >= nbytes else None
        return None


def _arena_size(block: _Block) -> int:
    size: int = block[1][1]
    return size


def _last_use(c: _Class) -> int:
    return c.used


# Small classes by the bit length of (bytes - 1) | 63; 64 bytes is the least, also for 0 bytes, where that gives 1.
_small: Final = [_Class(size := max(64, 1 << bits), max(_SMALL_KEPT // size, 1)) for bits in range(21)]
_large: Final[dict[int, _Class]] = {}
_arenas: Final = _Arenas(_SMALL + 1, 0)


class Buffer:
    """`nbytes` bytes at `address`; gives its block back to the pool when nobody holds it any more.

    `owner` is kept alive with it: what owns foreign memory, or whatever the holder likes.
    """

    __slots__ = ("__weakref__", "_block", "_class", "address", "nbytes", "owner")

    address: int
    nbytes: int
    owner: Any
    _class: _Class | None
    _block: _Block

    def __del__(self) -> None:
        home = self._class
        if home is not None:
            if len(home) < home.limit:
                home.append(self._block)
            else:
                home.full(self._block)

    def __repr__(self) -> str:
        return f"<Buffer of {self.nbytes} bytes at {self.address:#x}>"


def size_class(nbytes: int) -> int:
    """The size of the block that holds `nbytes`."""
    if nbytes <= _SMALL:
        return _small[((nbytes - 1) | 63).bit_length()].size
    step = 1 << ((nbytes - 1).bit_length() - 4)
    return -(-nbytes // step) * step


_new: Final = Buffer.__new__
_allocators: Final[dict[int, Callable[[], Buffer]]] = {}  # native ones, by the number of bytes
native_allocator: Callable[[_Class, int, Callable[[], Buffer]], Callable[[], Buffer]] | None = None  # ops/known_edge.py makes them


def addresses(buffers: list[Buffer]) -> list[int]:
    """The addresses of some buffers; known_edge.py has it in native code."""
    return [b.address for b in buffers]


def allocate(nbytes: int) -> Buffer:
    """A buffer of uninitialised memory, also for 0 bytes. RuntimeError (PyTorch's) if there is not so much."""
    if nbytes <= _SMALL:
        home = _small[((nbytes - 1) | 63).bit_length()]
    else:
        home = _large_class(nbytes)
    try:
        block = home.pop()
        counters.bytes_from_pool += nbytes
    except IndexError:
        block = _from_system(home.size, nbytes)
        counters.bytes_from_system += home.size
    if nbytes > _SMALL:
        _use.take(home.size)
    return _buffer(nbytes, home, block)


def _buffer(nbytes: int, home: _Class, block: _Block) -> Buffer:
    b = _new(Buffer)
    b.nbytes = nbytes
    b.address = block[0]
    b.owner = None
    b._class = home
    b._block = block
    return b


def arena(nbytes: int) -> Buffer:
    """A buffer of uninitialised memory for the temporaries of one run; it must not outlive the run by long."""
    if nbytes <= _SMALL:
        return allocate(nbytes)
    block = _arenas.take(nbytes)
    if block is not None:
        counters.bytes_from_pool += nbytes
    else:
        size = size_class(nbytes)
        address, mapping = _from_system(size, nbytes)
        block = address, (mapping, size)
        counters.bytes_from_system += size
    _use.take(_arena_size(block))
    return _buffer(nbytes, _arenas, block)


def allocator(nbytes: int, *, temporary: bool = False) -> Callable[[], Buffer]:
    """`allocate` (or `arena`) for one size: what depends on the size only is done once."""
    if nbytes > _SMALL:
        return partial(arena if temporary else allocate, nbytes)
    home = _small[((nbytes - 1) | 63).bit_length()]
    found = _allocators.get(nbytes)
    if found is not None:
        return found
    pop = home.pop

    def allocate_small() -> Buffer:
        try:
            block = pop()
            counters.bytes_from_pool += nbytes
        except IndexError:
            block = _from_system(home.size, nbytes)
            counters.bytes_from_system += home.size
        b = _new(Buffer)
        b._block = block
        b._class = home
        b.address = block[0]
        b.nbytes = nbytes
        b.owner = None
        return b

    if native_allocator is None:
        return allocate_small
    return _allocators.setdefault(nbytes, native_allocator(home, nbytes, allocate_small))


def _large_class(nbytes: int) -> _Class:
    size = size_class(nbytes)
    home = _large.get(size)
    if home is None:
        home = _large.setdefault(size, _Class(size, 0))
    home.used = next(_clock)
    return home


def _from_system(size: int, nbytes: int) -> _Block:
    if size <= _SMALL:
        block = ctypes.create_string_buffer(size + ALIGNMENT + _SLACK)
        return (ctypes.addressof(block) + ALIGNMENT - 1) & -ALIGNMENT, block
    check_available(nbytes)
    if size >= _LOOK_FROM and size > resources.available_memory():
        empty_pool()
    alignment = _HUGE_PAGE if size >= 2 * _HUGE_PAGE else mmap.PAGESIZE
    length = size + _SLACK + alignment
    try:
        mapping = _map(length)
    except (OSError, ValueError, OverflowError):
        empty_pool()
        try:
            mapping = _map(length)
        except (OSError, ValueError, OverflowError):
            raise _out_of_memory(nbytes) from None
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without them
            mapping.madvise(mmap.MADV_HUGEPAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
    return (start + alignment - 1) & -alignment, mapping


def _map(length: int) -> mmap.mmap:
    return mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _out_of_memory(nbytes: int) -> RuntimeError:
    if nbytes >= 1 << 63:
        return RuntimeError(f"Storage size calculation overflowed: {nbytes} bytes are more than 63 bits can count; use a smaller tensor")
    return RuntimeError(
        f"[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate {nbytes} bytes. Error "
        f"code 12 (Cannot allocate memory): the process may use {resources.physical_memory()} bytes in all; use a smaller "
        "tensor, batch or dtype"
    )


def check_available(nbytes: int) -> None:
    """RuntimeError (PyTorch's) if the machine can never hold so many bytes."""
    if nbytes > resources.physical_memory():
        raise _out_of_memory(nbytes)


def foreign(address: int, nbytes: int, owner: Any) -> Buffer:
    """Memory that somebody else owns; `owner` is kept alive."""
    b = _new(Buffer)
    b.address = address
    b.nbytes = nbytes
    b.owner = owner
    b._class = None
    return b


def _classes() -> list[_Class]:
    return [*_small, *list(_large.values()), _arenas]


def empty_pool() -> int:
    """Give all kept blocks back to the system; returns their bytes."""
    freed = 0
    for home in _classes():
        while home:
            before = home.kept()
            with suppress(IndexError):  # another thread took it
                home.pop()
                freed += before - home.kept()
    return freed


def statistics() -> dict[str, int]:
    """`kept_bytes` that the pool keeps for reuse, the `arena_bytes` above 1 MiB among them, and the `limit_bytes` of large blocks
    that it would keep now."""
    return {"kept_bytes": sum([c.kept() for c in _classes()]), "arena_bytes": _arenas.kept(), "limit_bytes": _use.limit()}
