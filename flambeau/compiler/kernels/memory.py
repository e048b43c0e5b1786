"""Whole buffers: copy one, or clear one. `place` and `schedule` insert these kernels; no node of a graph is one."""

from __future__ import annotations

from functools import partial
from typing import Final

from flambeau.compiler.emit.builder import Builder
from flambeau.compiler.emit.code import OF_BYTES, Code
from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Address, Kernel, Word
from flambeau.compiler.kernels.description import describe, describe_code
from flambeau.compiler.kernels.move_layout import Group, address, group, is_whole, reads

BLOCK: Final = 4096  # bytes of a unit: a page


def copy_kernel(graph: Graph, source: int, to: int) -> Kernel:
    """Copy the buffer of root `source` to that of root `to`, byte for byte; both have the same size."""
    nbytes = graph.values[to].nbytes
    return describe(
        "copy_buffer", "memory:copy", _move, {"to": Address(to), "source": Address(source), "bytes": nbytes}, reads=(source,), writes=(to,),
        units=-(-nbytes // BLOCK),
        bytes=2 * nbytes, min_units_per_thread=64,
    )  # fmt: skip


def clear_kernel(graph: Graph, to: int) -> Kernel:
    """Fill the buffer of root `to` with zero bytes."""
    nbytes = graph.values[to].nbytes
    return describe(
        "clear_buffer", "memory:clear", _move, {"to": Address(to), "bytes": nbytes}, reads=(), writes=(to,), units=-(-nbytes // BLOCK), bytes=nbytes,
        min_units_per_thread=64,
    )  # fmt: skip


def _move(b: Builder, w: dict[str, str]) -> None:
    first = b.mul("%begin", BLOCK)
    count = b.sub(b.min(b.mul("%end", BLOCK), w["bytes"]), first)
    start = b.gep("i8", w["to"], first)
    if "source" in w:
        arguments = [("ptr", start), ("ptr", b.gep("i8", w["source"], first)), ("i64", count), ("i1", "false")]
        b.call("void", "llvm.memcpy.p0.p0.i64", arguments)
    else:
        b.call("void", "llvm.memset.p0.i64", [("ptr", start), ("i8", "0"), ("i64", count), ("i1", "false")])


# -- The base of a write by index, brought into the result's buffer --------------------------------------------------
# A write by index (put, put_rows, scatter) changes some elements of a copy of its base. Where the base is a whole dense
# buffer the planner shares or copies it (`Kernel.starts_as`); any other base is copied by a kernel of its own, here.


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
