"""Whole buffers: copy one, or clear one. `place` and `schedule` insert these kernels; no node of a graph is one."""

from __future__ import annotations

from typing import Final

from flambeau.compiler.emit.builder import Builder
from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Address, Kernel
from flambeau.compiler.kernels.description import describe

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
