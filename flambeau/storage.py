"""torch.storage: the memory under tensors as objects of its own: UntypedStorage (bytes), TypedStorage, FloatStorage and its like.

They are handles on the engine's Storage (trace/storage.py), one UntypedStorage for each. Reading one runs what is pending; so does writing,
first, so that recorded operations see the memory as it was when they were called.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Iterator
from typing import Any, ClassVar

from flambeau import devices, dtypes
from flambeau.compiler.graph import contiguous_strides
from flambeau.dtypes import dtype
from flambeau.runtime import shared_memory
from flambeau.runtime.buffers import allocate, foreign
from flambeau.runtime.memory import view_as_numpy
from flambeau.tensor import Tensor
from flambeau.trace.blank import blank, no_data
from flambeau.trace.meta import meta
from flambeau.trace.objects import from_storage
from flambeau.trace.once import warn_once
from flambeau.trace.recorder import local
from flambeau.trace.storage import FAMILIES, ORDER, Storage
from flambeau.upward import upward

_PREFIX = {
    "Double": dtypes.float64, "Float": dtypes.float32, "Half": dtypes.float16, "BFloat16": dtypes.bfloat16, "Long": dtypes.int64,
    "Int": dtypes.int32, "Short": dtypes.int16, "Char": dtypes.int8, "Byte": dtypes.uint8, "Bool": dtypes.bool_,
    "ComplexFloat": dtypes.complex64, "ComplexDouble": dtypes.complex128, "QUInt8": dtypes.quint8, "QInt8": dtypes.qint8, "QInt32": dtypes.qint32,
    "QUInt4x2": dtypes.quint4x2, "QUInt2x4": dtypes.quint2x4,
}  # fmt: skip
_METHODS = {
    "double": dtypes.float64, "float": dtypes.float32, "half": dtypes.float16, "bfloat16": dtypes.bfloat16, "long": dtypes.int64,
    "int": dtypes.int32, "short": dtypes.int16, "char": dtypes.int8, "byte": dtypes.uint8, "bool": dtypes.bool_,
    "complex_float": dtypes.complex64, "complex_double": dtypes.complex128,
}  # fmt: skip
_HANDLES: weakref.WeakValueDictionary[int, UntypedStorage] = weakref.WeakValueDictionary()


class _StorageBase:
    """What typed and untyped storages share."""

    is_cuda = is_sparse = is_sparse_csr = is_hpu = False

    @property
    def device(self) -> devices.Device:
        """Where the bytes are: the CPU, or `meta`: nowhere."""
        return self.untyped()._witness._meta.device  # type: ignore[attr-defined, no-any-return]

    @property
    def is_meta(self) -> bool:
        """Whether there are no bytes, only their number."""
        return self.device is devices.META

    def get_device(self) -> int:
        """-1: the CPU."""
        return -1

    def cpu(self) -> Any:
        """This storage, if it is on the CPU; NotImplementedError if it has no bytes."""
        return self.to(device=devices.CPU)

    def cuda(self, device: Any = None, non_blocking: bool = False) -> Any:
        """There is no CUDA device: raises."""
        return Tensor(0).cuda()

    def to(self, *, device: Any, non_blocking: bool = False) -> Any:
        """This storage, or one of `meta` of its size. RuntimeError for devices that are not there, NotImplementedError from `meta` to the CPU."""
        if devices.is_meta(device) == self.is_meta:
            return self
        if self.is_meta:
            raise no_data()
        return self._of_untyped(UntypedStorage(self.nbytes(), device=device))  # type: ignore[attr-defined]

    def _need_elements(self) -> None:
        if self.is_meta:
            raise NotImplementedError("Not available for 'meta' device type: the storage has a size and no elements")

    def pin_memory(self, device: Any = None) -> Any:
        """This storage: there is no accelerator to pin memory for."""
        return self

    def is_pinned(self, device: Any = None) -> bool:
        """False."""
        return False

    def resizable(self) -> bool:
        """Whether resize_ can give it more memory: not where others see the memory (other processes, NumPy), nor where it is not ours."""
        return self.untyped()._may_grow()  # type: ignore[attr-defined, no-any-return]

    def __copy__(self) -> Any:
        return self.clone()  # type: ignore[attr-defined]

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.nbytes()  # type: ignore[attr-defined, no-any-return]

    @property
    def _cdata(self) -> int:
        """A number that no other living storage has: PyTorch's address of its object, by which packages tell storages apart."""
        return id(self.untyped()._storage)  # type: ignore[attr-defined]


