"""The step of a plan that Python does: a `host_call` node. Without NumPy, which only plans that have such a step load (host.py)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from flambeau.compiler.graph import Graph


@dataclass(slots=True)
class HostCall:
    """A step of a plan that Python does. `inputs` and `outputs` are value ids; `reads` and `writes` their roots."""

    name: str
    key: str
    function: str
    kwargs: dict[str, Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    bytes: int
    nodes: tuple[int, ...]
    operations: int = 0
    notes: list[str] = field(default_factory=list)


def make_host_call(graph: Graph, node_index: int) -> HostCall:
    """The step of a `host_call` node. KeyError if there is no such function."""
    from flambeau.compiler.kernels.host import FUNCTIONS

    node = graph.nodes[node_index]
    function = node.attr("function")
    if function not in FUNCTIONS:
        raise KeyError(f"host_call: unknown function {function!r}; known: {', '.join(sorted(FUNCTIONS))}")
    kwargs = dict(dict(node.attrs).get("kwargs", ()))
    reads = tuple(dict.fromkeys(graph.root(i) for i in node.inputs))
    values = [graph.values[i] for i in (*node.inputs, *node.outputs)]
    traffic = sum(v.numel * v.dtype.itemsize for v in values)
    return HostCall(function, f"host:{function}", function, kwargs, node.inputs, node.outputs, reads, node.outputs, traffic,
                    (node_index,))  # fmt: skip
