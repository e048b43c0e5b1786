"""What a checkpoint may name: tensor rebuilders, dtypes, storages, plain containers; and what users add to the list."""

from __future__ import annotations

import importlib
import pickletools
from collections import Counter, OrderedDict
from pickle import UnpicklingError
from typing import Any, BinaryIO

from flambeau import layouts
from flambeau.devices import CPU, META
from flambeau.dtypes import HELD, INTEGER_OF, QUANTIZED, dtype
from flambeau.io.pickling import restore_wrapper
from flambeau.io.storage_bytes import check_layout, tensor_over
from flambeau.module_names import home, is_ours, under_flambeau
from flambeau.nn.parameter import Buffer, Parameter
from flambeau.ops.dispatch import Dispatched, marked
from flambeau.quantized import schemes
from flambeau.storage import LEGACY, TypedStorage, UntypedStorage
from flambeau.tensor import _INTERNAL, Tensor
from flambeau.trace.existing import blank_tensor
from flambeau.trace.meta import CONJ, NEG, Size


def rebuild_tensor(storage: Any, offset: Any, size: Any, stride: Any, *rest: Any) -> Tensor:
    """torch._utils._rebuild_tensor: a view of a storage, after a check that it lies inside."""
    if not isinstance(storage, TypedStorage) or not isinstance(size, tuple) or not isinstance(stride, tuple):
        raise UnpicklingError("a tensor in the file is not described by a storage, an offset, sizes and strides")
    error = check_layout(storage.size(), size, stride, offset)
    if error is not None:
        raise UnpicklingError(f"a tensor in the file lies outside its storage: {error}")
    return tensor_over(storage.untyped()._storage, storage.dtype, size, stride, offset, storage.device)


def rebuild_tensor_v2(storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any, metadata: Any = None) -> Tensor:
    """torch._utils._rebuild_tensor_v2."""
    t = rebuild_tensor(storage, offset, size, stride)
    _set_bits(t, metadata)
    return t.requires_grad_() if requires_grad is True else t


def _set_bits(t: Tensor, metadata: Any) -> None:
    """What a file says of a tensor beside its layout: that it is a view of conjugates, or of negatives."""
    if isinstance(metadata, dict):
        conj = CONJ if metadata.get("conj") is True and t.is_complex() else 0
        t._meta = t._meta.with_bits(conj | (NEG if metadata.get("neg") is True else 0))


def rebuild_tensor_v3(storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any, kind: Any, metadata: Any = None) -> Tensor:
    """torch._utils._rebuild_tensor_v3: a tensor of a dtype that has no class of storages, over bytes."""
    if not isinstance(storage, TypedStorage) or not isinstance(kind, dtype):
        raise UnpicklingError("a tensor in the file is not described by a storage, an offset, sizes, strides and a dtype")
    t = rebuild_tensor(TypedStorage(wrap_storage=storage.untyped(), dtype=kind), offset, size, stride)
    _set_bits(t, metadata)
    return t.requires_grad_() if requires_grad is True else t


def rebuild_meta(kind: Any, size: Any, stride: Any, requires_grad: Any) -> Tensor:
    """torch._utils._rebuild_meta_tensor_no_storage: a tensor of the device `meta`, of which only the layout was saved."""
    error = check_layout(1 << 62, size, stride, 0) if isinstance(kind, dtype) else "it has no dtype"
    if error is not None:
        raise UnpicklingError(f"a tensor of the device meta in the file is malformed: {error}")
    return blank_tensor(tuple(size), kind, tuple(stride), requires_grad is True)  # type: ignore[no-any-return]


def rebuild_wrapper(kind: Any, *layout: Any) -> Any:
    """torch._utils._rebuild_wrapper_subclass: a tensor of a class with `__torch_dispatch__`, which the user has allowed."""
    if not isinstance(kind, type) or not issubclass(kind, Dispatched) or len(layout) != 7:
        raise UnpicklingError("the file rebuilds a tensor of a class that has no __torch_dispatch__")
    return restore_wrapper(kind, *layout)


