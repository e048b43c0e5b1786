"""Products that get no epilogue, because what follows them is reduced: the backward pass of a layer norm, for instance.

An epilogue cannot hold a reduction. Where the pointwise nodes after a product are summed along rows or columns and walk
several arrays beside it, the epilogue would write every value that is summed, for another kernel to read. One kernel after
the product, with the reductions inside, reads the product once. (Measured: GPT of 4 x 128, a layer norm's backward pass, 93
against 118 us.)
"""

from __future__ import annotations

from typing import Final

from flambeau.compiler import graph as g
from flambeau.compiler.graph import Graph, Node
from flambeau.compiler.recompute import levels

# Arrays as large as the product that its epilogue reads or writes beside it, at most, up to this size of the product.
MAX_STREAMS: Final = 2
MAX_STREAMED_BYTES: Final = 4 << 20


def products_apart(graph: Graph) -> frozenset[int]:
    """Indices of the matmul nodes whose followers are better fused with the reductions after them."""
    heads = [index for index, node in enumerate(graph.nodes) if node.op == "matmul"]
    if not heads or not any(node.op in g.REDUCE for node in graph.nodes):
        return frozenset()
    values = graph.values
    level = levels(graph)
    readers: dict[int, list[int]] = {}
    late: dict[int, Node] = {graph.nodes[i].outputs[0]: graph.nodes[i] for i in graph.late}
    for index, node in enumerate(graph.nodes):
        if node.op not in g.VIEWS:
            for root in {graph.root(i) for i in node.inputs}:
                readers.setdefault(root, []).append(index)
    found = []
    for head in heads:
        result = values[graph.nodes[head].outputs[0]]
        if result.numel * result.dtype.itemsize <= MAX_STREAMED_BYTES and _reduced(graph, head, readers, late, level):
            found.append(head)
    return frozenset(found)


def _reduced(
    graph: Graph, head: int, readers: dict[int, list[int]], late: dict[int, Node], level: dict[int, int]
) -> bool:  # fmt: skip
    """Whether the pointwise nodes that could be the epilogue of a product are reduced, and walk many arrays."""
    values = graph.values
    result = graph.nodes[head].outputs[0]
    size = values[result].numel
    followers: set[int] = {result}
    after: set[int] = set()  # what depends on a follower, but cannot be in the epilogue
    seen: set[int] = set()
    waiting = list(readers.get(result, ()))
    is_reduced = False
    while waiting:
        index = min(waiting)  # in the order of the graph: inputs are decided before
        waiting.remove(index)
        if index in seen:
            continue
        seen.add(index)
        node = graph.nodes[index]
        if level[node.outputs[0]] != level[result] or node.outputs[0] in late:
            continue  # another kernel stands between, or it is computed again for another kernel
        roots = {graph.root(i) for i in node.inputs}
        if node.op in g.POINTWISE and not roots & after and values[node.outputs[0]].numel == size:
            followers.add(node.outputs[0])
        else:
            is_reduced |= node.op not in g.POINTWISE and bool(roots & followers)
            after.update(node.outputs)
        waiting += [reader for o in node.outputs for reader in readers.get(o, ())]
    if not is_reduced:
        return False
    kept = set(graph.outputs) | {value for _, value in graph.updates}
    written = {f for f in followers if f != result and (f in kept or any(graph.nodes[r].outputs[0] not in followers for r in readers.get(f, ())))}
    read: set[int] = set()
    for index in seen:
        if graph.nodes[index].outputs[0] in followers:
            for i in graph.nodes[index].inputs:
                read |= _arrays(graph, graph.root(i), late)
    read = {r for r in read - followers if values[r].numel >= size}
    return len(read) + len(written) > MAX_STREAMS


def _arrays(graph: Graph, root: int, late: dict[int, Node]) -> set[int]:
    """What is read from memory for a value: itself, or what it is computed from again."""
    if root not in late:
        return {root}
    return {array for i in late[root].inputs for array in _arrays(graph, graph.root(i), late)}
