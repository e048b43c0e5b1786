"""Wrong calls of einsum and tensordot beside PyTorch: the same type of exception, and a message that names the function as the user knows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch")

Calls = dict[str, Callable[[Any, Any, Any], tuple[Any, ...]]]

CALLS: Calls = {
    "nothing": lambda m, t, u: (),
    "no operands": lambda m, t, u: ("ij",),
    "an empty list": lambda m, t, u: ("ij", []),
    "a number as equation": lambda m, t, u: (3, t),
    "None as equation": lambda m, t, u: (None, t),
    "a list as equation": lambda m, t, u: (["ij"], t),
    "a number as operand": lambda m, t, u: ("ij", 3),
    "None as operand": lambda m, t, u: ("ij", None),
    "a number in the list": lambda m, t, u: ("ij", [3]),
    "None in the list": lambda m, t, u: ("ij,jk", [t, None]),
    "text as operand": lambda m, t, u: ("ij", "ab"),
    "an array": lambda m, t, u: ("ij", t.numpy()),
    "a list and a tensor": lambda m, t, u: ("ij,jk", [t], u),
    "one tensor": lambda m, t, u: (t,),
    "labels None": lambda m, t, u: (t, None),
    "labels a number": lambda m, t, u: (t, 3),
    "labels a matrix": lambda m, t, u: (t, u),
    "labels strings": lambda m, t, u: (t, ["a", "b"]),
    "labels floats": lambda m, t, u: (t, [0, 1.5]),
    "labels too large": lambda m, t, u: (t, [0, 52]),
    "labels negative": lambda m, t, u: (t, [0, -1]),
    "too few labels": lambda m, t, u: (t, [0]),
    "an unknown label": lambda m, t, u: (t, [0, 1], [2]),
    "a label twice": lambda m, t, u: (t, [0, 1], [0, 0]),
    "a label of two sizes": lambda m, t, u: (t, [True, 1]),
    "tensors alone": lambda m, t, u: (3, [0, 1]),
    "no letters": lambda m, t, u: ("i?->i", t),
    "a digit": lambda m, t, u: ("i1", t),
    "a digit in the output": lambda m, t, u: ("ij->1", t),
    "a line's end": lambda m, t, u: ("ij\n", t),
    "Greek letters": lambda m, t, u: ("αβ", t),
    "two arrows": lambda m, t, u: ("ij->i->j", t),
    "half an arrow": lambda m, t, u: ("ij-i", t),
    "the other half": lambda m, t, u: ("ij>i", t),
    "one dot": lambda m, t, u: (".i", t),
    "one dot in the output": lambda m, t, u: ("ij->.i", t),
    "four dots": lambda m, t, u: ("....i", t),
    "dots twice": lambda m, t, u: ("...i...", t),
    "dots twice in the output": lambda m, t, u: ("...i->......", t),
    "more operands": lambda m, t, u: ("ij", t, u),
    "fewer operands": lambda m, t, u: ("ij,jk", t),
    "more subscripts": lambda m, t, u: ("ijk", t),
    "fewer subscripts": lambda m, t, u: ("i", t),
    "more subscripts beside dots": lambda m, t, u: ("...ijk", t),
    "an empty equation": lambda m, t, u: ("", t),
    "commas alone": lambda m, t, u: (",", m.tensor(1.0)),
    "an unknown output": lambda m, t, u: ("ij->k", t),
    "an output twice": lambda m, t, u: ("ij->ii", t),
    "sizes": lambda m, t, u: ("ij,jk", t, t),
    "sizes of a diagonal": lambda m, t, u: ("ii", t),
    "sizes under dots": lambda m, t, u: ("...i,...i", t, m.ones(3, 3)),
    "float64 beside float32": lambda m, t, u: ("ij,jk", t, u.double()),
    "int64 beside float32": lambda m, t, u: ("ij,jk", t, u.to(m.int64)),
    "bools": lambda m, t, u: ("ij,jk", t > 0, u > 0),
}


def given(m: Any, name: str) -> tuple[Any, ...]:
    return CALLS[name](m, m.ones(2, 3), m.ones(3, 4))


@pytest.mark.parametrize("name", CALLS)
def test_types_are_pytorchs_and_messages_name_einsum(name: str) -> None:
    with pytest.raises(Exception) as theirs:
        torch.einsum(*given(torch, name))
    with pytest.raises(theirs.type) as ours:
        flambeau.einsum(*given(flambeau, name))
    assert type(ours.value) is theirs.type
    assert str(ours.value).startswith("einsum()")
    assert str(ours.value).count("einsum") == 1


@pytest.mark.parametrize("arguments", [
    lambda m, t, u: (b"ij", t), lambda m, t, u: ("ij,jk", [[t, u]]), lambda m, t, u: (" i j -> j i ", t), lambda m, t, u: ("ij->...ij", t),
    lambda m, t, u: ("ij,", t, m.tensor(2.0)), lambda m, t, u: ("i...j->j...i", t), lambda m, t, u: (t, m.tensor([1, 0])),
    lambda m, t, u: ("i,j->ij", t[0], u.double()[0]), lambda m, t, u: ("ij,kl->ijkl", t > 0, u.to(m.int64)), lambda m, t, u: ("ij,ij->ij", t > 0, t > 0),
])  # fmt: skip
def test_what_is_right(arguments: Any) -> None:
    ours, theirs = [m.einsum(*arguments(m, m.arange(6.0).reshape(2, 3), m.arange(12.0).reshape(3, 4))) for m in (flambeau, torch)]
    assert (str(ours.dtype), ours.tolist()) == (str(theirs.dtype), theirs.tolist())


@pytest.mark.parametrize("arguments", [
    lambda m, t, u: (t, u, 3), lambda m, t, u: (t, u, -1), lambda m, t, u: (t, u, ([0], [0])), lambda m, t, u: (t, u, ([0, 1], [0])),
    lambda m, t, u: (t, u.double(), 1),
])  # fmt: skip
def test_tensordot(arguments: Any) -> None:
    with pytest.raises(Exception) as theirs:
        torch.tensordot(*given_for(torch, arguments))
    with pytest.raises(theirs.type) as ours:
        flambeau.tensordot(*given_for(flambeau, arguments))
    assert "tensordot_" not in str(ours.value)


def given_for(m: Any, arguments: Any) -> Any:
    return arguments(m, m.ones(2, 3), m.ones(3, 4))
