"""What outlives a trace: a Segment keeps the graph of a finished trace and the forward values that its gradients need.

A tensor with history is (segment, slot). Backward through a segment is one edge of the current trace, whose inputs are
the saved values; values that were not saved are computed again from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import memmove
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary, ref

from flambeau.autograd import hooks
from flambeau.autograd.differentiate import Index, Region, differentiate, freed_outputs, overwritten, replaced_values, static_slots
from flambeau.autograd.given_up import saving
from flambeau.autograd.ways import calls_of
from flambeau.compiler.graph import Graph, Node, Value
from flambeau.exact import exact
from flambeau.ops.primitive import PRIMITIVES
from flambeau.runtime.buffers import allocate
from flambeau.runtime.untracked import keep
from flambeau.symbols import at_sizes
from flambeau.trace.meta import meta
from flambeau.trace.objects import bare, from_storage
from flambeau.trace.recorder import Boundary, Fragment, Trace, run_in
from flambeau.trace.saved_hooks import mutable
from flambeau.trace.state import BACKWARD, SEGMENT, State
from flambeau.trace.storage import ORDER, Storage

if TYPE_CHECKING:
    from flambeau.runtime.buffers import Buffer
    from flambeau.tensor import Tensor
    from flambeau.trace.evaluate import TracePlan

# Values that are cheaper to compute again than to keep.
_RECOMPUTED = frozenset(("constant", "iota", "random_uniform", "expand", "copy_of_constant"))


_TAPES: WeakValueDictionary[tuple[Any, ...], Tape] = WeakValueDictionary()

WATCHED: set[int] = set()  # numbers of traces of which somebody holds a node (node.py): their segments are found by them
BY_NUMBER: WeakValueDictionary[int, Segment] = WeakValueDictionary()


class Tape:
    """The static half of a segment, shared by all runs of one plan: nodes, values, who needs gradients."""

    views: frozenset[int] = frozenset()  # slots of views with gradients that tensors have kept: see `Segment.keep_views`

    def __init__(self, state: State) -> None:
        path = state.path()
        self.nodes: list[Node] = [n for s in path for n in s.nodes]
        self.values: list[Value] = [v for s in path for v in s.values]
        self.requires: set[int] = set().union(*[s.requires for s in path]) if path else set()
        self.parameters: dict[int, int] = {}
        for s in path:
            for slot in s.parameters:
                self.parameters[slot] = len(self.parameters)
        self.calls = [s.first_value for s in path]
        self.saving = saving(path, self.values, self.requires.__contains__)
        self.entered = self._numbers_of_gradients()
        self.freed: set[int] = freed_outputs(path)
        self.writes = overwritten(path)
        self.replaced = replaced_values(path)
        self.reached: dict[Any, set[int]] = {}  # what follows from some of the slots (ways.py)
        self.preserved: set[int] = set()  # roots of boundaries that the trace wrote over, of which the plan kept what they were

    @cached_property
    def index(self) -> Index:
        """Of the nodes, for all passes over them."""
        return Index(self.nodes, self.calls)

    @property
    def producer(self) -> dict[int, Node]:
        """Slot -> the node that makes it."""
        return self.index.producer

    def known(self, kept: tuple[Any, ...]) -> Tape:
        """An equal tape that was met before, else this one. `kept`: what else tells its segments apart.

        The tape is part of the key of its backward pass, and that pass is part of the next trace: a loop without step boundaries
        settles only because its tapes are equal.
        """
        values = tuple([(v.shape, v.dtype, v.strides, v.base, v.offset, v.dynamic, v.device.type) for v in self.values])
        nodes = tuple([(n.op, n.inputs, n.outputs, exact(n.attrs)) for n in self.nodes])
        sets = frozenset(self.requires), frozenset(self.freed), frozenset(self.preserved), tuple(self.calls)
        key = (
            nodes, values, *sets, tuple(self.parameters), tuple(self.entered), tuple(self.writes.items()), tuple(self.replaced.items()), kept,
            tuple(self.saving.items()),
        )  # fmt: skip
        try:
            known = _TAPES.setdefault(key, self)
        except TypeError:  # an attribute that cannot be hashed
            return self
        if known is self:
            keep(key, self.nodes, self.values)
        return known

    def _numbers_of_gradients(self) -> list[int]:
        """The run-time numbers that gradients may ask for, of what needs gradients and of what is computed again for it.

        Others stay out: the trace has its own backward passes' numbers among them, which would double from trace to trace.
        """
        static = static_slots(self.nodes, self.parameters)
        waiting = [s for n in self.nodes if not self.requires.isdisjoint(n.outputs) for s in (*n.inputs, *n.outputs)]
        seen: set[int] = set()
        while waiting:
            slot = waiting.pop()
            if slot in seen:
                continue
            seen.add(slot)
            v, node = self.values[slot], self.producer.get(slot)
            waiting.extend(p for p, _ in v.dynamic)
            if node is not None and (v.base is not None or slot in static or node.op in _RECOMPUTED or node.op == "copy"):
                waiting.extend(node.inputs)
        return [slot for slot in self.parameters if slot in seen]


class TapeAt(Tape):
    """The tape of a path by class (trace/classes.py) at given sizes, or symbols: what depends on them is made when somebody asks."""

    def __init__(self, whole: Tape, sizes: tuple[int, ...], kept: tuple[Any, ...]) -> None:
        self.whole, self.sizes, self.kept = whole, sizes, kept
        self.plain = at_sizes(sizes)
        self.requires, self.parameters, self.entered = whole.requires, whole.parameters, whole.entered
        self.freed, self.writes, self.replaced, self.preserved = whole.freed, whole.writes, whole.replaced, whole.preserved
        self.calls, self.reached, self.saving = whole.calls, whole.reached, whole.saving
        self.values: Any = _ValuesAt(whole.values, self.plain)

    @cached_property
    def nodes(self) -> list[Node]:  # type: ignore[override]
        return [n.mapped(self.plain) for n in self.whole.nodes]


class NoTape(Tape):
    """A tape of one value, which no recorded node has made. `slot`: its own; those below are of what it leads back to."""

    def __init__(self, slot: int, m: Any) -> None:
        self.nodes, self.calls, self.entered = [], [], []
        self.values = {slot: Value(tuple(m.shape), m.dtype, m.strides, offset=m.offset)}  # type: ignore[assignment]
        self.requires = set(range(slot + 1))
        self.parameters, self.writes, self.replaced, self.reached = {}, {}, {}, {}
        self.freed, self.preserved, self.saving = set(), set(), {}


class _ValuesAt(Sequence[Value]):
    """The values of a tape over symbols, each made when it is asked for."""

    def __init__(self, values: list[Value], plain: Any) -> None:
        self.source = values
        self.plain = plain
        self.made: dict[int, Value] = {}

    def __getitem__(self, slot: Any) -> Any:
        found = self.made.get(slot)
        if found is None:
            found = self.made[slot] = self.source[slot].mapped(self.plain)
        return found

    def __len__(self) -> int:
        return len(self.source)


def tape_at(variant: Any, sizes: tuple[int, ...], model: State, preserved: set[int], kept: tuple[Any, ...]) -> Tape:
    """The one tape of a plan by class at given sizes (see `Tape.known`)."""
    whole = variant.tape
    if whole is None:
        whole = variant.tape = Tape(model)
        whole.preserved = preserved
    key = ("class", whole, sizes, kept)
    found = _TAPES.get(key)
    if found is None:
        found = _TAPES[key] = TapeAt(whole, sizes, kept)
    return found


def known_tape(whole: Tape, sizes: tuple[int, ...], kept: tuple[Any, ...]) -> Tape | None:
    """The tape of a plan by class at given sizes, if there is one."""
    return _TAPES.get(("class", whole, sizes, kept))


class Segment:
    """One run of a trace whose gradients can still be asked for."""

    __slots__ = (
        "__weakref__", "behind", "boundaries", "custom", "freed", "gen", "hooked", "order", "packed", "params", "saved", "shell", "state", "tape", "unpack",
        "versions",
    )  # fmt: skip

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.order = next(ORDER)
        self.gen = -1  # of its trace
        self.state: State | None = None  # where its trace ended: names the calls (node.py)
        self.saved: dict[int, Tensor] = {}  # root slot -> a tensor that holds the value
        self.versions: dict[int, int] = {}  # of saved storages that belong to somebody else: they must not change
        self.boundaries: dict[int, Boundary] = {}
        self.behind: dict[int, Tensor | tuple[Shell, int]] = {}  # see History
        self.shell: Shell | None = None  # what is left of it, for those that have it behind what was given up
        self.custom: dict[int, Any] = {}
        self.hooked: dict[int, Tensor] = {}
        self.params: list[Any] = []
        self.freed: set[int] = set(tape.freed)
        self.packed: dict[int, Any] = {}  # what a pack hook has made of the saved values; then `saved` has their metadata only
        self.unpack: Any = None

    def leading_on(self) -> list[tuple[int, Tensor, tuple[Any, int] | None]]:
        """(slot, tensor, its history) of each boundary whose history is known."""
        return [(slot, b.tensor, b.history) for slot, b in self.boundaries.items() if b.settled]

    def made_later(self) -> Any:
        """Of a kept piece's: see kept_segment.py."""
        return None

    def without_values(self) -> tuple[int, State | None, Any, dict[int, Tensor | tuple[Shell, int]]]:
        """What a shell has of it: the trace, the state, custom functions' slots, and what is behind what was given up before."""
        return self.gen, self.state, calls_of(self), self.behind

    def keep_view(self, slot: int) -> None:
        """A view of a saved value as a value of its own."""
        v = self.tape.values[slot]
        root = self.saved.get(v.base) if v.base is not None else None
        numbers = dict(zip(self.tape.entered, self.params, strict=True)) if v.dynamic else {}
        if root is not None and root._storage is not None and all(p in numbers for p, _ in v.dynamic):
            m = meta(v.shape, v.strides, v.dtype, v.offset, True, False, dynamic=bool(v.dynamic), device=v.device)
            t = from_storage(root._storage, m, offset=v.offset + sum([numbers[p] * times for p, times in v.dynamic]))
            t._history = (self, slot)
            self.saved[slot] = t
            if v.base in self.versions:
                self.versions[slot] = self.versions[v.base]

    def keep_views(self) -> None:
        """Where gradients of gradients will be asked for: those at a view that a tensor has kept, too, and not only at what it is a view of."""
        for slot in sorted(self.tape.views):
            if slot not in self.saved and slot not in self.boundaries:
                self.keep_view(slot)

    def pack(self, pack: Any, unpack: Any) -> None:
        """Keep what `pack` makes of each saved value in its place (autograd.graph.saved_tensors_hooks)."""
        self.unpack = unpack
        self.saved = {slot: t for slot, t in self.saved.items() if slot not in self.boundaries}  # these are views of others
        for slot, t in self.saved.items():
            self.packed[slot] = hooks.packed_by(pack, t.detach())
        for slot, t in self.saved.items():
            empty = bare(type(t))
            empty._meta, empty._history = t._meta, t._history
            self.saved[slot] = empty

    def values(self) -> list[Tensor]:
        """The saved values, unpacked where a hook has packed them."""
        if not self.packed:
            return list(self.saved.values())
        from flambeau.trace.evaluate import observe

        made = []
        for slot, like in self.saved.items():
            m = like._meta
            t = self.unpack(self.packed[slot])
            if tuple(t._meta.shape) != tuple(m.shape) or t._meta.dtype is not m.dtype:
                raise RuntimeError(
                    f"saved_tensors_hooks: the unpack hook returned a tensor of shape {tuple(t._meta.shape)} and dtype {t._meta.dtype!r}; what was "
                    f"packed had shape {tuple(m.shape)} and dtype {m.dtype!r}"
                )
            seen = t._storage is not None and t._storage.external is not None
            if seen or t._meta.strides != m.strides or t._meta.bits or t._meta.offset or t._meta.dynamic:
                t = _laid_out(t, m)
            whole = from_storage(observe(t), m)
            whole._history = like._history
            made.append(whole)
        return made