@upward
def get_sharing_strategy() -> str:
    """How memory is shared between processes (multiprocessing/)."""
    raise NotImplementedError


@upward
def load(f: Any, *, weights_only: bool) -> Any:
    """Read a checkpoint (io/checkpoint.py)."""
    raise NotImplementedError


class UntypedStorage(_StorageBase):
    """A run of bytes: `UntypedStorage(n)` uninitialised, `UntypedStorage([1, 2])` with these values."""

    _storage: Storage
    _witness: Tensor  # a tensor over it, by which the engine finds what is pending

    def __new__(cls, *args: Any, device: Any = None, wrap: Any = None) -> UntypedStorage:
        where = devices.META if devices.is_meta(device) else devices.CPU
        if wrap is None:
            data = args[0] if args else 0
            if isinstance(data, int):
                wrap = Storage(allocate(data) if where is devices.CPU else blank(data))
            else:
                wrap = _storage_of(data)
                where = devices.CPU
        found = _HANDLES.get(id(wrap))
        if found is not None and found._storage is wrap:
            return found
        made = object.__new__(cls)
        made._storage = wrap
        made._witness = from_storage(wrap, meta((0,), (1,), dtypes.uint8, device=where))
        _HANDLES[id(wrap)] = made
        return made

    # -- the bytes ------------------------------------------------------------------------------------------------
    def _observed(self) -> Storage:
        from flambeau.trace.evaluate import observe, settled

        return settled(self._witness) if self.is_meta else observe(self._witness)

    def _of_untyped(self, untyped: UntypedStorage) -> UntypedStorage:
        return untyped

    def _bytes(self, write: bool = False) -> Any:
        """All bytes as a NumPy uint8 array over the memory; NotImplementedError where there is none."""
        if self.is_meta:
            raise NotImplementedError("Not available for 'meta' device type")
        storage = self._observed()
        if write:
            from flambeau.trace.evaluate import leave_as_it_is

            leave_as_it_is(storage, "write to a storage")
            storage.version += 1
        buffer = storage.buffer
        assert buffer is not None
        return view_as_numpy(buffer.address, buffer.nbytes, storage)

    def data_ptr(self) -> int:
        """The address of the first byte; 0 if there is none."""
        buffer = self._observed().buffer
        assert buffer is not None
        return buffer.address if buffer.nbytes else 0

    def nbytes(self) -> int:
        """The number of bytes."""
        buffer = self._observed().buffer
        assert buffer is not None
        return buffer.nbytes

    size = nbytes
    __len__ = nbytes

    def element_size(self) -> int:
        """1."""
        return 1

    def __getitem__(self, index: Any) -> Any:
        self._need_elements()
        raw = self._bytes()
        if isinstance(index, slice):
            if index.step not in (None, 1):
                raise RuntimeError(f"Trying to slice with a step of {index.step}, but only a step of 1 is supported")
            return _part(self, raw, index)
        return int(raw[_checked(index, len(raw))])

    def __setitem__(self, index: Any, value: Any) -> None:
        raw = self._bytes(write=True)
        raw[index if isinstance(index, slice) else _checked(index, len(raw))] = value

    def __iter__(self) -> Iterator[int]:
        return iter(self.tolist())

    def tolist(self) -> list[int]:
        """The bytes as numbers."""
        self._need_elements()
        return self._bytes().tolist()  # type: ignore[no-any-return]

    def fill_(self, value: int) -> UntypedStorage:
        """Set every byte."""
        self._bytes(write=True)[...] = value
        return self

    def copy_(self, source: Any, non_blocking: bool | None = None) -> UntypedStorage:
        """Take over the bytes of another storage of the same size."""
        if self.is_meta:
            return self
        theirs = source.untyped()._bytes()
        mine = self._bytes(write=True)
        if len(theirs) != len(mine):
            raise RuntimeError(f"UntypedStorage.copy_: sizes do not match: {len(mine)} bytes here, {len(theirs)} in the source")
        mine[...] = theirs
        return self

    def clone(self) -> UntypedStorage:
        """A copy with memory of its own."""
        return UntypedStorage(self.nbytes(), device=devices.META) if self.is_meta else _untyped_from(self._bytes())

    def new(self) -> UntypedStorage:
        """An empty storage."""
        return UntypedStorage(0)

    def _may_grow(self) -> bool:
        if self.is_shared():
            return False
        storage = self._observed()
        buffer, seen = storage.buffer, storage.external
        return seen is None or (seen is True and buffer is not None and buffer._class is not None) or (seen is not True and seen() is None)

    def resize_(self, size: int) -> UntypedStorage:
        """Another number of bytes: the first are kept, new ones are uninitialised. Tensors over it keep their layout."""
        if not self._may_grow():
            why = "it is shared with other processes" if self.is_shared() else "NumPy, or whose memory it is, would not see the new one; clone() it first"
            raise RuntimeError(f"Trying to resize storage that is not resizable: {why}")
        if self.is_meta:
            self._observed().buffer = blank(size)
            return self
        before = self._bytes(write=True)
        buffer = allocate(size)
        kept = min(size, len(before))
        if kept:
            view_as_numpy(buffer.address, size, buffer)[:kept] = before[:kept]
        self._storage.buffer = buffer
        self._storage.external = True  # what the recorder remembers of its size does not hold any more
        return self

    def byteswap(self, dtype: dtype) -> None:
        """Reverse the bytes of every element of this dtype (of both parts of complex ones), in place."""
        unit = dtype.itemsize // (2 if dtype.is_complex else 1)
        raw = self._bytes(write=True)
        raw[...] = raw.reshape(-1, unit)[:, ::-1].reshape(-1)

    def untyped(self) -> UntypedStorage:
        """This storage."""
        return self

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The name of the class; a copy of another type is not there for bytes."""
        if dtype is None or dtype is UntypedStorage:
            return "torch.storage.UntypedStorage" if dtype is None else self
        raise RuntimeError("UntypedStorage.type: only the name of its type can be asked for; use TypedStorage(wrap_storage=..., dtype=...)")

    # -- sharing --------------------------------------------------------------------------------------------------
    def share_memory_(self) -> UntypedStorage:
        """Move the bytes to memory that processes can share, unless they are there already."""
        if self.is_meta:
            raise RuntimeError("_share_fd_: only available on CPU")
        self._shared_block()
        return self

    def _shared_block(self, strategy: str | None = None) -> shared_memory.Block:
        storage = self._observed()
        found = shared_memory.block_of(storage.buffer)
        if found is not None:
            return found
        raw = self._bytes(write=True)
        storage.version -= 1  # the values stay
        if strategy is None:
            strategy = get_sharing_strategy()
        block = (shared_memory.named if strategy == "file_system" else shared_memory.anonymous)(len(raw))
        buffer = block.buffer()
        if len(raw):
            view_as_numpy(buffer.address, buffer.nbytes, buffer)[...] = raw
        storage.buffer = buffer
        storage.external = True  # nothing about it is left pending: others read it at any time
        return block

    def is_shared(self) -> bool:
        """Whether other processes may see the bytes."""
        return shared_memory.block_of(self._observed().buffer) is not None

    @property
    def filename(self) -> str | None:
        """The file that it maps (from_file, or the sharing strategy "file_system"); None for other memory."""
        block = shared_memory.block_of(self._observed().buffer)
        return None if block is None else block.name

    # -- making ---------------------------------------------------------------------------------------------------
    @classmethod
    def from_buffer(cls, buffer: Any, byte_order: str | None = None, count: int = -1, offset: int = 0, *, dtype: dtype | None = None) -> UntypedStorage:
        """A copy of elements of `dtype` in an object with the buffer protocol; byte_order is "native", "big" or "little"."""
        if dtype is None:
            raise TypeError("from_buffer(): missing argument 'dtype'")
        if byte_order is None and dtype.itemsize > 1:
            raise RuntimeError("function missing required argument 'byte_order' (pos 2)")
        if byte_order not in (None, "native", "big", "little"):
            raise ValueError(f"invalid byte_order '{byte_order}' (expected 'big', 'little', or 'native')")
        raw = memoryview(buffer).cast("B")
        if not 0 <= offset < max(len(raw), 1):
            raise ValueError(f"offset must be non-negative and no greater than buffer length ({len(raw)}) , but got {offset}")
        if count < 0:
            if (len(raw) - offset) % dtype.itemsize:
                raise ValueError(f"buffer size ({len(raw)}) must be a multiple of element size ({dtype.itemsize})")
            count = (len(raw) - offset) // dtype.itemsize
        if offset + count * dtype.itemsize > len(raw):
            raise ValueError(f"buffer has only {len(raw) - offset} elements after offset {offset}, but specified a size of {count}")
        made = _untyped_from(raw[offset : offset + count * dtype.itemsize])
        if byte_order not in (None, "native", sys.byteorder):
            made.byteswap(dtype)
        return made

    @classmethod
    def from_file(cls, filename: str, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """The bytes of a file. `shared`: changes go to the file; else they stay in this process."""
        storage = Storage(shared_memory.from_file(os.fspath(filename), shared, nbytes).buffer())
        storage.external = True
        return cls(wrap=storage)

    # -- objects --------------------------------------------------------------------------------------------------
    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and self._storage is other._storage

    def __hash__(self) -> int:
        return id(self._storage)

    def __repr__(self) -> str:
        return ("...\n" if self.is_meta else _lines(self.tolist())) + f"[torch.storage.UntypedStorage(device={self.device}) of size {len(self)}]"

    def __deepcopy__(self, memo: dict[Any, Any]) -> UntypedStorage:
        copies = memo.setdefault("torch", {})
        key = id(self._storage)
        if key not in copies:
            copies[key] = self, self.clone()  # itself, so that its id stays its own
        return copies[key][1]  # type: ignore[no-any-return]

    def __reduce__(self) -> Any:
        return (_restore_blank, (self.nbytes(),)) if self.is_meta else (_restore_untyped, (self._bytes().tobytes(),))


def _restore_blank(nbytes: int) -> UntypedStorage:
    return UntypedStorage(nbytes, device=devices.META)


StorageBase = UntypedStorage  # PyTorch's name for what is below it: bytes, never a TypedStorage


class TypedStorage(_StorageBase):
    """A run of elements of one dtype: an UntypedStorage and how its bytes are read. `wrap_storage` is shared, not copied."""

    _untyped: UntypedStorage
    dtype: dtype
    _untyped_storage = property(lambda self: self._untyped, doc="The bytes.")  # the names that PyTorch's own modules, and packages, use

    def __init__(self, *args: Any, device: Any = None, dtype: dtype | None = None, wrap_storage: Any = None, _internal: bool = False) -> None:
        self.dtype = dtypes.get_default_dtype() if dtype is None else dtype
        if wrap_storage is not None:
            if not isinstance(wrap_storage, UntypedStorage):
                raise TypeError(f"Argument 'wrap_storage' must be UntypedStorage, but got {type(wrap_storage).__name__}")
            self._untyped = wrap_storage
        elif not args or isinstance(args[0], int):
            self._untyped = UntypedStorage((args[0] if args else 0) * self.dtype.itemsize, device=device)
        else:
            from flambeau.ops.from_data import tensor

            self._untyped = tensor(_items(args[0]), dtype=self.dtype, device=device).untyped_storage()

    def _of_untyped(self, untyped: UntypedStorage) -> TypedStorage:
        return TypedStorage(wrap_storage=untyped, dtype=self.dtype)

    def _tensor(self) -> Tensor:
        """The elements as a tensor over the same memory."""
        return tensor_over(self._untyped, self.dtype, (self.size(),))

    def untyped(self) -> UntypedStorage:
        """The bytes."""
        return self._untyped

    def size(self) -> int:
        """The number of elements."""
        return self._untyped.nbytes() // self.dtype.itemsize

    __len__ = size

    def nbytes(self) -> int:
        """The number of bytes."""
        return self._untyped.nbytes()

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    def data_ptr(self) -> int:
        """The address of the first element."""
        return self._untyped.data_ptr()

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            raise RuntimeError("slices are only supported in UntypedStorage.__getitem__")
        if not isinstance(index, int):
            raise RuntimeError(f"can't index a {type(self).__name__} with {type(index).__name__}")
        self._need_elements()
        return self._tensor()[_checked(index, self.size())].item()

    def __setitem__(self, index: Any, value: Any) -> None:
        if not isinstance(index, (int, slice)):
            raise RuntimeError(f"can't index a {type(self).__name__} with {type(index).__name__}")
        self._untyped._bytes(write=True)
        self._tensor()[index if isinstance(index, slice) else _checked(index, self.size())] = value

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def tolist(self) -> list[Any]:
        """The elements as Python numbers."""
        self._need_elements()
        return self._tensor().tolist()  # type: ignore[no-any-return]

    def fill_(self, value: Any) -> TypedStorage:
        """Set every element."""
        self[:] = value
        return self

    def copy_(self, source: Any, non_blocking: bool | None = None) -> TypedStorage:
        """Take over the bytes of another storage of the same size, as PyTorch does, whatever its dtype."""
        self._untyped.copy_(source)
        return self

    def clone(self) -> TypedStorage:
        """A copy with memory of its own."""
        return TypedStorage(wrap_storage=self._untyped.clone(), dtype=self.dtype)

    def resize_(self, size: int) -> TypedStorage:
        """Another number of elements: the first are kept, new ones are uninitialised."""
        self._untyped.resize_(size * self.dtype.itemsize)
        return self

    def share_memory_(self) -> TypedStorage:
        """Move the elements to memory that processes can share."""
        self._untyped.share_memory_()
        return self

    def is_shared(self) -> bool:
        """Whether other processes may see the elements."""
        return self._untyped.is_shared()

    @property
    def filename(self) -> str | None:
        """The file that it maps."""
        return self._untyped.filename

    def _cast(self, d: dtype) -> TypedStorage:
        return self if d is self.dtype else TypedStorage(wrap_storage=self._tensor().to(d).untyped_storage(), dtype=d)  # type: ignore[attr-defined]

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The name of the legacy class, or a copy of another dtype (a class, a dtype or a name)."""
        if dtype is None:
            return "torch." + self.pickle_storage_type()
        if isinstance(dtype, str):
            dtype = LEGACY[dtype.rpartition(".")[2]]
        return self._cast(getattr(dtype, "dtype", dtype))

    def pickle_storage_type(self) -> str:
        """The name of the legacy class: "FloatStorage"."""
        return NAME_OF_DTYPE[self.dtype]

    _pickle_storage_type = pickle_storage_type
    _size, _nbytes, _element_size, _data_ptr, _is_shared, _share_memory_ = size, nbytes, element_size, data_ptr, is_shared, share_memory_
    _getitem, _setitem, _to = __getitem__, __setitem__, _cast

    def _resize_(self, size: int) -> None:
        self.resize_(size)

    def _deepcopy(self, memo: dict[Any, Any]) -> TypedStorage:
        return self.__deepcopy__(memo)

    def _new_wrapped_storage(self, untyped_storage: UntypedStorage) -> TypedStorage:
        return self._of_untyped(untyped_storage)

    def _get_legacy_storage_class(self) -> Any:
        """FloatStorage, or the class of another dtype; None where there is none."""
        return LEGACY.get(NAME_OF_DTYPE.get(self.dtype, ""))

    @classmethod
    def from_buffer(cls, *args: Any, dtype: dtype | None = None, device: Any = None, **kwargs: Any) -> TypedStorage:
        """A copy of the elements in an object with the buffer protocol; see UntypedStorage.from_buffer."""
        devices.check(device)
        own: Any = getattr(cls, "dtype", None)
        if own is not None and dtype is not None:
            raise RuntimeError("from_buffer: 'dtype' can only be specified in UntypedStorage.from_buffer and TypedStorage.from_buffer")
        kind = own or dtype or dtypes.get_default_dtype()
        return TypedStorage(wrap_storage=UntypedStorage.from_buffer(*args, dtype=kind, **kwargs), dtype=kind)

    _from_buffer = from_buffer

    @classmethod
    def from_file(cls, filename: str, shared: bool = False, size: int = 0) -> TypedStorage:
        """`size` elements of a file; see UntypedStorage.from_file."""
        kind: Any = getattr(cls, "dtype", None)
        if kind is None:
            raise RuntimeError("from_file can only be called on derived classes")
        return TypedStorage(wrap_storage=UntypedStorage.from_file(filename, shared, size * kind.itemsize), dtype=kind)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypedStorage) and self._untyped == other._untyped

    def __hash__(self) -> int:
        return hash(self._untyped)

    def __repr__(self) -> str:
        text = "...\n" if self.is_meta else _lines(self.tolist())
        return text + f"[torch.storage.TypedStorage(dtype={self.dtype}, device={self.device}) of size {self.size()}]"

    def __deepcopy__(self, memo: dict[Any, Any]) -> TypedStorage:
        return TypedStorage(wrap_storage=self._untyped.__deepcopy__(memo), dtype=self.dtype)

    def __reduce__(self) -> Any:
        return _restore_typed, (self._untyped, self.dtype)


