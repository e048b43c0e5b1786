"""Reading of the format that PyTorch wrote before version 1.6: pickles one after another, then the storages.

    pickle: magic number    pickle: protocol 1001    pickle: system    pickle: the object
    pickle: keys of storages    for each key: int64 number of elements, then the elements
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pickle import UnpicklingError
from typing import Any, BinaryIO

from flambeau.io import globals as names
from flambeau.io.storage_bytes import bytes_of, new_storage

MAGIC = 0x1950A86A20F9469CFC6C
PROTOCOL = 1001


def _no_storages(identity: Any) -> Any:
    raise UnpicklingError("the head of the file refers to a storage")


def read(file: BinaryIO, unpickle: Callable[[BinaryIO, Any], Any]) -> Any:
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
    storages: dict[str, names.TypedStorage] = {}

    def persistent(identity: Any) -> names.TypedStorage:
        from flambeau.io.checkpoint import storage_identity

        d, key, numel = storage_identity(identity)
        if len(identity) > 5 and identity[5] is not None:
            raise UnpicklingError("the file has views of storages, which only PyTorch before 0.4 wrote")
        if numel * d.itemsize > size:
            raise UnpicklingError(f"the storage {key} of {numel} elements is larger than the file")
        if key not in storages:
            storages[key] = names.TypedStorage(new_storage(numel * d.itemsize), d, numel)
            bytes_of(storages[key].storage)[...] = 0
        elif storages[key].dtype is not d or storages[key].numel != numel:
            raise UnpicklingError(f"the storage {key} is described in two ways")
        return storages[key]

    result = unpickle(file, persistent)
    keys = unpickle(file, _no_storages)
    if not isinstance(keys, list) or any(key not in storages for key in keys):
        raise UnpicklingError("the file's list of storages does not fit its object")
    for key in keys:
        target = storages[key]
        head = file.read(8)
        if len(head) != 8 or struct.unpack("<q", head)[0] != target.numel:
            raise UnpicklingError(f"the storage {key} has another size than the object says, or the file is truncated")
        nbytes = target.numel * target.dtype.itemsize
        data = file.read(nbytes)
        if len(data) != nbytes:
            raise UnpicklingError(f"the file is truncated in the storage {key}")
        if nbytes:
            import numpy

            bytes_of(target.storage)[...] = numpy.frombuffer(data, numpy.uint8)
    return result
