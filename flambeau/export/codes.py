"""Numbers and texts of `.pt2` files: dtypes, layouts, memory formats, trees of arguments (PyTorch's schema, version 8)."""

from __future__ import annotations

import json
import math
from collections import OrderedDict, defaultdict, deque
from typing import Any, Final

import flambeau
from flambeau import dtypes
from flambeau.utils._pytree import LeafSpec, TreeSpec

VERSION: Final = (8, 20)
_DTYPES: Final = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32", 8: "float64", 9: "complex32", 10: "complex64",
    11: "complex128", 12: "bool", 13: "bfloat16", 28: "uint16", 29: "float8_e4m3fn", 30: "float8_e5m2", 31: "float8_e4m3fnuz", 32: "float8_e5m2fnuz",
    34: "uint32", 35: "uint64",
}  # fmt: skip
_NUMBERS: Final = {name: number for number, name in _DTYPES.items()}
STRIDED: Final = 7
_FORMATS: Final = {1: "contiguous_format", 2: "channels_last", 3: "channels_last_3d", 4: "preserve_format"}


def dtype_number(d: dtypes.dtype) -> int:
    """The number of a dtype."""
    return _NUMBERS[d.name]


def dtype_of(number: Any) -> dtypes.dtype:
    """The dtype of a number; ValueError for one that flambeau has not."""
    name = _DTYPES.get(number) if type(number) is int else None
    if name is None or name not in dtypes.BY_NAME:
        raise ValueError(f"dtype number {number!r} ({name or 'not known'}) is not one that flambeau has")
    return dtypes.BY_NAME[name]


def format_number(f: Any) -> int:
    """The number of a memory format."""
    return next(n for n, name in _FORMATS.items() if getattr(flambeau, name) is f)


def format_of(number: Any) -> Any:
    """The memory format of a number."""
    if number not in _FORMATS:
        raise ValueError(f"memory format number {number!r} is not known")
    return getattr(flambeau, _FORMATS[number])


def number_text(x: float) -> Any:
    """A float as JSON has it."""
    return x if math.isfinite(x) else "NaN" if x != x else "Infinity" if x > 0 else "-Infinity"


def number_of(x: Any) -> float:
    """A float as JSON has it."""
    if isinstance(x, str):
        return {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}[x]
    return float(x)


_TREES: Final[dict[Any, str]] = {
    tuple: "builtins.tuple", list: "builtins.list", dict: "builtins.dict", OrderedDict: "collections.OrderedDict",
    defaultdict: "collections.defaultdict", deque: "collections.deque",
}  # fmt: skip
_BY_NAME: Final = {name: kind for kind, name in _TREES.items()}


def tree_text(spec: TreeSpec) -> str:
    """A tree of arguments as the file has it."""

    def dump(s: TreeSpec) -> Any:
        if s.is_leaf():
            return {"type": None, "context": None, "children_spec": []}
        if s.type not in _TREES or isinstance(s.context, type):
            raise NotImplementedError(f"torch.export.save: arguments and results in a {s.type.__name__ if not isinstance(s.context, type) else s.context} "
                                      "have no form in a file: use tuples, lists and dicts")  # fmt: skip
        return {"type": _TREES[s.type], "context": json.dumps(s.context), "children_spec": [dump(c) for c in s.children_specs]}

    return json.dumps([1, dump(spec)])


def tree_of(source: str) -> TreeSpec:
    """The tree of a text; ValueError for kinds that are no plain containers."""
    data = json.loads(source)

    def load(d: Any) -> TreeSpec:
        if d["type"] is None:
            return LeafSpec()
        if d["type"] not in _BY_NAME:
            raise ValueError(f"a tree of arguments of type {d['type']!r}: tuples, lists and dicts are read")
        return TreeSpec(_BY_NAME[d["type"]], json.loads(d["context"]), [load(c) for c in d["children_spec"]])

    return load(data[1])
