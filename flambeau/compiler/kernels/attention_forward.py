"""Attention: the forward kernel, with an online softmax over blocks of keys.

Dao, Fu, Ermon, Rudra and Re 2022, "FlashAttention", algorithm 1; Milakov and Gimelshein 2018 for the online softmax.

A unit is a block of queries of one head. For each block of keys: scores (keys x queries, scaled and masked), their maximum,
exponentials and sums by lanes of queries, then out^T = out^T * exp(old maximum - new) + v^T p. The keys and values of a
head are copied to scratch once for the units that a thread does in a row, or block by block where they are large.
Saved for the backward pass: the logarithm of the sum of exponentials, +inf for a query that may attend nothing (its weights
are then exp(score - inf) = 0).
"""

from __future__ import annotations

import math

from flambeau.compiler.emit.code import Array, Code
from flambeau.compiler.emit.lanes import Lanes
from flambeau.compiler.emit.math_log import log
from flambeau.compiler.kernels.attention_body import Body
from flambeau.compiler.kernels.attention_tiles import Facts
from flambeau.compiler.kernels.matmul_micro import store_part

OPERANDS = ("q", "k", "v", "out", "lse", "mask", "kept")


class Forward(Body):
    """Writes the kernel."""

    def __init__(self, facts: Facts, c: Code) -> None:
        super().__init__(facts, OPERANDS, c)
        self.keys, self.values, self.queries = (self.area(n) for n in ("keys", "values", "queries"))
        self.scores, self.result = self.area("scores"), self.area("result")
        self.maxima = self.area("statistics")
        self.sums, self.factors = self.maxima.at(facts.lanes), self.maxima.at(2 * facts.lanes)
        self.resident = c.word("resident").ne(0)
        self.length, self.source, self.head_size = c.word("length"), c.word("source"), c.word("head")
        self.value_size, self.head_pitch, self.value_pitch = c.word("value"), c.word("head_pitch"), c.word("value_pitch")

    def write(self) -> None:
        c, facts = self.c, self.facts
        self.define_products(("rows", "set"), ("steps", "scale"), ("steps", "add"))
        self.define_ways("pack_q", "copy_k", "copy_v")
        self.define(lambda b: store_part(b, facts.element, facts.tile, "row"))
        begin, end, blocks = c.named("i64", "%begin"), c.named("i64", "%end"), c.word("blocks")
        with c.for_(c.divide(begin, blocks), c.divide(end + blocks - 1, blocks)) as head:
            self.head(head, begin, end)

    def head(self, head: Lanes, begin: Lanes, end: Lanes) -> None:
        """The blocks of queries [begin, end) that belong to this head."""
        c, facts, blocks = self.c, self.facts, self.c.word("blocks")
        first, after = c.max(begin - head * blocks, 0), c.min(blocks, end - head * blocks)
        arrays = self.addresses(head)
        needed = c.min(self.source, after * facts.lanes) if facts.causal else self.source
        with c.if_(self.resident):
            self.copy("k", arrays["k"], needed, self.head_size, self.keys, self.head_pitch)
            self.copy("v", arrays["v"], needed, self.value_size, self.values, self.value_pitch)
        with c.for_(first, after) as block:
            self.queries_block(head, arrays, block * facts.lanes)

    def queries_block(self, head: Lanes, arrays: dict[str, Array], q0: Lanes) -> None:
        c, facts = self.c, self.facts
        count = c.min(self.length - q0, facts.lanes)
        used = self.used_vectors(count)
        self.pack("q", self.row(arrays, "q", q0), count, self.head_size, self.queries)
        self.open()
        limit = self.limit(q0, count, self.source)
        with c.for_(0, limit, c.word("key_block")) as k0:
            self.keys_block(head, arrays, (q0, count, used), k0, c.min(c.word("key_block"), limit - k0))
        self.finish(arrays, q0, count)

    def open(self) -> None:
        """Nothing summed up yet."""
        c, facts = self.c, self.facts
        c.clear_bytes(self.result, self.value_pitch * (facts.lanes * facts.element.compute_bytes))
        for v in range(facts.vectors):
            self.maxima.store(v * facts.width, c.value(facts.compute, -math.inf, facts.width))
            self.sums.store(v * facts.width, c.value(facts.compute, 0.0, facts.width))

    def finish(self, arrays: dict[str, Array], q0: Lanes, count: Lanes) -> None:
        """Divide a block's results by the sums of its weights and store them."""
        c, facts = self.c, self.facts
        with c.for_(0, self.used_vectors(count)) as i:
            self.close(arrays, i, q0, count)
        with c.for_(0, self.value_size) as d:
            for v in range(facts.vectors):
                at = d * facts.lanes + v * facts.width
                value = self.result.load(at, facts.width) * self.factors.load(v * facts.width, facts.width)
                self.result.store(at, value)
        self.call(
            "store_part", self.result, facts.lanes, self.row(arrays, "out", q0), c.i64(1), c.word("out_row"),
            c.named("i1", "false"), self.value_size, count,
        )  # fmt: skip

    def keys_block(self, head: Lanes, arrays: dict[str, Array], queries: tuple[Lanes, Lanes, Lanes], k0: Lanes, keys: Lanes) -> None:
        """One step of the online softmax: keys [k0, k0 + keys)."""
        c, facts = self.c, self.facts
        q0, count, used = queries
        padded = self.round_up(keys)
        with c.if_(self.resident ^ True):
            self.copy("k", self.row(arrays, "k", k0), keys, self.head_size, self.keys, self.head_pitch)
            self.copy("v", self.row(arrays, "v", k0), keys, self.value_size, self.values, self.value_pitch)
        first_row = self.resident.select(k0, 0)
        key_rows = self.keys.at(first_row * self.head_pitch)
        value_rows = self.values.at(first_row * self.value_pitch)
        self.pack_masks(arrays, q0, k0, count, keys)
        cuts = self.ranges(q0, k0, padded)
        lanes = facts.lanes
        for v, (low, high) in enumerate(zip(cuts, cuts[1:], strict=False)):
            self.multiply(
                "rows", "set", used - v, facts.vectors - v, high - low, self.head_size, (key_rows.at(low * self.head_pitch), self.head_pitch),
                (self.queries.at(v * facts.width), lanes), (self.scores.at(low * lanes + v * facts.width), lanes),
            )  # fmt: skip
        with c.for_(0, used) as i:
            self.softmax(i, q0, k0, padded, keys)
        for v, (low, high) in enumerate(zip(cuts, cuts[1:], strict=False)):
            low, high = c.min(low, keys), c.min(high, keys)
            store, at = ("add", v * facts.width) if v else ("scale", 0)

            def add(v: int = v, low: Lanes = low, high: Lanes = high, store: str = store, at: int = at) -> None:
                self.multiply(
                    "steps", store, used - v, facts.vectors - v, self.value_size, high - low,
                    (value_rows.at(low * self.value_pitch), self.value_pitch), (self.scores.at(low * lanes + at), lanes),
                    (self.result.at(at), lanes), self.factors,
                )  # fmt: skip

            if v:
                with c.if_(low.lt(high)):
                    add()
            else:  # also without a key: the sums of earlier blocks must be scaled
                add()

    def softmax(self, v: Lanes, q0: Lanes, k0: Lanes, padded: Lanes, keys: Lanes) -> None:
        """Scores of vector v to exponentials; its maximum, sum and the factor of what was summed before."""
        rows = self.rows_of_vector(v, q0, k0, padded)
        shift = self.maximum(v, q0, k0, rows, keys)
        self.add_total(v, self.weights(v, rows, shift))

    def maximum(self, v: Lanes, q0: Lanes, k0: Lanes, rows: Lanes, keys: Lanes) -> Lanes:
        """Scale and mask the scores of vector v; what is subtracted from them before the exponential, which is also noted."""
        c, facts = self.c, self.facts
        width, tile = facts.width, facts.rows
        lane = v * width
        scale = c.splat(self.scale, width)
        highest = c.cell(facts.compute, -math.inf, width)

        def scaled(row: Lanes, edge: bool) -> None:
            found = []
            for r in range(tile):
                at = (row + r) * facts.lanes + lane
                score = self.scores.load(at, width) * scale
                if edge:
                    score = self.masked(score, row + r, v, q0, k0, keys)
                self.scores.store(at, score)
                found.append(score)
            while len(found) > 1:
                found = [a.maximum(b) for a, b in zip(found[::2], found[1::2], strict=True)]
            highest.set(highest.get().maximum(found[0]))

        self.in_tiles(rows, self.plain_rows(v, q0, k0, rows, keys), tile, scaled)
        before = self.maxima.load(lane, width)
        now = highest.get().maximum(before)
        shift = now.eq(-math.inf).select(0.0, now)  # nothing to attend so far
        self.maxima.store(lane, now)
        self.factors.store(lane, self.weight(before - shift))
        return shift

    def add_total(self, v: Lanes, total: Lanes) -> None:
        """Add a block's sums of weights to those of vector v."""
        lane, width = v * self.facts.width, self.facts.width
        self.sums.store(lane, self.sums.load(lane, width).fma(self.factors.load(lane, width), total))

    def weights(self, v: Lanes, rows: Lanes, shift: Lanes) -> Lanes:
        """Scores of vector v to exponentials, in place; their sums."""
        c, facts = self.c, self.facts
        width, tile, lane = facts.width, facts.rows, v * facts.width
        total = c.cell(facts.compute, 0.0, width)
        with c.for_(0, rows, tile) as row:
            found = []
            for r in range(tile):
                at = (row + r) * facts.lanes + lane
                weight = self.weight(self.scores.load(at, width) - shift)
                found.append(weight)
                if facts.dropout:
                    weight = weight * self.kept(row + r, v)
                self.scores.store(at, weight)
            while len(found) > 1:
                found = [a + b for a, b in zip(found[::2], found[1::2], strict=True)]
            total.set(total.get() + found[0])
        return total.get()

    def close(self, arrays: dict[str, Array], v: Lanes, q0: Lanes, count: Lanes) -> None:
        """The factor 1 / sum of vector v, and what the backward pass needs of it."""
        c, width = self.c, self.facts.width
        lane = v * width
        total = self.sums.load(lane, width)
        nothing = total.eq(0.0)
        self.factors.store(lane, nothing.select(0.0, 1.0 / total))
        saved = nothing.select(math.inf, self.maxima.load(lane, width) + log(total))
        arrays["lse"].store(q0 + lane, saved, c.tail_mask(count - lane, width))
