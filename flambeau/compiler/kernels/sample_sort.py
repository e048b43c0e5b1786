"""Sorting one long row on several threads: sample sort (Frazer and McKellar 1970) of the records of records.py.

Four kernels, with temporary values of the graph between them:
1. `sample`: one unit. Sorts a regular sample of the row's records and keeps 255 of them as splitters.
2. `classify`: units are blocks of the row. Makes the records, finds the bucket of each between the splitters, and
counts each block's buckets.
3. `deal`: the same units. Copies the records to their buckets, a block's after those of the blocks before it.
4. `finish`: units are buckets. Sorts each, in the cache, and writes its elements and their numbers.
Records are distinct, so equal elements, too, are dealt out evenly. The result does not depend on the blocks.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from flambeau.compiler.emit import convert
from flambeau.compiler.emit.code import Array, Code
from flambeau.compiler.emit.lanes import Lanes
from flambeau.compiler.graph import Graph, Value
from flambeau.compiler.kernel import Address, Kernel, Scratch, Word
from flambeau.compiler.kernels.description import describe_code
from flambeau.compiler.kernels.matmul_blocking import ceil_div
from flambeau.compiler.kernels.move_layout import address, reads
from flambeau.compiler.kernels.records import Records, call_sort, load_keys, make_records, sort_function, write_sorted
from flambeau.dtypes import dtype, int64, uint8

BUCKETS: Final = 256
# Elements of the sample for each bucket: with 16 the largest of 256 buckets is seldom twice the average.
OVERSAMPLING: Final = 16
BLOCK: Final = 1 << 14  # elements of a unit: its records fit in the second-level cache
# Rows from this length on, where at least so many threads share the work: its sum is 1.75 times that of the radix sort
# of the whole row (measured on 1,000,000 float32 elements: 13.0 ms against 7.4 ms).
LONG: Final = 1 << 17
THREADS: Final = 3


def sample_sort_kernels(graph: Graph, node_index: int, r: Records, count: int, step: int, bits: int) -> list[Kernel]:
    """Kernels that sort the only row of the node's input, whose records are narrow (r.element "i64")."""
    node = graph.nodes[node_index]
    blocks = ceil_div(count, BLOCK)

    def temporary(size: int, d: dtype) -> int:
        return graph.add_value(Value((size,), d, (1,)))

    splitters, counts = temporary(BUCKETS, int64), temporary(blocks * BUCKETS, int64)
    records, dealt, bucket = temporary(count, int64), temporary(count, int64), temporary(count, uint8)
    x = node.inputs[0]
    root = reads(graph, x)
    addresses: dict[str, Word] = {
        "x": address(graph, x), "count": count, "step": step, "blocks": blocks, "splitters": Address(splitters),
        "counts": Address(counts), "records": Address(records), "dealt": Address(dealt), "bucket": Address(bucket),
        "values": address(graph, node.outputs[0]), "numbers": address(graph, node.outputs[1]),
        "sample": Scratch(0, 2 * 8 * BUCKETS * OVERSAMPLING),
    }  # fmt: skip
    parts = {
        "sample": (_sample, ["x", "count", "step", "splitters", "sample"], root, (splitters,), 1),
        "classify": (_classify, ["x", "count", "step", "splitters", "counts", "records", "bucket"], (*root, splitters),
                     (counts, records, bucket), blocks),
        "deal": (_deal, ["count", "blocks", "counts", "records", "dealt", "bucket"], (counts, records, bucket), (dealt,), blocks),
        "finish": (_finish, ["x", "step", "blocks", "counts", "records", "dealt", "values", "numbers"], (*root, counts, dealt),
                   (records, *node.outputs), BUCKETS),
    }  # fmt: skip
    kernels = []
    for name, (write, names, read, written, units) in parts.items():
        key = f"sample_sort:{name}:{r.name}:{'u' if step == 1 else 's'}:{bits}"
        kernels.append(
            describe_code(
                f"sort_{name}", key, partial(write, r, step == 1, bits), {n: addresses[n] for n in names}, reads=read, writes=written,
                units=units, bytes=32 * count, operations=count, nodes=(node_index,),
            )
        )  # fmt: skip
    return kernels


