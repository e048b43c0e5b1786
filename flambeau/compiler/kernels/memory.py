"""Whole buffers: copy one, or clear one. `place` and `schedule` insert these kernels; no node of a graph is one."""

from __future__ import annotations

from functools import partial
from typing import Final

from flambeau.compiler.emit.builder import KERNEL_HEADER, Builder, module
from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Address, Kernel
from flambeau.runtime.target import Target

BLOCK: Final = 4096  # bytes of a unit: a page


def copy_kernel(graph: Graph, source: int, to: int) -> Kernel:
    """Copy the buffer of root `source` to that of root `to`, byte for byte; both have the same size."""
    nbytes = graph.values[to].nbytes
    return Kernel(
        name="copy_buffer", key="memory:copy", emit=partial(_emit, "memory:copy"),
        words=[Address(to), Address(source), nbytes], reads=(source,), writes=(to,), units=-(-nbytes // BLOCK),
        bytes=2 * nbytes, min_units_per_thread=64,
    )  # fmt: skip


def clear_kernel(graph: Graph, to: int) -> Kernel:
    """Fill the buffer of root `to` with zero bytes."""
    nbytes = graph.values[to].nbytes
    return Kernel(
        name="clear_buffer", key="memory:clear", emit=partial(_emit, "memory:clear"), words=[Address(to), nbytes],
        reads=(), writes=(to,), units=-(-nbytes // BLOCK), bytes=nbytes, min_units_per_thread=64,
    )  # fmt: skip


def _emit(key: str, target: Target) -> str:
    from flambeau.runtime.jit import symbol

    copies = key == "memory:copy"
    b = Builder(target)
    to = b.load("ptr", "%args", 8)
    source = b.load("ptr", b.gep("i64", "%args", 1), 8) if copies else ""
    nbytes = b.load("i64", b.gep("i64", "%args", 2 if copies else 1), 8)
    first = b.mul("%begin", BLOCK)
    count = b.sub(b.min(b.mul("%end", BLOCK), nbytes), first)
    start = b.gep("i8", to, first)
    if copies:
        arguments = [("ptr", start), ("ptr", b.gep("i8", source, first)), ("i64", count), ("i1", "false")]
        b.call("void", "llvm.memcpy.p0.p0.i64", arguments)
    else:
        b.call("void", "llvm.memset.p0.i64", [("ptr", start), ("i8", "0"), ("i64", count), ("i1", "false")])
    return module([b.function(KERNEL_HEADER.format(name=symbol(key)), "ret i64 0")], b.declarations, target)
