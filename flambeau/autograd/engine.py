"""backward() and autograd.grad(): regions in reverse order, each one edge of the trace where no hook is in the way.

The current trace is the newest region; segments of earlier traces follow, newest first. A region is walked in stages that
end at *cuts*: values with hooks, and results of custom functions, whose Python code has to be called in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from ctypes import memmove
from functools import partial
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from flambeau.autograd import fitting, kept_stages, together
from flambeau.autograd.captures import goes_on
from flambeau.autograd.contents import exchanged, part, replaced, within
from flambeau.autograd.differentiate import Region, differentiate
from flambeau.autograd.hooks import OfNode, Pass, current, keep, pack_saved, retain_grad, unpacked
from flambeau.autograd.kept_segment import KeptSegment
from flambeau.autograd.node_hooks import NodeHooks, NotKept, call_with_none, hooked_nodes, place
from flambeau.autograd.segment import Segment, SegmentForward, Tape, TapeAt, TraceForward, known_tape, trace_region
from flambeau.autograd.ways import Ways, spread, tape_spread
from flambeau.devices import CPU
from flambeau.ops.signatures import flag
from flambeau.statistics import counters
from flambeau.trace import stand_ins
from flambeau.trace.ahead import remember
from flambeau.trace.arrival import arrival, value_at
from flambeau.trace.classes import follow
from flambeau.trace.debugging import untraced
from flambeau.trace.evaluate import flush
from flambeau.trace.existing import maker
from flambeau.trace.meta import dense_strides, is_dense
from flambeau.trace.objects import _TENSOR
from flambeau.trace.programs import program_of
from flambeau.trace.recorder import GRAD_MODE, Boundary, Fragment, Trace, local, run_in, storage_of
from flambeau.trace.saved_hooks import mutable, saved
from flambeau.trace.state import BACKWARD, SEGMENT, State
from flambeau.trace.storage import RESHAPED
from flambeau.trace.tiers import MODE, PIECES, in_pieces
from flambeau.trace.while_set import while_set, while_switched
from flambeau.upward import upward

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

LISTENERS: list[Callable[[list[Tensor]], None]] = []  # told of the leaves whose gradients a backward pass has accumulated, once it has ended


@upward
def over_batch(function: Callable[..., Sequence[Any]], gradients: Sequence[Any]) -> list[Any]:
    """What Python code makes of gradients with a batch in front (func/pullback.py)."""
    raise NotImplementedError


@upward
def differentiate_batched(region: Any, fragment: Any, grads: dict[int, Any], stop: int) -> list[Any]:
    """`differentiate` for gradients with one more dim in front (func/pullback.py)."""
    raise NotImplementedError


@upward
def grad_under_levels(
    outputs: Sequence[Any], inputs: Sequence[Any], gradients: Sequence[Any], retain: bool, create: bool, allow_unused: bool, batched: bool
) -> tuple[Any, ...]:  # fmt: skip
    """autograd.grad where transforms are active (func/pullback.py)."""
    raise NotImplementedError


class StageInfo:
    """What a backward edge remembers: the slots whose gradients it hands out, and which nodes' values were used.

    `seed`, `end`: of a whole pass with this one stage, the edges of its first gradient and of its return to grad mode.
    """

    __slots__ = ("boundaries_used", "end", "freed", "seed", "slots", "used")

    def __init__(self, slots: tuple[int, ...], used: set[int], freed: set[int], boundaries_used: set[int]) -> None:
        self.slots = slots
        self.used = used
        self.freed = freed
        self.boundaries_used = boundaries_used
        self.seed: State | None = None
        self.end: State | None = None

    def twin(self) -> StageInfo:
        """The same of another edge."""
        return StageInfo(self.slots, self.used, self.freed, self.boundaries_used)


class Engine:
    """One backward pass."""

    def __init__(self, retain: bool, create: bool, targets: Sequence[Tensor] | None, accumulate: bool, batched: bool = False) -> None:
        self.tr: Trace = local.trace
        self.batched = batched  # every gradient has one more dim in front: several passes in one
        if isinstance(self.tr, Fragment):
            raise RuntimeError("an operation's body must not call backward")
        if (
            self.tr.custom
            or saved
            or any(t._hooks for t in self.tr.hooked.values())
            or any(boundary.tensor._post_hooks or boundary.tensor._hooks for boundary in self.tr.boundaries.values())
        ):
            # Hooks and custom functions may look at values, which ends the trace: its history must not depend on it by then.
            flush(self.tr, "hooks of a backward pass")
        if unpacked:
            pack_saved()
        if stand_ins.MADE[0]:
            stand_ins.settle(self.tr)
        self.freeing: list[tuple[Segment, set[int]]] = []
        self.given_up: dict[Segment | None, set[int]] = {}  # by this pass: its later stages go on there
        self.retain = retain or create
        self.create = create
        self.accumulates = accumulate
        self.held = self.tr.held  # whether the trace was, before this pass
        self.together = False  # whether other threads have passes
        self.targets = targets
        self.found: dict[int, Tensor] = {}  # id(target) -> gradient
        self.target_ids = {id(t) for t in targets} if targets is not None else set()
        self.seeds: list[Tensor] = []
        self.given: set[int] = set()  # ids of leaves whose gradient no stage has computed: the program's own, or a custom function's
        self.quiet: set[int] = set()  # ids of targets where this pass ends: another goes on from there, and calls their hooks
        self.current: dict[int, Tensor] = {}
        self.queue: dict[Segment, dict[int, Tensor]] = {}
        self.leaves: dict[int, Tensor] = {}  # by id: those that gradients have reached
        self.sums: dict[int, Tensor] = {}  # by id: the sums of their gradients so far
        self.segment_targets: dict[Segment, dict[int, Tensor]] = {}
        self.slot_targets: dict[int, Tensor] = {}
        self.ways: Ways | None = None  # with targets
        self.from_leaves = False  # whether one of these is a leaf that the trace does not have

    def seed(self, root: Tensor, gradient: Tensor) -> None:
        """Start from `root` with this gradient."""
        tr = self.tr
        self.seeds.append(gradient)
        if root._storage is None and root._history is not None:  # it has a place and no value (a GradientEdge)
            segment, slot = root._history
            self._add(self.queue.setdefault(segment, {}), slot, gradient)
            return
        slot = tr.slot_of(root)
        self._add(self.current, slot, gradient)
        self._give(tr, slot)

    def want(self, target: Tensor) -> None:
        """Ask for the gradient at a tensor (autograd.grad's inputs)."""
        if target._meta.leaf and not (self.tr.tensors or self.tr.inputs) and target._storage is not None and target._storage.cut < 0:
            self.from_leaves = True  # where nothing is pending there is no place for it: it is known by itself
            return
        owner, slot = arrival(self.tr, target)
        (self.slot_targets if owner is self.tr else self.segment_targets.setdefault(owner, {}))[slot] = target

    def _oldest(self) -> float:
        """The number of the first segment that a target is of; below all of them where one is a leaf."""
        if self.from_leaves:
            return -1
        oldest = min([s.order for s in self.segment_targets], default=inf)
        for slot, t in self.slot_targets.items():
            boundary = self.tr.boundaries.get(slot)
            if boundary is not None and boundary.history is not None:
                oldest = min(oldest, boundary.history[0].order)
            elif boundary is not None or t._meta.leaf:
                return -1
        return oldest

    def _add(self, into: dict[int, Tensor], slot: int, gradient: Tensor) -> None:
        before = into.get(slot)
        if before is not None and before.is_sparse:
            before, gradient = gradient, before  # dense + sparse, or two sparse ones
        into[slot] = gradient if before is None else before + gradient

    def run(self) -> None:
        this = Pass()
        if self.targets is not None:
            slots: dict[Any, Any] = {self.tr: dict(self.slot_targets), **{s: dict(found) for s, found in self.segment_targets.items()}}
            self.ways = Ways(self.target_ids, slots, self._oldest())
        packing = list(saved)
        try:
            while_set(current, "under_way", this, while_switched, self.tr.set_grad_enabled, self.tr.grad_enabled, self.create, self._walk_all)
        finally:
            if saved != packing:  # a hook has entered a block of saved_tensors_hooks, or left one: until the pass ends
                saved[:] = packing
        for segment, used in self.freeing:
            segment.freed |= used
        if this.ends:
            while_set(current, "under_way", this, self._end, this)

    @staticmethod
    def _end(this: Pass) -> None:
        for call in this.ends:  # one of them may bring another
            call()

    def _walk_all(self) -> None:
        tr = self.tr
        pieces = walked = in_pieces(tr) or MODE[0] == PIECES
        self._walk(None)
        kept = kept_stages.may_run(self) and not saved
        end = partial(tr.end_piece if pieces else partial(flush, tr), "segments of a backward pass")
        while self.queue:
            segment = max(self.queue, key=_order)
            if kept and walked and type(segment) is KeptSegment and segment.kept is not None and kept_stages.run(self, segment, end, taken_out):
                continue
            if walked and not self.create and not saved:
                # Each further segment is a trace of its own: a pass through more of them than ever before is made of passes that are known.
                end()
                self.queue[segment] = {slot: taken_out(g) for slot, g in self.queue[segment].items()}
            self._walk(segment)
            walked = True
        if self.create and not self.batched:
            self._part()
        for key, gradient in self.sums.items():
            self._arrive(self.leaves[key], gradient)

    def _part(self) -> None:
        """Give the leaves' gradients memory of their own. Not before they are whole: what a copy is added to would be added up in another order when the
        gradients are differentiated, and where a sum is not whole yet depends on where traces end."""
        plain = [t for t in (*self.sums.values(), *self.seeds) if type(t) is _TENSOR[0] and not t.is_sparse]
        uses = Counter([id(storage_of(t)) for t in plain])
        for key, gradient in self.sums.items():
            like, m = self.leaves[key]._meta, gradient._meta
            if type(gradient) is not _TENSOR[0] or gradient.is_sparse or m.shape != like.shape:
                continue
            if m.strides != dense_strides(like.shape, like.strides) or m.offset or m.dynamic or uses[id(storage_of(gradient))] > 1:
                self.sums[key] = _own_copy(self.leaves[key], gradient)

    # -- one region -----------------------------------------------------------------------------------------------
    def _walk(self, segment: Segment | None) -> None:
        owner: Any = self.tr if segment is None else segment
        pending = self.current if segment is None else self.queue.pop(segment)
        wanted = self.slot_targets if segment is None else self.segment_targets.get(segment, {})
        cuts = {s for s in (*owner.hooked, *owner.custom, *wanted) if s >= 0 and s not in owner.boundaries}
        ends = self._ends(segment, cuts.difference(owner.custom))
        nodes = hooked_nodes(owner) if owner.hooked else []
        done: set[int] = set()
        while pending:
            for slot in list(pending):
                boundary = owner.boundaries.get(slot)
                if boundary is not None:
                    self._leave(boundary, pending.pop(slot), wanted.get(slot))
            top = max(pending, default=-1)
            node = next((n for n in nodes if n.span[1] >= top), None)
            live = [s for s in cuts if s in pending and (ends.get(s, s) >= top or (node is not None and s in node.results))]
            if live:
                context = owner.custom.get(live[0])
                for slot in live[:1] if context is None else [o for o in context.output_slots if o in pending]:
                    gradient = self._cut(owner, slot, pending.pop(slot), wanted, done)
                    if gradient is not None and (context is not None or pending or slot not in wanted or not self._only_targets_left(wanted, done)):
                        pending[slot] = gradient
                    cuts.discard(slot)
                    wanted = {s: w for s, w in wanted.items() if s != slot}
                if context is not None and any(o in pending for o in context.output_slots):
                    self._custom(context, pending, owner)
                continue
            if node is not None:
                nodes.remove(node)
                for slot in [s for s in node.results if s in pending]:
                    root = value_at(owner, slot).base  # where the gradient of the result comes together (trace/arrival.py), if the call made that
                    if root in cuts and root >= node.span[0]:
                        gradient = self._cut(owner, root, pending.pop(slot), wanted, done, slot)
                        if gradient is not None:
                            pending[slot] = gradient
                        cuts.discard(root)
                        wanted = {s: w for s, w in wanted.items() if s != root}
                if any(s in pending for s in node.results):
                    self._node(segment, node, pending)
                continue
            if not pending:
                break
            stop = max([end for end in (*[ends.get(s, s) for s in cuts], *[n.span[1] for n in nodes]) if end < top], default=-1)
            given, pending = pending, {}
            sums = {} if self.batched else self._sums(owner)
            results = self._stage(segment, {**given, **sums}, stop)
            results = {**{s: g for s, g in sums.items() if s not in results}, **results}
            for s, gradient in results.items():
                self._add(pending, s, gradient)
            if segment is None:
                self.current = pending

    def _cut(self, owner: Any, slot: int, gradient: Tensor, wanted: dict[int, Tensor], done: set[int], at: int = -1) -> Tensor | None:
        """All of the gradient of a slot with hooks, or of a target, is there. Returns what goes on from there; None where nothing does.
        `at`: the slot that the gradient is of, if that is a view."""
        t, arrived, target = owner.hooked.get(slot), gradient, wanted.get(slot)
        hooked = t is not None and id(t) not in self.quiet
        content = value_at(owner, slot if at < 0 else at)
        if hooked:
            gradient = self._for_each(replaced, gradient, content, within(t, content), partial(call_hooks, t))  # type: ignore[arg-type]
        done.add(slot)
        if target is not None:
            before = hooked and gradient is not arrived and self._goes_on(owner, slot)
            self._add_found(target, self._for_each(part, arrived if before else gradient, content, within(target, content)))
            if id(target) in self.quiet:
                return None
        return gradient

    def _goes_on(self, owner: Any, slot: int) -> bool:
        """Whether gradients go from a slot on to another target."""
        return goes_on(owner, slot, {self.tr: self.slot_targets, **self.segment_targets}, self.target_ids)

    def _node(self, segment: Segment | None, node: NodeHooks, pending: dict[int, Tensor]) -> None:
        """All gradients of what a node with hooks made are there. Where a hook wants those of its inputs, the node is a stage of its own."""
        owner: Any = self.tr if segment is None else segment
        if not self._executed(owner, node.results, pending):
            return
        given = tuple([None if slot is None else pending.pop(slot, None) for slot in node.results])
        given = self._for_all(node.before, given)
        pairs = {s: g for s, g in zip(node.results, given, strict=True) if s is not None and g is not None}
        if not node.come_after() or not pairs:
            pending.update(pairs)
            return
        results = self._stage(segment, pairs, node.span[0] - 1, node)
        if node.edges is None:
            node.after(NotKept(), given)
        else:
            inputs = tuple([None if s is None else results.pop(s, None) for s in node.names()])
            inputs = self._after(node, inputs, given)
            for s, g in zip(node.edges, inputs, strict=True):
                if s is not None and g is not None:
                    self._add(pending, s, g)
        for s, g in results.items():
            self._add(pending, s, g)

    def _executed(self, owner: Any, results: Sequence[int | None], pending: dict[int, Tensor]) -> bool:
        """Whether a pass goes through the node of these results. Where it comes as far, hooks of those without a gradient are called, too."""
        slots = [s for s in results if s is not None]
        executed = targeted = True
        if self.targets is not None:
            targets = self.slot_targets if owner is self.tr else self.segment_targets.get(owner, {})
            roots = [value_at(owner, s).base for s in slots]
            slots = [root if root in targets else s for s, root in zip(slots, roots, strict=True)]  # where its gradient comes together
            targeted = any(s in targets for s in slots)
            executed = (self.accumulates and targeted) or any(self._goes_on(owner, s) for s in slots)
        if owner.hooked and (executed or targeted):
            for t in [owner.hooked[s] for s in slots if s not in pending and s in owner.hooked]:
                call_with_none(t)
        return executed

    def _for_all(self, function: Callable[[tuple[Any, ...]], tuple[Any, ...]], gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        """`function(gradients)`, for each pass of a batched one."""
        if self.batched:
            return tuple(over_batch(lambda *each: function(each), gradients))
        return function(gradients)

    def _after(self, node: NodeHooks, inputs: Sequence[Any], gradients: Sequence[Any]) -> tuple[Any, ...]:
        """The gradients of a node's inputs that go on, after its hooks have seen these, and those of its results."""
        count = len(inputs)
        return self._for_all(lambda each: node.after(each[:count], each[count:]), (*inputs, *gradients))

    def _give(self, owner: Any, slot: int) -> None:
        """Note that the program may hold the gradient at a slot, if that is a leaf."""
        boundary = owner.boundaries.get(slot)
        if boundary is not None and boundary.history is None:
            self.given.add(id(boundary.tensor))

    def _ends(self, segment: Segment | None, slots: set[int]) -> dict[int, int]:
        """For those of the slots that are not the last result of their node: the last one's slot, below which the node is left alone."""
        if not slots:
            return {}
        if segment is not None:
            producer = segment.tape.producer
            return {s: producer[s].outputs[-1] for s in slots if s in producer}
        nodes = [n for state in self.tr.state.path() for n in state.nodes if len(n.outputs) > 1]
        return {o: n.outputs[-1] for n in nodes for o in n.outputs if o in slots}

    def _only_targets_left(self, wanted: dict[int, Tensor], done: set[int]) -> bool:
        return self.targets is not None and not self.accumulates and all(s in done for s in wanted) and not self.segment_targets

    def _add_found(self, target: Tensor, gradient: Tensor) -> None:
        before = self.found.get(id(target))
        self.found[id(target)] = gradient if before is None else before + gradient

    def _leave(self, boundary: Boundary, gradient: Tensor, target: Tensor | None) -> None:
        """A gradient reaches a leaf, or a value of an earlier segment."""
        t = boundary.tensor
        if boundary.history is not None:
            segment, slot = boundary.history
            self._add(self.queue.setdefault(segment, {}), slot, gradient)
            return
        if not t._meta.requires_grad:  # no longer: requires_grad_(False) came after its use
            return
        if self.targets is not None and id(t) not in self.target_ids and id(t) not in self.quiet:
            return
        self.leaves[id(t)] = t
        self._add(self.sums, id(t), gradient)

    def _sums(self, owner: Any) -> dict[int, Tensor]:
        """What has reached the boundaries of a region so far, by slot: it goes through the region's next stage, which adds to it one gradient after the other,
        as if everything were one region. It is taken from where it was."""
        found: dict[int, Tensor] = {}
        for slot, boundary in owner.boundaries.items():
            t = boundary.tensor
            if not boundary.settled:
                continue  # no gradient has gone that way
            sums, key = (self.sums, id(t)) if boundary.history is None else (self.queue.get(boundary.history[0], {}), boundary.history[1])
            gradient = sums.get(key)
            if gradient is not None and not gradient.is_sparse and gradient.shape == t.shape:
                found[slot] = sums.pop(key)
        return found

    def _arrive(self, t: Tensor, gradient: Tensor) -> None:
        """All of a leaf's gradient is there."""
        if t._meta.bits:
            gradient = exchanged(gradient, t._meta)
        if id(t) in self.quiet:
            self._add_found(t, gradient)
            return
        if t._hooks:
            gradient = self._for_each(partial(call_hooks, t), gradient)
        if self.targets is not None and not self.accumulates:
            self._add_found(t, gradient)
            return
        if t._hooks:
            gradient = self._for_each(partial(call_hooks_of_node, t), gradient)
        if t._grad_dtype is not ... and t._grad_dtype is not None:
            gradient = gradient.to(t._grad_dtype)
        self.accumulate(t, gradient, bool(t._hooks) or id(t) in self.given)
        if t._post_hooks:
            for hook in sorted(t._post_hooks.values(), key=_of_node):  # those of the node come last
                answer = hook(t)
                if answer is not None and answer is not t:
                    raise RuntimeError("Tensor post accumulate grad hooks should return None.")

    def accumulate(self, t: Tensor, gradient: Tensor, given: bool) -> None:
        """Add to `.grad`, in its memory unless that takes part in differentiation. `given`: a program has (or may have) this gradient, so `.grad` is a copy."""
        # After an in-place view of the leaf without gradients that came after its use, the gradient has to fit as it is.
        if gradient._meta.shape != t._meta.shape and not gradient.is_sparse:
            gradient, given = gradient.expand(t.shape), True
        if self.together:
            together.add(self.tr, flush, self._add_to, t, gradient, given)
        else:
            self._add_to(t, gradient, given)

    def _add_to(self, t: Tensor, gradient: Tensor, given: bool) -> None:
        so_far = t._grad
        if hasattr(t, "_for_gradients"):  # a DTensor, whose `.grad` is one
            gradient, so_far = t._for_gradients()[0](gradient), t.grad
        if so_far is None:
            t.grad = _own_copy(t, gradient) if given else gradient
        elif self.create or so_far.layout is not gradient.layout:
            t.grad = gradient + so_far if so_far.is_sparse else so_far + gradient
        else:
            so_far.add_(gradient)

    def _for_each(self, function: Callable[..., Tensor], gradient: Tensor, *more: Any) -> Tensor:
        """`function(gradient, *more)`, for each pass of a batched one."""
        if self.batched:
            return over_batch(lambda g: [function(g, *more)], [gradient])[0]  # type: ignore[no-any-return]
        return function(gradient, *more)

    def _custom(self, context: Any, pending: dict[int, Tensor], owner: Any) -> None:
        """Call a custom function's backward once the gradients of all its results are there. Sparse gradients only reach leaves."""
        node = owner.hooked.get(place(context.output_slots)) if owner.hooked else None
        if not self._executed(owner, context.output_slots, pending):
            for o in context.output_slots:
                pending.pop(o, None)
            return
        grads: Sequence[Any] = [None if o is None else pending.pop(o, None) for o in context.output_slots]
        if node is not None:
            grads = self._for_all(node.before, tuple(grads))
        if self.batched:
            results = over_batch(lambda *given: context.run_backward(given, self.retain, self.create, owner), grads)
        else:
            # It may be a long program of its own (the adjoint of a differential equation): its trace ends where a program's does. A segment counts on no slots
            # of the trace; what is pending here are tensors.
            held = self.held or owner is self.tr
            results = while_set(self.tr, "held", held, context.run_backward, grads, self.retain, self.create, owner)
        if node is not None:
            rest = iter(results)
            inputs = tuple([None if s is None else next(rest) for s in node.edges])
            inputs = self._after(node, inputs, grads)
            results = [g for s, g in zip(node.edges, inputs, strict=True) if s is not None]
        for input_slot, g in zip(context.input_slots, results, strict=True):
            if g is not None and input_slot is not None and (self.ways is None or self.ways.leads(owner, input_slot)):
                if g.is_sparse:
                    boundary = owner.boundaries.get(input_slot)
                    before = pending.get(input_slot)
                    if boundary is None or boundary.history is not None or (before is not None and not before.is_sparse):
                        g = g.to_dense()
                self._add(pending, input_slot, g)
                self._give(owner, input_slot)

    # -- one stage: an edge of the trace ----------------------------------------------------------------------------
    def _stage(self, segment: Segment | None, seeds: dict[int, Tensor], stop: int, node: NodeHooks | None = None) -> dict[int, Tensor]:
        """`node`: the one that this stage goes through."""
        tr = self.tr
        order = sorted(seeds)
        if self.create and segment is not None and segment.tape.views:
            segment.keep_views()
        values = segment.values() if segment is not None else []  # first: to unpack them may end the trace
        gradients = [seeds[s] for s in order]
        slots = [tr.slot_of(g) for g in gradients]
        entered: list[Tensor] = []
        entered_slots: tuple[int, ...] = ()
        extra: list[Any] = []
        if segment is not None:
            entered = values + [b.tensor for b in segment.boundaries.values()]
            entered_slots = tuple([tr.slot_of(t) for t in entered])
            extra = list(segment.params)
        start = None if self.ways is None else self.ways.start(tr if segment is None else segment)
        own = self.given_up.setdefault(segment, set())
        same = _same(tr if segment is None else segment)
        key = (
            BACKWARD if segment is None else SEGMENT, None if segment is None else segment.tape, stop, tuple(order),
            tuple(slots), entered_slots, self.retain, self.create, tuple(map(type, extra)), self.batched, segment is not None and bool(segment.packed),
            (bool(own), mutable[0]), node and node.apart(), tuple(same.items()), start,
        )  # fmt: skip
        state = tr.state.children.get(key)
        if state is None or (segment is not None and not (segment.freed - own).isdisjoint(state.info.used)):
            state = self._new_stage(segment, key, order, gradients, entered, (*slots, *entered_slots), stop, extra)
        if segment is not None:
            self._check_versions(segment, state.info)
            if not self.retain:
                if stand_ins.MADE[0]:  # when the pass ends: segments of two threads may lead into each other
                    self.freeing.append((segment, state.info.used))
                else:
                    segment.freed |= state.info.used
        info = state.info
        if not self.retain:
            own |= info.used
        try:
            tr.params.extend(extra)
            results = tr.follow(state, [*gradients, *entered])
        except BaseException:
            tr.heal()
            raise
        return dict(zip(info.slots, results, strict=True))

    def _new_stage(self, segment: Segment | None, key: Any, *rest: Any) -> Any:
        """The edge of a stage that is not known at these sizes: by class where the forward pass was, else as it is."""
        tape = None if segment is None else segment.tape
        exact = partial(self._make, segment, tape, key, *rest)
        if self.batched:
            return exact()
        if segment is None:
            return follow(self.tr, key, key, (), lambda ints: exact(), exact)
        if type(tape) is not TapeAt or segment.packed or segment.freed != tape.freed:
            return exact()
        skeleton = (SEGMENT, tape.whole, tape.kept, *key[2:])
        name = partial(_key_of_segment, tape.whole, tape.kept, key[2:])
        return follow(self.tr, key, skeleton, tape.sizes, lambda sizes: self._make(segment, TapeAt(tape.whole, sizes, tape.kept), key, *rest), exact, name=name)

    def _check_versions(self, segment: Segment, info: StageInfo) -> None:
        for slot in info.boundaries_used:
            boundary = None if slot in segment.saved else segment.boundaries.get(slot)
            if boundary is None and (segment.packed or slot not in segment.versions):  # nobody else can write to it
                continue
            t = segment.saved[slot] if boundary is None else boundary.tensor
            expected = segment.versions[slot] if boundary is None else boundary.version
            storage, m = t._storage, t._meta
            if boundary is not None and t._set_at > segment.order:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an inplace operation: "
                    f"[{m.dtype!r} {list(m.shape)}] was given other memory by set_(). Run the backward pass before, or set_() another tensor."
                )
            if boundary is not None and storage is not None and RESHAPED and storage in RESHAPED:
                v = segment.tape.values[slot]
                if tuple(m.shape) != tuple(v.shape) or m.strides != v.strides:  # the tensor is another view of its memory by now
                    raise RuntimeError(
                        "one of the variables needed for gradient computation has been modified by an inplace operation: "
                        f"[{m.dtype!r} {list(v.shape)}] has been changed to shape {list(m.shape)} with strides {m.strides} in place. Run the backward "
                        "pass before changing it, or change a view of it."
                    )
            if storage is not None and storage.version != expected:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an inplace operation: "
                    f"[{m.dtype!r} {list(m.shape)}] is at version {storage.version}; expected version {expected} "
                    "instead. Run the backward pass before changing it, or clone() it first."
                )

    @untraced
    def _make(
        self, segment: Segment | None, tape: Tape | None, key: Any, order: list[int], gradients: list[Tensor], entered: list[Tensor],
        slots: tuple[int, ...], stop: int, extra: list[Any],
    ) -> Any:  # fmt: skip
        """Differentiate a region and make the edge. `tape`: the segment's, or the same over symbols. `slots`: of the gradients and the entered tensors."""
        tr = self.tr
        counters.slow_path_entries += 1
        fragment = Fragment(tr, self.create)
        tensors = [*gradients, *entered]
        placeholders = []
        for i, (t, slot) in enumerate(zip(tensors, slots, strict=True)):  # not `t._slot`: another thread may have taken the tensor since
            value = tr.value(slot)
            fragment.roots.setdefault(slot if value.base is None else value.base, i)
            fragment.entered.setdefault(slot, i)
            placeholders.append(fragment.argument(slot, t._meta if i < len(gradients) else t._meta.with_bits(0)))  # a segment's values are what is in memory
        numbers = [fragment.parameter(type(p)) for p in extra]
        seeds = dict(zip(order, placeholders, strict=False))
        forward: Any = None
        boundaries = tr.boundaries if segment is None else segment.boundaries
        if segment is None or tape is None:
            path = tr.state.path()
            region = trace_region(tr, fragment, path)
            region.freed -= self.given_up.get(None, set())
            if self.create:
                region.forward = TraceForward(region, fragment, path)
        else:
            keys = [*segment.saved, *segment.boundaries]
            known = dict(zip(keys, placeholders[len(order) :], strict=True))
            known.update(zip(tape.entered, numbers, strict=True))
            if tape.preserved:  # the trace has written over these inputs: what they were is among the saved values
                known = {s: t for s, t in known.items() if tape.values[s].base not in tape.preserved}
                known |= {s: t for s, t in zip(segment.saved, placeholders[len(order) :], strict=False) if s in segment.boundaries or s in segment.tape.views}
            if segment.packed:  # what a hook has packed is used also where it is a leaf's
                known = {s: t for s, t in known.items() if tape.values[s].base not in segment.packed}
            forward = SegmentForward(segment, tape, fragment, known)
            region = Region(
                fragment, tape.nodes, tape.requires.__contains__, tape.values.__getitem__, forward,
                set(segment.boundaries) | set(segment.custom), segment.freed - self.given_up.get(segment, set()), tape.writes, tape.replaced,
                tape.parameters, tape.calls, index=tape.index, saving=tape.saving,
            )  # fmt: skip
        if key[-3]:
            region.tell_apart(*key[-3])
        region.same = dict(key[-2])
        start = key[-1]
        if start is not None:
            reached = spread(start, region.nodes, region.replaced) if tape is None else tape_spread(start, tape)
            needs = region.needs
            region.needs = lambda slot: slot in reached and needs(slot)
        grads: dict[int, Any] = dict(seeds)

        def body() -> list[Any]:
            if self.batched:
                return differentiate_batched(region, fragment, grads, stop)
            differentiate(region, grads, stop)
            for slot in [s for s, g in grads.items() if g is seeds.get(s) and s in boundaries]:
                del grads[slot]  # a sum that nothing was added to
            return self._own(region, fragment, grads, boundaries)

        result = run_in(fragment, body, ())
        freed = set() if self.retain or segment is not None else set(region.used)
        used = forward.boundaries_used if forward is not None else set()
        return tr.add_edge(key, fragment, tuple(result), tensors, info=StageInfo(tuple(grads), set(region.used), freed, used))

    def _own(self, region: Region, fragment: Fragment, grads: dict[int, Any], boundaries: dict[int, Boundary]) -> list[Any]:
        """Gradients that arrive at leaves get memory of their own, laid out as the tensor they belong to. Others keep their layout, so that products over
        them have the same bits wherever a trace ended. Those that will be differentiated keep it, too: see `_part`."""
        from flambeau.ops import primitives as prim

        seen: set[int] = set()
        out = []
        for slot, g in grads.items():
            v = fragment.value(g._slot)
            if not self.create and slot in boundaries and boundaries[slot].history is None:
                like = region.value(slot)
                strides = dense_strides(like.shape, like.strides)
                if v.base is not None or g._slot < fragment.first or g._slot in seen or v.strides != strides:
                    g = prim.copy(g, strides=strides)
            seen.add(g._slot)
            out.append(g)
        return out


