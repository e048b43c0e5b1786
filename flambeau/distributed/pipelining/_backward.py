"""torch.distributed.pipelining._backward: the backward pass of a stage, whole, or first for its inputs and later for its parameters.

What other ranks wait for are the inputs' gradients. A pass for these goes through every node that leads to an input. Where such a node has parameters beside
it, the gradients that come to it are kept, and the parameters' are made of them later: nothing is computed twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import flambeau
from flambeau.autograd.graph import GradientEdge
from flambeau.tensor import Tensor

_Edge = tuple[Any, int]  # a node, and which of its results


def _node(t: Tensor) -> Any:
    """The node whose gradient is the tensor's; of a leaf the one that accumulates."""
    return t.view_as(t).grad_fn.next_functions[0][0] if t.grad_fn is None else t.grad_fn


def _edge(t: Tensor) -> _Edge:
    return _node(t), t.output_nr


class _Graph:
    """What leads from results to inputs, and from there to parameters."""

    def __init__(self, roots: Sequence[_Edge], inputs: Iterable[Any], parameters: Iterable[Any]) -> None:
        self.inputs, self.parameters = set(inputs), set(parameters)
        self.results: dict[Any, set[int]] = {}  # of a node those that are used
        self.order: list[Any] = []  # each node after all that it leads to
        self._walk(roots)
        self.leads: dict[Any, bool] = {}  # to an input
        self.beside: dict[Any, set[Any]] = {}  # the parameters that a node leads to by others that lead to no input
        for node in self.order:
            following = {n for n, _ in node.next_functions if n is not None}
            self.leads[node] = node in self.inputs or any(self.leads[n] for n in following)
            self.beside[node] = {node} if node in self.parameters else set()
            for n in following:
                if not self.leads[n]:
                    self.beside[node] |= self.beside[n]

    def _walk(self, roots: Sequence[_Edge]) -> None:
        entered: set[Any] = set()
        waiting: list[tuple[Any, bool]] = []
        for node, number in roots:
            self.results.setdefault(node, set()).add(number)
            waiting.append((node, False))
        while waiting:
            node, left = waiting.pop()
            if left:
                self.order.append(node)
                continue
            if node in entered:
                continue
            entered.add(node)
            waiting.append((node, True))
            for following, number in node.next_functions:
                if following is not None:
                    self.results.setdefault(following, set()).add(number)
                    waiting.append((following, False))

    def places(self, roots: Sequence[_Edge]) -> dict[Any, set[Any]]:
        """Where parameters' gradients can be made of alone: by node, the parameters. A parameter that is used at several places has none."""
        found = {node: self.beside[node] for node in self.order if self.leads[node] and self.beside[node] and node not in self.parameters}
        for node in {node for node, _ in roots}:
            if not self.leads[node]:
                found[node] = self.beside[node]
        counts: dict[Any, int] = {}
        for each in found.values():
            for p in each:
                counts[p] = counts.get(p, 0) + 1
        return {node: once for node, each in found.items() if (once := {p for p in each if counts[p] == 1})}


def _roots(outputs: Sequence[Any], gradients: Sequence[Any] | None) -> tuple[list[Tensor], list[Any]]:
    """The results that have gradients, and these."""
    pairs = [(t, None if gradients is None else gradients[i]) for i, t in enumerate(outputs) if isinstance(t, Tensor) and t.requires_grad]
    given = [(t, g) for t, g in pairs if gradients is None or g is not None]
    return [t for t, _ in given], [flambeau.ones_like(t) if g is None else g for t, g in given]