class _LegacyMeta(type):
    """FloatStorage(...) makes a TypedStorage, and `isinstance(x, FloatStorage)` asks for its dtype."""

    dtype: dtype
    _dtype = property(lambda cls: cls.dtype)

    def __call__(cls, *args: Any, wrap_storage: Any = None, **kwargs: Any) -> Any:
        if "dtype" in kwargs:
            raise RuntimeError(f"{cls.__name__}.__new__: got an unexpected keyword argument: dtype")
        return TypedStorage(*args, wrap_storage=wrap_storage, dtype=cls.dtype, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, TypedStorage) and instance.dtype is cls.dtype


class LegacyStorage(TypedStorage, metaclass=_LegacyMeta):
    """The base of FloatStorage and its like."""

    dtype: ClassVar[dtype]  # type: ignore[misc]


_LegacyStorage = LegacyStorage

LEGACY: dict[str, _LegacyMeta] = {
    f"{prefix}Storage": _LegacyMeta(f"{prefix}Storage", (LegacyStorage,), {"dtype": d, "__module__": "flambeau"}) for prefix, d in _PREFIX.items()
}
NAME_OF_DTYPE = {kind.dtype: name for name, kind in LEGACY.items()}
globals().update(LEGACY)


def _conversion(name: str, d: dtype) -> Any:
    def convert(self: Any) -> TypedStorage:
        typed = self if isinstance(self, TypedStorage) else TypedStorage(wrap_storage=self, dtype=dtypes.uint8)
        return typed._cast(d)

    convert.__name__ = convert.__qualname__ = name
    convert.__doc__ = f"The elements (bytes, of an untyped storage) as {d.name}."
    return convert


