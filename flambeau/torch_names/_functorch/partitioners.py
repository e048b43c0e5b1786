"""torch._functorch.partitioners: a graph of outputs and gradients as two, for the forward and the backward pass: what the first keeps for the second."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from flambeau._ops import OpOverload
from flambeau.export.batching import POINTWISE
from flambeau.export.differentiating import VIEWS
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node, writes
from flambeau.tensor import Tensor


def _outputs(module: GraphModule, count: int) -> tuple[list[Any], list[Any]]:
    """What a joint graph returns: outputs, gradients."""
    found = list(next(n for n in module.graph.nodes if n.op == "output").args[0])
    return found[:count], found[count:]


def _needs(of: Sequence[Any], until: Callable[[Node], bool]) -> set[Node]:
    """The nodes that some nodes depend on, themselves too; not those, nor what they depend on, where `until` says so."""
    found: set[Node] = set()
    todo = [n for n in of if isinstance(n, Node)]
    while todo:
        node = todo.pop()
        if node not in found and not until(node):
            found.add(node)
            todo += node.all_input_nodes
    return found


def _extract(module: GraphModule, inputs: Sequence[Node], kept: set[Node], outputs: Sequence[Any], name: str) -> GraphModule:
    """The part of a graph that computes `outputs` of `inputs` by the nodes in `kept`."""
    graph = Graph()
    where: dict[Node, Node] = {}
    for node in inputs:
        where[node] = graph.placeholder(node.name)
        where[node].meta = dict(node.meta)
    for node in module.graph.nodes:
        if node in kept and node not in where and node.op in ("call_function", "get_attr"):
            where[node] = graph.node_copy(node, where.__getitem__)
    graph.output([where[n] if isinstance(n, Node) else n for n in outputs])
    attributes = {n.target: getattr(module, n.target) for n in graph.nodes if n.op == "get_attr"}
    return GraphModule(attributes, graph, name)


def _split(module: GraphModule, saved: Sequence[Node], count: int) -> tuple[GraphModule, GraphModule]:
    """The two graphs, of which the first returns its outputs and what is saved, and the second takes that and the outputs' gradients."""
    outputs, gradients = _outputs(module, count)
    inputs = [n for n in module.graph.nodes if n.op == "placeholder"]
    primals, tangents = [n for n in inputs if not _is_tangent(n)], [n for n in inputs if _is_tangent(n)]
    effects = [n for n in module.graph.nodes if n.op == "call_function" and writes(n.target)]
    forward = _needs([*outputs, *saved, *[n for n in effects if not _depends(n, set(tangents))]], lambda n: False)
    known = set(saved)
    backward = _needs(gradients, lambda n: n in known)
    return (
        _extract(module, primals, forward, [*outputs, *saved], "GraphModule"), _extract(module, [*saved, *tangents], backward, gradients, "GraphModule"),
    )  # fmt: skip


def _is_tangent(node: Node) -> bool:
    return node.op == "placeholder" and str(node.target).startswith("tangents")


def _depends(node: Node, on: set[Node]) -> bool:
    return bool(_needs([node], lambda n: False) & on)


def _parts(module: GraphModule, count: int) -> tuple[set[Node], set[Node]]:
    """(the nodes of the forward pass, those of the backward pass that depend on the outputs' gradients)."""
    outputs, gradients = _outputs(module, count)
    tangents = {n for n in module.graph.nodes if _is_tangent(n)}
    after: set[Node] = set(tangents)
    for n in module.graph.nodes:
        if any(a in after for a in n.all_input_nodes):
            after.add(n)
    forward = _needs(outputs, lambda n: False)
    forward |= {u for n in forward for u in n.users if u.target is operator.getitem and isinstance(n.meta.get("val"), (list, tuple))}
    return forward, _needs(gradients, lambda n: False) & after


