"""Data movement: how a kernel walks over operands of any strides, and how it checks an index.

The dims that a kernel treats alike are a `Group`: neighbouring dims are merged where every operand's strides allow it,
dims of one element go away, and what is left (usually one dim, or none) is walked by number: the group's point `i`,
row-major, has for each operand the offset sum over dims of coordinate * stride. The number of merged dims is a fact of
the code; sizes and strides are run-time words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from flambeau import dtypes
from flambeau.compiler.emit import convert
from flambeau.compiler.emit.code import OF_BYTES, Array, Code
from flambeau.compiler.emit.lanes import Lanes
from flambeau.compiler.graph import Graph, Value
from flambeau.compiler.kernel import Address, Word
from flambeau.runtime.untracked import record


@record
@dataclass(frozen=True, slots=True)
class Group:
    """Merged dims, outermost first: `sizes[d]`, and `strides[k][d]` of operand k, in elements."""

    name: str
    sizes: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]

    @property
    def count(self) -> int:
        return prod(self.sizes)

    @property
    def fact(self) -> str:
        """What the code depends on: the number of dims, and which operands run along memory in the last one."""
        unit = "".join({1: "u", 0: "z"}.get(s[-1], "s") for s in self.strides if s)
        return f"{self.name}{len(self.sizes)}{unit if self.sizes else ''}"

    def unit(self, operand: int) -> bool:
        """Whether the group is a run of neighbours in the operand's memory (or one element)."""
        return not self.sizes or (len(self.sizes) == 1 and self.strides[operand][0] == 1)

    def words(self) -> dict[str, Word]:
        words: dict[str, Word] = {f"{self.name}_size{d}": size for d, size in enumerate(self.sizes)}
        for k, strides in enumerate(self.strides):
            words |= {f"{self.name}_stride{k}_{d}": stride for d, stride in enumerate(strides)}
        return words

    def offsets(self, c: Code, point: Lanes) -> list[Lanes]:
        """Offset of a point in each operand, in elements."""
        if not self.sizes:
            return [c.i64(0) for _ in self.strides]
        totals: list[Lanes | None] = [None] * len(self.strides)
        left = point
        for d in reversed(range(len(self.sizes))):
            coordinate = left
            if d:
                size = c.word(f"{self.name}_size{d}")
                left = c.divide(coordinate, size)
                coordinate = coordinate - left * size
            for k in range(len(self.strides)):
                step = self.along(c, k, coordinate) if d == len(self.sizes) - 1 else (
                    coordinate * c.word(f"{self.name}_stride{k}_{d}")
                )  # fmt: skip
                total = totals[k]
                totals[k] = step if total is None else total + step
        return [total for total in totals if total is not None]

    def along(self, c: Code, operand: int, coordinate: Lanes) -> Lanes:
        """What a coordinate of the last dim (or lanes of them) adds to the operand's offset."""
        last = len(self.sizes) - 1
        stride = self.strides[operand][last]
        if stride in (0, 1):  # facts, see above
            return coordinate if stride else coordinate.like(0)
        return coordinate * c.splat(c.word(f"{self.name}_stride{operand}_{last}"), coordinate.width)


def group(name: str, sizes: Sequence[int], *strides: Sequence[int]) -> Group:
    """The group of these dims (outermost first) and of each operand's strides along them, merged."""
    merged: list[list[int]] = []
    for size, *steps in zip(sizes, *strides, strict=True):
        if size == 1:
            continue
        if merged and all(outer == inner * size for outer, inner in zip(merged[-1][1:], steps, strict=True)):
            merged[-1] = [merged[-1][0] * size, *steps]
        else:
            merged.append([size, *steps])
    return Group(name, tuple(m[0] for m in merged), tuple(tuple(m[1 + k] for m in merged) for k in range(len(strides))))