class Shell:
    """What is left of a segment behind what was given up: where its slots lead, as PyTorch's nodes know it, without values.

    `behind`: the leaves, and slots of further shells. A leaf is kept alive, as it is by PyTorch's nodes.
    """

    __slots__ = ("behind", "calls", "gen", "made_of", "order", "segment", "state", "tape")
    state: State | None
    tape: Tape

    def __init__(self, segment: Segment, leading_on: list[tuple[int, Tensor, tuple[Any, int] | None]]) -> None:
        self.segment = ref(segment)
        self.order, self.made_of = segment.order, segment.made_later()
        self.gen, state, self.calls, behind = segment.without_values()
        if self.made_of is None:
            self.state, self.tape = state, segment.tape
        self.behind = {**behind, **{slot: _behind(t, history) for slot, t, history in leading_on}}

    def __getattr__(self, name: str) -> Any:
        if name not in ("state", "tape") or self.made_of is None:
            raise AttributeError(name)
        kept, sizes = self.made_of
        found = kept.state_at(sizes) if name == "state" else kept.tape_for(sizes)
        setattr(self, name, found)
        return found


def _behind(t: Tensor, history: tuple[Any, int] | None) -> Tensor | tuple[Shell, int]:
    """What stands for a boundary (a tensor and its history) behind what was given up."""
    if history is None:
        return t
    segment, slot = history
    if segment.shell is None:
        found, waiting = {}, [segment]
        while waiting:
            one = waiting.pop()
            if one not in found:  # many ways may lead to one segment
                found[one] = one.leading_on()
                waiting.extend([before[0] for _, _, before in found[one] if before is not None and before[0].shell is None])
        for s in sorted(found, key=lambda s: s.order):  # from the beginning of the history on, so that no call goes deep
            s.shell = s.shell or Shell(s, found[s])
    return segment.shell, slot


