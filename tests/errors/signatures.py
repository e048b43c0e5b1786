"""`python -m tests.errors.signatures > flambeau/data/signatures.txt`: the overloads of PyTorch's built-in functions, from its schemas.

One line a function of flambeau that is built in in PyTorch: its name, then its overloads: `clamp: self Tensor, min Scalar?=, max Scalar?= | ...`.
"""

from __future__ import annotations

import re
import sys
import types
from typing import Any

import torch

import flambeau

_BUILT_IN = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
# Where PyTorch has built-in functions, and what their schemas' names begin with. Tensor's methods and functions of torch share a name.
_OTHERS = frozenset("tensor as_tensor asarray frombuffer to type new_tensor sparse_coo_tensor sparse_compressed_tensor".split())
_OTHERS |= {f"sparse_{layout}_tensor" for layout in ("csr", "csc", "bsr", "bsc")}  # parsed by hand in PyTorch
SPACES = {"": "", "Tensor": "", "nn.functional": "", "linalg": "linalg_", "fft": "fft_", "special": "special_"}
_TYPES = {"List": "[]", "Optional": "?"}


def kind(real: str) -> str:
    """A type of a schema, as the file has it: "Optional[List[int]]" is "int[]?"."""
    found = re.fullmatch(r"(List|Optional)\[(.*)\]", real)
    return real if found is None else kind(found[2]) + _TYPES[found[1]]


def overload(schema: Any) -> str | None:
    """One overload; None for one that Python's functions do not have: with `out`, with names of dims, of the schemas' own lists and numbers."""
    parts = []
    kinds = [kind(str(a.real_type)) for a in schema.arguments]
    if schema.overload_name == "hacked_twin" or not any("Tensor" in k or "ScalarType" in k for k in kinds):
        return None
    for a, text in zip(schema.arguments, kinds, strict=True):
        if a.is_out or text.rstrip("?[]") in ("Dimname", "t", "Any") or text.startswith("Dict"):
            return None
        size = "" if a.N is None else str(a.N)
        none = "?" if a.default_value == [] and not text.endswith("?") else ""  # Python's parser takes None for no list
        parts.append(f"{a.name} {text.replace('[]', f'[{size}]')}{none}{'=' if a.has_default_value() else ''}")
    if "pin_memory" in [a.name for a in schema.arguments]:
        parts.append("requires_grad bool=")  # of all functions that make tensors of nothing
    return ", ".join(parts)


def lines() -> list[str]:
    """All lines of the file, sorted."""
    schemas: dict[str, list[Any]] = {}
    for schema in torch._C._jit_get_all_schemas():
        if schema.name.startswith("aten::"):
            schemas.setdefault(schema.name[6:], []).append(schema)
    found: dict[str, str] = {}
    for space, prefix in SPACES.items():
        theirs, ours = (_place(module, space) for module in (torch, flambeau))
        for name in dir(theirs):
            function = getattr(theirs, name, None)
            hidden = (name.startswith("_") and not name.startswith("__")) or name in _OTHERS
            if hidden or not isinstance(function, _BUILT_IN) or not callable(getattr(ours, name, None)):
                continue
            base = name if prefix + name not in schemas else prefix + name
            texts = [text for schema in schemas.get(base, ()) if (text := overload(schema)) is not None]
            key = f"{space}.{name}" if space not in ("", "Tensor") else name
            if texts:
                found.setdefault(key, f"{key}: {' | '.join(dict.fromkeys(texts))}")
    return [found[key] for key in sorted(found)]


def _place(module: Any, space: str) -> Any:
    for part in space.split(".") if space else ():
        module = getattr(module, part)
    return module


if __name__ == "__main__":
    sys.stdout.write("\n".join(lines()) + "\n")
