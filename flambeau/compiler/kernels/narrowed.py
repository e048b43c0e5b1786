"""Sorting 8-byte elements by their 32 leading bits.

Half the bytes of 64-bit keys rarely matter: integers span a short range, and doubles that agree in their first 32 bits
are few. So a row's keys become (key - least) >> shift, 32 bits wide, and are sorted as narrow records (records.py), in
half the passes over half the memory. With a shift of 0 that is all. Otherwise neighbours that agree are put in order by
their whole keys, by insertion; a row in which that takes too long is sorted by its whole keys instead.
"""

from __future__ import annotations

from collections.abc import Callable

from flambeau.compiler.emit.code import Array, Code
from flambeau.compiler.emit.lanes import Lanes
from flambeau.compiler.kernels.records import Records, call_sort, load_keys, sort_function
from flambeau.dtypes import int32

# Steps of insertion, for each element, after which a row is given up: about what the wide sort would cost.
PATIENCE = 8


class Narrowed:
    """Code that sorts a row by narrow records. `r` says what the elements are."""

    def __init__(self, c: Code, r: Records, bits: int) -> None:
        self.c = c
        self.r = r
        self.bits = bits
        self.narrow = Records(int32, False)
        c.helper(*sort_function(self.narrow, c.b.target))
        self.least, self.most = c.cell("i64"), c.cell("i64")
        self.steps, self.place, self.done = c.cell("i64"), c.cell("i64"), c.cell("i1")

    def sort(
        self, source: Array, step: Lanes | None, a: Array, spare: Array, count: Lanes, values: Array, numbers: Array,
        out_step: Lanes | None, keep: Lanes,
    ) -> Lanes:  # fmt: skip
        """Sort the row at `source` and write its first `keep` elements and their numbers; whether that was done.
        Operands as in records.py; `a` and `spare` hold `count` wide records each."""
        c, r = self.c, self.r
        self._find_range(source, step, count)
        least = self.least.get()
        span = self.most.get() - least
        shift = c.max(32 - (span | 1).call("ctlz", extra=(("i1", "false"),)), 0)
        records = a.at(0, "i64")

        def make(i: Lanes, lanes: int, mask: str | None) -> None:
            key = load_keys(c, r, source, step, i, lanes, mask) - c.splat(least, lanes)
            number = c.splat(i, lanes) + c.iota("i64", lanes) if lanes > 1 else i
            records.store(i, (key.logical_right(c.splat(shift, lanes)) << 32) | number, mask)

        c.blocks(0, count, self.bits // 64 if step is None else 1, make)
        call_sort(c, records, spare.at(0, "i64"), count)
        self.done.set(1)

        def element(number: Lanes) -> Array:
            return source.at(number if step is None else number * step)

        def element_key(number: Lanes) -> Lanes:
            return r.key(element(number)[0])

        with c.if_(shift.gt(0)):
            self._put_neighbours_in_order(records, element_key, count)

        def write(i: Lanes) -> None:
            number = records[i] & 0xFFFFFFFF
            at = i if out_step is None else i * out_step
            numbers.store(at, number)
            values.store(at, element(number)[0])

        def write_decoded(i: Lanes, lanes: int, mask: str | None) -> None:
            record = records.load(i, lanes, mask)
            at = i if out_step is None else i * out_step
            numbers.store(at, record & 0xFFFFFFFF, mask)
            values.store(at, r.unkey(record.logical_right(32) + c.splat(least, lanes)), mask)

        with c.if_(self.done.get()):
            if r.dtype.is_floating_point:  # the key of a zero or a NaN does not tell which one it was
                with c.for_(0, keep) as i:
                    write(i)
            else:
                lanes = self.bits // 64 if out_step is None else 1
                with c.if_(shift.eq(0)):
                    c.blocks(0, keep, lanes, write_decoded)
                with c.else_(), c.for_(0, keep) as i:
                    write(i)
        return self.done.get()

    def _find_range(self, source: Array, step: Lanes | None, count: Lanes) -> None:
        """The least and the largest key, as unsigned numbers."""
        c = self.c
        lanes = self.bits // 64 if step is None else 1
        self.least.set(-1)
        self.most.set(0)
        low, high = c.cell("i64", -1, lanes), c.cell("i64", 0, lanes)
        whole = c.divide(count, lanes) * lanes
        with c.for_(0, whole, lanes) as i:
            key = load_keys(c, self.r, source, step, i, lanes, None)
            low.set(low.get().call("umin", key))
            high.set(high.get().call("umax", key))
        for lane in range(lanes):
            self.least.set(self.least.get().call("umin", c.extract(low.get(), lane)))
            self.most.set(self.most.get().call("umax", c.extract(high.get(), lane)))
        with c.for_(whole, count) as i:
            key = load_keys(c, self.r, source, step, i, 1, None)
            self.least.set(self.least.get().call("umin", key))
            self.most.set(self.most.get().call("umax", key))

    def _put_neighbours_in_order(self, records: Array, key_of: Callable[[Lanes], Lanes], count: Lanes) -> None:
        """Insertion among records that agree in their 32 bits; equal elements stay in the order of their numbers."""
        c = self.c
        self.steps.set(0)
        with c.for_(1, count) as i:
            record = records[i]
            head = record.logical_right(32)
            with c.if_(records[i - 1].logical_right(32).eq(head) & self.done.get()):
                key = key_of(record & 0xFFFFFFFF)
                self.place.set(i)

                def larger() -> Lanes:
                    at = self.place.get()
                    # Position -1 is never read: the select keeps the load at 0.
                    before = records[c.max(at - 1, 0)]
                    agrees = before.logical_right(32).eq(head) & at.gt(0)
                    return agrees & key_of(before & 0xFFFFFFFF).compare("ugt", key) & self.done.get()

                with c.while_(larger):
                    at = self.place.get()
                    records.store(at, records[at - 1])
                    self.place.set(at - 1)
                    self.steps.add(1)
                    self.done.set(self.steps.get().lt(count * PATIENCE))
                records.store(self.place.get(), record)