def trace_region(tr: Trace, fragment: Fragment, path: list[State], dry: bool = False) -> Region:
    """The current trace as a region: forward values are slots of the path itself."""
    nodes = tr.nodes(path)
    requires: set[int] = set().union(*[s.requires for s in path])
    boundaries = set(tr.boundaries) | set(tr.custom)
    indices = {slot for s in path for slot in s.parameters}
    return Region(
        fragment, nodes, requires.__contains__, fragment.value, fragment.at, boundaries, freed_outputs(path), overwritten(path),
        replaced_values(path), indices, [s.first_value for s in path], dry, saving=saving(path, _Values(fragment), requires.__contains__),
    )  # fmt: skip


class _Values(Sequence[Value]):
    """The values of a trace, by slot."""

    def __init__(self, fragment: Fragment) -> None:
        self.fragment = fragment

    def __getitem__(self, slot: Any) -> Any:
        return self.fragment.value(slot)

    def __len__(self) -> int:
        return self.fragment.first


class History:
    """What a plan keeps for gradients beyond its trace.

    `tensors`: (position among the trace's tensors, slot) of those that keep a history. `storages`: (whether an input, its
    index or a tensor's position, slot) of the storages that do. `results`: (position, slot) of tensors that are a storage's whole
    content. `saved`: (root slot, index of the output that holds it, or -1 - index of the input that does). `preserved`: see Tape.
    `boundaries`: those at which gradients can arrive, or whose values gradients use; others must not keep earlier segments alive.
    """

    def __init__(self) -> None:
        self.tensors: list[tuple[int, int]] = []
        self.storages: list[tuple[bool, int, int]] = []
        self.results: list[tuple[int, int]] = []
        self.saved: list[tuple[int, int]] = []
        self.preserved: set[int] = set()
        self.boundaries: set[int] = set()
        self.behind: list[int] = []  # other boundaries that the tensors came from: what leads there was given up