def _of_node(hook: Any) -> bool:
    return type(hook) is OfNode


_order = attrgetter("order")


def _same(owner: Any) -> dict[int, int]:
    """Boundaries that lead to the value of an earlier one: a tensor, and what its own segment keeps of it, come into a trace as two. Gradients are added to one
    of them in the order in which they come, as they are where all is one trace."""
    found: dict[int, int] = {}
    first: dict[tuple[Any, int], int] = {}
    for slot, boundary in owner.boundaries.items():
        if boundary.settled and boundary.history is not None:
            known = first.setdefault(boundary.history, slot)
            if known != slot:
                found[slot] = known
    return found


def _key_of_segment(whole: Tape, kept: Any, rest: Any, sizes: tuple[int, ...]) -> Any:
    """The key of a stage of a segment whose trace had these sizes; None if there has been none."""
    tape = known_tape(whole, sizes, kept)
    return None if tape is None else (SEGMENT, tape, *rest)


def _own_copy(t: Tensor, gradient: Tensor) -> Tensor:
    """A copy of a gradient of `t`, laid out as `t` is if that has no gaps, else in row-major order."""
    from flambeau.ops.shape import _relayout

    m = t._meta
    if type(gradient) is not _TENSOR[0] or gradient._meta.shape != m.shape:
        return gradient.clone()  # sparse, nested, or of a subclass
    return _relayout(gradient, dense_strides(m.shape, m.strides))  # type: ignore[no-any-return]


