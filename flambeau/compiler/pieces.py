"""Pieces of a concatenation that are written where the whole wants them: views of it, with nothing left to copy.

Gates of a recurrent cell are cut out of one product, queries, keys and values out of one projection: their gradients are
concatenated along the last dim. Kernels that write rows at any distance can write them there at once. (`schedule.make_pieces`
does this for pieces that are dense in the whole, whoever writes them.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Final

from flambeau.compiler import fuse as fusion
from flambeau.compiler.graph import REDUCE, REDUCE_PAIR, VIEWS, Graph, Node, Value

# Elements of a piece that lie together in the whole, at least: a cache line of float32. Shorter ones are better copied by a
# kernel that writes the whole in its order.
_SHORTEST: Final = 16


def place_pieces(graph: Graph, groups: Sequence[fusion.Group]) -> None:
    """Make results of one kernel that are only concatenated views of the whole. Changes `graph.values`, after fusion."""
    if not any(node.op == "concatenate" for node in graph.nodes):
        return
    makers = _makers(graph, groups)
    if not makers:
        return
    seen = {*graph.outputs, *(value for _, value in graph.updates)}
    uses = Counter(graph.root(value) for node in graph.nodes if node.op not in VIEWS for value in {*node.inputs})
    for node in graph.nodes:
        if node.op != "concatenate" or node.outputs[0] in seen:
            continue
        roots = [graph.root(value) for value in node.inputs]
        maker = makers.get(roots[0])
        if maker is None or len(set(roots)) != len(roots) or any(makers.get(root) != maker for root in roots):
            continue
        if any(uses[root] > 1 or root in seen for root in roots):
            continue
        least = _SHORTEST if groups[maker].kind == fusion.LOOPS else 2
        places = [_place(graph, node, at, start, least) for at, start in enumerate(_starts(graph, node))]
        if all(place is not None for place in places):
            for root, place in zip(roots, places, strict=True):
                if place is not None:
                    graph.values[root] = place


def _makers(graph: Graph, groups: Sequence[fusion.Group]) -> dict[int, int]:
    """For values that may become views, what makes them: the number of a group of pointwise operations, after a matrix product
    or not, or of attention's gradients."""
    makers: dict[int, int] = {}
    for number, group in enumerate(groups):
        ops = [graph.nodes[index].op for index in group.nodes]
        if ops == ["attention_gradient"]:
            from flambeau.compiler.kernels.attention import LEAST_HEADS

            outputs = graph.nodes[group.nodes[0]].outputs
            if prod(graph.values[outputs[0]].shape[:-2]) >= LEAST_HEADS:  # else they are sums of parts
                makers |= dict.fromkeys(outputs, number)
        elif group.kind == "matmul" and group.head is not None:
            result = graph.nodes[group.head].outputs[0]
            makers |= dict.fromkeys([value for value in group.outputs if value != result], number)
        elif group.kind == fusion.LOOPS and group.head is None and not any(op in REDUCE or op in REDUCE_PAIR for op in ops):
            makers |= dict.fromkeys(group.outputs, number)
    return makers


def is_placed(graph: Graph, node: Node) -> bool:
    """Whether the inputs of a concatenation have been written into its result."""
    whole = node.outputs[0]
    return bool(node.inputs) and all(whole in (graph.root(value), graph.values[graph.root(value)].base) for value in node.inputs)


def _starts(graph: Graph, node: Node) -> list[int]:
    """Where each input begins along the dim."""
    dim = node.attr("dim")
    starts = [0]
    for value in node.inputs[:-1]:
        starts.append(starts[-1] + graph.values[value].shape[dim])
    return starts


def _place(graph: Graph, node: Node, at: int, start: int, least: int) -> Value | None:
    """The root of input `at` as a view of the whole; None if it is not all of its root, or in another order, or if fewer than
    `least` elements lie together."""
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
    together = [size for size, stride, placed in zip(value.shape, value.strides, strides, strict=True) if stride == placed == 1 < size]
    if max(together, default=0) < least:
        return None
    return replace(value, strides=tuple(strides), offset=start * whole.strides[node.attr("dim")], base=whole_id)
