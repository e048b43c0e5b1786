"""Sorting records: keys whose unsigned order is the order of the elements, and the sort that `sort` and `topk` share.

A record is one integer: the key above, the element's number below (32 bits each in an i64 for keys of up to 32 bits,
else 64 bits each in an i128). Records are therefore distinct, and sorting them by their whole value is stable in the
elements.

Keys. Integers: the sign bit turned over. Floats: negative ones turned over entirely, the others in the sign bit (Herf
2001, "Radix tricks"); both zeros have one key, and so has every NaN, the largest. Descending order turns the whole key
over.

The sort is by comparison counting up to SMALL records (Knuth, TAOCP 3, 5.2: a record's place is the number of smaller
ones, which vectors count fast; by insertion for the wide records), else by radix, least significant byte first (Knuth,
TAOCP 3, 5.2.5), with the counts of all bytes made in one pass; a byte in which all keys agree costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from flambeau.compiler.emit import convert
from flambeau.compiler.emit.code import OF_BYTES, Array, Code
from flambeau.compiler.emit.lanes import Lanes
from flambeau.dtypes import dtype, int64
from flambeau.runtime.target import Target

# Up to this many records counting beats the radix sort (measured with float32 keys: equal at about 100).
SMALL = 96
_INFINITY = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000, "float64": 0x7FF0000000000000}


@dataclass(frozen=True, slots=True)
class Records:
    """Records of elements of a dtype, in one of the two orders."""

    dtype: dtype
    descending: bool

    @property
    def name(self) -> str:
        return f"{self.dtype.name}:{'down' if self.descending else 'up'}"

    @property
    def memory(self) -> str:
        """LLVM type of an element's bits, and of its key."""
        return OF_BYTES[self.dtype.itemsize]

    @property
    def element(self) -> str:
        """LLVM type of a record."""
        return "i128" if self.dtype.itemsize == 8 else "i64"

    @property
    def bytes(self) -> int:
        return 16 if self.element == "i128" else 8

    @property
    def shift(self) -> int:
        """Bits below the key."""
        return 64 if self.element == "i128" else 32

    @property
    def all_ones(self) -> int:
        return (1 << 8 * self.dtype.itemsize) - 1

    @property
    def sign(self) -> int:
        return 1 << (8 * self.dtype.itemsize - 1)

    # -- keys -------------------------------------------------------------------------------------------------------
    def key(self, bits: Lanes) -> Lanes:
        """The key of elements, from their bits."""
        if self.dtype.is_floating_point:
            size = bits & (self.sign - 1)
            flip = (bits >> (8 * self.dtype.itemsize - 1)) | self.sign
            key = size.eq(0).select(self.sign, bits ^ flip)
            key = size.compare("ugt", _INFINITY[self.dtype.name]).select(self.all_ones, key)
        else:
            key = bits ^ self.sign if self.dtype.is_signed else bits
        return ~key if self.descending else key

    def unkey(self, key: Lanes) -> Lanes:
        """The bits of elements, from their keys; zeros come back positive and NaNs as one of them."""
        if self.descending:
            key = ~key
        if self.dtype.is_floating_point:
            flip = (~key >> (8 * self.dtype.itemsize - 1)) | self.sign
            return key ^ flip
        return key ^ self.sign if self.dtype.is_signed else key

    def is_merged(self, key: Lanes) -> Lanes | None:
        """Whether the key stands for elements of different bits (zeros, NaNs); None if no key does."""
        if not self.dtype.is_floating_point:
            return None
        zero, nan = self.sign, self.all_ones
        if self.descending:
            zero, nan = ~zero & self.all_ones, 0
        return key.eq(zero) | key.eq(nan)

    # -- records ----------------------------------------------------------------------------------------------------
    def record(self, key: Lanes, number: Lanes) -> Lanes:
        """Records of keys and element numbers (i64 lanes)."""
        high = key.to(self.element, "zext") << self.shift
        return high | number.to(self.element, "zext")

    def number(self, record: Lanes) -> Lanes:
        """The element numbers, as i64 lanes."""
        if self.element == "i128":
            return record.to("i64", "trunc")
        return record & 0xFFFFFFFF

    def key_of(self, record: Lanes) -> Lanes:
        return record.logical_right(self.shift).to(self.memory, "trunc")


def load_keys(c: Code, r: Records, source: Array, step: Lanes | None, first: Lanes, lanes: int, mask: str | None) -> Lanes:
    """Keys of the row's elements first, first + 1, ...; the step is in elements, None where they are neighbours."""
    if step is None:
        return r.key(source.at(0, r.memory).load(first, lanes, mask))
    assert lanes == 1
    return r.key(source.at(0, r.memory).load(first * step))


def make_records(c: Code, r: Records, source: Array, step: Lanes | None, low: Lanes, high: Lanes, to: Array, bits: int) -> None:
    """Records of the elements low ... high - 1 of a row, from `to` on."""
    lanes = bits // 64 if step is None and r.element == "i64" else 1

    def some(i: Lanes, lanes: int, mask: str | None) -> None:
        key = load_keys(c, r, source, step, i, lanes, mask)
        number = c.splat(i, lanes) + c.iota("i64", lanes) if lanes > 1 else i
        to.store(i - low, r.record(key, number), mask)

    c.blocks(low, high, lanes, some)