def taken_out(gradient: Tensor) -> Tensor:
    """A gradient that has been computed, in memory of its own if it is a part of more: the next stage is known for a tensor that starts at 0. Without a plan
    that copies: it would be another one for each number of parts."""
    storage, m = gradient._storage, gradient._meta
    if storage is None or storage.gen >= 0 or storage.buffer is None or gradient.is_sparse or not is_dense(m.shape, m.strides):
        return gradient
    nbytes = m.numel * m.dtype.itemsize
    if (nbytes == storage.buffer.nbytes and not m.bits) or m.requires_grad:
        return gradient
    if m.bits or m.device is not CPU:
        return gradient.clone()
    tensor, address = maker(m.shape, m.dtype, m.strides)()
    memmove(address, gradient._address(), nbytes)
    return tensor  # type: ignore[no-any-return]


def call_hooks(t: Tensor, gradient: Tensor) -> Tensor:
    """The tensor's hooks in order; a hook that returns a tensor replaces the gradient."""
    for hook in list((t._hooks or {}).values()):
        if type(hook) is not OfNode and (replaced := hook(gradient)) is not None:
            gradient = fitting.replacement(hook, gradient, replaced)
    if t._retains_grad:
        keep(t, gradient)
    return gradient


def call_hooks_of_node(t: Tensor, gradient: Tensor) -> Tensor:
    """Those of the node behind the tensor, which come last."""
    for hook in list((t._hooks or {}).values()):
        if type(hook) is OfNode and (replaced := hook(gradient)) is not None:
            gradient = fitting.replacement(hook, gradient, replaced)
    return gradient