def rebuild_parameter(data: Any, requires_grad: Any, hooks: Any) -> Parameter:
    """torch._utils._rebuild_parameter."""
    return Parameter(data, requires_grad is True)


def rebuild_parameter_with_state(data: Any, requires_grad: Any, hooks: Any, state: Any) -> Parameter:
    """torch._utils._rebuild_parameter_with_state: attributes of the Parameter object too."""
    return _with_state(Parameter(data, requires_grad is True), state)  # type: ignore[no-any-return]


def rebuild_from_type(function: Any, kind: Any, args: Any, state: Any) -> Any:
    """torch._tensor._rebuild_from_type_v2: a tensor with attributes, or of a subclass that the user has allowed."""
    if function not in _REBUILDERS or not isinstance(args, tuple) or not (kind in (Tensor, Parameter) or kind in _ADDED.values()):
        raise UnpicklingError("the file rebuilds a tensor by a function or class that is not allowed")
    return rebuild_any_type(function, kind, args, state)


def rebuild_any_type(function: Any, kind: Any, args: Any, state: Any) -> Any:
    """The same for files that may execute what they say."""
    made = function(*args)
    if isinstance(made, Dispatched) and isinstance(state, dict):  # whose elements are among its attributes
        made.__dict__.update({name: value for name, value in state.items() if name not in _INTERNAL})
        return marked(made, Parameter)
    if isinstance(state, dict) and state.get("_is_buffer") is True:
        made = Buffer(made, persistent=state.get("persistent") is not False)
    elif type(made) is not kind:
        made = made.as_subclass(kind)
    made = _with_state(made, state)
    if isinstance(state, dict) and state.get("_is_param") is True and type(made) not in (Tensor, Parameter):
        made._is_param = True
        return marked(made, Parameter)
    return made


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
    """torch.device: whatever it was, the object is on the CPU now, unless it is nowhere."""
    return META if kind == "meta" else CPU


def rebuild_sparse(kind: Any, parts: Any) -> Tensor:
    """torch._utils._rebuild_sparse_tensor: a layout, and (indices, values, size, coalesced) or (pointers, indices, values, size)."""
    from flambeau.layouts import layout
    from flambeau.sparse.construct import rebuild

    if not isinstance(kind, layout) or not isinstance(parts, tuple) or len(parts) not in (3, 4) or not isinstance(parts[1], Tensor):
        raise UnpicklingError("the file has a malformed sparse tensor")
    try:
        return rebuild(kind, parts)
    except (RuntimeError, TypeError, ValueError) as error:
        raise UnpicklingError(f"the file has a sparse tensor whose parts do not fit: {error}") from error


def rebuild_quantized(storage: Any, offset: Any, size: Any, stride: Any, meaning: Any, requires_grad: Any = False, hooks: Any = None) -> Tensor:
    """torch._utils._rebuild_qtensor: integers, and (scheme, scale, zero point) or (scheme, scales, zero points, axis)."""
    quantized = importlib.import_module("flambeau.quantized.tensor")  # which looks at all functions of torch, so late
    made, Affine = quantized.made, quantized.Affine
    if not isinstance(storage, TypedStorage) or storage.dtype not in INTEGER_OF or not isinstance(meaning, tuple) or len(meaning) not in (3, 4):
        raise UnpicklingError("the file has a malformed quantized tensor")
    integers = rebuild_tensor(TypedStorage(wrap_storage=storage.untyped(), dtype=INTEGER_OF[storage.dtype]), offset, size, stride)
    scheme, scale, zero_point, *axis = meaning
    if scheme is schemes.per_tensor_affine and not axis:
        if not isinstance(scale, float) or type(zero_point) is not int:
            raise UnpicklingError(f"the file has a quantized tensor whose scale {scale!r} and zero point {zero_point!r} are no numbers")
        return made(integers, Affine(storage.dtype, scale, zero_point))  # type: ignore[no-any-return]
    by_channels = scheme in (schemes.per_channel_affine, schemes.per_channel_affine_float_qparams)
    fits = by_channels and len(axis) == 1 and type(axis[0]) is int and 0 <= axis[0] < len(size)
    if not fits or not all(isinstance(t, Tensor) and tuple(t.shape) == (size[axis[0]],) for t in (scale, zero_point)):
        raise UnpicklingError("the file has a quantized tensor whose scales and zero points do not fit its sizes")
    return made(integers, Affine(storage.dtype, scale, zero_point, axis[0]))  # type: ignore[no-any-return]


