"""Kept pieces: a piece of one call, which has come time and again, runs at the call, without a trace.

A path in pieces (tiers.py) is mostly pieces of one call each, and what a piece costs is its end and its beginning: its inputs become edges, the trace ends,
the plan is looked up, the results and a segment are made, the place is noted. After a few of them the root of pieces knows the call by its arguments'
metadata, as it knows immediate calls (immediate.py), and one generated function does all of that. The plan is the one that the piece would have run, so the
bits are the same. What keeps a gradient's way back is a segment that is made in full only if somebody asks for more than the usual backward pass does
(autograd/kept_segment.py).

Whatever is not as it was when the call was kept (a storage that has been written to under gradients, memory that the outside world sees, a hook, a pending
value) goes the usual way: `run` gives None then, before anything has been done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from flambeau.devices import CPU
from flambeau.python_code import compiled
from flambeau.trace import classes, kept_classes, tiers
from flambeau.trace.class_code import Chain, NotByClass
from flambeau.trace.immediate import named
from flambeau.trace.kept_classes import ClassWriter, KeptClass
from flambeau.trace.kept_code import Writer
from flambeau.trace.kept_piece import KeptPiece
from flambeau.trace.recorder import ALIAS, IN, Trace
from flambeau.trace.saved_hooks import saved
from flambeau.trace.state import State
from flambeau.upward import upward

if TYPE_CHECKING:
    from flambeau.autograd.segment import Tape
    from flambeau.tensor import Tensor
    from flambeau.trace.evaluate import TracePlan
    from flambeau.trace.recorder import Boundary

AGAIN: Final = 2  # visits after which a call is kept that is kept at other sizes
MOST_SIZES: Final = 128  # of the memory under tensors with the same metadata
MOST_TENSORS: Final = 8  # that a kept call is given


def _sizes_of(tensors: list[Tensor]) -> tuple[int, ...] | None:
    """For each tensor the bytes of its memory; where it is there already, -1 - its first place."""
    sizes = []
    for k, t in enumerate(tensors):
        first = next(i for i in range(k + 1) if tensors[i] is t)
        if first < k:
            sizes.append(-1 - first)
        elif t._storage is None or t._storage.buffer is None:
            return None
        else:
            sizes.append(t._storage.buffer.nbytes)
    return tuple(sizes)


def relative(made: KeptPiece, *tensors: Tensor) -> KeptPiece | None:
    """The piece of the same metadata for such tensors, which is asked first from now on; or what is known by class."""
    learned = made.root.immediate
    sizes = _sizes_of(list(tensors))
    found = None if sizes is None else made.family.get(sizes)
    if learned is None or found is made:
        return None
    if found is None:
        return kept_classes.class_of(learned, made.key) if sizes is not None else None
    learned[made.key] = found
    return found


def meets(tr: Trace, state: State, tensors: list[Tensor]) -> None:
    """A piece of one call is about to end: keep its call, if it has come often enough. Not on paths that may come back: their places would be others then."""
    if not tiers.stays_in_pieces(tr):
        return
    call = state
    while call.parent is not None and call.parent.depth:
        call = call.parent
    model = call.model
    if model is not None and call.sizes and classes.ENABLED[0]:
        known = kept_classes.known_of(tr.piece_root(), call)
        if known is not None:
            if kept_classes.has_own(known, call.sizes):
                _keep(tr, call, state, tensors)
            return
        if kept_classes.may_be_tried(model) and _keep(tr, call, state, tensors, by_class=True):
            return
    if call.countdown:
        if model is not None and not model.countdown:  # it is kept at other sizes
            call.countdown = min(call.countdown, AGAIN)
        call.countdown -= 1
        if not call.countdown:
            _keep(tr, call, state, tensors)


@upward
def tape_of(plan: TracePlan, state: State, boundaries: dict[int, Boundary], custom: dict[int, Any] | None, hooked: dict[int, Tensor] | None) -> Tape:
    """The tape that all segments of a plan share (autograd/segment.py)."""
    raise NotImplementedError


def _keep(tr: Trace, call: State, end: State, tensors: list[Tensor], by_class: bool = False) -> bool:
    """Teach the root of a piece its only call, if it is one that can be kept; `by_class`: at all sizes."""
    *before, _ = call.path()
    root, *inputs = before
    after = end.path()[len(before) + 1 :]
    op = call.edge[0]
    if (
        not 0 < len(inputs) <= MOST_TENSORS
        or root is not tr.piece_root()
        or getattr(op, "kinds", None) is None
        or call.stepwise or call.external or call.info is not None or not call.outs or call.pack is list
        or any(s.edge[0] != IN or s.edge[3] for s in inputs)
        or any(s.edge[0] not in (IN, ALIAS) for s in after)
        or tr.custom or tr.hooked or tr.claims is not None or saved
        or any(t._meta.device is not CPU for t in tensors)
    ):  # fmt: skip
        return False
    found = named(call, {s.slot: s.edge[1] for s in inputs}, lists=True)
    if found is None:
        return False
    key, order, given = found
    if sorted(set(order)) != [s.slot for s in inputs] or len(call.parameters) != given.count("n"):
        return False
    if by_class:
        try:
            chain = Chain([*inputs, call])
            known = KeptClass(root, key, call, chain)
            if not _teach(tr, known, inputs, order, given, tensors):
                return False
        except NotByClass:
            return False
        assert root.immediate is not None  # a learned call makes it
        kept_classes.enter(root.immediate, known)
        op.recent = known
        return True
    made = KeptPiece(root, key, call)
    if not _teach(tr, made, inputs, order, given, tensors) or root.immediate is None:
        return False
    before_ = root.immediate.get(key)
    if type(before_) is KeptPiece and len(before_.family) < MOST_SIZES:
        made.family = before_.family
    nbytes = {s.slot: s.edge[2] for s in inputs}
    made.family[tuple([nbytes[slot] if (first := order.index(slot)) == k else -1 - first for k, slot in enumerate(order)])] = made
    root.immediate[key] = made
    op.recent = made  # native code asks the wrapper from now on, at roots that have learned calls
    if call.model is not None:
        call.model.countdown = 0
    return True


def _plan(tr: Trace, call: State, tensors: list[Tensor], computed: int) -> Any:
    """The plan of the call alone, all of whose results are wanted; None where there is nothing to compute."""
    from flambeau.compiler.plan import SMALL_BYTES
    from flambeau.trace.evaluate import add_plan

    if call.views_only:
        return None
    *inputs, _ = call.path()[1:]
    given = sum([s.edge[1].numel * s.edge[1].dtype.itemsize for s in inputs])
    if given + sum([v.numel * v.dtype.itemsize for v in call.values if v.base is None]) > SMALL_BYTES:
        return False  # what a piece costs does not matter there, and as a part of a longer one it may be fused
    alive = b"\x01" * computed
    plan = call.plans.get(alive)
    try:
        return add_plan(tr, call, tensors[:computed], alive) if plan is None else plan
    except Exception:  # the usual way tells
        return False


def _teach(tr: Trace, made: KeptPiece, inputs: list[State], order: list[int], given: list[str], tensors: list[Tensor]) -> bool:
    """Write the function of a kept call."""
    call = made.call
    slots = [s.slot for s in inputs]
    own = [out for out in call.outs if out.alias is None or out.slot != order[out.alias]]  # the others are arguments, as they are
    plan = _plan(tr, call, tensors, len(own))
    if plan is False or (plan is not None and plan.made_from.calls_host()):
        return False
    history = None if plan is None else plan.history
    if history is not None:
        if any(is_input for is_input, _, _ in history.storages) or history.preserved or any(slot not in slots for slot in history.boundaries):
            return False
        made.history, made.tape = history, tape_of(plan, call, {}, None, None)
        made.boundaries = tuple([(slot, slots.index(slot)) for slot in slots if slot in history.boundaries])
        if made.tape.freed:
            return False
    elif any(out.meta.requires_grad for out in own):
        return False
    made.plan, made.inputs = plan, tuple(slots)
    writer = Writer(made, inputs, order, given, own)
    if isinstance(made, KeptClass):
        if plan is not None:
            if plan.variant is None:
                raise NotByClass
            made.chain.planned(plan.variant)
            made.variant, made.plan = plan.variant, plan.variant.plan
            if made.tape is not None:
                made.tapes, made.views = made.tape.kept, set(made.tape.views)  # type: ignore[attr-defined]
        writer = ClassWriter(made, inputs, order, given, own)
    text, scope = writer.written(tr)
    scope["relative"] = relative
    exec(compiled(text, "<flambeau kept piece>"), scope)
    made.run = scope.pop("run")  # whose globals it would be: see `forgotten`
    return True
