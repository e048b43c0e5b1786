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
import struct
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pickle import UnpicklingError
from types import BuiltinFunctionType, FunctionType
from typing import Any, BinaryIO

from flambeau.devices import Device
from flambeau.dtypes import LIMITED, dtype, uint8
from flambeau.io import globals as names
from flambeau.io import legacy, safetensors
from flambeau.io.options import MAP_SHARED, SETTINGS, LoadEndianness, location_tag, restorer
from flambeau.io.pickling import attributes, wrapper_layout
from flambeau.io.restricted import Reader
from flambeau.io.storage_bytes import bytes_of, new_storage
from flambeau.layouts import layout, strided
from flambeau.module_names import is_ours
from flambeau.nn.parameter import Buffer, Parameter
from flambeau.ops.dispatch import Dispatched, named_class
from flambeau.runtime import shared_memory, whole_files
from flambeau.runtime.buffers import foreign
from flambeau.storage import NAME_OF_DTYPE, TypedStorage, UntypedStorage
from flambeau.tensor import Tensor
from flambeau.trace.meta import CONJ, NEG, Size
from flambeau.trace.once import warn_here
from flambeau.trace.storage import Storage

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


class Pickler(_PurePickler):  # type: ignore[misc]
    """Python's own pickler, with PyTorch's names for our objects."""

    def __init__(self, file: Any, protocol: int, views: bool = False) -> None:
        super().__init__(file, protocol)
        self.storages: list[Any] = []
        self._ending = (None,) if views else ()  # storages of legacy files may be views of others; ours are none
        self._references: dict[Any, _StorageReference] = {}
        self._globals: dict[tuple[str, str], _Global] = {}

    def _name(self, module: str, name: str) -> _Global:
        return self._globals.setdefault((module, name), _Global(module, name))

    def persistent_id(self, obj: Any) -> Any:
        if isinstance(obj, UntypedStorage):
            obj = TypedStorage(wrap_storage=obj, dtype=uint8)
        if isinstance(obj, TypedStorage):
            obj = self._reference(obj)
        return obj.identity if type(obj) is _StorageReference else None

    def save(self, obj: Any, save_persistent_id: bool = True) -> Any:
        if isinstance(obj, dtype):
            obj = self._name("torch", obj.name)
        elif isinstance(obj, (type, FunctionType, BuiltinFunctionType)) and is_ours(obj.__module__):
            obj = self._name(*names.torch_name(obj))
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
        if isinstance(obj, Tensor) and _is_ordinary(type(obj)):
            return self._tensor(obj)
        if isinstance(obj, Tensor) and obj.layout is not strided:
            return self._name("torch._utils", "_rebuild_sparse_tensor"), obj._state()
        if isinstance(obj, Tensor) and obj.is_quantized and obj.dtype in NAME_OF_DTYPE:
            return self._quantized(obj)
        if isinstance(obj, layout):
            return self._name("torch.serialization", "_get_layout"), (repr(obj),)
        if isinstance(obj, Size):
            return self._name("torch", "Size"), (tuple(obj),)
        if isinstance(obj, Device):
            return self._name("torch", "device"), (obj.type,) if obj.index is None else (obj.type, obj.index)
        return NotImplemented

    def _tensor(self, t: Tensor) -> Any:
        """What rebuilds a tensor: a function of PyTorch's, and its arguments."""
        state = attributes(t)
        arguments: tuple[Any, ...]
        if isinstance(t, Parameter):
            data: tuple[Any, ...] = (t.detach(), t.requires_grad, OrderedDict())
            if type(t) is Parameter:
                if state:
                    return self._name("torch._utils", "_rebuild_parameter_with_state"), (*data, state)
                return self._name("torch._utils", "_rebuild_parameter"), data
        if isinstance(t, Dispatched):
            function, arguments = self._name("torch._utils", "_rebuild_wrapper_subclass"), (named_class(t), *wrapper_layout(t))
            return self._name("torch._tensor", "_rebuild_from_type_v2"), (function, named_class(t), arguments, state)
        if t.is_meta:
            function = self._name("torch._utils", "_rebuild_meta_tensor_no_storage")
            arguments = t.dtype, tuple(t.shape), tuple(t.stride()), t.requires_grad
            if type(t) is Tensor and not state:
                return function, arguments
            return self._name("torch._tensor", "_rebuild_from_type_v2"), (function, named_class(t), arguments, state)
        # Dtypes without a class of storages are named beside bytes.
        bytes_only = t.dtype in LIMITED
        storage = TypedStorage(wrap_storage=t.untyped_storage(), dtype=uint8 if bytes_only else t.dtype)
        layout = (t.storage_offset(), tuple(t.shape), tuple(t.stride()))
        function = self._name("torch._utils", "_rebuild_tensor_v3" if bytes_only else "_rebuild_tensor_v2")
        arguments = self._reference(storage, bytes_only), *layout, t.requires_grad, OrderedDict(), *([t.dtype] if bytes_only else [])
        if t._meta.bits:
            arguments = *arguments, {name: True for bit, name in ((CONJ, "conj"), (NEG, "neg")) if t._meta.bits & bit}
        if type(t) is Tensor and not state:
            return function, arguments
        kind = named_class(t)
        if kind is Buffer:  # in PyTorch a plain tensor with a mark
            kind, state = Tensor, {**state, "_is_buffer": True}
        return self._name("torch._tensor", "_rebuild_from_type_v2"), (function, kind, arguments, state)

    def _quantized(self, t: Any) -> Any:
        """What rebuilds a quantized tensor: its integers, and the scheme with scales and zero points."""
        storage = TypedStorage(wrap_storage=t.untyped_storage(), dtype=t.dtype)
        a = t._affine
        scheme = self._name("torch", a.scheme.name)
        meaning = (scheme, a.scale, a.zero_point) if a.axis is None else (scheme, a.scale, a.zero_point, a.axis)
        layout = (t.storage_offset(), tuple(t.shape), tuple(t.stride()))
        return self._name("torch._utils", "_rebuild_qtensor"), (self._reference(storage), *layout, meaning, False, OrderedDict())

    def _reference(self, storage: TypedStorage, bytes_only: bool = False) -> _StorageReference:
        """What stands for a storage in the pickle; the same for all tensors that share it. `bytes_only`: it is named without a dtype."""
        untyped = storage.untyped()
        kind = self._name("torch.storage", "UntypedStorage") if bytes_only else self._name("torch", NAME_OF_DTYPE[storage.dtype])
        key = id(untyped._storage) if untyped.nbytes() else (id(untyped._storage), kind.name)  # nothing is shared where there is nothing
        found = self._references.get(key)
        if found is None:
            found = _StorageReference(("storage", kind, str(len(self.storages)), location_tag(untyped), storage.size(), *self._ending))
            self._references[key] = found
            self.storages.append(untyped)  # also keeps it alive, so that its id stays its own
        elif found.identity[1] is not kind:
            raise RuntimeError(
                "Cannot save multiple tensors or storages that view the same data as different types: "
                f"{found.identity[1].name} and {kind.name}; save a clone() of one of them"
            )
        return found


