"""Schemas of operators: "name(Tensor(a!) x, int n=2) -> Tensor": read from text, made of a function's annotations; what is written to, what is a view."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn


@dataclass(frozen=True)
class AliasInfo:
    """Whose memory an argument or a result may share: names of sets, "*" for any; `is_write`: the operator writes to it."""

    before_set: frozenset[str]
    is_write: bool


@dataclass(frozen=True)
class Argument:
    """An argument or a result: `type` without its alias ("Tensor?", "SymInt[2]"); `default_value` as the schema writes it, None if there is none."""

    name: str
    type: str
    alias_info: AliasInfo | None
    kwarg_only: bool = False
    default_value: str | None = None

    @property
    def is_write(self) -> bool:
        """Whether the operator writes to it."""
        return self.alias_info is not None and self.alias_info.is_write

    @property
    def is_out(self) -> bool:
        """Whether it is an `out=` argument."""
        return self.kwarg_only and self.is_write


@dataclass(frozen=True)
class FunctionSchema:
    """An operator's name ("space::name"), overload, arguments and results."""

    name: str
    overload_name: str
    arguments: tuple[Argument, ...]
    returns: tuple[Argument, ...]
    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def is_mutable(self) -> bool:
        """Whether it writes to an argument."""
        return any(a.is_write for a in self.arguments)

    def may_contain_alias(self, one: Argument, other: Argument) -> bool:
        """Whether the schema lets two of its arguments and results share memory."""
        if one.alias_info is None or other.alias_info is None:
            return False
        sets = one.alias_info.before_set, other.alias_info.before_set
        return "*" in sets[0] | sets[1] or bool(sets[0] & sets[1])

    def bound(self, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments that were given, by name, in the schema's order. TypeError for one too many, unknown or given twice, and for one that is missing."""
        names = [a.name for a in self.arguments if not a.kwarg_only]
        if len(args) > len(names):
            raise TypeError(f"{self.name}(): takes {len(names)} arguments by position, and {len(args)} were given; its schema is {self}")
        given = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name in given or all(a.name != name for a in self.arguments):
                what = "given twice" if name in given else "none of its arguments"
                raise TypeError(f"{self.name}(): {name!r} is {what}; its schema is {self}")
            given[name] = value
        missing = [a.name for a in self.arguments if a.name not in given and a.default_value is None]
        if missing:
            raise TypeError(f"{self.name}(): missing {', '.join(missing)}; its schema is {self}")
        return {a.name: given[a.name] for a in self.arguments if a.name in given}


def split(text: str) -> list[str]:
    """The parts between the commas that are in no brackets and in no quotes."""
    parts, depth, start, quoted = [], 0, 0, False
    for i, c in enumerate(text):
        quoted ^= c == '"' and text[i - 1] != "\\"
        depth += 0 if quoted else (c in "([") - (c in ")]")
        if c == "," and not depth and not quoted:
            parts.append(text[start:i].strip())
            start = i + 1
    return [*parts, text[start:].strip()]


def parse_schema(text: str) -> FunctionSchema:
    """A schema from its text. RuntimeError if there is no list of arguments or no arrow in it."""
    found = re.fullmatch(r"\s*([\w:]*)(?:\.(\w+))?\s*\((.*?)\)\s*->\s*(\(.*\)|[^()]+(?:\(.*\))?\S*)\s*", text, re.DOTALL)
    if found is None:
        raise RuntimeError(f"no schema of an operator: {text!r}; it has the form 'name(Tensor x, int n=2) -> Tensor'")
    name, overload, inside, results = found.groups()
    arguments, keyword = [], False
    for part in split(inside):
        if part == "*":
            keyword = True
        elif part:
            declared, equals, default = part.partition("=")
            arguments.append(_argument(declared, keyword, default.strip() if equals else None))
    whole = results.strip()
    listed = split(whole[1:-1]) if whole.startswith("(") else [whole]
    returns = tuple([_argument(r, False, None) for r in listed if r])
    return FunctionSchema(name, overload or "", tuple(arguments), returns, text.strip())


def _argument(declared: str, keyword: bool, default: str | None) -> Argument:
    alias = re.search(r"\(([^)]*)\)", declared)
    info = None
    if alias is not None:
        sets = alias[1].partition("->")[0].replace("!", "")
        info = AliasInfo(frozenset(s.strip() for s in sets.split("|")) if sets.strip() else frozenset(), "!" in alias[1])
    kind, _, name = re.sub(r"\([^)]*\)", "", declared.strip("() ") if alias is None else declared).strip().partition(" ")
    return Argument(name.strip(), kind, info, keyword, default)


_PLAIN: Final = {int: "SymInt", float: "float", bool: "bool", str: "str"}
_LISTED: Final = ("Tensor", "SymInt", "float", "bool", "Scalar")


def infer_schema(prototype_function: Callable[..., Any], /, *, mutates_args: str | Iterable[str], op_name: str | None = None) -> str:
    """The schema of a function with annotations; what `mutates_args` names is written to ("unknown": every tensor).

    ValueError for an argument without an annotation or of a type that operators cannot take, for `*args`, and for a name that is no argument.
    """
    signature = inspect.signature(prototype_function)

    def wrong(what: str) -> NoReturn:
        raise ValueError(f"infer_schema(func): {what} Got func with signature {signature}")

    if isinstance(mutates_args, str) and mutates_args != "unknown":
        raise ValueError("mutates_args must either be a sequence of the names of the arguments that are mutated or the string 'unknown'.")
    written = None if isinstance(mutates_args, str) else set(mutates_args)
    space = getattr(prototype_function, "__globals__", {})
    parts: list[str] = []
    keyword = False
    for i, (name, parameter) in enumerate(signature.parameters.items()):
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            wrong("We do not support positional-only args, varargs, or varkwargs.")
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword:
            keyword = True
            parts.append("*")
        if parameter.annotation is parameter.empty:
            wrong(f"Parameter {name} must have a type annotation.")
        kind = _type_of(_evaluated(parameter.annotation, space, wrong))
        if kind is None:
            wrong(f"Parameter {name} has unsupported type {parameter.annotation}.")
        if written is not None and name in written and not kind.startswith("Tensor"):
            wrong(f"Parameter {name} is in mutable_args but only Tensors or collections of Tensors can be mutated")
        if kind.startswith("Tensor") and (written is None or name in written):
            kind = f"Tensor(a{i}!){kind.removeprefix('Tensor')}"
        default = "" if parameter.default is parameter.empty else f"={_default(name, parameter.default, wrong)}"
        parts.append(f"{kind} {name}{default}")
    unknown = (written or set()) - set(signature.parameters)
    if unknown:
        wrong(f"{unknown} in mutates_args were not found in the custom op's signature.")
    return f"{op_name or ''}({', '.join(parts)}) -> {_results(signature.return_annotation, space, wrong)}"


def _evaluated(annotation: Any, space: dict[str, Any], wrong: Callable[[str], NoReturn]) -> Any:
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, space)
    except Exception as error:
        wrong(f"Unsupported type annotation {annotation}. It is not a type ({error}).")


