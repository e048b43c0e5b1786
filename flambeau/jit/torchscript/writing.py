"""A module that was read from a TorchScript archive, written as one again: the same code, its present tensors and attributes. PyTorch reads it."""

from __future__ import annotations

import ast
import enum
import io
import os
import pickle
import zipfile
from collections import OrderedDict
from typing import Any, Final

from flambeau.io.checkpoint import Pickler, record
from flambeau.jit.torchscript import packed
from flambeau.jit.torchscript.code import ScriptClass
from flambeau.jit.torchscript.modules import TorchScriptModule
from flambeau.jit.torchscript.objects import Instance, NamedValues
from flambeau.jit.torchscript.type_annotations import parts
from flambeau.runtime import whole_files
from flambeau.tensor import Tensor

_PICKLE: Final = "torch.jit._pickle"
_TYPED: Final = {"int": "build_intlist", "Tensor": "build_tensorlist", "float": "build_doublelist", "bool": "build_boollist"}


class _Reduced:
    """What the pickle is to say for a value: a function of PyTorch's by name, and its argument. The value is kept, so that its id stays its own."""

    def __init__(self, module: str, name: str, arguments: Any, of: Any = None) -> None:
        self.module, self.name, self.arguments, self.of = module, name, arguments, of


class _Object:
    """An object of a class of the archive, with its state."""

    def __init__(self, script: ScriptClass, state: dict[str, Any]) -> None:
        self.script, self.state = script, state


class _Weights:
    """Packed weights of a quantized layer: the name of PyTorch's C++ class, and the state."""

    def __init__(self, qualified: str, state: Any) -> None:
        self.qualified, self.state = qualified, state


class _Pickler(Pickler):
    """The pickle of TorchScript's objects, as PyTorch's reader in C++ takes it: an object is numbered after its state."""

    def save(self, obj: Any, save_persistent_id: bool = True) -> Any:
        if type(obj) is _Object or type(obj) is _Weights:
            known = self.memo.get(id(obj))
            if known is not None:
                self.write(self.get(known[0]))
                return None
            module, _, name = (obj.qualified if isinstance(obj, _Weights) else obj.script.qualified).rpartition(".")
            self.save(self._name(module, name))
            self.write(pickle.EMPTY_TUPLE + pickle.NEWOBJ)
            self.save(obj.state)
            self.write(pickle.BUILD)
            self.memoize(obj)
            return None
        if type(obj) is _Reduced:
            self.save(self._name(obj.module, obj.name))
            self.save(obj.arguments)
            self.write(pickle.REDUCE)
            return None
        return super().save(obj, save_persistent_id)

    def _tensor(self, t: Tensor) -> Any:
        arguments: tuple[Any, ...] = (
            self._reference(t.detach().storage()),
            t.storage_offset(),
            tuple(t.shape),
            tuple(t.stride()),
            t.requires_grad,
            OrderedDict(),
        )
        return self._name("torch._utils", "_rebuild_tensor_v2"), arguments


