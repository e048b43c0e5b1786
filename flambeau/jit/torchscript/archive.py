"""The records of a TorchScript archive: code/*.py, constants.pkl, data.pkl and their tensors, extra/*. Read by io's reader, which executes nothing."""

from __future__ import annotations

import io
from collections.abc import Callable
from pickle import UnpicklingError
from typing import Any, NamedTuple

from flambeau.io import globals as names
from flambeau.io.checkpoint import Archive, zip_archive
from flambeau.io.options import restorer
from flambeau.io.restricted import Reader
from flambeau.jit.torchscript import packed
from flambeau.jit.torchscript.code import ScriptClass, Unit
from flambeau.jit.torchscript.errors import refuse


class Pickled:
    """An object of a class of the archive, before it is made: its class and its state."""

    script: ScriptClass
    state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class Content(NamedTuple):
    """What an archive holds. `root`: the pickled top module; `code`: the text of each file; `constants`: what code calls CONSTANTS."""

    root: Pickled
    unit: Unit
    code: dict[str, str]
    extra: dict[str, bytes]


def _list(items: Any) -> list[Any]:
    if not isinstance(items, list):
        raise UnpicklingError("a typed list in the pickle is no list")
    return items


def _tagged(value: Any, kind: Any) -> Any:
    return value


_MOST_CODE = 1 << 24  # bytes of one file of code, which is compressed
_PICKLE = "torch.jit._pickle"
_TYPED = {(_PICKLE, f"build_{kind}list"): _list for kind in ("int", "tensor", "double", "bool")} | {(_PICKLE, "restore_type_tag"): _tagged}


class _Reader(Reader):
    """A pickle of TorchScript: classes are the archive's own, and an enum is made of one value."""

    def _call(self) -> None:
        if not isinstance(self.stack[-1], tuple):
            self.stack[-1] = (self.stack[-1],)
        super()._call()


class _Names:
    """What the pickles of an archive may name."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.kinds: dict[str, Any] = {}

    def find(self, module: str, name: str) -> Any:
        own = _TYPED.get((module, name))
        if own is not None:
            return own
        if module != "__torch__" and not module.startswith("__torch__."):
            return names.find(module, name)
        full = f"{module}.{name}"
        if full in packed.CLASSES:
            return packed.CLASSES[full]
        script = self.unit.names.get(full)
        if not isinstance(script, ScriptClass):
            refuse(f"data.pkl has an object of the class {full}, which the archive's code does not define" + (
                "; it is a C++ class" if module.startswith("__torch__.torch.classes") else ""))  # fmt: skip
        if script.base in ("NamedTuple", "Enum"):
            return script
        if full not in self.kinds:
            self.kinds[full] = type(script.name, (Pickled,), {"script": script})
        return self.kinds[full]

    def may_call(self, function: Any) -> bool:
        if isinstance(function, type) and issubclass(function, (Pickled, packed.PickledWeights)):
            return True
        return isinstance(function, ScriptClass) or function in _TYPED.values() or names.may_call(function)

    def may_build(self, cls: type) -> bool:
        return issubclass(cls, (Pickled, packed.PickledWeights)) or names.may_build(cls)


def _unpickled(archive: Archive, record: str, folder: str, known: _Names) -> Any:
    def persistent(identity: Any) -> Any:
        return archive.persistent(identity, folder)

    try:
        return _Reader(io.BytesIO(archive.record(record)), known.find, persistent, known.may_build, known.may_call).load()
    except UnpicklingError as error:
        raise UnpicklingError(f"torch.jit.load: {record}: {error}") from None


def read(f: Any, map_location: Any) -> Content:
    """The content of an archive; RuntimeError or UnpicklingError, which names what was met, for one that is damaged, hostile or uses what is not read."""
    with zip_archive(f, restorer(map_location)) as archive:
        archive.set_byte_order()
        root = archive.root
        code = {}
        for name in archive.records:
            inside = name.removeprefix(root)
            if name.startswith(root) and inside.startswith("code/") and inside.endswith(".py"):
                code[inside] = _decoded(archive, inside)
        unit = Unit()
        known = _Names(unit)
        constants = _unpickled(archive, "constants.pkl", "constants", known)
        if not isinstance(constants, (tuple, list)):
            refuse(f"constants.pkl holds a {type(constants).__name__}, where a tuple is read")
        unit.constants = mapped(tuple(constants), _weights, {})
        for file, text in code.items():
            unit.add(file, text)
        unit.compile()
        made = _unpickled(archive, "data.pkl", "data", known)
        if not isinstance(made, Pickled) or made.script.base != "Module":
            refuse(f"data.pkl holds a {type(made).__name__}, where a module is read")
        prefix = f"{root}extra/"
        extra = {name.removeprefix(prefix): archive.record(name.removeprefix(root)) for name in archive.records if name.startswith(prefix)}
        return Content(made, unit, code, extra)


def _weights(value: Any) -> Any:
    """Packed weights among the constants, made."""
    return value.made(mapped(value.state, _weights, {})) if isinstance(value, packed.PickledWeights) else value


def _decoded(archive: Archive, name: str) -> str:
    try:
        return archive.record(name, _MOST_CODE).decode("utf-8")
    except UnicodeDecodeError as error:
        return refuse(f"{name} is no text: {error}")


def mapped(value: Any, change: Callable[[Any], Any], done: dict[int, Any], depth: int = 0) -> Any:
    """A value with each object, tensor and enum in its lists, dicts and tuples changed; what occurs twice is one object afterwards, too."""
    if id(value) in done:
        return done[id(value)]
    if depth > 200:
        refuse("data.pkl is nested more than 200 deep")
    if isinstance(value, list):
        made: Any = []
        done[id(value)] = made
        made += [mapped(v, change, done, depth + 1) for v in value]
        return made
    if type(value) is tuple:
        return tuple([mapped(v, change, done, depth + 1) for v in value])
    if isinstance(value, dict):
        made = done[id(value)] = {}
        made.update({mapped(k, change, done, depth + 1): mapped(v, change, done, depth + 1) for k, v in value.items()})
        return made
    made = done[id(value)] = change(value)
    return made
