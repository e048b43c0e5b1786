"""Finding what a long trace has, without going over all of it at each call: the state of a slot, and the tensors in its lists."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flambeau.tensor import Tensor
    from flambeau.trace.recorder import Trace
    from flambeau.trace.state import State

_NEAR = 64  # so many states from the end are looked at one by one


class Path:
    """The states of the path that a trace has come, as far as was asked so far, and the first slot of each.

    Both change at once: another thread may ask, too.
    """

    def __init__(self) -> None:
        self.found: tuple[list[State], list[int]] = [], []

    def state_of(self, end: State, slot: int) -> State | None:
        """The last state on the way to `end` whose first slot is not behind `slot`."""
        states, firsts = self.found
        last = states[-1] if states else None
        new: list[State] = []
        state: State | None = end
        while state is not None and state is not last:
            if state.first_value <= slot and len(new) <= _NEAR:
                return state
            new.append(state)
            state = state.parent
        if state is None:  # nothing is known so far, or another trace's path, or one that was given up
            states, firsts = [], []
        if state is None or len(new) > _NEAR:
            new.reverse()
            states, firsts = self.found = states + new, firsts + [s.first_value for s in new]
        return states[bisect_right(firsts, slot) - 1] if states else None


def state_behind(end: State | None, slot: int) -> State | None:
    """The same, state by state: of a path of which one slot is asked, a segment's too."""
    while end is not None and end.first_value > slot:
        end = end.parent
    return end


class Listed:
    """Which tensors are in the lists of a trace."""

    def __init__(self, tr: Trace) -> None:
        self.lists: tuple[list[Tensor], list[Tensor]] = (tr.tensors, tr.resolved)
        self.places: dict[int, tuple[list[Tensor], int]] = {}
        self.looked = [0, 0]

    def __contains__(self, t: Any) -> bool:
        for which, tensors in enumerate(self.lists):
            start = self.looked[which]
            self.looked[which] = len(tensors)
            for i in range(start, len(tensors)):
                self.places[id(tensors[i])] = tensors, i
        tensors, i = self.places.get(id(t), (self.lists[0], len(self.lists[0])))
        if i < len(tensors) and tensors[i] is t:
            return True
        return any(t is x for tensors in self.lists for x in tensors)  # lists are cut, and their last ones exchanged


def listed(tr: Trace) -> Listed:
    """What tells whether a tensor is in a trace's lists."""
    found = tr.listed
    if found is None or found.lists[0] is not tr.tensors or found.lists[1] is not tr.resolved:
        found = tr.listed = Listed(tr)
    return found