class _Writer:
    """Turns live modules into what the pickler writes. What occurs twice is one object in the file, too."""

    def __init__(self) -> None:
        self.done: dict[int, Any] = {}
        self.keep: list[Any] = []

    def value(self, v: Any, annotation: ast.expr) -> Any:
        """A value of a type."""
        kind, inside = parts(annotation)
        if kind == "Optional" and inside:
            return None if v is None else self.value(v, inside[0])
        if id(v) in self.done:
            return self.done[id(v)]
        if isinstance(v, (TorchScriptModule, Instance)):
            return self.object(v)
        made = self._made(v, annotation, kind, inside)
        if isinstance(v, list | dict):
            self.done[id(v)] = made
            self.keep.append(v)
        return made

    def _made(self, v: Any, annotation: ast.expr, kind: str, inside: list[ast.expr]) -> Any:
        if kind in packed.CLASSES:
            return self.weights(v, kind)
        if isinstance(v, enum.Enum):
            return _Reduced(*_split(kind), v.value, v)
        if isinstance(v, NamedValues):
            return _Reduced(*_split(kind), tuple(v), v)
        if isinstance(v, list) and kind == "List":
            if ast.unparse(inside[0]) in _TYPED:
                return _Reduced(_PICKLE, _TYPED[ast.unparse(inside[0])], (list(v),), v)
            return _Reduced(_PICKLE, "restore_type_tag", ([self.value(x, inside[0]) for x in v], ast.unparse(annotation)), v)
        if isinstance(v, dict) and kind == "Dict":
            items = {self.value(k, inside[0]): self.value(x, inside[1]) for k, x in v.items()}
            return _Reduced(_PICKLE, "restore_type_tag", (items, ast.unparse(annotation)), v)
        if isinstance(v, tuple) and kind == "Tuple":
            return tuple([self.value(x, a) for x, a in zip(v, inside, strict=True)])
        if isinstance(v, complex):
            return _Reduced("builtins", "complex", (v.real, v.imag), v)
        return float(v) if kind == "float" else v

    def weights(self, v: Any, qualified: str) -> _Weights:
        """Packed weights, as an object of the C++ class of this name; its lists have types, as all lists of an archive."""
        state = packed.state_of(v, qualified)
        linear = f"{packed.SPACE}quantized.LinearPackedParamsBase"
        types = {
            "LinearPackedParamsBase": ("Tensor", "Optional[Tensor]"),
            "EmbeddingPackedParamsBase": ("int", "List[Tensor]", "List[float]", "List[int]"),
            "CellParamsBase": ("str", "List[Tensor]", "List[float]", "List[int]", f"List[{linear}]"),
        }.get(qualified.rpartition(".")[2], ("str", "List[Tensor]", "List[Optional[Tensor]]"))
        self.keep.append(state)
        return _Weights(qualified, tuple([self.value(x, ast.parse(t, mode="eval").body) for x, t in zip(state, types, strict=True)]))

    def object(self, owner: Any) -> _Object:
        """A module or another object of the archive's classes."""
        if id(owner) in self.done:
            return self.done[id(owner)]  # type: ignore[no-any-return]
        script: ScriptClass = owner.script if isinstance(owner, Instance) else owner.__dict__["_script"]
        made = self.done[id(owner)] = _Object(script, {})
        self.keep.append(owner)
        if isinstance(owner, Instance):
            held = owner.values
        else:
            inside = owner.__dict__
            held = {**inside, **inside["_parameters"], **inside["_buffers"], **inside["_modules"]}
        get = script.methods.get("__getstate__")
        if get is not None:
            made.state = get.call((owner,))
            return made
        for name, annotation in script.attributes.items():
            if name not in script.constants and name in held:
                made.state[name] = self.value(held[name], annotation)
        return made


def _split(qualified: str) -> tuple[str, str]:
    module, _, name = qualified.rpartition(".")
    return module, name


def write(m: TorchScriptModule, f: Any, extra: dict[str, Any]) -> None:
    """Write a module that was read by torch.jit.load. A path gets its content by a rename at the end. RuntimeError for a part of such a module."""
    content = m.__dict__.get("_content")
    if content is None:
        raise RuntimeError("torch.jit.save: this is a part of a module that torch.jit.load has read; save the whole, or its state_dict()")
    if hasattr(f, "write"):
        made = io.BytesIO()
        _write(m, content, made, "archive", extra)
        f.write(made.getvalue())
        return
    path = os.fspath(f)
    with whole_files.replacing(path) as file:
        _write(m, content, file, os.path.splitext(os.path.basename(path))[0] or "archive", extra)


def _write(m: TorchScriptModule, content: Any, file: Any, stem: str, extra: dict[str, Any]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        _pickled(archive, stem, "data", _Writer().object(m))
        for name, text in content.code.items():
            record(archive, f"{stem}/{name}", text.encode())
        held = _Writer()
        constants = [held.weights(v, kind) if (kind := packed.class_of(v)) else v for v in content.unit.constants]
        _pickled(archive, stem, "constants", tuple(constants))
        for name, value in extra.items():
            record(archive, f"{stem}/extra/{name}", value.encode() if isinstance(value, str) else bytes(value))
        record(archive, f"{stem}/version", b"3\n")
        record(archive, f"{stem}/byteorder", b"little")


def _pickled(archive: zipfile.ZipFile, stem: str, name: str, value: Any) -> None:
    data = io.BytesIO()
    pickler = _Pickler(data, 2)
    pickler.dump(value)
    for key, storage in enumerate(pickler.storages):
        record(archive, f"{stem}/{name}/{key}", memoryview(storage._bytes()))
    record(archive, f"{stem}/{name}.pkl", data.getvalue())
