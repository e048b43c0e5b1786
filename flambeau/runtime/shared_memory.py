"""Memory that several processes see: anonymous shared files, named ones, and mappings of a user's files, as Buffers.

A Block is one mapping. What lies under it has no name in the file system ("file_descriptor": the kernel frees it when the last
process has closed it), or a name ("file_system"). Then every process that holds it, and every message on its way, has a name (a hard
link) of its own, which it removes; so the memory lives as long as somebody wants it. What processes that were killed left behind, the
main process of the program removes at its end.
"""

from __future__ import annotations

import atexit
import ctypes
import itertools
import mmap
import os
import tempfile
import weakref
from contextlib import suppress
from typing import Any

from flambeau.runtime.buffers import Buffer, foreign

_OWNER = "FLAMBEAU_SHARED_MEMORY_OWNER"  # environment variable: the process id of the program's main process
_numbers = itertools.count()
_FOLDER = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()


class Block:
    """A mapping of `nbytes` bytes of an open file, which it closes. `name`: its path; `owner`: it removes that path."""

    def __init__(self, handle: int, nbytes: int, access: int = mmap.ACCESS_WRITE, name: str | None = None, owner: bool = False) -> None:
        self.handle = handle
        self.nbytes = nbytes
        self.name = name
        self.has_links = owner
        self.shared = access != mmap.ACCESS_COPY  # else changes stay in this process
        try:
            self.mapping = mmap.mmap(handle, nbytes, access=access) if nbytes else mmap.mmap(-1, 1)
        except BaseException:
            os.close(handle)
            raise
        weakref.finalize(self, _close, handle)
        if owner:
            from multiprocessing.util import Finalize  # runs at the end of multiprocessing's processes too, and not in forks

            Finalize(self, _unlink, (name,), exitpriority=0)

    @property
    def identity(self) -> tuple[int, int]:
        """The same for all mappings of one file."""
        status = os.fstat(self.handle)
        return status.st_dev, status.st_ino

    def link(self) -> str:
        """Another name of a named block, for a message to another process."""
        name = _new_name()
        assert self.name is not None
        os.link(self.name, name)
        return name

    def buffer(self) -> Buffer:
        """The block as a Buffer that keeps it alive."""
        first = ctypes.c_char.from_buffer(self.mapping)
        return foreign(ctypes.addressof(first), self.nbytes, Owner(self, first) if self.shared else (self, first))


class Owner:
    """What a Buffer over a block holds: the block, and the pointer into its mapping, which keeps the mapping from closing."""

    __slots__ = ("block", "pointer")

    def __init__(self, block: Block, pointer: Any) -> None:
        self.block = block
        self.pointer = pointer


def _close(handle: int) -> None:
    with suppress(OSError):
        os.close(handle)


def _unlink(name: str) -> None:
    with suppress(OSError):
        os.unlink(name)


def note_owner() -> None:
    """Make this the process that cleans up, unless one that started it does."""
    if _OWNER not in os.environ:
        os.environ[_OWNER] = str(os.getpid())
        atexit.register(_clean_up, os.getpid())


def _clean_up(process: int) -> None:
    if os.getpid() == process:
        for name in os.listdir(_FOLDER):
            if name.startswith(f"flambeau-{process}-"):
                _unlink(os.path.join(_FOLDER, name))


def _new_name() -> str:
    note_owner()
    return os.path.join(_FOLDER, f"flambeau-{os.environ[_OWNER]}-{os.getpid()}-{next(_numbers)}")


def anonymous(nbytes: int) -> Block:
    """New shared memory of zeros without a name. RuntimeError where there is no room."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("flambeau", os.MFD_CLOEXEC)
    else:
        handle, path = tempfile.mkstemp(prefix="flambeau-", dir=_FOLDER)
        os.unlink(path)
    return _sized(handle, nbytes, None)


def named(nbytes: int) -> Block:
    """New shared memory of zeros under a name."""
    name = _new_name()
    return _sized(os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600), nbytes, name)


def _sized(handle: int, nbytes: int, name: str | None) -> Block:
    try:  # reserve the space now: a full memory file system is an error here, and not a bus error later
        if nbytes and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(handle, 0, nbytes)
        else:
            os.ftruncate(handle, nbytes)
    except OSError as error:
        os.close(handle)
        if name is not None:
            _unlink(name)
        raise RuntimeError(f"unable to allocate shared memory of {nbytes} bytes: {error.strerror} ({error.errno})") from error
    return Block(handle, nbytes, name=name, owner=name is not None)


def from_handle(handle: int, nbytes: int) -> Block:
    """Shared memory that another process made, by an open file, which the block owns from now on."""
    return Block(handle, nbytes)


def from_name(name: str, nbytes: int) -> Block:
    """Shared memory that another process made, by a name (`Block.link`) that is the block's own from now on."""
    return Block(os.open(name, os.O_RDWR | getattr(os, "O_CLOEXEC", 0)), nbytes, name=name, owner=True)


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
