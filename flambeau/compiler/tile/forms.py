"""What a value of a tile program is while it is lowered: scalars in registers, blocks in scratch memory, blocks that are computed where they are
read, and, at given coordinates, lanes that are uniform, linear or anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from flambeau.compiler.emit.code import Array, Cell
from flambeau.compiler.emit.convert import register_element
from flambeau.compiler.emit.lanes import Lanes
from flambeau.compiler.tile.ir import Element, Pointer, Value

if TYPE_CHECKING:
    from flambeau.compiler.tile.spread import Layout


@dataclass(eq=False, slots=True)
class Coordinate:
    """A position along one dim: a scalar i64 (or a Python int), or, with a width, that many positions from there on."""

    base: Lanes | int
    width: int = 1


ZERO: Final = Coordinate(0)
Coordinates = tuple[Coordinate, ...]


@dataclass(eq=False, slots=True)
class Buffer:
    """A block in scratch memory, in register form (a bool is a byte): element (i, j, ...) is at i * strides[0] + j * strides[1] + ..."""

    array: Array
    strides: tuple[int, ...]
    owner: int = 0  # number of the memory: views of it have the same

    def view(self, strides: tuple[int, ...], offset: int = 0) -> Buffer:
        return Buffer(self.array.at(offset) if offset else self.array, strides, self.owner)


@dataclass(eq=False, slots=True)
class Shifted:
    """A block of integers or pointers that a loop moves on by the same for all elements: `start` and so much (elements for integers, bytes for
    pointers; i64)."""

    start: Value
    by: Lanes


@dataclass(eq=False, slots=True)
class Uniform:
    """The same in all lanes."""

    value: Lanes


@dataclass(eq=False, slots=True)
class Linear:
    """Lane i is base + i * step, in i64."""

    base: Lanes
    step: int | Lanes


@dataclass(eq=False, slots=True)
class Registers:
    """A block that the threads of a GPU's program hold in registers: `cells` are a thread's elements, where `layout` says (spread.py)."""

    cells: list[Cell]
    layout: Layout


AtLanes = Uniform | Linear | Lanes
Form = Lanes | Buffer | Shifted | Registers


def element_of(e: Element) -> str:
    """LLVM's type of a lane; pointers are their addresses."""
    return "i64" if isinstance(e, Pointer) else register_element(e)


def memory_element(e: Element) -> str:
    """The same in scratch memory."""
    return "i8" if element_of(e) == "i1" else element_of(e)


def known_number(x: Lanes) -> int | None:
    """The number, if it is a constant."""
    return int(x.name) if x.name.lstrip("-").isdigit() else None


def dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides."""
    strides: list[int] = []
    step = 1
    for n in reversed(shape):
        strides.insert(0, step)
        step *= n
    return tuple(strides)
