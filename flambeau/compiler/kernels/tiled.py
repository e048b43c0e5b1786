"""Kernels that are written in the tile language (flambeau/tile/kernels): their words are the arguments of a function of it.

A unit is a program of the grid, `tl.program_id(0)`. What a function's text depends on is in the key: its constants, and the dtypes behind addresses. Sizes
and strides are words, in 64 bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from flambeau.compiler.kernel import Address, Kernel, Word
from flambeau.compiler.tile import unit
from flambeau.compiler.tile.ir import Pointer, Program, Type
from flambeau.dtypes import dtype, int64
from flambeau.runtime.target import Target
from flambeau.upward import upward

Argument = Type | int | tuple[Any, ...]  # of a function: a parameter's type, a constant, or a tuple of such
Words = Mapping[str, Word | tuple[tuple[Word, ...], ...]]


@upward
def program_of(name: str, arguments: Mapping[str, Argument]) -> Program:
    """The program of a function of flambeau/tile/kernels, "module.function", with these arguments; the types in them are its parameters, in their order."""
    raise NotImplementedError


def describe_tiled(
    name: str, function: str, words: Words, elements: Mapping[str, dtype], constants: Mapping[str, int],
    vector_bits: int, **of: Any,
) -> Kernel:  # fmt: skip
    """The kernel of a function: `words` are its arguments by name, or tuples of tuples of them; `elements`: what lies at addresses; `constants`: its constexpr
    arguments; `of`: what else a Kernel has."""
    arguments: dict[str, Argument] = {}
    flat: list[Word] = []
    for argument, word in words.items():
        if isinstance(word, tuple):
            arguments[argument] = tuple(tuple(Type(int64) for _ in row) for row in word)
            flat += [one for row in word for one in row]
        else:
            arguments[argument] = Type(Pointer(elements[argument]) if isinstance(word, Address) else int64)
            flat.append(word)
    counts = "".join(f":{argument}={len(word)}" for argument, word in words.items() if isinstance(word, tuple))
    facts = ":".join([f"{argument}={kind.name}" for argument, kind in elements.items()] + [f"{key}={number}" for key, number in constants.items()])
    key = f"tile:{function}:{facts}{counts}:{vector_bits}"
    return Kernel(name, key, partial(_text, key, function, {**arguments, **constants}), flat, **of)


def _text(key: str, function: str, arguments: Mapping[str, Argument], target: Target) -> str:
    from flambeau.runtime.jit import symbol

    return unit.lower(program_of(function, arguments), target, symbol(key))