def backward(
    tensors: Sequence[Tensor], grad_tensors: Sequence[Tensor | None], retain_graph: bool, create_graph: bool,
    inputs: Sequence[Tensor] | None = None,
) -> None:  # fmt: skip
    """Accumulate the gradients of the sum of `tensors` (weighted by `grad_tensors`) into the leaves' `.grad`."""
    if create_graph is not False and create_graph is not True:  # it becomes the grad mode
        create_graph = flag("backward", "create_graph", create_graph)
    tr = local.trace
    if type(tr) is not Trace:
        if isinstance(tr, Fragment):
            raise RuntimeError("an operation's body must not call backward")
        raise RuntimeError(
            "backward() called inside of a function that is being transformed (vmap, jvp, a dual level): it accumulates into .grad, which the "
            "transform cannot follow. Use torch.func.grad or torch.func.vjp, or torch.autograd.grad."
        )
    if inputs is not None and not inputs:
        raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    key: Any = None
    if inputs is None and not create_graph and len(tensors) == 1 and grad_tensors[0] is None and tensors[0]._gen == tr.gen:
        key = (BACKWARD, tensors[0]._slot, retain_graph)
        state = tr.state.children.get(key)
        if state is not None and len(together.THREADS) < 2 and _again(tr, state):
            if LISTENERS:
                _tell([tr.boundaries[slot].tensor for slot in state.info.slots])
            return
    program = program_of("backward()", tensors)
    if program is not None:
        program.backward(tensors, grad_tensors, inputs)
        return
    tensors = _read(tensors)
    before = tr.state
    beside = together.begin(tr, flush)
    engine = Engine(retain_graph, create_graph, inputs, accumulate=True)
    engine.together = beside

    def accumulate() -> None:
        for t in inputs or ():
            retain_grad(t)  # of one that is no leaf, as PyTorch does
        _seed_all(engine, tensors, grad_tensors)
        for t in inputs or ():
            engine.want(t)
        engine.run()

    together.pass_of(beside, partial(tr.holding, accumulate))
    if key is not None and not tr.state.external:
        _remember(before, key, tr.state)
    if LISTENERS:
        _tell(list(engine.leaves.values()))


