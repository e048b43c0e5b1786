"""Types as TorchScript writes them (`Optional[List[int]]`): whether a value is of one, and what becomes of an argument that Python gives for one."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, Final

from flambeau.devices import Device
from flambeau.dtypes import dtype
from flambeau.jit.torchscript.errors import refuse
from flambeau.jit.torchscript.operators import dtype_number
from flambeau.tensor import Tensor

Check = Callable[[Any], bool]


def _is_number(v: Any) -> bool:
    return isinstance(v, (int, float, complex)) and not isinstance(v, bool)


_SIMPLE: Final[dict[str, Check]] = {
    "Tensor": lambda v: isinstance(v, Tensor), "int": lambda v: isinstance(v, int) and not isinstance(v, bool), "float": lambda v: isinstance(v, float),
    "bool": lambda v: isinstance(v, bool), "str": lambda v: isinstance(v, str), "complex": lambda v: isinstance(v, complex),
    "NoneType": lambda v: v is None, "None": lambda v: v is None, "Any": lambda v: True, "number": _is_number, "Scalar": _is_number,
    "Device": lambda v: isinstance(v, Device), "list": lambda v: isinstance(v, list), "tuple": lambda v: isinstance(v, tuple),
    "AnyListType": lambda v: isinstance(v, list), "AnyTupleType": lambda v: isinstance(v, tuple),
}  # fmt: skip


def parts(annotation: ast.expr) -> tuple[str, list[ast.expr]]:
    """The name of a type, and the types in its brackets."""
    if isinstance(annotation, ast.Subscript):
        inside = annotation.slice
        return ast.unparse(annotation.value), list(inside.elts) if isinstance(inside, ast.Tuple) else [inside]
    if isinstance(annotation, ast.Constant) and annotation.value is None:
        return "NoneType", []
    return ast.unparse(annotation), []


def check(annotation: ast.expr) -> Check:
    """Whether a value is of a type, its elements included. A class of the archive is checked by nothing more than its name being one."""
    name, inside = parts(annotation)
    if not inside:
        return _SIMPLE.get(name, lambda v: v is not None)
    inner = [check(a) for a in inside if not (isinstance(a, ast.Tuple) and not a.elts)]
    if name == "Optional":
        return lambda v: v is None or inner[0](v)
    if name == "Union":
        return lambda v: any(c(v) for c in inner)
    if name in ("List", "Final", "Future", "Await", "RRef"):
        if name != "List":
            return inner[0] if name == "Final" else lambda v: v is not None
        return lambda v: isinstance(v, list) and all(map(inner[0], v))
    if name == "Dict" and len(inner) == 2:
        return lambda v: isinstance(v, dict) and all(map(inner[0], v)) and all(map(inner[1], v.values()))
    if name == "Tuple":
        return lambda v: isinstance(v, tuple) and len(v) == len(inner) and all(c(x) for c, x in zip(inner, v, strict=True))
    return refuse(f"the type {ast.unparse(annotation)} is not read")


def given(annotation: ast.expr, v: Any) -> Any:
    """An argument from Python as the program takes it: an int for a float, a tuple for a list, a dtype for its number."""
    name, inside = parts(annotation)
    if name == "Optional":
        return None if v is None else given(inside[0], v)
    if name == "float" and isinstance(v, int) and not isinstance(v, bool):
        return float(v)
    if name == "int" and isinstance(v, dtype):
        return dtype_number(v)
    if name == "Device" and isinstance(v, str):
        return Device(v)
    if name == "List" and isinstance(v, (list, tuple)):
        items = [given(inside[0], x) for x in v]
        return v if isinstance(v, list) and all(a is b for a, b in zip(items, v, strict=True)) else items
    if name == "Tuple" and isinstance(v, (list, tuple)) and len(v) == len(inside) and not hasattr(v, "_fields"):
        return tuple([given(a, x) for a, x in zip(inside, v, strict=True)])
    return v