def _sample(r: Records, unit: bool, bits: int, c: Code) -> None:
    step = None if unit else c.word("step")
    c.helper(*sort_function(r, c.b.target))
    x, count = c.array("x", r.memory), c.word("count")
    size = BUCKETS * OVERSAMPLING
    sample, splitters = c.array("sample", "i64"), c.array("splitters", "i64")
    with c.for_(0, size) as i:
        # Multiplying by an odd constant before the reduction spreads the places; count is far below 2^32.
        place = c.modulo(i * 2654435761 & 0xFFFFFFFF, count)
        sample.store(i, r.record(load_keys(c, r, x, step, place, 1, None), place))
    call_sort(c, sample, sample.at(size), c.i64(size))
    with c.for_(1, BUCKETS) as i:
        splitters.store(i - 1, sample[i * OVERSAMPLING])


def _classify(r: Records, unit: bool, bits: int, c: Code) -> None:
    step = None if unit else c.word("step")
    x, count = c.array("x", r.memory), c.word("count")
    splitters, counts = c.array("splitters", "i64"), c.array("counts", "i64")
    records, bucket = c.array("records", "i64"), c.array("bucket", "i8")
    with c.for_(c.named("i64", "%begin"), c.named("i64", "%end")) as u:
        first = u * BLOCK
        last = c.min(first + BLOCK, count)
        mine = counts.at(u * BUCKETS)
        c.clear_bytes(mine, 8 * BUCKETS)
        make_records(c, r, x, step, first, last, records.at(first), bits)

        def some(i: Lanes, lanes: int, mask: str | None) -> None:
            record = records.load(i, lanes, mask)
            place = record.like(0)
            half = BUCKETS // 2
            while half:
                found = convert.gather(c.b, int64, splitters.pointer, (place + (half - 1)).name, lanes, None)
                above = record.compare("ugt", Lanes(c.b, "i64", lanes, str(found)))
                place = above.select(place + half, place)
                half //= 2
            bucket.store(i, place.to("i8", "trunc"), mask)

        c.blocks(first, last, bits // 64, some)
        with c.for_(first, last) as i:
            at = bucket[i].to("i64", "zext")
            mine.store(at, mine[at] + 1)


def _deal(r: Records, unit: bool, bits: int, c: Code) -> None:
    count, blocks, counts = c.word("count"), c.word("blocks"), c.array("counts", "i64")
    records, dealt, bucket = c.array("records", "i64"), c.array("dealt", "i64"), c.array("bucket", "i8")
    starts = c.local_array("i64", BUCKETS)
    with c.for_(c.named("i64", "%begin"), c.named("i64", "%end")) as u:
        total = c.cell("i64", 0)
        with c.for_(0, BUCKETS) as b:
            starts.store(b, total.get() + _column(c, counts, b, c.i64(0), u))
            total.add(_column(c, counts, b, c.i64(0), blocks))
        with c.for_(u * BLOCK, c.min(u * BLOCK + BLOCK, count)) as i:
            at = bucket[i].to("i64", "zext")
            place = starts[at]
            dealt.store(place, records[i])
            starts.store(at, place + 1)


def _column(c: Code, counts: Array, bucket: Lanes, low: Lanes, high: Lanes) -> Lanes:
    """How many records of a bucket the blocks low ... high - 1 have."""
    total = c.cell("i64", 0)
    with c.for_(low, high) as k:
        total.add(counts[k * BUCKETS + bucket])
    return total.get()


def _finish(r: Records, unit: bool, bits: int, c: Code) -> None:
    step = None if unit else c.word("step")
    c.helper(*sort_function(r, c.b.target))
    x, values, numbers = c.array("x", r.memory), c.array("values", r.memory), c.array("numbers", "i64")
    blocks, counts = c.word("blocks"), c.array("counts", "i64")
    records, dealt = c.array("records", "i64"), c.array("dealt", "i64")
    first = c.cell("i64", 0)
    begin = c.named("i64", "%begin")
    with c.for_(0, begin) as i:
        first.add(_column(c, counts, i, c.i64(0), blocks))
    with c.for_(begin, c.named("i64", "%end")) as b:
        start, size = first.get(), _column(c, counts, b, c.i64(0), blocks)
        mine = dealt.at(start)
        call_sort(c, mine, records.at(start), size)
        write_sorted(c, r, mine, x, step, values.at(start), numbers.at(start), None, size, bits)
        first.set(start + size)
