"""Fourier transforms along one dim: which kernels compute a node.

Up to some thousand points one kernel does it all, a vector of signals at a time (fourier_lanes.py). Longer signals, and few of some length, take two
passes over a temporary: n = a b points are b transforms of a points, numbers between, and a transforms of b points (Gentleman and Sande 1966).
A prime factor above 97 makes the transform a convolution (Bluestein 1970), in one kernel, too, or of several over temporaries of float64. Lengths decide
about all of it, and how many signals there are; threads never do, so bits do not depend on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import index
from typing import Final

from flambeau import dtypes
from flambeau.compiler.emit.code import Code
from flambeau.compiler.graph import Graph, Value, contiguous_strides
from flambeau.compiler.kernel import Address, Kernel, Scratch, Table, Word, float_word
from flambeau.compiler.kernels import fourier_lanes, fourier_rows
from flambeau.compiler.kernels.description import describe_code
from flambeau.compiler.kernels.fourier_stages import ITEMSIZE, lanes_of, stages_function
from flambeau.compiler.kernels.fourier_tables import convolution_length, radices, split
from flambeau.compiler.kernels.move_layout import address, group, reads
from flambeau.runtime.untracked import record
from flambeau.symbols import maximum

# Bytes of a thread's two buffers up to which one pass does it: a second-level cache and a half (a Zen 4 has 1 MiB).
ONE_PASS_BYTES: Final = 1 << 19
# Points of a signal from which two passes gain where there are not signals enough for half of the lanes.
FEW_POINTS: Final = 64
# Nanoseconds of work for which a further thread is worth starting.
THREAD_NANOSECONDS: Final = 8000


@record
@dataclass(frozen=True, slots=True)
class Side:
    """Signals in memory: a value of the graph, and where their numbers are, counted in parts (a complex number has two)."""

    value: int
    sizes: tuple[int, ...]  # of the batch
    strides: tuple[int, ...]
    step: int  # from point to point
    other: int  # from the real to the imaginary part
    complex: bool
    offset: Address

    def pairs(self) -> Side:
        """Real numbers as complex ones of two neighbours each."""
        return Side(self.value, self.sizes, self.strides, 2 * self.step, self.step, True, self.offset)


def make_fourier(graph: Graph, node_index: int) -> list[Kernel]:
    """Kernels of a `fourier` node, in the order in which they must run."""
    node = graph.nodes[node_index]
    to = graph.values[node.outputs[0]]
    if to.numel == 0:
        return []
    dim, kind = node.attr("dim"), node.attr("kind")
    n = index(node.attr("size"))  # asks for it: a length is a fact of a plan
    made = _Maker(graph, node_index, to.dtype.to_real().name, node.attr("inverse"))
    made.transform(_side(graph, node.inputs[0], dim), _side(graph, node.outputs[0], dim), kind, n, node.attr("scale"))
    return made.kernels


def _side(graph: Graph, value_id: int, dim: int) -> Side:
    v = graph.values[value_id]
    parts = 2 if v.dtype.is_complex else 1
    sizes, strides = (tuple([s for d, s in enumerate(of) if d != dim]) for of in (v.shape, v.strides))
    return Side(value_id, sizes, tuple([s * parts for s in strides]), v.strides[dim] * parts, 1, parts == 2, address(graph, value_id))


class _Maker:
    """Makes the kernels of one node."""

    def __init__(self, graph: Graph, node_index: int, real: str, inverse: bool) -> None:
        self.graph = graph
        self.node = node_index
        self.real = real
        self.inverse = inverse
        self.kernels: list[Kernel] = []

    def transform(self, x: Side, to: Side, kind: str, n: int, scale: float) -> None:
        if radices(n) is None:
            if self._one_pass(convolution_length(n), x):
                read, write = n // 2 + 1 if kind == "hermitian" else n, n // 2 + 1 if kind == "real" else n
                self._lanes(x, to, n, read, write, scale, before="mirror" if kind == "hermitian" else "", convolved=True)
            else:
                self._convolve(x, to, kind, n, scale)
            return
        if kind == "complex" and not (x.complex or n % 2 or self.inverse) and self._one_pass(n, x):
            self._lanes(x.pairs(), to, n // 2, n // 2, n, scale, after="untangle_all")
            return
        half = n // 2 if kind != "complex" and n % 2 == 0 else 0
        core = half or n
        one = self._one_pass(core, x)
        if kind == "complex":
            if one:
                self._lanes(x, to, core, core, core, scale)
            else:
                self._long(x, to, core, scale)
        elif kind == "real":
            if one:
                self._lanes(x.pairs() if half else x, to, core, core, n // 2 + 1, scale, after="untangle" if half else "")
            else:
                made = self._temporary(x, core, self.real)
                self._long(x.pairs() if half else x, made, core, 1.0)
                self._rows(made, to, core, n // 2 + 1, scale, "untangle" if half else "complex", core + 1)
        elif one:
            before = "tangle" if half else "mirror"
            self._lanes(x, to.pairs() if half else to, core, n // 2 + 1, core, scale, before=before)
        else:
            made = self._temporary(x, core, self.real)
            self._rows(x, made, core, core, 1.0, "tangle" if half else "mirror", core)
            self._long(made, to.pairs() if half else to, core, scale)

    def _one_pass(self, n: int, x: Side) -> bool:
        lanes = lanes_of(self.real, self.graph.target)
        parts = split(n)
        if parts is None:
            return True
        if 4 * n * lanes * ITEMSIZE[self.real] > ONE_PASS_BYTES:
            return False
        few = n >= FEW_POINTS and parts[0] >= lanes // 2
        return not (few and bool(math.prod(x.sizes) * 2 <= lanes))

    def _temporary(self, like: Side, n: int, real: str) -> Side:
        """Memory for n complex numbers of each signal."""
        kind = dtypes.complex64 if real == "float32" else dtypes.complex128
        shape = (*like.sizes, n)
        value = self.graph.add_value(Value(shape, kind, contiguous_strides(shape)))
        strides = tuple([2 * s for s in contiguous_strides(shape)[:-1]])
        return Side(value, like.sizes, strides, 2, 1, True, Address(value))

    # -- kernels ----------------------------------------------------------------------------------------------------
    def _long(self, x: Side, to: Side, n: int, scale: float) -> None:
        """Two passes: point j = b j1 + j2 of a signal gives point k = k1 + a k2."""
        parts = split(n)
        assert parts is not None
        a, b = parts
        between = self._temporary(x, n, self.real)
        sizes = (*x.sizes, b)
        first = Side(x.value, sizes, (*x.strides, x.step), x.step * b, x.other, x.complex, x.offset)
        middle = Side(between.value, sizes, (*between.strides, 2), 2 * b, 1, True, between.offset)
        self._lanes(first, middle, a, a, a, 1.0, steps=(a, b))
        sizes = (*x.sizes, a)
        middle = Side(between.value, sizes, (*between.strides, 2 * b), 2, 1, True, between.offset)
        last = Side(to.value, sizes, (*to.strides, to.step), to.step * a, to.other, to.complex, to.offset)
        self._lanes(middle, last, b, b, b, scale)

    def _lanes(
        self, x: Side, to: Side, n: int, read: int, write: int, scale: float, before: str = "", after: str = "", steps: tuple[int, int] | None = None,
        convolved: bool = False,
    ) -> None:  # fmt: skip
        """One pass over signals of n points: `read` of them come from memory, `write` go there. `convolved`: n has a great prime factor."""
        target, real = self.graph.target, self.real
        lanes = lanes_of(real, target)
        order = sorted(range(len(x.sizes)), key=lambda d: to.strides[d], reverse=True) if steps is None else range(len(x.sizes))
        batch = group("batch", *([of[d] for d in order] for of in (x.sizes, x.strides, to.strides)))
        near = [_near(side, of) for side, of in zip((x, to), batch.strides, strict=True)]
        whole = bool(batch.sizes) and steps is not None
        if batch.sizes and any(near) and not whole:
            whole = len(batch.sizes) == 1 or bool(batch.sizes[-1] * 2 > lanes)
        at = len(batch.sizes) - 1 if whole else 0
        outer = group("outer", batch.sizes[:at], *(of[:at] for of in batch.strides))
        lane = group("lane", batch.sizes[at:], *(of[at:] for of in batch.strides))
        layouts = [near[i] if whole and near[i] else _layout(side) for i, side in enumerate((x, to))]
        facts = fourier_lanes.Facts(
            real, self.inverse, outer, lane, (layouts[0], layouts[1]), (x.complex, to.complex), before, after, steps is not None, convolved, target.vector_bits
        )  # fmt: skip
        assert steps is None or layouts[1] == "pairs"
        length = convolution_length(n) if convolved else n
        plan = radices(length)
        assert plan is not None
        points = fourier_lanes.scratch_points(max(length, read, write), lanes)
        blocks = -(-lane.count // lanes)
        words: dict[str, Word] = {
            "x": x.offset, "to": to.offset, "stages": stages_function(real, target), "table": Table("stages", (length, real)),
            "scratch": Scratch(4 * points * lanes * ITEMSIZE[real]), "odd": len(plan) % 2, "points": points, "n": n, "blocks": blocks,
            "count": lane.count, "read": read, "write": write, "step0": x.step, "other0": x.other, "step1": to.step, "other1": to.other,
            "scale": float_word(scale / length if convolved else scale), **outer.words(), **lane.words(),
        }  # fmt: skip
        if convolved:
            words |= {"length": length, "chirp": Table("chirp", (n, real)), "spectrum": Table("chirp_spectrum", (n, length, real))}
        if before == "tangle" or after:
            words["halves"] = Table("halves", (2 * n, real))
        if steps is not None:
            words["steps"] = Table("steps", (*steps, real))
        work = length * (2 if convolved else 1)
        self._add("fourier", facts.key, partial(fourier_lanes.transform, facts), words, x, to, outer.count * blocks, work, lanes)

    def _rows(
        self, x: Side, to: Side, n: int, write: int, scale: float, form: str, read: int, table: Table | None = None,
        exchanged: tuple[bool, bool] | None = None, real: tuple[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Each of `write` points by itself; those from `read` on are zero."""
        batch = group("batch", x.sizes, x.strides, to.strides)
        facts = fourier_rows.Facts(real or (self.real, self.real), batch, form, table is not None, exchanged or (False, False), to.complex)
        blocks = -(-write // fourier_rows.BLOCK)
        words: dict[str, Word] = {
            "x": x.offset, "to": to.offset, "n": n, "read": read, "write": write, "blocks": blocks, "step0": x.step, "other0": x.other,
            "step1": to.step, "other1": to.other, "scale": float_word(scale), **batch.words(),
        }  # fmt: skip
        if table is not None:
            words["table"] = table
        if form in ("tangle", "untangle"):
            words["halves"] = Table("halves", (2 * n, facts.wide))
        units = batch.count * blocks
        self._add("fourier_rows", facts.key, partial(fourier_rows.transform, facts), words, x, to, units, min(write, fourier_rows.BLOCK), 1)

    def _convolve(self, x: Side, to: Side, kind: str, n: int, scale: float) -> None:
        """Bluestein: chirp times the convolution of chirp times signal with the conjugate chirp."""
        length = convolution_length(n)
        real, inverse = self.real, self.inverse
        wide = "float64"
        a, b, c, d = (self._temporary(x, length, wide) for _ in range(4))
        form = {"complex": "complex" if x.complex else "real", "real": "real", "hermitian": "mirror"}[kind]
        self._rows(x, a, n, length, 1.0, form, n, Table("chirp", (n, wide)), (inverse, False), (real, wide))
        self.real, self.inverse = wide, False
        self._core(a, b, length)
        self._rows(b, c, length, length, 1.0, "complex", length, Table("chirp_spectrum", (n, length, wide)), (False, False), (wide, wide))
        self.inverse = True
        self._core(c, d, length)
        self.real, self.inverse = real, inverse
        write = n // 2 + 1 if kind == "real" else n
        self._rows(d, to, n, write, scale / length, "complex", n, Table("chirp", (n, wide)), (False, inverse), (wide, real))

    def _core(self, x: Side, to: Side, n: int) -> None:
        if self._one_pass(n, x):
            self._lanes(x, to, n, n, n, 1.0)
        else:
            self._long(x, to, n, 1.0)

    def _add(self, name: str, key: str, write: Callable[[Code], None], words: dict[str, Word], x: Side, to: Side, units: int, n: int, lanes: int) -> None:
        graph = self.graph
        operations = 5 * lanes * n * max(1, math.ceil(math.log2(max(n, 2))))
        traffic = sum([graph.values[side.value].numel * graph.values[side.value].dtype.itemsize for side in (x, to)])
        least = maximum(1, math.ceil(THREAD_NANOSECONDS / (operations / 20)))
        self.kernels.append(
            describe_code(
                name, key, write, words, reads=reads(graph, x.value), writes=(graph.root(to.value),), units=units, bytes=traffic,
                operations=operations * units, nodes=(self.node,), min_units_per_thread=least,
            )
        )  # fmt: skip


def _near(side: Side, strides: Sequence[int]) -> str:
    """How vectors of neighbouring signals are read: "" where they are not neighbours."""
    if not strides:
        return ""
    if side.complex and side.other == 1 and strides[-1] == 2:
        return "pairs"
    return "planes" if strides[-1] == 1 and not (side.complex and side.other == 1) else ""


def _layout(side: Side) -> str:
    """How signals are read that are not neighbours."""
    runs = side.step == 2 and side.other == 1 if side.complex else side.step == 1
    return "rows" if runs else "any"
