"""Backward passes through kept pieces (trace/kept.py): a stage that is known for its gradients' metadata runs at once, without a trace.

The first time a stage goes the usual way: what its trace was, and the plan that it ran, become one generated function. It takes the gradients of the
piece's results and the sums that have reached its boundaries so far, runs the plan, and leaves the new sums where the engine looks for them.
"""

from __future__ import annotations

from ctypes import c_float, memmove
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from flambeau.autograd.kept_segment import KeptSegment
from flambeau.dtypes import float32
from flambeau.python_code import compiled
from flambeau.statistics import counters
from flambeau.trace import evaluate, stand_ins, tiers
from flambeau.trace.existing import maker
from flambeau.trace.meta import is_dense
from flambeau.trace.objects import _TENSOR
from flambeau.trace.recorder import ALIAS, IN
from flambeau.trace.saved_hooks import saved
from flambeau.trace.storage import Storage
from flambeau.trace.traces import TRACES

if TYPE_CHECKING:
    from flambeau.autograd.engine import Engine
    from flambeau.tensor import Tensor
    from flambeau.trace.kept import KeptPiece

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
    if not may_run(engine) or saved or not (tiers.in_pieces(tr) or tiers.MODE[0] == tiers.PIECES) or type(root) is not _TENSOR[0]:
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
    gradients = []
    for slot, g in sorted(pending.items()) if len(pending) > 1 else pending.items():
        if g.__class__ is not _TENSOR[0] or g._meta.dynamic:
            return False
        g = taken_out(g)
        storage = g._storage
        if storage is None or storage.gen >= 0 or storage.buffer is None:
            return False
        gradients.append(g)
        key += slot, g._meta, storage.buffer.nbytes
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
        key += total._meta, storage.buffer.nbytes
    key_ = tuple(key)
    stage = piece.stages.get(key_)
    if stage is None:
        if len(piece.stages) >= MOST:
            return False
        piece.stages[key_] = _never
        _learn(engine, segment, piece, key_, gradients, before, end)
        return True
    return stage(engine, segment, gradients, before)  # type: ignore[no-any-return]


def _never(*_: Any) -> bool:
    """In place of a stage that goes the usual way."""
    return False


