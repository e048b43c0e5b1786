"""Single elements by index: `gather` and `scatter` along a dim.

`gather`: out[a, i, b] = x[a, index[a, i, b], b]. Units are the elements of out, row-major.
`scatter`: out[a, index[a, i, b], b] = mode(that, source[a, i, b]), i in order. Points (a, b) never share a destination,
so units are points a times blocks of points b, and any number of threads gives the same bits. Where there is one point,
the destinations are divided instead (rows.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from flambeau.compiler.emit import convert
from flambeau.compiler.emit.code import OF_BYTES, Code
from flambeau.compiler.emit.lanes import Lanes
from flambeau.compiler.graph import Graph, contiguous_strides
from flambeau.compiler.kernel import ErrorRecord, Kernel, Word
from flambeau.compiler.kernels.description import describe_code
from flambeau.compiler.kernels.memory import dense_base, strided_copy
from flambeau.compiler.kernels.move_layout import (
    INDEX_ERROR,
    Element,
    Group,
    address,
    checked_index,
    element_of,
    group,
    reads,
    wrapped_index,
)  # fmt: skip
from flambeau.compiler.kernels.rows import put_kernels
from flambeau.dtypes import BY_NAME
from flambeau.symbols import maximum

# Elements that a thread should have before a further one is worth starting (about 2 ns each).
THREAD_ELEMENTS = 1 << 13
# Points b of a unit of `scatter`: some cache lines of each operand.
BLOCK = 64
# Indices that `scatter` checks at once where they are neighbours.
VECTOR = 8


def make_gather(graph: Graph, node_index: int) -> list[Kernel]:
    """Kernels of a `gather` node."""
    node = graph.nodes[node_index]
    x = graph.values[node.inputs[0]]
    dim = node.attr("dim")
    # Along the indexed dim x does not move: the index does that.
    along = [0 if d == dim else s for d, s in enumerate(x.strides)]
    return gather_kernels(graph, node_index, (x.shape or (1,))[dim], (x.strides or (1,))[dim], along)


def gather_kernels(graph: Graph, node_index: int, size: int, step: int, along: Sequence[int]) -> list[Kernel]:
    """out[i] = x[index[i] * step + offset of i in strides `along`] for the points i of the index, each below `size`."""
    node = graph.nodes[node_index]
    x, index = (graph.values[v] for v in node.inputs)
    if index.numel == 0:
        return []
    dims = group("dims", index.shape, along, index.strides, contiguous_strides(index.shape))
    words: dict[str, Word] = {
        "x": address(graph, node.inputs[0]), "index": address(graph, node.inputs[1]),
        "to": address(graph, node.outputs[0]), "error": ErrorRecord(), "size": size, "step": step, **dims.words(),
    }  # fmt: skip
    itemsize = x.dtype.itemsize
    bits = graph.target.vector_bits
    key = f"gather:{itemsize}:{dims.fact}:{'u' if step == 1 else 's'}:{bits}"
    return [
        describe_code(
            node.op, key, partial(_gather, itemsize, dims, step == 1, bits), words, reads=reads(graph, *node.inputs),
            writes=(node.outputs[0],), units=index.numel, bytes=index.numel * (8 + 2 * itemsize),
            nodes=(node_index,), fails=INDEX_ERROR, min_units_per_thread=THREAD_ELEMENTS,
        )
    ]  # fmt: skip


def _gather(itemsize: int, dims: Group, unit: bool, bits: int, c: Code) -> None:
    element = OF_BYTES[itemsize]
    x, to = c.array("x", element), c.array("to", element)
    index, error = c.array("index", "i64"), c.array("error", "i64")
    begin, end = c.named("i64", "%begin"), c.named("i64", "%end")
    size = c.word("size")
    # The processor gathers elements of 4 and 8 bytes.
    vector = bits // 64 if itemsize in (4, 8) and dims.sizes and dims.strides[1][-1] == 1 else 1

    def stepped(at: Lanes) -> Lanes:
        return at if unit else at * c.splat(c.word("step"), at.width)

    def run(first: Lanes, start_x: Lanes, start_index: Lanes, low: Lanes, high: Lanes) -> None:
        """Elements low ... high - 1 of a row along the last dim, whose first one is number `first` of the result."""

        def one(i: Lanes) -> None:
            at_index = start_index + (dims.along(c, 1, i) if dims.sizes else i)
            at = checked_index(c, index[at_index], size, error)
            to.store(first + i, x[start_x + (dims.along(c, 0, i) if dims.sizes else i) + stepped(at)])

        def some(i: Lanes, lanes: int, mask: str | None) -> None:
            if lanes == 1:
                one(i)
                return
            at, outside = wrapped_index(c, index.load(start_index + i, lanes, mask), size)
            # A wrong index: go on one by one, up to it.
            any_outside = Lanes(c.b, "i1", 1, outside.any())
            with c.if_(any_outside), c.for_(i, c.min(i + lanes, high)) as j:
                one(j)
            with c.else_():
                points = c.splat(i, lanes) + c.iota("i64", lanes)
                place = stepped(at) + c.splat(start_x, lanes) + dims.along(c, 0, points)
                value = convert.gather(c.b, BY_NAME[f"int{8 * itemsize}"], x.pointer, place.name, lanes, mask)
                to.store(first + i, Lanes(c.b, element, lanes, str(value)), mask)

        c.blocks(low, high, vector, some)

    last = len(dims.sizes) - 1
    if last < 1:
        run(c.i64(0), c.i64(0), c.i64(0), begin, end)
        return
    count = c.word(f"dims_size{last}")
    with c.for_(c.divide(begin, count), c.divide(end - 1, count) + 1) as r:
        first = r * count
        start_x, start_index, _ = dims.offsets(c, first)
        run(first, start_x, start_index, c.max(begin - first, 0), c.min(end - first, count))


def make_scatter(graph: Graph, node_index: int) -> list[Kernel]:
    """Kernels of a `scatter` node."""
    node = graph.nodes[node_index]
    base, index, source = (graph.values[v] for v in node.inputs)
    if index.numel == 0:
        return [strided_copy(graph, node.inputs[0], node.outputs[0], node_index)] if base.numel else []
    dim = node.attr("dim")
    shape = base.shape or (1,)
    index_shape = index.shape or (1,)
    out_strides = contiguous_strides(shape)
    index_strides, source_strides = index.strides or (1,), source.strides or (1,)
    before, after = slice(0, dim), slice(dim + 1, None)
    outer = group("outer", index_shape[before], out_strides[before], index_strides[before], source_strides[before])
    inner = group("inner", index_shape[after], out_strides[after], index_strides[after], source_strides[after])
    if outer.count == inner.count == 1 and out_strides[dim] == 1:
        along = slice(dim, dim + 1)
        points = group("points", index_shape[along], index_strides[along], source_strides[along])
        none = group("outer", (), ()), group("inner", (), ())
        return put_kernels(graph, node_index, shape[dim], none[0], points, none[1])
    mode = node.attr("mode")
    element = element_of(base.dtype, moved_only=mode == "set")
    blocks = -(-inner.count // BLOCK)
    words: dict[str, Word] = {
        "to": address(graph, node.outputs[0]), "index": address(graph, node.inputs[1]),
        "source": address(graph, node.inputs[2]), "error": ErrorRecord(), "size": shape[dim], "step": out_strides[dim],
        "count": index_shape[dim], "index_step": index_strides[dim], "source_step": source_strides[dim],
        "inner": inner.count, "blocks": blocks, **outer.words(), **inner.words(),
    }  # fmt: skip
    unit_index = index_strides[dim] == 1 and not inner.sizes
    key = f"scatter:{element.name}:{mode}:{outer.fact}:{inner.fact}:{'u' if unit_index else 's'}"
    units = outer.count * blocks
    kernels, starts_as = dense_base(graph, node_index)
    kernels.append(
        describe_code(
            f"scatter_{mode}", key, partial(_scatter, element, mode, outer, inner, unit_index), words,
            reads=reads(graph, *(node.inputs if starts_as else (*node.inputs[1:], node.outputs[0]))),
            writes=(node.outputs[0],), units=units, bytes=index.numel * (8 + 3 * base.dtype.itemsize), nodes=(node_index,),
            fails=INDEX_ERROR, min_units_per_thread=maximum(1, units * THREAD_ELEMENTS // maximum(index.numel, 1)),
            starts_as=starts_as,
        )
    )  # fmt: skip
    return kernels


def _scatter(element: Element, mode: str, outer: Group, inner: Group, unit_index: bool, c: Code) -> None:
    to, source = c.array("to", "i8"), c.array("source", "i8")
    index, error = c.array("index", "i64"), c.array("error", "i64")
    with c.for_(c.named("i64", "%begin"), c.named("i64", "%end")) as u:
        a, block = u, c.i64(0)
        if inner.sizes:
            a = c.divide(u, c.word("blocks"))
            block = u - a * c.word("blocks")
        starts = outer.offsets(c, a)
        low = block * BLOCK
        high = c.min(low + BLOCK, c.word("inner"))

        def step(i: Lanes) -> None:
            at_index = starts[1] + i * c.word("index_step")
            at_source = starts[2] + i * c.word("source_step")

            def point(p: Lanes) -> None:
                offsets = inner.offsets(c, p)
                at = checked_index(c, index[at_index + offsets[1]], c.word("size"), error)
                target = element.at(c, to, starts[0] + offsets[0] + at * c.word("step"))
                element.combine(c, mode, target, element.at(c, source, at_source + offsets[2]), 1, None)

            if inner.sizes:
                with c.for_(low, high) as p:
                    point(p)
            else:
                point(c.i64(0))

        if unit_index:
            whole = c.divide(c.word("count"), VECTOR) * VECTOR
            with c.for_(0, whole, VECTOR) as i:
                # Indices that are neighbours: checked as a vector, then used in order.
                places, outside = wrapped_index(c, index.load(starts[1] + i, VECTOR), c.word("size"))
                any_outside = Lanes(c.b, "i1", 1, outside.any())
                with c.if_(any_outside), c.for_(i, i + VECTOR) as j:
                    step(j)
                with c.else_():
                    for lane in range(VECTOR):
                        target = element.at(c, to, starts[0] + c.extract(places, lane) * c.word("step"))
                        at_source = starts[2] + (i + lane) * c.word("source_step")
                        element.combine(c, mode, target, element.at(c, source, at_source), 1, None)
            with c.for_(whole, c.word("count")) as i:
                step(i)
        else:
            with c.for_(0, c.word("count")) as i:
                step(i)
