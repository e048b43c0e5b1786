"""The trie: a State is what is known after a prefix of recorded calls; an edge is one public call.

Values are numbered along the path: every input, parameter and primitive result of the prefix has an id, its *slot*.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from flambeau.compiler.graph import Node, Value
from flambeau.runtime.untracked import record, untrack_all
from flambeau.symbols import at_sizes
from flambeau.trace.limits import Limit
from flambeau.trace.meta import Meta
from flambeau.trace.place import Place

if TYPE_CHECKING:
    from flambeau.trace.immediate import Learned

OBSERVATIONS: Final = 4
COUNT: Final = "count"
IN, ALIAS = "in", "alias"  # of the keys of edges by which tensors become known to a trace
ASSIGN, BACKWARD, SEGMENT = "assign", "backward", "segment backward"  # of writes, and of stages of backward passes through a trace and a segment


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
    """What the values of an index tensor of an edge must be: from `low` to `size` - 1, or `skip`. If that is COUNT: a mask is True `size` times at most.

    `position`: which of the tensors that the call is given. `what`: the values' name in messages. `dim`: the dimension that they index.
    `known`: the extent (bounds.py) that was found to be within last.
    """

    __slots__ = ("dim", "known", "low", "position", "size", "skip", "what")

    def __init__(self, position: int, low: int, size: int, dim: int, skip: int | str | None, what: str) -> None:
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
        "ahead", "bounds", "call", "children", "countdown", "depth", "edge", "external", "first_value", "grad_enabled", "immediate", "info",
        "input_count", "inputs", "kept", "lazy", "leaf", "limits", "meta", "model", "native", "next", "outs", "own_nodes", "own_values", "pack",
        "parameter_count", "parameters", "parent", "patterns", "pending_bytes", "place", "plain", "plans", "requires", "room", "root_slot", "sample",
        "shortcuts", "single_view", "sizes", "slot", "stepwise", "value_count", "views_only", "writes",
    )  # fmt: skip

    def __init__(self, parent: State | None, edge: Any) -> None:
        self.children: dict[Any, State] = {}
        self.plans: dict[bytes, Any] = {}  # by which results are alive
        self.countdown = OBSERVATIONS  # until it is tried whether its only call can be learned (immediate.py)
        self.immediate: Learned | None = None  # of a root: calls that it has learned (immediate.py)
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
        # The path by class (classes.py): the sizes that are symbols in it, (): none, None: it is not followed; what it is made from; and of a model the
        # variants of its edges.
        self.sizes: tuple[int, ...] | None = () if parent is None or parent.sizes == () else None
        self.model: State | None = None
        self.patterns: dict[Any, list[Any]] | None = None
        self.ahead: Any = None  # of a model: the variant of its edges that was last taken (ahead.py)
        self.shortcuts: dict[Any, Any] | None = None  # of a model: second names of edges that are further on (ahead.py)
        self.sample: tuple[tuple[int, ...], State] | None = None  # of a model: sizes that came before it was made, and the state at these
        self.kept = 0  # of a model: how often its call was looked at, whether it can be kept at all sizes (kept_classes.py)
        self.lazy = False  # its nodes and values are the model's, and are made when somebody asks
        self.own_nodes: tuple[Node, ...] = ()
        self.own_values: list[Value] = []
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

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The primitives that the edge adds to the path."""
        if self.lazy:
            self._settle()
        return self.own_nodes

    @nodes.setter
    def nodes(self, nodes: tuple[Node, ...]) -> None:
        self.own_nodes = nodes

    @property
    def values(self) -> list[Value]:
        """The values of the new slots, in order: first_value, first_value + 1, ..."""
        if self.lazy:
            self._settle()
        return self.own_values

    @values.setter
    def values(self, values: list[Value]) -> None:
        self.own_values = values

    def _settle(self) -> None:
        assert self.model is not None and self.sizes is not None
        self.own_nodes, self.own_values = self.model.concrete(self.sizes)
        untrack_all((*self.own_nodes, *self.own_values, self.own_nodes, self.own_values))
        self.lazy = False

    def concrete(self, sizes: tuple[int, ...]) -> tuple[tuple[Node, ...], list[Value]]:
        """The nodes and values of a model at given sizes."""
        plain = at_sizes(sizes)
        return tuple([n.mapped(plain) for n in self.nodes]), [v.mapped(plain) for v in self.values]

    def enter(self, key: Any) -> None:
        """Make it, which is whole, the child of its parent by this key."""
        assert self.parent is not None
        children = self.parent.children
        children[key] = self
        self.untrack(key, children)

    def untrack(self, *more: Any) -> None:
        """Take it out of the garbage collector's lists, with what it consists of."""
        untrack_all((self, *more, self.own_nodes, self.own_values, self.outs, self.bounds, self.requires, self.place))
        untrack_all((*self.own_nodes, *self.own_values, *self.outs, *self.bounds))

    def calls(self) -> Iterator[State]:
        """The states of its path that are behind calls, the last one first."""
        state = self
        while (parent := state.parent) is not None:
            if state.depth > parent.depth:
                yield state
            state = parent

    def path(self) -> list[State]:
        """The states from the root to this one."""
        states = []
        state: State | None = self
        while state is not None:
            states.append(state)
            state = state.parent
        states.reverse()
        return states
