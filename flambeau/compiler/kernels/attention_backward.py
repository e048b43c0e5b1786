"""Attention: the backward kernel, which computes the weights again from the saved logarithms.

Dao, Fu, Ermon, Rudra and Re 2022, "FlashAttention", algorithm 4. With weights p = exp(score - lse), kept ones only under
dropout, and delta = sum over the value dim of gradient * output:

    dv = p^T g;    slope = p * (g v^T - delta);    dq = slope k * scale;    dk = slope^T q * scale

A unit is one head, or a part of its keys: one thread adds up all of its dk and dv, so that there are no atomics and the
order of additions never depends on the threads. In scratch: the keys and values of the part, and their gradients; of a
block of queries, queries and gradients both as they lie and transposed; weights and slopes (keys x queries).
"""

from __future__ import annotations

from typing import ClassVar

from flambeau.compiler.emit.code import Array, Code
from flambeau.compiler.emit.lanes import Lanes
from flambeau.compiler.kernels.attention_body import Body
from flambeau.compiler.kernels.attention_tiles import Facts, store_rows
from flambeau.compiler.kernels.matmul_micro import store_part

OPERANDS = ("q", "k", "v", "g", "lse", "delta", "mask", "kept", "dq", "dk", "dv")
AREAS = "keys values key_sums value_sums queries query_rows gradients gradient_rows weights slopes query_sums".split()
SUM_ELEMENTS = 1024  # a unit of `sum_parts`


