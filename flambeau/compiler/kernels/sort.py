"""`sort` along a dim: stable, NaN the largest. Units are rows; each row becomes records (records.py), sorted and
written."""

from __future__ import annotations

from functools import partial
from typing import Final

from flambeau.compiler.emit import convert
from flambeau.compiler.emit.code import Array, Code
from flambeau.compiler.emit.lanes import Lanes
from flambeau.compiler.graph import Graph, Value
from flambeau.compiler.kernel import Address, Kernel, Scratch, Word
from flambeau.compiler.kernels.description import describe_code
from flambeau.compiler.kernels.matmul_blocking import ceil_div, round_up
from flambeau.compiler.kernels.move_layout import Group, address, group, reads
from flambeau.compiler.kernels.narrowed import Narrowed
from flambeau.compiler.kernels.records import Records, call_sort, load_keys, make_records, sort_function, write_sorted
from flambeau.dtypes import dtype, int64, uint8
from flambeau.symbols import maximum

# Elements that a thread should have to sort before a further one is worth starting (about 10 ns each).
THREAD_ELEMENTS = 1 << 11


def row_group(graph: Graph, value: int, dim: int) -> tuple[Group, int, int]:
    """(the dims but `dim` of a value, its size along `dim`, its stride)."""
    x = graph.values[value]
    shape, strides = x.shape or (1,), x.strides or (1,)
    if shape[dim] >= 1 << 32:  # records number the elements in 32 bits
        raise RuntimeError(f"sort: {shape[dim]} elements along dim {dim}; fewer than 2^32 can be sorted: split the tensor")
    rows = group("rows", shape[:dim] + shape[dim + 1 :], strides[:dim] + strides[dim + 1 :])
    return rows, shape[dim], strides[dim]


def make_sort(graph: Graph, node_index: int) -> list[Kernel]:
    """Kernels of a `sort` node."""
    node = graph.nodes[node_index]
    x = graph.values[node.inputs[0]]
    return row_kernels(graph, node_index, "sort", Records(x.dtype, bool(node.attr("descending"))), None)