for _name, _dtype in _METHODS.items():
    setattr(_StorageBase, _name, _conversion(_name, _dtype))


def _items(data: Any) -> Any:
    if isinstance(data, (str, bytes)) or not hasattr(data, "__iter__"):
        raise TypeError(f"new(): invalid data type '{type(data).__name__}'")
    return data


def _storage_of(data: Any) -> Storage:
    """The memory of a storage made of numbers: bytes of each, modulo 256."""
    import numpy

    found = numpy.asarray(_items(data) if isinstance(data, (list, tuple, bytearray, memoryview)) else list(_items(data)))
    raw = found.reshape(-1).astype(numpy.int64, copy=False).astype(numpy.uint8)
    buffer = allocate(raw.size)
    view_as_numpy(buffer.address, raw.size, buffer)[...] = raw
    return Storage(buffer)


def _part(whole: UntypedStorage, raw: Any, index: slice) -> UntypedStorage:
    """A run of a storage's bytes as a storage over the same memory. What is recorded on either runs before it returns."""
    start, stop, _ = index.indices(len(raw))
    storage = whole._storage
    if storage.external is not True:
        from flambeau.trace.evaluate import leave_as_it_is

        leave_as_it_is(storage, "part of a storage")
        storage.external = True
    assert storage.buffer is not None
    part = Storage(foreign(storage.buffer.address + start, max(stop - start, 0), raw))
    part.external = True
    return UntypedStorage(wrap=part)


