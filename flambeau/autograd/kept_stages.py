"""Backward passes through kept pieces (trace/kept.py): a stage that is known for its gradients' metadata runs at once, without a trace.

The first time a stage goes the usual way: what its trace was, and the plan that it ran, become one generated function. It takes the gradients of the
piece's results and the sums that have reached its boundaries so far, runs the plan, and leaves the new sums where the engine looks for them.
"""

from __future__ import annotations

from ctypes import c_float
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from flambeau.autograd.kept_class_stages import Alike, learn_by_class
from flambeau.autograd.kept_segment import KeptSegment
from flambeau.autograd.kept_stage_code import Stage, StageWriter
from flambeau.dtypes import float32
from flambeau.python_code import compiled
from flambeau.trace import evaluate, stand_ins, tiers
from flambeau.trace.classes import kind_of
from flambeau.trace.existing import maker
from flambeau.trace.kept_classes import KeptClass
from flambeau.trace.objects import _TENSOR
from flambeau.trace.recorder import ALIAS, IN
from flambeau.trace.saved_hooks import saved
from flambeau.trace.traces import TRACES

if TYPE_CHECKING:
    from flambeau.autograd.engine import Engine
    from flambeau.tensor import Tensor
    from flambeau.trace.kept_piece import KeptPiece

MOST: Final = 64  # stages of one piece: other metadata of gradients and sums goes the usual way
Run = Any  # run(engine, segment, gradients, sums) -> whether it has


def may_run(engine: Engine) -> bool:
    """Whether a pass is one that kept stages are for."""
    return not (engine.batched or engine.create or stand_ins.MADE[0]) and len(TRACES) == 1 and evaluate.PROFILER is None


def seeds(engine: Engine, root: Tensor) -> bool:
    """Begin a pass at a kept piece's result, a scalar, with a gradient of one that is in memory: nothing is recorded. False, and nothing done, elsewhere.

    On a path in pieces the call before the pass ends as a piece first: as a part of the pass it would never be kept.
    """
    tr = engine.tr
    by_pieces = tiers.in_pieces(tr) or tiers.MODE[0] == tiers.PIECES
    if not may_run(engine) or saved or engine.current or not by_pieces or type(root) is not _TENSOR[0]:  # `current`: slots of this trace
        return False
    if tr.tensors and tr.state.depth == 1 and root._gen == tr.gen and not tr.custom and not tr.hooked and tiers.is_a_piece(tr):
        tr.end_piece("segments of a backward pass")
    storage, history = root._storage, root._history
    if tr.tensors or tr.inputs or history is None or type(history[0]) is not KeptSegment or history[0].kept is None:
        return False
    if (
        storage is None or storage.gen >= 0 or storage.buffer is None or storage.cut >= 0 or storage.others is not None or root._detached != storage.family
        or root._hooks or root._retains_grad or root._meta.bits or root._meta.ndim or root._meta.dtype is not float32
    ):  # fmt: skip
        return False
    one, address = _maker()()
    c_float.from_address(address).value = 1.0
    engine.seeds.append(one)
    engine._add(engine.queue.setdefault(history[0], {}), history[1], one)
    return True


@cache
def _maker() -> Any:
    return maker((), float32)


