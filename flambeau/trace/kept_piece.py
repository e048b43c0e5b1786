"""A kept piece: what a root of pieces knows of a call that it does without a trace (kept.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.trace.immediate import Immediate
from flambeau.trace.state import State

if TYPE_CHECKING:
    from flambeau.autograd.segment import History, Tape


class KeptPiece(Immediate):
    """One kept call. `run(arguments...)` gives its result, or None where something is not as it was.

    `call`: its edge. `inputs`: the slots of its tensors, in the order in which `run` has them. `history`, `tape`: what its segments share; None: its
    results have no gradients. `holders`: for each saved value (root slot, index among the inputs, or -1 - index among the results that segments hold).
    `family`: those of the same metadata over memory of other sizes (parts of tensors), or with one tensor in several places, by `_sizes_of` what they are
    given. `root`: what has learned it.
    `mark`: its name among places (tiers.comes_to).
    `boundaries`: (slot, index among the inputs) of those at which gradients leave. `stages`: its backward passes (autograd/kept_stages.py).
    """

    __slots__ = ("boundaries", "call", "family", "history", "holders", "inputs", "mark", "plan", "root", "stages", "tape")

    def __init__(self, root: State, key: tuple[Any, ...], call: State) -> None:
        super().__init__(root, key, call.outs[0].meta)
        self.known = None  # native code, which knows immediate calls only, leaves it alone
        self.call, self.root = call, root
        self.mark = id(call) if call.model is None else hash((id(call.model), call.sizes))  # the same whether it is kept for its sizes or for all
        self.family: dict[tuple[int, ...], KeptPiece] = {}
        self.plan: Any = None
        self.history: History | None = None
        self.tape: Tape | None = None
        self.inputs: tuple[int, ...] = ()
        self.boundaries: tuple[tuple[int, int], ...] = ()
        self.holders: tuple[tuple[int, int], ...] = ()
        self.stages: dict[Any, Any] = {}

    def state_at(self, sizes: tuple[int, ...]) -> State:
        """The state behind the call, at the sizes that a segment was made at."""
        return self.call

    def tape_for(self, sizes: tuple[int, ...]) -> Tape:
        """The tape of its segments."""
        assert self.tape is not None
        return self.tape

    def forgotten(self, states: set[State]) -> bool:
        """It holds plans and states: it goes with the state of its call."""
        family = {sizes: made for sizes, made in self.family.items() if made.call in states}
        others = [made for made in self.family.values() if made.call not in states]
        for made in (self, *others, *family.values()):
            made.family = family
        for made in others:  # no cycle is left to the garbage collector, which may not look at what is old
            made.run = gone
            made.stages.clear()
        if self.call in states:
            return False
        self.run = gone
        self.stages.clear()
        op = self.call.edge[0]
        if op.recent is not None and getattr(op.recent, "call", None) not in states:
            op.recent = None
        return True


def gone(*_: Any) -> None:
    """In place of a forgotten function: the call is recorded."""