def _checked(index: int, size: int) -> int:
    if not -size <= index < size:
        raise IndexError(f"index {index} out of range for storage of size {size}")
    return index + size if index < 0 else index


def _lines(values: list[Any]) -> str:
    return " " + "\n ".join(str(v) for v in values) + "\n"


def _untyped_from(data: Any) -> UntypedStorage:
    import numpy

    source = numpy.frombuffer(data, numpy.uint8) if len(data) else numpy.empty(0, numpy.uint8)
    made = UntypedStorage(source.size)
    made._bytes()[...] = source
    return made


def _load_from_bytes(data: bytes) -> Any:
    """What PyTorch's pickles of storages name: the storage in a small checkpoint."""
    import io

    return load(io.BytesIO(data), weights_only=False)


def _restore_untyped(data: bytes) -> UntypedStorage:
    return _untyped_from(data)


def _restore_typed(untyped: UntypedStorage, d: dtype) -> TypedStorage:
    return TypedStorage(wrap_storage=untyped, dtype=d)


def untyped_storage(t: Tensor) -> UntypedStorage:
    """`Tensor.untyped_storage()`."""
    from flambeau.trace.evaluate import observe, settled

    return UntypedStorage(wrap=settled(t), device=devices.META) if t.is_meta else UntypedStorage(wrap=observe(t))


