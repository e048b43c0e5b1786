"""Attention: small products of matrices that lie in a thread's scratch, and the ways in and out of the scratch.

A matrix in scratch is dense in rows of a pitch, in the compute type, its pitch a multiple of the vector's width and its
rows filled up to a multiple of the tile's: no product looks at a border. Two forms of product, lanes along the columns
of b and c:

    rows:   c[i][j] = sum over t of a[i * a_pitch + t] * b[t * b_pitch + j]
    steps:  c[i][j] = sum over t of a[i + t * a_pitch] * b[t * b_pitch + j]

and three ways of storing: "set" overwrites c, "add" adds to it, "scale" multiplies it by factor[j] before adding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from flambeau.compiler.emit.builder import Builder, Parameters, vector
from flambeau.compiler.kernels.matmul_element import Element, Tile
from flambeau.compiler.tile.contract import Operands, contract
from flambeau.symbols import at_most

VECTORS = 3  # of a tile, at most: 8 x 3 accumulators, 3 of b and a broadcast of a in 32 registers; 4 x 3 in 16
FETCHED_ROWS = 6  # rows further on that a copy asks for: rows are pages apart, so that the processor does not foresee them
PRODUCT: Final = Parameters("rows steps a* a_pitch b* b_pitch c* c_pitch factor*")
_COPY_ROWS: Final = Parameters("source* row_stride column_stride rows columns target* pitch all_rows")


@dataclass(frozen=True, slots=True)
class Facts:
    """What the generated text depends on. Units: which stride of an operand is 1, as in matmul_pack.py."""

    element: Element
    width: int
    vector_bits: int
    rows: int  # of a tile
    vectors: int  # of a block of queries
    causal: bool
    mask: str  # "none", "bool" or "add"
    mask_unit: str
    dropout: bool
    kept_unit: str
    units: tuple[str, ...]  # of q, k, v (and the output's gradient)
    batch_dims: int
    name: str  # "attention" or "attention_gradient"
    parts: int = 0  # bfloat16 parts of a number, where the matrix unit multiplies

    def key(self) -> str:
        return (
            f"{self.name}:{self.element.name}:{self.width}x{self.rows}x{self.vectors}:{self.vector_bits}:{'causal' if self.causal else 'all'}"
            f":{self.mask}:{self.mask_unit}:{f'dropout {self.kept_unit}' if self.dropout else 'sure'}:{','.join(self.units)}:{self.batch_dims}"
            + (f":parts{self.parts}" if self.parts else "")
        )

    @property
    def compute(self) -> str:
        return self.element.compute

    @property
    def lanes(self) -> int:
        """Queries of a block: the pitch of everything that has queries in its lanes."""
        return self.vectors * self.width

    @property
    def tile(self) -> Tile:
        return Tile(self.rows, self.vectors, self.width)

    def weight_element(self, name: str) -> Element | None:
        """Elements of an operand with a number for each weight, "mask" or "kept", None where there is none: in scratch they are bytes
        widened to i32, or numbers of the compute type."""
        if name == "mask" and self.mask == "add":
            return Element(self.compute, self.compute, self.compute, self.element.compute_bytes, self.element.compute_bytes)
        there = self.mask == "bool" if name == "mask" else name == "kept" and self.dropout
        return Element("bool", "i8", "i32", 1, 4) if there else None


def tile_rows(registers: int) -> int:
    """Rows of a register tile: heads have sizes that these divide."""
    return 8 if registers >= 32 else 4


def block_vectors(length: int, width: int) -> int:
    """Vectors of queries in a block: a last block of one vector makes poor use of the registers."""
    every = -(-length // width)
    one, two = at_most(every, 1), at_most(every, 2)
    if two - one + at_most(every, 4) - at_most(every, 3) == 1:  # 2 or 4, asked at once: each question makes a plan more
        return 2
    return 1 if one == 1 else VECTORS


def product(b: Builder, facts: Facts, form: str, store: str, vectors: int) -> str:
    """Text of `form_store_vectors(rows, steps, a, a_pitch, b, b_pitch, c, c_pitch, factor)`; rows are computed in whole
    tiles."""
    element, width, rows = facts.element, facts.width, facts.rows
    compute, size, type_ = element.compute, element.compute_bytes, vector(element.compute, facts.width)
    with b.for_(0, "%rows", rows) as i:
        if form == "rows":
            start = b.gep(compute, "%a", b.mul(i, "%a_pitch"))
            lines = [b.gep(compute, start, b.mul(r, "%a_pitch")) for r in range(rows)]
        else:
            start = b.gep(compute, "%a", i)

        def step(t: str) -> Iterator[Operands[str, str]]:
            right = b.gep(compute, "%b", b.mul(t, "%b_pitch"))
            values = [b.load(type_, b.gep(compute, right, v * width), size) for v in range(vectors)]
            column = "" if form == "rows" else b.gep(compute, start, b.mul(t, "%a_pitch"))
            places = (b.gep(compute, lines[r], t) if form == "rows" else b.gep(compute, column, r) for r in range(rows))
            yield (b.splat(compute, width, b.load(compute, at, size)) for at in places), values

        sums = contract(b, "%steps", [(type_, element.zero(width))] * (rows * vectors), add=partial(element.multiply_add, b, width), read=step)
        target = b.gep(compute, "%c", b.mul(i, "%c_pitch"))
        factors = []
        if store == "scale":
            factors = [b.load(type_, b.gep(compute, "%factor", v * width), size) for v in range(vectors)]
        for r in range(rows):
            line = b.gep(compute, target, b.mul(r, "%c_pitch"))
            for v in range(vectors):
                at, value = b.gep(compute, line, v * width), sums[r * vectors + v]
                if store == "add":
                    value = element.add(b, width, b.load(type_, at, size), value)
                elif store == "scale":
                    value = element.multiply_add(b, width, b.load(type_, at, size), factors[v], value)
                b.store(type_, value, at, size)
    return b.define(f"{form}_{store}_{vectors}", PRODUCT)


def copy_rows(b: Builder, facts: Facts, unit: bool, name: str) -> str:
    """Text of `name(source, row_stride, column_stride, rows, columns, target, pitch, all_rows)`: a matrix of the memory
    type into scratch, with zeros up to `pitch` and `all_rows`. `unit`: its columns lie next to each other."""
    element, width = facts.element, facts.width
    type_ = vector(element.compute, width)
    full = b.op(f"and i64 %columns, {-width}")
    with b.for_(0, "%rows") as i:
        source = b.gep(element.memory, "%source", b.mul(i, "%row_stride"))
        target = b.gep(element.compute, "%target", b.mul(i, "%pitch"))

        def put(j: str, value: str) -> None:
            b.store(type_, element.widen(b, width, value), b.gep(element.compute, target, j), element.compute_bytes)

        if unit:
            with b.for_(0, b.mul("%columns", element.memory_bytes), 64) as line:
                at = b.gep("i8", b.gep(element.memory, source, b.mul("%row_stride", FETCHED_ROWS)), line)
                b.prefetch(at, level=1)
            with b.for_(0, full, width) as j:
                at = b.gep(element.memory, source, j)
                put(j, b.load(vector(element.memory, width), at, element.memory_bytes))
            with b.for_(full, "%pitch", width) as j:
                at = b.gep(element.memory, source, j)
                put(j, b.masked_load(element.memory, width, at, b.tail_mask(b.sub("%columns", j), width), element.memory_bytes))
        else:
            with b.for_(0, "%columns") as j:
                at = b.gep(element.memory, source, b.mul(j, "%column_stride"))
                value = element.widen(b, 1, b.load(element.memory, at, element.memory_bytes))
                b.store(element.compute, value, b.gep(element.compute, target, j), element.compute_bytes)
            _clear(b, facts, b.gep(element.compute, target, "%columns"), b.sub("%pitch", "%columns"))
    rest = b.gep(element.compute, "%target", b.mul("%rows", "%pitch"))
    _clear(b, facts, rest, b.mul(b.sub("%all_rows", "%rows"), "%pitch"))
    return b.define(name, _COPY_ROWS)


def _clear(b: Builder, facts: Facts, at: str, count: str) -> None:
    """Zero `count` elements of the compute type."""
    size = b.mul(count, facts.element.compute_bytes)
    b.call("void", "llvm.memset.p0.i64", [("ptr", at), ("i8", "0"), ("i64", size), ("i1", "false")])


def store_rows(b: Builder, facts: Facts) -> str:
    """Text of `store_rows(source, pitch, rows, columns, target, row_stride, factor)`: a matrix in scratch, times a factor,
    to rows of the memory type."""
    element, width = facts.element, facts.width
    type_ = vector(element.compute, width)
    factor = b.splat(element.compute, width, "%factor")
    with b.for_(0, "%rows") as i:
        source = b.gep(element.compute, "%source", b.mul(i, "%pitch"))
        target = b.gep(element.memory, "%target", b.mul(i, "%row_stride"))
        with b.for_(0, "%columns", width) as j:
            mask = b.tail_mask(b.sub("%columns", j), width)
            value = b.load(type_, b.gep(element.compute, source, j), element.compute_bytes)
            value = element.narrow(b, width, b.op(f"fmul {type_} {value}, {factor}"))
            b.masked_store(element.memory, width, value, b.gep(element.memory, target, j), mask, element.memory_bytes)
    return b.define("store_rows", Parameters(f"source* pitch rows columns target* row_stride factor:{element.compute}"))
