"""`tensor.grad_fn`: the operation a tensor came from, and the graph of such nodes behind it, as PyTorch's programs walk it.

A node is made when somebody asks for it, from what was recorded: nothing is kept for it, and a program that does not ask pays nothing. The same call has
the same node as long as somebody holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from flambeau.autograd.given_up import WRITE
from flambeau.autograd.hooks import OfNode, RemovableHandle, register_hook, register_post_accumulate_grad_hook
from flambeau.autograd.node_edges import Part, part_of
from flambeau.autograd.node_hooks import NodeHooks, checked, place
from flambeau.autograd.node_names import camel
from flambeau.autograd.segment import BY_NUMBER, WATCHED
from flambeau.trace.arrival import value_at
from flambeau.trace.look_up import state_behind
from flambeau.trace.meta import meta
from flambeau.trace.objects import bare, is_view
from flambeau.trace.recorder import Trace, local
from flambeau.trace.state import ALIAS
from flambeau.upward import upward

if TYPE_CHECKING:
    from flambeau.tensor import Tensor


@upward
def saved(node: Node, name: str) -> Any:
    """What a node has saved under this name (autograd/saved_values.py)."""
    raise NotImplementedError


@upward
def rules_of(node: Node) -> dict[str, Any]:
    """The names of what a node has saved."""
    raise NotImplementedError


# A node, and which of its results; (None, 0) where no gradient goes.
Edge = tuple["Node | None", int]
_NONE: Edge = (None, 0)


class Node:
    """The operation behind a tensor. Its class is named as PyTorch names it: MulBackward0, ..."""

    def __init__(self, name: str, part: Part | None = None, owner: _Owner | None = None, key: tuple[Any, ...] = (), context: Any = None) -> None:
        self._name = name
        self._part, self._owner, self._key, self._context = part, owner, key, context
        self._whole = part  # the last node of the call that it is part of
        self._slot: int | None = None  # of a result

    def _hooked(self) -> NodeHooks:
        """Its hooks, with what has recorded it. RuntimeError if that is gone."""
        owner, slot = self._owner, self._slot
        hooked = None if owner is None else owner.hooked()
        if owner is None or slot is None or hooked is None:
            why = "is a part of a call" if owner is not None and slot is None else "has made no tensor of a history that is still there"
            raise RuntimeError(f"hooks of grad_fn: {self._name} takes none, as it {why}; register the hook on a tensor (Tensor.register_hook)")
        made: Sequence[int | None]
        edges: Sequence[Any] | None
        if self._context is not None:
            made, edges, span = self._context.output_slots, _inputs(self._context), (slot, slot)
        else:
            made, edges, span = owner.results(slot), () if self._part is None else self._part.edges, owner.span(slot)
            if self._name == "CopySlices" or any(type(end) is Part for end in edges) or not owner.tells_apart(edges, slot):
                edges = None
        found = hooked.get(place(made))
        if found is None:
            found = hooked[place(made)] = NodeHooks(made, edges, span)
        return found  # type: ignore[no-any-return]

    def _result(self, number: int) -> Tensor | None:
        """What stands for one of its results in a pass that begins or ends there: its history is what it was when the node was found."""
        owner, slot = self._owner, self._slot
        if owner is None:
            return None
        if self._context is not None:
            slots = self._context.output_slots
            slot = slots[number] if number < len(slots) else None
        elif slot is not None and slot in owner._calls:
            key, first, mine = owner._calls[slot]
            if mine != number:
                slot = next((s for s, call in owner._calls.items() if call == (key, first, number)), None)
        return None if slot is None else owner.tensor(slot)

    def register_prehook(self, fn: Callable[[tuple[Any, ...]], Any]) -> RemovableHandle:
        """Call `fn` with the gradients of what this node made, a tuple, before they go on; a tuple that it returns takes their place."""
        return self._register(False, fn)

    def register_hook(self, fn: Callable[[Any, tuple[Any, ...]], Any]) -> RemovableHandle:
        """Call `fn(grad_inputs, grad_outputs)` when the gradients of this node are computed; a tuple that it returns takes the place of the first ones."""
        return self._register(True, fn)

    def _register(self, after: bool, fn: Callable[..., Any]) -> RemovableHandle:
        hooks = self._hooked()._hooks
        handle = RemovableHandle(hooks)
        hooks[handle.id] = after, fn
        return handle

    def name(self) -> str:
        """The class's name; of those that PyTorch does not generate, with its namespace."""
        return f"torch::autograd::{self._name}" if self._name in _BARE else self._name

    @cached_property
    def next_functions(self) -> tuple[Edge, ...]:
        """The nodes that gradients go to from here, in PyTorch's order: (node, which of its results), (None, 0) where none goes."""
        owner, part = self._owner, self._part
        if owner is None:
            return ()
        if self._context is not None:
            return tuple([_NONE if slot is None else owner.edge(slot) for slot in _inputs(self._context)])
        return () if part is None else tuple([self._edge(owner, end) for end in part.edges])

    def _edge(self, owner: _Owner, end: Any) -> Edge:
        if type(end) is not Part:
            return _NONE if end is None else owner.edge(end)
        if not owner.reached(end):
            return _NONE
        node = owner.node(None, (self._key[0], *_path(self._whole, end)), end.name, end)
        node._whole = self._whole
        return node, end.result

    @property
    def metadata(self) -> dict[Any, Any]:
        """A dictionary for the program's own notes."""
        return self.__dict__.setdefault("_notes", {})  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_saved_"):
            return saved(self, name.removeprefix("_saved_"))
        context = self.__dict__.get("_context")
        if context is None or name.startswith("_"):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return getattr(context, name)  # of a custom function it is the `ctx` that forward got

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *[name for name in [f"_saved_{name}" for name in rules_of(self)] if hasattr(self, name)]]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object at {id(self):#x}>"


class AccumulateGrad(Node):
    """Where gradients leave the graph: they are added to `variable.grad`."""

    def __init__(self, variable: Tensor) -> None:
        super().__init__("AccumulateGrad")
        self.variable = variable

    def _result(self, number: int) -> Tensor | None:
        return self.variable

    def register_prehook(self, fn: Callable[[tuple[Any, ...]], Any]) -> RemovableHandle:
        """Call `fn` with the gradient, a tuple of one, before it is added; a tuple that it returns takes its place."""

        def hook(gradient: Tensor) -> Any:
            found = fn((gradient,))
            return None if found is None else checked(fn, (gradient,), found)[0]

        return register_hook(self.variable, hook, of_node=True)

    def register_hook(self, fn: Callable[[Any, tuple[Any, ...]], Any]) -> RemovableHandle:
        """Call `fn((), (gradient,))` once the gradient has been added."""
        gradients: list[Any] = []
        first = False  # it becomes `.grad`, whose memory is its own then

        def before(gradient: Tensor) -> None:
            nonlocal first
            first = self.variable._grad is None
            gradients[:] = [gradient]

        def after(t: Tensor) -> None:
            if first and t._grad is not None:
                gradients[:] = [t._grad.detach()]
            fn((), tuple(gradients))
            gradients.clear()

        handle = register_hook(self.variable, before, of_node=True)
        return _Both(register_post_accumulate_grad_hook(self.variable, OfNode(after)), handle)  # type: ignore[arg-type]


class _Both(RemovableHandle):
    """Two handles as one."""

    def __init__(self, first: RemovableHandle, second: RemovableHandle) -> None:
        super().__init__({})
        self.both = first, second

    def remove(self) -> None:
        """Take both hooks away."""
        for handle in self.both:
            handle.remove()


_CLASSES: dict[str, type[Node]] = {"AccumulateGrad": AccumulateGrad}
_NODES: WeakValueDictionary[tuple[Any, ...], Node] = WeakValueDictionary()
_OWNERS: WeakValueDictionary[tuple[Any, ...], _Owner] = WeakValueDictionary()
_BARE = frozenset(("CopySlices", "CopyBackwards", "AccumulateGrad"))  # that PyTorch does not generate


def _class(name: str) -> type[Node]:
    cls = _CLASSES.get(name)
    if cls is None:
        cls = _CLASSES[name] = type(name, (Node,), {})
    return cls


def accumulation(t: Tensor) -> Node:
    """The node of a leaf."""
    key = ("leaf", id(t))  # the node holds the tensor: no other has this id as long as it is there
    node = _NODES.get(key)
    if node is None:
        node = _NODES[key] = AccumulateGrad(t)
    return node


def _inputs(context: Any) -> list[int | None]:
    """The slots of a custom function's tensors, None for those that need no gradient."""
    if not hasattr(context, "_function"):
        return list(context.input_slots)
    found = dict(zip(context._positions, context.input_slots, strict=True))
    return [found.get(i) for i in context._given]


class _Owner:
    """A trace up to now, a segment, or the shell of one: what is needed of it to walk through it. Slots keep their meaning when a trace grows."""

    def __init__(self, key: tuple[Any, ...], source: Any, state: Any) -> None:
        live = type(source) is Trace
        self.key, self.state = key, state
        self.source = source
        self.gen: int = source.gen if live else -1
        self.boundaries = getattr(source, "boundaries", {})
        self.behind: dict[int, Any] = getattr(source, "behind", {})
        self.custom: dict[int, Any] = getattr(source, "custom", {})
        self.values: Any = source.values() if live else source.tape.values
        # What is known of its path, from the end back to `_rest`: most who ask for a node look no further.
        self._rest = state
        self.requires: set[int] = set() if live else source.tape.requires
        self.producer: dict[int, Any] = {} if live else source.tape.producer
        self._calls: dict[int, tuple[Any, int, int]] = {}
        self._writes: dict[int, Any] = {}
        self._replaced: dict[int, int] = {}
        self._contents: set[int] = set()
        self._live = live

    def look_to(self, slot: int) -> None:
        """Know the path from the end to the call that a slot comes from."""
        state = self._rest
        while state is not None and state.value_count > slot:
            if self._live:
                self.requires |= state.requires
                self.producer.update((o, n) for n in state.nodes for o in n.outputs)
            self._note(state)
            state = self._rest = state.parent

    def _note(self, state: Any) -> None:
        key = state.edge
        if type(key) is not tuple or not key:
            return
        if hasattr(key[0], "kinds"):
            for i, slot in enumerate((state.slot,) if state.plain else [out.slot for out in state.outs]):
                if slot >= state.first_value:  # else it is an argument
                    self._calls[slot] = (key, state.first_value, i)
        elif key[0] == ALIAS:
            self._contents.update(o for n in state.nodes for o in n.outputs)
        elif key[0] == WRITE and len(key) > 8:
            self._writes.setdefault(state.info.root_after, (key, state.info))
            if state.info.replaced >= 0:
                self._replaced[state.info.root_after] = state.info.replaced

    def call(self, slot: int) -> tuple[Any, int, int] | None:
        """The public call behind a result: the key of its edge, which names the operation and its arguments, the slot it begins with, which result."""
        self.look_to(slot)
        return self._calls.get(slot)

    def needs(self, slot: int) -> bool:
        """Whether a slot has gradients."""
        self.look_to(slot)
        return slot in self.requires

    def results(self, slot: int) -> list[int | None]:
        """What the call behind a slot made, where gradients come from."""
        call = self.call(slot)
        if call is None:
            return [slot]
        key, first, _ = call
        made = sorted((number, s) for s, (k, f, number) in self._calls.items() if k == key and f == first)
        return [s for _, s in made if self.values[s].dtype.category >= 2]

    def span(self, slot: int) -> tuple[int, int]:
        """The first and the last slot of the edge that made a slot."""
        state = state_behind(self.state, slot)
        assert state is not None
        return state.first_value, state.value_count - 1

    def tells_apart(self, edges: Sequence[int | None], slot: int) -> bool:
        """Whether the uses of an input that is among a call's edges more than once can be told apart: the call is one node over its arguments as they are."""
        twice = {edge for edge in edges if edge is not None and edges.count(edge) > 1}
        node, call = self.producer.get(slot), self.call(slot)
        if not twice:
            return True
        one = node is not None and call is not None and node.op in (call[0][0].name, "matmul")
        return one and all(node.inputs.count(edge) == edges.count(edge) for edge in twice)  # type: ignore[union-attr]

    def place(self) -> tuple[Any, bool]:
        """The trace, or what became of it, and whether it goes on still."""
        live = self._live and self.source.gen == self.gen
        return (BY_NUMBER.get(self.gen) if self._live and not live else self.source), live

    def hooked(self) -> dict[int, Any] | None:
        """The hooked tensors; None if a trace has ended since."""
        return getattr(self.place()[0], "hooked", None)

    def tensor(self, slot: int) -> Tensor | None:
        """The tensor of a slot for hooks; None if a trace has ended since."""
        source, live = self.place()
        hooked = getattr(source, "hooked", None)
        if hooked is None:
            return None
        if slot in hooked and not live and hooked[slot]._history is None and hooked[slot]._storage is None:
            hooked[slot]._gen, hooked[slot]._history = -1, (source, slot)
        if slot not in hooked:
            from flambeau.tensor import Tensor

            t = bare(Tensor)
            v = value_at(source, slot)
            t._meta = meta(v.shape, v.strides, v.dtype, v.offset, True, False, device=v.device)
            if live:
                t._gen, t._slot = self.gen, slot
            else:
                t._history = (source, slot)
            return t
        return hooked[slot]  # type: ignore[no-any-return]

    def edge(self, slot: int, passed: tuple[str, ...] = ("alias",)) -> Edge:
        """Where the gradient of a slot goes: (node, which of its results)."""
        owner = self
        while True:
            boundary = owner.boundaries.get(slot)
            if boundary is not None:
                if not boundary.settled:
                    return _NONE
                if boundary.history is None:
                    return accumulation(boundary.tensor), 0
                owner, slot = owner_of(boundary.history[0]), boundary.history[1]
                continue
            if slot in owner.behind:
                end = owner.behind[slot]
                if type(end) is not tuple:
                    return accumulation(end), 0
                owner, slot = owner_of(end[0]), end[1]
                continue
            if not owner.needs(slot):
                return _NONE
            context = owner.custom.get(slot)
            if context is not None:
                name = context.kind if hasattr(context, "kind") else f"{context._function.__name__}Backward"
                return owner.node(slot, ("custom", id(context)), name, None, context), max(_place(context.output_slots, slot), 0)
            write = owner.write(slot)
            if isinstance(write, Part):
                return owner.node(slot, (slot,), write.name, write), 0
            if write is not None and write in owner.custom:
                slot = write
                continue
            slot = slot if write is None else write
            call, node = owner.call(slot), owner.producer.get(slot)
            if call is not None:
                key, first, result = call
                part = part_of(key, slot, owner.values)
                return owner.node(slot, (first,), part.name, part), result
            if node is None:
                return owner.node(slot, (slot,), "RecordedBackward0", None), 0
            if node.op not in passed and not (node.op == "as_strided" and slot in owner._contents):
                return owner.node(slot, (slot,), camel(node.op), Part(camel(node.op), tuple(node.inputs))), 0
            slot = node.inputs[0]

    def write(self, slot: int) -> Part | int | None:
        """Of a content that a write has made its node, or the slot of the operation's result that it is."""
        found = self._writes.get(slot)
        if found is None:
            return None
        key, info = found
        source, face, viewed = key[2], key[4], key[8]
        context = self.custom.get(source)
        if context is not None and source in getattr(context, "written", ()):
            return Part("CopySlices", (face, *[slot for slot in _inputs(context)[1:] if slot is not None])) if viewed else source  # type: ignore[no-any-return]
        call = self.call(source) if info.own <= source else None  # an operation in place
        if viewed:
            rest = (source,) if call is None else part_of(call[0], source, self.values).edges[1:]
            return Part("CopySlices", (face, *rest))
        if call is None or not self.needs(source):
            return Part("CopyBackwards", (self._replaced.get(slot), source))
        return source  # type: ignore[no-any-return]

    def node(self, slot: int | None, name: tuple[Any, ...], kind: str, part: Part | None, context: Any = None) -> Node:
        """The one node with this name in the owner. `slot`: of the result by which it was found."""
        key = (*self.key, *name)
        node = _NODES.get(key)
        if node is None:
            node = _NODES[key] = _class(kind)(kind, part, self, name, context)
            node._slot = slot
        return node

    def reached(self, part: Part) -> bool:
        """Whether a part leads to anything that has a gradient."""
        return any(self.reached(end) if type(end) is Part else end is not None and (end in self.boundaries or self.needs(end)) for end in part.edges)


def _path(whole: Any, part: Part) -> tuple[int, ...]:
    """Where a part of a call is first: which edge of which edge. A part that is reached in two ways is one node."""
    for i, end in enumerate(whole.edges):
        if end is part:
            return (i,)
        if type(end) is Part and (found := _path(end, part)):
            return (i, *found)
    return ()


def _place(slots: Sequence[int | None], slot: int) -> int:
    return next((i for i, s in enumerate(slots) if s == slot), -1)


def owner_of(source: Any) -> _Owner:
    """The walkable form of a trace, a segment or a shell."""
    if type(source) is Trace:
        key: tuple[Any, ...] = (source.gen,)
        found = _OWNERS.get(key)
        if found is None or found.state is not source.state:  # it has grown
            found = _OWNERS[key] = _Owner(key, source, source.state)
            if len(WATCHED) > 100:
                WATCHED.clear()  # of traces that have left no history
            WATCHED.add(source.gen)
        return found
    gen = getattr(source, "gen", -1)
    key = (gen,) if gen >= 0 else (-1 - source.order,)
    found = _OWNERS.get(key)
    if found is None or found.source is not source:
        found = _OWNERS[key] = _Owner(key, source, source.state)
    return found


def node_of(t: Tensor) -> Node:
    """The node of a tensor with history."""
    return edge_of(t)[0]  # type: ignore[return-value]


def tensor_of(edge: Any) -> Tensor:
    """What stands for a GradientEdge in a pass."""
    found = edge.node._result(edge.output_nr)
    if found is None:
        found = edge.ownership_token
    if found is None:
        raise RuntimeError(f"GradientEdge: {edge.node!r} is of a history that is not there any more: keep the tensor, or what was computed of it")
    return found  # type: ignore[no-any-return]


def edge_of(t: Tensor) -> Edge:
    """The node of a tensor with history, and which of its results the tensor is."""
    # What was written last is found past these: the base of views is the memory itself.
    passed = ("alias",) if is_view(t) else ("alias", "as_strided")
    tr = local.trace
    history = t._history
    if history is None or (t._gen == tr.gen and t._slot not in tr.boundaries):
        if t._gen != tr.gen:  # another thread has it pending
            return _class("RecordedBackward0")("RecordedBackward0"), 0
        owner, slot = owner_of(tr), t._slot
    else:
        owner, slot = owner_of(history[0]), history[1]
    node, number = owner.edge(slot, passed)
    if node is None:
        node = owner.node(slot, (slot,), "RecordedBackward0", None)
    return node, number
