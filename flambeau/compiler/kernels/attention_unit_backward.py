"""Attention by the matrix unit: the backward kernel (see attention_unit.py, and attention_backward.py for the algorithm).

    scores (keys x queries) = keys, left                         queries, right, turned
    products (keys x queries) = values, left                     gradients, right, turned
    dv (keys x values) = weights, left (k: queries)              gradients, right
    dk (keys x head) = slopes, left (k: queries)                 queries, right
    dq^T (head x queries) = keys, left, turned                   slopes, right (k: keys)

A unit of work is a head, or a part of its keys, as with multiply-adds. For each group of up to GROUP blocks of 32 queries
and each block of keys: scores to slopes for the blocks of queries one after the other, then dv and dk of all of them, so
that a sum of dv or dk is read and written once for 128 queries.
"""

from __future__ import annotations

from typing import ClassVar

from flambeau.compiler.emit.code import Array, Operand
from flambeau.compiler.emit.lanes import Lanes
from flambeau.compiler.kernels.attention_backward import Backward
from flambeau.compiler.kernels.attention_tiles import store_rows
from flambeau.compiler.kernels.attention_unit import BLOCK, WIDTH, Unit, add_sums
from flambeau.compiler.kernels.matmul_micro import store_part

_TILES = ("key_panels key_turned value_panels query_panels query_steps gradient_panels gradient_steps weight_steps slope_steps slope_panel extents").split()
_LINES = 2  # of each tile at once: eight weights side by side