def stage_backward_input(
    stage_outputs_or_loss: Sequence[Any], output_grads: Sequence[Any] | None, input_values: Sequence[Any], weights: Iterable[Any]
) -> tuple[tuple[Any, ...], list[dict[str, Any]]]:
    """The inputs' gradients, which they also get as `.grad`; and what stage_backward_weight makes the parameters' of.

    Of parameters that are used at several places, and where none of the inputs has a gradient, what is kept is where to begin.
    """
    roots, gradients = _roots(stage_outputs_or_loss, output_grads)
    none = tuple([None] * len(input_values))
    if not roots:
        return none, []
    ends = [_edge(t) for t in roots]
    wanted = [t for t in input_values if isinstance(t, Tensor) and t.requires_grad]
    owners = {_node(p): p for p in weights if p.requires_grad}
    graph = _Graph(ends, [_node(t) for t in wanted], owners)
    places = graph.places(ends)
    whole = set(owners) - {p for each in places.values() for p in each}
    if not wanted:
        return none, [{"params": [owners[p] for p in owners if p in graph.results], "edges": ends, "grads": gradients}]
    edges = [(node, number) for node in places for number in sorted(graph.results[node])]
    several = [p for p in owners if p in whole and p in graph.results]
    found = flambeau.autograd.grad(
        roots, [*wanted, *[GradientEdge(*edge) for edge in edges], *[owners[p] for p in several]], gradients, retain_graph=True, allow_unused=True
    )
    made = iter(found[: len(wanted)])
    inputs = tuple([next(made) if isinstance(t, Tensor) and t.requires_grad else None for t in input_values])
    for t, g in zip(input_values, inputs, strict=True):
        if g is not None:
            _accumulate(t, g)
    kept = dict(zip(edges, found[len(wanted) :], strict=False))
    groups = []
    for node, each in places.items():
        own = [(edge, g) for edge, g in kept.items() if edge[0] is node and g is not None]
        groups.append({"params": [owners[p] for p in owners if p in each], "edges": [edge for edge, _ in own], "grads": [g for _, g in own]})
    groups += [{"params": [owners[p]], "edges": [], "grads": [g]} for p, g in zip(several, found[len(wanted) + len(edges) :], strict=True) if g is not None]
    return inputs, groups


def _accumulate(t: Tensor, gradient: Tensor) -> None:
    with flambeau.no_grad():
        t.grad = gradient if t.grad is None else t.grad + gradient


def stage_backward_weight(weights: Iterable[Any], param_groups: list[dict[str, Any]], retain_graph: bool = False) -> tuple[Any, ...]:
    """The gradients of the parameters, which they get as `.grad`: of what stage_backward_input has kept."""
    for group in param_groups:
        if not group["edges"]:
            for p, g in zip(group["params"], group["grads"], strict=False):
                _accumulate(p, g)
            continue
        edges = [GradientEdge(*edge) for edge in group["edges"]]
        found = flambeau.autograd.grad(edges, group["params"], group["grads"], retain_graph=retain_graph, allow_unused=True)
        for p, g in zip(group["params"], found, strict=True):
            if g is not None:
                _accumulate(p, g)
        group["edges"], group["grads"] = [], []
    return tuple([p.grad for p in weights])


def stage_backward(stage_output: Any, output_grads: Any, input_values: Sequence[Any], outputs_with_grads_idxs: list[int] | None = None) -> tuple[Any, ...]:
    """All gradients at once: the parameters get theirs as `.grad`; the inputs', or None, are returned."""
    from flambeau.utils import _pytree as pytree

    if outputs_with_grads_idxs is not None:
        stage_output, output_grads = [stage_output[i] for i in outputs_with_grads_idxs], [output_grads[i] for i in outputs_with_grads_idxs]
    outputs = pytree.tree_leaves(stage_output)
    given = None if output_grads is None else pytree.tree_leaves(output_grads, is_leaf=lambda g: g is None)
    roots, gradients = _roots(outputs, given)
    if roots:
        flambeau.autograd.backward(roots, gradients)
    return tuple([t.grad if isinstance(t, Tensor) else None for t in input_values])


__all__ = ["stage_backward", "stage_backward_input", "stage_backward_weight"]