def _tell(leaves: list[Tensor]) -> None:
    """Tell the listeners; of a pass inside of another, when that ends."""
    outer = current.under_way
    for listener in list(LISTENERS):
        if outer is None:
            listener(leaves)
        else:
            outer.ends.append(partial(listener, leaves))


def _again(tr: Trace, state: State) -> bool:
    """A pass that is known as a whole: one stage, every leaf still without a gradient, no hooks. Else False, and nothing done."""
    info: StageInfo = state.info
    boundaries = tr.boundaries
    if tr.hooked or tr.custom or saved or tr.state.external:
        return False
    for slot in info.slots:
        boundary = boundaries[slot]
        t = boundary.tensor
        if (
            t._grad is not None or not t._meta.requires_grad or boundary.history is not None or t._hooks or t._post_hooks or t._grad_dtype is not ...
        ):  # fmt: skip
            return False
    assert info.seed is not None and info.end is not None
    seed = tr.hand_out(info.seed)
    for slot, gradient in zip(info.slots, tr.follow(state, (seed,)), strict=True):
        boundaries[slot].tensor._grad = gradient
    tr.state = info.end
    return True


def _remember(before: State, key: Any, end: State) -> None:
    """Give the pass from `before` to `end` a short name, if it was: grad mode off, the first gradient, on, off, one stage, on."""
    path = [end]
    while path[-1] is not before and len(path) < 7 and path[-1].parent is not None:
        path.append(path[-1].parent)
    if len(path) != 7 or path[-1] is not before:
        return
    _, stage, _, _, seed, _ = path[:6]
    modes = [path[i].edge[0] for i in (0, 2, 3, 5)]
    if type(stage.info) is not StageInfo or not seed.plain or any(mode != GRAD_MODE for mode in modes):
        return
    boundaries = local.trace.boundaries
    shapes: dict[int, Any] = {s.slot: s.meta.shape for s in before.path() if s.leaf and s.meta is not None}
    for slot in stage.info.slots:
        m = boundaries[slot].tensor._meta
        shape = shapes.get(slot)
        if m.bits or m.shape != (local.trace.value(slot).shape if shape is None else shape):
            return
    path.reverse()
    _give_name(key, path)
    remember(before, key, path[1:], partial(_give_name, key))


