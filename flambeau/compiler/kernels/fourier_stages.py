"""Fourier transforms: the function that does all stages of a transform, in a thread's scratch, of as many signals at once as there are lanes.

A point is two vectors: the real parts of all lanes, then the imaginary ones. Stages read one buffer and write the other (Stockham's order: results
come out in their places). Radices are code; lengths, strides and roots are a table that is read (fourier_tables.py): a new length costs no compiling.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import numpy as np

from flambeau.compiler.emit.builder import module
from flambeau.compiler.emit.code import Array, Code
from flambeau.compiler.emit.complex import add, sub
from flambeau.compiler.emit.lanes import Lanes
from flambeau.compiler.kernel import Function
from flambeau.compiler.kernels.fourier_tables import LARGEST_RADIX, RECORD, roots
from flambeau.runtime.target import Target

Point = tuple[Lanes, Lanes]
ELEMENT: Final = {"float32": "float", "float64": "double"}
ITEMSIZE: Final = {"float32": 4, "float64": 8}


def lanes_of(real: str, target: Target) -> int:
    """How many signals a vector holds."""
    return target.vector_bits // 8 // ITEMSIZE[real]


def stages_function(real: str, target: Target) -> Function:
    """`void stages(ptr from, ptr other, ptr table)`: the result is in `from` if the table has an even number of stages, else in the other."""
    key = f"fourier_stages:{real}:{target.vector_bits}"
    return Function(key, partial(_emit, real, key))


# -- butterflies ------------------------------------------------------------------------------------------------------
def times(a: Point, w: Point) -> Point:
    """The product of two complex numbers, each part rounded twice."""
    return a[0].fma(w[0], -(a[1] * w[1])), a[1].fma(w[0], a[0] * w[1])


def _turned(a: Point) -> Point:
    """-i a."""
    return a[1], -a[0]


def _two(a: Sequence[Point]) -> list[Point]:
    return [add(a[0], a[1]), sub(a[0], a[1])]


def _four(a: Sequence[Point]) -> list[Point]:
    (s, d), (t, e) = _two((a[0], a[2])), _two((a[1], a[3]))
    e = _turned(e)
    return [add(s, t), add(d, e), sub(s, t), sub(d, e)]


def _eight(a: Sequence[Point]) -> list[Point]:
    even, odd = _four(a[0::2]), _four(a[1::2])
    half = math.sqrt(0.5)
    (_, _), (x, y), two, (u, v) = odd
    odd = [odd[0], ((x + y) * half, (y - x) * half), _turned(two), ((v - u) * half, -(u + v) * half)]
    return [*map(add, even, odd), *map(sub, even, odd)]


def _odd(a: Sequence[Point]) -> list[Point]:
    """A prime radix: results j and r - j share their products."""
    r = len(a)
    half = r // 2
    sums = [add(a[k], a[r - k]) for k in range(1, half + 1)]
    differences = [sub(a[k], a[r - k]) for k in range(1, half + 1)]
    first = a[0]
    for x in sums:
        first = add(first, x)
    results = [first, *[first] * (r - 1)]
    numbers = [(float(c), -float(s)) for c, s in roots(np.arange(r), r, "float64")]
    for j in range(1, half + 1):
        even, crossed = a[0], (first[0].like(0.0), first[0].like(0.0))
        for k, (x, y) in enumerate(zip(sums, differences, strict=True), 1):
            c, s = numbers[j * k % r]
            even = x[0].fma(c, even[0]), x[1].fma(c, even[1])
            crossed = (y[1] * s, y[0] * s) if k == 1 else (y[1].fma(s, crossed[0]), y[0].fma(s, crossed[1]))
        results[j] = even[0] + crossed[0], even[1] - crossed[1]
        results[r - j] = even[0] - crossed[0], even[1] + crossed[1]
    return results


_BUTTERFLIES: Final[dict[int, Callable[[Sequence[Point]], list[Point]]]] = {2: _two, 3: _odd, 4: _four, 5: _odd, 7: _odd, 8: _eight}


# -- the function -------------------------------------------------------------------------------------------------------
def _emit(real: str, key: str, target: Target) -> str:
    from flambeau.runtime.jit import symbol

    c = Code([], target)
    element, lanes = ELEMENT[real], lanes_of(real, target)
    source, to = (c.pointer_cell(Array(c, name, element)) for name in ("%from", "%other"))
    table = Array(c, "%table", "i64")
    stage = _Stage(c, element, lanes)
    with c.for_(0, table[0]) as i:
        at = i * RECORD + 1
        radix, m, s, twiddles, numbers = (table[at + j] for j in range(5))
        stage.place(source.get(element), to.get(element), radix, m, s, table.after_bytes(twiddles, element), table.after_bytes(numbers, element))

        def choose(known: Sequence[int]) -> None:
            if not known:
                stage.any_prime()
                return
            with c.if_(radix.eq(known[0])):
                stage.fixed(known[0])
            with c.else_():
                choose(known[1:])

        choose(sorted(_BUTTERFLIES, reverse=True))
        before = source.get(element)
        source.set(to.get(element))
        to.set(before)
    header = f"define void @{symbol(key)}(ptr noalias %from, ptr noalias %other, ptr noalias %table) #0"
    return module([c.b.function(header)], c.b.declarations, target)


class _Stage:
    """The code of one stage: of m groups p with s points q each, point k of a butterfly is at q + s (p + m k), result j goes to q + s (r p + j)."""

    def __init__(self, c: Code, element: str, lanes: int) -> None:
        self.c = c
        self.element = element
        self.lanes = lanes
        most = LARGEST_RADIX // 2
        self.sums, self.differences = (c.local_array(element, 2 * lanes * most) for _ in range(2))

    def place(self, source: Array, to: Array, radix: Lanes, m: Lanes, s: Lanes, twiddles: Array, numbers: Array) -> None:
        self.source, self.to, self.radix, self.m, self.s, self.twiddles, self.numbers = source, to, radix, m, s, twiddles, numbers

    def load(self, array: Array, point: Lanes | int) -> Point:
        at = array.at(point * (2 * self.lanes))
        return at.load(0, self.lanes), at.load(self.lanes, self.lanes)

    def store(self, array: Array, point: Lanes | int, value: Point) -> None:
        at = array.at(point * (2 * self.lanes))
        at.store(0, value[0])
        at.store(self.lanes, value[1])

    def number(self, array: Array, at: Lanes | int) -> Point:
        """A complex number of a table, in every lane."""
        c = self.c
        return c.splat(array[at], self.lanes), c.splat(array[at + 1], self.lanes)

    def fixed(self, radix: int) -> None:
        c, m, s = self.c, self.m, self.s

        def group(twiddled: bool, p: Lanes) -> None:
            factors = self.twiddles.at(p * (2 * (radix - 1)))
            first, target = s * p, s * p * radix
            step = s * m
            with c.for_(0, s) as q:
                made = _BUTTERFLIES[radix]([self.load(self.source, first + q + step * k) for k in range(radix)])
                for j, value in enumerate(made):
                    if j and twiddled:
                        value = times(value, self.number(factors, 2 * (j - 1)))
                    self.store(self.to, target + q + s * j, value)

        with c.if_(m.eq(1)):
            group(False, c.i64(0))
        with c.else_(), c.for_(0, m) as i:
            group(True, i)

    def any_prime(self) -> None:
        """A prime radix that has no code of its own: the sums and differences of its points lie on the stack."""
        c, m, s, r = self.c, self.m, self.s, self.radix
        half = r.logical_right(1)
        lanes = self.lanes
        with c.for_(0, m) as p:
            factors = self.twiddles.at(p * (r - 1) * 2)
            with c.for_(0, s) as q:
                first = self.load(self.source, s * p + q)
                total = [c.cell(self.element, part, lanes) for part in first]
                with c.for_(1, half + 1) as k:
                    x, y = (self.load(self.source, s * (p + m * at) + q) for at in (k, r - k))
                    self.store(self.sums, k - 1, add(x, y))
                    self.store(self.differences, k - 1, sub(x, y))
                    for cell, part in zip(total, add(x, y), strict=True):
                        cell.add(part)
                target = s * p * r + q
                self.store(self.to, target, (total[0].get(), total[1].get()))
                with c.for_(1, half + 1) as j:
                    even = [c.cell(self.element, part, lanes) for part in first]
                    crossed = [c.cell(self.element, 0.0, lanes) for _ in range(2)]
                    row = self.numbers.at((j - 1) * half * 2)
                    with c.for_(0, half) as k:
                        cosine, sine = self.number(row, k * 2)  # the sine is that of exp(-i ...)
                        x, y = self.load(self.sums, k), self.load(self.differences, k)
                        for cell, part in zip(even, x, strict=True):
                            cell.set(part.fma(cosine, cell.get()))
                        for cell, part in zip(crossed, (y[1], y[0]), strict=True):
                            cell.set(part.fma(sine, cell.get()))
                    (a, b), (u, v) = (cell.get() for cell in even), (cell.get() for cell in crossed)
                    for at, value in ((j, (a - u, b + v)), (r - j, (a + u, b - v))):
                        self.store(self.to, target + s * at, times(value, self.number(factors, (at - 1) * 2)))
