"""From a recorded program to a plan of shaders: the compiler's passes and groups, and for each group its kernels.

The passes are those of all targets. What a pass decides by costs it decides as for WebAssembly: it never changes what is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final

from flambeau.compiler import fuse as fusion
from flambeau.compiler import graph as g
from flambeau.compiler import simplify
from flambeau.compiler.fuse import Group, describe
from flambeau.compiler.graph import Graph, Node
from flambeau.compiler.lower import fill_body, nest_body, region_body
from flambeau.compiler.recompute import recompute
from flambeau.compiler.regions import covers, fill_value
from flambeau.deploy.errors import BuildError
from flambeau.deploy.record import Recorded, record
from flambeau.deploy.variants import Planned, Sizes, guards_of
from flambeau.deploy.webgpu import moves, products
from flambeau.deploy.webgpu.attention import attention
from flambeau.deploy.webgpu.loops import nest
from flambeau.deploy.webgpu.shader import Kernel, Memory, Place
from flambeau.export.program import ExportedProgram
from flambeau.runtime.target import Target
from flambeau.symbols import at_sizes
from flambeau.trace.while_set import while_set


@dataclass(frozen=True)
class Block:
    """A part of the arena: the words of a root, and the steps between which it is needed. Step -1: it is there before the first one."""

    root: int
    words: Any
    first: int
    last: int


@dataclass(kw_only=True)
class Variant(Planned):
    """A plan of shaders, and where its values lie."""

    graph: Graph
    kernels: list[Kernel]
    blocks: list[Block]

    @property
    def parts(self) -> str:
        """How much there is, for people."""
        return f"{len(self.kernels)} shaders"


def make(program: ExportedProgram, weights: Callable[[Recorded], dict[str, int]], sizes: Sizes) -> Variant:
    """The plan of a program over its symbols, decided at these sizes. `weights`: where tensors begin in the file of weights, by name."""
    recorded = record(program, sizes)
    if recorded.graph.parameters:
        raise BuildError("the program has run-time numbers, which a plan for WebGPU has not yet; make them constants of the program")
    begins = weights(recorded)

    def planned() -> tuple[Graph, list[Kernel]]:
        graph = _optimised(recorded.graph)
        memory = Memory(graph, {graph.inputs[at]: begins[name] for at, name in recorded.held})
        return graph, [kernel for group in fusion.fuse(graph) for kernel in _kernels(memory, group)]

    graph, kernels = while_set(recorded.recording, "texts", True, planned)
    guards, holds = guards_of(recorded, sizes)
    return Variant(recorded=recorded, graph=graph, kernels=kernels, blocks=_blocks(graph, recorded, kernels), made_at=tuple(sizes), guards=guards, holds=holds)


def agree(known: Variant, new: Variant, sizes: Sizes) -> bool:
    """Whether two plans are the same at these sizes: the same shaders with the same numbers over blocks with the same lives."""
    return _numbers(known, sizes) == _numbers(new, sizes)


def _numbers(variant: Variant, sizes: Sizes) -> Any:
    plain = at_sizes(sizes)
    number = {block.root: at for at, block in enumerate(variant.blocks)}
    kernels = [(k.text, [("place", number[x.root]) if isinstance(x, Place) else plain(x) for x in k.words], plain(k.groups)) for k in variant.kernels]
    return kernels, [(plain(b.words), b.first, b.last) for b in variant.blocks]


def _optimised(graph: Graph) -> Graph:
    graph = replace(graph, values=list(graph.values), target=Target.named("wasm32"))
    for _, function in simplify.PASSES:
        graph = function(graph)
    return recompute(graph)


# -- groups -----------------------------------------------------------------------------------------------------------
_HEADS: Final[dict[str, Callable[[Memory, Node], Kernel]]] = {
    "attention": attention, "take_rows": moves.take_rows, "gather": moves.gather, "max_pool": moves.pool, "average_pool": moves.pool,
    **dict.fromkeys(g.SCAN, moves.scan),
}  # fmt: skip


def _kernels(memory: Memory, group: Group) -> list[Kernel]:
    """The kernels of one group, in order."""
    graph = memory.graph
    node = graph.nodes[group.head if group.head is not None else group.nodes[0]]
    if all(prod(graph.values[o].shape) == 0 for i in group.nodes for o in graph.nodes[i].outputs):
        return []
    if group.kind == fusion.LOOPS:
        if group.head is None:
            return [nest(memory, *nest_body(graph, group), describe(graph, group))]
        return _concatenate(memory, node) if node.op == "concatenate" else _scatter_view(memory, group)
    if node.op == "matmul":
        return [products.matmul(memory, group)]
    if node.op == "convolution":
        return [products.convolution(memory, group)]
    if node.op == "coded_matmul":
        return [products.coded(memory, group)]
    if node.op in _HEADS:
        return [_HEADS[node.op](memory, node)]
    raise BuildError(f"{node.op} is not there in WGSL yet: take it out of the model, or build it for wasm32")


def _copied(memory: Memory, source: int, root: int, strides: tuple[Any, ...], offset: Any, name: str) -> Kernel:
    return nest(memory, *region_body(memory.graph, source, root, strides, offset), name)


def _concatenate(memory: Memory, node: Node) -> list[Kernel]:
    values, root, dim = memory.graph.values, node.outputs[0], node.attr("dim")
    kernels: list[Kernel] = []
    start: Any = 0
    for source in node.inputs:
        if prod(values[source].shape) != 0:
            kernels.append(_copied(memory, source, root, values[root].strides, start * values[root].strides[dim], "concatenate"))
        start = start + values[source].shape[dim]
    return kernels


def _scatter_view(memory: Memory, group: Group) -> list[Kernel]:
    """Writes of regions over a copy of the base, over a number, or over nothing where they cover the result."""
    graph = memory.graph
    nodes = [graph.nodes[i] for i in group.nodes]
    base, root = nodes[0].inputs[0], nodes[-1].outputs[0]
    if any(len(node.inputs) > 2 for node in nodes):
        raise BuildError("a write where a run-time number says is not there in WGSL yet; make it a constant of the program")
    value = fill_value(graph, graph.root(base))
    first: list[Kernel] = []
    if not covers(graph, nodes):
        first = [nest(memory, *fill_body(graph, root, value), "fill") if value is not None
                 else _copied(memory, base, root, graph.values[root].strides, 0, "copy")]  # fmt: skip
    writes = [_copied(memory, node.inputs[1], root, tuple(node.attr("strides")), node.attr("offset"), "scatter_view")
              for node in nodes if prod(graph.values[node.inputs[1]].shape) != 0]  # fmt: skip
    return first + writes


# -- memory -----------------------------------------------------------------------------------------------------------
def _blocks(graph: Graph, recorded: Recorded, kernels: Sequence[Kernel]) -> list[Block]:
    """What lies in the arena, and when: inputs from the start, results to the end, everything else from its first writer to its last reader."""
    end = len(kernels)
    given = [graph.inputs[at] for at in recorded.inputs]
    lives: dict[int, list[int]] = {root: [-1, end] for root in given}  # an input stays: the next call may give the same sizes
    for root in graph.outputs:
        lives[root] = [-1, end]
    for at, kernel in enumerate(kernels):
        for root in (*kernel.writes, *kernel.reads):
            life = lives.setdefault(root, [at, at])
            life[1] = max(life[1], at)
    return [Block(root, prod(graph.values[root].shape), *life) for root, life in lives.items()]
