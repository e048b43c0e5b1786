"""`python -m tests.errors.signatures > flambeau/data/signatures.txt`: the overloads of PyTorch's built-in functions, from its schemas.

One line a function of flambeau that is built in in PyTorch: its name, then its overloads: `clamp: self Tensor, min Scalar?=, max Scalar?= | ...`.
"""

from __future__ import annotations

import inspect
import re
import sys
import types
from typing import Any, Final

import torch

import flambeau
from flambeau.ops.signatures import accepts
from flambeau.torch_names import inner_names
from tests.errors.calls import Scope, table, wrong_calls
from tests.errors.outcome import outcome

_BUILT_IN = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
# Where PyTorch has built-in functions, and what their schemas' names begin with. Tensor's methods and functions of torch share a name.
_OTHERS = frozenset("tensor as_tensor asarray frombuffer to type new_tensor sparse_coo_tensor sparse_compressed_tensor".split())
_OTHERS |= {f"sparse_{layout}_tensor" for layout in ("csr", "csc", "bsr", "bsc")}  # parsed by hand in PyTorch
# What those parse: a signature of Python's, with the kinds as annotations. Functions of torch.functional whose arguments a built-in one parses, too.
_FACTORY = "dtype ScalarType?=, device Device?=, pin_memory bool=, requires_grad bool="
_SPARSE = "dtype ScalarType?=, device Device?=, pin_memory bool=, requires_grad bool=, check_invariants bool?="
BY_HAND = {
    "tensor": f"data any?, *, {_FACTORY}",
    "new_tensor": f"self Tensor, data any?, *, {_FACTORY}",
    "as_tensor": "data any?, dtype ScalarType?=, device Device?=",
    "asarray": "obj any?, *, dtype ScalarType?=, device Device?=, copy bool?=, requires_grad bool=",
    "frombuffer": "buffer any?, *, dtype ScalarType, count int=, offset int=, requires_grad bool=",
    "nn.functional.ctc_loss": " | ".join(
        f"log_probs Tensor, targets Tensor, input_lengths {kind}, target_lengths {kind}, blank int=, reduction any?=, zero_infinity bool="
        for kind in ("int[]", "Tensor")
    ),
    "finfo": "type ScalarType?=",
    "iinfo": "type ScalarType?=",
    "stft": "input Tensor, n_fft int, hop_length int?=, win_length int?=, window Tensor?=, center any?=, pad_mode any?=, normalized bool=, "
    "onesided bool?=, return_complex bool?=, align_to_window bool?=",
    "meshgrid": "indexing str?=",
    "sparse_coo_tensor": f"indices any?, values any?, *, {_SPARSE} | indices any?, values any?, size int[], *, {_SPARSE}, is_coalesced bool?= | "
    f"size int[], *, {_SPARSE}",
    **{
        f"sparse_{layout}_tensor": f"{kept}_indices any?, {other}_indices any?, values any?, size int[], *, {_SPARSE} | "
        f"{kept}_indices any?, {other}_indices any?, values any?, *, {_SPARSE}"
        for layout, kept, other in (("csr", "crow", "col"), ("csc", "ccol", "row"), ("bsr", "crow", "col"), ("bsc", "ccol", "row"))
    },
}
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
        if a.kwarg_only and "*" not in parts:
            parts.append("*")
        if a.is_out or text.rstrip("?[]") in ("Dimname", "t", "Any") or text.startswith("Dict"):
            return None
        size = "" if a.N is None else str(a.N)
        none = "?" if a.default_value == [] and not text.endswith("?") else ""  # Python's parser takes None for no list
        parts.append(f"{a.name} {text.replace('[]', f'[{size}]')}{none}{'=' if a.has_default_value() else ''}")
    if "pin_memory" in [a.name for a in schema.arguments]:
        parts.append("requires_grad bool?=")  # of all functions that make tensors of nothing
    return ", ".join(parts)


def lines() -> list[str]:
    """All lines of the file, sorted."""
    schemas: dict[str, list[Any]] = {}
    for schema in torch._C._jit_get_all_schemas():
        if schema.name.startswith("aten::"):
            schemas.setdefault(schema.name[6:], []).append(schema)
    found: dict[str, str] = {name: f"{name}: {text}" for name, text in BY_HAND.items()}
    for space, prefix in SPACES.items():
        theirs, ours = (_place(module, space) for module in (torch, flambeau))
        for name in dir(theirs):
            function = getattr(theirs, name, None)
            hidden = (name.startswith("_") and not name.startswith("__") and name not in vars(inner_names)) or name in _OTHERS
            if hidden or not isinstance(function, _BUILT_IN) or not callable(getattr(ours, name, None)):
                continue
            base = name if prefix + name not in schemas else prefix + name
            texts = [text for schema in schemas.get(base, ()) if (text := overload(schema)) is not None]
            key = f"{space}.{name}" if space not in ("", "Tensor") else name
            if texts:
                found.setdefault(key, f"{key}: {' | '.join(dict.fromkeys(texts))}")
    found |= {name: f"{name}: {text}" for name, text in experiments().items() if name not in BY_HAND}
    return [found[key] for key in sorted(found)]


