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


_NOWHERE: Start = ((), ())


class Ways:
    """For one pass: `leaves`, the ids of all targets; `slots`, those of targets that are no leaves, by owner (a trace or a segment).

    `oldest`: what was made before this segment (by its number) leads to no target. PyTorch's engine leaves such nodes out by their topological number.
    """

    def __init__(self, leaves: Container[int], slots: Mapping[Any, Iterable[int]], oldest: float) -> None:
        self.leaves = leaves
        self.slots = slots
        self.oldest = oldest
        self.starts: dict[Any, Start | None] = {}

    def start(self, owner: Any, depth: int = 0) -> Start | None:
        """What leads to targets begins so in an owner; None where all of its boundaries lead to targets, so everything does."""
        starts, leaves = self.starts, self.leaves
        if owner in starts:
            return starts[owner]
        if type(owner) is not Trace and owner.order < self.oldest:
            return _NOWHERE
        if depth == 50:  # a long history: from its beginning on, so that no call goes deep
            for segment in sorted(self._before(owner), key=lambda s: s.order):
                self.start(segment)
        if hasattr(owner, "segment"):  # a shell: its segment, where that is still there, may be asked for its own slots
            segment = owner.segment()
            if segment is not None:
                starts[owner] = start = self.start(segment, depth)
                return start
            boundaries, behind, calls = [], owner.behind, owner.calls
        elif getattr(owner, "kept", None) is not None:  # a kept piece's segment, which is not made in full for this
            boundaries, behind, calls = owner.leading_on(), {}, ()
        else:
            boundaries, behind, calls = [(slot, b.tensor, b.history) for slot, b in owner.boundaries.items()], getattr(owner, "behind", {}), None
        leading = [slot for slot, t, history in boundaries if (id(t) in leaves if history is None else self.leads(history[0], history[1], depth + 1))]
        for slot, end in behind.items():  # such a way ends in an error, as PyTorch's does
            if self.leads(end[0], end[1], depth + 1) if type(end) is tuple else id(end) in leaves:
                leading.append(slot)
        start = None
        if len(leading) != len(boundaries) + len(behind):
            start = (*leading, *self.slots.get(owner, ())), calls_of(owner) if calls is None else calls
        starts[owner] = start
        return start

    def _before(self, owner: Any) -> set[Any]:
        """The segments, and what is left of such, that an owner's history goes through."""
        waiting, found = [owner], {owner}
        while waiting:
            one = waiting.pop()
            histories: list[Any]
            if getattr(one, "kept", None) is not None:
                histories = [history for _, _, history in one.leading_on()]
            else:
                histories = [b.history for b in one.boundaries.values()] if hasattr(one, "boundaries") else []
                histories += [end for end in getattr(one, "behind", {}).values() if type(end) is tuple]
            for history in histories:
                segment = None if history is None else history[0]
                if segment is not None and segment not in found and segment not in self.starts and segment.order >= self.oldest:
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


def calls_of(owner: Any) -> tuple[tuple[tuple[int | None, ...], tuple[int | None, ...]], ...]:
    """The arguments' and the results' slots of the custom functions of an owner."""
    return tuple([(tuple(c.input_slots), tuple(c.output_slots)) for c in owner.custom.values()]) if owner.custom else ()


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
