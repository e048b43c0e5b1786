"""PyTorch's overloads of its built-in functions, and what is wrong with a call that fits none of them.

`data/signatures.txt` lists them (made from PyTorch's schemas by tests/errors/signatures.py). They are looked at where an edge is new, or where a
call has failed: known calls never come here. A kind of argument is what PyTorch's argument parser takes for it: an int is no bool, a tensor of one
whole number is an int, a list of ints may be one int where the schema says how many there are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from flambeau.dtypes import dtype, of_type
from flambeau.foreign import refuse
from flambeau.trace.meta import Size
from flambeau.trace.objects import _TENSOR
from flambeau.trace.recorder import _PARAMETER


class Parameter(NamedTuple):
    """A parameter of an overload. `kind` without "[]" and "?": "int"; `several`: a list of them, `one`: or a single one."""

    name: str
    kind: str
    several: bool
    one: bool
    none: bool
    optional: bool  # it has a default
    keyword: bool = False  # it comes by name only
    truth: bool = False  # PyTorch asks for its truth first, which a tensor of several elements has not


@cache
def _lines() -> dict[str, str]:
    text = (Path(__file__).parents[1] / "data" / "signatures.txt").read_text()
    return dict(line.split(": ", 1) for line in text.splitlines())


@cache
def overloads(name: str) -> tuple[tuple[Parameter, ...], ...]:
    """The overloads of a function ("clamp", "linalg.norm"); none for one that is not built in in PyTorch."""
    lines = _lines()
    space, _, rest = name.partition("_")
    line = lines.get(f"{space}.{rest}") if space in ("fft", "linalg", "special") else None  # the operation of torch.linalg.norm is linalg_norm
    line = line or lines.get(name) or (None if name.endswith("__") else lines.get(name.rstrip("_")))
    if line is None:
        return ()
    return tuple([_overload(text) for text in line.split(" | ")])


def _overload(text: str) -> tuple[Parameter, ...]:
    places, _, named = text.partition("*, ")
    return tuple([_parameter(p, i == 1) for i, part in enumerate((places, named)) for p in part.split(", ") if p])


@cache
def _parameter(text: str, keyword: bool) -> Parameter:
    name, kind = text.split(" ", 1)
    optional = kind.endswith("=")
    kind = kind.rstrip("=")
    truth = kind.endswith("!")
    kind = kind.rstrip("!")
    none = kind.endswith("?")
    kind = kind.rstrip("?")
    several = kind.endswith("]")
    size = ""
    if several:
        kind, _, size = kind[:-1].partition("[")
        if kind.endswith("?"):
            kind = "Tensor?"
    return Parameter(name, kind, several, bool(size), none, optional, keyword, truth)


# -- kinds --------------------------------------------------------------------------------------------------------
def _numpy(v: Any) -> bool:
    return type(v).__module__ == "numpy" and hasattr(v, "item") and getattr(v, "ndim", 1) == 0


_LEAST, _MOST, _MOST_UNSIGNED = -(2**63), 2**63 - 1, 2**64 - 1


def _is_int(v: Any) -> bool:
    if isinstance(v, int):
        return not isinstance(v, bool) and _LEAST <= v <= _MOST
    if isinstance(v, _TENSOR[0]):
        return v._meta.numel == 1 and v.dtype.category == 1 and not v.requires_grad
    return _numpy(v) and getattr(v, "dtype", None) is not None and v.dtype.kind in "iu"


def _is_index(v: Any) -> bool:
    if type(v) is int:
        return _LEAST <= v <= _MOST
    return not isinstance(v, bool) and hasattr(type(v), "__index__") and (not isinstance(v, _TENSOR[0]) or _is_int(v))


def _is_float(v: Any) -> bool:
    if isinstance(v, (int, float)):
        return True
    if isinstance(v, _TENSOR[0]):
        return v._meta.ndim == 0 and not v.requires_grad
    return _numpy(v) and v.dtype.kind in "iufb"


def _is_number(v: Any) -> bool:
    if type(v) is int:
        return _LEAST <= v <= _MOST_UNSIGNED
    return isinstance(v, (int, float, complex)) or _is_float(v) or _numpy(v)


def _is_tensor(v: Any) -> bool:
    return isinstance(v, _TENSOR[0])


def _is_dtype(v: Any) -> bool:
    return isinstance(of_type(v), dtype)


def _is_device(v: Any) -> bool:
    from flambeau.devices import Device

    return isinstance(v, (str, bytes, Device)) or _is_int(v) or v.__class__ is int  # of too many bits: that is told by the device


def _is_layout(v: Any) -> bool:
    from flambeau.layouts import layout

    return isinstance(v, layout)


def _is_memory_format(v: Any) -> bool:
    from flambeau.queries import memory_format

    return isinstance(v, memory_format)


def _is_generator(v: Any) -> bool:
    from flambeau.ops.random import Generator

    return isinstance(v, Generator)


def _is_bool(v: Any) -> bool:
    return isinstance(v, bool) or (_numpy(v) and v.dtype.kind == "b")


_CHECKS: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "Tensor": (_is_tensor, "Tensor"), "Tensor?": (lambda v: v is None or _is_tensor(v), "Tensor"), "number": (_is_number, "Number"),
    "int": (_is_int, "int"), "float": (_is_float, "float"), "bool": (_is_bool, "bool"), "str": (lambda v: isinstance(v, (str, bytes)), "str"),
    "ScalarType": (_is_dtype, "torch.dtype"), "Device": (_is_device, "torch.device"), "Layout": (_is_layout, "torch.layout"),
    "MemoryFormat": (_is_memory_format, "torch.memory_format"), "Generator": (_is_generator, "torch.Generator"),
    "complex": (_is_number, "complex"),
}  # fmt: skip


def _has_no_truth(v: Any) -> bool:
    return isinstance(v, _TENSOR[0]) and v._meta.numel != 1


def _accepts(p: Parameter, v: Any) -> bool:
    """Whether PyTorch's parser takes a value for a parameter."""
    if v is None:
        return p.none
    check = _CHECKS.get(p.kind)
    if p.truth and _has_no_truth(v):
        return False
    if check is None:
        return p.name != "reduction" or isinstance(v, str)
    if not p.several:
        return check[0](v)
    if isinstance(v, (tuple, list)):
        if p.kind == "int":  # PyTorch looks at the first one, and fails at the others later
            return all(map(_is_index, v))
        return all(map(check[0], v))
    if p.one and p.kind == "int" and isinstance(v, _TENSOR[0]):  # one number for a list of them may be a bool there
        return v._meta.numel == 1 and v.dtype.category < 2 and not v.requires_grad
    return (p.one and check[0](v)) or (p.kind == "int" and not isinstance(v, _TENSOR[0]) and type(v).__name__ == "ndarray")


