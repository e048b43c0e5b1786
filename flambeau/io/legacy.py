"""The formats that PyTorch wrote before version 1.6: both are read, the first is written.

Pickles one after another, then the storages (0.1.10 to 1.5, and still with _use_new_zipfile_serialization=False):

    pickle: magic number    pickle: protocol 1001    pickle: system    pickle: the object
    pickle: keys of storages    for each key: int64 number of elements, then the elements

A tar archive (before 0.1.10) of three members:

    storages    pickle: count; for each: pickle (key, location, class), int64 number of elements, the elements; pickle: views
    tensors     pickle: count; for each: pickle (key, storage's key, class), int32 dims, 4 bytes, int64 sizes, strides, offset
    pickle      the object, whose tensors are persistent ids
"""

from __future__ import annotations

import os
import pickle
import struct
import tarfile
from collections.abc import Callable, Sequence
from pickle import UnpicklingError
from typing import Any, BinaryIO

from flambeau.io import globals as names
from flambeau.io.options import SETTINGS
from flambeau.io.storage_bytes import bytes_of, new_storage
from flambeau.runtime.buffers import foreign
from flambeau.storage import TypedStorage, UntypedStorage
from flambeau.trace.storage import Storage

MAGIC = 0x1950A86A20F9469CFC6C
PROTOCOL = 1001
Unpickle = Callable[[BinaryIO, Callable[[Any], Any]], Any]
Restore = Callable[[Any, str], Any]


def _no_storages(identity: Any) -> Any:
    raise UnpicklingError("the head of the file refers to a storage")


def _part(whole: TypedStorage, offset: int, numel: int) -> TypedStorage:
    """Some elements of a storage as a storage over the same memory."""
    if not 0 <= offset <= offset + numel <= whole.size():
        raise UnpicklingError(f"a view of elements {offset} to {offset + numel} lies outside its storage of {whole.size()}")
    engine = whole.untyped()._storage
    assert engine.buffer is not None
    size = whole.dtype.itemsize
    storage = Storage(foreign(engine.buffer.address + offset * size, numel * size, engine.buffer))
    storage.external = engine.external = True  # two storages lie over one memory: nothing about it is left pending
    return TypedStorage(wrap_storage=UntypedStorage(wrap=storage), dtype=whole.dtype)


def write(file: BinaryIO, data: bytes, storages: Sequence[tuple[UntypedStorage, int]], protocol: int) -> None:
    """A legacy file of an object's pickle and the storages, each with its number of elements, that it names by their places."""
    system = {"protocol_version": PROTOCOL, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}
    for head in (MAGIC, PROTOCOL, system):
        pickle.dump(head, file, protocol)
    file.write(data)
    pickle.dump([str(key) for key in range(len(storages))], file, protocol)
    for storage, numel in storages:
        file.write(struct.pack("<q", numel))
        file.write(bytes(storage.nbytes()) if SETTINGS.skips_data else memoryview(storage._bytes()))


