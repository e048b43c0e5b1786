"""Whole rows by index: `take_rows` (embedding, index_select) and `put_rows` (its gradient, index_add, index_copy), and
`put`.

Layout. x is (outer, size, inner) around the indexed dim, the index (points), rows and sources (outer, points, inner).

A `put` is deterministic because each destination belongs to one call of the kernel, which goes through the indices in
order:
* "columns": units are blocks of columns, for each point of outer; a call makes one pass over the indices for its
  columns.
* "destinations": units are rows of x; a call makes one pass over the indices and leaves out those that are not its own.
The result starts as the base (`Kernel.starts_as`), so only the rows that are named are touched.
"""

from __future__ import annotations

from functools import partial

from flambeau.compiler.emit.code import ELEMENT_BYTES, OF_BYTES, Array, Code
from flambeau.compiler.emit.lanes import Lanes
from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import ErrorRecord, Kernel, Word
from flambeau.compiler.kernels.description import describe_code
from flambeau.compiler.kernels.memory import dense_base, strided_copy
from flambeau.compiler.kernels.move_layout import INDEX_ERROR, Element, Group, address, checked_index, element_of, group, reads
from flambeau.symbols import maximum

# Bytes of a column block. Narrower ones would leave the hardware prefetcher nothing to run after.
BLOCK_BYTES = 256
# Bytes that a thread should have to move before a further one is worth starting (a start costs about 5 us).
THREAD_BYTES = 1 << 16