def _is_ordinary(cls: type) -> bool:
    """Whether tensors of a class are saved by their storage: it does not say itself how."""
    owner = next(c for c in cls.__mro__ if "__reduce_ex__" in c.__dict__)
    return owner is Tensor or owner.__name__ == "Overridable"  # whose methods ask __torch_function__, and are Tensor's


def save(obj: Any, f: Any, pickle_module: Any = pickle, pickle_protocol: int = 2, _use_new_zipfile_serialization: bool = True) -> None:
    """Write an object to a path or to a binary file object, so that PyTorch can read it.

    A path gets its content by a rename at the end, so that whatever happens before leaves the old file whole.
    """
    if pickle_module is not None and pickle_module is not pickle:
        raise NotImplementedError(f"save: pickle_module={pickle_module!r} is not supported: checkpoints are written by Python's own pickle")
    write = _write if _use_new_zipfile_serialization else _write_legacy
    if hasattr(f, "write"):
        archive = io.BytesIO()
        write(obj, archive, "archive", pickle_protocol)
        f.write(archive.getvalue())
        if hasattr(f, "flush"):  # whoever opens the file by its name reads all of it
            f.flush()
        return
    if not isinstance(f, (str, bytes, os.PathLike)):
        raise AttributeError(f"save(): expected 'f' to be string, path, or a file-like object with a 'write' attribute, got {type(f).__name__}")
    path = os.fspath(f)
    folder, base = os.path.split(path)
    if folder and not os.path.isdir(folder):
        raise RuntimeError(f"Parent directory {folder} does not exist.")
    stem = os.path.splitext(base)[0] or "archive"
    with whole_files.replacing(path) as file:
        write(obj, file, stem, pickle_protocol)


