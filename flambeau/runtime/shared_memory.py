"""Memory that several processes see: anonymous shared files, named ones, and mappings of a user's files, as Buffers.

A Block is one mapping. What lies under it has no name in the file system ("file_descriptor": the kernel frees it when the last
process has closed it), or a name that the process that made it removes at its end ("file_system").
"""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
import weakref
from contextlib import suppress
from typing import Any

from flambeau.runtime.buffers import Buffer, foreign

_FOLDER = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()


class Block:
    """A mapping of `nbytes` bytes of an open file; closes the file with itself. `name`: the path of a named one."""

    def __init__(self, handle: int, nbytes: int, access: int = mmap.ACCESS_WRITE, name: str | None = None, owner: bool = False) -> None:
        self.handle = handle
        self.nbytes = nbytes
        self.name = name
        self.process = os.getpid()  # that opened it: `handle` is a number there, and in what it forks
        try:
            self.mapping = mmap.mmap(handle, nbytes, access=access) if nbytes else mmap.mmap(-1, 1)
        except BaseException:
            os.close(handle)
            raise
        weakref.finalize(self, _close, handle, name if owner else None, os.getpid())

    @property
    def identity(self) -> tuple[int, int]:
        """The same for all mappings of one file."""
        status = os.fstat(self.handle)
        return status.st_dev, status.st_ino

    def buffer(self) -> Buffer:
        """The block as a Buffer that keeps it alive."""
        first = ctypes.c_char.from_buffer(self.mapping)
        return foreign(ctypes.addressof(first), self.nbytes, Owner(self, first))


class Owner:
    """What a Buffer over a block holds: the block, and the pointer into its mapping, which keeps the mapping from closing."""

    __slots__ = ("block", "pointer")

    def __init__(self, block: Block, pointer: Any) -> None:
        self.block = block
        self.pointer = pointer


def _close(handle: int, name: str | None, process: int) -> None:
    with suppress(OSError):
        os.close(handle)
    if name is not None and os.getpid() == process:
        with suppress(OSError):
            os.unlink(name)


def anonymous(nbytes: int) -> Block:
    """New shared memory of zeros without a name. RuntimeError where there is no room."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("flambeau", os.MFD_CLOEXEC)
    else:
        handle, path = tempfile.mkstemp(prefix="flambeau-", dir=_FOLDER)
        os.unlink(path)
    return _sized(handle, nbytes, None)


def named(nbytes: int) -> Block:
    """New shared memory of zeros under a name of its own, which lasts as long as this process holds it."""
    handle, path = tempfile.mkstemp(prefix="flambeau-", dir=_FOLDER)
    return _sized(handle, nbytes, path)


def _sized(handle: int, nbytes: int, name: str | None) -> Block:
    try:  # reserve the space now: a full memory file system is an error here, and not a bus error later
        if nbytes and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(handle, 0, nbytes)
        else:
            os.ftruncate(handle, nbytes)
    except OSError as error:
        _close(handle, name, os.getpid())
        raise RuntimeError(f"unable to allocate shared memory of {nbytes} bytes: {error.strerror} ({error.errno})") from error
    return Block(handle, nbytes, name=name, owner=name is not None)


def from_handle(handle: int, nbytes: int) -> Block:
    """Shared memory that another process made, by an open file, which the block owns from now on."""
    return Block(handle, nbytes)


def from_name(name: str, nbytes: int) -> Block:
    """Shared memory that another process made, by its name."""
    return Block(os.open(name, os.O_RDWR | getattr(os, "O_CLOEXEC", 0)), nbytes, name=name)


def from_file(path: str, shared: bool, nbytes: int) -> Block:
    """A user's file. `shared`: writes go to the file, which is made or made longer where needed; else they stay here."""
    flags = os.O_RDWR | os.O_CREAT if shared else os.O_RDONLY
    mode = "read-write" if shared else "read-only"
    try:
        handle = os.open(path, flags | getattr(os, "O_CLOEXEC", 0), 0o666)
    except OSError as error:
        raise RuntimeError(f"unable to open file <{path}> in {mode} mode: {error.strerror} ({error.errno})") from error
    size = os.fstat(handle).st_size
    if size < nbytes:
        if not shared:
            os.close(handle)
            raise RuntimeError(f"file <{path}> size <{size}> is smaller than the required mapping size <{nbytes}>")
        os.ftruncate(handle, nbytes)
    return Block(handle, nbytes, mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY, path)


def block_of(buffer: Buffer | None) -> Block | None:
    """The block under a buffer; None for memory of this process only."""
    owner = None if buffer is None else buffer.owner
    return owner.block if type(owner) is Owner else None
