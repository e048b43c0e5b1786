"""Attention's gradients as pieces of a concatenation: written where the whole wants them.

Where queries, keys and values are cut out of one projection, their gradients are concatenated along its last dim, for the
gradient of the projection. Each gradient is a matrix of rows there, and the kernel writes rows at any distance: so the
gradients become views of the whole, and nothing is left to copy. (`schedule.make_pieces` does this for pieces that are
dense in the whole, whoever writes them.)
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import prod

from flambeau.compiler.graph import VIEWS, Graph, Node, Value


def place_gradients(graph: Graph, least_heads: int) -> None:
    """Make the gradients of attention that are only concatenated views of the whole; `least_heads`: with fewer, the kernel's
    results are sums of parts. Changes `graph.values`, after fusion."""
    makers = {o: node for node in graph.nodes if node.op == "attention_gradient" for o in node.outputs}
    if not makers:
        return
    seen = {*graph.outputs, *(value for _, value in graph.updates)}
    uses = Counter(graph.root(value) for node in graph.nodes if node.op not in VIEWS for value in {*node.inputs})
    for node in graph.nodes:
        if node.op != "concatenate" or node.outputs[0] in seen:
            continue
        roots = [graph.root(value) for value in node.inputs]
        first = makers.get(roots[0])
        if first is None or set(roots) != set(first.outputs) or prod(graph.values[roots[0]].shape[:-2]) < least_heads:
            continue
        if len(roots) != len(first.outputs) or any(uses[root] > 1 or root in seen for root in roots):
            continue
        places = [_place(graph, node, at, start) for at, start in enumerate(_starts(graph, node))]
        if all(place is not None for place in places):
            for root, place in zip(roots, places, strict=True):
                if place is not None:
                    graph.values[root] = place


def is_placed(graph: Graph, node: Node) -> bool:
    """Whether the inputs of a concatenation have been written into its result."""
    return bool(node.inputs) and all(graph.values[graph.root(value)].base == node.outputs[0] for value in node.inputs)


def _starts(graph: Graph, node: Node) -> list[int]:
    """Where each input begins along the dim."""
    dim = node.attr("dim")
    starts = [0]
    for value in node.inputs[:-1]:
        starts.append(starts[-1] + graph.values[value].shape[dim])
    return starts


def _place(graph: Graph, node: Node, at: int, start: int) -> Value | None:
    """The root of input `at` as a view of the whole; None if it is not all of its root, or in another order."""
    whole_id = node.outputs[0]
    piece, whole = graph.values[node.inputs[at]], graph.values[whole_id]
    value = graph.values[graph.root(node.inputs[at])]
    if piece.numel != value.numel or piece.offset or piece.dynamic or piece.dtype is not value.dtype or value.dtype is not whole.dtype:
        return None
    strides = []
    reached = [0] * len(piece.shape)  # how far the value's dims go along each of the piece's
    for size, stride in zip(value.shape, value.strides, strict=True):
        if size == 1:
            strides.append(1)
            continue
        fitting = [d for d, step in enumerate(piece.strides) if piece.shape[d] > 1 and step > 0 and stride % step == 0]
        if not fitting:
            return None
        d = max(fitting, key=lambda d: piece.strides[d])
        reached[d] += (size - 1) * (stride // piece.strides[d])
        strides.append(stride // piece.strides[d] * whole.strides[d])
    if any(far >= size for far, size in zip(reached, piece.shape, strict=True)):
        return None
    return replace(value, strides=tuple(strides), offset=start * whole.strides[node.attr("dim")], base=whole_id)
