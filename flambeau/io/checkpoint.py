"""save and load in PyTorch's format: a zip archive of uncompressed records.

    NAME/data.pkl       a pickle (protocol 2); tensors refer to storages by persistent ids
    NAME/byteorder      "little"
    NAME/data/KEY       the bytes of one storage each
    NAME/version        "3"

Files are read by io/restricted.py, which executes nothing, unless the caller asks for weights_only=False.
"""

from __future__ import annotations

import io
import os
import pickle
import tempfile
import zipfile
from collections import OrderedDict
from pickle import UnpicklingError
from types import BuiltinFunctionType, FunctionType
from typing import Any, BinaryIO

from flambeau.devices import Device
from flambeau.dtypes import dtype
from flambeau.io import globals as names
from flambeau.io import legacy
from flambeau.io.restricted import Reader
from flambeau.io.storage_bytes import bytes_of, new_storage, storage_of
from flambeau.nn.parameter import Parameter
from flambeau.tensor import Tensor
from flambeau.trace.meta import Size

_ALIGNMENT = 64  # of records, as PyTorch's writer has it, so that files can be mapped


class _Global:
    """A name of PyTorch's to be written into the pickle; it stands for a class or function that is not here."""

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name

    def __call__(self, *args: Any) -> Any:
        raise TypeError(f"{self.module}.{self.name} is only a name")


class _StorageReference:
    """What a tensor's pickle points to."""

    def __init__(self, identity: tuple[Any, ...]) -> None:
        self.identity = identity


_PurePickler: Any = pickle._Pickler  # the pickler that is written in Python: its `save` can be overridden


class _Pickler(_PurePickler):  # type: ignore[misc]
    """Python's own pickler, with PyTorch's names for our objects."""

    def __init__(self, file: Any, protocol: int) -> None:
        super().__init__(file, protocol)
        self.storages: list[Any] = []
        self._references: dict[int, _StorageReference] = {}
        self._globals: dict[tuple[str, str], _Global] = {}

    def _name(self, module: str, name: str) -> _Global:
        return self._globals.setdefault((module, name), _Global(module, name))

    def persistent_id(self, obj: Any) -> Any:
        return obj.identity if type(obj) is _StorageReference else None

    def save(self, obj: Any, save_persistent_id: bool = True) -> Any:
        if isinstance(obj, dtype):
            obj = self._name("torch", obj.name)
        elif isinstance(obj, (type, FunctionType, BuiltinFunctionType)) and str(obj.__module__).startswith("flambeau"):
            obj = self._name(names.torch_module(obj.__module__), obj.__qualname__)
        if type(obj) is not _Global:
            return super().save(obj, save_persistent_id)
        known = self.memo.get(id(obj))
        if known is not None:
            self.write(self.get(known[0]))
        else:
            self.write(pickle.GLOBAL + f"{obj.module}\n{obj.name}\n".encode())
            self.memoize(obj)
        return None

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Parameter):
            plain: tuple[Any, ...] = (obj.detach(), obj.requires_grad, OrderedDict())
            return self._name("torch._utils", "_rebuild_parameter"), plain
        if isinstance(obj, Tensor):
            reference = self._reference(obj)
            layout = (obj.storage_offset(), tuple(obj.shape), tuple(obj.stride()))
            return self._name("torch._utils", "_rebuild_tensor_v2"), (reference, *layout, obj.requires_grad, OrderedDict())
        if isinstance(obj, Size):
            return self._name("torch", "Size"), (tuple(obj),)
        if isinstance(obj, Device):
            return self._name("torch", "device"), ("cpu",)
        return NotImplemented

    def _reference(self, t: Tensor) -> _StorageReference:
        """The storage under a tensor; the same for all tensors that share it."""
        storage = storage_of(t)
        found = self._references.get(id(storage))
        kind = self._name("torch", names.STORAGE_NAME[t.dtype])
        if found is None:
            numel = len(bytes_of(storage)) // t.dtype.itemsize
            found = _StorageReference(("storage", kind, str(len(self.storages)), "cpu", numel))
            self._references[id(storage)] = found
            self.storages.append(storage)  # also keeps it alive, so that its id stays its own
        elif found.identity[1] is not kind:
            raise RuntimeError("Cannot save multiple tensors or storages that view the same data as different types")
        return found