def _write(obj: Any, file: Any, stem: str, protocol: int) -> None:
    data = io.BytesIO()
    pickler = Pickler(data, protocol)
    pickler.dump(obj)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        record(archive, f"{stem}/data.pkl", data.getvalue())
        record(archive, f"{stem}/.format_version", b"1")
        record(archive, f"{stem}/.storage_alignment", str(_ALIGNMENT).encode())
        record(archive, f"{stem}/byteorder", b"little")
        for key, storage in enumerate(pickler.storages):
            data_of = bytes(storage.nbytes()) if SETTINGS.skips_data else memoryview(storage._bytes())
            record(archive, f"{stem}/data/{key}", data_of)
        record(archive, f"{stem}/version", b"3\n")


def _write_legacy(obj: Any, file: Any, stem: str, protocol: int) -> None:
    data = io.BytesIO()
    pickler = Pickler(data, protocol, views=True)
    pickler.dump(obj)
    counts = [reference.identity[4] for reference in pickler._references.values()]
    legacy.write(file, data.getvalue(), list(zip(pickler.storages, counts, strict=True)), protocol)


def record(archive: zipfile.ZipFile, name: str, data: Any) -> None:
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

    Nothing in the file is executed, unless weights_only=False is given: then it is an ordinary pickle, which can do anything, and a
    warning says what it named. All tensors come to the CPU, wherever they were, unless a registered package or `map_location` (a device,
    a dict of locations, a function of storage and location) moves them. With `mmap` the elements of a file by path are mapped, not read.
    """
    safe = _weights_only(weights_only)
    if safe and pickle_module is not None:
        raise RuntimeError("Can not safely load weights when explicit pickle_module is specified")
    if safe and pickle_load_args:
        warn_here("pickle_load_args only works if `weights_only=False`.")
    restore = restorer(map_location)
    if hasattr(f, "read"):
        if mmap:
            raise ValueError("f must be a file path in order to use the mmap argument")
        if not hasattr(f, "seek") or not hasattr(f, "tell"):
            raise AttributeError(
                f"load(): '{type(f).__name__}' object has no 'seek' or no 'tell'. You can only torch.load from a file that is seekable. "
                "Please pre-load the data into a buffer like io.BytesIO and try to load from it instead."
            )
        return _Loader(f, safe, restore, pickle_load_args, pickle_module=pickle_module).load()
    path = os.fspath(f)
    if str(path).endswith(".safetensors"):
        if isinstance(map_location, dict) or callable(map_location):
            raise RuntimeError("Loading safetensors file with dict map_location is not supported. Use a device string or torch.device instead.")
        return safetensors.load_file(path)
    with open(path, "rb") as file:
        return _Loader(file, safe, restore, pickle_load_args, path if mmap else None, pickle_module).load()


def _weights_only(given: bool | None) -> bool:
    """Whether nothing may be executed: the argument, or PyTorch's environment variables."""
    force, force_not = (os.getenv(f"TORCH_FORCE_{name}_LOAD", "0").lower() in ("1", "y", "yes", "true") for name in ("WEIGHTS_ONLY", "NO_WEIGHTS_ONLY"))
    if force and force_not:
        raise RuntimeError("Only one of `TORCH_FORCE_WEIGHTS_ONLY_LOAD` or `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD` should be set, but both were set.")
    if force:
        return True
    if force_not and given is None:
        warn_here(
            "Environment variable TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD detected, since the `weights_only` argument was not explicitly passed to "
            "`torch.load`, forcing weights_only=False.",
        )
        return False
    return given is not False


