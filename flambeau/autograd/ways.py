"""Which histories lead to the tensors that a pass asks for: as PyTorch's engine, a pass visits no others, so it frees nothing there and calls no hook."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from flambeau.autograd.differentiate import replaced_values
from flambeau.trace.recorder import Trace

if TYPE_CHECKING:
    from flambeau.autograd.segment import Tape
    from flambeau.compiler.graph import Node


# Slots of an owner that lead to targets or are targets'; and of its custom functions the arguments' and the results' slots.
Start = tuple[tuple[int, ...], tuple[tuple[tuple[int | None, ...], tuple[int | None, ...]], ...]]


class Ways:
    """For one pass: `leaves`, the ids of all targets; `slots`, those of targets that are no leaves, by owner (a trace or a segment)."""

    def __init__(self, leaves: Container[int], slots: Mapping[Any, Iterable[int]]) -> None:
        self.leaves = leaves
        self.slots = slots
        self.starts: dict[Any, Start | None] = {}

    def start(self, owner: Any, depth: int = 0) -> Start | None:
        """What leads to targets begins so in an owner; None where all of its boundaries lead to targets, so everything does."""
        starts, leaves = self.starts, self.leaves
        if owner in starts:
            return starts[owner]
        if depth == 50:  # a long history: from its beginning on, so that no call goes deep
            for segment in sorted(self._before(owner), key=lambda s: s.order):
                self.start(segment)
        boundaries = owner.boundaries
        leading = [
            slot for slot, b in boundaries.items() if (id(b.tensor) in leaves if b.history is None else self.leads(b.history[0], b.history[1], depth + 1))
        ]
        start = None
        if len(leading) != len(boundaries):
            calls = tuple([(tuple(c.input_slots), tuple(c.output_slots)) for c in owner.custom.values()]) if owner.custom else ()
            start = (*leading, *self.slots.get(owner, ())), calls
        starts[owner] = start
        return start

    def _before(self, owner: Any) -> set[Any]:
        """The segments that an owner's history goes through."""
        waiting, found = [owner], {owner}
        while waiting:
            for boundary in waiting.pop().boundaries.values():
                segment = None if boundary.history is None else boundary.history[0]
                if segment is not None and segment not in found and segment not in self.starts:
                    found.add(segment)
                    waiting.append(segment)
        found.discard(owner)
        return found

    def leads(self, owner: Any, slot: int, depth: int = 0) -> bool:
        """Whether gradients go from a slot of an owner to a target."""
        start = self.start(owner, depth)
        if start is None:
            return True
        if type(owner) is Trace:
            path = owner.state.path()
            return slot in spread(start, owner.nodes(path), replaced_values(path))
        return slot in tape_spread(start, owner.tape)


def tape_spread(start: Start, tape: Tape) -> set[int]:
    """What follows in a tape from the start: found once for all passes."""
    found = tape.reached.get(start)
    if found is None:
        found = tape.reached[start] = spread(start, tape.nodes, tape.replaced)
    return found


def spread(start: Start, nodes: Iterable[Node], replaced: Mapping[int, int]) -> set[int]:
    """The slots that follow from those at the start: by nodes, by custom functions, and as contents in the place of others."""
    slots, calls = start
    found = set(slots)
    while True:
        before = len(found)
        for node in nodes:
            if not found.isdisjoint(node.inputs):
                found.update(node.outputs)
            elif replaced:
                found.update(o for o in node.outputs if replaced.get(o) in found)
        for given, made in calls:
            if not found.isdisjoint(given):
                found.update(o for o in made if o is not None)
        if len(found) == before or not (calls or replaced):
            return found