def default_partition(joint_module: GraphModule, _joint_inputs: Any, *, num_fwd_outputs: int, **_: Any) -> tuple[GraphModule, GraphModule]:
    """(forward, backward): all that the forward pass computes and the backward pass asks for is kept."""
    forward, backward = _parts(joint_module, num_fwd_outputs)
    gradients = _outputs(joint_module, num_fwd_outputs)[1]
    asked = _needs(gradients, lambda n: n in forward or n.op == "placeholder")
    saved = [n for n in joint_module.graph.nodes if not _is_tangent(n) and n.op != "get_attr" and (n in forward or n.op == "placeholder")
             and (any(u in asked for u in n.users) or n in gradients) and not isinstance(n.meta.get("val"), (list, tuple))]  # fmt: skip
    return _split(joint_module, saved, num_fwd_outputs)


def _bytes(node: Node) -> float:
    val = node.meta.get("val")
    return float(max(1, int(val.numel()) * val.element_size())) if isinstance(val, Tensor) else 1.0


def _again(node: Node) -> bool:
    """Whether a node is cheap to compute again: pointwise, a view, or one of several results."""
    if node.target is operator.getitem:
        return False
    name = node.target.overloadpacket.__name__ if isinstance(node.target, OpOverload) else ""
    return not writes(node.target) and (name in POINTWISE or name in VIEWS) and name != "empty_like"


def min_cut_rematerialization_partition(
    joint_module: GraphModule, _joint_inputs: Any, compiler: str = "inductor", *, num_fwd_outputs: int, **_: Any,
) -> tuple[GraphModule, GraphModule]:  # fmt: skip
    """(forward, backward): the fewest bytes are kept, and pointwise operations and views are computed again from them (a minimum cut)."""
    forward, backward = _parts(joint_module, num_fwd_outputs)
    nodes = [n for n in joint_module.graph.nodes if n not in backward and not _is_tangent(n) and n.op in ("call_function", "placeholder")]
    flow = _Flow()
    for n in nodes:
        several = isinstance(n.meta.get("val"), (list, tuple))
        flow.join((n, 0), (n, 1), float("inf") if several else _bytes(n))
        if n.op == "placeholder" or (not _again(n) and not several and n.target is not operator.getitem):
            flow.join("source", (n, 0), float("inf"))
        if several:
            flow.join("source", (n, 0), float("inf"))
        for user in n.users:
            if user in backward or (user.op == "output" and n not in _outputs(joint_module, num_fwd_outputs)[0]):
                flow.join((n, 1), "sink", float("inf"))
            elif user in set(nodes) and (_again(user) or user.target is operator.getitem):
                flow.join((n, 1), (user, 0), float("inf"))
    reached = flow.cut("source", "sink")
    saved = [n for n in nodes if (n, 0) in reached and (n, 1) not in reached]
    return _split(joint_module, saved, num_fwd_outputs)


class _Flow:
    """A network, and its minimum cut (Edmonds and Karp 1972)."""

    def __init__(self) -> None:
        self.room: dict[Any, dict[Any, float]] = {}

    def join(self, a: Any, b: Any, room: float) -> None:
        """An edge."""
        self.room.setdefault(a, {})[b] = room
        self.room.setdefault(b, {}).setdefault(a, 0.0)

    def cut(self, source: Any, sink: Any) -> set[Any]:
        """What can be reached from the source when no more flows."""
        while True:
            before: dict[Any, Any] = {source: None}
            todo = deque([source])
            while todo and sink not in before:
                a = todo.popleft()
                for b, room in self.room.get(a, {}).items():
                    if room > 0 and b not in before:
                        before[b] = a
                        todo.append(b)
            if sink not in before:
                return set(before)
            way, b = [], sink
            while before[b] is not None:
                way.append((before[b], b))
                b = before[b]
            least = min([self.room[a][b] for a, b in way])
            if least == float("inf"):
                raise RuntimeError("min_cut_rematerialization_partition: a backward pass asks for something that can neither be kept nor computed again")
            for a, b in way:
                self.room[a][b] -= least
                self.room[b][a] += least
