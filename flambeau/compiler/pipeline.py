"""The pipeline: graph -> simplify -> fuse -> lower -> schedule -> place -> Plan. Every pass has a name, a count and a time.

    plan = compile_graph(graph)
    outputs = plan.run([buffer, ...], [0.5, 3])

FLAMBEAU_CHECK=1 checks the graph against its specification (`check.py`) after every pass. A simplifying pass is switched off
by its name: `with disabled("casts", "identities"): ...`. `explain.py` prints what the passes did to a graph.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final

from flambeau.compiler import fuse as fusion
from flambeau.compiler import graph as g
from flambeau.compiler import simplify, stored_class_plan, stored_plan
from flambeau.compiler.check import check
from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Address, Kernel
from flambeau.compiler.kernels.host_step import HostCall, make_host_call
from flambeau.compiler.lower import layout
from flambeau.compiler.pieces import place_pieces
from flambeau.compiler.place import place
from flambeau.compiler.plan import Plan
from flambeau.compiler.recompute import recompute
from flambeau.compiler.schedule import Step, schedule
from flambeau.compiler.stored_class_plan import Entry
from flambeau.runtime import claims
from flambeau.runtime.target import Target

if TYPE_CHECKING:
    from flambeau.compiler.kernels.matmul_prepacked import Prepacked


@dataclass(slots=True)
class Counter:
    """Of one pass: how often it ran, the seconds it took, and how many nodes it removed."""

    runs: int = 0
    seconds: float = 0.0
    removed_nodes: int = 0


PASSES: Final[dict[str, Counter]] = {
    name: Counter() for name in (*[n for n, _ in simplify.PASSES], "recompute", "fuse", "lower", "schedule", "place", "assemble", "load")
}
_off: ContextVar[frozenset[str]] = ContextVar("passes switched off", default=frozenset())
USE_STORED: Final = [os.environ.get("FLAMBEAU_STORED_PLANS", "1") not in ("", "0")]  # of earlier processes; tests switch it off
_CHECK: Final = os.environ.get("FLAMBEAU_CHECK", "0") not in ("", "0")


@contextmanager
def disabled(*names: str) -> Iterator[None]:
    """Switch simplifying passes, "recompute" or "fuse", off inside the block."""
    unknown = set(names) - {*[n for n, _ in simplify.PASSES], "recompute", "fuse"}
    if unknown:
        raise ValueError(f"no such pass: {sorted(unknown)}; there are {[n for n, _ in simplify.PASSES] + ['recompute', 'fuse']}")
    token = _off.set(_off.get() | frozenset(names))
    try:
        yield
    finally:
        _off.reset(token)


def compile_graph(
    graph: Graph, *, target: Target | None = None, fuse: bool = True, check_passes: bool | None = None, over_symbols: bool = False,
    entry: Entry | None = None,
) -> Plan:  # fmt: skip
    """Compile a graph; `graph` itself is left as it is. `fuse=False` makes a kernel of every node (for tests). `over_symbols`: see `Plan`; `entry`: of such
    a plan, where it is kept.

    `target`: the machine that it is compiled for, by default this one. A plan for another cannot run here (compiler/objects.py has its code).
    Raises GraphError if checking is on (`check_passes`, by default FLAMBEAU_CHECK) and a pass made an illegal graph.
    """
    graph = replace(graph, target=target or Target.host())
    if graph.target.is_device:
        raise ValueError(f"{graph.target.name} is a GPU: plans are compiled for processors, tile programs for both")
    checking = _CHECK if check_passes is None else check_passes
    off = _off.get()
    if checking or off or not fuse or layout.CHECK[0] or not USE_STORED[0] or not graph.target.is_host or (over_symbols and entry is None):
        return assemble(*_lowered(graph, fuse, checking, off), over_symbols)
    if entry is not None:
        return _over_symbols(graph, entry)
    key = stored_plan.key_of(graph)
    if key is None:
        return assemble(*_lowered(graph))
    stored = _stored(key, graph)
    if stored is not None:
        return stored
    free = claims.claim(key)
    if not free:  # another process makes it just now, most likely another rank of this program
        claims.wait(key)
    try:
        stored = None if free else _stored(key, graph)
        if stored is None:
            stored = assemble(*_lowered(graph))
            stored_plan.store(key, graph, stored)
        return stored
    finally:
        claims.release(key)


def _over_symbols(graph: Graph, entry: Entry) -> Plan:
    """A plan over symbols: from disk, or made now; then its entry says what is needed to keep it."""
    entry.key = None if entry.afresh else stored_class_plan.key_of(graph)
    if entry.key is not None:
        start = perf_counter()
        found = stored_class_plan.load(entry, graph, _lowered)
        _count("load", start)
        if found is not None:
            return found
    plan = assemble(*_lowered(graph), over_symbols=True)
    if entry.key is not None:
        stored_class_plan.made(entry, graph, plan)
    return plan


def _stored(key: str, graph: Graph) -> Plan | None:
    """The plan of a graph that some process has stored, if there is one."""
    start = perf_counter()
    found = stored_plan.load(key, graph, stored_plan.Lowered(partial(_lowered, graph)))
    _count("load", start)
    return found


def _lowered(
    graph: Graph, fuse: bool = True, checking: bool = False, off: frozenset[str] = frozenset()
) -> tuple[Graph, list[list[Step]]]:  # fmt: skip
    """The graph after all passes, and the steps of its groups."""
    if checking:
        check(graph)
    graph = replace(graph, values=list(graph.values))
    for name, function in simplify.PASSES:
        if name not in off:
            graph = _timed_pass(name, function, graph)
            if checking:
                check(graph)
    if fuse and not {"recompute", "fuse"} & off:
        graph = _timed_pass("recompute", recompute, graph)
        if checking:
            check(graph)
    if not fuse or "fuse" in off:
        return graph, _one_by_one(graph)[1]
    start = perf_counter()
    groups = fusion.fuse(graph)
    start = _count("fuse", start)
    prepacked = _prepacked(graph)
    place_pieces(graph, groups)
    steps = [lower_group(graph, group, prepacked) for group in groups]
    _count("lower", start)
    return graph, steps


def assemble(graph: Graph, steps: list[list[Step]], over_symbols: bool = False) -> Plan:
    """Schedule, place and number the steps of all groups."""
    start = perf_counter()
    for step in [step for group in steps for step in group if isinstance(step, Kernel)]:
        step.share()
    order = schedule(graph, steps)
    start = _count("schedule", start)
    placement = place(graph, order, graph.target.workers)
    start = _count("place", start)
    plan = Plan(graph, order, placement, over_symbols=over_symbols)
    _count("assemble", start)
    return plan


def _timed_pass(name: str, function: simplify.Pass, graph: Graph) -> Graph:
    start = perf_counter()
    result = function(graph)
    _count(name, start)
    PASSES[name].removed_nodes += len(graph.nodes) - len(result.nodes)
    return result


def _count(name: str, start: float) -> float:
    now = perf_counter()
    counter = PASSES[name]
    counter.runs += 1
    counter.seconds += now - start
    return now


# -- Lowering: a group becomes steps ----------------------------------------------------------------------------------


def _one_by_one(graph: Graph) -> tuple[list[fusion.Group], list[list[Step]]]:
    """Every node a group of its own: the graph of one node is fused and lowered as any other."""
    groups: list[fusion.Group] = []
    steps: list[list[Step]] = []
    for index, node in enumerate(graph.nodes):
        if node.op in g.VIEWS:
            continue
        alone = Graph(graph.values, [node], graph.inputs, graph.parameters, list(node.outputs), target=graph.target)
        for group in fusion.fuse(alone):
            lowered = lower_group(alone, group)
            for step in lowered:
                step.nodes = (index,)
            groups.append(group)
            steps.append(lowered)
    return groups, steps


def _prepacked(graph: Graph) -> Prepacked | None:
    """The operands that products share; None where there are few products."""
    if [node.op for node in graph.nodes].count("matmul") < 2:
        return None
    from flambeau.compiler.kernels.matmul_prepacked import Prepacked

    return Prepacked(graph)


def lower_group(graph: Graph, group: fusion.Group, prepacked: Prepacked | None = None) -> list[Step]:
    """The steps of one group: kernels, or a host call. `prepacked`: operands that are packed once for several groups."""
    if group.kind == fusion.LOOPS:
        from flambeau.compiler.lower import lower_loops

        return list(lower_loops(graph, group))
    head = group.head if group.head is not None else group.nodes[0]
    node = graph.nodes[head]
    if node.op in g.HOST:
        step = make_host_call(graph, head)
        step.notes += group.notes
        return [step]
    kernels = _head_kernels(graph, group, head, prepacked)
    for kernel in kernels:
        kernel.nodes = group.nodes
    if kernels:
        kernels[0].notes += group.notes
    return list(kernels)


def _head_kernels(graph: Graph, group: fusion.Group, head: int, prepacked: Prepacked | None) -> list[Kernel]:
    """Kernels of a group around one node that is no loop nest."""
    op = graph.nodes[head].op
    if op in g.CONTRACT:
        epilogue = None
        if len(group.nodes) > 1:
            from flambeau.compiler.lower import make_epilogue

            epilogue = make_epilogue(graph, group)
        if op == "matmul":
            from flambeau.compiler.kernels.matmul import make_matmul

            kernels = make_matmul(graph, head, epilogue, prepacked)
        else:
            from flambeau.compiler.kernels.convolution import make_convolution

            kernels = make_convolution(graph, head, epilogue)
        if epilogue is not None:
            _attach(graph, group, kernels)
            for kernel in kernels:  # the raw result and the epilogue's may share a buffer
                shared = [pair for pair in epilogue.in_place if pair[0] in kernel.writes]
                kernel.in_place = (*kernel.in_place, *shared)
        return kernels
    if op in g.ATTENTION:
        from flambeau.compiler.kernels.attention import make_attention

        return make_attention(graph, head)
    if op in g.RECURRENT:
        from flambeau.compiler.kernels.recurrent import make_recurrent

        return make_recurrent(graph, head)
    if op in g.POOL:
        from flambeau.compiler.kernels.pool import make_pool

        return make_pool(graph, head)
    if op in g.CODED:
        if op == "two_of_four_matmul":
            from flambeau.compiler.kernels.two_of_four import make_two_of_four

            return make_two_of_four(graph, head)
        from flambeau.compiler.kernels.coded_matmul import make_coded_matmul

        return make_coded_matmul(graph, head)
    if op in g.FOURIER:
        from flambeau.compiler.kernels.fourier import make_fourier

        return make_fourier(graph, head)
    from flambeau.compiler.kernels.move import make_move

    return make_move(graph, head)


def _attach(graph: Graph, group: fusion.Group, kernels: list[Kernel]) -> None:
    """Let the kernels that run the epilogue name what it reads and writes: every buffer among their words."""
    results = {graph.root(o) for i in group.nodes for o in graph.nodes[i].outputs}
    for kernel in kernels:
        touched = dict.fromkeys(w.value for w in kernel.words if isinstance(w, Address))
        written = [r for r in touched if r in results or r in kernel.writes]
        kernel.writes = tuple(dict.fromkeys((*kernel.writes, *written)))
        kernel.reads = tuple(dict.fromkeys((*kernel.reads, *[r for r in touched if r not in kernel.writes])))


__all__ = ["PASSES", "Counter", "HostCall", "Plan", "assemble", "compile_graph", "disabled", "lower_group"]