def row_kernels(graph: Graph, node_index: int, name: str, r: Records, keep: int | None) -> list[Kernel]:
    """The kernel that sorts every row and writes the first `keep` elements (None: all of them)."""
    node = graph.nodes[node_index]
    x = graph.values[node.inputs[0]]
    dim = node.attr("dim")
    rows, count, step = row_group(graph, node.inputs[0], dim)
    if x.numel == 0 or keep == 0:
        return []
    inner = 1
    for size in x.shape[dim + 1 :]:
        inner *= size
    host = graph.target
    bits = host.vector_bits
    if rows.count == 1 and keep is None and count >= LONG and r.element == "i64" and host.workers >= THREADS:
        return sample_sort_kernels(graph, node_index, r, count, step, bits)
    words: dict[str, Word] = {
        "x": address(graph, node.inputs[0]), "values": address(graph, node.outputs[0]),
        "numbers": address(graph, node.outputs[1]), "count": count, "step": step, "inner": inner,
        "keep": count if keep is None else keep, **rows.words(),
    }  # fmt: skip
    space = round_up(2 * count * r.bytes, 64)
    # One row has one worker, whichever it is.
    words["scratch"] = Scratch(space) if rows.count > 1 else Scratch(0, space)
    words["space"] = space if rows.count > 1 else 0
    ways = "u" if step == 1 else "s", "u" if inner == 1 else "s"
    key = f"sort:{r.name}:{rows.fact}:{''.join(ways)}:{bits}"
    item = x.dtype.itemsize
    return [
        describe_code(
            name, key, partial(_sort, r, rows, step == 1, inner == 1, bits), words, reads=reads(graph, node.inputs[0]),
            writes=node.outputs, units=rows.count, bytes=x.numel * (2 * item + 8 + 2 * item * r.bytes), operations=x.numel * item, nodes=(node_index,),
            min_units_per_thread=maximum(1, THREAD_ELEMENTS // count),
        )
    ]  # fmt: skip


def _sort(r: Records, rows: Group, unit: bool, dense: bool, bits: int, c: Code) -> None:
    c.helper(*sort_function(r, c.b.target))
    narrowed = Narrowed(c, r, bits) if r.element == "i128" else None
    x, values, numbers = c.array("x", r.memory), c.array("values", r.memory), c.array("numbers", "i64")
    count, keep, inner = c.word("count"), c.word("keep"), c.word("inner")
    a = c.array("scratch", r.element).after_bytes(c.named("i64", "%worker") * c.word("space"))
    spare = a.at(count)
    step = None if unit else c.word("step")
    out_step = None if dense else inner
    with c.for_(c.named("i64", "%begin"), c.named("i64", "%end")) as u:
        source = x.at(rows.offsets(c, u)[0])
        start = row_start(c, u, keep, inner, dense)
        to, places = values.at(start), numbers.at(start)

        def whole() -> None:
            make_records(c, r, source, step, c.i64(0), count, a, bits)
            call_sort(c, a, spare, count)
            write_sorted(c, r, a, source, step, to, places, out_step, keep, bits)

        if narrowed is None:
            whole()
        else:
            done = narrowed.sort(source, step, a, spare, count, to, places, out_step, keep)
            with c.if_(done ^ 1):
                whole()


def row_start(c: Code, row: Lanes, count: Lanes, inner: Lanes, dense: bool) -> Lanes:
    """Offset of a row's first element in a dense result with `count` elements along the dim and `inner` after it."""
    if dense:
        return row * count
    outer = c.divide(row, inner)
    return outer * count * inner + (row - outer * inner)


# -- The k largest (smallest) of each row, in order; of equal ones the first -----------------------------------------
# A row is read once. Records (records.py) that may be among the first k go to a buffer; when it is full it is sorted, cut
# to k, and from then on only elements before its last one are let in: on random data nearly all elements fail that one
# vector comparison. Where k is no small part of the row, the row is sorted instead (sort.py).


# Records that the buffer takes beyond k, at least, before it is sorted. A small buffer brings the limit down early, and
# the sort, by insertion, finds the first k in order already (measured on rows of 100 to 1,000,000: 16 to 64 are alike).
ROOM = 16
# Elements that a thread should have before a further one is worth starting (about 0.3 ns each).
_TOPK_THREAD_ELEMENTS = 1 << 15


def make_topk(graph: Graph, node_index: int) -> list[Kernel]:
    """Kernels of a `topk` node."""
    node = graph.nodes[node_index]
    x = graph.values[node.inputs[0]]
    k = node.attr("k") if x.shape else 1
    rows, count, step = row_group(graph, node.inputs[0], node.attr("dim"))
    r = Records(x.dtype, bool(node.attr("largest")))
    room = k + max(k, ROOM)
    if 2 * room >= count:
        return row_kernels(graph, node_index, "topk", r, k)
    if x.numel == 0 or k == 0:
        return []
    inner = 1
    for size in x.shape[node.attr("dim") + 1 :]:
        inner *= size
    space = round_up(2 * room * r.bytes, 64)
    words: dict[str, Word] = {
        "x": address(graph, node.inputs[0]), "values": address(graph, node.outputs[0]),
        "numbers": address(graph, node.outputs[1]), "count": count, "step": step, "inner": inner, "keep": k,
        "room": room, "scratch": Scratch(space), "space": space, **rows.words(),
    }  # fmt: skip
    bits = graph.target.vector_bits
    key = f"topk:{r.name}:{rows.fact}:{'u' if step == 1 else 's'}{'u' if inner == 1 else 's'}:{bits}"
    return [
        describe_code(
            "topk", key, partial(_topk, r, rows, step == 1, inner == 1, bits), words, reads=reads(graph, node.inputs[0]),
            writes=node.outputs, units=rows.count, bytes=x.numel * x.dtype.itemsize,
            operations=x.numel, nodes=(node_index,), min_units_per_thread=maximum(1, _TOPK_THREAD_ELEMENTS // count),
        )
    ]  # fmt: skip


def _topk(r: Records, rows: Group, unit: bool, dense: bool, bits: int, c: Code) -> None:
    c.helper(*sort_function(r, c.b.target))
    x, values, numbers = c.array("x", r.memory), c.array("values", r.memory), c.array("numbers", "i64")
    count, keep, inner, room = c.word("count"), c.word("keep"), c.word("inner"), c.word("room")
    buffer = c.array("scratch", r.element).after_bytes(c.named("i64", "%worker") * c.word("space"))
    spare = buffer.at(room)
    step = None if unit else c.word("step")
    lanes = bits // 8 // r.dtype.itemsize if unit else 1
    filled, limit = c.cell("i64"), c.cell(r.memory)

    def cut() -> None:
        call_sort(c, buffer, spare, filled.get())
        filled.set(c.min(filled.get(), keep))
        limit.set(r.key_of(buffer[keep - 1]))

    with c.for_(c.named("i64", "%begin"), c.named("i64", "%end")) as u:
        source = x.at(rows.offsets(c, u)[0])
        make_records(c, r, source, step, c.i64(0), room, buffer, bits)
        filled.set(room)
        cut()

        def admit(i: Lanes, key: Lanes) -> None:
            at = filled.get()
            buffer.store(at, r.record(key, i))
            filled.set(at + 1)
            with c.if_((at + 1).eq(room)):
                cut()

        def some(i: Lanes, lanes: int, mask: str | None) -> None:
            keys = load_keys(c, r, source, step, i, lanes, mask)
            passing = keys.compare("ult", c.splat(limit.get(), lanes))
            if mask is not None:
                passing = passing & Lanes(c.b, "i1", lanes, mask)
            with c.if_(Lanes(c.b, "i1", 1, passing.any())), c.each_set(passing) as lane:
                key = c.extract(keys, lane)
                # The limit may have come down since the vector comparison.
                with c.if_(key.compare("ult", limit.get())):
                    admit(i + lane, key)

        c.blocks(room, count, lanes, some)
        cut()
        start = row_start(c, u, keep, inner, dense)
        out_step = None if dense else inner
        write_sorted(c, r, buffer, source, step, values.at(start), numbers.at(start), out_step, keep, bits)


# -- Sample sort (Frazer and McKellar 1970) of the records of records.py ---------------------------------------------
# Four kernels, with temporary values of the graph between them:
# 1. `sample`: one unit. Sorts a regular sample of the row's records and keeps 255 of them as splitters.
# 2. `classify`: units are blocks of the row. Makes the records, finds the bucket of each between the splitters, and
# counts each block's buckets.
# 3. `deal`: the same units. Copies the records to their buckets, a block's after those of the blocks before it.
# 4. `finish`: units are buckets. Sorts each, in the cache, and writes its elements and their numbers.
# Records are distinct, so equal elements, too, are dealt out evenly. The result does not depend on the blocks.


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
