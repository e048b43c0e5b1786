"""The code of an archive: its files parsed by `ast`, its functions and classes by their full names. Nothing of it is handed to Python to execute.

A class has `__parameters__`, `__buffers__`, annotated attributes, constants (`Final[int] = 4`) and methods; its base says what it is: Module, NamedTuple,
Enum, Interface or nothing.
"""

from __future__ import annotations

import ast
import enum
from operator import itemgetter
from typing import Any, Final

from flambeau.jit.torchscript import expressions
from flambeau.jit.torchscript.errors import refuse
from flambeau.jit.torchscript.functions import Function
from flambeau.jit.torchscript.objects import Instance, NamedValues

_BASES: Final = ("Module", "NamedTuple", "Enum", "Interface", "ModuleInterface", "")


class ScriptClass:
    """A class of the archive. `attributes`: the type of each; `constants`: those that have one value for all objects."""

    def __init__(self, unit: Unit, name: str, node: ast.ClassDef, file: str, source: str) -> None:
        self.unit, self.qualified, self.file, self.source = unit, name, file, source
        self.name = node.name
        bases = [ast.unparse(b) for b in node.bases]
        self.base = bases[0] if bases else ""
        if len(bases) > 1 or self.base not in _BASES or node.keywords or node.decorator_list:
            refuse(f"{file}, line {node.lineno}: the class {name} has the bases {', '.join(bases)}: one of Module, NamedTuple, Enum or Interface is read")
        self.parameters: list[str] = []
        self.buffers: list[str] = []
        self.forward_hooks: list[str] = []
        self.forward_pre_hooks: list[str] = []
        self.attributes: dict[str, ast.expr] = {}
        self.constants: dict[str, Any] = {}
        self.methods: dict[str, Function] = {}
        for s in node.body:
            self._statement(s)
        self.made: Any = None
        if self.base == "NamedTuple":
            fields = tuple(self.attributes)
            self.made = type(self.name, (NamedValues,), {"_fields": fields, **{f: property(itemgetter(i)) for i, f in enumerate(fields)}})
        elif self.base == "Enum":
            self.made = enum.Enum(self.name, self.constants)  # type: ignore[misc]

    def _statement(self, s: ast.stmt) -> None:
        if isinstance(s, ast.FunctionDef):
            if self.base not in ("Interface", "ModuleInterface"):
                self.methods[s.name] = Function(self.unit, s, self.file, self.source, f"{self.qualified}.{s.name}")
        elif isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name):
            self.attributes[s.target.id] = s.annotation
            if s.value is not None:
                self.constants[s.target.id] = expressions.constant(s.value, self.unit, self.file)
        elif isinstance(s, ast.Assign) and len(s.targets) == 1:
            self._assign(s.targets[0], s)
        elif not isinstance(s, ast.Pass):
            refuse(f"{self.file}, line {s.lineno}: {ast.unparse(s)[:80]!r} in a class")

    def _assign(self, target: ast.expr, s: ast.Assign) -> None:
        if isinstance(target, ast.Subscript) and ast.unparse(target.value) == "__annotations__" and isinstance(target.slice, ast.Constant):
            self.attributes[str(target.slice.value)] = s.value  # a name that Python could not write, "0"
            return
        name = target.id if isinstance(target, ast.Name) else ""
        value = expressions.constant(s.value, self.unit, self.file)
        if name == "__annotations__" and value == []:
            return
        if name in ("__parameters__", "__buffers__"):
            if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
                refuse(f"{self.file}, line {s.lineno}: {name} of {self.qualified} is no list of names")
            setattr(self, name.strip("_"), value)
        elif name in ("__forward_hooks__", "__forward_pre_hooks__"):
            setattr(self, name.strip("_"), [str(v) for v in value] if isinstance(value, list) else [])
        elif name and self.base == "Enum":
            self.constants[name] = value
        else:
            refuse(f"{self.file}, line {s.lineno}: {ast.unparse(s)[:80]!r} in a class")

    def __call__(self, *values: Any) -> Any:
        """An object of a NamedTuple or an enum, from its values; RuntimeError for other classes, which are made by their methods."""
        if self.base == "NamedTuple":
            if len(values) != len(self.attributes):
                raise RuntimeError(f"{self.qualified} has {len(self.attributes)} fields, and {len(values)} values are given")
            return self.made(values)
        if self.base == "Enum":
            return self.made(*values)
        raise RuntimeError(f"TorchScript: {self.qualified} is called, which makes no value")

    def new(self) -> Instance:
        """An object without attributes yet."""
        if self.base:
            raise RuntimeError(f"TorchScript: the program makes an object of {self.qualified}, a {self.base}")
        return Instance(self)


class Unit:
    """All functions and classes of an archive by full name, and its constants."""

    def __init__(self) -> None:
        self.constants: tuple[Any, ...] = ()
        self.names: dict[str, ScriptClass | Function] = {}

    def add(self, file: str, source: str) -> None:
        """What a file `code/__torch__/a/b.py` defines: names in `__torch__.a.b`."""
        space = file.removeprefix("code/").removesuffix(".py").replace("/", ".")
        if not all(part.isidentifier() for part in space.split(".")):
            refuse(f"the file {file} of code has a name that is no name of a module")
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            refuse(f"{file} is no TorchScript: {error}")
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                made: ScriptClass | Function = Function(self, node, file, source, f"{space}.{node.name}")
            elif isinstance(node, ast.ClassDef):
                made = ScriptClass(self, f"{space}.{node.name}", node, file, source)
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "op_version_set":
                continue
            else:
                refuse(f"{file}, line {node.lineno}: {ast.unparse(node)[:80]!r}, where functions and classes are read")
            self.names[f"{space}.{node.name}"] = made

    def functions(self) -> list[Function]:
        """All functions and methods."""
        found: list[Function] = []
        for made in self.names.values():
            found += made.methods.values() if isinstance(made, ScriptClass) else [made]
        return found

    def compile(self) -> None:
        """Turn all functions into what runs; RuntimeError for what is not read, with its place."""
        for f in self.functions():
            try:
                f.compile()
            except RecursionError:
                refuse(f"{f.file}: the code of {f.name} is nested too deeply")

    def find(self, name: str) -> Any:
        """A class or function, or a member of an enum, by full name; None if there is none."""
        found: Any = self.names.get(name)
        if found is None:
            owner = self.names.get(name.rpartition(".")[0])
            if isinstance(owner, ScriptClass) and owner.base == "Enum":
                return owner.made.__members__.get(name.rpartition(".")[2])
        return found