class UnitBackward(Unit, Backward):
    """Writes the kernel."""

    holds_all: ClassVar[bool] = False
    stands_in: ClassVar[bool] = True

    def write(self) -> None:
        c, facts = self.c, self.facts
        self.define_ways("copy_q", "copy_k", "copy_v", "copy_g", *(("pack_q", "pack_g") if self.is_noted else ()))
        self.define(lambda b: store_part(b, facts.element, facts.tile, "row"))
        self.define(lambda b: store_rows(b, facts))
        self.define(add_sums)
        self.set_up("left_noted", "left_turned", "right_noted", "right_turned")
        if self.is_noted:
            self.define_products(("rows", "set"), ("rows", "add"), ("steps", "add"))
        self.key_block, self.group = c.word("key_block"), c.word("group")
        self.head_steps, self.value_steps = c.divide(self.head_pitch, BLOCK), c.divide(self.value_pitch, BLOCK)
        self.key_steps = c.divide(self.key_block, BLOCK)
        self.tile_areas = {name: self.bytes_of(name) for name in _TILES}
        self.block_sums, self.query_sums = self.area("block_sums"), self.areas["query_sums"]
        with c.for_(c.named("i64", "%begin"), c.named("i64", "%end")) as i:
            self.part(i)
        self.release()

    def steps_at(self, name: str, number: Operand) -> Array:
        """Step `number` of an area of tiles."""
        return self.tile_areas[name].at(self.c.i64(number) * self.step_bytes)

    # -- keys ---------------------------------------------------------------------------------------------------------
    def part(self, unit: Lanes) -> None:
        """All queries of a head with a part of its keys."""
        c, a = self.c, self.areas
        head, number = c.divide(unit, c.word("parts")), c.modulo(unit, c.word("parts"))
        arrays = self.addresses(head)
        start = number * c.word("part_keys")
        end = c.min(self.source, start + c.word("part_keys"))
        rows = self.blocks_of(end - start) * BLOCK
        with c.for_(start, end, self.key_block) as k0:
            self.fetch_keys(arrays, start, k0, end)
        self.look_ahead(head, {"q": self.length, "k": self.source, "v": self.source, "g": self.length})
        c.clear_bytes(a["key_sums"], rows * self.head_pitch * 4)
        c.clear_bytes(a["value_sums"], rows * self.value_pitch * 4)
        target = arrays["dq"].at(number * c.word("dq_part"))
        with c.for_(0, self.length, self.group_lanes) as g0:
            self.queries_group(head, arrays, target, g0, start, end)
        self.store_keys(arrays, start, end - start)

    def key_slots(self, index: Lanes) -> tuple[Array, Array]:
        """Extents of a block of keys and of its values."""
        return self.slot("extents", self.group * 2 + index * 2), self.slot("extents", self.group * 2 + index * 2 + 1)

    def fetch_keys(self, arrays: dict[str, Array], start: Lanes, k0: Lanes, end: Lanes) -> None:
        """Pack a block of keys and values."""
        c = self.c
        index = c.divide(k0 - start, self.key_block)
        slots = self.key_slots(index)
        count = c.min(self.key_block, end - k0)
        for slot in slots:
            self.call("open_extent", slot)
        with c.for_(0, self.blocks_of(count)) as p:
            number = index * self.key_steps + p
            first, rows = k0 + p * BLOCK, c.min(count - p * BLOCK, BLOCK)
            turned = self.steps_at("key_turned", index * self.key_steps * self.head_steps + p)
            self.pack_block(
                "k", arrays, first, rows,
                ("left_noted", self.steps_at("key_panels", number * self.head_steps), self.step_bytes, slots[0]),
                ("left_turned", turned, self.key_steps * self.step_bytes, slots[0]),
            )  # fmt: skip
            values = self.steps_at("value_panels", number * self.value_steps)
            self.pack_block("v", arrays, first, rows, ("left_noted", values, self.step_bytes, slots[1]))
        for slot in slots:
            self.call("close_extent", slot)

    # -- queries ------------------------------------------------------------------------------------------------------
    def take(self, i: Lanes) -> None:
        """Let the sums of dq be those of block i of the group."""
        self.areas["query_sums"] = self.query_sums.at(i * self.facts.lanes * self.head_pitch)

    def queries_group(self, head: Lanes, arrays: dict[str, Array], target: Array, g0: Lanes, start: Lanes, part_end: Lanes) -> None:
        """Queries from g0 on with keys [start, part_end)."""
        c, facts = self.c, self.facts
        end = c.min(self.length, g0 + self.group_lanes)
        limit = c.min(part_end, end) if facts.causal else part_end

        def count_of(q0: Lanes) -> Lanes:
            return c.min(self.length - q0, BLOCK)

        with c.if_(start.lt(limit)), c.for_(g0, end, BLOCK) as q0:
            i = c.divide(q0 - g0, BLOCK)
            for name, other, steps, at in (("q", "query", self.head_steps, i), ("g", "gradient", self.value_steps, self.group + i)):
                slot = self.slot("extents", at)
                self.call("open_extent", slot)
                turned, rows = self.steps_at(f"{other}_panels", i * steps), self.steps_at(f"{other}_steps", i)
                self.pack_block(
                    name, arrays, q0, count_of(q0), ("right_turned", turned, self.step_bytes, slot),
                    ("right_noted", rows, self.group * self.step_bytes, slot),
                )  # fmt: skip
                self.call("close_extent", slot)
        c.clear_bytes(self.query_sums, self.group_lanes * self.head_pitch * 4)
        with c.for_(start, limit, self.key_block) as k0:
            with c.for_(c.max(g0, k0) if facts.causal else g0, end, BLOCK) as q0:
                count = count_of(q0)
                keys = c.min(self.key_block, self.limit(q0, count, part_end) - k0)
                self.step(head, arrays, (q0, count, c.divide(q0 - g0, BLOCK)), start, k0, keys)
            blocks = self.blocks_of(end - g0)
            with c.for_(0, self.blocks_of(c.min(self.key_block, limit - k0))) as p:
                self.add_keys(g0, blocks, k0 - start, k0, p)
        with c.for_(g0, end, BLOCK) as q0:
            self.take(c.divide(q0 - g0, BLOCK))
            self.store_queries(target, q0, count_of(q0))

    def add_keys(self, g0: Lanes, blocks: Lanes, first: Lanes, k0: Lanes, p: Lanes) -> None:
        """Add what the group's queries give to panel p of a block of keys, `first` of the part."""
        c = self.c
        # Blocks of queries before the panel's keys may not attend them.
        before = c.divide(c.max(k0 + p * BLOCK - g0, 0), BLOCK) if self.facts.causal else c.i64(0)
        for left, right, steps, pitch, sums in (
            ("weight_steps", "gradient_steps", self.value_steps, self.value_pitch, self.areas["value_sums"]),
            ("slope_steps", "query_steps", self.head_steps, self.head_pitch, self.areas["key_sums"]),
        ):
            rows = sums.at((first + p * BLOCK) * pitch)
            tiles = self.steps_at(left, p * self.group + before)

            def columns(
                d: Lanes, tiles: Array = tiles, right: str = right, rows: Array = rows, pitch: Lanes = pitch
            ) -> None:  # fmt: skip
                self.products(blocks - before, tiles, self.steps_at(right, d * self.group + before), self.block_sums, BLOCK, BLOCK)
                self.call("add_sums", self.block_sums, rows.at(d * BLOCK), pitch)

            with c.for_(0, steps) as i:
                columns(i)

    def step(
        self, head: Lanes, arrays: dict[str, Array], queries: tuple[Lanes, Lanes, Lanes], start: Lanes, k0: Lanes, keys: Lanes
    ) -> None:  # fmt: skip
        """Block i of the queries, `count` of them from q0 on, with keys [k0, k0 + keys)."""
        c = self.c
        q0, count, i = queries
        self.take(i)
        index = c.divide(k0 - start, self.key_block)

        def by_unit() -> None:
            self.by_unit(head, arrays, queries, index, k0, keys)

        if not self.is_noted:
            by_unit()
            return
        key_slot, value_slot = self.key_slots(index)
        query_slot, gradient_slot = self.slot("extents", i), self.slot("extents", self.group + i)
        safe = self.are_safe(key_slot, query_slot) & self.are_safe(value_slot, gradient_slot) & self.are_safe(gradient_slot)
        with c.if_(safe & self.are_slopes_safe(gradient_slot, value_slot, (key_slot, query_slot))):
            by_unit()
        with c.else_():
            self.plain(head, arrays, queries, start, k0, keys)

    def plain(
        self, head: Lanes, arrays: dict[str, Array], queries: tuple[Lanes, Lanes, Lanes], start: Lanes, k0: Lanes, keys: Lanes
    ) -> None:  # fmt: skip
        """The step by multiply-adds; the unit is given zeros."""
        c, a = self.c, self.areas
        q0, count, i = queries
        self.fetch_queries(arrays, q0, count)
        self.copy("k", self.row(arrays, "k", k0), keys, self.head_size, a["keys"], self.head_pitch)
        self.copy("v", self.row(arrays, "v", k0), keys, self.value_size, a["values"], self.value_pitch)
        self.keys_block(head, arrays, (q0, count, self.used_vectors(count)), start, k0, keys)
        with c.for_(0, self.blocks_of(keys)) as p:
            for name in ("weight_steps", "slope_steps"):
                c.clear_bytes(self.steps_at(name, p * self.group + i), self.step_bytes)

    def by_unit(
        self, head: Lanes, arrays: dict[str, Array], queries: tuple[Lanes, Lanes, Lanes], index: Lanes, k0: Lanes, keys: Lanes
    ) -> None:  # fmt: skip
        c, a, lanes = self.c, self.areas, self.facts.lanes
        q0, count, i = queries
        panels = self.blocks_of(keys)
        self.pack_masks(arrays, q0, k0, count, keys)
        # All of a block is computed, also where there are no queries or keys: the unit reads it.
        for of_keys, of_queries, steps, out in (
            ("key_panels", "query_panels", self.head_steps, a["weights"]), ("value_panels", "gradient_panels", self.value_steps, a["slopes"])
        ):  # fmt: skip
            with c.for_(0, panels) as p:
                number = index * self.key_steps + p
                operands = self.steps_at(of_keys, number * steps), self.steps_at(of_queries, i * steps)
                self.products(steps, *operands, out.at(p * (BLOCK * lanes)), BLOCK, BLOCK)
        self.slope_lines(arrays, queries, k0, keys, panels)
        with c.for_(0, self.head_steps) as d:
            left = self.steps_at("key_turned", (index * self.head_steps + d) * self.key_steps)
            self.products(panels, left, self.tile_areas["slope_panel"], self.block_sums, BLOCK, BLOCK)
            self.call("add_sums", self.block_sums, a["query_sums"].at(d * (BLOCK * lanes)), c.i64(lanes))

    def slope_lines(
        self, arrays: dict[str, Array], queries: tuple[Lanes, Lanes, Lanes], k0: Lanes, keys: Lanes, panels: Lanes
    ) -> None:  # fmt: skip
        """Scores and products g v^T to weights and slopes, as operands."""
        c, facts, a = self.c, self.facts, self.areas
        q0, count, i = queries
        lanes, scale = facts.lanes, c.splat(self.scale, WIDTH)
        statistics = []
        for v in range(facts.vectors):
            mask = c.tail_mask(count - v * WIDTH, WIDTH)
            statistics.append(tuple(arrays[name].load(q0 + v * WIDTH, WIDTH, mask) for name in ("lse", "delta")))
        Parts = tuple[str, ...]

        def one(row: Lanes, v: int, edge: bool) -> tuple[Parts, Parts]:
            """The weight and the slope of a row and a vector, split."""
            lse, delta = statistics[v]
            at = row * lanes + v * WIDTH
            score = a["weights"].load(at, WIDTH) * scale
            if edge:
                score = self.masked(score, row, c.i64(v), q0, k0, keys)
            weight, product = self.weight(score - lse), a["slopes"].load(at, WIDTH)
            kept = weight
            if facts.dropout:
                factor = self.kept(row, v)
                kept, product = weight * factor, product * factor
            return self.numbers.split(kept.name), self.numbers.split((weight * (product - delta)).name)

        def panel(p: Lanes, edge: bool) -> None:
            weights, slopes = (self.steps_at(name, p * self.group + i) for name in ("weight_steps", "slope_steps"))
            turned = self.steps_at("slope_panel", p)
            with c.for_(0, WIDTH, _LINES) as j:
                self.fetch_rows()
                for line in range(_LINES):
                    found = [[one(p * BLOCK + half * WIDTH + j + line, v, edge) for v in range(2)] for half in range(2)]
                    for half in range(2):
                        at = self.tile_line(half, j + line)
                        self.line(found[half][0][0], found[half][1][0], weights.at(at))
                        self.line(found[half][0][1], found[half][1][1], slopes.at(at))
                    for v in range(2):
                        self.line(found[0][v][1], found[1][v][1], turned.at(self.tile_line(v, j + line)))

        plain = c.divide(self.plain_rows(c.i64(0), q0, k0, panels * BLOCK, keys), BLOCK)
        if facts.mask == "none":
            with c.for_(0, plain) as j:
                panel(j, False)
        with c.for_(plain, panels) as p:
            panel(p, True)
