"""Batches from a worker to its parent: tensors' bytes through shared memory, the rest through a pipe.

A segment is a file in a directory that the parent made in /dev/shm; the worker fills one for each batch, and the parent
hands it back for reuse once it has copied the tensors out. Its space is reserved when it is made, so that a full /dev/shm is an
error that can be handled (the bytes then go through the pipe), and not a bus error.

A parent that is killed cannot remove its directory. It holds a lock on it, which the system takes away when the parent and its workers are gone:
so the next loader of any program finds what has no owner any more, and removes it.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import shutil
import tempfile
import weakref
from contextlib import suppress
from typing import Any, Final

from flambeau.io.storage_bytes import NAMED, bytes_of, storage_of, tensor_from_bytes
from flambeau.tensor import Tensor

_PREFIX: Final = "flambeau-batches-"
_ALIGNMENT = 64
_SMALL = 16 << 10  # bytes in all, below which a segment is not worth its page faults


class _Slot:
    """Stands for a tensor in the structure that goes through the pipe."""

    __slots__ = ("data", "name", "offset", "requires_grad", "shape")

    def __init__(self, name: str, shape: tuple[int, ...], offset: int, data: bytes | None, requires_grad: bool) -> None:
        self.name = name
        self.shape = shape
        self.offset = offset
        self.data = data
        self.requires_grad = requires_grad

    def __reduce__(self) -> Any:
        return _Slot, (self.name, self.shape, self.offset, self.data, self.requires_grad)


def replace(data: Any, kind: type, function: Any) -> Any:
    """`data` with every object of the class `kind`, in any nesting of plain containers, replaced by `function` of it."""
    if type(data) is kind and not (kind is Tensor and data.is_meta):  # tensors of other classes have more than elements
        return function(data)
    if type(data) in (list, set):
        return type(data)(replace(item, kind, function) for item in data)
    if isinstance(data, tuple):
        items = [replace(item, kind, function) for item in data]
        return type(data)(*items) if hasattr(data, "_fields") else tuple(items)
    if type(data) is dict:
        return {key: replace(value, kind, function) for key, value in data.items()}
    return data  # an object of the user's goes through pickle, with its tensors


class Outbox:
    """The worker's side."""

    def __init__(self, directory: str, worker: int) -> None:
        self.directory = directory
        self.prefix = f"worker-{worker}-"
        self.count = 0
        self.free: dict[str, mmap.mmap] = {}
        self.lent: dict[str, mmap.mmap] = {}

    def take_back(self, names: list[str]) -> None:
        """The parent has read these segments."""
        for name in names:
            self.free[name] = self.lent.pop(name)

    def pack(self, batch: Any) -> tuple[str | None, Any]:
        """(segment or None, structure with slots in the place of tensors)."""
        found: list[Tensor] = []
        replace(batch, Tensor, found.append)
        parts = [t.detach().contiguous() for t in found]
        offsets, end = [], 0
        for t in parts:
            offsets.append(end)
            end = -(-(end + t.nbytes) // _ALIGNMENT) * _ALIGNMENT
        name = self._segment(end) if end > _SMALL else None
        slots = []
        for original, t, offset in zip(found, parts, offsets, strict=True):
            start = t.storage_offset() * t.element_size()
            raw = bytes_of(storage_of(t))[start : start + t.nbytes]
            if name is not None:
                self.lent[name][offset : offset + t.nbytes] = raw.tobytes()
            data = None if name is not None else raw.tobytes()
            slots.append(_Slot(t.dtype.name, tuple(t.shape), offset, data, original.requires_grad))
        order = iter(slots)
        return name, replace(batch, Tensor, lambda _: next(order))

    def _segment(self, nbytes: int) -> str | None:
        """A segment of at least this size, now lent; None if there is no room."""
        for name, memory in self.free.items():
            if len(memory) >= nbytes:
                self.lent[name] = self.free.pop(name)
                return name
        name = f"{self.prefix}{self.count}"
        self.count += 1
        path = os.path.join(self.directory, name)
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(handle, 0, nbytes)
            else:
                os.ftruncate(handle, nbytes)
            self.lent[name] = mmap.mmap(handle, nbytes)
        except OSError:
            os.unlink(path)
            return None
        finally:
            os.close(handle)
        return name


class Inbox:
    """The parent's side: owns the directory, and removes it in the end."""

    def __init__(self) -> None:
        room = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()
        _remove_unowned(room)
        lock, self.directory = _locked_directory(room)
        self.maps: dict[str, mmap.mmap] = {}
        self._owner = os.getpid()
        self._finalizer = weakref.finalize(self, _remove, self.directory, lock, self._owner)

    def unpack(self, name: str | None, batch: Any) -> Any:
        """The batch with its tensors, copied out of the segment."""
        memory: Any = None
        if name is not None:
            memory = self.maps.get(name)
            if memory is None:
                with open(os.path.join(self.directory, name), "r+b") as file:
                    memory = self.maps[name] = mmap.mmap(file.fileno(), 0)

        def tensor(slot: _Slot) -> Tensor:
            data: Any = slot.data
            d = NAMED[slot.name]
            if data is None:
                nbytes = d.itemsize
                for n in slot.shape:
                    nbytes *= n
                with memoryview(memory) as view:
                    t = tensor_from_bytes(view[slot.offset : slot.offset + nbytes], d, slot.shape)
            else:
                t = tensor_from_bytes(data, d, slot.shape)
            return t.requires_grad_() if slot.requires_grad else t

        return replace(batch, _Slot, tensor)

    def close(self) -> None:
        """Unmap and remove everything."""
        self.maps.clear()
        self._finalizer()


def _locked_directory(room: str) -> tuple[int, str]:
    """A new directory whose name begins with this process's number, and the open file that holds its lock."""
    while True:
        path = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=room)
        lock = os.open(path, os.O_RDONLY)
        with suppress(OSError):  # a file system without locks: litter stays there
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.isdir(path):
            return lock, path
        os.close(lock)  # another program took it for litter before it was locked


def _remove_unowned(room: str) -> None:
    """Remove the directories of parents that are no longer there."""
    for name in os.listdir(room):
        path = os.path.join(room, name)
        if name.startswith(_PREFIX):
            with suppress(OSError):  # another user's, or gone meanwhile, or in use
                lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
                finally:
                    os.close(lock)


def _remove(directory: str, lock: int, owner: int) -> None:
    if os.getpid() == owner:  # a forked child must not remove its parent's segments
        shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)
