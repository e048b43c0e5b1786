"""Attention by the matrix unit: the forward kernel (see attention_unit.py, and attention_forward.py for the algorithm).

    scores (keys x queries) = keys, left          queries, right, turned
    out^T (values x queries) = values, left, turned         weights, right

A unit of work is a group of up to GROUP blocks of 32 queries of one head. For each block of keys, whose operands are packed
once for the units that a thread does in a row, or once for each group where a head has too many: the blocks of queries.
"""

from __future__ import annotations

from flambeau.compiler.emit.code import Array, Operand
from flambeau.compiler.emit.lanes import Lanes
from flambeau.compiler.kernels.attention_forward import Forward
from flambeau.compiler.kernels.attention_unit import BLOCK, WIDTH, Unit
from flambeau.compiler.kernels.matmul_micro import store_part

_LINES = 4  # of weights at once: eight exponentials side by side


class UnitForward(Unit, Forward):
    """Writes the kernel."""

    def write(self) -> None:
        c, facts = self.c, self.facts
        self.define_ways("pack_q", "copy_q", "copy_k", "copy_v")
        self.define(lambda b: store_part(b, facts.element, facts.tile, "row"))
        self.set_up("left_noted", "left_turned_noted", "right_turned_noted")
        self.holds_all, self.resident = self.resident, c.value("i1", 0)  # steps of multiply-adds copy their keys
        if self.is_noted:
            self.define_products(("rows", "set"), ("steps", "scale"), ("steps", "add"))
        self.key_block = c.word("key_block")
        self.head_steps, self.value_steps = c.divide(self.head_pitch, BLOCK), c.divide(self.value_pitch, BLOCK)
        self.key_steps = c.divide(self.key_block, BLOCK)
        self.weight_panel, self.block_sums = self.bytes_of("weight_panel"), self.area("block_sums")
        self.bases = (self.result, self.maxima)
        begin, end, blocks = c.named("i64", "%begin"), c.named("i64", "%end"), c.word("blocks")
        with c.for_(c.divide(begin, blocks), c.divide(end + blocks - 1, blocks)) as head:
            self.head(head, begin, end)
        self.release()

    # -- keys ---------------------------------------------------------------------------------------------------------
    def head(self, head: Lanes, begin: Lanes, end: Lanes) -> None:
        """The groups [begin, end) that belong to this head."""
        c, facts, blocks = self.c, self.facts, self.c.word("blocks")
        first, after = c.max(begin - head * blocks, 0), c.min(blocks, end - head * blocks)
        arrays = self.addresses(head)
        needed = c.min(self.source, after * self.group_lanes) if facts.causal else self.source
        with c.if_(self.holds_all), c.for_(0, needed, self.key_block) as k0:
            self.fetch_keys(arrays, k0)
        self.look_ahead(head, {"q": self.length, "k": self.source, "v": self.source})
        with c.for_(first, after) as group:
            self.queries_group(head, arrays, group * self.group_lanes)

    def place(self, k0: Lanes) -> tuple[Lanes, Array, Array]:
        """Number of a block of keys among those that are held, its keys and its values."""
        index = self.holds_all.select(self.c.divide(k0, self.key_block), 0)
        steps = index * self.key_steps * self.step_bytes
        return index, self.bytes_of("key_panels").at(steps * self.head_steps), self.bytes_of("value_panels").at(steps * self.value_steps)

    def slots(self, index: Lanes) -> tuple[Array, Array]:
        """Extents of a block of keys and of its values."""
        return self.slot("extents", self.c.word("group") + index * 2), self.slot("extents", self.c.word("group") + index * 2 + 1)

    def fetch_keys(self, arrays: dict[str, Array], k0: Lanes) -> None:
        """Pack a whole block of keys and values."""
        c = self.c
        index, keys, values = self.place(k0)
        slots = self.slots(index)
        count = c.min(self.key_block, self.source - k0)
        for slot in slots:
            self.call("open_extent", slot)
        with c.for_(0, self.blocks_of(count)) as p:
            first = k0 + p * BLOCK
            rows = c.min(count - p * BLOCK, BLOCK)
            left = keys.at(p * self.head_steps * self.step_bytes)
            self.pack_block("k", arrays, first, rows, ("left_noted", left, self.step_bytes, slots[0]))
            left = values.at(p * self.step_bytes)
            self.pack_block("v", arrays, first, rows, ("left_turned_noted", left, self.key_steps * self.step_bytes, slots[1]))
        for slot in slots:
            self.call("close_extent", slot)

    # -- queries ------------------------------------------------------------------------------------------------------
    def take(self, i: Lanes) -> None:
        """Let the sums be those of block i of the group."""
        lanes = self.facts.lanes
        self.result, self.maxima = self.bases[0].at(i * lanes * self.value_pitch), self.bases[1].at(i * (3 * lanes))
        self.sums, self.factors = self.maxima.at(lanes), self.maxima.at(2 * lanes)

    def queries_group(self, head: Lanes, arrays: dict[str, Array], g0: Lanes) -> None:
        """Queries from g0 on."""
        c, facts = self.c, self.facts
        end = c.min(self.length, g0 + self.group_lanes)
        panel_bytes = self.head_steps * self.step_bytes

        def count_of(q0: Lanes) -> Lanes:
            return c.min(self.length - q0, BLOCK)

        with c.for_(g0, end, BLOCK) as q0:
            i = c.divide(q0 - g0, BLOCK)
            self.take(i)
            slot = self.slot("extents", i)
            self.call("open_extent", slot)
            right = self.bytes_of("query_panels").at(i * panel_bytes)
            self.pack_block("q", arrays, q0, count_of(q0), ("right_turned_noted", right, self.step_bytes, slot))
            self.call("close_extent", slot)
            self.open()
        with c.for_(0, c.min(self.source, end) if facts.causal else self.source, self.key_block) as k0:
            with c.if_(self.holds_all ^ True):
                self.fetch_keys(arrays, k0)
            with c.for_(c.max(g0, k0) if facts.causal else g0, end, BLOCK) as q0:
                count = count_of(q0)
                keys = c.min(self.key_block, self.limit(q0, count, self.source) - k0)
                self.step(head, arrays, (q0, count, c.divide(q0 - g0, BLOCK)), k0, keys)
        with c.for_(g0, end, BLOCK) as q0:
            self.take(c.divide(q0 - g0, BLOCK))
            self.finish(arrays, q0, count_of(q0))

    def step(self, head: Lanes, arrays: dict[str, Array], queries: tuple[Lanes, Lanes, Lanes], k0: Lanes, keys: Lanes) -> None:
        """Block i of the queries, `count` of them from q0 on, with keys [k0, k0 + keys)."""
        c = self.c
        q0, count, i = queries
        self.take(i)
        index, key_panels, value_panels = self.place(k0)

        def by_unit() -> None:
            self.by_unit(head, arrays, queries, k0, keys, key_panels, value_panels)

        if not self.is_noted:
            by_unit()
            return
        slots = self.slots(index)
        with c.if_(self.are_safe(slots[0], self.slot("extents", i)) & self.are_safe(slots[1])):
            by_unit()
        with c.else_():
            self.pack("q", self.row(arrays, "q", q0), count, self.head_size, self.queries)
            self.keys_block(head, arrays, (q0, count, self.used_vectors(count)), k0, keys)

    def by_unit(
        self, head: Lanes, arrays: dict[str, Array], queries: tuple[Lanes, Lanes, Lanes], k0: Lanes, keys: Lanes,
        key_panels: Array, value_panels: Array,
    ) -> None:  # fmt: skip
        c, lanes = self.c, self.facts.lanes
        q0, count, i = queries
        panel_bytes = self.head_steps * self.step_bytes
        query_panel = self.bytes_of("query_panels").at(i * panel_bytes)
        panels = self.blocks_of(keys)
        self.pack_masks(arrays, q0, k0, count, keys)
        with c.for_(0, panels) as p:
            sums = self.scores.at(p * (BLOCK * lanes))
            self.products(self.head_steps, key_panels.at(p * panel_bytes), query_panel, sums, keys - p * BLOCK, count)
        with c.for_(0, self.used_vectors(count)) as v:
            shift = self.maximum(v, q0, k0, panels * BLOCK, keys)
            self.add_total(v, self.weight_lines(v, panels, shift))
        with c.for_(0, self.value_steps) as p:
            left = value_panels.at(p * self.key_steps * self.step_bytes)
            rows = self.value_size - p * BLOCK
            self.products(panels, left, self.weight_panel, self.block_sums, rows, count)
            with c.for_(0, c.min(rows, BLOCK)) as d:
                for of_vector in range(0, self.facts.vectors * WIDTH, WIDTH):
                    at = d * lanes + of_vector
                    before, factor = self.result.load(at + p * (BLOCK * lanes), WIDTH), self.factors.load(of_vector, WIDTH)
                    self.result.store(at + p * (BLOCK * lanes), before.fma(factor, self.block_sums.load(at, WIDTH)))

    def weight_lines(self, v: Lanes, panels: Lanes, shift: Lanes) -> Lanes:
        """Scores of vector v to weights, right operands; their sums."""
        c, lanes = self.c, self.facts.lanes
        total = c.cell("float", 0.0, WIDTH)

        def weight(row: Operand) -> tuple[Lanes, Lanes]:
            """Before and after dropout."""
            found = self.weight(self.scores.load(c.i64(row) * lanes + v * WIDTH, WIDTH) - shift)
            return found, found * self.kept(c.i64(row), v) if self.facts.dropout else found

        with c.for_(0, panels) as p:
            tile = self.weight_panel.at(p * self.step_bytes)
            with c.for_(0, WIDTH, _LINES) as j:
                self.fetch_rows()
                found = []
                for line in range(_LINES):
                    row = p * BLOCK + j + line
                    pair = [weight(row), weight(row + WIDTH)]
                    found += [before for before, _ in pair]
                    first, second = (self.numbers.split(after.name) for _, after in pair)
                    self.line(first, second, tile.at(self.tile_line(v, j + line)))
                while len(found) > 1:
                    found = [a + b for a, b in zip(found[::2], found[1::2], strict=True)]
                total.set(total.get() + found[0])
        return total.get()
