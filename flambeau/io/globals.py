"""What a checkpoint may name: tensor rebuilders, dtypes, storages, plain containers; and what users add to the list."""

from __future__ import annotations

import importlib
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pickle import UnpicklingError
from typing import Any

from flambeau.devices import Device
from flambeau.dtypes import ALL, dtype
from flambeau.io.storage_bytes import check_layout, tensor_over
from flambeau.nn.parameter import Parameter
from flambeau.tensor import Tensor
from flambeau.trace.meta import Size
from flambeau.trace.storage import Storage

_PREFIX = {
    "Double": "float64", "Float": "float32", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64", "Int": "int32",
    "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool", "ComplexFloat": "complex64", "ComplexDouble": "complex128",
}  # fmt: skip


class StorageType:
    """torch.FloatStorage and its like: in files they only say the dtype."""

    def __init__(self, name: str, d: dtype) -> None:
        self.__name__ = name
        self.dtype = d


class TypedStorage:
    """A storage as a file refers to it: the bytes, the dtype of its elements, how many."""

    def __init__(self, storage: Storage, d: dtype, numel: int) -> None:
        self.storage = storage
        self.dtype = d
        self.numel = numel


_DTYPES = {d.name: d for d in ALL}
STORAGE_TYPES = {f"{prefix}Storage": StorageType(f"{prefix}Storage", _DTYPES[name]) for prefix, name in _PREFIX.items()}
STORAGE_NAME = {t.dtype: name for name, t in STORAGE_TYPES.items()}


def rebuild_tensor(storage: Any, offset: Any, size: Any, stride: Any, *rest: Any) -> Tensor:
    """torch._utils._rebuild_tensor: a view of a storage, after a check that it lies inside."""
    if not isinstance(storage, TypedStorage) or not isinstance(size, tuple) or not isinstance(stride, tuple):
        raise UnpicklingError("a tensor in the file is not described by a storage, an offset, sizes and strides")
    error = check_layout(storage.numel, size, stride, offset)
    if error is not None:
        raise UnpicklingError(f"a tensor in the file lies outside its storage: {error}")
    return tensor_over(storage.storage, storage.dtype, size, stride, offset)


def rebuild_tensor_v2(
    storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any, metadata: Any = None
) -> Tensor:
    """torch._utils._rebuild_tensor_v2."""
    t = rebuild_tensor(storage, offset, size, stride)
    return t.requires_grad_() if requires_grad is True else t


def rebuild_parameter(data: Any, requires_grad: Any, hooks: Any) -> Parameter:
    """torch._utils._rebuild_parameter."""
    return Parameter(data, requires_grad is True)


def rebuild_parameter_with_state(data: Any, requires_grad: Any, hooks: Any, state: Any) -> Parameter:
    """torch._utils._rebuild_parameter_with_state: attributes of the Parameter object too."""
    return _with_state(Parameter(data, requires_grad is True), state)  # type: ignore[no-any-return]


def rebuild_from_type(function: Any, kind: Any, args: Any, state: Any) -> Any:
    """torch._tensor._rebuild_from_type_v2: a tensor with attributes."""
    if function not in _REBUILDERS or kind not in (Tensor, Parameter) or not isinstance(args, tuple):
        raise UnpicklingError("the file rebuilds a tensor by a function or class that is not allowed")
    return _with_state(function(*args), state)


def _with_state(t: Any, state: Any) -> Any:
    for part in state if isinstance(state, tuple) else (state,):
        if isinstance(part, dict):
            for key, value in part.items():
                if isinstance(key, str) and key.isidentifier() and not key.startswith("_") and not hasattr(type(t), key):
                    setattr(t, key, value)
    return t