class _Loader:
    """One call of load. `path`: of the file, if its storages are to be mapped."""

    def __init__(
        self, file: BinaryIO, safe: bool, restore: Callable[[Any, str], Any], options: dict[str, Any], path: Any = None, pickle_module: Any = None
    ) -> None:  # fmt: skip
        own = pickle_module is None or pickle_module is pickle
        self.unpickler = _FullUnpickler if own else type("_FullUnpickler", (_Finding, pickle_module.Unpickler), {})
        self.file = file
        self.safe = safe
        self.restore = restore
        self.options = options
        self.path = path
        self.executed: set[str] = set()

    def load(self) -> Any:
        """The object in the file."""
        file = self.file
        start = file.tell()
        head = file.read(4)
        file.seek(start)
        if head == b"PK\x03\x04":
            with _opened(file) as archive:
                result = Archive(archive, self).read()
        elif self.path is not None:
            raise RuntimeError(
                f"mmap can only be used with files saved with `torch.save({self.path}, _use_new_zipfile_serialization=True), please "
                "torch.save your checkpoint with this option in order to use mmap."
            )
        elif not head:
            raise EOFError("load: the file is empty")
        elif legacy.is_tar(file):
            if self.safe:
                raise RuntimeError("Cannot use ``weights_only=True`` with files saved in the legacy .tar format. " + names.FULL_LOAD)
            result = legacy.read_tar(file, self.unpickle, self.restore)
        else:
            result = legacy.read(file, self.unpickle, self.restore)
        if self.executed:
            warn_here(
                f"load(weights_only=False) imported and may have executed what the file names: {', '.join(sorted(self.executed))}. A file from "
                "an untrusted source can run any code this way; save state_dict()s, which need no code.",
            )
        return result

    def unpickle(self, stream: BinaryIO, persistent: Callable[[Any], Any]) -> Any:
        """The object of one pickle."""
        if self.safe:
            try:
                return Reader(stream, names.find, persistent, names.may_build, names.may_call, self.options.get("encoding")).load()
            except UnpicklingError as error:
                raise names.refusal(str(error)) from None
        unpickler = self.unpickler(stream, **{"encoding": "utf-8", **self.options})
        unpickler.executed = self.executed
        unpickler.persistent_load = persistent  # type: ignore[method-assign]
        return unpickler.load()


def _opened(file: Any) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except (zipfile.BadZipFile, ValueError, OSError) as error:
        raise RuntimeError(f"load: failed reading the zip archive: {error}; the file is truncated or damaged") from error


@contextmanager
def zip_archive(f: Any, restore: Callable[[Any, str], Any]) -> Iterator[Archive]:
    """The records of a file in the zip format, by path or binary file object, for a reader that unpickles them itself."""
    with open(os.fspath(f), "rb") if not hasattr(f, "read") else nullcontext(f) as file, _opened(file) as archive:
        yield Archive(archive, _Loader(file, True, restore, {}))


