"""The trie: a State is what is known after a prefix of recorded calls; an edge is one public call.

Values are numbered along the path: every input, parameter and primitive result of the prefix has an id, its *slot*.
"""

from __future__ import annotations

from typing import Any, Final

from flambeau.compiler.graph import Node, Value
from flambeau.runtime.untracked import record, untrack_all
from flambeau.trace.limits import Limit
from flambeau.trace.meta import Meta
from flambeau.trace.place import Place

OBSERVATIONS: Final = 4


@record
class Out:
    """One visible result of an edge: its slot, metadata, root slot, and which argument's storage it shares."""

    __slots__ = ("alias", "dynamic", "meta", "root", "slot")

    def __init__(self, slot: int, meta: Meta, root: int, alias: int | None, dynamic: tuple[tuple[int, int], ...]) -> None:
        self.slot = slot
        self.meta = meta
        self.root = root  # slot of the materialised value that it aliases (itself, if it is no view)
        self.alias = alias  # position among the tensors given to the call; None: storage of its own
        self.dynamic = dynamic  # (index into the trace's parameters, multiplier): the run-time part of the offset


@record
class Bound:
    """What the values of an index tensor of an edge must be: from `low` to `size` - 1, or `skip`.

    `position`: which of the tensors that the call is given. `what`: the values' name in messages. `dim`: the dimension that they index.
    `known`: the extent (bounds.py) that was found to be within last.
    """

    __slots__ = ("dim", "known", "low", "position", "size", "skip", "what")

    def __init__(self, position: int, low: int, size: int, dim: int, skip: int | None, what: str) -> None:
        self.position = position
        self.low = low
        self.size = size
        self.dim = dim
        self.skip = skip
        self.what = what
        self.known: tuple[Any, ...] | None = None


@record
class State:
    """One node of the trie. Fields other than `children`, `plans` and what is remembered of the last calls never change once the state is made."""

    __slots__ = (
        "bounds", "call", "children", "countdown", "depth", "edge", "external", "first_value", "grad_enabled", "immediate", "info",
        "input_count", "inputs", "leaf", "limits", "meta", "native", "next", "nodes", "outs", "pack", "parameter_count", "parameters", "parent",
        "pending_bytes", "place", "plain", "plans", "requires", "room", "root_slot", "single_view", "slot", "stepwise", "value_count", "values",
        "views_only", "writes",
    )  # fmt: skip

    def __init__(self, parent: State | None, edge: Any) -> None:
        self.children: dict[Any, State] = {}
        self.plans: dict[bytes, Any] = {}  # by which results are alive
        self.countdown = OBSERVATIONS  # until it is tried whether its only call can be learned (immediate.py)
        self.immediate: dict[Any, Any] | None = None  # of a root: calls that it has learned (immediate.py)
        self.next: State | None = None  # the edge of a call or an input that was last taken from here (known_edge.py)
        self.native = False  # native code can follow the edge: nothing runs before it returns, and it knows what the results are
        self.pack: Any = None  # the class of several results: tuple, list or a named tuple; None: one
        self.leaf = False  # a new input at which gradients leave the trace
        # The writes that were last made here (mutation.py): targets' and sources' slots, storages' slots, targets' metadata, for each target
        # (state after its write, its storage's slot then, whether it keeps its history), and whether the sources were fresh.
        self.writes: tuple[Any, ...] | None = None
        self.call: Any = None  # the call of a function of several edges that was last made from here (ops/remembered.py)
        self.parent = parent
        self.edge = edge
        self.nodes: tuple[Node, ...] = ()
        self.values: list[Value] = []  # of the new slots, in order: first_value, first_value + 1, ...
        self.inputs: tuple[int, ...] = ()  # new slots that are external storages
        self.parameters: tuple[int, ...] = ()  # new slots that are run-time scalars
        self.requires: frozenset[int] = frozenset()  # new slots whose gradient can be asked for
        self.outs: tuple[Out, ...] = ()
        self.plain = False  # exactly one result, with a storage of its own
        self.bounds: tuple[Bound, ...] = ()  # what index values must be, which are looked at before the edge is taken (bounds.py)
        self.limits: tuple[Limit, ...] = ()  # what numbers must fit into (limits.py)
        self.room = b""  # the same for native code
        self.stepwise: bool = parent is not None and parent.stepwise  # each call is tried at once (stepwise.py)
        self.place: Place | None = None  # where the program made this call first
        self.single_view = False  # exactly one result, which shares the storage of an argument
        self.slot = -1  # of a plain result
        self.root_slot = -1  # of a new input's storage
        self.meta: Meta | None = None  # of a plain result
        self.views_only = parent is None  # nothing is computed so far, and no gradient can be asked for
        self.external = False  # the path touches memory that the outside world sees: calls run before they return
        self.info: Any = None  # what the edge's owner wants to remember (backward, assignment)
        if parent is None:
            self.first_value = self.value_count = self.parameter_count = self.input_count = self.depth = self.pending_bytes = 0
            self.grad_enabled = True
        else:
            self.first_value = self.value_count = parent.value_count
            self.parameter_count = parent.parameter_count
            self.input_count = parent.input_count
            self.depth = parent.depth
            self.pending_bytes = parent.pending_bytes
            self.grad_enabled = parent.grad_enabled

    def enter(self, key: Any) -> None:
        """Make it, which is whole, the child of its parent by this key."""
        assert self.parent is not None
        children = self.parent.children
        children[key] = self
        untrack_all((self, key, self.nodes, self.values, self.outs, self.bounds, self.requires, self.place, children))
        untrack_all((*self.nodes, *self.values, *self.outs, *self.bounds))

    def path(self) -> list[State]:
        """The states from the root to this one."""
        states = []
        state: State | None = self
        while state is not None:
            states.append(state)
            state = state.parent
        states.reverse()
        return states