def save(
    obj: Any, f: Any, pickle_module: Any = None, pickle_protocol: int = 2, _use_new_zipfile_serialization: bool = True
) -> None:
    """Write an object to a path (a temporary file, then a rename) or to a binary file object, so that PyTorch can read it."""
    if not _use_new_zipfile_serialization:
        raise NotImplementedError("save: the legacy format is read, but not written; leave out _use_new_zipfile_serialization")
    if hasattr(f, "write"):
        archive = io.BytesIO()
        _write(obj, archive, "archive", pickle_protocol)
        f.write(archive.getvalue())
        return
    path = os.fspath(f)
    folder, base = os.path.split(path)
    if folder and not os.path.isdir(folder):
        raise RuntimeError(f"Parent directory {folder} does not exist.")
    stem = os.path.splitext(base)[0] or "archive"
    handle, temporary = tempfile.mkstemp(dir=folder or ".", prefix=f".{stem}.")
    try:
        with os.fdopen(handle, "wb") as file:
            _write(obj, file, stem, pickle_protocol)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)  # mkstemp makes it private
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _write(obj: Any, file: Any, stem: str, protocol: int) -> None:
    data = io.BytesIO()
    pickler = _Pickler(data, protocol)
    pickler.dump(obj)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        _record(archive, f"{stem}/data.pkl", data.getvalue())
        _record(archive, f"{stem}/.format_version", b"1")
        _record(archive, f"{stem}/.storage_alignment", str(_ALIGNMENT).encode())
        _record(archive, f"{stem}/byteorder", b"little")
        for key, storage in enumerate(pickler.storages):
            _record(archive, f"{stem}/data/{key}", memoryview(bytes_of(storage)))
        _record(archive, f"{stem}/version", b"3\n")


def _record(archive: zipfile.ZipFile, name: str, data: Any) -> None:
    """One record, its data aligned by a padding field in its header."""
    info = zipfile.ZipInfo(name)
    assert archive.fp is not None
    start = archive.fp.tell() + 30 + len(name.encode()) + 4  # 30 bytes of local header, 4 of the padding field's own
    padding = -start % _ALIGNMENT
    info.extra = b"FB" + padding.to_bytes(2, "little") + b"Z" * padding
    archive.writestr(info, data)


def load(
    f: Any, map_location: Any = None, pickle_module: Any = None, *, weights_only: bool | None = None, mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:  # fmt: skip
    """Read what `save` or PyTorch wrote, from a path or a binary file object.

    Nothing in the file is executed, unless weights_only=False is given: then it is an ordinary pickle, which can do anything.
    All tensors come to the CPU, wherever they were.
    """
    _check_location(map_location)
    if hasattr(f, "read"):
        if not hasattr(f, "seek"):
            f = io.BytesIO(f.read())
        return _read(f, weights_only is not False, pickle_load_args)
    with open(os.fspath(f), "rb") as file:
        return _read(file, weights_only is not False, pickle_load_args)


def _check_location(location: Any) -> None:
    if isinstance(location, (str, Device)):
        from flambeau import devices

        devices.check(location)


def _read(file: BinaryIO, safe: bool, options: dict[str, Any]) -> Any:
    start = file.tell()
    head = file.read(4)
    file.seek(start)
    if head != b"PK\x03\x04":
        if not head:
            raise EOFError("load: the file is empty")
        return legacy.read(file, lambda stream, persistent: _unpickle(stream, persistent, safe, options))
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, ValueError, OSError) as error:
        raise RuntimeError(f"load: failed reading the zip archive: {error}; the file is truncated or damaged") from error
    with archive:
        return _Archive(archive, file).read(safe, options)