def _learn(engine: Engine, segment: KeptSegment, piece: KeptPiece, key: Any, gradients: list[Tensor], before: list[Any], end: Any) -> None:
    """Go through the segment the usual way, and keep what that was."""
    given, origins, storages, held = segment.given, segment.origins, segment.storages, segment.held
    tr = engine.tr
    slots = sorted(engine.queue[segment])
    engine.queue[segment] = dict(zip(slots, gradients, strict=True))
    engine._walk(segment)
    gen, state, tensors, inputs, resolved = tr.gen, tr.state, tr.tensors, tr.inputs, tr.resolved
    end()
    plan = next((p for p in list(state.plans.values()) if p.last == gen), None)
    if plan is None or plan.keep is not None or plan.history is not None or plan.made_from.calls_host():
        return
    *path, last = state.path()[1:]
    if type(last.info).__name__ != "StageInfo" or last.edge[1] is not segment.tape or any(s.edge[0] not in (IN, ALIAS) for s in path):
        return
    named: dict[int, str] = {}  # what the plan's inputs are, by id of their storages
    for i, s in enumerate(storages):
        if s is not None:
            named[id(s)] = f"s{i}"
    for i, s in enumerate(held):
        named[id(s)] = f"r{i}"
    for i, g in enumerate(gradients):
        if id(g._storage) in named:
            return
        named[id(g._storage)] = f"g{i}"
    for i, t in enumerate(before):
        if t is not None:
            if id(t._storage) in named:
                return
            named[id(t._storage)] = f"u{i}"
    if any(id(s) not in named for s in inputs):
        return
    buffers = [named[id(s)] for s in inputs]
    parameters = []
    for state_, t in zip(path, resolved, strict=True):
        if state_.parameters:
            which = next((i for i, x in enumerate(given) if x is t), None)
            if which is None:
                return
            parameters.append(f"t{which}._offset - {t._meta.offset}")
    numbers = [segment.tape.parameters[slot] for slot in segment.tape.entered]
    parameters += [f"n[{i}]" for i in numbers]
    scope: dict[str, Any] = {
        "new": object.__new__, "Tensor": _TENSOR[0], "Storage": Storage, "compute": plan.run, "used": last.info.used, "counters": counters, "plan": plan,
        "error": Exception,
    }  # fmt: skip
    outputs = dict(plan.assign)
    position = {id(t): k for k, t in enumerate(tensors)}
    made: list[str] = []
    leaves: list[str] = []
    whole: dict[int, str] = {}  # storages of fresh outputs
    leaving = dict(piece.boundaries)
    for slot in last.info.slots:
        if slot not in leaving:
            return
        i = leaving[slot]
        t, origin = given[i], origins[i]
        assert t is not None
        r = engine.sums.get(id(t)) if origin is None else engine.queue.get(origin[0], {}).get(origin[1])
        if r is None or r._meta.dynamic:
            return
        name = f"o{i}"
        same = next((k for k, g in enumerate(gradients) if g is r), None)
        if same is not None:
            made.append(f"    {name} = gradients[{same}]")
        else:
            at = position.get(id(r))
            if at is None:
                return
            m = scope[f"m{i}"] = r._meta
            if at in outputs:
                storage = whole.get(outputs[at])
                if storage is None:
                    storage = whole[outputs[at]] = f"q{i}"
                    made.append(f"    {storage} = Storage(buffers[{outputs[at]}])")
                taken = False
            else:
                storage = named.get(id(r._storage), "")
                if not storage.startswith("g"):
                    return
                taken = origin is not None and is_dense(m.shape, m.strides) and not m.bits and not m.requires_grad
                if taken:  # as the engine does before the next stage (taken_out)
                    scope[f"make{i}"], scope["move"] = maker(m.shape, m.dtype, m.strides), _move
                    made += [
                        f"    {name}, to = make{i}()",
                        f"    move(to, {storage}.buffer.address + {m.offset * m.dtype.itemsize}, {m.numel * m.dtype.itemsize})",
                    ]
            if not taken:
                made += [
                    f"    {name} = new(Tensor)", f"    {name}._gen = {name}._slot = -1", f"    {name}._immediate = None", f"    {name}._meta = m{i}",
                    f"    {name}._storage = {storage}",
                ]  # fmt: skip
                if at not in outputs:
                    made.append(f"    {name}._view = True")
        if origin is None:
            leaves += [f"    engine.leaves[id(t{i})] = t{i}", f"    engine.sums[id(t{i})] = {name}"]
        else:
            leaves += [
                f"    found = queue.get(h{i}[0])", f"    if found is None: queue[h{i}[0]] = {{h{i}[1]: {name}}}", f"    else: found[h{i}[1]] = {name}",
            ]  # fmt: skip
    checked = []
    places = dict(piece.holders)
    for slot in last.info.boundaries_used:
        used = places.get(slot, leaving.get(slot))
        if used is None:
            return
        checked.append(f"s{used}.version != segment.at[{used}]" if used >= 0 else f"r{-1 - used}.version")
    lines = ["def run(engine, segment, gradients, before):"]
    count = len(given)
    lines.append(f"    {''.join([f's{i}, ' for i in range(count)])} = segment.storages")
    lines.append(f"    {''.join([f't{i}, ' for i in range(count)])} = segment.given")
    if held:
        lines.append(f"    {''.join([f'r{i}, ' for i in range(len(held))])} = segment.held")
    lines += [f"    g{i} = gradients[{i}]._storage" for i in range(len(gradients))]
    lines += [f"    u{i} = before[{i}]._storage" for i, t in enumerate(before) if t is not None]
    for _, i in piece.boundaries:
        scope[f"w{i}"] = given[i]._meta  # type: ignore[union-attr]
        lines.append(f"    if t{i}._storage is not s{i} or t{i}._meta is not w{i}: return False")
        if origins[i] is not None:
            lines.append(f"    h{i} = segment.origins[{i}]")
    for name in buffers:
        if name[0] in "sr":
            lines.append(f"    if {name}.gen >= 0 or {name}.external is not None: return False")
    if checked:
        lines.append(f"    if {' or '.join(checked)}: return False")
    if numbers:
        lines.append("    n = segment.numbers")
    inputs_ = "".join([f"{name}.buffer, " for name in buffers])
    lines += [
        "    try:",
        f"        buffers = compute([{inputs_}], ({''.join([f'{p}, ' for p in parameters])}))",
        "    except error:",
        "        return False",
        "    plan.last = engine.tr.gen",
        *made,
        "    queue = engine.queue",
        "    del queue[segment]",
        *leaves,
    ]
    if not engine.retain:
        lines.append("    segment.done = used")
    lines += ["    counters.kept_stages += 1", "    return True"]
    exec(compiled("\n".join(lines), "<flambeau kept piece>"), scope)
    piece.stages[key] = scope.pop("run")


def _move(to: int, source: int, nbytes: int) -> None:
    memmove(to, source, nbytes)
