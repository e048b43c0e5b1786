"""The order in which float64 reductions add does not depend on what is fused with them.

A reduction of narrower numbers adds in float64 and rounds once, so the order does not show. In float64 it does: a kernel joins neighbouring loops and
adds along the joined one, and an operand that is repeated over one of them keeps them apart. Then the group is taken apart, and the reduction adds as it does
over a value in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from flambeau import dtypes
from flambeau.compiler import graph as g
from flambeau.compiler.domain import Domain, Lists, broadcast_strides

if TYPE_CHECKING:
    from flambeau.compiler.fuse import Group
    from flambeau.compiler.graph import Graph, Node

SHOWN = frozenset((dtypes.float64, dtypes.complex128))  # dtypes in which the order of additions shows


def as_alone(graph: Graph, groups: Sequence[Group]) -> list[Group]:
    """The groups; each whose reductions would add in another order than alone, as a group for each of its nodes."""
    from flambeau.compiler.fuse import LOOPS, Group

    stored = {value: place for place, group in enumerate(groups) for value in group.outputs}
    earlier: set[int] = set()  # what a group computes for itself and a later one stores, for others: stored now where the first one needs it in memory
    found: list[Group] = []
    for place, group in enumerate(groups):
        if not earlier.isdisjoint(group.outputs):
            group = replace(group, outputs=tuple([value for value in group.outputs if value not in earlier]))
            if not group.outputs:
                continue
        if group.kind != LOOPS or group.domain is None or len(group.nodes) == 1 or _adds_as_alone(graph, group, group.domain):
            found.append(group)
            continue
        note = "in float64, fused with it the reduction would add in another order"
        for index in group.nodes:
            outputs = graph.nodes[index].outputs
            if any(stored.get(value, place) >= place for value in outputs):
                earlier.update(value for value in outputs if stored.get(value, place) > place)
                stored.update(dict.fromkeys(outputs, -1))
                found.append(Group(LOOPS, (index,), None, outputs, [*group.notes, note], group.domain))
    return found


def _reduces(node: Node) -> bool:
    return node.op in g.REDUCE or node.op in g.REDUCE_PAIR


def _adds_as_alone(graph: Graph, group: Group, domain: Domain) -> bool:
    """Whether all loops that a reduction alone would join are joined in the group, too."""
    reductions = [index for index in group.nodes if _reduces(graph.nodes[index]) and graph.values[graph.nodes[index].inputs[0]].dtype in SHOWN]
    if not reductions:
        return True
    accesses = [dict(access) for access in _accesses(graph, group, domain)]
    for index in reductions:
        source = graph.values[graph.nodes[index].inputs[0]]
        loops = sorted(_strides(domain, domain.where[-1 - index], source.strides), key=lambda loop: loop[2])
        for (inner, size, step), (outer, _, outer_step) in zip(loops, loops[1:], strict=False):
            if outer_step != step * size or (inner in domain.reduced) != (outer in domain.reduced):
                continue
            if any(access.get(outer, 0) != access.get(inner, 0) * size for access in accesses):
                return False
    return True


def _strides(domain: Domain, lists: Lists, strides: Sequence[int]) -> list[tuple[int, int, int]]:
    return [factor for factor in domain.factors(lists, strides) if factor[1] != 1]


def _accesses(graph: Graph, group: Group, domain: Domain) -> Iterator[list[tuple[int, int]]]:
    """The strides by loop of what the pointwise nodes and the reductions of a group read from memory."""
    made = {value for index in group.nodes for value in graph.nodes[index].outputs}
    for index in group.nodes:
        node = graph.nodes[index]
        reduces = _reduces(node)
        if not reduces and node.op not in g.POINTWISE:
            continue
        lists = domain.where[-1 - index] if reduces else domain.where[node.outputs[0]]
        shape = graph.values[node.inputs[0]].shape if reduces else graph.values[node.outputs[0]].shape
        for value in node.inputs:
            v = graph.values[value]
            if graph.root(value) in made or prod(v.shape) == 1:
                continue
            yield [(loop, step) for loop, _, step in _strides(domain, lists, broadcast_strides(v, shape))]
