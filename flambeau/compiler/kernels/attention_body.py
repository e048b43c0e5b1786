"""Attention: what the forward and the backward kernel share: words, addresses, products by number of vectors, masking.

Scores are kept transposed: a row for each key, a lane for each query. So a query's statistics are lanes of vectors, the
keys and values are read as they lie, and only the queries are transposed into scratch.

A block of queries has `facts.lanes` of them (fewer at the end: `used` vectors hold queries). For causal attention
vector v of a block takes part up to the key of its last query; `ranges` cuts a block of keys where vectors drop out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

from flambeau.compiler.emit.builder import Builder
from flambeau.compiler.emit.code import Array, Code, Operand
from flambeau.compiler.emit.lanes import Lanes
from flambeau.compiler.emit.math_exp import exp_split, scale
from flambeau.compiler.kernels.attention_tiles import PRODUCT, VECTORS, Facts, copy_rows, product
from flambeau.compiler.kernels.matmul_element import Element
from flambeau.compiler.kernels.matmul_pack import pack

PANELS = {"mask": "panel", "kept": "kept_panel"}  # operands with a number for each weight: where a block of them lies in scratch

LEAST_EXPONENT = {"float": -86.0, "double": -707.0}  # e^x is normal from here on


class Body:
    """The body of a kernel: `c` writes it, the methods are what both directions do."""

    stands_in: ClassVar[bool] = False  # multiply-adds only do what the matrix unit cannot: little code rather than speed

    def __init__(self, facts: Facts, operands: Sequence[str], c: Code) -> None:
        self.facts = facts
        self.operands = operands
        self.c = c
        worker = c.named("i64", "%worker") * c.word("scratch_bytes")
        self._scratch = c.array("scratch", "i8").after_bytes(worker)
        self.scale = self.number("scale")
        self.keep_scale = self.number("keep_scale")
        self.panels = {name: self.area(area) for name, area in PANELS.items() if facts.weight_element(name) is not None}
        self._iota = c.iota("i64", facts.width)

    # -- words ------------------------------------------------------------------------------------------------------
    def number(self, name: str) -> Lanes:
        """A word that holds the bits of a double, as a number of the compute type."""
        value = self.c.word(name).as_float()
        return value if self.facts.compute == "double" else value.to("float", "fptrunc")

    def area(self, name: str) -> Array:
        """A part of this worker's scratch."""
        return self._scratch.after_bytes(self.c.word(name), self.facts.compute)

    def addresses(self, head: Lanes) -> dict[str, Array]:
        """The operands of one head, a row-major number over the batch dims."""
        c, facts = self.c, self.facts
        offsets = {name: c.i64(0) for name in self.operands}
        rest = head
        for d in reversed(range(facts.batch_dims)):
            index = rest
            if d:
                index, rest = c.modulo(rest, c.word(f"size{d}")), c.divide(rest, c.word(f"size{d}"))
            offsets = {name: at + index * c.word(f"{name}_batch{d}") for name, at in offsets.items()}
        return {name: c.array(name, self.memory_of(name)).at(at) for name, at in offsets.items()}

    def memory_of(self, operand: str) -> str:
        """LLVM type of an operand's elements in memory."""
        of_weights = self.facts.weight_element(operand)
        if of_weights is not None:
            return of_weights.memory
        return self.facts.compute if operand in ("lse", "delta") else self.facts.element.memory

    def row(self, arrays: dict[str, Array], operand: str, index: Operand) -> Array:
        return arrays[operand].at(self.c.word(f"{operand}_row") * index)

    # -- functions of the module ------------------------------------------------------------------------------------
    def define(self, write: Callable[[Builder], str]) -> None:
        b = Builder(self.c.b.target)
        text = write(b)
        self.c.helper(text, b.declarations)

    @property
    def widest(self) -> int:
        """Vectors of a product's tile: where multiply-adds only stand in for the matrix unit, as few as a block has."""
        return self.facts.vectors if self.facts.parts else VECTORS

    def define_products(self, *kinds: tuple[str, str]) -> None:
        for form, store in kinds:
            for vectors in range(1, self.widest + 1):
                self.define(partial(product, facts=self.facts, form=form, store=store, vectors=vectors))

    def define_ways(self, *operands: str) -> None:
        """`pack_x` (transposed: queries in lanes) for q, g and the mask, `copy_x` for whatever is copied as it lies."""
        facts = self.facts
        for name, unit in zip(("q", "k", "v", "g"), facts.units, strict=False):
            if f"pack_{name}" in operands:
                self._define_pack(facts.element, unit, f"pack_{name}")
            if f"copy_{name}" in operands:
                self.define(partial(copy_rows, facts=facts, unit=unit == "k", name=f"copy_{name}"))
        for name, unit in (("mask", facts.mask_unit), ("kept", facts.kept_unit)):
            element = facts.weight_element(name)
            if element is not None:
                self._define_pack(element, unit, f"pack_{name}")

    def _define_pack(self, element: Element, unit: str, name: str) -> None:
        facts = self.facts
        self.define(partial(pack, element=element, width=facts.width, lanes=facts.lanes, unit=unit, name=name))

    def call(self, function: str, *arguments: Array | Lanes | int) -> None:
        typed = []
        for a in arguments:
            if isinstance(a, Array):
                typed.append(("ptr", a.pointer))
            else:
                value = self.c.i64(a) if isinstance(a, int) else a
                typed.append((value.type, value.name))
        self.c.b.call("void", function, typed, declare=False)

    def multiply(
        self, form: str, store: str, vectors: Lanes, most: int, rows: Operand, steps: Operand, a: tuple[Array, Operand],
        b: tuple[Array, Operand], out: tuple[Array, Operand], factor: Array | None = None,
    ) -> None:  # fmt: skip
        """One product with 1 to `most` vectors of columns; `a`, `b`, `out` are (address, pitch)."""
        c = self.c
        values = [c.i64(rows).name, c.i64(steps).name]
        for array, pitch in (a, b, out):
            values += [array.pointer, c.i64(pitch).name]
        values.append(factor.pointer if factor else "null")
        for count in range(1, most + 1):
            with c.if_(vectors.eq(count)):
                c.b.invoke(f"{form}_{store}_{count}", PRODUCT, *values)

    def pack(self, operand: str, source: Array, count: Lanes, steps: Operand, target: Array) -> None:
        """`count` rows of an operand, transposed: a panel of `facts.lanes`."""
        row, column = self.c.word(f"{operand}_row"), self.c.word(f"{operand}_column")
        self.call(f"pack_{operand}", source, row, column, count, self.c.i64(steps), target)

    def pack_masks(self, arrays: dict[str, Array], q0: Lanes, k0: Lanes, count: Lanes, keys: Lanes) -> None:
        """What there is for each weight of a block of queries and keys."""
        for name, panel in self.panels.items():
            self.pack(name, arrays[name].at(self.c.word(f"{name}_row") * q0 + self.c.word(f"{name}_column") * k0), count, keys, panel)

    def copy(
        self, operand: str, source: Array, rows: Operand, columns: Operand, target: Array, pitch: Operand, all_rows: Operand = 0
    ) -> None:  # fmt: skip
        """Rows of an operand into scratch, filled up to whole tiles, or to `all_rows`."""
        strides = (self.c.word(f"{operand}_row"), self.c.word(f"{operand}_column"))
        every = [self.c.i64(x) for x in (rows, columns, pitch)]
        self.call(f"copy_{operand}", source, *strides, every[0], every[1], target, every[2], all_rows or self.round_up(every[0]))

    # -- masking ----------------------------------------------------------------------------------------------------
    def round_up(self, count: Lanes) -> Lanes:
        """To whole tiles of rows (powers of two)."""
        rows = self.facts.rows
        return (count + (rows - 1)) & -rows

    def used_vectors(self, queries: Lanes) -> Lanes:
        return self.c.divide(queries + (self.facts.width - 1), self.facts.width)

    def limit(self, first_query: Lanes, queries: Lanes, end: Lanes) -> Lanes:
        """Keys before this one may be attended by a block of queries."""
        return self.c.min(end, first_query + queries) if self.facts.causal else end

    def ranges(self, first_query: Lanes, first_key: Lanes, padded: Lanes) -> list[Lanes]:
        """[0, r1, ..., padded]: rows from r[v] on, counted in the block of keys, concern vectors v and later ones only."""
        c, facts = self.c, self.facts
        if not facts.causal:
            return [c.i64(0), padded]
        inner = []
        for v in range(1, facts.vectors):
            inner.append(c.min(padded, self.round_up(c.max(first_query + v * facts.width - first_key, 0))))
        return [c.i64(0), *inner, padded]

    def rows_of_vector(self, v: Lanes, first_query: Lanes, first_key: Lanes, padded: Lanes) -> Lanes:
        """Rows of a block of keys that concern vector v: up to its last query."""
        if not self.facts.causal:
            return padded
        after = first_query + (v + 1) * self.facts.width - first_key
        return self.c.min(padded, self.round_up(self.c.max(after, 0)))

    def plain_rows(self, v: Lanes, first_query: Lanes, first_key: Lanes, rows: Lanes, keys: Lanes) -> Lanes:
        """How many of the first `rows` scores of vector v are masked for no query, in whole tiles; `keys` rows are keys."""
        c, facts = self.c, self.facts
        if facts.mask != "none":
            return c.i64(0)
        plain = c.min(rows, keys)
        if facts.causal:
            plain = c.max(c.min(plain, first_query + v * facts.width - first_key + 1), 0)
        return plain & -facts.rows

    def masked(self, score: Lanes, row: Lanes, v: Lanes, first_query: Lanes, first_key: Lanes, keys: Lanes) -> Lanes:
        """The scaled scores of a key with vector v of the queries; -inf where they may not attend."""
        c, facts = self.c, self.facts
        hidden = float("-inf")
        if facts.mask != "none":
            values = self._of_weights("mask", row, v)
            score = values.ne(0).select(score, hidden) if facts.mask == "bool" else score + values
        first = first_key + row - (first_query + v * facts.width) if facts.causal else c.i64(0)
        first = row.lt(keys).select(c.min(first, facts.width), facts.width)  # the first lane that may attend
        return self._iota.to("i32", "trunc").ge(c.splat(first.to("i32", "trunc"), facts.width)).select(score, hidden)

    def in_tiles(self, rows: Lanes, plain: Lanes, tile: int, group: Callable[[Lanes, bool], None]) -> None:
        """`group(row, masked)` for every tile of rows: first the plain ones."""
        if self.stands_in:
            plain = self.c.i64(0)
        elif self.facts.mask == "none":
            with self.c.for_(0, plain, tile) as i:
                group(i, False)
        with self.c.for_(plain, rows, tile) as row:
            group(row, True)

    # -- weights ----------------------------------------------------------------------------------------------------
    def weight(self, x: Lanes) -> Lanes:
        """e^x of x <= 0, or NaN; 0 where that is next to the smallest normal number. A product that underflows takes the
        processor some 150 cycles (measured), and masked scores would all do."""
        low = LEAST_EXPONENT[x.element]
        p, n = exp_split(x.like(low).maximum(x))
        return x.lt(low).select(0.0, scale(p, n))

    # -- dropout ----------------------------------------------------------------------------------------------------
    def kept(self, row: Lanes, v: Operand) -> Lanes:
        """1 / (1 - p) where the weights of a key and vector v stay, 0 where they are dropped."""
        return self._of_weights("kept", row, v).ne(0).select(self.c.splat(self.keep_scale, self.facts.width), 0.0)

    def _of_weights(self, name: str, row: Lanes, v: Operand) -> Lanes:
        """What a panel holds for a key and vector v."""
        facts, element = self.facts, self.facts.weight_element(name)
        assert element is not None
        lane = v * facts.width
        return self.panels[name].at(0, element.compute).load(row * facts.lanes + lane, facts.width)