def get_layout(name: Any) -> Any:
    """torch.serialization._get_layout."""
    found = layouts.ALL.get(name) if isinstance(name, str) else None
    if found is None:
        raise UnpicklingError(f"the file names the unknown layout {name!r}")
    return found


_REBUILDERS = (
    rebuild_tensor, rebuild_tensor_v2, rebuild_tensor_v3, rebuild_meta, rebuild_wrapper, rebuild_parameter, rebuild_parameter_with_state, rebuild_sparse,
    rebuild_quantized,
)  # fmt: skip
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
    ("torch._utils", "_rebuild_tensor_v3"): rebuild_tensor_v3,
    ("torch._utils", "_rebuild_meta_tensor_no_storage"): rebuild_meta,
    ("torch._utils", "_rebuild_wrapper_subclass"): rebuild_wrapper,
    ("torch._utils", "_rebuild_parameter"): rebuild_parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): rebuild_parameter_with_state,
    ("torch._utils", "_rebuild_sparse_tensor"): rebuild_sparse,
    ("torch._utils", "_rebuild_qtensor"): rebuild_quantized,
    **{("torch", scheme.name): scheme for scheme in schemes.ALL},
    ("torch.serialization", "_get_layout"): get_layout,
    ("torch._tensor", "_rebuild_from_type_v2"): rebuild_from_type,
    ("torch.nn.parameter", "Parameter"): Parameter,
    ("torch.storage", "UntypedStorage"): UntypedStorage,
    **{("torch", name): t for name, t in LEGACY.items()},
    **{("torch", d.name): d for d in (*HELD, *QUANTIZED)},
}
_CALLABLE = {OrderedDict, Counter, set, frozenset, complex, Size, decode, make_device, get_layout, rebuild_from_type, *_REBUILDERS}
_BUILDABLE = {OrderedDict}
_ADDED: dict[tuple[str, str], Any] = {}


def allow(module: str, name: str, function: Any) -> None:
    """Let files name and call a function that checks what it is given: for packages that define tensors of their own."""
    ALLOWED[(module, name)] = function
    _CALLABLE.add(function)


_BLOCKED = frozenset(("sys", "os", "posix", "nt"))  # never allowed, whatever a user adds


def find(module: str, name: str) -> Any:
    """An allowed object; UnpicklingError, which names it, for any other."""
    full = f"{module}.{name}"
    if module in _BLOCKED:
        raise UnpicklingError(f"Trying to load unsupported GLOBAL {full} whose module {module} is blocked.")
    found = ALLOWED.get((module, name), _ADDED.get((module, name)))
    if found is None:
        if f"{module}.".startswith(("torch.distributed.tensor.", "torch.distributed.device_mesh.")):
            raise UnpicklingError(
                "``torch.distributed.tensor`` must be imported to load DTensors, and a DTensor that PyTorch has written into a file of torch.save cannot be "
                f"read (it names {full}): save it with torch.distributed.checkpoint, or its to_local() or full_tensor()"
            )
        shown = full.removeprefix("builtins.")
        raise UnpicklingError(
            f"Unsupported global: GLOBAL {full} was not an allowed global by default. Please use "
            f"`torch.serialization.add_safe_globals([{shown}])` or the `torch.serialization.safe_globals([{shown}])` context manager "
            "to allowlist this global if you trust this class/function."
        )
    return found


