"""The files of a checkpoint: parts of tensors one after another in one file a process, and a pickle that says where each lies, in PyTorch's format."""

from __future__ import annotations

import io
import os
import pathlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pickle import UnpicklingError
from typing import Any, Final

import flambeau
from flambeau.distributed.checkpoint import metadata as kinds
from flambeau.io import globals as allowed
from flambeau.io.checkpoint import Pickler
from flambeau.io.restricted import Reader
from flambeau.runtime.whole_files import replacing

METADATA: Final = ".metadata"
VERSION: Final = "1.0.0"


@dataclass
class _StorageInfo:
    """Where something lies: in which file, from which byte, and how many."""

    relative_path: str
    offset: int
    length: int
    transform_descriptors: Any = None

    def __getstate__(self) -> Any:
        return {k: v for k, v in self.__dict__.items() if v is not None}


_StorageInfo.__module__ = "flambeau.distributed.checkpoint.filesystem"


def write_data(
    folder: str, name: str, items: Iterable[tuple[kinds.MetadataIndex, Any]], sync: bool, bytes_as_they_are: bool = False
) -> dict[kinds.MetadataIndex, _StorageInfo]:
    """Write tensors and objects into one file, which appears whole; where each of them lies. `bytes_as_they_are`: an io.BytesIO is what was saved already."""
    found = {}
    with replacing(os.path.join(folder, name)) as file:
        for index, value in items:
            start = file.tell()
            if bytes_as_they_are and isinstance(value, io.BytesIO):
                stream = value
            else:
                stream = io.BytesIO()
                flambeau.save(value, stream)
            file.write(stream.getbuffer())
            found[index] = _StorageInfo(name, start, file.tell() - start)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    return found


def write_metadata(folder: str, metadata: kinds.Metadata, sync: bool) -> None:
    """The file that makes a checkpoint of the data: it appears whole, and last."""
    with replacing(os.path.join(folder, METADATA)) as file:
        Pickler(file, 2).dump(metadata)
        if sync:
            file.flush()
            os.fsync(file.fileno())


_NAMES: Final = {
    **{("torch.distributed.checkpoint.metadata", name): getattr(kinds, name) for name in (
        "ChunkStorageMetadata", "_MEM_FORMAT_ENCODING", "TensorProperties", "TensorStorageMetadata", "BytesStorageMetadata", "StorageMeta", "Metadata",
        "MetadataIndex",
    )},
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"): _StorageInfo,
}  # fmt: skip
_BUILT: Final = frozenset(_NAMES.values())


def _path(*parts: Any) -> str:
    return str(pathlib.PurePath(*[str(p) for p in parts]))


def _find(module: str, name: str) -> Any:
    known = _NAMES.get((module, name))
    if known is not None:
        return known
    if module.startswith("pathlib") and name in ("PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath"):
        return _path
    return allowed.find(module, name)


def _no_storage(identity: Any) -> Any:
    raise UnpicklingError(f"the metadata of a checkpoint must hold no tensors, it names the storage {identity!r}")


def read_metadata(folder: str) -> kinds.Metadata:
    """What a checkpoint holds. FileNotFoundError where there is none; executes nothing."""
    with open(os.path.join(folder, METADATA), "rb") as file:
        reader = Reader(
            file, _find, _no_storage, lambda cls: cls in _BUILT or allowed.may_build(cls), lambda f: f in _BUILT or f is _path or allowed.may_call(f)
        )
        found = reader.load()
    if not isinstance(found, kinds.Metadata):
        raise UnpicklingError(f"{os.path.join(folder, METADATA)} holds a {type(found).__name__}, not a checkpoint's metadata")
    return found


def suffix_of(folder: str) -> str:
    """How the names of the files of the checkpoint that is there end, which stays whole until the new one is: `_0`, `_1`, or "" where there is none."""
    try:
        old = read_metadata(folder)
    except (OSError, UnpicklingError):
        return ""
    return "_1" if any(info.relative_path.endswith("_1.distcp") for info in (old.storage_data or {}).values()) else "_0"


def remove_unused(folder: str, metadata: kinds.Metadata) -> None:
    """Data that belongs to an older checkpoint."""
    used = {info.relative_path for info in (metadata.storage_data or {}).values()}
    for name in os.listdir(folder):
        if name.startswith("__") and name.endswith(".distcp") and name not in used:
            with suppress(OSError):
                os.unlink(os.path.join(folder, name))


def read_bytes(folder: str, info: Any) -> io.BytesIO:
    """What was saved of one tensor or object."""
    if getattr(info, "transform_descriptors", None):
        raise NotImplementedError(f"the part in {info.relative_path} is transformed by {info.transform_descriptors}: only plain parts are read")
    with open(os.path.join(folder, info.relative_path), "rb") as file:
        file.seek(info.offset)
        return io.BytesIO(file.read(info.length))


def read_item(folder: str, info: Any) -> Any:
    """One tensor or object."""
    return flambeau.load(read_bytes(folder, info), map_location="cpu")
