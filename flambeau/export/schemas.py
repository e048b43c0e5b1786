"""Schemas of ATen's operators: what each overload takes, and which overload a call means.

`data/aten.txt` lists them, as PyTorch prints them (made by tests/export/schemas.py). An exported graph names operators by them, and a `.pt2` file says
of each argument which parameter of the schema it is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from flambeau._ops import OpOverload
from flambeau.devices import Device
from flambeau.dtypes import dtype, of_type
from flambeau.layouts import layout
from flambeau.operator_schema import split
from flambeau.tensor import Tensor

# Overloads of a tensor and a number that PyTorch's Python functions never mean: the number goes with the overload of two tensors.
NUMBER_AS_TENSOR: Final = frozenset("add add_ sub sub_ mul mul_ div div_ true_divide rsub floor_divide floor_divide_ divide multiply subtract".split())
_NOT_FROM_PYTHON: Final = frozenset(
    [f"{n}.{o}" for n in NUMBER_AS_TENSOR - {"rsub"} for o in ("Scalar", "Scalar_mode")] + ["size.int", "size", "split", "split.sizes"]
)


class Parameter(NamedTuple):
    """A parameter: `kind` without "?" and "[]"; `several`: a list of them, of `copies` if one is enough; `none`: it may be None."""

    name: str
    kind: str
    several: bool
    copies: int
    none: bool
    none_inside: bool
    optional: bool
    default: Any
    keyword: bool
    written: bool


class Schema(NamedTuple):
    """One overload. `returns`: the kinds of its results."""

    name: str
    overload: str
    parameters: tuple[Parameter, ...]
    returns: tuple[str, ...]

    @property
    def full(self) -> str:
        """ "add.Tensor"; "relu.default"."""
        return f"{self.name}.{self.overload}"


@cache
def _lines() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in (Path(__file__).parents[1] / "data" / "aten.txt").read_text().splitlines():
        found.setdefault(re.split(r"[.(]", line, maxsplit=1)[0], []).append(line)
    return found


@cache
def overloads(name: str) -> tuple[Schema, ...]:
    """The overloads of an operator of aten, in PyTorch's order; none if there is no such operator."""
    return tuple([_schema(line) for line in _lines().get(name, ())])


def text(name: str, overload: str) -> str | None:
    """The line of one overload, as PyTorch prints it; None if it is not known."""
    head = name if overload == "default" else f"{name}.{overload}"
    return next((line for line in _lines().get(name, ()) if line.startswith(f"{head}(")), None)


@cache
def schema(name: str, overload: str) -> Schema | None:
    """One overload of an operator; None if it is not known."""
    return next((s for s in overloads(name) if s.overload == overload), None)


@cache
def schema_of(op: OpOverload) -> Schema | None:
    """The schema of an overload, of aten or of an operator that torch.library has registered; None if nobody has said it."""
    if op.namespace == "aten":
        return schema(op.overloadpacket.__name__, op._overloadname)
    try:
        return _schema(str(op._schema))
    except RuntimeError:
        return None


def _schema(line: str) -> Schema:
    head, _, rest = line.partition("(")
    inside, _, returns = rest.rpartition(") -> ")
    if not _:  # several results
        inside, _, returns = rest.rpartition(") ->")
    if " -> (" in rest:
        inside, _, returns = rest.partition(") -> (")
        returns = returns.rstrip(")")
    name, _, overload = head.partition(".")
    parameters, keyword = [], False
    for part in split(inside):
        if part == "*":
            keyword = True
        elif part:
            parameters.append(_parameter(part, keyword))
    kinds = tuple([re.sub(r"\(.*?\)", "", r).split(" ")[0] for r in split(returns) if r])
    return Schema(name, overload or "default", tuple(parameters), kinds)


def _parameter(text: str, keyword: bool) -> Parameter:
    declared, equals, default = text.partition("=")
    written = "!" in declared
    kind, _, name = re.sub(r"\([^)]*\)", "", declared).rpartition(" ")
    none = kind.endswith("?")
    kind = kind.rstrip("?")
    several, count, inside = kind.endswith("]"), 0, False
    if several:
        kind, _, size = kind[:-1].partition("[")
        count = int(size) if size else 0
        inside, kind = kind.endswith("?"), kind.rstrip("?")
    return Parameter(name, kind.removeprefix("Sym").lower() if kind in ("SymInt", "SymBool") else kind, several, count, none, inside, bool(equals),
                     _default(default) if equals else None, keyword, written)  # fmt: skip