def accepts(parameter: str, v: Any) -> bool:
    """Whether a value is one for a parameter as the file has it: "dim int?"."""
    return _accepts(_parameter(parameter, False), v)


def must_be(function: str, parameter: str, v: Any) -> None:
    """PyTorch's TypeError unless a value is one for a parameter as the file has it: "force bool"."""
    p = _parameter(parameter, False)
    if not _accepts(p, v):
        raise _of_argument(f"{function}(): argument '{p.name}'", (p,), v)


# Functions whose tensors may be numbers, as in PyTorch's parser.
_TAKES_NUMBERS: Final = frozenset("add sub mul div divide multiply subtract true_divide floor_divide copy rsub result_type can_cast".split())


class Arguments(NamedTuple):
    """What a call was given, seen by an overload: by name; `whole`: all parameters that the function has are known by name."""

    given: dict[str, Any]
    names: Sequence[str]
    whole: bool


def _fits(overload: Sequence[Parameter], arguments: Arguments, numbers: bool) -> bool:
    given = arguments.given
    known = 0
    for p in overload:
        if p.name in given:
            v = given[p.name]
            known += 1
            if not _accepts(p, v) and not (numbers and p.kind == "Tensor" and not p.several and _is_number(v)):
                return False
        elif not p.optional and arguments.whole and p.name not in arguments.names:
            return False
    return known == len(given)


def type_name(v: Any) -> str:
    """The type of a value, as PyTorch's messages have it."""
    name = type(v).__name__
    return "torch.dtype" if isinstance(v, dtype) else "torch.device" if name == "Device" else "Tensor" if isinstance(v, _TENSOR[0]) else name


def _expected(p: Parameter) -> str:
    text = _CHECKS[p.kind][1] if p.kind in _CHECKS else p.kind
    return f"tuple of {text}s" if p.several else text