class _Archive:
    """A zip checkpoint that is being read."""

    def __init__(self, archive: zipfile.ZipFile, file: BinaryIO) -> None:
        self.archive = archive
        self.records = {info.filename: info for info in archive.infolist()}
        pickles = [name for name in self.records if name == "data.pkl" or name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise RuntimeError("load: the zip archive has no data.pkl: it is no PyTorch checkpoint (TorchScript is not supported)")
        self.root = pickles[0].removesuffix("data.pkl")
        self.storages: dict[str, names.TypedStorage] = {}
        size = file.seek(0, os.SEEK_END)
        if sum(info.file_size for info in self.records.values()) > size:
            raise RuntimeError("load: the records of the zip archive are larger than the file: it is damaged or hostile")

    def record(self, name: str) -> bytes:
        """The bytes of one record, checked against its checksum."""
        info = self.records.get(self.root + name)
        if info is None:
            raise RuntimeError(f"load: the checkpoint lacks the record {name!r}")
        if info.compress_type != zipfile.ZIP_STORED:
            raise RuntimeError(f"load: the record {name!r} is compressed, which PyTorch's files never are")
        try:
            return self.archive.read(info)
        except (zipfile.BadZipFile, EOFError, OSError, ValueError, NotImplementedError, RuntimeError) as error:
            raise RuntimeError(f"load: the record {name!r} is damaged: {error}") from error

    def read(self, safe: bool, options: dict[str, Any]) -> Any:
        order = self.record("byteorder") if self.root + "byteorder" in self.records else b"little"
        if order not in (b"little", b"big"):
            raise RuntimeError(f"load: unknown byte order {order!r}")
        self.swap = order == b"big"
        return _unpickle(io.BytesIO(self.record("data.pkl")), self.persistent, safe, options)

    def persistent(self, identity: Any) -> names.TypedStorage:
        d, key, numel = storage_identity(identity)
        found = self.storages.get(key)
        if found is None:
            data = self.record(f"data/{key}")
            if len(data) < numel * d.itemsize:
                raise UnpicklingError(f"the storage {key} has {len(data)} bytes, but its {numel} elements of {d} need {numel * d.itemsize}")
            storage = new_storage(numel * d.itemsize)
            if numel:
                import numpy

                source = numpy.frombuffer(data, numpy.uint8, numel * d.itemsize)
                unit = d.itemsize // (2 if d.is_complex else 1)
                bytes_of(storage)[...] = source.reshape(-1, unit)[:, ::-1].reshape(-1) if self.swap else source
            found = self.storages[key] = names.TypedStorage(storage, d, numel)
        elif found.dtype is not d:
            raise UnpicklingError(f"the storage {key} is named with two dtypes, {found.dtype} and {d}")
        return found


def storage_identity(identity: Any) -> tuple[dtype, str, int]:
    """(dtype, key, number of elements) of a persistent id ("storage", type, key, location, numel)."""
    if not isinstance(identity, tuple) or len(identity) < 5 or identity[0] != "storage":
        raise UnpicklingError("the file has a persistent id that names no storage")
    kind, key, numel = identity[1], identity[2], identity[4]
    if not isinstance(kind, names.StorageType) or not isinstance(key, str) or type(numel) is not int or numel < 0:
        raise UnpicklingError("the file has a malformed reference to a storage")
    return kind.dtype, key, numel


class _FullUnpickler(pickle.Unpickler):
    """Python's pickle, with our objects for PyTorch's names. It executes what the file says."""

    def find_class(self, module: str, name: str) -> Any:
        found = names.ALLOWED.get((module, name))
        if found is not None and module != "_codecs":
            return found
        if module == "torch" or module.startswith("torch."):
            try:
                return names.import_torch_name(module, name)
            except (ImportError, AttributeError) as error:
                raise UnpicklingError(f"the file names {module}.{name}, which flambeau does not have") from error
        return super().find_class(module, name)


def _unpickle(stream: BinaryIO, persistent: Any, safe: bool, options: dict[str, Any]) -> Any:
    if safe:
        return Reader(stream, names.find, persistent, names.may_build, names.may_call).load()
    unpickler = _FullUnpickler(stream, **options)
    unpickler.persistent_load = persistent  # type: ignore[method-assign]
    return unpickler.load()