def typed_storage(t: Tensor, warns: bool = True) -> TypedStorage:
    """`Tensor.storage()`: deprecated, as in PyTorch. `Tensor._typed_storage()`, which packages call, does not warn."""
    if warns:
        warn_once(
            "TypedStorage is deprecated. It will be removed in the future and UntypedStorage will be the only storage class. "
            "This should only matter to you if you are using storages directly.  To access UntypedStorage directly, use "
            "tensor.untyped_storage() instead of tensor.storage()"
        )
    return TypedStorage(wrap_storage=untyped_storage(t), dtype=t.dtype)


def _dtype_to_storage_type_map() -> dict[Any, str]:
    """The names of the legacy classes, as packages that read old files ask for them."""
    return dict(NAME_OF_DTYPE)


def _storage_type_to_dtype_map() -> dict[str, Any]:
    return {name: d for d, name in NAME_OF_DTYPE.items()}


def legacy_storage_class(d: dtype) -> Any:
    """`Tensor.storage_type()`: FloatStorage, ..."""
    return LEGACY[NAME_OF_DTYPE[d]]


def set_source(t: Tensor, source: Any, storage_offset: int = 0, size: Any = None, stride: Any = None) -> Tensor:
    """`Tensor.set_`: share the memory of a tensor (with its shape and strides, unless a size is given) or of a storage; empty without a source."""
    if t._meta.requires_grad and t.is_leaf and local.main.grad_enabled:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
    bits = t._meta.bits  # how it reads its memory, whose it ever is
    if source is None:
        source = UntypedStorage(0)
    if isinstance(source, Tensor):
        if source.dtype is not t.dtype:
            raise RuntimeError(f"Could not set tensor of type {source.dtype} to a tensor of type {t.dtype}")
        if size is None:
            return _given_memory(t, source._read_as(bits))
        source = source.untyped_storage()
    if not isinstance(source, (UntypedStorage, TypedStorage)):
        raise TypeError(f"set_(): argument 'source' must be a Tensor or a Storage, not {type(source).__name__}")
    if isinstance(source, TypedStorage) and source.dtype is not t.dtype:
        raise RuntimeError(f"Expected a Storage of type {t.dtype} or an UntypedStorage, but got type {source.dtype} for argument 1 'storage'")
    shape = (source.nbytes() // t.element_size(),) if size is None else size
    return _given_memory(t, tensor_over(source.untyped(), t.dtype, shape, stride or None, storage_offset))


def _given_memory(t: Tensor, source: Tensor) -> Tensor:
    t._replace(source)
    t._detached = next(FAMILIES)  # the history of others on the memory is not this tensor's
    t._set_at = next(ORDER)  # gradients that need what it was are refused
    return t


def tensor_over(untyped: UntypedStorage, d: dtype, size: Any, stride: Any = None, offset: int = 0) -> Tensor:
    """A tensor over a storage, which grows if the tensor does not lie inside."""
    from flambeau.trace.evaluate import leave_as_it_is

    size = tuple(size)
    stride = contiguous_strides(size) if stride is None else tuple(stride)
    storage = untyped._observed()
    assert storage.buffer is not None
    if 0 not in size:
        needed = (offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) + 1) * d.itemsize
        if needed > storage.buffer.nbytes:
            untyped.resize_(needed)
    if storage.external is not True and not untyped.is_meta:  # tensors of another dtype may lie over it: all of them go through memory
        leave_as_it_is(storage, "view of a storage")
        storage.external = True
    return from_storage(storage, meta(size, stride, d, offset, device=untyped.device))  # type: ignore[no-any-return]


def from_file(
    filename: str, shared: bool | None = None, size: int | None = 0, *, dtype: dtype | None = None, layout: Any = None, device: Any = None,
    pin_memory: bool | None = False,
) -> Tensor:  # fmt: skip
    """`torch.from_file`: `size` elements of a file as a vector. `shared`: changes go to the file."""
    devices.check(device)
    d = dtypes.get_default_dtype() if dtype is None else dtype
    return tensor_over(UntypedStorage.from_file(filename, bool(shared), (size or 0) * d.itemsize), d, (size or 0,))


from flambeau.names import answering as _answering  # noqa: E402

__getattr__ = _answering("torch.storage", globals())