def _give_name(key: Any, path: list[State]) -> None:
    """Give the pass that this path is a short name: see `_remember`."""
    before, _, seed, _, _, stage, end = path
    stage.info.seed, stage.info.end = seed, end
    before.children[key] = stage


def grad(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], grad_outputs: Sequence[Tensor | None], retain_graph: bool,
    create_graph: bool, allow_unused: bool, batched: bool = False,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """The gradients of the sum of `outputs` with respect to `inputs`; touches no `.grad`.

    `batched`: `grad_outputs` have one more dim in front, and so have the results: one pass for each of its entries, all at once.
    """
    if type(local.trace) is not Trace:
        return grad_under_levels(outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused, batched)
    for i, t in enumerate(inputs):
        if not t.requires_grad:
            raise RuntimeError(f"autograd.grad: one of the differentiated Tensors does not require grad (inputs[{i}])")
    program = program_of("torch.autograd.grad", (*outputs, *inputs))
    if program is not None:
        found = program.pull(outputs, inputs, grad_outputs)
    else:
        outputs = _read(outputs)
        engine = Engine(retain_graph, create_graph, inputs, accumulate=False, batched=batched)
        engine.tr.holding(_find, engine, outputs, grad_outputs, inputs)
        found = [engine.found.get(id(t)) for t in inputs]
    answer = []
    for i, (t, gradient) in enumerate(zip(inputs, found, strict=True)):
        if gradient is None and not allow_unused:
            raise RuntimeError(
                f"One of the differentiated Tensors appears to not have been used in the graph (inputs[{i}], shape "
                f"{tuple(t.shape)}). Set allow_unused=True if this is the desired behavior."
            )
        answer.append(gradient)
    return tuple(answer)


