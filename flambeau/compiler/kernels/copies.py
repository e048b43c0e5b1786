"""Data movement: the base of a write by index, brought into the result's buffer.

A write by index (put, put_rows, scatter) changes some elements of a copy of its base. Where the base is a whole dense
buffer the planner shares or copies it (`Kernel.starts_as`); any other base is copied by a kernel of its own, here.
"""

from __future__ import annotations

from functools import partial

from flambeau.compiler.emit.code import OF_BYTES, Code
from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Kernel, Word
from flambeau.compiler.kernels.description import describe_code
from flambeau.compiler.kernels.move_layout import Group, address, group, is_whole, reads

# Elements that a thread should have to copy before a further one is worth starting.
THREAD_ELEMENTS = 1 << 14


def dense_base(graph: Graph, node_index: int) -> tuple[list[Kernel], tuple[tuple[int, int], ...]]:
    """(kernels that must run first, `starts_as` of the kernel that writes) for a node whose first input is the base."""
    node = graph.nodes[node_index]
    # A base that is also the source or the index must stay as it is while it is read (ones.scatter_add(0, index, ones)).
    shared = graph.root(node.inputs[0]) in [graph.root(value) for value in node.inputs[1:]]
    if is_whole(graph, node.inputs[0]) and not shared:
        return [], ((node.outputs[0], graph.root(node.inputs[0])),)
    return [strided_copy(graph, node.inputs[0], node.outputs[0], node_index)], ()


def strided_copy(graph: Graph, source: int, to: int, node_index: int) -> Kernel:
    """Copy value `source`, of any strides, to the contiguous value `to` of as many elements."""
    value = graph.values[source]
    itemsize = value.dtype.itemsize
    dims = group("dims", value.shape, value.strides)
    words: dict[str, Word] = {"source": address(graph, source), "to": address(graph, to), **dims.words()}
    key = f"strided_copy:{itemsize}:{dims.fact}"
    return describe_code(
        "copy_base", key, partial(_copy, itemsize, dims), words, reads=reads(graph, source), writes=(to,), units=value.numel,
        bytes=2 * value.numel * itemsize, nodes=(node_index,), min_units_per_thread=THREAD_ELEMENTS,
    )  # fmt: skip


def _copy(itemsize: int, dims: Group, c: Code) -> None:
    source, to = c.array("source", OF_BYTES[itemsize]), c.array("to", OF_BYTES[itemsize])
    begin, end = c.named("i64", "%begin"), c.named("i64", "%end")
    if len(dims.sizes) < 2:
        with c.for_(begin, end) as i:
            to.store(i, source[dims.offsets(c, i)[0]])
        return
    # Rows along the last dim: one division a row, not one an element.
    last = len(dims.sizes) - 1
    size = c.word(f"dims_size{last}")
    stride = c.i64(1) if dims.strides[0][-1] == 1 else c.word(f"dims_stride0_{last}")
    with c.for_(c.divide(begin, size), c.divide(end - 1, size) + 1) as r:
        first = r * size
        start = dims.offsets(c, first)[0]
        low, high = c.max(begin - first, 0), c.min(end - first, size)
        with c.for_(low, high) as i:
            to.store(first + i, source[start + i * stride])