# -- by experiment ------------------------------------------------------------------------------------------------
# A function that PyTorch writes in Python hands arguments on to a built-in one, whose parser says what is wrong. What it refuses of
# each of these, and takes of others, tells the kind of the argument.
_NOT: Final = {
    "bool": ("str", "object", "float", "zero", "complex", "floats", "dtype", "empty list"),
    "int": ("str", "object", "float", "bool", "complex", "empty list", "floats", "dtype"),
    "int[1]": ("str", "object", "float", "bool", "complex", "floats", "dtype"),
    "int[]": ("str", "object", "float", "zero", "bool", "complex", "floats", "dtype"),
    "float": ("str", "object", "empty list", "floats", "dtype", "ints"),
    "str": ("object", "float", "zero", "bool", "complex", "floats", "dtype", "empty list"),
    "Tensor": ("str", "object", "float", "zero", "bool", "complex", "floats", "dtype", "empty list"),
    "ScalarType": ("str", "object", "float", "zero", "bool", "complex", "floats", "empty list"),
}  # fmt: skip
_TAKES: Final = {
    "bool": "bool", "int": "negative", "int[1]": "negative", "int[]": "negatives", "float": "float", "str": "str", "Tensor": "ints",
    "ScalarType": "dtype",
}  # fmt: skip
_SEVERAL: Final = ("ints", "halves", "other sizes")  # tensors of several numbers: a function in Python that asks for their truth says that they have none
_PARSER: Final = re.compile(r"\(\): argument '\w+'|received an invalid combination of arguments|too big to convert")


def experiments() -> dict[str, str]:
    """The overload of each function of the table's section "functional"."""
    refused: dict[str, dict[str, set[str]]] = {}
    taken: dict[str, dict[str, set[str]]] = {}
    asked: dict[str, dict[str, set[str]]] = {}
    given: dict[str, dict[str, list[Any]]] = {}
    for call in table("functional"):
        name = call.text.partition(" ")[0].removeprefix("torch.")
        for argument, make in call.kwargs.items():
            given.setdefault(name, {}).setdefault(argument, []).append(make(Scope(flambeau)))
        for wrong in wrong_calls(call, ("None", *sorted({how for hows in _NOT.values() for how in hows} | {*_TAKES.values(), *_SEVERAL}))):
            found = outcome(wrong, torch)
            ambiguous = found.text.startswith("Boolean value of Tensor")
            bad = ambiguous or (found.failed and found.kinds[0] == "TypeError" and _PARSER.search(found.text) is not None)
            (refused if bad else taken).setdefault(name, {}).setdefault(str(wrong.where), set()).add(wrong.how)
            if ambiguous:
                asked.setdefault(name, {}).setdefault(str(wrong.where), set()).add(wrong.how)
    found = {name: _by_experiment(name, refused.get(name, {}), taken.get(name, {}), given[name]) for name in sorted(given)}
    return {name: _with_truths(text, asked.get(name, {}), taken.get(name, {})) for name, text in found.items()}


def _with_truths(text: str, asked: dict[str, set[str]], taken: dict[str, set[str]]) -> str:
    """An overload whose arguments that are asked for their truth are marked: `inplace bool!=`."""
    parts = []
    for part in text.split(", "):
        name, kind = part.split(" ")
        truth = asked.get(name, set()).issuperset(_SEVERAL) and taken.get(name, set()).isdisjoint(_SEVERAL)
        parts.append(f"{name} {kind.rstrip('=')}!=" if truth else part)
    return ", ".join(parts)


def _by_experiment(name: str, refused: dict[str, set[str]], taken: dict[str, set[str]], given: dict[str, list[Any]]) -> str:
    parts = []
    for argument in inspect.signature(_place(flambeau, name)).parameters:
        no, yes = refused.get(argument, set()), taken.get(argument, set())
        kinds = [kind for kind, hows in _NOT.items() if no.issuperset(hows) and yes.isdisjoint(hows) and _TAKES[kind] in yes]
        kinds = [kind for kind in kinds if all(accepts(f"{argument} {kind}?", value) for value in given.get(argument, ()))]
        kind = kinds[0] if kinds else "any"
        parts.append(f"{argument} {kind}{'' if kinds and 'None' in no - yes else '?'}=")
    return ", ".join(parts)


def _place(module: Any, space: str) -> Any:
    for part in space.split(".") if space else ():
        module = getattr(module, part)
    return module


if __name__ == "__main__":
    sys.stdout.write("\n".join(lines()) + "\n")
