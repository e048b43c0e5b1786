"""Expressions of TorchScript as closures over a frame of values: names, constants, containers, attributes, calls."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from flambeau.futures import Future
from flambeau.jit.torchscript import operators, type_annotations, values
from flambeau.jit.torchscript.errors import refuse
from flambeau.jit.torchscript.objects import attribute, method
from flambeau.tensor import Tensor

if TYPE_CHECKING:
    from flambeau.jit.torchscript.code import Unit

Step = Callable[[dict[str, Any]], Any]
_NUMBERS: Final = {"inf": math.inf, "nan": math.nan, "infj": complex(0, math.inf), "nanj": complex(0, math.nan)}


def constant(node: ast.expr, unit: Unit, file: str) -> Any:
    """The value of an expression without variables: a default, a class's constant."""
    return Expressions(unit, file, frozenset()).value(node)({})


def dotted(node: ast.expr) -> str | None:
    """ "a.b.c" for names joined by dots; None for any other expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def _text(value: str) -> str:
    """A text as it was: PyTorch writes bytes that are no ASCII as octal escapes, of UTF-8."""
    if value.isascii():
        return value
    try:
        return value.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return value


class Expressions:
    """Compiles the expressions of one function. `known`: its variables."""

    def __init__(self, unit: Unit, file: str, known: frozenset[str] | set[str]) -> None:
        self.unit, self.file, self.known = unit, file, known

    def refuse(self, node: ast.expr, why: str) -> Any:
        """End with the place."""
        refuse(f"{self.file}, line {getattr(node, 'lineno', 0)}: {ast.unparse(node)[:80]!r} {why}")

    def value(self, node: ast.expr) -> Step:
        """The closure of an expression."""
        found = getattr(self, f"_{type(node).__name__}", None)
        if found is None:
            return self.refuse(node, f"is a {type(node).__name__}, which TorchScript's code does not have")  # type: ignore[no-any-return]
        made: Step = found(node)
        return made

    def _Constant(self, node: ast.Constant) -> Step:
        v = node.value
        if isinstance(v, str):
            v = _text(v)
        elif v is not None and not isinstance(v, (bool, int, float, complex)):
            self.refuse(node, "is no constant of TorchScript")
        elif type(v) is int and not -(1 << 63) <= v <= 1 << 63:
            self.refuse(node, "is a number beyond 64 bits")
        return lambda f: v

    def _Name(self, node: ast.Name) -> Step:
        name = node.id
        if name in self.known:
            return lambda f: f[name]
        if name in _NUMBERS:
            v = _NUMBERS[name]
            return lambda f: v
        return self.refuse(node, "is a name that nothing before it makes")  # type: ignore[no-any-return]

    def _UnaryOp(self, node: ast.UnaryOp) -> Step:
        if not isinstance(node.op, ast.USub):
            self.refuse(node, "is an operator that TorchScript's code does not have")
        inner = self.value(node.operand)
        if isinstance(node.operand, (ast.Constant, ast.Name)):
            return lambda f: -inner(f)
        return self.refuse(node, "negates what is no number")  # type: ignore[no-any-return]

    def _BinOp(self, node: ast.BinOp) -> Step:
        sides = node.left, node.right
        numbers = all(isinstance(s, (ast.Constant, ast.UnaryOp)) for s in sides)
        if not numbers or not isinstance(node.op, (ast.Add, ast.Sub)):  # a complex number: 1+2j
            self.refuse(node, "is an operator that TorchScript's code does not have")
        left, right, adds = self.value(node.left), self.value(node.right), isinstance(node.op, ast.Add)
        return lambda f: left(f) + right(f) if adds else left(f) - right(f)

    def _parts(self, nodes: list[ast.expr]) -> list[Step]:
        return [self.value(n) for n in nodes]

    def _List(self, node: ast.List) -> Step:
        parts = self._parts(node.elts)
        return lambda f: [p(f) for p in parts]

    def _Tuple(self, node: ast.Tuple) -> Step:
        parts = self._parts(node.elts)
        return lambda f: tuple([p(f) for p in parts])

    def _Dict(self, node: ast.Dict) -> Step:
        if None in node.keys:
            self.refuse(node, "is a dict that TorchScript's code does not have")
        keys, items = self._parts([k for k in node.keys if k is not None]), self._parts(node.values)
        return lambda f: {k(f): v(f) for k, v in zip(keys, items, strict=True)}

    def _Subscript(self, node: ast.Subscript) -> Step:
        owner = self.value(node.value)
        if isinstance(node.slice, ast.Slice):
            limits = [None if n is None else self.value(n) for n in (node.slice.lower, node.slice.upper, node.slice.step)]
            return lambda f: _part(owner(f), slice(*[None if n is None else n(f) for n in limits]))
        key = self.value(node.slice)
        return lambda f: _part(owner(f), key(f))

    def _Attribute(self, node: ast.Attribute) -> Step:
        name = dotted(node)
        root = name.partition(".")[0] if name else ""
        if name and root not in self.known:
            v = self._global(node, name, root)
            return lambda f: v
        owner, own = self.value(node.value), node.attr
        return lambda f: attribute(owner(f), own)

    def _global(self, node: ast.expr, name: str, root: str) -> Any:
        """What a dotted name means outside of any function."""
        if root == "CONSTANTS":
            number = name.removeprefix("CONSTANTS.c")
            if not number.isdigit() or int(number) >= len(self.unit.constants):
                self.refuse(node, f"is none of the archive's {len(self.unit.constants)} constants")
            return self.unit.constants[int(number)]
        if root == "__torch__":
            found = self.unit.find(name)
            return found if found is not None else self.refuse(node, "is nothing that the archive defines (custom C++ classes are not read)")
        if name in ("math.inf", "math.nan"):
            return _NUMBERS[name[5:]]
        return self.refuse(node, "is a name that nothing before it makes")

    # -- calls ------------------------------------------------------------------------------------------------------
    def _Call(self, node: ast.Call) -> Step:
        name = dotted(node.func)
        root = name.partition(".")[0] if name else ""
        if name and root not in self.known:
            if isinstance(node.func, ast.Name):
                return self._builtin(node, name)
            if root == "torch" and name.count(".") == 1:
                return self._operator(node, operators.aten(node.func.attr))  # type: ignore[attr-defined]
            if root == "ops" and name.count(".") == 2:
                return self._operator(node, operators.of_space(*name.split(".")[1:]))
            if root == "__torch__":
                return self._named(node, name)
            self.refuse(node, "calls what TorchScript does not have")
        if isinstance(node.func, ast.Attribute):
            return self._method(node, node.func)
        function = self.value(node.func)
        args, kwargs = self._arguments(node)
        return lambda f: _called(function(f), [a(f) for a in args], {n: v(f) for n, v in kwargs})

    def _arguments(self, node: ast.Call) -> tuple[list[Step], list[tuple[str, Step]]]:
        if any(k.arg is None for k in node.keywords):
            self.refuse(node, "is called with ** arguments")
        return self._parts(node.args), [(k.arg, self.value(k.value)) for k in node.keywords if k.arg is not None]

    def _operator(self, node: ast.Call, called: Any) -> Step:
        args, kwargs = self._arguments(node)
        if kwargs:
            return lambda f: called([a(f) for a in args], {n: v(f) for n, v in kwargs})
        return lambda f: called([a(f) for a in args], {})

    def _named(self, node: ast.Call, name: str) -> Step:
        """A function, a named tuple or a new object of the archive's."""
        if name.endswith(".__new__"):
            owner = self._global(node, name.removesuffix(".__new__"), "__torch__")
            return lambda f: owner.new()
        called = self._global(node, name, "__torch__")
        args, kwargs = self._arguments(node)
        return lambda f: _called(called, [a(f) for a in args], {n: v(f) for n, v in kwargs})

    def _method(self, node: ast.Call, func: ast.Attribute) -> Step:
        owner, name = self.value(func.value), func.attr
        args, kwargs = self._arguments(node)
        if name == "tolist" and not args and not kwargs:
            return lambda f: _tolist(owner(f))

        def call(f: dict[str, Any]) -> Any:
            o = owner(f)
            return method(o, name).call([o, *[a(f) for a in args]], {n: v(f) for n, v in kwargs})

        return call

    def _builtin(self, node: ast.Call, name: str) -> Step:
        args = node.args
        if node.keywords:
            self.refuse(node, "is called with names, which this function of TorchScript has not")
        if name in ("annotate", "unchecked_cast", "isinstance", "uninitialized"):
            if len(args) != (1 if name == "uninitialized" else 2):
                self.refuse(node, "has another number of arguments")
            return self._typed(name, args)
        if name == "getattr" and len(args) == 2 and isinstance(args[1], ast.Constant) and isinstance(args[1].value, str):
            owner, own = self.value(args[0]), args[1].value
            return lambda f: attribute(owner(f), own)
        if name not in _BUILTINS:
            self.refuse(node, "calls a function that TorchScript does not have")
        function, given = _BUILTINS[name], self._parts(args)
        return lambda f: function(*[g(f) for g in given])

    def _typed(self, name: str, args: list[ast.expr]) -> Step:
        if name == "uninitialized":
            return lambda f: None
        if name == "isinstance":
            value, kinds = self.value(args[0]), args[1]
            checks = [type_annotations.check(k) for k in (kinds.elts if isinstance(kinds, (ast.Tuple, ast.List)) else [kinds])]
            return lambda f: any(c(value(f)) for c in checks)
        value, kind = self.value(args[1]), type_annotations.parts(args[0])[0]
        if name == "annotate" and kind in _NUMBER_OF:
            convert = _NUMBER_OF[kind]
            return lambda f: convert(v) if isinstance(v := value(f), Tensor) else v
        return value


