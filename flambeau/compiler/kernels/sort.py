"""`sort` along a dim: stable, NaN the largest. Units are rows; each row becomes records (records.py), sorted and
written."""

from __future__ import annotations

from functools import partial

from flambeau.compiler.emit.code import Code
from flambeau.compiler.emit.lanes import Lanes
from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Kernel, Scratch, Word
from flambeau.compiler.kernels.description import describe_code
from flambeau.compiler.kernels.matmul_blocking import round_up
from flambeau.compiler.kernels.move_layout import Group, address, group, reads
from flambeau.compiler.kernels.narrowed import Narrowed
from flambeau.compiler.kernels.records import Records, call_sort, make_records, sort_function, write_sorted
from flambeau.compiler.kernels.sample_sort import LONG, THREADS, sample_sort_kernels
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