FULL_LOAD = (
    "In PyTorch 2.6, we changed the default value of the `weights_only` argument in `torch.load` from `False` to `True`. Re-running "
    "`torch.load` with `weights_only` set to `False` will likely succeed, but it can result in arbitrary code execution. Do it only if you "
    "got the file from a trusted source."
)


def refusal(message: str) -> UnpicklingError:
    """The error of a weights-only load, with what a user can do."""
    if "was not an allowed global" in message:
        return UnpicklingError(
            "Weights only load failed. This file can still be loaded, to do so you have two options, do those steps only if you trust the "
            f"source of the checkpoint. \n\t(1) {FULL_LOAD}\n\t(2) Alternatively, to load with `weights_only=True` please check the "
            f"recommended steps in the following error message.\n\tWeightsUnpickler error: {message}"
        )
    return UnpicklingError(f"Weights only load failed. {FULL_LOAD}\n\nWeightsUnpickler error: {message}")


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
    return torch_name(item), item


def torch_name(obj: Any) -> tuple[str, str]:
    """(module, name) under which PyTorch has a class or function of ours; its own for any other."""
    module, name = obj.__module__, obj.__qualname__
    if not is_ours(module):
        return module, name
    if obj is Tensor:
        return "torch", "Tensor"
    if under_flambeau(module).startswith("flambeau.optim.") and hasattr(obj, "zero_grad"):  # one file each in PyTorch
        return f"torch.optim.{'_' if name in ('Adafactor', 'Muon') else ''}{name.lower()}", name
    return home(module), name


def import_torch_name(module: str, name: str) -> Any:
    """Our object for a name of PyTorch; AttributeError or ImportError if there is none."""
    path = under_flambeau(module)
    while True:  # classes may lie in another file of the same package: torch.optim.rmsprop.RMSprop
        try:
            found: Any = importlib.import_module(path)
            for part in name.split("."):
                found = getattr(found, part)
            return found
        except (ImportError, AttributeError):
            path, _, _ = path.rpartition(".")
            if path in ("", "flambeau"):
                raise


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Allow functions and classes (or (object, "module.name") pairs) in checkpoints."""
    _ADDED.update(_names(item) for item in safe_globals)


def clear_safe_globals() -> None:
    """Forget what was added."""
    _ADDED.clear()


def get_safe_globals() -> list[Any]:
    """What was added."""
    return list(_ADDED.values())


class safe_globals:
    """Allow functions and classes (or (object, "module.name") pairs) inside a `with` block."""

    def __init__(self, safe_globals: list[Any]) -> None:
        self.safe_globals = safe_globals

    def __enter__(self) -> None:
        self._before = dict(_ADDED)
        add_safe_globals(self.safe_globals)

    def __exit__(self, type: Any, value: Any, tb: Any) -> None:
        _ADDED.clear()
        _ADDED.update(self._before)


def unsafe_names(stream: BinaryIO) -> set[str]:
    """The globals that a pickle names and that are neither on the list nor added; nothing is executed."""
    found: set[str] = set()
    texts: list[str] = []  # strings in the order in which they are pushed: a STACK_GLOBAL takes the last two
    memo: dict[int, str] = {}
    count = 0  # of memo entries
    was_text = False  # the last operation pushed a string
    for code, argument, _ in pickletools.genops(stream):
        if code.name == "GLOBAL":
            found.add(str(argument).replace(" ", "."))
        elif code.name == "STACK_GLOBAL" and len(texts) >= 2:
            found.add(f"{texts[-2]}.{texts[-1]}")
        elif code.name in ("BINGET", "LONG_BINGET") and argument in memo:
            texts.append(memo[argument])
        elif code.name in ("MEMOIZE", "BINPUT", "LONG_BINPUT"):
            if texts and was_text:
                memo[count if argument is None else argument] = texts[-1]
            count += 1
        elif isinstance(argument, str):
            texts.append(argument)
        was_text = isinstance(argument, str) and code.name != "GLOBAL"
    known = {f"{module}.{name}" for module, name in (*ALLOWED, *_ADDED)}
    return found - known