def _type_of(annotation: Any) -> str | None:
    """The schema's word for an annotation; None if there is none."""
    from flambeau.devices import Device
    from flambeau.dtypes import dtype
    from flambeau.tensor import Tensor
    from flambeau.types import Number

    if isinstance(annotation, type) and issubclass(annotation, Tensor):
        return "Tensor"
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    if annotation == Number:
        return "Scalar"
    if isinstance(annotation, type) and issubclass(annotation, (Device, dtype)):
        return "Device" if issubclass(annotation, Device) else "ScalarType"
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType) and type(None) in inner:
        rest = [a for a in inner if a is not type(None)]
        kind = _type_of(rest[0] if len(rest) == 1 else typing.Union[tuple(rest)])  # noqa: UP007
        return None if kind is None or kind.endswith("?") or "?[" in kind else f"{kind}?"
    if origin is not None and origin in (list, Sequence) and len(inner) == 1:
        kind = _type_of(inner[0])
        return f"{kind}[]" if kind is not None and kind.rstrip("?") in _LISTED else None
    return None


def _default(name: str, value: Any, wrong: Callable[[str], NoReturn]) -> str:
    from flambeau.devices import Device
    from flambeau.dtypes import dtype

    if value is None or isinstance(value, (bool, int, float)):
        return str(value)
    if isinstance(value, (str, Device)):
        return f'"{value}"'
    if isinstance(value, dtype):
        return value.name
    wrong(f"Parameter {name} has an unsupported default value type {type(value)}.")


def _results(annotation: Any, space: dict[str, Any], wrong: Callable[[str], NoReturn]) -> str:
    if annotation is inspect.Parameter.empty:
        wrong("No return type annotation was provided. Please add one.")
    annotation = _evaluated(annotation, space, wrong)
    if annotation is None:
        return "()"
    several = typing.get_origin(annotation) is tuple
    kinds = [_type_of(a) for a in (typing.get_args(annotation) if several else (annotation,))]
    if any(k not in ("Tensor", "Tensor[]", "SymInt", "float", "bool", "Scalar") for k in kinds):
        wrong(f"Return has unsupported type {annotation}.")
    inside = ", ".join(map(str, kinds))
    return (f"(({inside}))" if len(kinds) == 1 else f"({inside})") if several else inside