class Archive:
    """A zip checkpoint that is being read."""

    def __init__(self, archive: zipfile.ZipFile, loader: _Loader) -> None:
        self.archive = archive
        self.loader = loader
        self.whole: Any = None  # the mapped file
        self.records = {info.filename: info for info in archive.infolist()}
        pickles = [name for name in self.records if name == "data.pkl" or name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise RuntimeError("load: the zip archive has no data.pkl: it is no PyTorch checkpoint")
        self.root = pickles[0].removesuffix("data.pkl")
        self.storages: dict[str, TypedStorage] = {}
        size = loader.file.seek(0, os.SEEK_END)
        if sum(info.file_size for info in self.records.values() if info.compress_type == zipfile.ZIP_STORED) > size:
            raise RuntimeError("load: the records of the zip archive are larger than the file: it is damaged or hostile")

    def record(self, name: str, compressed_to: int = 0) -> bytes:
        """The bytes of one record, checked against its checksum. `compressed_to`: it may be compressed, and have so many bytes then."""
        info = self.records.get(self.root + name)
        if info is None:
            raise RuntimeError(f"load: the checkpoint lacks the record {name!r}")
        if info.compress_type != zipfile.ZIP_STORED and not compressed_to:
            raise RuntimeError(f"load: the record {name!r} is compressed, which PyTorch's files never are")
        if info.compress_type != zipfile.ZIP_STORED and info.file_size > compressed_to:
            raise RuntimeError(f"load: the record {name!r} is said to have {info.file_size} bytes; {compressed_to} are read at most")
        try:
            return self.archive.read(info)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError, RuntimeError) as error:
            raise RuntimeError(f"load: the record {name!r} is damaged: {error}") from error

    def read(self) -> Any:
        """The object, with its storages."""
        if self.root + "constants.pkl" in self.records and self.root + "version" in self.records:
            raise RuntimeError("load: the file is a TorchScript archive, which holds compiled code: torch.jit.load reads it as a module")
        self.set_byte_order()
        return self.loader.unpickle(io.BytesIO(self.record("data.pkl")), self.persistent)

    def set_byte_order(self) -> None:
        """Find out whether the bytes of elements are the other way round."""
        if self.root + "byteorder" in self.records:
            order = self.record("byteorder")
            if order not in (b"little", b"big"):
                raise RuntimeError(f"load: unknown byte order {order!r}")
            self.swap = order == b"big"
        else:
            self.swap = SETTINGS.endianness is LoadEndianness.BIG

    def persistent(self, identity: Any, folder: str = "data") -> TypedStorage:
        """The storage that a pickle refers to; its bytes are a record in `folder`."""
        d, key, numel = storage_identity(identity)
        record = f"{folder}/{key}"
        found = self.storages.get(record)
        if found is None:
            untyped = UntypedStorage(wrap=self._storage(record, d, numel))
            location = readable(identity[3])
            moved = self.loader.restore(untyped, location if isinstance(location, str) else "cpu")
            if not isinstance(moved, UntypedStorage) or moved.nbytes() < numel * d.itemsize:
                raise RuntimeError(f"load: map_location gave {type(moved).__name__} for a storage of {numel * d.itemsize} bytes")
            found = self.storages[record] = TypedStorage(wrap_storage=moved, dtype=d)
        elif found.dtype is not d:
            raise UnpicklingError(f"the storage {key} is named with two dtypes, {found.dtype} and {d}")
        return found

    def _storage(self, record: str, d: dtype, numel: int) -> Storage:
        nbytes = numel * d.itemsize
        if SETTINGS.skips_data:
            return new_storage(nbytes)
        if self.loader.path is not None and not self.swap and nbytes:
            mapped = self._mapped(record, nbytes, d.itemsize)
            if mapped is not None:
                return mapped
        data = self.record(record)
        if len(data) < nbytes:
            raise UnpicklingError(f"the storage {record} has {len(data)} bytes, but its {numel} elements of {d} need {nbytes}")
        storage = new_storage(nbytes)
        if numel:
            import numpy

            source = numpy.frombuffer(data, numpy.uint8, nbytes)
            unit = d.itemsize // (2 if d.is_complex else 1)
            bytes_of(storage)[...] = source.reshape(-1, unit)[:, ::-1].reshape(-1) if self.swap else source
        return storage

    def _mapped(self, name: str, nbytes: int, itemsize: int) -> Storage | None:
        """The record's bytes in the mapped file; None where its elements are not aligned. Its checksum is not looked at."""
        info = self.records.get(self.root + name)
        if info is None or info.compress_type != zipfile.ZIP_STORED or info.file_size < nbytes:
            return None  # reading it says what is wrong
        file = self.loader.file
        file.seek(info.header_offset + 26)  # the lengths of name and extra field, which stand before the data
        start = info.header_offset + 30 + sum(struct.unpack("<HH", file.read(4)))
        if start % itemsize:
            return None
        if self.whole is None:
            shared = SETTINGS.mmap_flags == MAP_SHARED
            size = file.seek(0, os.SEEK_END)
            self.whole = shared_memory.from_file(os.fspath(self.loader.path), shared, size).buffer()
        if start + nbytes > self.whole.nbytes:
            raise RuntimeError(f"load: the record {name!r} lies outside the file: it is damaged")
        storage = Storage(foreign(self.whole.address + start, nbytes, self.whole))
        if SETTINGS.mmap_flags == MAP_SHARED:
            storage.external = True  # others read the file: nothing about it is left pending
        return storage