def write_sorted(
    c: Code, r: Records, records: Array, source: Array, step: Lanes | None, values: Array, numbers: Array,
    out_step: Lanes | None, count: Lanes, bits: int,
) -> None:  # fmt: skip
    """The first `count` records as elements (at `values`) and element numbers, i64 (at `numbers`); steps in elements,
    None where neighbours. Elements whose key does not tell their bits are read again from `source`."""
    lanes = bits // 64 if out_step is None and r.element == "i64" else 1
    values = values.at(0, r.memory)

    def exact(i: Lanes) -> None:
        number = r.number(records[i])
        at = i if out_step is None else i * out_step
        numbers.store(at, number)
        values.store(at, source.at(0, r.memory)[number if step is None else number * step])

    def some(i: Lanes, lanes: int, mask: str | None) -> None:
        record = records.load(i, lanes, mask)
        key = r.key_of(record)

        def plain() -> None:
            at = i if out_step is None else i * out_step
            numbers.store(at, r.number(record), mask)
            values.store(at, r.unkey(key), mask)

        merged = r.is_merged(key)
        if merged is None:
            plain()
        else:
            any_merged = Lanes(c.b, "i1", 1, merged.any())
            with c.if_(any_merged), c.for_(i, c.min(i + lanes, count)) as j:
                exact(j)
            with c.else_():
                plain()

    c.blocks(0, count, lanes, some)


def sort_function(r: Records, target: Target) -> tuple[str, set[str]]:
    """`void sort_records_<element>(ptr a, ptr b, i64 count)`: the records at `a` in ascending order; `b` is as much
    space."""
    c = Code([], target)
    a, spare = Array(c, "%a", r.element), Array(c, "%b", r.element)
    count = c.named("i64", "%count")
    with c.if_(count.le(SMALL)):
        if r.element == "i64":
            _comparison_counting(c, a, spare, count, target.vector_bits // 64)
        else:
            _insertion(c, a, count)
    with c.else_():
        _radix(c, r, a, spare, count)
    name = f"@sort_records_{r.element}"
    header = f"define internal void {name}(ptr noalias %a, ptr noalias %b, i64 %count) noinline #0"
    return c.b.function(header), c.b.declarations


def call_sort(c: Code, a: Array, spare: Array, count: Lanes) -> None:
    c.b.emit(f"call void @sort_records_{a.element}(ptr {a.pointer}, ptr {spare.pointer}, i64 {count.name})")


def _comparison_counting(c: Code, a: Array, spare: Array, count: Lanes, lanes: int) -> None:
    def some(i: Lanes, lanes: int, mask: str | None) -> None:
        records = a.load(i, lanes, mask)
        places = c.cell("i64", 0, lanes)
        with c.for_(0, count) as j:
            smaller = c.splat(a[j], lanes).compare("ult", records)
            places.add(smaller.to("i64", "zext"))
        convert.scatter(c.b, int64, records.name, spare.pointer, places.get().name, lanes, mask)

    c.blocks(0, count, lanes, some)
    c.copy_bytes(a, spare, count * 8)


def _insertion(c: Code, a: Array, count: Lanes) -> None:
    place = c.cell("i64")
    with c.for_(1, count) as i:
        record = a[i]
        place.set(i)

        def larger() -> Lanes:
            # Position -1 is never read: the select keeps the load at 0.
            at = place.get()
            before = a[c.max(at - 1, 0)]
            return at.gt(0) & before.compare("ugt", record)

        with c.while_(larger):
            at = place.get()
            a.store(at, a[at - 1])
            place.set(at - 1)
        a.store(place.get(), record)


def _radix(c: Code, r: Records, a: Array, spare: Array, count: Lanes) -> None:
    passes = r.dtype.itemsize
    counts = c.local_array("i64", 256 * passes)
    c.clear_bytes(counts, 256 * 8 * passes)

    def digit(record: Lanes, number: int) -> Lanes:
        return record.logical_right(r.shift + 8 * number).to("i64", "trunc") & 255

    with c.for_(0, count) as i:
        record = a[i]
        for p in range(passes):
            at = digit(record, p) + 256 * p
            counts.store(at, counts[at] + 1)
    from_, to = c.pointer_cell(a), c.pointer_cell(spare)
    for p in range(passes):

        def one_pass(p: int = p) -> None:
            source, target = from_.get(r.element), to.get(r.element)
            running = c.cell("i64", 0)
            with c.for_(0, 256) as bucket:
                size = counts[bucket + 256 * p]
                counts.store(bucket + 256 * p, running.get())
                running.add(size)
            with c.for_(0, count) as i:
                record = source[i]
                bucket = digit(record, p) + 256 * p
                at = counts[bucket]
                target.store(at, record)
                counts.store(bucket, at + 1)
            from_.set(target)
            to.set(source)

        with c.if_(counts[digit(a[0], p) + 256 * p].ne(count)):
            one_pass()
    last = from_.get(r.element)
    with c.if_(last.same(a) ^ 1):
        c.copy_bytes(a, last, count * r.bytes)
