"""TorchScript's operators on numbers, texts, lists and dicts: what `torch.append`, `torch.format` and `torch.floordiv` mean without a tensor."""

from __future__ import annotations

import builtins
import itertools
import math
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from flambeau.tensor import Tensor
from flambeau.trace.once import warn_here

_Operator = Callable[..., Any]


# -- any value ----------------------------------------------------------------------------------------------------------
def _format(pattern: str, *values: Any) -> str:
    """The text with each "{}" replaced by the next value, as TorchScript does: nothing else in braces means anything."""
    parts = pattern.split("{}")
    if len(values) < len(parts) - 1:
        raise RuntimeError(f"torch.format: {pattern!r} has {len(parts) - 1} places, and {len(values)} values are given")
    return "".join([part + (text(values[i]) if i < len(parts) - 1 else "") for i, part in enumerate(parts)])


def text(value: Any) -> str:
    """A value as TorchScript writes it into a text: 1. for 1.0, seventeen digits, texts in lists without quotes."""
    if isinstance(value, float):
        whole = math.isfinite(value) and abs(value) < 1e10 and value.is_integer()
        return f"{int(value)}." if whole else f"{value:.17g}"
    if type(value) in (list, tuple):
        inside = ", ".join(map(text, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    if isinstance(value, dict):
        return f"{{{', '.join([f'{text(k)}: {text(v)}' for k, v in value.items()])}}}"
    return str(value)


def _percent(pattern: str, given: Any) -> str:
    """pattern % given, with %s as TorchScript writes values."""
    values = list(given) if isinstance(given, tuple) else [given]
    kinds = [k for k in re.findall(r"%[^a-zA-Z%]*([a-zA-Z%])", pattern) if k != "%"]
    return pattern % tuple([text(v) if kind == "s" else v for kind, v in itertools.zip_longest(kinds, values)])


def _contains(container: Any, item: Any) -> bool:
    if isinstance(item, Tensor):
        return any(bool((each == item).all()) for each in container)
    return item in container


def _range_length(start: int, stop: int, step: int) -> int:
    if step == 0:
        raise RuntimeError("range() arg 3 must not be zero")
    return len(range(start, stop, step))


def _unwrap(value: Any) -> Any:
    if value is None:
        raise RuntimeError("Unwrapping null optional")
    return value


def _is(a: Any, b: Any) -> bool:
    return a is b


def _warn(message: str, stacklevel: int = 2) -> None:
    warn_here(message)


ANY: Final[dict[str, _Operator]] = {
    "__is__": _is, "__isnot__": lambda a, b: not _is(a, b), "__not__": operator.not_, "__contains__": _contains, "__range_length": _range_length,
    "__derive_index": lambda i, start, step: start + i * step, "format": _format, "percentFormat": _percent, "len": len,
    "str": text, "_unwrap_optional": _unwrap, "warn": _warn, "wait": lambda future: future.wait(), "hash": hash,
}  # fmt: skip


# -- lists, dicts, texts ------------------------------------------------------------------------------------------------
def _slice(items: Any, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    return items[start:end:step]


def _set_item(target: Any, key: Any, value: Any) -> None:
    target[key] = value


def _delete(target: Any, key: Any) -> None:
    del target[key]


def _add_in_place(items: list[Any], more: Any) -> list[Any]:
    items += more
    return items


def _default_set(target: dict[Any, Any], key: Any, value: Any) -> Any:
    return target.setdefault(key, value)


def _list_pop(items: list[Any], at: int = -1) -> Any:
    return items.pop(at)


LIST: Final[dict[str, _Operator]] = {
    "append": lambda items, item: (items.append(item), items)[1], "extend": list.extend, "insert": list.insert, "pop": _list_pop, "clear": list.clear,
    "remove": list.remove, "index": list.index, "count": list.count, "reverse": list.reverse, "copy": list.copy, "list": list, "sorted": sorted,
    "sort": lambda items, descending=False: items.sort(reverse=descending), "slice": _slice, "_set_item": _set_item, "Delete": _delete,
    "__getitem__": operator.getitem, "add": lambda a, b: [*a, *b], "add_": _add_in_place, "mul": lambda items, n: items * n, "eq": operator.eq,
    "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "any": any, "all": all, "sum": sum,
    "max": max, "min": min,
}  # fmt: skip
DICT: Final[dict[str, _Operator]] = {
    "keys": lambda d: list(d), "values": lambda d: list(d.values()), "items": lambda d: list(d.items()), "get": dict.get, "setdefault": _default_set,
    "pop": dict.pop, "popitem": dict.popitem, "clear": dict.clear, "update": dict.update, "copy": dict.copy, "_set_item": _set_item, "Delete": _delete,
    "__getitem__": operator.getitem, "eq": operator.eq, "ne": operator.ne, "list": list, "dict": dict,
}  # fmt: skip
_TUPLE: Final[dict[str, _Operator]] = {n: LIST[n] for n in ("slice", "__getitem__", "eq", "ne", "lt", "le", "gt", "ge", "index", "count", "list")} | {
    "add": operator.add
}
_TEXT_METHODS: Final = (
    "upper lower strip lstrip rstrip startswith endswith find rfind index rindex count replace split rsplit splitlines title capitalize swapcase center "
    "ljust rjust zfill expandtabs isalpha isdigit isalnum isdecimal isnumeric isspace isupper islower istitle isidentifier isprintable casefold partition "
    "rpartition"
).split()
TEXT: Final[dict[str, _Operator]] = {name: getattr(str, name) for name in _TEXT_METHODS} | {
    "join": str.join, "slice": _slice, "__getitem__": operator.getitem, "add": operator.add, "mul": operator.mul, "list": list, "ord": ord,
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip


# -- numbers ------------------------------------------------------------------------------------------------------------
def _power(a: Any, b: Any) -> Any:
    """TorchScript's power of two ints is a float."""
    return (float(a) if isinstance(a, int) else a) ** b


def _shifted(a: int, n: int) -> int:
    """In 64 bits, as TorchScript's ints are."""
    return ((a << n) + (1 << 63)) % (1 << 64) - (1 << 63) if 0 <= n < 64 else 0


def _round(x: Any) -> float:
    return float(builtins.round(x))


def _real(name: str) -> _Operator:
    function: _Operator = getattr(math, name)
    return lambda *values: function(*values)


def _true_divide(a: Any, b: Any, rounding_mode: str | None = None) -> Any:
    made = a / b
    return made if rounding_mode is None else float(math.floor(made) if rounding_mode == "floor" else math.trunc(made))


NUMBER: Final[dict[str, _Operator]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": _true_divide, "floordiv": operator.floordiv, "remainder": operator.mod,
    "fmod": math.fmod, "mod": operator.mod, "pow": _power, "neg": operator.neg, "eq": operator.eq, "ne": operator.ne, "lt": operator.lt,
    "le": operator.le, "gt": operator.gt, "ge": operator.ge, "__and__": operator.and_, "__or__": operator.or_, "__xor__": operator.xor,
    "__lshift__": _shifted, "__rshift__": operator.rshift, "bitwise_not": operator.invert, "__round_to_zero_floordiv": lambda a, b: int(a / b),
    "divmod": divmod, "abs": abs, "round": _round, "floor": math.floor, "ceil": math.ceil, "trunc": math.trunc, "gcd": math.gcd,
    "factorial": math.factorial, "chr": chr, "hex": hex, "oct": oct, "bin": bin, "Int": int, "Float": float, "Bool": bool, "Complex": complex,
    "isnan": math.isnan, "isinf": math.isinf, "isfinite": math.isfinite, "copysign": math.copysign, "degrees": math.degrees, "radians": math.radians,
    "ldexp": math.ldexp, "frexp": math.frexp, "modf": math.modf, "real": lambda x: x.real, "imag": lambda x: x.imag,
    **{n: _real(n) for n in "sqrt exp expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh atan2 erf erfc gamma "
       "lgamma".split()},
}  # fmt: skip
_BY_FIRST: Final[dict[type, dict[str, _Operator]]] = {list: LIST, dict: DICT, str: TEXT, tuple: _TUPLE}
KNOWN: Final = frozenset({*ANY, *LIST, *DICT, *TEXT, *NUMBER, *_TUPLE})


def find(name: str, args: Sequence[Any]) -> _Operator | None:
    """The operator that a call means by its arguments; None if it is one on tensors."""
    found = ANY.get(name)
    if found is not None and not (name == "len" and args and isinstance(args[0], Tensor)):
        return found
    first = args[0] if args else None
    if isinstance(first, Tensor):
        return None if name != "len" else _tensor_length
    for kind, table in _BY_FIRST.items():
        if isinstance(first, kind):
            return table.get(name)
    if args and not any(isinstance(a, Tensor) for a in args):
        return NUMBER.get(name)
    return None


def _tensor_length(t: Tensor) -> int:
    if t.dim() == 0:
        raise TypeError("len() of a 0-d tensor")
    return int(t.shape[0])
