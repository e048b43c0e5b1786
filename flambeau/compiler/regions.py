"""Regions of a buffer that writes through views touch: whether they meet, whether they fill it, what is under them.

A chain of scatter_views of disjoint regions (the gradient of a split) is one group of kernels without order between
them, and needs no base where they cover everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from flambeau.compiler.graph import Graph, Node


def are_disjoint(a: Node, b: Node) -> bool:
    """Whether two scatter_views touch no element twice, as far as that can be seen: same strides, static offsets, and
    apart along one dim that the dims inside it do not step over."""
    if a.attr("multipliers") or b.attr("multipliers") or a.attr("strides") != b.attr("strides"):
        return False
    first, second = (a, b) if a.attr("offset") <= b.attr("offset") else (b, a)
    distance = second.attr("offset") - first.attr("offset")
    dims = sorted(
        (stride, m, n)
        for stride, m, n in zip(a.attr("strides"), first.attr("shape"), second.attr("shape"), strict=True)
        if stride > 0
    )
    if len(dims) != len(a.attr("strides")):
        return False
    span = 0  # of the dims inside, over both regions
    for i, (stride, m, n) in enumerate(dims):
        if stride <= span:
            return False
        steps, rest = divmod(distance, stride)
        outer = dims[i + 1][0] if i + 1 < len(dims) else None
        if rest == 0 and steps >= m and (outer is None or (steps + n - 1) * stride + span < outer):
            return True
        span += (max(m, n) - 1) * stride
    return False


def fill_value(graph: Graph, root: int) -> complex | None:
    """The number that every element of a root has, if its producer says so: a copy of an expanded constant."""
    producers = {value: node for node in graph.nodes for value in node.outputs}
    node = producers.get(root)
    while node is not None and node.op == "copy":
        node = producers.get(graph.root(node.inputs[0]))
    value: complex | None = node.attr("value") if node is not None and node.op == "constant" else None
    return value


def covers(graph: Graph, nodes: Sequence[Node]) -> bool:
    """Whether disjoint scatter_views together write every element of their result."""
    touched: int = sum(prod(node.attr("shape")) for node in nodes)
    return touched == graph.values[nodes[-1].outputs[0]].numel


def needs_base(graph: Graph, nodes: Sequence[Node]) -> bool:
    """Whether a chain of scatter_views reads the base of the first from memory."""
    return not covers(graph, nodes) and fill_value(graph, graph.root(nodes[0].inputs[0])) is None