def make_take_rows(graph: Graph, node_index: int) -> list[Kernel]:
    """Kernels of a `take_rows` node."""
    node = graph.nodes[node_index]
    x, index, out = (graph.values[v] for v in (*node.inputs, *node.outputs))
    if out.numel == 0:
        return []
    dim = node.attr("dim")
    shape, strides = x.shape or (1,), x.strides or (1,)
    outer = group("outer", shape[:dim], strides[:dim])
    points = group("points", index.shape, index.strides)
    inner = group("inner", shape[dim + 1 :], strides[dim + 1 :])
    bytes_ = x.dtype.itemsize
    way = "one" if not inner.sizes else "run" if inner.unit(0) else "any"
    words: dict[str, Word] = {
        "x": address(graph, node.inputs[0]), "index": address(graph, node.inputs[1]),
        "to": address(graph, node.outputs[0]), "error": ErrorRecord(), "size": shape[dim], "step": strides[dim],
        "points": points.count, "inner": inner.count,
    }  # fmt: skip
    for g in (outer, points, inner):
        words |= g.words()
    bits = graph.target.vector_bits
    key = f"take_rows:{bytes_}:{way}:{outer.fact}:{points.fact}:{inner.fact}:{bits}"
    return [
        describe_code(
            "take_rows", key, partial(_take, bytes_, way, (outer, points, inner), bits), words,
            reads=reads(graph, *node.inputs), writes=(node.outputs[0],), units=outer.count * points.count,
            bytes=2 * out.numel * bytes_ + index.numel * 8, nodes=(node_index,), fails=INDEX_ERROR,
            min_units_per_thread=maximum(1, THREAD_BYTES // (inner.count * bytes_ + 8)),
        )
    ]  # fmt: skip


def _take(nbytes: int, way: str, groups: tuple[Group, Group, Group], bits: int, c: Code) -> None:
    outer, points, inner = groups
    element = OF_BYTES[nbytes]
    x, to = c.array("x", element), c.array("to", element)
    index, error = c.array("index", "i64"), c.array("error", "i64")
    with c.for_(c.named("i64", "%begin"), c.named("i64", "%end")) as unit:
        point, from_outer = unit, c.i64(0)
        if outer.sizes:
            o = c.divide(unit, c.word("points"))
            point = unit - o * c.word("points")
            from_outer = outer.offsets(c, o)[0]
        at = checked_index(c, index[points.offsets(c, point)[0]], c.word("size"), error)
        source = x.at(from_outer + at * c.word("step"))
        target = to.at(unit * c.word("inner"))
        if way == "one":
            target.store(0, source[0])
        elif way == "run":
            copy_run(c, target, source, c.word("inner"), bits)
        else:
            with c.for_(0, c.word("inner")) as i:
                target.store(i, source[inner.offsets(c, i)[0]])


def copy_run(c: Code, to: Array, source: Array, count: Lanes, bits: int) -> None:
    """Copy `count` neighbouring elements: whole vectors, the last one moved back to end at the end; less than a vector
    by memcpy. The areas must not overlap."""
    vector_bytes = bits // 8
    nbytes = count * ELEMENT_BYTES[to.element]
    source, to = source.at(0, "i8"), to.at(0, "i8")
    with c.if_(nbytes.lt(vector_bytes)):
        c.copy_bytes(to, source, nbytes)
    with c.else_():
        last = nbytes - vector_bytes
        with c.for_(0, last, vector_bytes) as i:
            to.store(i, source.load(i, vector_bytes))
        to.store(last, source.load(last, vector_bytes))


def make_put_rows(graph: Graph, node_index: int) -> list[Kernel]:
    """Kernels of a `put_rows` or `put` node."""
    node = graph.nodes[node_index]
    base, index, source = (graph.values[v] for v in node.inputs)
    if source.numel == 0:
        return [strided_copy(graph, node.inputs[0], node.outputs[0], node_index)] if base.numel else []
    dim = 0 if node.op == "put" else node.attr("dim")
    shape = base.shape or (1,)
    rank = len(index.shape)
    outer = group("outer", shape[:dim], source.strides[:dim])
    points = group("points", index.shape, index.strides, source.strides[dim : dim + rank])
    inner = group("inner", shape[dim + 1 :], source.strides[dim + rank :])
    return put_kernels(graph, node_index, shape[dim], outer, points, inner)


def put_kernels(graph: Graph, node_index: int, size: int, outer: Group, points: Group, inner: Group) -> list[Kernel]:
    """Kernels that put source rows into x (outer, size, inner). Operands of the groups: outer and inner have the
    source's strides, points the index's and the source's."""
    node = graph.nodes[node_index]
    out = graph.values[node.outputs[0]]
    mode = node.attr("mode")
    element = element_of(out.dtype, moved_only=mode == "set")
    itemsize = out.dtype.itemsize
    way = "one" if not inner.sizes else "run" if inner.unit(0) else "any"
    columns = inner.count * itemsize >= 4 * BLOCK_BYTES
    block = BLOCK_BYTES // itemsize if columns else 1
    blocks = -(-inner.count // block) if columns else size
    words: dict[str, Word] = {
        "to": address(graph, node.outputs[0]), "index": address(graph, node.inputs[1]),
        "source": address(graph, node.inputs[2]), "error": ErrorRecord(), "size": size, "points": points.count,
        "inner": inner.count, "block": block, "blocks": blocks,
    }  # fmt: skip
    for g in (outer, points, inner):
        words |= g.words()
    bits = graph.target.vector_bits
    partition = "columns" if columns else "destinations"
    key = f"put_rows:{element.name}:{mode}:{partition}:{way}:{outer.fact}:{points.fact}:{inner.fact}:{bits}"
    moved = points.count * inner.count * itemsize * outer.count
    units = outer.count * blocks
    kernels, starts_as = dense_base(graph, node_index)
    kernels.append(
        describe_code(
            f"put_rows_{mode}", key, partial(_put, element, mode, columns, way, (outer, points, inner), bits), words,
            reads=reads(graph, *(node.inputs if starts_as else (*node.inputs[1:], node.outputs[0]))),
            writes=(node.outputs[0],), units=units, bytes=3 * moved + points.count * 8, nodes=(node_index,), fails=INDEX_ERROR,
            min_units_per_thread=maximum(1, units * THREAD_BYTES // maximum(3 * moved, 1)), starts_as=starts_as,
            # A call goes through all indices, so no more calls than threads.
            grain=-(-units // graph.target.workers) if outer.count == 1 else 1,
        )
    )  # fmt: skip
    return kernels


def _put(element: Element, mode: str, columns: bool, way: str, groups: tuple[Group, Group, Group], bits: int, c: Code) -> None:
    outer, points, inner = groups
    index, error = c.array("index", "i64"), c.array("error", "i64")
    to, source = c.array("to", "i8"), c.array("source", "i8")
    begin, end = c.named("i64", "%begin"), c.named("i64", "%end")
    blocks, size, width = c.word("blocks"), c.word("size"), c.word("inner")

    def part(o: Lanes) -> None:
        first = c.max(begin - o * blocks, 0) if outer.sizes else begin
        last = c.min(end - o * blocks, blocks) if outer.sizes else end
        from_outer = outer.offsets(c, o)[0]
        low = first * c.word("block") if columns else c.i64(0)
        high = c.min(last * c.word("block"), width) if columns else width
        with c.for_(0, c.word("points")) as j:
            at_index, at_source = points.offsets(c, j)
            at = checked_index(c, index[at_index], size, error)
            target = element.at(c, to, (o * size + at) * width)
            row = element.at(c, source, from_outer + at_source)

            def combine() -> None:
                if way == "one":
                    element.combine(c, mode, target, row, 1, None)
                elif way == "run":
                    c.blocks(low, high, element.width(bits), lambda i, lanes, mask: element.combine(
                        c, mode, element.at(c, target, i), element.at(c, row, i), lanes, mask))  # fmt: skip
                else:
                    with c.for_(low, high) as i:
                        element.combine(
                            c,
                            mode,
                            element.at(c, target, i),
                            element.at(c, row, inner.offsets(c, i)[0]),
                            1,
                            None,
                        )

            if columns:
                combine()
            else:
                with c.if_((at - first).compare("ult", last - first)):
                    combine()

    if outer.sizes:
        with c.for_(c.divide(begin, blocks), c.divide(end - 1, blocks) + 1) as o:
            part(o)
    else:
        part(c.i64(0))
