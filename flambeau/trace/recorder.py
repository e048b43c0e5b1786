"""The recorder: one Trace a thread follows the trie; a Fragment (fragment.py) expands one public call into primitives.

Fast path: a generated wrapper (ops/wrapper.py) looks its key up in `trace.state.children` and hands out a Tensor.
Slow path (`Trace.slow`): the call's body runs over placeholders inside a Fragment, and what it recorded becomes the edge.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from flambeau import dtypes
from flambeau.compiler.graph import Node, Value, may_repeat
from flambeau.devices import META
from flambeau.foreign import refuse
from flambeau.statistics import counters
from flambeau.trace import classes, tiers
from flambeau.trace import fragment as fragments
from flambeau.trace.blank import device_of
from flambeau.trace.bounds import check, resolve
from flambeau.trace.call_arguments import kinds_of, sort_arguments
from flambeau.trace.debugging import untraced
from flambeau.trace.fragment import PARAMETER_DTYPE, Fragment, Moved, OffsetNeeded, _new, casting_body
from flambeau.trace.from_model import MADE, settle_made
from flambeau.trace.input_keys import input_key, known_key
from flambeau.trace.limits import look_at_numbers, words
from flambeau.trace.look_up import Listed, Path, listed
from flambeau.trace.loops import LOOK, ends_round
from flambeau.trace.meta import Meta, meta
from flambeau.trace.objects import _TENSOR, from_storage, is_view
from flambeau.trace.place import here
from flambeau.trace.state import ALIAS, IN, Out, State
from flambeau.trace.stepwise import Beside, try_call
from flambeau.trace.storage import Storage
from flambeau.trace.traces import NOWHERE, SHARING, TRACE_SLOTS, TRACES, add, enter, named
from flambeau.trace.while_set import while_set
from flambeau.trace.wrong_calls import explained, internal, unexpected
from flambeau.upward import upward

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

GRAD_MODE, AUTOCAST, CUSTOM, STEPWISE, HOOKED = "grad mode", "autocast", "custom", "stepwise", "hooked"
DEPTH_LIMIT = 4096  # recorded calls pending at most
BYTES_LIMIT = 4 << 30  # results pending at most; read against the machine's memory by evaluate.py


class Boundary:
    """Where gradients leave a trace: a leaf tensor, or a tensor whose history is an earlier segment's value."""

    __slots__ = ("history", "tensor", "version")
    settled = True  # whether its history can be had without waiting (stand_ins.py)

    def __init__(self, tensor: Tensor, history: tuple[Any, int] | None) -> None:
        self.tensor = tensor
        self.history = history
        self.version = 0