def run(engine: Engine, segment: KeptSegment, end: Any, taken_out: Any) -> bool:
    """Go through a segment of a kept piece; False if it has to be done the usual way, and nothing is done. `end()` runs what is pending."""
    tr = engine.tr
    if tr.tensors or tr.inputs:
        end()
    piece = segment.kept  # not before: what runs may ask for the segment in full
    if piece is None or segment.done is not None:
        return False
    if engine.ways is not None and (segment in engine.segment_targets or engine.ways.start(segment) is not None):
        return False  # a target is in it, or a part of it leads to none
    pending = engine.queue[segment]
    sums, queue = engine.sums, engine.queue
    key: list[Any] = [engine.retain]
    by_class = piece.__class__ is KeptClass
    gradients = []
    for slot, g in sorted(pending.items()) if len(pending) > 1 else pending.items():
        if g.__class__ is not _TENSOR[0] or g._meta.dynamic:
            return False
        g = taken_out(g)
        storage = g._storage
        if storage is None or storage.gen >= 0 or storage.buffer is None:
            return False
        gradients.append(g)
        m = g._meta
        key += (slot, m.kind or kind_of(m)) if by_class else (slot, m, storage.buffer.nbytes)
    before: list[Any] = []
    given, origins = segment.given, segment.origins
    for _, i in piece.boundaries:
        t, origin = given[i], origins[i]
        if origin is None:
            total = sums.get(id(t))
        else:
            found = queue.get(origin[0])
            total = None if found is None else found.get(origin[1])
        before.append(total)
        if total is None:
            key.append(None)
            continue
        storage = total._storage
        if total.__class__ is not _TENSOR[0] or total._meta.shape != t._meta.shape or storage is None or storage.gen >= 0 or storage.buffer is None:  # type: ignore[union-attr]
            return False
        m = total._meta
        key += (m.kind or kind_of(m),) if by_class else (m, storage.buffer.nbytes)
    key_ = tuple(key)
    if by_class:
        done = _by_class(engine, segment, piece, key_, gradients, before, end)  # type: ignore[arg-type]
        if done is not None:
            return done
        every = (*gradients, *[t for t in before if t is not None])
        key_ = (segment.sizes, key_, *[x for t in every for x in (t._meta, t._storage.buffer.nbytes)])  # type: ignore[union-attr]
    stage = piece.stages.get(key_)
    if stage is None:
        if len(piece.stages) >= MOST:
            return False
        if by_class:  # most of its sizes do not come back
            piece.stages[key_] = _again
            return False
    if stage is None or stage is _again:
        piece.stages[key_] = _never
        _learn(engine, segment, piece, key_, gradients, before, end)
        return True
    return stage(engine, segment, gradients, before)  # type: ignore[no-any-return]


def _never(*_: Any) -> bool:
    """In place of a stage that goes the usual way."""
    return False


def _again(*_: Any) -> bool:
    """In place of a stage that is kept when it comes the next time."""
    return False


def _watch(engine: Engine, segment: KeptSegment, gradients: list[Tensor], before: list[Any], end: Any) -> Stage | None:
    """Go through the segment the usual way, and look at what that was; None if it is nothing that can be kept."""
    given, origins, storages, held = segment.given, segment.origins, segment.storages, segment.held
    tr = engine.tr
    slots = sorted(engine.queue[segment])
    engine.queue[segment] = dict(zip(slots, gradients, strict=True))
    engine._walk(segment)
    gen, state, tensors, inputs, resolved = tr.gen, tr.state, tr.tensors, tr.inputs, tr.resolved
    end()
    plan = next((p for p in list(state.plans.values()) if p.last == gen), None)
    if plan is None or plan.keep is not None or plan.history is not None or plan.made_from.calls_host():
        return None
    *path, last = state.path()[1:]
    if type(last.info).__name__ != "StageInfo" or last.edge[1] is not segment.tape or any(s.edge[0] not in (IN, ALIAS) for s in path):
        return None
    return Stage(engine, segment, gradients, before, given, origins, storages, held, plan, path, last, tensors, inputs, resolved)


def _learn(engine: Engine, segment: KeptSegment, piece: KeptPiece, key: Any, gradients: list[Tensor], before: list[Any], end: Any) -> None:
    """Go through the segment the usual way, and keep what that was."""
    stage = _watch(engine, segment, gradients, before, end)
    if stage is not None and (found := StageWriter(piece, stage).written()) is not None:
        text, scope = found
        exec(compiled(text, "<flambeau kept piece>"), scope)
        piece.stages[key] = scope.pop("run")


def _by_class(engine: Engine, segment: KeptSegment, piece: KeptClass, key: Any, gradients: list[Tensor], before: list[Any], end: Any) -> bool | None:
    """Go through a segment by a function for all sizes; False if it has to be done the usual way, None if that is not known, and nothing is done."""
    alike = piece.by_kind.get(key)
    if alike is None:
        if len(piece.by_kind) >= MOST:
            return None
        alike = piece.by_kind[key] = Alike()
    for position, stage in enumerate(alike.runs):
        done = stage(engine, segment, gradients, before)
        if done is not None:
            if position:  # the next one is likely to be like this one
                alike.runs.insert(0, alike.runs.pop(position))
            return done  # type: ignore[no-any-return]
    if not alike.may_be_tried():
        return None
    watched = _watch(engine, segment, gradients, before, end)
    if watched is not None:
        learn_by_class(piece, alike, watched)
    return True