def readable(text: Any) -> Any:
    """A name that a file has; as text, also where it is one of Python 2 and read with encoding="bytes"."""
    return text.decode("ascii", "replace") if isinstance(text, bytes) else text


def storage_identity(identity: Any) -> tuple[dtype, str, int]:
    """(dtype, key, number of elements) of a persistent id ("storage", type, key, location, numel)."""
    if not isinstance(identity, tuple) or len(identity) < 5 or readable(identity[0]) != "storage":
        raise UnpicklingError("the file has a persistent id that names no storage")
    kind, key, numel = identity[1], readable(identity[2]), identity[4]
    if kind is UntypedStorage:
        kind = names.LEGACY["ByteStorage"]
    if kind not in names.LEGACY.values() or not isinstance(key, str) or type(numel) is not int or numel < 0:
        raise UnpicklingError("the file has a malformed reference to a storage")
    return kind.dtype, key, numel


class _Finding:
    """Our objects for PyTorch's names, for an unpickler that executes what the file says; notes what that is in `executed`."""

    executed: set[str]

    def find_class(self, module: str, name: str) -> Any:
        found = names.ALLOWED.get((module, name))
        if found is not None and module != "_codecs":
            return names.rebuild_any_type if found is names.rebuild_from_type else found
        self.executed.add(f"{module}.{name}")
        if module == "torch" or module.startswith("torch."):
            try:
                return names.import_torch_name(module, name)
            except (ImportError, AttributeError) as error:
                raise UnpicklingError(f"the file names {module}.{name}, which flambeau does not have") from error
        return super().find_class(module, name)  # type: ignore[misc]


class _FullUnpickler(_Finding, pickle.Unpickler):
    """Python's pickle."""


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """The functions and classes that a checkpoint names beyond what `load` allows; nothing is executed. Files in the zip format only."""
    if not hasattr(f, "read"):
        with open(os.fspath(f), "rb") as file:
            return get_unsafe_globals_in_checkpoint(file)
    if not zipfile.is_zipfile(f):
        raise ValueError("get_unsafe_globals_in_checkpoint only supports loading files saved in the zip format (PyTorch >= 1.6)")
    f.seek(0)
    with zipfile.ZipFile(f) as archive:
        loader = _Loader(f, True, restorer(None), {})
        return sorted(names.unsafe_names(io.BytesIO(Archive(archive, loader).record("data.pkl"))))
