"""Values of TorchScript that Python has no type for: objects of the archive's classes, named tuples, futures; and reading their attributes.

Only what the archive declares can be read or set: no attribute of Python's own objects is reachable from its code.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, ClassVar

from flambeau.nn.modules.module import Module
from flambeau.quantized.packed import ConvPackedParams
from flambeau.tensor import Tensor

if TYPE_CHECKING:
    from flambeau.jit.torchscript.code import ScriptClass


class Instance:
    """An object of a class that is no module."""

    def __init__(self, script: ScriptClass) -> None:
        self.script = script
        self.values: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("script", "values") or name not in self.values:
            raise AttributeError(name)
        return self.values[name]

    def __repr__(self) -> str:
        return f"<{self.script.qualified} object>"


class NamedValues(tuple[Any, ...]):
    """Base of the archive's NamedTuples."""

    _fields: ClassVar[tuple[str, ...]] = ()
    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join([f'{n}={v!r}' for n, v in zip(self._fields, self, strict=True)])})"

    def _asdict(self) -> dict[str, Any]:
        """The values by name."""
        return dict(zip(self._fields, self, strict=True))


def attribute(value: Any, name: str) -> Any:
    """`value.name` in a program; RuntimeError unless the archive's class declares it."""
    script = getattr(value, "script", None) if isinstance(value, Instance) else value.__dict__.get("_script") if isinstance(value, Module) else None
    if script is None:
        if isinstance(value, enum.Enum) and name in ("name", "value"):
            return value.name if name == "name" else value.value
        if isinstance(value, NamedValues) and name in value._fields:
            return value[value._fields.index(name)]
        raise RuntimeError(f"TorchScript: the program reads the attribute {name!r} of a {type(value).__name__}, which is not read")
    if isinstance(value, Instance):
        if name in value.values:
            return value.values[name]
    else:
        inside = value.__dict__
        for table in ("_parameters", "_buffers", "_modules"):
            if name in inside[table]:
                return inside[table][name]
        if name in script.attributes and name in inside:
            return inside[name]
    if name in script.constants:
        return script.constants[name]
    raise RuntimeError(f"TorchScript: the program reads the attribute {name!r} of {script.qualified}, which has none of that name")


def set_attribute(owner: Any, name: str, value: Any) -> None:
    """`owner.name = value` in a program."""
    script = owner.script if isinstance(owner, Instance) else owner.__dict__.get("_script") if isinstance(owner, Module) else None
    if script is None or name not in script.attributes:
        raise RuntimeError(f"TorchScript: the program sets the attribute {name!r} of a {type(owner).__name__}, which does not declare it")
    if isinstance(owner, Instance):
        owner.values[name] = value
        return
    inside = owner.__dict__
    for table in ("_parameters", "_buffers", "_modules"):
        if name in inside[table]:
            if table == "_modules" or not (value is None or isinstance(value, Tensor)):
                raise RuntimeError(f"TorchScript: the program sets {name!r} of {script.qualified} to a {type(value).__name__}")
            inside[table][name] = value
            return
    inside[name] = value


class _Native:
    """A method of an object of PyTorch's C++ classes."""

    def __init__(self, name: str) -> None:
        self.name = name

    def call(self, args: Any, kwargs: dict[str, Any] | None = None) -> Any:
        """`args`: the object, and what it is given."""
        owner, *given = args
        return getattr(owner, self.name)(*given, **(kwargs or {}))


def method(owner: Any, name: str) -> Any:
    """The method of an object that a program calls."""
    if isinstance(owner, ConvPackedParams) and name in ("unpack", "stride", "padding", "dilation", "groups"):
        return _Native(name)
    script = owner.script if isinstance(owner, Instance) else owner.__dict__.get("_script") if isinstance(owner, Module) else None
    found = script.methods.get(name) if script is not None else None
    if found is None:
        raise RuntimeError(f"TorchScript: the program calls the method {name!r} of a {type(owner).__name__}, which has none of that name")
    return found
