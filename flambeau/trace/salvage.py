"""After a run that failed (an index out of range in one operation): what does not need the failing one is computed."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from flambeau.compiler.graph import Graph
from flambeau.trace.state import State
from flambeau.trace.storage import Storage

if TYPE_CHECKING:
    from flambeau.compiler.plan import Plan
    from flambeau.tensor import Tensor
    from flambeau.trace.evaluate import TracePlan

# Primitives whose run can end in an error: those that follow indices, and the host's decompositions.
_FALLIBLE = frozenset(("gather", "scatter", "take_rows", "put_rows", "put", "host_call"))
_UNKNOWN = -1
MAX_RUNS = 32  # sets of fallible operations that are tried, each by a plan of its own


def salvage(plan: TracePlan, state: State, tensors: list[Tensor], inputs: list[Any], params: list[Any]) -> None:
    """Compute what can be of the values that a failed plan should have made, those that share their fallible operations
    together; then do the writes to memory that exists (`inputs`, which the failed run has left as it was) that the program
    made before the operation that fails: what it wrote after it, an eager program would not have reached. Where the run may
    have written already, because one kernel makes the new content and something that the failing one reads, nothing is tried."""
    from flambeau.compiler.pipeline import compile_graph
    from flambeau.trace.evaluate import contents_of, graph_of

    whole = graph_of(state)
    writes = contents_of(state)
    needs = _fallible_below(whole, _perhaps_written(plan.plan))
    groups: dict[frozenset[int], dict[int, list[Tensor]]] = {}
    for position, _ in plan.assign:
        t = tensors[position]
        root = t._slot if t._storage is None or t._storage.slot < 0 else t._storage.slot
        groups.setdefault(needs.get(root, frozenset()), {}).setdefault(root, []).append(t)
    for slot in whole.inputs:
        for root in writes.get(slot, ()):
            groups.setdefault(needs.get(root, frozenset()), {}).setdefault(root, [])
    sound: set[int] = {_UNKNOWN}
    possible = [(fallible, wanted) for fallible, wanted in groups.items() if _UNKNOWN not in fallible]
    for fallible, wanted in sorted(possible, key=lambda item: len(item[0]))[:MAX_RUNS]:
        graph = graph_of(state)
        graph.outputs = list(wanted)
        try:
            buffers = compile_graph(graph).run(inputs, params)
        except Exception:  # the failing operation is among them: these values stay without
            continue
        sound |= fallible
        for buffer, owners in zip(buffers, wanted.values(), strict=True):
            for t in owners:
                if t._storage is None:
                    t._storage = Storage()
                t._storage.gen = -1
                t._storage.buffer = buffer
    failing = min(frozenset().union(*groups) - sound, default=0)
    made_by = {value: index for index, node in enumerate(whole.nodes) for value in node.outputs}
    last: dict[int, int] = {}  # by input: its last content before the failing operation
    for i, slot in enumerate(whole.inputs):
        for root in writes.get(slot, ()):
            if made_by.get(root, -1) < failing and _UNKNOWN not in needs.get(root, ()):
                last[i] = root
    if last:
        graph = graph_of(state)
        graph.outputs = list(dict.fromkeys(last.values()))
        contents = dict(zip(graph.outputs, compile_graph(graph).run(inputs, params), strict=True))
        for i, root in last.items():
            ctypes.memmove(inputs[i].address, contents[root].address, inputs[i].nbytes)


def _fallible_below(graph: Graph, unknown: set[int]) -> dict[int, frozenset[int]]:
    """For every value that needs some: the fallible nodes that it needs, and _UNKNOWN if it needs an input that is."""
    needs: dict[int, frozenset[int]] = {graph.inputs[i]: frozenset((_UNKNOWN,)) for i in unknown}
    for index, node in enumerate(graph.nodes):
        found = frozenset((index,)) if node.op in _FALLIBLE else frozenset()
        for value in node.inputs:
            found |= needs.get(value, frozenset()) | needs.get(graph.root(value), frozenset())
        if found:
            for value in node.outputs:
                needs[value] = found
    return needs


def _perhaps_written(plan: Plan) -> set[int]:
    """Inputs whose new content a kernel writes that must run before some fallible one."""
    graph = plan.graph
    written = {root: i for i, root in graph.updates}
    early: set[int] = set()  # values that fallible nodes need
    for node in reversed(graph.nodes):
        if node.op in _FALLIBLE or any(value in early for value in node.outputs):
            early.update(node.inputs)
            early.update(graph.root(value) for value in node.inputs)
    found: set[int] = set()
    for step in plan.steps:
        made = {value for index in step.nodes for value in graph.nodes[index].outputs}
        if made & early:
            found.update(written[root] for root in made if root in written)
    return found