def _default(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {"inf": float("inf"), "-inf": -float("inf"), "nan": float("nan")}.get(text)


# -- which overload a call means --------------------------------------------------------------------------------------
def _is_int(v: Any) -> bool:
    return isinstance(v, int) and not isinstance(v, bool)


def _memory_format(v: Any) -> bool:
    return type(v).__name__ == "memory_format"


_KINDS: Final[dict[str, Callable[[Any], bool]]] = {
    "Tensor": lambda v: isinstance(v, Tensor), "int": _is_int, "float": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
    "number": lambda v: isinstance(v, (int, float, complex)), "Scalar": lambda v: isinstance(v, (int, float, complex)),
    "bool": lambda v: isinstance(v, bool), "str": lambda v: isinstance(v, str), "ScalarType": lambda v: isinstance(of_type(v), dtype),
    "Device": lambda v: isinstance(v, (Device, str)), "Layout": lambda v: isinstance(v, layout), "MemoryFormat": _memory_format,
    "Generator": lambda v: type(v).__name__ == "Generator", "complex": lambda v: isinstance(v, (int, float, complex)),
}  # fmt: skip


def fits(p: Parameter, v: Any, s: Schema) -> bool:
    """Whether a value can be an argument for a parameter."""
    if v is None:
        return p.none
    accept = _KINDS.get(p.kind)
    if accept is None:
        return False
    if not p.several:
        return accept(v) or (p.kind == "Tensor" and s.name in NUMBER_AS_TENSOR and p.name == "other" and isinstance(v, (int, float, complex)))
    if isinstance(v, (list, tuple)):
        return all(accept(x) or (x is None and p.none_inside) for x in v)
    return bool(p.copies) and accept(v)


def bound(s: Schema, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """(args, kwargs) of a call as the operator takes them: by position as far as they may be, lists as lists, without defaults at the end.

    None if the call does not fit this overload.
    """
    places = [p for p in s.parameters if not p.keyword]
    given: dict[str, Any] = {}
    values = list(args)
    for i, p in enumerate(places[: len(values)]):
        if p.several and p.kind == "int" and not p.copies and _is_int(values[i]) and all(_is_int(v) for v in values[i:]):
            values[i:] = [values[i:]]  # x.view(2, 3)
        given[p.name] = values[i]
        if i + 1 == len(values):
            break
    if len(values) > len(places):  # what comes by name only there may come by position in Python: gelu(x, "tanh")
        for p, value in zip([p for p in s.parameters if p.keyword], values[len(places) :], strict=False):
            given[p.name] = value
        if len(values) > len(s.parameters):
            return None
    for name, value in kwargs.items():
        name = _renamed(s, name, given)
        if name in given or name not in {p.name for p in s.parameters}:
            return None
        given[name] = value
    for p in s.parameters:
        if p.name not in given:
            if not p.optional:
                return None
        elif not fits(p, given[p.name], s):
            return None
        else:
            given[p.name] = _as_list(p, given[p.name])
    positional: list[Any] = []
    named: dict[str, Any] = {}
    by_place = True
    last = max([i for i, p in enumerate(places) if p.name in given and not _is_default(p, given[p.name])], default=-1)
    for i, p in enumerate(places):
        by_place = by_place and i <= last and p.name in given
        if by_place:
            positional.append(given[p.name])
        elif i <= last and p.name in given:
            named[p.name] = given[p.name]
    for p in s.parameters:
        if p.keyword and p.name in given and not _is_default(p, given[p.name]):
            named[p.name] = given[p.name]
    return tuple(positional), named


def _renamed(s: Schema, name: str, given: dict[str, Any]) -> str:
    """The schema's name of a parameter that Python's functions call otherwise."""
    names = {p.name for p in s.parameters}
    if name in names:
        return name
    return {"input": "self", "axis": "dim", "keepdims": "keepdim", "x": "self", "tensor": "self"}.get(name, name)


def _as_list(p: Parameter, v: Any) -> Any:
    if p.kind == "ScalarType" and v is not None:
        return of_type(v)
    if p.kind == "Device" and isinstance(v, str):
        return Device(v)
    if p.kind == "float" and not p.several and type(v) is int:
        return float(v)
    if not p.several or v is None:
        return v
    return list(v) if isinstance(v, (list, tuple)) else [v] * p.copies


def _is_default(p: Parameter, v: Any) -> bool:
    if not p.optional:
        return False
    if v is None or p.default is None:
        return v is p.default
    if isinstance(v, Tensor) or isinstance(p.default, str) != isinstance(v, str):
        return False
    default = [p.default] * p.copies if p.several and not isinstance(p.default, list) else p.default
    return type(v) is type(default) and bool(v == default)


def resolve(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Schema, tuple[Any, ...], dict[str, Any]] | None:
    """The overload that a call of an operator means, with its arguments; None if there is none that fits."""
    found = None
    for s in overloads(name):
        if f"{s.name}.{s.overload}".removesuffix(".default") in _NOT_FROM_PYTHON or "Dimname" in [p.kind for p in s.parameters]:
            continue
        call = bound(s, args, kwargs)
        if call is not None and (found is None or _closer(s, found[0], args)):
            found = s, *call
    return found


def _closer(s: Schema, than: Schema, args: Sequence[Any]) -> bool:
    """Whether an overload is meant rather than another one that fits, too: one that takes an int for an int, a number for a number."""

    def score(s: Schema) -> int:
        places = [p for p in s.parameters if not p.keyword]
        pairs = zip(args, places, strict=False)
        return sum([2 * (isinstance(a, Tensor) == (p.kind == "Tensor")) + (p.several == isinstance(a, (list, tuple))) for a, p in pairs])

    return score(s) > score(than)
