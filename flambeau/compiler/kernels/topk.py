"""`topk` along a dim: the k largest (smallest) of each row, in order; of equal ones the first.

A row is read once. Records (records.py) that may be among the first k go to a buffer; when it is full it is sorted, cut
to k, and from then on only elements before its last one are let in: on random data nearly all elements fail that one
vector comparison. Where k is no small part of the row, the row is sorted instead (sort.py).
"""

from __future__ import annotations

from functools import partial

from flambeau.compiler.emit.code import Code
from flambeau.compiler.emit.lanes import Lanes
from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Kernel, Scratch, Word
from flambeau.compiler.kernels.description import describe_code
from flambeau.compiler.kernels.matmul_blocking import round_up
from flambeau.compiler.kernels.move_layout import Group, address, reads
from flambeau.compiler.kernels.records import Records, call_sort, load_keys, make_records, sort_function, write_sorted
from flambeau.compiler.kernels.sort import row_group, row_kernels, row_start
from flambeau.symbols import maximum

# Records that the buffer takes beyond k, at least, before it is sorted. A small buffer brings the limit down early, and
# the sort, by insertion, finds the first k in order already (measured on rows of 100 to 1,000,000: 16 to 64 are alike).
ROOM = 16
# Elements that a thread should have before a further one is worth starting (about 0.3 ns each).
THREAD_ELEMENTS = 1 << 15


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
            operations=x.numel, nodes=(node_index,), min_units_per_thread=maximum(1, THREAD_ELEMENTS // count),
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
