"""Patterns in graphs: each place where a graph computes what a pattern computes is given a replacement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node
from flambeau.fx.symbolic_trace import symbolic_trace


class Match(NamedTuple):
    """One place: the node that computes the pattern's result, and {node of the pattern: node of the graph}."""

    anchor: Node
    nodes_map: dict[Node, Node]


class ReplacedPatterns(NamedTuple):
    """As Match, with the new nodes."""

    anchor: Node
    nodes_map: dict[Node, Node]
    replacements: list[Node]


def _same(pattern: Any, value: Any, found: dict[Node, Any]) -> bool:
    """Whether an argument is what the pattern has there; notes what its nodes stand for."""
    if isinstance(pattern, Node):
        if pattern in found:
            return found[pattern] is value or (not isinstance(value, Node) and bool(found[pattern] == value))
        if pattern.op == "placeholder":
            found[pattern] = value
            return True
        return isinstance(value, Node) and _matches(pattern, value, found)
    if isinstance(pattern, (tuple, list)):
        return isinstance(value, (tuple, list)) and len(pattern) == len(value) and all(_same(p, v, found) for p, v in zip(pattern, value, strict=True))
    if isinstance(pattern, dict):
        return isinstance(value, dict) and pattern.keys() == value.keys() and all(_same(p, value[k], found) for k, p in pattern.items())
    if isinstance(pattern, slice):
        return isinstance(value, slice) and _same((pattern.start, pattern.stop, pattern.step), (value.start, value.stop, value.step), found)
    return not isinstance(value, Node) and type(pattern) is type(value) and bool(pattern == value)


def _matches(pattern: Node, node: Node, found: dict[Node, Any]) -> bool:
    """Whether a node computes what a pattern's node computes."""
    if pattern.op != node.op or pattern.target != node.target:
        return False
    found[pattern] = node
    return _same(pattern.args, node.args, found) and _same(dict(pattern.kwargs), dict(node.kwargs), found)


def _graph_of(program: Callable[..., Any] | Graph | GraphModule) -> Graph:
    return program if isinstance(program, Graph) else program.graph if isinstance(program, GraphModule) else symbolic_trace(program).graph


def _replace(gm: GraphModule, pattern: Any, replacement: Any, filters: list[Callable[[Any, Graph, Graph], bool]] | None) -> list[ReplacedPatterns]:
    pattern_graph, replacement_graph = _graph_of(pattern), _graph_of(replacement)
    result = pattern_graph.output_node().args[0]
    if not isinstance(result, Node):
        raise NotImplementedError(f"replace_pattern: the pattern must return one value, not {result!r}; replace each result by a pattern of its own")
    inputs = [n for n in pattern_graph.nodes if n.op == "placeholder"]
    given = [n for n in replacement_graph.nodes if n.op == "placeholder"]
    if len(inputs) != len(given):
        raise ValueError(f"replace_pattern: the pattern has {len(inputs)} parameters, the replacement {len(given)}: they must be the same")
    made: list[ReplacedPatterns] = []
    taken: set[Node] = set()
    for node in list(gm.graph.nodes):
        found: dict[Node, Any] = {}
        if node._erased or not _matches(result, node, found):
            continue
        inner = [v for p, v in found.items() if p.op != "placeholder"]
        if any(v in taken or (v is not node and any(u not in inner for u in v.users)) for v in inner):
            continue  # overlaps another place, or somebody else needs a value on the way
        if filters and not all(f(Match(node, found), pattern_graph, gm.graph) for f in filters):
            continue
        with gm.graph.inserting_before(node):
            values: dict[Node, Any] = {r: found.get(p) for p, r in zip(inputs, given, strict=True)}
            before = set(gm.graph.nodes)
            answer = gm.graph.graph_copy(replacement_graph, values)
        new = [n for n in gm.graph.nodes if n not in before]
        node.replace_all_uses_with(answer)
        taken |= set(inner)
        for old in sorted(inner, key=gm.graph._position, reverse=True):
            gm.graph.erase_node(old)
        made.append(ReplacedPatterns(node, found, new))
    if isinstance(replacement, GraphModule):
        for name, module in replacement.named_children():
            if not hasattr(gm, name):
                gm.add_submodule(name, module)
    gm.recompile()
    return made


def replace_pattern(gm: GraphModule, pattern: Any, replacement: Any) -> list[Match]:
    """Replace every place of `pattern` (a function, Graph or GraphModule with one result) in a GraphModule; returns the places.

    Values on the way that somebody else uses, too, are no match. The replacement has the same parameters.
    """
    return [Match(r.anchor, r.nodes_map) for r in _replace(gm, pattern, replacement, None)]


def replace_pattern_with_filters(
    gm: GraphModule, pattern: Any, replacement: Any = None, match_filters: list[Callable[[Any, Graph, Graph], bool]] | None = None,
    ignore_literals: bool = False, **_: Any,
) -> list[ReplacedPatterns]:  # fmt: skip
    """As replace_pattern, where all filters (match, pattern's graph, graph) agree; says which nodes are new."""
    if ignore_literals:
        raise NotImplementedError("replace_pattern_with_filters: ignore_literals is not supported; make the constants parameters of the pattern")
    return _replace(gm, pattern, replacement, match_filters)