def _find(engine: Engine, outputs: Sequence[Tensor], grad_outputs: Sequence[Tensor | None], inputs: Sequence[Tensor]) -> None:
    """Run a pass that leaves the gradients of `inputs` in `engine.found`."""
    shared = _seed_all(engine, outputs, grad_outputs)
    for t in inputs:
        engine.want(t)  # after what may end the trace (`kept_stages.seeds`): it counts on slots
    engine.run()
    if shared:  # what roots have together is not handed out
        theirs = {id(storage_of(g)) for g in shared if type(g) is _TENSOR[0]}
        for key, g in engine.found.items():
            if type(g) is _TENSOR[0] and not g.is_sparse and id(storage_of(g)) in theirs:
                engine.found[key] = while_switched(engine.tr.set_grad_enabled, engine.tr.grad_enabled, False, g.clone)


def inner_pass(outputs: Sequence[Tensor], grad_outputs: Sequence[Tensor], inputs: Sequence[Tensor], create_graph: bool) -> dict[int, Tensor]:
    """A pass inside of a backward pass, through what was computed again: gradients of `inputs` by id, where it ends; the pass outside
    calls their hooks and goes on. Other leaves get theirs in `.grad`, unless `create_graph`, as the pass outside does not know them."""
    if type(local.trace) is not Trace:
        found = grad(outputs, inputs, grad_outputs, create_graph, create_graph, True)
        return {id(t): g for t, g in zip(inputs, found, strict=True) if g is not None}
    outputs = _read(outputs)
    engine = Engine(create_graph, create_graph, inputs if create_graph else None, accumulate=False)
    engine.quiet = {id(t) for t in inputs}
    engine.tr.holding(_find, engine, outputs, grad_outputs, inputs)
    return engine.found