def read(file: BinaryIO, unpickle: Unpickle, restore: Restore) -> Any:
    """The object in a legacy file; `unpickle(stream, persistent_load)` reads one pickle."""
    start = file.tell()
    size = file.seek(0, os.SEEK_END) - start
    file.seek(start)
    try:
        magic = unpickle(file, _no_storages)
    except UnpicklingError as error:
        raise UnpicklingError(f"load: the file is neither a zip nor a legacy checkpoint of PyTorch: {error}") from error
    if magic != MAGIC:
        raise RuntimeError("Invalid magic number; corrupt file?")
    if unpickle(file, _no_storages) != PROTOCOL:
        raise RuntimeError("Invalid protocol version: the file was not written by torch.save")
    system = unpickle(file, _no_storages)
    if isinstance(system, dict) and system.get("little_endian") is False:
        raise RuntimeError("load: legacy files of big-endian machines are not supported")
    storages: dict[str, TypedStorage] = {}
    views: dict[Any, TypedStorage] = {}

    def persistent(identity: Any) -> Any:
        from flambeau.io.checkpoint import readable, storage_identity

        if isinstance(identity, tuple) and len(identity) > 1 and readable(identity[0]) == "module":
            return identity[1]  # a class, with its source, which is not compared
        d, key, numel = storage_identity(identity)
        if numel * d.itemsize > size and not SETTINGS.skips_data:
            raise UnpicklingError(f"the storage {key} of {numel} elements is larger than the file")
        if key not in storages:
            untyped = UntypedStorage(wrap=new_storage(numel * d.itemsize))
            untyped.fill_(0)
            storages[key] = TypedStorage(wrap_storage=restore(untyped, str(readable(identity[3]))), dtype=d)
        elif storages[key].dtype is not d or storages[key].size() != numel:
            raise UnpicklingError(f"the storage {key} is described in two ways")
        if len(identity) <= 5 or identity[5] is None:
            return storages[key]
        view = identity[5]
        if not isinstance(view, tuple) or len(view) != 3 or type(view[1]) is not int or type(view[2]) is not int:
            raise UnpicklingError("the file has a malformed view of a storage")
        if view[0] not in views:
            views[view[0]] = _part(storages[key], view[1], view[2])
        return views[view[0]]

    result = unpickle(file, persistent)
    keys = unpickle(file, _no_storages)
    if isinstance(keys, list):
        keys = [key.decode("ascii", "replace") if isinstance(key, bytes) else key for key in keys]
    if not isinstance(keys, list) or any(key not in storages for key in keys):
        raise UnpicklingError("the file's list of storages does not fit its object")
    if SETTINGS.skips_data:
        return result
    for key in keys:
        target = storages[key]
        head = file.read(8)
        if len(head) != 8 or struct.unpack("<q", head)[0] != target.size():
            raise UnpicklingError(f"the storage {key} has another size than the object says, or the file is truncated")
        _fill(target, file)
    return result


def _fill(target: TypedStorage, file: BinaryIO) -> None:
    """The elements of a storage, which come next in the file."""
    nbytes = target.nbytes()
    data = file.read(nbytes)
    if len(data) != nbytes:
        raise UnpicklingError(f"the file is truncated in a storage of {nbytes} bytes")
    if nbytes:
        import numpy

        bytes_of(target.untyped()._observed())[...] = numpy.frombuffer(data, numpy.uint8)


def is_tar(file: BinaryIO) -> bool:
    """Whether a tar archive starts here."""
    start = file.tell()
    head = file.read(512)
    file.seek(start)
    return len(head) == 512 and head[257:262] == b"ustar"


def read_tar(file: BinaryIO, unpickle: Unpickle, restore: Restore) -> Any:
    """The object in a tar archive. Its pickles are executed."""
    objects: dict[int, Any] = {}
    try:
        with tarfile.open(fileobj=file, mode="r:") as archive:
            members = {}
            for name in ("storages", "tensors", "pickle"):
                member: Any = archive.extractfile(name)
                members[name] = member
            stream = members["storages"]
            for _ in range(unpickle(stream, _no_storages)):
                key, location, kind = unpickle(stream, _no_storages)
                (numel,) = struct.unpack("<q", stream.read(8))
                untyped = UntypedStorage(wrap=new_storage(numel * kind.dtype.itemsize))
                objects[key] = TypedStorage(wrap_storage=restore(untyped, location), dtype=kind.dtype)
                _fill(objects[key], stream)
            for target, root, offset, numel in unpickle(stream, _no_storages):
                objects[target] = _part(objects[root], offset, numel)
            stream = members["tensors"]
            for _ in range(unpickle(stream, _no_storages)):
                key, storage, _ = unpickle(stream, _no_storages)
                (ndim,) = struct.unpack("<i4x", stream.read(8))
                layout = struct.unpack(f"<{2 * ndim + 1}q", stream.read(8 * (2 * ndim + 1)))
                objects[key] = names.rebuild_tensor(objects[storage], layout[-1], layout[:ndim], layout[ndim : 2 * ndim])

            def persistent(identity: Any) -> Any:
                return identity[0] if isinstance(identity, tuple) else objects[int(identity)]

            return unpickle(members["pickle"], persistent)
    except (tarfile.TarError, KeyError, struct.error, AttributeError, TypeError) as error:
        raise RuntimeError(f"load: the tar archive is no legacy checkpoint, or damaged: {type(error).__name__}: {error}") from error