def plan_history(tr: Trace, state: State, graph: Graph, tensors: list[Tensor], alive: bytes, output: Any) -> History | None:
    """Which living tensors keep a history beyond this trace, and which values their gradients need.

    `output(root)` asks the plan to keep a value and gives its index.
    """
    history = History()
    updated = {root: i for i, root in graph.updates}
    history.storages = [(True, i, root) for root, i in updated.items() if tr.needs(root)]
    for position, (t, lives) in enumerate(zip(tensors, alive, strict=True)):
        if not lives:
            continue
        storage = t._storage
        if t._gen == tr.gen and t._meta.requires_grad and not t._meta.leaf and t._slot not in tr.boundaries:
            history.tensors.append((position, t._slot))
            if graph.values[t._slot].base is None and t._slot not in updated:
                history.results.append((position, t._slot))
        followed = storage is not None and t._detached == storage.family and (t._gen == -1 or (t._meta.requires_grad and t._slot != storage.slot))
        if followed and storage is not None and storage.gen == tr.gen and storage.slot not in updated:
            face = tr.custom_face(storage.slot) if tr.custom else storage.slot
            if tr.needs(face):
                history.storages.append((False, position, face))
    wanted = {slot for _, slot in history.tensors} | {slot for _, _, slot in history.storages}
    if not wanted:
        return None
    path = state.path()
    fragment = Fragment(tr, False)
    region = trace_region(tr, fragment, path, dry=True)
    freed, region.freed = region.freed, set()

    def dry_run() -> None:
        pending = {slot: _ones(fragment, slot) for slot in wanted}
        for context in tr.custom.values():
            for slot in context.input_slots:
                pending.setdefault(slot, _ones(fragment, slot))
        region.index = Index([n for n in region.nodes if n.outputs[0] not in freed], region.calls)
        history.boundaries |= set(pending)
        differentiate(region, pending, -1)
        history.boundaries |= set(pending)

    run_in(fragment, dry_run, ())
    saved: dict[int, int] = {}
    values = graph.values
    producer = {o: n for n in graph.nodes for o in n.outputs}
    inputs = {root: i for i, root in enumerate(graph.inputs)}
    static = static_slots(graph.nodes, graph.parameters)
    written = {i for i, _ in graph.updates}

    def save(slot: int) -> None:
        base = values[slot].base
        root = slot if base is None else base
        if root in saved or root in static:
            return
        if root in inputs:
            if inputs[root] in written:  # an in-place operation uses what it writes over: keep a copy
                v = values[root]
                copy = graph.add_value(Value(v.shape, v.dtype, v.strides, device=v.device))
                graph.nodes.insert(0, Node("copy", (root,), (copy,), (("strides", v.strides),)))
                history.preserved.add(root)
                saved[root] = output(copy)
            else:
                saved[root] = -1 - inputs[root]
            return
        if root in updated:
            saved[root] = -1 - updated[root]
            return
        node = producer[root]
        if node.op in _RECOMPUTED or (node.op == "copy" and _is_cheap(node, producer, set(inputs))):
            for i in node.inputs:
                save(i)
            return
        saved[root] = output(root)

    reached: set[int] = set()

    def save_sources(slot: int) -> None:
        base = values[slot].base
        root = slot if base is None else base
        if root in reached or root in saved or root in static:
            return
        reached.add(root)
        if slot in tr.boundaries:
            history.boundaries.add(slot)
        elif root in inputs or root in updated:
            save(root)
        else:
            for i in producer[root].inputs:
                save_sources(i)

    for slot in sorted(region.slots_used):
        save(slot)
    for slot in sorted(region.slots_later):
        save_sources(slot)
    history.boundaries |= region.slots_used | set(tr.hooked)
    history.boundaries &= set(tr.boundaries)
    # what an operation without gradients has written is a boundary, too: written over once more, its tensor has a later value
    roots = {values[slot].base for slot in history.boundaries}
    history.preserved.update(root for root in roots if root is not None and root in region.writes and root in saved)
    history.saved = sorted(saved.items())
    if freed:
        history.behind = sorted(_came_from(wanted, tr, region).intersection(tr.boundaries).difference(history.boundaries))
    return history