def _called(function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    call = getattr(function, "call", None)
    return call(args, kwargs) if call is not None else function(*args, **kwargs)


def _part(owner: Any, key: Any) -> Any:
    if not isinstance(owner, (list, tuple, dict, str)):
        raise RuntimeError(f"TorchScript: the program takes a part of a {type(owner).__name__}")
    return owner[key]


def _tolist(value: Any) -> Any:
    if not isinstance(value, Tensor):
        raise RuntimeError(f"TorchScript: tolist() of a {type(value).__name__}")
    return value.tolist()


def _print(*given: Any) -> None:
    print(*map(values.text, given))


def _fork(function: Any, *args: Any) -> Future[Any]:
    made: Future[Any] = Future()
    made.set_result(_called(function, list(args), {}))
    return made


_NUMBER_OF: Final[dict[str, Callable[[Any], Any]]] = {
    "int": lambda t: int(t.item()), "float": lambda t: float(t.item()), "complex": lambda t: complex(t.item()), "number": lambda t: t.item(),
    "bool": lambda t: bool(t.item()),
}  # fmt: skip
_BUILTINS: Final[dict[str, Callable[..., Any]]] = {
    "int": int, "float": float, "bool": bool, "str": values.text, "complex": complex, "len": len, "print": _print, "fork": _fork,
    "wait": lambda future: future.wait(), "unwrap_optional": lambda v: v, "unchecked_unwrap_optional": lambda v: v, "range": range,
}  # fmt: skip
