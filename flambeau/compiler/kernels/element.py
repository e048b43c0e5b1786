"""Data movement: one element type as the kernels that move, compare and combine elements see it.

Elements that are only moved are opaque integers of their size, so that int32 and float32 share their kernels; elements
that are combined have their dtype's arithmetic (emit/scalar.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from flambeau import dtypes
from flambeau.compiler.emit import convert
from flambeau.compiler.emit.code import OF_BYTES, Array, Code
from flambeau.compiler.emit.lanes import Lanes

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