def address(graph: Graph, value_id: int) -> Address:
    """Address of the value's first element."""
    value = graph.values[value_id]
    itemsize = value.dtype.itemsize
    return Address(graph.root(value_id), value.offset * itemsize, tuple((p, m * itemsize) for p, m in value.dynamic))


def reads(graph: Graph, *value_ids: int) -> tuple[int, ...]:
    """The roots, and the parameters of dynamic offsets, that a kernel over these values reads."""
    ids = [graph.root(v) for v in value_ids]
    ids += [p for v in value_ids for p, _ in graph.values[v].dynamic]
    return tuple(dict.fromkeys(ids))


def is_whole(graph: Graph, value_id: int) -> bool:
    """Whether the value's elements are its root's buffer, byte for byte, in row-major order."""
    value = graph.values[value_id]
    root: Value = graph.values[graph.root(value_id)]
    nbytes = value.numel * value.dtype.itemsize
    return value.is_contiguous and value.offset == 0 and not value.dynamic and nbytes == root.numel * root.dtype.itemsize


INDEX_ERROR = "index {value} is out of bounds for dimension with size {bound}"


def wrapped_index(c: Code, index: Lanes, size: Lanes) -> tuple[Lanes, Lanes]:
    """(the index with a negative one wrapped, whether it is out of [-size, size)), for any number of lanes."""
    bound = c.splat(size, index.width)
    wrapped = index.lt(0).select(index + bound, index)
    return wrapped, wrapped.compare("uge", bound)


def checked_index(c: Code, index: Lanes, size: Lanes, error: Array) -> Lanes:
    """The index with a negative one wrapped; out of [-size, size) the kernel leaves with an error record."""
    wrapped, outside = wrapped_index(c, index, size)

    def record() -> None:
        for at, value in enumerate((c.i64(1), index, size)):
            error.store(at, value)

    c.return_if(outside, 1, record)
    return wrapped


# -- One element type as the kernels that move, compare and combine elements see it ----------------------------------
# Elements that are only moved are opaque integers of their size, so that int32 and float32 share their kernels; elements
# that are combined have their dtype's arithmetic (emit/scalar.py).


# The reduction (emit/scalar.py) of each mode that combines.
REDUCTION: Final = {"add": "sum", "prod": "prod", "amax": "amax", "amin": "amin"}


@dataclass(frozen=True, slots=True)
class Element:
    """`dtype` is None for elements that are only moved."""

    dtype: dtypes.dtype | None
    itemsize: int

    @property
    def name(self) -> str:
        return f"{self.itemsize}" if self.dtype is None else self.dtype.name

    def width(self, bits: int) -> int:
        """Lanes of a vector: a full register of the type that it is computed in."""
        if self.dtype is None:
            return max(bits // 8 // self.itemsize, 1)
        bytes_ = max(self.itemsize, 4) if self.dtype.is_floating_point else self.itemsize
        return max(bits // 8 // bytes_, 1)

    def at(self, c: Code, array: Array, index: Lanes) -> Array:
        """The memory from element `index` on."""
        return array.after_bytes(index * self.itemsize)

    def combine(self, c: Code, mode: str, to: Array, source: Array, width: int, mask: str | None) -> None:
        """`to = mode(to, source)` for `width` neighbours; "set" replaces."""
        if self.dtype is None:
            element = OF_BYTES[self.itemsize]
            to.at(0, element).store(0, source.at(0, element).load(0, width, mask), mask)
            return
        from flambeau.compiler.emit import scalar

        d = self.dtype
        old = convert.load(c.b, d, to.pointer, width, mask)
        new = convert.load(c.b, d, source.pointer, width, mask)
        convert.store(c.b, d, scalar.reduce_combine(c.b, REDUCTION[mode], d, old, new, width), to.pointer, width, mask)


def element_of(d: dtypes.dtype, moved_only: bool = False) -> Element:
    """The element of a dtype."""
    return Element(None if moved_only else d, d.itemsize)