def decode(text: Any, encoding: Any) -> bytes:
    """_codecs.encode(text, "latin1"): how protocol 2 writes bytes."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise UnpicklingError("the file encodes text by something else than latin1")
    return text.encode("latin-1")


def make_device(kind: Any = "cpu", index: Any = None) -> Any:
    """torch.device: whatever it was, the object is on the CPU now."""
    return Device("cpu")


_REBUILDERS = (rebuild_tensor, rebuild_tensor_v2, rebuild_parameter, rebuild_parameter_with_state)
ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("collections", "Counter"): Counter,
    ("builtins", "set"): set,
    ("__builtin__", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("builtins", "complex"): complex,
    ("__builtin__", "complex"): complex,
    ("builtins", "bytearray"): bytearray,
    ("__builtin__", "bytearray"): bytearray,
    ("_codecs", "encode"): decode,
    ("torch", "Size"): Size,
    ("torch", "device"): make_device,
    ("torch", "Tensor"): Tensor,
    ("torch._utils", "_rebuild_tensor"): rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): rebuild_tensor_v2,
    ("torch._utils", "_rebuild_parameter"): rebuild_parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): rebuild_parameter_with_state,
    ("torch._tensor", "_rebuild_from_type_v2"): rebuild_from_type,
    ("torch.nn.parameter", "Parameter"): Parameter,
    **{("torch", name): t for name, t in STORAGE_TYPES.items()},
    **{("torch", d.name): d for d in ALL},
}
_CALLABLE = {OrderedDict, Counter, set, frozenset, complex, Size, decode, make_device, rebuild_from_type, *_REBUILDERS}
_BUILDABLE = {OrderedDict}
_ADDED: dict[tuple[str, str], Any] = {}


def find(module: str, name: str) -> Any:
    """An allowed object; UnpicklingError, which names it, for any other."""
    found = ALLOWED.get((module, name), _ADDED.get((module, name)))
    if found is None:
        raise UnpicklingError(
            f"Weights only load failed: the file names the global {module}.{name}, which is not on the list of what a checkpoint "
            "may contain. If you trust the file, allow it with torch.serialization.add_safe_globals([...]), or pass "
            "weights_only=False, which executes whatever the file says."
        )
    return found


def may_call(function: Any) -> bool:
    """Whether a file may call this object."""
    try:
        return function in _CALLABLE or function in _ADDED.values() or function is bytearray
    except TypeError:
        return False


def may_build(cls: type) -> bool:
    """Whether a file may set the state of this class's instances."""
    return cls in _BUILDABLE or cls in _ADDED.values()


def _names(item: Any) -> tuple[tuple[str, str], Any]:
    if isinstance(item, tuple):
        item, full = item
        module, _, name = full.rpartition(".")
        return (module, name), item
    module = torch_module(item.__module__)
    return (module, item.__qualname__), item


def torch_module(module: str) -> str:
    """The module under which PyTorch has what lies in this module of ours."""
    if not module.startswith("flambeau"):
        return module
    for prefix in ("flambeau.optim.lr_scheduler", "flambeau.nn.functional"):
        if module.startswith(prefix):
            return "torch" + prefix.removeprefix("flambeau")
    return "torch" + module.removeprefix("flambeau")


def import_torch_name(module: str, name: str) -> Any:
    """Our object for a name of PyTorch; AttributeError or ImportError if there is none."""
    found: Any = importlib.import_module("flambeau" + module.removeprefix("torch"))
    for part in name.split("."):
        found = getattr(found, part)
    return found


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Allow functions and classes (or (object, "module.name") pairs) in checkpoints."""
    _ADDED.update(_names(item) for item in safe_globals)


def clear_safe_globals() -> None:
    """Forget what was added."""
    _ADDED.clear()


def get_safe_globals() -> list[Any]:
    """What was added."""
    return list(_ADDED.values())


@contextmanager
def safe_globals(items: list[Any]) -> Iterator[None]:
    """Allow functions and classes inside a `with` block."""
    before = dict(_ADDED)
    add_safe_globals(items)
    try:
        yield
    finally:
        _ADDED.clear()
        _ADDED.update(before)