def _came_from(slots: set[int], tr: Trace, region: Region) -> set[int]:
    """The slots with gradients behind some, by nodes, custom functions, and as what was there before."""
    producer = {o: n for n in region.nodes for o in n.outputs}
    custom = {o: c.input_slots for c in tr.custom.values() for o in c.output_slots if o is not None}
    waiting, found = list(slots), set(slots)
    while waiting:
        slot = waiting.pop()
        node = producer.get(slot)
        more = [*(node.inputs if node is not None else ()), *custom.get(slot, ())]
        if slot in region.replaced:
            more.append(region.replaced[slot])
        for s in more:
            if s is not None and s not in found and region.needs(s):
                found.add(s)
                waiting.append(s)
    return found


def _is_cheap(node: Node, producer: dict[int, Node], inputs: set[int]) -> bool:
    """A copy of a repeated constant (zeros, ones, full)."""
    while node.op in ("copy", "expand"):
        if node.inputs[0] in inputs or node.inputs[0] not in producer:
            return False
        node = producer[node.inputs[0]]
    return node.op == "constant"


def _ones(fragment: Fragment, slot: int) -> Tensor:
    v = fragment.value(slot)
    new = fragment.add_value(Value(v.shape, v.dtype, _contiguous(v.shape), device=v.device))
    return fragment.placeholder(new, meta(v.shape, None, v.dtype, device=v.device))


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    from flambeau.compiler.graph import contiguous_strides

    return contiguous_strides(shape)


