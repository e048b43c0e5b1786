"""Regions of a buffer that writes through views touch: whether they meet, whether they fill it, what is under them.

A chain of scatter_views of disjoint regions (the gradient of a split) is one group of kernels without order between
them, and needs no base where they cover everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod

from flambeau.compiler.graph import Graph, Node, may_repeat

Region = tuple[tuple[int, ...], tuple[int, ...], int]  # (shape, strides, offset) of elements in a buffer


def are_disjoint(a: Node, b: Node) -> bool:
    """Whether two scatter_views touch no element twice, as far as that can be seen."""
    return not (a.attr("multipliers") or b.attr("multipliers")) and are_apart(_written(a), _written(b))


def _written(node: Node) -> Region:
    return tuple(node.attr("shape")), tuple(node.attr("strides")), node.attr("offset")


def are_apart(a: Region, b: Region) -> bool:
    """Whether two regions have no element in common, as far as that can be seen: one ends before the other begins, or no sum of
    strides leads from one to the other, or they have the same strides and are apart along one dim that the dims inside it do not
    step over."""
    first, second = (a, b) if a[2] <= b[2] else (b, a)
    distance = second[2] - first[2]
    if min((*a[1], *b[1], 0)) < 0:
        return False
    if distance > sum([(size - 1) * stride for size, stride in zip(first[0], first[1], strict=True)]):
        return True
    if distance % (gcd(*first[1], *second[1]) or 1):
        return True
    if first[1] != second[1]:
        return False
    dims = sorted((stride, m, n) for stride, m, n in zip(first[1], first[0], second[0], strict=True) if stride > 0)
    if len(dims) != len(first[1]):
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


def reads_beside(graph: Graph, node: Node) -> bool:
    """Whether a scatter_view may read its source from the very buffer that it writes to: no element is written before it is read.

    A copy that the program made of the source may be gone by now (`v[1:] = v[:-1].clone()`), so the source must be another buffer's,
    or apart from what is written, or the same elements.
    """
    source = graph.values[node.inputs[1]]
    if graph.root(node.inputs[1]) != graph.root(node.inputs[0]):
        return True
    written = _written(node)
    dynamic = tuple(zip(node.inputs[2:], node.attr("multipliers"), strict=True))
    if (source.strides, source.offset, source.dynamic) == (written[1], written[2], dynamic):
        return True
    return not (source.dynamic or dynamic) and are_apart((source.shape, source.strides, source.offset), written)


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
    return touched == graph.values[nodes[-1].outputs[0]].numel and not any(may_repeat(node.attr("shape"), node.attr("strides")) for node in nodes)


def needs_base(graph: Graph, nodes: Sequence[Node]) -> bool:
    """Whether a chain of scatter_views reads the base of the first from memory."""
    return not covers(graph, nodes) and fill_value(graph, graph.root(nodes[0].inputs[0])) is None