def problem(name: str, names: Sequence[str], values: Sequence[Any], defaults: Sequence[Any]) -> Exception | None:
    """The error of a call that fits no overload; None if it fits one, or nothing is known of the function.

    `names`, `values` and `defaults`: of all its arguments in our order; what is its default has not been given. Names of several arguments begin
    with their stars. It is a TypeError, and a ValueError or OverflowError for an int of more than 64 bits.
    """
    found = overloads(name)
    if not found:
        return None
    if names and names[0] == "self" and not any(p.name == "self" for o in found for p in o):
        if isinstance(values[0], _TENSOR[0]) and any(o and o[0].name == "input" for o in found):  # a method whose function says `input`
            names = ("input", *names[1:])
        else:  # of a constructor
            names, values, defaults = names[1:], values[1:], defaults[1:]
    first = names[0] if names else ""
    known = {p.name for o in found for p in o}
    called = "input" if "input" in names else first  # PyTorch's schemas say `self`, its functions mostly `input`
    if "self" not in names and called not in known and not called.startswith("*"):
        found = tuple([tuple([p._replace(name=called) if p.name == "self" else p for p in o]) for o in found])
        known.add(called)
    numbers = name.rstrip("_").rsplit(".", 1)[-1] in _TAKES_NUMBERS
    seen = [_seen(o, known, names, values, defaults) for o in found]
    if any(_fits(o, arguments, numbers) for o, arguments in zip(found, seen, strict=True)):
        return None
    if not any(n.startswith("*") for n in names) and any(_fits(o, _by_place(o, names, values, defaults), numbers) for o in found):
        return None
    place = max(range(len(found)), key=lambda i: sum([p.name in seen[i].given for p in found[i]]))  # the overload that was meant, to tell names by
    given = seen[place].given
    if any(hasattr(type(v), "__torch_function__") and not isinstance(v, _TENSOR[0]) for v in given.values()):
        return None  # it answers for itself
    title = name.rsplit(".", 1)[-1]
    refuse(given.values(), f"{title}()")
    for position, (n, v) in enumerate(given.items(), 1):
        places = [p for o in found for p in o if p.name == n]
        if places and not any(_accepts(p, v) for p in places):
            return _of_argument(f"{title}(): argument '{n}' (position {position})", places, v)
    lines = "".join([f"\n * ({', '.join([f'{_expected(p)} {p.name}' for p in o])})" for o in found])
    got = ", ".join([f"{n}={type_name(v)}" for n, v in given.items()])
    return TypeError(f"{title}() received an invalid combination of arguments - got ({got}), but expected one of:{lines}")


@cache
def _classes(kind: str) -> frozenset[type]:
    """Classes whose values PyTorch takes for a kind without a further look."""
    from flambeau import layouts, queries
    from flambeau.devices import Device
    from flambeau.ops.random import Generator

    found: dict[str, tuple[Any, ...]] = {
        "int": (int,), "bool": (bool,), "str": (str,), "float": (float, int), "number": (float, int, complex, bool), "ScalarType": (dtype,),
        "Generator": (Generator,), "Tensor": (_TENSOR[0], _PARAMETER[0]), "Device": (str, Device), "Layout": (layouts.layout,),
        "MemoryFormat": (queries.memory_format,),
    }  # fmt: skip
    return frozenset(found.get(kind, ()))


def asks_for_dtype(name: str, argument: str) -> bool:
    """Whether a function's argument is a dtype."""
    return any(p.name == argument and p.kind == "ScalarType" for o in overloads(name) for p in o)


def simple(name: str, names: Sequence[str], defaults: Sequence[Any]) -> tuple[tuple[int, frozenset[type]], ...]:
    """For a function's arguments: their positions, and the classes of values that `problem` need not be asked about."""
    found = overloads(name)
    quick = []
    for i, (n, d) in enumerate(zip(names, defaults, strict=True)):
        places = [p for o in found for p in o if p.name == n or (i == 0 and p.name == "self" and not n.startswith("*"))]
        if places and all(p.several or _classes(p.kind) for p in places):
            classes: set[type] = set() if d is inspect.Parameter.empty else {type(d)}
            for p in places:
                classes |= {tuple, list, Size} if p.several else set()
                classes |= _classes(p.kind) if p.one or not p.several else frozenset()
                classes |= {type(None)} if p.none else set()
            quick.append((i, frozenset(classes)))
    return tuple(quick)


def _of_argument(where: str, places: Sequence[Parameter], v: Any) -> Exception:
    if type(v) is int and not _LEAST <= v <= _MOST:
        if any(p.kind == "int" and (p.one or not p.several) for p in places):
            return ValueError(f"{where} is {v}: Overflow when unpacking long long, an integer must lie within 64 bits")
        if any(p.kind in ("number", "float") for p in places):
            return OverflowError(f"{where} is {v}: int too big to convert, an integer must lie within 64 bits")
    if places[0].name == "reduction" and places[0].kind == "any":  # PyTorch looks for it among the names there are
        return ValueError(f"{where}: {_valued(v)} is not a valid value for reduction")
    if any(p.truth for p in places) and _has_no_truth(v):
        count = "more than one value" if v._meta.numel else "no values"
        return RuntimeError(f"{where} is a tensor of shape {tuple(v.shape)}: Boolean value of Tensor with {count} is ambiguous")
    expected = " or ".join(dict.fromkeys(map(_expected, places)))
    return TypeError(f"{where} must be {expected}, not {_told(places, v)}")