def _read(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Tensors whose gradients are those of what is in memory: copies of those that are conjugates or negatives of it."""
    if not any(t._meta.bits for t in tensors):
        return tensors
    tr = local.trace
    return [while_switched(tr.set_grad_enabled, tr.grad_enabled, True, t.clone) if t._meta.bits else t for t in tensors]  # type: ignore[attr-defined]


MANY_ROOTS: Final = 64


def _is_handed_out(tr: Trace, root: Tensor) -> bool:
    """Whether a hook or a custom function may get the gradient of a root, and write into it."""
    owner: Any = tr if root._history is None else root._history[0]
    return bool(root._hooks or owner.custom or owner.hooked)


def _seed_all(engine: Engine, tensors: Sequence[Tensor], grads: Sequence[Tensor | None]) -> list[Tensor]:
    """Begin a pass at each root; the gradients that several of them have together."""
    if len(tensors) != len(grads):
        raise RuntimeError(f"got {len(tensors)} tensors and {len(grads)} gradients: give one gradient (or None) for each tensor")
    # Thousands of roots have one gradient of ones together: each would be a call of the trace. Where the program may get it in its hands, each has its own.
    shared = len(tensors) >= MANY_ROOTS and not engine.create and not engine.accumulates and not any(_is_handed_out(engine.tr, t) for t in tensors)
    ones_of: dict[Any, Tensor] = {}
    for i, (t, g) in enumerate(zip(tensors, grads, strict=True)):
        if not t.requires_grad:
            raise RuntimeError(f"element {i} of tensors does not require grad and does not have a grad_fn")
        if g is None:
            if engine.batched:
                raise RuntimeError("autograd.grad: is_grads_batched=True needs a gradient for each output, with a batch dimension in front")
            if t._meta.numel != 1:
                raise RuntimeError(
                    f"grad can be implicitly created only for scalar outputs, got shape {tuple(t.shape)}: reduce it "
                    "(for example with .sum() or .mean()) or pass a gradient of that shape"
                )
            fitting.check_real(t)
            from flambeau.ops.creation import ones, unit_gradient

            if t._storage is None and t._history is not None:  # a place without a value
                g = ones(tuple(t.shape), dtype=t.dtype)
                engine.seed(t, g)
                continue
            if kept_stages.seeds(engine, t):
                continue
            like = (t.shape, t.dtype, t.device)
            g = ones_of.get(like)
            if g is None:
                g = while_switched(engine.tr.set_grad_enabled, engine.tr.grad_enabled, False, unit_gradient, t)
                if shared:
                    ones_of[like] = g
        elif engine.batched and tuple(g.shape[1:]) != tuple(t.shape):
            raise RuntimeError(
                "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch dimension. The sizes of the remaining "
                f"dimensions are expected to match the shape of corresponding output, but a mismatch was detected: grad_output[{i}] has a shape of "
                f"{tuple(g.shape)} and output[{i}] has a shape of {tuple(t.shape)}. If you only want some tensors in `grad_output` to be considered "
                "batched, consider using vmap."
            )
        elif g.dtype.is_complex != t.dtype.is_complex:
            raise RuntimeError(
                "For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch in dtype: "
                f"grad_output[{i}] has a dtype of {g.dtype} and output[{i}] has a dtype of {t.dtype}."
            )
        elif not engine.batched and tuple(g.shape) != tuple(t.shape):
            raise RuntimeError(f"Mismatch in shape: grad_output[{i}] has a shape of {g.shape} and output[{i}] has a shape of {t.shape}; they must be equal")
        engine.seed(t, g)
    return list(ones_of.values())
