"""The tile IR: values are blocks of a static shape, operations take and give blocks, a program is run once for each point of a grid.

A scalar is a block of shape (). Pointers are elements like any other. What each kind of operation takes and gives is in `infer.py`;
what it computes is in `interpret.py`, which is the specification. The kinds are in `KINDS`, with their attributes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final

from flambeau.dtypes import dtype


@dataclass(frozen=True, slots=True)
class Pointer:
    """The address of elements of one dtype."""

    to: dtype

    @property
    def name(self) -> str:
        return f"pointer<{self.to.name}>"


Element = dtype | Pointer


@dataclass(frozen=True, slots=True)
class Type:
    """What a block is: its elements and its shape."""

    element: Element
    shape: tuple[int, ...] = ()

    @property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    def is_pointer(self) -> bool:
        return isinstance(self.element, Pointer)

    @property
    def dtype(self) -> dtype:
        """The dtype of the elements; TypeError for pointers."""
        if isinstance(self.element, Pointer):
            raise TypeError(f"a block of numbers is wanted here, got {self}")
        return self.element

    def of(self, shape: Sequence[int]) -> Type:
        return Type(self.element, tuple(shape))

    def __str__(self) -> str:
        return f"{self.element.name}[{', '.join(map(str, self.shape))}]" if self.shape else self.element.name


@dataclass(eq=False, slots=True)
class Value:
    """A block: the result of an operation, or a parameter of a region."""

    type: Type
    op: Op | None = None
    name: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape


@dataclass(eq=False, slots=True)
class Region:
    """Operations in order. `results` are the values that it hands to the operation that it belongs to."""

    params: list[Value] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    results: list[Value] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Where:
    """A place in the user's source."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(eq=False, slots=True)
class Op:
    """One operation; `where` is the place in the user's source that asked for it."""

    kind: str
    operands: tuple[Value, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    results: list[Value] = field(default_factory=list)
    regions: tuple[Region, ...] = ()
    where: Where | None = None


@dataclass(eq=False, slots=True)
class Program:
    """A kernel: its parameters (scalars and pointers) and its body."""

    name: str
    body: Region

    @property
    def params(self) -> list[Value]:
        return self.body.params


class TileError(Exception):
    """A tile program that has no meaning: what is wrong and, where it is known, the user's line."""

    where: Where | None = None


# kind -> the attributes that it has.
KINDS: Final[dict[str, tuple[str, ...]]] = {
    "constant": ("type", "value"),  # the same number in every place
    "iota": ("start", "end"),  # int32: start, start + 1, ...
    "program_id": ("axis",), "num_programs": ("axis",),
    "pointwise": ("op", "dtype"),  # a pointwise primitive; `dtype` is the target of a cast, else None
    "bitcast": ("element",),  # the same bits as another dtype of the same size, or a pointer as another
    "offset": (),  # (pointer, integer): that many elements further
    "load": ("masks",), "store": ("masks",),  # (pointer, [mask, [other]]); (pointer, value, [mask]); masks: how many operands follow
    "atomic": ("op", "masks"),  # (pointer, value, [mask]), of cas (pointer, compare, value): gives what was there
    "broadcast": ("shape",),  # of a scalar, or along dims of size 1
    "reshape": ("shape",), "permute": ("dims",), "join": (), "split": (), "cat": ("dim",), "gather": ("axis",),
    "dot": (),  # (a, b, acc): acc + a @ b, in acc's dtype
    "reduce": ("axis",), "scan": ("axis", "reverse"),  # region: two elements (or tuples of them) into one
    "sort": ("descending",), "histogram": ("bins",),  # along the last axis; (integers, [mask])
    "for": (), "while": (), "if": (),
    "print": ("prefix", "hex"), "assert": ("message",),
}  # fmt: skip
EFFECTS: Final = frozenset(("store", "atomic", "print", "assert"))


def walk(region: Region) -> Iterator[Op]:
    """All operations of a region and of the regions within, each before what is within it."""
    for op in region.ops:
        yield op
        for inner in op.regions:
            yield from walk(inner)


def has_effects(op: Op) -> bool:
    """Whether it does anything besides giving results. A while loop counts: it may not end."""
    return op.kind in EFFECTS or op.kind == "while" or any(has_effects(o) for region in op.regions for o in region.ops)


def text(program: Program) -> str:
    """The program for people."""
    names: dict[int, str] = {}

    def name(v: Value) -> str:
        return names.setdefault(id(v), f"%{v.name or len(names)}")

    def lines(region: Region, indent: str) -> Iterator[str]:
        for op in region.ops:
            attrs = " ".join(f"{k}={v}" for k, v in op.attrs.items() if v is not None)
            left = ", ".join(f"{name(r)}: {r.type}" for r in op.results)
            yield f"{indent}{left + ' = ' if left else ''}{op.kind} {', '.join(map(name, op.operands))}{' ' + attrs if attrs else ''}"
            for inner in op.regions:
                yield f"{indent}  ({', '.join(f'{name(p)}: {p.type}' for p in inner.params)}) {{"
                yield from lines(inner, indent + "    ")
                yield f"{indent}    yield {', '.join(map(name, inner.results))}"
                yield f"{indent}  }}"

    head = ", ".join(f"{name(p)}: {p.type}" for p in program.params)
    return "\n".join([f"{program.name}({head})", *lines(program.body, "  ")])