class Backward(Body):
    """Writes the kernel."""

    holds_all: ClassVar[bool] = True  # keys and values of the part are in scratch, and not only those of a block

    def __init__(self, facts: Facts, c: Code) -> None:
        super().__init__(facts, OPERANDS, c)
        self.areas = {name: self.area(name) for name in AREAS}
        self.length, self.source, self.head_size = c.word("length"), c.word("source"), c.word("head")
        self.value_size, self.head_pitch, self.value_pitch = c.word("value"), c.word("head_pitch"), c.word("value_pitch")

    def write(self) -> None:
        c, facts = self.c, self.facts
        self.define_products(("rows", "set"), ("rows", "add"), ("steps", "add"))
        self.define_ways("pack_q", "pack_g", "copy_q", "copy_k", "copy_v", "copy_g")
        self.define(lambda b: store_part(b, facts.element, facts.tile, "row"))
        self.define(lambda b: store_rows(b, facts))
        with c.for_(c.named("i64", "%begin"), c.named("i64", "%end")) as i:
            self.part(i)

    def part(self, unit: Lanes) -> None:
        """All queries of a head with a part of its keys."""
        c, a = self.c, self.areas
        head, number = c.divide(unit, c.word("parts")), c.modulo(unit, c.word("parts"))
        arrays = self.addresses(head)
        start = number * c.word("part_keys")
        end = c.min(self.source, start + c.word("part_keys"))
        count, size = end - start, self.facts.element.compute_bytes
        self.copy("k", self.row(arrays, "k", start), count, self.head_size, a["keys"], self.head_pitch)
        self.copy("v", self.row(arrays, "v", start), count, self.value_size, a["values"], self.value_pitch)
        c.clear_bytes(a["key_sums"], self.round_up(count) * self.head_pitch * size)
        c.clear_bytes(a["value_sums"], self.round_up(count) * self.value_pitch * size)
        target = arrays["dq"].at(number * c.word("dq_part"))
        with c.for_(0, c.word("blocks")) as block:
            self.queries_block(head, arrays, target, block * self.facts.lanes, start, end)
        self.store_keys(arrays, start, count)

    def store_keys(self, arrays: dict[str, Array], start: Lanes, count: Lanes) -> None:
        """The gradients of `count` keys and values from `start` on."""
        c, a = self.c, self.areas
        one = c.value(self.facts.compute, 1.0)
        for name, sums, columns, pitch, factor in (
            ("dk", "key_sums", self.head_size, self.head_pitch, self.scale),
            ("dv", "value_sums", self.value_size, self.value_pitch, one),
        ):
            rows = self.row(arrays, name, start)
            self.call("store_rows", a[sums], pitch, count, columns, rows, c.word(f"{name}_row"), factor)

    def queries_block(self, head: Lanes, arrays: dict[str, Array], target: Array, q0: Lanes, start: Lanes, end: Lanes) -> None:
        """Queries from q0 on with keys [start, end)."""
        c, facts, a = self.c, self.facts, self.areas
        count = c.min(self.length - q0, facts.lanes)
        used = self.used_vectors(count)
        limit = self.limit(q0, count, end)

        with c.if_(start.lt(limit)):
            self.fetch_queries(arrays, q0, count)
        c.clear_bytes(a["query_sums"], self.head_pitch * (facts.lanes * facts.element.compute_bytes))
        key_block = c.word("key_block")
        with c.for_(start, limit, key_block) as k0:
            self.keys_block(head, arrays, (q0, count, used), start, k0, c.min(key_block, limit - k0))
        self.store_queries(target, q0, count)

    def fetch_queries(self, arrays: dict[str, Array], q0: Lanes, count: Lanes) -> None:
        """Queries and gradients to scratch, as they lie and transposed."""
        a = self.areas
        queries, gradients = self.row(arrays, "q", q0), self.row(arrays, "g", q0)
        self.pack("q", queries, count, self.head_size, a["queries"])
        self.pack("g", gradients, count, self.value_size, a["gradients"])
        self.copy("q", queries, count, self.head_size, a["query_rows"], self.head_pitch)
        self.copy("g", gradients, count, self.value_size, a["gradient_rows"], self.value_pitch)

    def store_queries(self, target: Array, q0: Lanes, count: Lanes) -> None:
        """The gradients of a block of queries."""
        c, facts, a = self.c, self.facts, self.areas
        scale = c.splat(self.scale, facts.width)
        with c.for_(0, self.head_size) as d:
            for v in range(facts.vectors):
                at = d * facts.lanes + v * facts.width
                a["query_sums"].store(at, a["query_sums"].load(at, facts.width) * scale)
        row = c.word("dq_row")
        self.call(
            "store_part", a["query_sums"], facts.lanes, target.at(row * q0), c.i64(1), row, c.named("i1", "false"),
            self.head_size, count,
        )  # fmt: skip

    def keys_block(
        self, head: Lanes, arrays: dict[str, Array], queries: tuple[Lanes, Lanes, Lanes], start: Lanes, k0: Lanes,
        keys: Lanes,
    ) -> None:  # fmt: skip
        """A block of queries with keys [k0, k0 + keys)."""
        c, facts, a = self.c, self.facts, self.areas
        q0, count, used = queries
        lanes, width = facts.lanes, facts.width
        padded = self.round_up(keys)
        head_pitch, value_pitch = self.head_pitch, self.value_pitch
        self.pack_masks(arrays, q0, k0, count, keys)
        cuts = self.ranges(q0, k0, padded)
        pieces = list(enumerate(zip(cuts, cuts[1:], strict=False)))
        first = k0 - start
        held = first if self.holds_all else 0
        key_rows, value_rows = a["keys"].at(held * head_pitch), a["values"].at(held * value_pitch)
        for v, (low, high) in pieces:
            for rows, pitch, steps, columns, out in (
                (key_rows, head_pitch, self.head_size, a["queries"], a["weights"]),
                (value_rows, value_pitch, self.value_size, a["gradients"], a["slopes"]),
            ):
                self.multiply(
                    "rows", "set", used - v, facts.vectors - v, high - low, steps, (rows.at(low * pitch), pitch),
                    (columns.at(v * width), lanes), (out.at(low * lanes + v * width), lanes),
                )  # fmt: skip
        with c.for_(0, used) as i:
            self.slopes(arrays, i, q0, count, k0, padded, keys)
        for v, (low, high) in pieces:
            # Queries before vector v may not attend these keys.
            for left, right, pitch, sums in (
                (a["weights"], a["gradient_rows"], value_pitch, a["value_sums"]),
                (a["slopes"], a["query_rows"], head_pitch, a["key_sums"]),
            ):
                self.add_rows(
                    high - low, count - v * width, left.at(low * lanes + v * width), right.at(pitch * (v * width)),
                    sums.at((first + low) * pitch), pitch,
                )  # fmt: skip
            after = c.min(high, keys)
            self.multiply(
                "steps", "add", used - v, facts.vectors - v, self.head_size, after - c.min(low, keys),
                (key_rows.at(low * head_pitch), head_pitch), (a["slopes"].at(low * lanes + v * width), lanes),
                (a["query_sums"].at(v * width), lanes),
            )  # fmt: skip

    def add_rows(self, rows: Lanes, steps: Lanes, left: Array, right: Array, out: Array, pitch: Lanes) -> None:
        """out += left @ right, whose columns are cut into tiles of 3 and 2 vectors (4 are two tiles of 2)."""
        c, width = self.c, self.facts.width
        vectors = c.divide(pitch, width)
        rest = c.modulo(vectors, 3)
        threes = c.divide(vectors, 3) - (rest.eq(1) & vectors.gt(1)).select(c.i64(1), 0)
        threes = threes * 3 if self.widest == 3 else c.i64(0)

        def columns(v: Lanes, count: int) -> None:
            at = v * width
            self.multiply(
                "rows", "add", c.i64(count), count, rows, steps, (left, self.facts.lanes), (right.at(at), pitch),
                (out.at(at), pitch),
            )  # fmt: skip

        with c.if_(rows.gt(0) & steps.gt(0)):
            if self.widest == 3:
                with c.for_(0, threes, 3) as i:
                    columns(i, 3)
            even = threes + c.divide(vectors - threes, 2) * 2
            with c.for_(threes, even, 2) as v:
                columns(v, 2)
            with c.for_(even, vectors) as v:
                columns(v, 1)

    def slopes(self, arrays: dict[str, Array], v: Lanes, q0: Lanes, count: Lanes, k0: Lanes, padded: Lanes, keys: Lanes) -> None:
        """Scores and products g v^T of vector v to weights and slopes."""
        c, facts, a = self.c, self.facts, self.areas
        width, tile = facts.width, facts.rows // 2
        rows = self.rows_of_vector(v, q0, k0, padded)
        lane = v * width
        mask = c.tail_mask(count - lane, width)
        lse, delta = (arrays[name].load(q0 + lane, width, mask) for name in ("lse", "delta"))
        scale = c.splat(self.scale, width)

        def group(row: Lanes, edge: bool) -> None:
            for r in range(tile):
                at = (row + r) * facts.lanes + lane
                score = a["weights"].load(at, width) * scale
                if edge:
                    score = self.masked(score, row + r, v, q0, k0, keys)
                weight, product = self.weight(score - lse), a["slopes"].load(at, width)
                kept = weight
                if facts.dropout:
                    factor = self.kept(row + r, v)
                    kept, product = weight * factor, product * factor
                a["weights"].store(at, kept)
                a["slopes"].store(at, weight * (product - delta))

        self.in_tiles(rows, self.plain_rows(v, q0, k0, rows, keys), tile, group)


def sum_parts(facts: Facts, c: Code) -> None:
    """Add `parts` arrays of `count` elements, which follow each other, in their order."""
    element, width = facts.element, facts.width
    source, to = c.array("source", element.memory), c.array("target", element.memory)

    def each(at: Lanes, lanes: int, mask: str | None) -> None:
        total = c.cell(element.compute, 0.0, lanes)
        with c.for_(0, c.word("parts")) as part:
            loaded = source.load(at + part * c.word("count"), lanes, mask)
            total.set(total.get() + Lanes(c.b, element.compute, lanes, element.widen(c.b, lanes, loaded.name)))
        narrow = element.narrow(c.b, lanes, total.get().name)
        to.store(at, Lanes(c.b, element.memory, lanes, narrow), mask)

    end = c.min(c.named("i64", "%end") * SUM_ELEMENTS, c.word("count"))
    c.blocks(c.named("i64", "%begin") * SUM_ELEMENTS, end, width, each)
