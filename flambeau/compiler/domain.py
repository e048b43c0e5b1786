"""The iteration space of a fused group: loops, and which loops every value of the group runs over.

A computed value is dense in an address space of its own (its strides), whether or not it is ever stored. A consumer
that reads it through a view has strides in that space, so the two index spaces are matched by addresses: permutations,
reshapes, inserted and expanded dimensions need no rule of their own. A loop is split where one side has 12 and the
other 3 x 4; `layout.py` joins loops again where every operand allows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from flambeau.compiler.graph import Value

Lists = tuple[tuple[int, ...], ...]  # for each dimension of a value: its loops, outermost first
Factor = tuple[int, int, int]  # loop, size, stride


class Mismatch(Exception):
    """Why a value cannot be computed in a group's loops; the text is for `explain`."""


@dataclass(slots=True)
class Domain:
    """Loops by number, with their sizes; `where` maps a value id to its loops; `reduced`: the loops that reductions
    run over."""

    sizes: dict[int, int] = field(default_factory=dict)
    where: dict[int, Lists] = field(default_factory=dict)
    reduced: frozenset[int] = frozenset()
    _next: int = 0

    def new_loop(self, size: int) -> int:
        self.sizes[self._next] = size
        self._next += 1
        return self._next - 1

    def new_lists(self, shape: Sequence[int]) -> Lists:
        """Fresh loops for a shape; a dimension of one element needs none."""
        return tuple((self.new_loop(size),) if size != 1 else () for size in shape)

    def split(self, loop: int, inner_size: int) -> tuple[int, int]:
        """Replace `loop` by an outer and an inner one of `inner_size`, everywhere."""
        outer, inner = self.new_loop(self.sizes[loop] // inner_size), self.new_loop(inner_size)
        del self.sizes[loop]
        if loop in self.reduced:
            self.reduced = self.reduced - {loop} | {outer, inner}
        for value, lists in self.where.items():
            if any(loop in dims for dims in lists):
                self.where[value] = tuple(replace(dims, loop, (outer, inner)) for dims in lists)
        return outer, inner

    def loops_of(self, lists: Lists) -> set[int]:
        return {loop for dims in lists for loop in dims}

    def factors(self, lists: Lists, strides: Sequence[int]) -> list[Factor]:
        """Each loop with its size and the stride it has where dimension i has `strides[i]`."""
        out = []
        for dims, stride in zip(lists, strides, strict=True):
            step = stride
            for loop in reversed(dims):
                out.append((loop, self.sizes[loop], step))
                step *= self.sizes[loop]
        return out

    def align(self, known: Iterable[Factor], shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, ...] | None]:
        """Loops of each dimension of (shape, strides) such that its addresses are those of the `known` loops.

        A dimension of stride 0 (broadcast) gets None. May split loops (harmless). Raises Mismatch.
        """
        left = sorted((f for f in known if f[1] != 1), key=lambda f: f[2])
        out: list[tuple[int, ...] | None] = [() if size == 1 else None for size in shape]
        at = 0
        for axis in sorted((i for i, s in enumerate(strides) if s and shape[i] != 1), key=lambda i: strides[i]):
            need, step = shape[axis], strides[axis]
            loops: tuple[int, ...] = ()
            while need > 1:
                if at == len(left) or left[at][2] != step:
                    raise Mismatch("it reads only a part of the value, or its elements in another pattern")
                loop, size, _ = left[at]
                if need % size == 0:
                    loops = (loop, *loops)
                    need //= size
                    step *= size
                    at += 1
                elif size % need == 0:
                    outer, inner = self.split(loop, need)
                    out = [dims and replace(dims, loop, (outer, inner)) for dims in out]
                    left[at] = (outer, size // need, step * need)
                    loops = (inner, *loops)
                    need = 1
                else:
                    raise Mismatch("a reshape cuts the value's dimensions where they do not divide")
            out[axis] = loops
        if at < len(left):
            raise Mismatch("it reads only a part of the value")
        return out


def replace(dims: tuple[int, ...], loop: int, by: tuple[int, ...]) -> tuple[int, ...]:
    """`dims` with `loop` replaced by the loops `by`."""
    if loop not in dims:
        return dims
    at = dims.index(loop)
    return dims[:at] + by + dims[at + 1 :]


def broadcast_strides(value: Value, shape: Sequence[int]) -> list[int]:
    """Strides of `value` over a shape it broadcasts to (NumPy's rule): 0 where it is repeated or there is one
    element."""
    missing = len(shape) - len(value.shape)
    return [0] * missing + [0 if size == 1 else stride for size, stride in zip(value.shape, value.strides, strict=True)]