def _by_place(overload: Sequence[Parameter], names: Sequence[str], values: Sequence[Any], defaults: Sequence[Any]) -> Arguments:
    """The arguments that were given, those before the first default by the overload's order: overloads call one place by several names."""
    given: dict[str, Any] = {}
    places = iter([p for p in overload if not p.keyword])
    in_order = True
    for n, v, d in zip(names, values, defaults, strict=True):
        if n == "out" and all(p.name != n for p in overload):
            continue  # every function that has one checks it
        in_order = in_order and v is not d
        place = next(places, None) if in_order else None
        if v is not d:
            given[n if place is None else place.name] = v
    return Arguments(given, names, False)


_NUMPY_NAMES: Final = {"axis": "dim", "keepdims": "keepdim", "x": "self"}


def _seen(overload: Sequence[Parameter], known: Container[str], names: Sequence[str], values: Sequence[Any], defaults: Sequence[Any]) -> Arguments:
    """The arguments by the names of an overload. Those that came one by one (`*sizes`) are the list that it has, or take its names in order."""
    given: dict[str, Any] = {}
    whole = True
    for n, v, d in zip(names, values, defaults, strict=True):
        if n.startswith("**"):
            by_name = {_NUMPY_NAMES.get(k, k): value for k, value in v.items()}
            given.update({k: value for k, value in by_name.items() if k in known})
            whole = False
        elif n.startswith("*"):
            free = [p for p in overload if p.name not in given]
            if n == "*args":
                free = [p for p in free if not p.keyword]
                sizes = bool(free) and free[0].several and not free[0].one and bool(v) and not isinstance(v[0], (tuple, list))
                called = [p.name for p in free] + [f"{i + 1}. argument" for i in range(len(free), len(v))]  # more than the overload has: it does not fit
                given.update({free[0].name: v} if sizes else zip(called, v, strict=False))
                whole = False
            elif v:
                listed = next((p for p in free if p.several), None)
                if listed is not None:
                    given[listed.name] = v[0] if len(v) == 1 and not _is_int(v[0]) else v
            else:
                whole = False
        elif n in known:
            if v is not d:
                given[n] = v
        else:
            whole = False
    return Arguments(given, names, whole)


def _told(places: Sequence[Parameter], v: Any) -> str:
    """The type of a wrong value; of a list, that of what is wrong in it."""
    if isinstance(v, (tuple, list)) and any(p.several for p in places):
        for i, item in enumerate(v):
            if not any(p.several and _accepts(p, (item,)) for p in places):
                return f"{type_name(v)} with {_valued(item)} as element {i}"
    return _valued(v)


def many_numbers(function: str, name: str, position: int, v: Any) -> Exception:
    """The error of a tensor of several elements as an argument that is no tensor."""
    if name == "reduction":  # PyTorch looks for it among the names there are
        return ValueError(f"{function}(): a Tensor of shape {tuple(v.shape)} is not a valid value for reduction")
    return TypeError(f"{function}(): argument '{name}' (position {position}) must not be a Tensor of shape {tuple(v.shape)}")


def _valued(v: Any) -> str:
    """A type, and the value where it is a number or a short text."""
    short = isinstance(v, (bool, int, float, complex)) or (isinstance(v, str) and len(v) <= 40)
    return f"{type_name(v)} ({v!r})" if short else type_name(v)


# -- for functions that take their arguments in other ways than by one signature ---------------------------------------
def whole(function: str, name: str, v: Any) -> int:
    """An argument that must be a whole number; TypeError if it is none, ValueError if it has more than 64 bits."""
    if v.__class__ is int and _LEAST <= v <= _MOST:
        return v  # type: ignore[no-any-return]
    if not _is_int(v):
        raise _of_argument(f"{function}(): argument '{name}'", (Parameter(name, "int", False, False, False, False),), v)
    return int(v)


def flag(function: str, name: str, v: Any) -> bool:
    """An argument that PyTorch takes as a whole number and uses as a truth value; TypeError if it is none."""
    return v if v is True or v is False else bool(whole(function, name, v))


def a_dtype(function: str, v: Any) -> Any:
    """An argument that must be a dtype, or one of Python's classes of numbers; TypeError if it is none."""
    must_be(function, "dtype ScalarType", v)
    return of_type(v)