def tape_of(plan: TracePlan, state: State, boundaries: dict[int, Boundary], custom: dict[int, Any] | None, hooked: dict[int, Tensor] | None) -> Tape:
    """The tape that all segments of a plan share."""
    history, tape = plan.history, plan.tape
    assert history is not None
    if tape is None:
        lead_on = tuple(sorted(slot for slot, b in boundaries.items() if not b.settled or b.history is not None)) if history.preserved else ()  # see `_save`
        kept = (tuple(slot for slot, _ in history.saved), frozenset(history.boundaries), frozenset(custom or ()), frozenset(hooked or ()), lead_on)
        if plan.variant is not None and state.model is not None:
            tape = plan.tape = tape_at(plan.variant, plan.sizes, state.model, history.preserved, kept)
        else:
            tape = Tape(state)
            tape.preserved = history.preserved
            tape = plan.tape = tape.known(kept)
        values = tape.values
        tape.views |= {slot for _, slot in history.tensors if values[slot].base is not None and slot not in boundaries}
    return tape  # type: ignore[no-any-return]


def keep_history(
    plan: TracePlan, state: State, tensors: list[Tensor], inputs: list[Storage], buffers: list[Buffer],
    boundaries: dict[int, Boundary], custom: dict[int, Any], hooked: dict[int, Tensor], params: list[Any],
) -> None:  # fmt: skip
    """Make the segment of a trace that has just run, and hang the surviving tensors on it."""
    history = plan.history
    assert history is not None
    tape = tape_of(plan, state, boundaries, custom, hooked)
    segment = Segment(tape)
    segment.state, segment.gen = state, plan.last
    if segment.gen in WATCHED:
        WATCHED.discard(segment.gen)
        BY_NUMBER[segment.gen] = segment
    if history.boundaries:
        segment.boundaries = {slot: b for slot, b in boundaries.items() if slot in history.boundaries}
    if history.behind:
        segment.behind = {slot: _behind(b.tensor, b.history) for slot in history.behind if (b := boundaries[slot]).settled}
    segment.custom = custom or {}
    segment.hooked = hooked or {}
    segment.params = [params[tape.parameters[slot]] for slot in tape.entered]
    if history.saved or custom:
        living = {output: tensors[position]._storage for position, output in plan.assign}

        def holder(slot: int, index: int) -> tuple[Storage, bool]:
            storage = inputs[-1 - index] if index < 0 else living.get(index)
            if storage is not None and mutable[0] and (buffer := storage.buffer) is not None:  # whoever else has it may write to it
                copy = allocate(buffer.nbytes)
                memmove(copy.address, buffer.address, buffer.nbytes)
                return Storage(copy), False
            return (Storage(buffers[index]), False) if storage is None else (storage, True)

        save(history, segment, holder, plan.input_slots())
    for position, slot in history.tensors:
        tensors[position]._history = (segment, slot)
    for is_input, index, slot in history.storages:
        owner = inputs[index] if is_input else tensors[index]._storage
        assert owner is not None
        owner.history = (segment, slot)
    for position, slot in history.results:
        owner = tensors[position]._storage
        if owner is not None:
            owner.result = (ref(segment), slot)
    if hooks.saved and segment.saved:
        hooks.unpacked.append((segment, hooks.saved[-1]))  # hooks are user code: not while a trace is being ended


def save(history: History, segment: Segment, holder: Callable[[int, int], tuple[Storage, bool] | None], input_slots: Sequence[int]) -> None:
    """Give a segment the values that its gradients need. `holder(root slot, index)`: what holds one, and whether others can write to it; None: nothing."""
    tape = segment.tape
    for slot, index in history.saved:
        found = holder(slot, index)
        if found is None:
            continue
        storage, shared = found
        v = tape.values[slot]
        needs = slot in tape.requires
        if shared:
            segment.versions[slot] = storage.version
        if index < 0 and slot == input_slots[-1 - index]:
            needs = False
        m = meta(v.shape, v.strides, v.dtype, 0, needs, not needs, device=v.device)
        t = from_storage(storage, m)
        if needs:
            t._history = (segment, slot)
        segment.saved[slot] = t
    for slot in segment.custom:  # gradients of gradients reach it by the user's backward too
        segment.keep_view(slot)
    for slot, boundary in segment.boundaries.items() if tape.preserved else ():
        v = tape.values[slot]
        if boundary.settled and boundary.history is not None and v.base in tape.preserved and v.base in segment.saved:
            # what an earlier trace has computed and this one wrote over: gradients of gradients lead on to where it came from
            m = meta(v.shape, v.strides, v.dtype, v.offset, True, False, dynamic=bool(v.dynamic))
            t = segment.saved[slot] = from_storage(segment.saved[v.base]._storage, m, offset=boundary.tensor._offset)  # type: ignore[arg-type]
            t._history = boundary.history


