"""Which gradient autograd.grad gives for a tensor with hooks: the one before them where the pass goes on to other inputs below, as in PyTorch."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Any

from flambeau.autograd.differentiate import replaced_values
from flambeau.trace.recorder import Trace

if TYPE_CHECKING:
    from flambeau.compiler.graph import Node


def goes_on(owner: Any, slot: int, slots: Mapping[Any, Container[int]], leaves: Container[int]) -> bool:
    """Whether gradients go from a slot of the trace (or of a segment) on to another target. `slots`: those of targets, by owner; `leaves`: the ids
    of all targets."""
    graphs: dict[Any, tuple[Mapping[int, Node], Mapping[int, int]]] = {}  # an owner's producers, and contents that were written over as a whole
    waiting, seen = [(owner, slot)], set()
    while waiting:
        place = waiting.pop()
        if place in seen:
            continue
        seen.add(place)
        at, s = place
        if place != (owner, slot) and s in slots.get(at, ()):
            return True
        boundary = at.boundaries.get(s)
        if boundary is not None:
            if boundary.history is not None:
                waiting.append(boundary.history)
            elif id(boundary.tensor) in leaves:
                return True
            continue
        context = at.custom.get(s)
        if context is not None:
            waiting.extend((at, i) for i in context.input_slots if i is not None)
            continue
        if at not in graphs:
            path = at.state.path() if type(at) is Trace else []
            graphs[at] = (
                ({o: n for state in path for n in state.nodes for o in n.outputs}, replaced_values(path)) if type(at) is Trace
                else (at.tape.producer, at.tape.replaced)
            )  # fmt: skip
        producer, replaced = graphs[at]
        if s in replaced:
            waiting.append((at, replaced[s]))
        node = producer.get(s)
        if node is not None:
            waiting.extend((at, i) for i in node.inputs if (at.needs(i) if type(at) is Trace else i in at.tape.requires))
    return False