class Trace:
    """What this thread has recorded since its last observation."""

    # At fixed places: native code reads them (known_edge.py).
    __slots__ = ("__dict__", "__weakref__", "boundaries", "claims", "gen", "held", "inputs", "params", "resolved", "state", "tensors")

    def __init__(self) -> None:
        self.gen = self.index = NOWHERE  # until it is one of TRACES
        self.thread = threading.current_thread()
        self.roots: dict[Any, State] = {}
        self.grad_enabled = True
        self.autocast: dtypes.dtype | None = None  # the lower precision of amp.autocast; None: off
        self.default_dtype: Any = None
        self.mode_changed = False  # the next trace starts at another root
        self.boundaries: dict[int, Boundary] = {}
        self.custom: dict[int, Any] = {}
        self.hooked: dict[int, Tensor] = {}
        self.faces: dict[int, int] = {}
        self.inference = False
        self.beside: Beside | None = None  # what `set_sync` has computed (stepwise.py)
        self.claims: list[tuple[Any, ...]] | None = None  # of a trace of finalizers (finalizers.py)
        self.looks = 0  # how often a value or an offset has decided what was recorded: such calls are not remembered (ops/remembered.py)
        self.held = False  # a call of several edges is under way: shared memory may wait for its end
        self.limit = LOOK  # calls from which on it is asked whether to end the trace
        self.walk = tiers.Walk()
        self.view: classes.View | None = None  # the path over symbols
        self.symbolic = False  # it is what is being looked at
        self.exact: State | None = None  # where the trace stands, while `state` is a model
        self.running = -1  # the generation that is being run: until it has ended, its tensors have no values, or no histories yet
        self.shared: dict[Storage, int] = {}  # inputs that other traces have, too, with their slots here (traces.py)
        self.reading: dict[Storage, int] = {}  # the same of what is being run
        self.stand_ins: dict[int, tuple[Tensor, Tensor, Storage, int]] = {}  # by id, for tensors of threads that are in the middle of a call (stand_ins.py)
        self.taken = -1  # the generation that another thread has taken and may not have run yet (elsewhere.py)
        self._values: list[Value] = []
        self._values_of: State | None = None
        self.path = Path()
        self.listed: Listed | None = None
        self.state: State
        self.tensors: list[Tensor]
        self.inputs: list[Storage]
        self.params: list[Any]
        self.resolved: list[Tensor]
        self.reset()

    # -- bookkeeping --------------------------------------------------------------------------------------------
    def next_generation(self) -> int:
        """A generation for a fragment: no trace has it."""
        return -3 - next(_fragments)

    def reset(self) -> None:
        """Start a new, empty trace."""
        if (dtypes._DEFAULT[0] is not self.default_dtype or self.mode_changed) and self.taken < 0:  # else it stays where no call is known
            self.default_dtype = dtypes._DEFAULT[0]
            self.mode_changed = False
            self.root = self._root_for_mode()
        # `resolved`: the tensors under which it knows its inputs: a write must be able to find them. All at once: no interrupt can come in between.
        self.gen, self.state, self.tensors, self.inputs, self.params, self.resolved = self.gen + TRACE_SLOTS, self.root, [], [], [], []
        self.limit = LOOK
        if self.view is not None:
            self.view.rec.close()
            self.view = None
        if MADE:
            settle_made()
        if self.shared:
            self.shared = {}
        if self.stand_ins:
            self.stand_ins = {}
        if self.boundaries:
            self.boundaries = {}
        if self.custom:
            self.custom = {}
        if self.hooked:
            self.hooked = {}
        if self.faces:
            self.faces = {}
        if self.path.found[0]:
            self.path = Path()
        self.listed = None

    def _next_piece(self, op: Any, key: Any, args: Sequence[Any]) -> bool:
        """End the trace within a path in pieces (tiers.py), before a call, if that can be done."""
        from flambeau.trace.evaluate import make_ready, settle

        gen = self.gen
        tensors: list[Tensor] = []
        sort_arguments(kinds_of(op, key), op, args, tensors, [])
        if any(t._gen == gen and t not in listed(self) for t in tensors):
            return False  # a tensor that stands for another one: it would get no value
        if self.state.views_only:
            settle(self)
        elif not make_ready(self, "new call"):
            return False
        self.end_piece("new call")
        return True

    def end_piece(self, reason: str) -> None:
        """Run what is pending; what comes next is a piece."""
        from flambeau.trace.evaluate import flush

        flush(self, reason)
        self.begin_piece()

    def begin_piece(self) -> None:
        """What comes next, after a trace has ended, is a piece."""
        if tiers.begins_piece(self):
            counters.pieces += 1
            if self.taken < 0:
                self.state = self.piece_root()

    def holding(self, function: Callable[..., Any], *args: Any) -> Any:
        """`function(*args)`. Memory that others see ends the trace at every call: here not before all is recorded that counts on its slots."""
        try:
            return while_set(self, "held", True, function, *args)
        finally:
            if self.state.external and not self.held:
                from flambeau.trace.evaluate import flush

                flush(self, "external memory")

    def standing(self) -> State:
        """Where the trace stands with its own sizes: who looks from aside (another thread, a finalizer, a debugger) may come at any line."""
        return self.exact or self.state

    def values(self) -> list[Value]:
        """All values of the path so far, by slot."""
        state: State | None = self.state
        if self._values_of is not state:
            missing: list[State] = []
            while state is not None and state is not self._values_of:
                missing.append(state)
                state = state.parent
            values = self._values if state is not None else []  # what was there is a prefix of it
            self._values_of = None  # until it is whole: an interrupt may come
            for s in reversed(missing):
                values.extend(s.values if not self.symbolic else self.view.of(s))  # type: ignore[union-attr]
            self._values = values
            self._values_of = self.state
        return self._values

    def value(self, slot: int) -> Value:
        return self.values()[slot]

    def nodes(self, path: Sequence[State]) -> list[Node]:
        """The nodes of states of the path."""
        if not self.symbolic:
            return [n for s in path for n in s.nodes]
        assert self.view is not None
        return [n for s in path for n in self.view.nodes(s)]

    def layout(self, slot: int, m: Meta) -> Meta:
        """The metadata of a tensor of the path; where the path is over symbols, with its layout there."""
        if not self.symbolic:
            return m
        v = self.value(slot)
        return meta(v.shape, v.strides, v.dtype, v.offset, m.requires_grad, m.leaf, m.wrapped, m.dynamic, m.device, m.bits)

    def publish(self, state: State, key: Any) -> None:
        """Make a whole state the child of its parent; a model is known by its place's variants alone (classes.py)."""
        if self.symbolic:
            state.sizes = None
            state.untrack(key)
            self.view.values[state] = state.own_values  # type: ignore[union-attr]
        else:
            state.enter(key)

    def needs(self, slot: int) -> bool:
        """Whether a gradient can be asked of this value."""
        state = self.path.state_of(self.state, slot)
        while state is not None and state.first_value <= slot < state.value_count:
            if slot in state.requires:
                return True
            state = state.parent
        return False

    # -- known edges --------------------------------------------------------------------------------------------
    def follow(self, state: State, tensors: Sequence[Tensor]) -> Any:
        """Take the edge to `state` and hand out its results. `tensors` are the call's tensors, in order."""
        if state.bounds:
            check(self, state, tensors)
        if state.native:
            self.state.next = state
            if take is not None and (answer := take(state, tensors)) is not None:
                return answer
        elif state.stepwise:
            try_call(self, state)
        self.state = state
        gen = self.gen
        outs = state.outs
        if state.single_view:  # the usual view: one result that shares its argument's storage
            out = outs[0]
            assert out.alias is not None
            base = tensors[out.alias]
            if base._slot == out.slot and base._gen == gen:  # not of another thread, which has taken it since
                return base
            t = _new(_TENSOR[0])
            t._immediate = None
            t._view = True
            t._gen = gen
            t._slot = out.slot
            t._meta = m = out.meta
            storage = base._storage
            if storage is None:
                storage = base._storage = Storage(None, gen, base._slot)
            t._storage = storage
            if base._detached or (base._meta.requires_grad and not m.requires_grad):
                t._detached = base._detached or 1
            if out.dynamic:
                params = self.params
                offset = m.offset
                for i, multiplier in out.dynamic:
                    offset += params[i] * multiplier
                t._offset = offset
            self.tensors.append(t)
            return t
        results: list[Any] = []
        cls = _TENSOR[0]
        for out in outs:
            alias = out.alias
            if alias is not None and tensors[alias]._slot == out.slot and tensors[alias]._gen == gen:
                results.append(tensors[alias])
                continue
            t = _new(cls)
            t._storage = t._immediate = None
            t._gen = gen
            t._slot = out.slot
            t._meta = out.meta
            if alias is not None:
                base = tensors[alias]
                t._view = True
                t._storage = base._storage or storage_of(base)
                if base._detached or not (out.meta.requires_grad or not base._meta.requires_grad):
                    t._detached = base._detached or 1
            elif out.root != out.slot:
                t._storage = Storage(None, gen, out.root)
            if out.dynamic:
                params = self.params
                t._offset = out.meta.offset + sum([params[i] * m for i, m in out.dynamic])
            self.tensors.append(t)
            results.append(t)
        pack = state.pack
        answer = results[0] if pack is None else results[:] if pack is list else tuple.__new__(pack, results)
        if state.external and not self.held:
            results.clear()
            from flambeau.trace.evaluate import flush

            flush(self, "external memory")
        return answer

    def slot_of(self, t: Tensor) -> int:
        """The slot of `t` in this trace.

        Read before the generation: another thread, to which `t` is an input too, makes the generation invalid, then writes its slot.
        """
        slot = t._slot
        return slot if t._gen == self.gen else self.resolve(t)

    def after_taken(self) -> None:
        """What another thread has taken has run when this returns: until then the trace stands where no call is known."""
        from flambeau.trace.elsewhere import run_taken

        run_taken(self.taken)
        self.taken = -1
        self.root, self.mode_changed = self._root_for_mode(), True
        self.state = self.piece_root() if tiers.in_pieces(self) else self.root

    def resolve(self, t: Tensor) -> int:
        """The slot of `t` in this trace; registers its storage as an input of the trace if need be."""
        if self.taken >= 0:
            self.after_taken()
        if len(TRACES) == 1 and not self.shared:
            return self._resolve(t)
        from flambeau.trace.stand_ins import bring, is_elsewhere

        while True:
            slot = bring(self, t)  # before the lock: another thread may have to go on first
            if slot >= 0:
                return slot
            with SHARING:
                if is_elsewhere(self, t):
                    continue  # again: the other thread has gone on while this one waited for the lock
                storage = t._storage
                return self._resolve(t) if storage is None or storage not in self.shared else named(self, storage, self._resolve, t)

    def _resolve(self, t: Tensor) -> int:
        if self.symbolic:  # all tensors of the call were known when this began: another thread has taken one since
            raise Moved
        storage = t._storage
        gen = self.gen
        key = t._input_key
        if key is not None and storage is not None and storage.gen < 0 and storage.external is None and storage.cut < 0:
            state = self.state.children.get(key)  # met before, as a plain input
            if state is not None and key[1] is t._meta and storage.buffer is not None:
                return self._enter_input(t, key[1], storage, state, bool(state.requires), t._history)
        m = t._meta
        if t._immediate is not None and replay(self, t):
            return t._slot
        if storage is None or (storage.gen != gen and not storage.has_value()):
            from flambeau.trace.elsewhere import evaluate_elsewhere

            storage = evaluate_elsewhere(t, to_record=True)
        history = t._history
        face = -1
        keeps = t._retains_grad and is_view(t) and history is not None
        detached = t._detached != storage.family
        if storage.cut >= 0 and not detached and not (m.requires_grad and m.leaf):
            if history is not None and history[0].order < storage.cut and history != storage.source():
                self._lose(t, history[0])  # written over since: its values come from the storage's history
                history = None
            if history is None and storage.source() is not None:
                face = self.face(storage)
        elif storage.gen == gen and m.requires_grad and not m.leaf and history is None and not detached:
            face = self._origin_below(storage)
        elif detached and storage.others is not None and not (m.requires_grad and m.leaf):
            face = self._former(storage, t)
            history = t._history
        leaf = m.requires_grad and (m.leaf or history is not None)
        if storage.gen == gen:
            plain_reread = not leaf and (not detached or face >= 0)
            key = (ALIAS, storage.slot if face < 0 else face, m, leaf, plain_reread)
        else:
            buffer = storage.buffer
            if buffer is None:
                raise RuntimeError(f"a tensor of shape {tuple(m.shape)} has no value: the computation that should have made it failed earlier")
            external = storage.external is not None and is_external(storage)
            key = input_key(m, buffer.nbytes, external)
            if not m.dynamic and not external and leaf == m.requires_grad:
                t._input_key = key
        state = self.state.children.get(key)
        if state is None:
            state = self._register(key, m, leaf)
        slot = self._enter_input(t, m, storage, state, leaf, history)
        if not leaf and m is not state.meta and state.meta is not None and t._meta is m:
            t._meta = state.meta
        if storage.cut >= 0 and not leaf and slot in state.requires and not any(known is t for known in self.tensors):
            self.tensors.append(t)  # its history is what it is here: later traces, and hooks, must find the same value
        if keeps and t._history is None and not leaf and slot in state.requires:
            self.hooked[slot] = t
        return slot

    def _enter_input(self, t: Tensor, m: Meta, storage: Storage, state: State, leaf: bool, history: tuple[Any, int] | None) -> int:
        """Take the edge by which `t` becomes known to this trace.

        The state is the last to change: whatever comes in between (an interrupt), the lists can be cut to what the state says.
        """
        gen, slot = self.gen, state.slot
        try:
            if leaf:
                boundary = self.boundaries[slot] = Boundary(t, history)
                boundary.version = storage.version
                if t._hooks:
                    self.hooked[slot] = t
            if t._meta.dynamic:
                self.params.append(t._offset - t._meta.offset)
            self.resolved.append(t)
            if state.inputs:
                self.inputs.append(storage)
                if len(TRACES) > 1:
                    enter(self, storage, state.root_slot)
                else:
                    storage.slot = storage.origin = state.root_slot
                    storage.gen = gen
            self.state.next = self.state = state
        except BaseException:
            self.heal()
            raise
        if t._meta is m:  # else its thread has made it another view meanwhile
            t._gen = -2
            t._slot = slot
            t._gen = gen
        if leaf and t._hooks and is_view(t):
            self.mark_hooked(slot)
        return slot

    def heal(self) -> None:
        """After whatever was raised while an edge was taken: the lists are cut to what the state says that the path has."""
        state = self.state
        del self.params[state.parameter_count :]
        for storage in self.inputs[state.input_count :]:
            if storage.gen == self.gen:
                storage.gen = -1
            self.shared.pop(storage, None)
        del self.inputs[state.input_count :]
        for places in (self.boundaries, self.hooked):
            for slot in [slot for slot in places if slot >= state.value_count]:
                del places[slot]

    def face(self, storage: Storage) -> int:
        """The slot of this trace by which gradients reach all of the storage's present content: the root, or an alias of it."""
        slot = storage.slot
        history = storage.source()
        if history is None:
            return self.custom_face(slot)
        if storage.gen == self.gen and slot in self.faces:
            return self.faces[slot]
        v = history[0].tape.values[history[1]]
        whole = from_storage(storage, meta(v.shape, v.strides, v.dtype, v.offset, True, False, device=v.device))
        whole._history, whole._detached = history, storage.family
        found = self.resolve(whole)
        self.faces[storage.slot] = found
        return found

    def custom_face(self, root: int) -> int:
        """The alias of a root that a custom function's backward leads on from, if it is of all of it; else the root."""
        for custom in self.custom:
            v = self.value(custom)
            if v.base == root and v.numel == self.value(root).numel and not may_repeat(v.shape, v.strides):
                return custom
        return root

    def _lose(self, t: Tensor, segment: Any) -> None:
        """The memory of `t` was written to since `segment`: what it knows of its history is what it was. Hooks of a view stay there."""
        if (t._hooks or t._retains_grad) and is_view(t):
            from flambeau.trace.arrival import leave_hooks

            leave_hooks(t, segment.hooked)
        t._history = None

    def _former(self, storage: Storage, t: Tensor) -> int:
        """For a tensor whose family has lost the storage's history to another: the slot by which gradients reach what it had, or -1."""
        assert storage.others is not None
        history, result, cut = storage.others.get(t._detached, (None, None, -1))
        if cut < 0:
            return -1
        segment = None if result is None else result[0]()
        source = (segment, result[1]) if history is None and segment is not None else history
        if t._history is not None and t._history[0].order < cut and t._history != source:
            self._lose(t, t._history[0])
        if t._history is not None or source is None:
            return -1
        v = source[0].tape.values[source[1]]
        whole = from_storage(storage, meta(v.shape, v.strides, v.dtype, v.offset, True, False, device=v.device))
        whole._history, whole._detached = source, t._detached
        return self.resolve(whole)

    def _origin_below(self, storage: Storage) -> int:
        """For a view that a write without gradients has made stale: the slot of the leaf or the earlier result that fills the storage, or -1."""
        if self.needs(storage.slot):
            return -1
        for boundary in list(self.boundaries.values()):
            t = boundary.tensor
            m = t._meta
            whole = m.numel == self.value(storage.slot).numel and not may_repeat(m.shape, m.strides)
            if t._storage is storage and boundary.history is None and m.leaf and whole:
                return self.slot_of(t)
        return self.face(storage) if storage.source() is not None else -1

    def _register(self, key: Any, m: Meta, leaf: bool) -> State:
        """The slow half of `resolve`: make the edge for a new input, or a new alias of a known storage."""
        if self.state.sizes is None:
            return self._make_input(key, m, leaf)
        known = classes.known_input(self.state, (key, leaf))
        if known is not None:
            return known
        skeleton, ints = classes.of_input(key, tiers.in_pieces(self))

        def make(ints: tuple[Any, ...]) -> State:
            over_symbols = classes.input_key_of(skeleton, ints)
            return self._make_input(over_symbols, over_symbols[1 if key[0] == IN else 2], leaf)

        name = partial(known_key, skeleton)
        return classes.follow(self, key, (*skeleton, leaf), ints, make, lambda: self._make_input(key, m, leaf), (key, leaf), name)

    def _make_input(self, key: Any, m: Meta, leaf: bool) -> State:
        counters.slow_path_entries += 1
        state = State(self.state, key)
        values: list[Value] = []
        first = state.first_value
        dynamic: tuple[tuple[int, int], ...] = ()
        if m.dynamic:
            values.append(Value((), dtypes.int64, ()))
            state.parameters = (first,)
            dynamic = ((first, 1),)
            state.parameter_count += 1
        requires = leaf
        if key[0] == IN:
            root = first + len(values)
            values.append(Value((key[2] // m.dtype.itemsize,), m.dtype, (1,), device=m.device))
            state.inputs = (root,)
            state.input_count += 1
            state.root_slot = root
            source = root
            if key[3]:
                state.external = True
        else:
            source = key[1]
            base = self.value(source).base
            root = source if base is None else base
            requires = leaf or (key[4] and self.needs(source))
            if requires and not leaf and self.value(source).dtype is not m.dtype:
                return self._reinterpreted(state, source, m)
        slot = first + len(values)
        values.append(Value(tuple(m.shape), m.dtype, m.strides, m.offset, root, dynamic, m.device))
        offsets = tuple(p for p, _ in dynamic)
        same = self.value(source).dtype is m.dtype if key[0] == ALIAS else True
        attrs: tuple[tuple[str, Any], ...] = ()
        if key[0] == ALIAS and key[4]:
            attrs = (("multipliers", (1,) * len(offsets)), ("offset", m.offset), ("shape", tuple(m.shape)), ("strides", m.strides))
        op = ("as_strided" if attrs else "alias") if same else "bitcast"
        state.nodes = (Node(op, (source, *offsets), (slot,), attrs),)
        state.values = values
        state.value_count = first + len(values)
        state.slot = slot
        state.meta = m if requires == m.requires_grad else m.variant(requires_grad=requires, leaf=not requires)
        if requires:
            state.requires = frozenset((slot,))
        parent = state.parent
        assert parent is not None
        state.external = state.external or parent.external
        state.leaf = leaf
        state.views_only = parent.views_only and not state.requires
        self.publish(state, key)
        return state

    def _reinterpreted(self, state: State, source: int, m: Meta) -> State:
        """`_register` for a view of complex numbers' memory as real ones, or the reverse, with gradients."""
        fragment, prim = Fragment(self, True), fragments.primitives
        starts = [fragment.parameter(int)] if m.dynamic else []
        layout = {"shape": tuple(m.shape), "strides": m.strides, "offset": m.offset}
        view = run_in(fragment, lambda x: prim.as_strided_dynamic(prim.flat_in(x, m.dtype), starts, layout, (1,) * len(starts)), (fragment.at(source),))
        state.nodes, state.values = tuple(fragment.nodes), fragment.values
        state.value_count = state.first_value + len(fragment.values)
        state.slot = view._slot
        state.meta = m.variant(requires_grad=view._meta.requires_grad, leaf=not view._meta.requires_grad)
        state.requires = frozenset(fragment.requires)
        assert state.parent is not None
        state.external, state.views_only = state.parent.external, False
        self.publish(state, state.edge)
        return state

    # -- the slow path ------------------------------------------------------------------------------------------
    @untraced
    def slow(self, op: Any, key: Any, args: Sequence[Any]) -> Any:
        """The edge `key` is unknown: run the operation's body over placeholders and add the edge."""
        if self.taken >= 0:
            self.after_taken()
            return op.call(args)
        depth = self.state.depth
        if (depth >= self.limit or self.state.pending_bytes > BYTES_LIMIT) and not self.held:  # what is held counts on slots of this trace: it grows
            from flambeau.trace.evaluate import cut

            cut(self, DEPTH_LIMIT if self.state.pending_bytes <= BYTES_LIMIT else 0)
            return op.call(args)
        tensors: list[Tensor] = []
        numbers: list[Any] = []
        if self.state.sizes:
            known = classes.known_call(self.state, op, key, args)
            if known is not None:
                sort_arguments(kinds_of(op, key), op, args, tensors, numbers)
                return self._take(known, tensors, numbers)
        state, gen = self.state, self.gen
        if ends_round(self, op):
            if tiers.loop_in_pieces(self, state, gen, op):
                self.begin_piece()
            return op.call(args)
        if tiers.may_cut(self) and not classes.foreseen(self.state, op, key, args, tiers.in_pieces(self)):
            from flambeau.trace.evaluate import has_plan

            if tiers.cuts(self, op, key, partial(has_plan, self)) and self._next_piece(op, key, args):
                return op.call(args)
        settled = op.settle(args)
        if settled is not None:
            return op.call(settled)
        changing = op.changing
        if changing is not None and changing.meets(key, args):
            return op.call(args)
        refuse(args, f"{op.name}()")
        fragments: list[Fragment] = []  # what was recorded last, where numbers change

        def record(args: Sequence[Any]) -> State:
            counters.slow_path_entries += 1
            before = self.state
            fragment = Fragment(self, self.grad_enabled)
            body = op.apply if self.autocast is None else casting_body(op, self.autocast)
            placeholders = [self._enter(fragment, kind, a, default) for kind, default, a in zip(kinds_of(op, key), op.defaults, args, strict=True)]
            if self.state is not before:
                raise Moved
            fragment.device = device_of(op, tensors)
            if changing is not None:
                changing.enter(fragment, key, placeholders, args)
                fragments.append(fragment)
            result = run_in(fragment, body, placeholders)
            if changing is not None:
                changing.narrow(fragment)
            return self.add_edge(key, fragment, result, tensors, depth=1)

        try:
            sort_arguments(kinds_of(op, key), op, args, tensors, numbers)
            before = self.state
            for t in tensors:
                self.slot_of(t)
            if self.state is not before:
                raise Moved
            skeleton, ints = (key, ()) if self.state.sizes is None else classes.of_call(op, key, args, self.state.sizes, tiers.in_pieces(self))
            name = partial(classes.call_key, key, classes.places_of(op, args)) if ints else None
            state = classes.follow(self, key, skeleton, ints, lambda ints: record(classes.with_sizes(op, args, ints)), lambda: record(args), name=name)
            return self._take(state, tensors, numbers)
        except Moved:  # another thread has taken an argument since the key was made: here it is another input now
            return op.call(args)
        except OffsetNeeded:
            self.looks += 1
            return op.call([at_its_offset(a) if kind.startswith("tensor") else a for kind, a in zip(op.kinds, args, strict=True)])
        except BaseException as error:
            local.trace = self  # also where the interrupt came while the body's recorder was being taken away
            del self.params[self.state.parameter_count :]
            again = changing.otherwise(fragments[-1], error) if fragments else None
            if again is None:
                if unexpected(error):
                    raise explained(error, op.name, op.names, args) from error
                if isinstance(error, Exception) and not internal(error):
                    name_operation(error, op.name)
                raise
        return again(args)

    def _take(self, state: State, tensors: Sequence[Tensor], numbers: Sequence[Any]) -> Any:
        """Follow the edge of a call with these tensors and run-time numbers."""
        if state.limits:
            look_at_numbers(state, numbers)
        self.params.extend(numbers)
        if state.plain and not state.bounds:
            self.state.next = state
            return self.hand_out(state)
        return self.follow(state, tensors)

    def _enter(self, fragment: Fragment, kind: str, a: Any, default: Any) -> Any:
        """The placeholder for one argument of the given kind (see ops/wrapper.py)."""
        if kind == "static" or a is None:
            return a
        if kind == "tensors":
            return [self._enter(fragment, "tensor", x, None) for x in a]
        if isinstance(a, _TENSOR[0]):
            slot = self.slot_of(a)
            value = self.value(slot)
            fragment.roots.setdefault(slot if value.base is None else value.base, fragment.given)
            fragment.entered.setdefault(slot, fragment.given)
            fragment.given += 1
            return fragment.argument(slot, a._meta)
        if kind == "exponent" or type(a) is bool or type(a) not in PARAMETER_DTYPE:
            return a
        if kind == "number" and a == default:
            return a
        return fragment.parameter(type(a))

    def add_edge(self, key: Any, fragment: Fragment, result: Any, tensors: Sequence[Tensor], depth: int = 0, info: Any = None) -> State:
        """Make the edge `key` from what `fragment` recorded; `result`: a tensor or a tuple, list or named tuple of them."""
        state = State(self.state, key)
        parent = self.state
        flat: list[Tensor]
        if isinstance(result, _TENSOR[0]):
            flat = [result]
        elif result is None:
            flat = []
            state.pack = tuple
        else:
            flat = list(result)
            state.pack = type(result) if type(result) is list or hasattr(result, "_fields") else tuple
        for i, t in enumerate(flat):
            if t._meta.bits and t._gen == fragment.gen and fragment.given_by(t._slot) is None:
                flat[i] = fragment.resolved(t)  # no view of what somebody else has
        state.nodes = tuple(fragment.nodes)
        state.values = fragment.values
        state.value_count = state.first_value + len(fragment.values)
        state.parameters = tuple(fragment.parameters)
        state.requires = frozenset(fragment.requires)
        state.pending_bytes += sum([v.numel * v.dtype.itemsize for v in fragment.values if v.base is None and v.device is not META])
        state.depth += depth
        state.info = info
        position = {slot: parent.parameter_count + i for i, slot in enumerate(state.parameters)}
        state.parameter_count = parent.parameter_count + len(state.parameters)
        outs = []
        for t in flat:
            if t._gen != fragment.gen:
                raise AssertionError("an operation returned a tensor that it did not record")
            value = fragment.value(t._slot)
            root = t._slot if value.base is None else value.base
            alias = fragment.given_by(t._slot)
            m = t._meta
            if m.wrapped:
                m = meta(m.shape, m.strides, m.dtype, m.offset, m.requires_grad, m.leaf, False, m.dynamic, m.device)
            dynamic = tuple((self._parameter_index(slot, position), mult) for slot, mult in value.dynamic)
            outs.append(Out(t._slot, m, root, alias, dynamic))
        state.outs = tuple(outs)
        state.external = parent.external
        state.place = here()
        if fragment.notes and hasattr(key[0], "kinds"):
            state.bounds = resolve(fragment.notes, fragment.entered, fragment.nodes)
        if fragment.limits:
            state.limits, state.room = tuple(fragment.limits), words(fragment.limits)
        if state.pack is None and outs[0].alias is None and outs[0].root == outs[0].slot:
            state.slot = outs[0].slot
            state.meta = outs[0].meta
            state.plain = not (state.external or state.stepwise)
        state.native = (
            bool(outs) and not (state.external or state.stepwise) and all(out.alias < MOST_GIVEN if out.alias is not None else not out.dynamic for out in outs)
            and all(bound.position < MOST_GIVEN for bound in state.bounds)
        )  # fmt: skip
        state.single_view = state.pack is None and outs[0].alias is not None and not state.external
        state.views_only = parent.views_only and state.single_view and not state.requires
        self.publish(state, key)
        return state

    def _parameter_index(self, slot: int, new: dict[int, int]) -> int:
        if slot in new:
            return new[slot]
        index = 0
        for state in self.state.path():
            for p in state.parameters:
                if p == slot:
                    return index
                index += 1
        raise AssertionError("unknown parameter")

    def hand_out(self, state: State) -> Tensor:
        """Follow an edge with one plain result."""
        self.state = state
        t = _new(_TENSOR[0])
        t._storage = t._immediate = None
        t._gen = self.gen
        t._slot = state.slot
        t._meta = state.meta
        self.tensors.append(t)
        return t  # type: ignore[no-any-return]

    def set_grad_enabled(self, mode: bool) -> None:
        """Change grad mode: an edge of its own, so that the calls after it need not carry the mode in their keys."""
        if mode == self.grad_enabled:
            return
        before, place = self.grad_enabled, self.state
        try:
            self.grad_enabled = mode
            self._change_mode((GRAD_MODE, mode))
        except BaseException:
            self.grad_enabled, self.state = before, place
            raise

    def set_autocast(self, lower: dtypes.dtype | None) -> None:
        """Change the precision that amp.autocast chooses: an edge of its own, like grad mode."""
        if lower is self.autocast:
            return
        before, place = self.autocast, self.state
        try:
            self.autocast = lower
            self._change_mode((AUTOCAST, lower))
        except BaseException:
            self.autocast, self.state = before, place
            raise

    def set_stepwise(self, mode: bool) -> None:
        """Whether each call is tried at once (stepwise.py): an edge of its own, like grad mode."""
        if mode != self.state.stepwise:
            self._change_mode((STEPWISE, mode))

    def _change_mode(self, key: Any) -> None:
        """Go where the modes are the new ones; the next trace starts there, too."""
        if self.taken >= 0:
            self.after_taken()
        if self.state.parent is None:
            self.root = self._root_for_mode()
            self.state = self.piece_root() if tiers.in_pieces(self) else self.root
            return
        self.mode_changed = True
        self._pass(key)

    def mark_hooked(self, slot: int) -> None:
        """A view has hooks: an edge of its own, so that what was learned without them is not done here (an in-place operation goes past them)."""
        self._pass((HOOKED, slot))

    def _pass(self, key: Any) -> None:
        """Take an edge that records nothing."""
        before = self.state
        state = before.children.get(key)
        if state is None and before.sizes and before.model is not None and before.model.patterns is not None:
            state = classes.known_mode(before, key)
        if state is None:
            state = State(before, key)
            state.external = before.external
            state.views_only = before.views_only
            state.grad_enabled = self.grad_enabled
            if key[0] == STEPWISE:
                state.stepwise = key[1]
            if before.sizes:
                classes.follow_mode(before, state, key)
            before.children[key] = state  # when it is whole, and without a call more: the end of a block may have little room on the stack
        self.state = state

    def piece_root(self) -> State:
        return self._root_for_mode(piece=True)

    def _root_for_mode(self, piece: bool = False) -> State:
        mode = (self.grad_enabled, self.autocast, dtypes.get_default_dtype(), SYNC[0], piece)
        root = self.roots.get(mode)
        if root is None:
            root = State(None, None)
            root.grad_enabled, root.stepwise = self.grad_enabled, SYNC[0]
            self.roots[mode] = root
        return root


MOST_GIVEN = 64  # of the tensors that a call is given, those that native code can make views of
take: Any = None  # `Trace.follow` in native code, or None (known_edge.py)

SYNC = [os.environ.get("FLAMBEAU_SYNC", "") not in ("", "0")]  # whether traces try each call at once: set_sync
LOCALS: dict[int, dict[str, Any]] = {}  # by a thread's number: its dictionary of `local`
_PARAMETER: list[Any] = [None]  # the Parameter class, once nn/parameter.py is there, and what waits for it


@upward
def as_strided(input: Tensor, size: Any, stride: Any, storage_offset: int) -> Tensor:
    """The view of that name (ops/shape.py)."""
    raise NotImplementedError


def at_its_offset(a: Any) -> Any:
    """A view that starts where run-time numbers say as one that always starts where it does now; of a list its tensors; else the argument."""
    if isinstance(a, (list, tuple)):
        return [at_its_offset(x) for x in a]
    if not isinstance(a, _TENSOR[0]) or not a._meta.dynamic:
        return a
    return as_strided(a, tuple(a._meta.shape), a._meta.strides, a.storage_offset())


def set_parameter_class(cls: type) -> None:
    """Called by nn/parameter.py."""
    _PARAMETER[0] = cls
    for waiting in _PARAMETER[1:]:
        waiting(cls)


def replay(tr: Trace, t: Tensor) -> bool:
    """Record the call that made `t` without a trace; loaded when it is first needed."""
    from flambeau.trace.immediate import replay

    return replay(tr, t)


def is_external(storage: Storage) -> bool:
    """Whether somebody outside can still see this memory."""
    seen = storage.external
    if seen is True:
        return True
    if seen is not None and seen() is not None:
        return True
    storage.external = None
    return False


def storage_of(t: Tensor) -> Storage:
    """The storage of `t`, made now if it was implicit."""
    storage = t._storage
    if storage is None:
        storage = t._storage = Storage(None, t._gen, t._slot)
    return storage


def mark_custom(t: Tensor) -> Tensor:
    """An alias of `t` that requires gradients, and from which a custom function's backward leads on."""
    tr: Trace = local.trace
    slot = tr.slot_of(t)
    key = (CUSTOM, slot)
    state = tr.state.children.get(key)
    if state is None:
        counters.slow_path_entries += 1
        value = tr.value(slot)
        root = slot if value.base is None else value.base
        state = State(tr.state, key)
        new = state.first_value
        state.values = [Value(value.shape, value.dtype, value.strides, value.offset, root, value.dynamic, value.device)]
        state.nodes = (Node("alias", (slot,), (new,)),)
        state.value_count = new + 1
        state.requires = frozenset((new,))
        m = t._meta.variant(requires_grad=True, leaf=False)
        state.outs = (Out(new, m, root, 0, ()),)
        state.external = tr.state.external
        state.enter(key)
    made: Tensor = tr.follow(state, [t])
    made._detached = False
    made._view = is_view(t)
    return made


class _Local(threading.local):
    """Per-thread recorder. `trace` is the Trace, or the Fragment while an operation's body runs."""

    trace: Any

    def __init__(self) -> None:
        others = bool(TRACES)
        self.main = self.trace = add(Trace())
        LOCALS[threading.get_ident()] = vars(self)
        if others:
            from flambeau.trace.evaluate import end_traces_of_dead_threads

            end_traces_of_dead_threads()  # which needs this thread's trace


_fragments = itertools.count()
local = _Local()


def name_operation(error: Exception, name: str) -> None:
    """Put the operation's name in front of the text of an error of Python's own types that does not have it."""
    text = error.args[0] if len(error.args) == 1 else None
    plain = name.rsplit(".", 1)[-1].strip("_")
    if isinstance(text, str) and type(error).__module__ == "builtins" and plain.lower().replace("_", "") not in text.lower().replace("_", ""):
        error.args = (f"{plain}(): {text}",)


def run_in(fragment: Fragment, body: Callable[..., Any], args: Sequence[Any]) -> Any:
    """Call `body(*args)` with `fragment` as this thread's recorder."""
    before = local.trace
    try:
        local.trace = fragment
        result = body(*args)
        local.trace = before
        return result
    except BaseException:  # not `finally`: an interrupt at the line that goes back must not be the end of it
        local.trace = before
        raise