def _laid_out(t: Tensor, m: Any) -> Tensor:
    """A copy with the strides that `m` says."""
    from flambeau.ops.creation import empty_strided

    copy = empty_strided(tuple(m.shape), m.strides, dtype=m.dtype)
    copy.copy_(t.detach())
    return copy


class SegmentForward:
    """Forward values of a segment inside a fragment of the current trace: saved ones as inputs, others computed again."""

    def __init__(self, segment: Segment, tape: Tape, fragment: Fragment, entered: dict[int, Tensor]) -> None:
        self.segment = segment
        self.tape = tape  # the segment's, or that over symbols
        self.fragment = fragment
        self.known = dict(entered)
        self.entered = frozenset(entered)
        self.boundaries_used: set[int] = set()

    def __call__(self, slot: int) -> Tensor:
        found = self.known.get(slot)
        if found is None:
            found = self._again(slot)
            self.known[slot] = found
        elif slot in self.entered and (slot in self.segment.boundaries or slot in self.segment.saved):  # not what is computed again
            # by the tape alone: segments differ in who else holds what is saved
            self.boundaries_used.add(slot)
        return found

    def _again(self, slot: int) -> Tensor:
        tape = self.tape
        if slot in tape.parameters:
            raise AssertionError("parameters are entered")
        node = tape.producer[slot]
        outputs = _record_again(self.fragment, node, tape.values[slot], self)
        for o, r in zip(node.outputs, outputs, strict=True):
            self.known.setdefault(o, r)
        return outputs[node.outputs.index(slot)]


def _record_again(fragment: Fragment, node: Node, v: Value, forward: Callable[[int], Tensor]) -> tuple[Tensor, ...]:
    """The results of a node, one of which is `v`, in a fragment."""
    # How a tensor lies in its storage: the primitive alone does not say.
    if node.op == "alias" or (node.op == "bitcast" and "dtype" not in dict(node.attrs)):
        attrs = {"multipliers": tuple([m for _, m in v.dynamic]), "offset": v.offset, "shape": v.shape, "strides": v.strides}
        memory = forward(node.inputs[0])
        if node.op == "bitcast":
            from flambeau.ops import primitives as prim

            memory = prim.flat_in(memory, v.dtype)
        sources = [memory, *[forward(p) for p, _ in v.dynamic]]
        return (fragment.record(PRIMITIVES["as_strided"], sources, attrs),)
    results = fragment.record(PRIMITIVES[node.op], [forward(i) for i in node.inputs], dict(node.attrs))
    return results if isinstance(results, tuple) else (results,)


class TraceForward:
    """Forward values of the current trace where gradients of gradients will be asked for: views that a call has made for itself are made again.

    So they are where the call is in an earlier segment. What comes to such a view then is added to the gradient of what it is a view of, one after the other.
    """

    def __init__(self, region: Region, fragment: Fragment, path: Sequence[State]) -> None:
        self.region = region
        self.fragment = fragment
        self.own: set[int] = set()  # the slots that calls have for themselves
        for state in path:
            if type(state.edge) is tuple and state.edge and (state.edge[0] is BACKWARD or state.edge[0] is SEGMENT or hasattr(state.edge[0], "kinds")):
                self.own.update(o for n in state.nodes for o in n.outputs)
                self.own.difference_update((state.slot,) if state.plain else [out.slot for out in state.outs])
        self.known: dict[int, Tensor] = {}

    def __call__(self, slot: int) -> Tensor:
        region = self.region
        if slot not in self.own or region.value(slot).base is None or not region.needs(slot):
            return self.fragment.at(slot)
        found = self.known.get(slot)
        if found is None:
            node = region.index.producer[slot]
            self.known.update(zip(node.outputs, _record_again(self.fragment, node, region.value(slot), self), strict=True))
            found = self.known[slot]
        return found
