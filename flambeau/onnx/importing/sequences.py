"""Sequences, which are Python lists, and optionals, which are None where they are empty."""

from __future__ import annotations

from typing import Any

import numpy as np

import flambeau
from flambeau.onnx.importing import values
from flambeau.onnx.importing.registry import Call, operator


def _place(position: Any) -> int:
    return int(values.number(position))


@operator("SequenceConstruct", raw=True)
def sequence_construct(n: Call, *xs: Any) -> Any:
    """A sequence of tensors."""
    return list(xs)


@operator("SequenceEmpty", raw=True)
def sequence_empty(n: Call) -> Any:
    """A sequence of nothing."""
    return []


@operator("SequenceAt", raw=True)
def sequence_at(n: Call, s: Any, position: Any) -> Any:
    """One element."""
    return s[_place(position)]


@operator("SequenceInsert", raw=True)
def sequence_insert(n: Call, s: Any, x: Any, position: Any = None) -> Any:
    """With one more element, at the end or at a place."""
    made = list(s)
    where = len(made) if position is None else _place(position)
    made.insert(where if where >= 0 else len(made) + where, x)
    return made


@operator("SequenceErase", raw=True)
def sequence_erase(n: Call, s: Any, position: Any = None) -> Any:
    """Without one element, the last or that of a place."""
    made = list(s)
    del made[-1 if position is None else _place(position)]
    return made


@operator("SequenceLength", raw=True)
def sequence_length(n: Call, s: Any) -> Any:
    """The count of elements."""
    return np.array(len(s), np.int64)


@operator("ConcatFromSequence", raw=True)
def concat_from_sequence(n: Call, s: Any) -> Any:
    """The elements one after the other, or stacked."""
    parts = [values.tensor(x) for x in s]
    return flambeau.stack(parts, n.get("axis")) if n.get("new_axis", 0) else flambeau.cat(parts, n.get("axis"))


@operator("SplitToSequence", raw=True)
def split_to_sequence(n: Call, x: Any, split: Any = None) -> Any:
    """A tensor's parts along a dim as a sequence."""
    x, axis = values.tensor(x), n.get("axis", 0)
    if split is None:
        parts = list(x.split(1, axis))
        return parts if n.get("keepdims", 1) else [p.squeeze(axis) for p in parts]
    sizes = values.ints(split)
    return list(x.split(sizes[0] if not split.shape else sizes, axis))


@operator("Optional", raw=True)
def optional(n: Call, x: Any = None) -> Any:
    """A value, or none."""
    return x


@operator("OptionalHasElement", raw=True)
def optional_has_element(n: Call, x: Any = None) -> Any:
    """Whether there is a value."""
    return np.array(x is not None)


@operator("OptionalGetElement", raw=True)
def optional_get_element(n: Call, x: Any) -> Any:
    """The value; an error if there is none."""
    if x is None:
        raise ValueError("OptionalGetElement: the optional is empty")
    return x
