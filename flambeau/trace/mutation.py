"""In-place writes. A write gives a storage a new value and a new version; other tensors on it become stale and are re-read.

The compiler turns the functional update back into a write at the same address where nothing needs the old value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from sys import getrefcount
from typing import TYPE_CHECKING, Any

from flambeau import dtypes
from flambeau.devices import META
from flambeau.foreign import refuse
from flambeau.runtime.untracked import record
from flambeau.statistics import counters
from flambeau.trace import fragment as fragments
from flambeau.trace.ahead import remember
from flambeau.trace.arrival import arrival, leave_hooks, loses_gradients
from flambeau.trace.blank import no_data
from flambeau.trace.classes import follow
from flambeau.trace.debugging import untraced
from flambeau.trace.liveness import HELD
from flambeau.trace.loops import FAR, ends_round
from flambeau.trace.meta import dense_strides, is_dense, meta, same_layout
from flambeau.trace.objects import is_view, twin
from flambeau.trace.once import warn_here
from flambeau.trace.overlap import assigned_strides, is_assigned_to_itself, refuse_overlap, refuse_unlike
from flambeau.trace.place import here
from flambeau.trace.recorder import ALIAS, IN, Boundary, Fragment, Trace, local, run_in, storage_of
from flambeau.trace.state import ASSIGN, State
from flambeau.trace.storage import FAMILIES, ORDER, Storage, count_as
from flambeau.trace.traces import SHARING, TRACES
from flambeau.trace.while_set import while_set
from flambeau.upward import upward

if TYPE_CHECKING:
    from flambeau.tensor import Tensor
    from flambeau.trace.meta import Meta

native_writes: Any = None  # `assign_all` where the same writes were made before, in native code (known_edge.py)


def leaf_of(target: Tensor, storage: Storage) -> Tensor | None:
    """The leaf whose memory the storage is and of which the target is a view, if it is one: found among the boundaries of the target's history."""
    if _is_computed(storage, target._detached):
        return None
    pending = [local.trace.boundaries]
    if target._history is not None:
        pending.append(target._history[0].boundaries)
    for boundaries in pending:  # grows as views of earlier segments are met
        for b in boundaries.values():
            if b.tensor._storage is storage and b.tensor._detached == target._detached:
                if b.history is None and b.tensor._meta.leaf:
                    return b.tensor
                if b.history is not None and not any(b.history[0].boundaries is known for known in pending):
                    pending.append(b.history[0].boundaries)
    return None


def _is_computed(storage: Storage, family: int) -> bool:
    """Whether the content is known to be an operation's result, or was written to with gradients: to a leaf's such a write is refused."""
    history, result, cut = storage.history, storage.result, storage.cut
    if family != storage.family:
        history, result, cut = (storage.others or {}).get(family, (None, None, -1))
    segment = history[0] if history is not None else None if result is None else result[0]()
    return bool(segment.tape.nodes) if segment is not None else cut > 0


@record
class Assignment:
    """What an assignment edge remembers: the storage's slots before and after. `chain`: see `assign_all`."""

    __slots__ = ("chain", "keeps_history", "moving", "own", "replaced", "root_after", "root_before", "target")

    def __init__(self, root_before: int, root_after: int, keeps_history: bool, own: int, target: int, replaced: int) -> None:
        self.moving = False  # whether the source is the same memory and either begins where run-time numbers say
        self.own = own  # results from this slot on belong to the in-place operation itself: it may use what it writes over
        self.target = target  # the slot of the tensor that is written to
        self.replaced = replaced  # the slot of the old content, with gradients, all of which a differentiable write replaces; or -1
        self.root_before = root_before
        self.root_after = root_after
        self.keeps_history = keeps_history
        self.chain: tuple[State, ...] = ()

    def twin(self) -> Assignment:
        """The same of another edge."""
        twin = Assignment(self.root_before, self.root_after, self.keeps_history, self.own, self.target, self.replaced)
        twin.moving = self.moving
        return twin


def refuse_leaf(target: Tensor, name: str) -> None:
    """RuntimeError if an in-place operation under autograd is one of a leaf that requires gradients, or of a view of one."""
    if target._meta.requires_grad and local.trace.grad_enabled:
        if target.is_leaf:
            raise RuntimeError(
                f"{name}: a leaf Variable that requires grad is being used in an in-place operation. Wrap the update in "
                "`with torch.no_grad():`, or write a new tensor instead."
            )
        storage = target._storage
        if storage is not None and leaf_of(target, storage) is not None:
            raise RuntimeError(
                f"{name}: a view of a leaf Variable that requires grad is being used in an in-place operation. Wrap the update in `with torch.no_grad():`."
            )


def refuse_made_without_gradients(target: Tensor) -> None:
    """RuntimeError if a view was made without gradients of a tensor with gradients, before it is written to with them."""
    if target._detached == 1 and target._meta.dtype.category >= 2 and target._storage is not None and target._storage.family != 1:
        raise RuntimeError(
            "A view was created in no_grad mode and is being modified inplace with grad mode enabled. Given that this use case is "
            "ambiguous and error-prone, it is forbidden. You can clarify your code by moving both the view and the inplace either both "
            "inside the no_grad block (if you don't want the inplace to be tracked) or both outside (if you want the inplace to be tracked)."
        )


def check_writable(target: Tensor, name: str) -> None:
    """PyTorch's rules for in-place operations under autograd."""
    m = target._meta
    refuse_leaf(target, name)
    if 0 in m.strides and m.numel and any(s == 0 and n > 1 for s, n in zip(m.strides, m.shape, strict=True)):
        raise RuntimeError(
            f"{name}: unsupported operation: more than one element of the written-to tensor refers to a single memory "
            f"location (shape {tuple(m.shape)}, strides {m.strides}). Please clone() the tensor before performing the operation."
        )


def _is_same_data(target: Tensor, source: Tensor, name: str) -> bool:
    """Whether a copy leaves everything as it is, gradients too: both are the same view of the same memory, an assigned value as it is broadcast."""
    m, sm = target._meta, source._meta
    same = name in ("copy_", "__setitem__") and source._storage is not None and source._storage is target._storage and source._detached == target._detached
    if not same or m.dtype is not sm.dtype or m.bits != sm.bits or target.storage_offset() != source.storage_offset():
        return False
    if name == "copy_" or m.shape == sm.shape:
        return (m.shape, m.strides) == (sm.shape, sm.strides)
    return bool(sm.ndim) and assigned_strides(m, sm) == m.strides  # one number is filled in


def assign(
    target: Tensor, source: Tensor, name: str = "copy_", fresh: bool = False, settled: bool = False, again: Callable[[Any], Any] | None = None
) -> Tensor:
    """Overwrite the elements of `target` with `source`, broadcast to its shape and cast to its dtype.

    `fresh`: nobody else holds `source`, so its value can become the storage's without a copy. `settled`: other tensors on the
    storage have been made stale already. `again`: what has made `source`, for another target, of functions that write some elements.
    """
    if native_writes is not None and not settled:
        owner = target._storage
        # Whether memory that both have may be written depends on the function's name, which known edges do not have.
        if (owner is None or source._storage is not owner) and native_writes([target], [source], fresh):
            return target
    tr = local.trace
    if name in PARTIAL:
        source = agreeing(target, source, again)
    if type(tr) is not Trace:
        if isinstance(tr, Fragment):
            raise RuntimeError(f"{name}: an operation's body must not write in place")
        return tr.assign(target, source, name, fresh)  # type: ignore[no-any-return]
    if len(TRACES) == 1:
        return _assign(tr, target, source, name, fresh, settled)
    make_ours(tr, (target,))
    for t in (target, source):
        tr.slot_of(t)  # before the lock: another thread may have to go on first
    with SHARING:
        return _assign(tr, target, source, name, fresh, settled)


def _assign(tr: Trace, target: Tensor, source: Tensor, name: str, fresh: bool, settled: bool) -> Tensor:
    """`assign`, by a trace, while no other one gets to know the storage."""
    if 0 in target._meta.strides and _is_same_data(target, source, name):
        refuse_leaf(target, name)
        return target  # PyTorch does not look at an expanded tensor that is copied to itself
    check_writable(target, name)
    owner = target._storage
    detached = owner is not None and target._detached != owner.family
    if detached and tr.grad_enabled:
        refuse_made_without_gradients(target)
    if detached and _gives_history(tr, target, (source,)):
        _refuse_source(target._meta, source._meta, name)
        _take_history(tr, target, owner)  # type: ignore[arg-type]
        fresh = detached = False
    meets = owner is not None and source._storage is owner  # what `fresh` sources never do
    assigned = name == "__setitem__" and meets and target._meta.numel == source._meta.numel  # else it is expanded
    if (meets and name == "copy_") or (assigned and (target._meta.shape == source._meta.shape or not is_assigned_to_itself(target, source))):
        refuse_overlap(target, source, name)
    gen = tr.gen
    target_slot = slot if (slot := target._slot) is not None and target._gen == gen else tr.resolve(target)
    source_slot = slot if (slot := source._slot) is not None and source._gen == gen else tr.resolve(source)
    storage = target._storage or storage_of(target)
    if storage.gen != gen:
        make_own(tr, (storage,))
    m = target._meta
    recorded = tr.grad_enabled and not detached
    face = storage.slot
    if recorded and (storage.history is not None or storage.result is not None or tr.custom):
        face = tr.face(storage)
    viewed = recorded and (m.requires_grad or source._meta.requires_grad) and is_view(target)
    key = (ASSIGN, target_slot, source_slot, storage.slot, face, fresh, m.requires_grad and m.leaf, detached, viewed)
    state = tr.state.children.get(key)
    if viewed and m.requires_grad and (state is None or target_slot in tr.boundaries):
        refuse_one_of_many(target, name)
    if state is None:
        if not recorded and (
            tr.needs(storage.slot) or (m.requires_grad and not m.leaf and target._history is None)
            or (_uncounted(target) and _is_kept(tr, storage.slot))
        ):  # fmt: skip
            from flambeau.trace.evaluate import flush

            # The history of what is written over goes on, past a value that it does not know: keep it as a segment. And gradients
            # of what has used it use what `.data` writes.
            if not any(t is target for t in tr.tensors):
                tr.tensors.append(target)
            flush(tr, "write without gradients")
            return assign(target, source, name, fresh)
        if not fresh and _ends_round(tr, ASSIGN):
            return assign(target, source, name)

        def make(ints: tuple[Any, ...] = ()) -> State:
            return _slow(tr, key, target, source, storage.slot, face, name, fresh, viewed)

        state = follow(tr, key, key, (), make, make)
        state.info.moving = meets and (m.dynamic or source._meta.dynamic)
        if state.model is not None:
            state.model.info.moving = state.info.moving
    if not settled:
        if _make_stale(tr, {storage: target}, recorded):
            _keep_views(tr)
            return assign(target, source, name, fresh)
        if not (state.external or state.info.moving or (recorded and (state.meta.requires_grad or tr.custom))):  # type: ignore[union-attr]
            step = state, state.info.root_after, state.info.keeps_history
            tr.state.writes = (target_slot,), (source_slot,), (storage.slot,), (m,), (step,), fresh
    earlier = storage.source() if recorded else None
    others = {} if earlier is None else earlier[0].hooked  # of the segment that has computed what is written over
    watched: Sequence[Tensor] = ()
    if recorded and (tr.hooked or others or target._hooks or target._retains_grad):
        watched = _leave_hooks(tr, target, storage, others)
    before = tr.state
    try:
        tr.state = state
        _bind(tr, target, storage, state)
    except BaseException:
        if storage.slot != state.info.root_after:  # type: ignore[union-attr]
            tr.state = before  # nothing is written
        else:
            _bind(tr, target, storage, state)
        raise
    if recorded and (storage.history is not None or storage.cut >= 0 or state.meta.requires_grad):  # type: ignore[union-attr]
        storage.cut = next(ORDER)
        storage.history = storage.result = None
    elif not recorded and not _uncounted(target):
        _lead_anew(storage, target)
    for t in watched:
        owner, slot = arrival(tr, t)
        owner.hooked[slot] = t
    if state.external and not tr.held:
        from flambeau.trace.evaluate import flush

        flush(tr, "external memory")
    return target


def make_own(tr: Trace, storages: Iterable[Storage]) -> None:
    """No other trace has these among its inputs from now on; loaded when it is first needed."""
    from flambeau.trace import sharing

    sharing.make_own(tr, storages)


def make_ours(tr: Trace, targets: Iterable[Tensor]) -> None:
    """Before writes: the trace has the tensors under their own names; loaded when it is first needed."""
    from flambeau.trace.stand_ins import own

    for t in targets:
        own(tr, t)


def _lead_anew(storage: Storage, target: Tensor) -> None:
    """After a write without gradients: histories are what they were, but views lead to them anew, past the hooks of what they were."""
    source = storage.source()
    if source is not None:
        storage.cut, storage.history = next(ORDER), source  # held from now on, as views hold their own no more
    if storage.others is not None:
        for family, (history, result, _) in storage.others.items():
            if history is None and result is not None and (segment := result[0]()) is not None:
                history = segment, result[1]
            if history is not None:
                storage.others[family] = history, None, next(ORDER)
    elif source is None:
        return
    if is_view(target):
        target._gen = -1


def _leave_hooks(tr: Trace, target: Tensor, storage: Storage, others: dict[int, Tensor]) -> list[Tensor]:
    """Before a write with gradients: hooks stay with the value that is written over. Returns the tensors on the storage that keep
    their gradients, which goes on with what they are then."""
    keeping = []
    for t in [target, *{id(t): t for t in (*tr.hooked.values(), *others.values()) if t is not target and t._storage is storage}.values()]:
        if (t._hooks or t._retains_grad) and not t._meta.leaf and t._detached == target._detached:
            leave_hooks(t, tr.hooked, others, {} if t._history is None else t._history[0].hooked)
            if t._retains_grad:
                keeping.append(t)
    return keeping


def _gives_history(tr: Trace, target: Tensor, sources: Sequence[Any]) -> bool:
    """Whether what is made of these is written to the target with gradients."""
    m = target._meta
    return tr.grad_enabled and (m.requires_grad or (m.dtype.category >= 2 and any(hasattr(s, "_meta") and s._meta.requires_grad for s in sources)))


def _has_hooks(tr: Trace, target: Tensor, storage: Storage) -> bool:
    """Whether a view, or another one that it may be a view of, has hooks."""
    hooked = tr.hooked if target._history is None else {**tr.hooked, **target._history[0].hooked}
    return bool(target._hooks) or any(t._storage is storage and is_view(t) for t in hooked.values())


def make_ready(target: Tensor, args: Sequence[Any], name: str, compute: Callable[..., Tensor] | None = None) -> Sequence[Any]:
    """Before an in-place operation computes its result: what decides by which name it knows what it writes over. Returns the operands.
    `compute` gives the result of a target and operands: of blank ones, where a write that is refused later would have changed something.

    A view with hooks that is an operand, too (`v.add_(v)`), is among them as what it was: that operand's gradient goes by its hooks."""
    tr, storage = local.trace, getattr(target, "_storage", None)  # of what is no tensor the operation itself says so
    if type(tr) is not Trace or storage is None or isinstance(target, type):
        return args
    if target._detached != storage.family:
        if target._detached != 1 and _gives_history(tr, target, args):
            check_writable(target, name)
            _take_history(tr, target, storage)  # now: it ends the trace, and the operation keeps what it writes over in its own
    elif tr.grad_enabled and is_view(target) and not target._meta.leaf and (_has_hooks(tr, target, storage) or loses_gradients(tr, target)):
        # As in PyTorch: gradients of the content go past the hooks of a view that it was written through, and past the other views that it was made of.
        check_writable(target, name)  # a write that is refused changes nothing
        if compute is not None:
            _refuse_before(compute, target, args, name)
        if any(a is target for a in args):
            tr.slot_of(target)
            before = twin(target)
            args = [before if a is target else a for a in args]
        lead_anew(tr, target, storage)
    return args


def _refuse_before(compute: Callable[..., Tensor], target: Tensor, args: Sequence[Any], name: str) -> None:
    """Raise what computing a result and writing it to the target would, by tensors without memory."""
    blank, *operands = [a.detach().to("meta") if hasattr(a, "_meta") else a for a in (target, *args)]
    try:
        result = compute(blank, *operands)
    except NotImplementedError:  # it asks for values
        return
    if hasattr(result, "_meta"):
        _refuse_source(blank._meta, result._meta, name)


def lead_anew(tr: Trace, target: Tensor, storage: Storage) -> None:
    """Gradients of a view go to the memory's content from now on, past its hooks."""
    source = storage.source()
    if target._history is None:
        leave_hooks(target, tr.hooked)
    elif source is not None:
        storage.cut, storage.history = next(ORDER), source
    else:
        return
    target._gen = -1


def lead_others_anew(target: Tensor) -> None:
    """Before an in-place view, which is a write in the eyes of other views: of those that lose gradients until then."""
    tr, storage = local.main, target._storage
    if storage is None or len(TRACES) > 1:
        return
    source = storage.source()
    if source is not None and target._detached == storage.family:
        storage.cut, storage.history = next(ORDER), source
    for t in [*tr.tensors, *tr.resolved]:
        if t._storage is storage and t is not target and t._gen == tr.gen and is_view(t) and not t._meta.leaf and loses_gradients(tr, t):
            lead_anew(tr, t, storage)
            tr.resolve(t)  # at once: what is learned of the path knows it


def _take_history(tr: Trace, target: Tensor, storage: Storage) -> None:
    """Before a write with gradients to a detached tensor: from here on the history of the memory is its family's.

    What the family's predecessors have computed keeps its own, as the segments of what has run until now.
    """
    from flambeau.trace.evaluate import flush

    listed = {id(t) for t in tr.tensors}
    for t in tr.resolved + tr.tensors:
        if t._storage is storage and t._detached == storage.family and not (t._meta.requires_grad and t._meta.leaf):
            if t._gen != tr.gen:
                tr.resolve(t)
            if t._meta.requires_grad and id(t) not in listed:
                listed.add(id(t))
                tr.tensors.append(t)
    flush(tr, "write with gradients to a detached tensor")
    others = storage.others = storage.others or {}
    source = storage.source()  # its views lead to it anew, as after every write
    others[storage.family] = (storage.history, storage.result, storage.cut) if source is None else (source, None, next(ORDER))
    # As if written just now, also where the write fails: what looks only at memory that nobody has written does not know of families.
    storage.history, storage.result, storage.cut = others.pop(target._detached, (None, None, next(ORDER)))
    storage.family = target._detached


def replace_data(target: Tensor, value: Tensor) -> None:
    """`target.data = value`: other memory under the same history; gradients of what has used a leaf use what it is then."""
    tr = local.trace
    m = target._fresh_meta()
    if type(tr) is not Trace or not m.requires_grad:
        target._replace(value)
        _part(target, value)
        return
    from flambeau.trace.evaluate import flush

    if m.leaf and target._history is None:
        if target._gen == tr.gen:
            flush(tr, "new data")
        target._replace(value)
        _part(target, value)
        return
    if target._history is None:
        tr.slot_of(target)
        if not any(t is target for t in tr.tensors):
            tr.tensors.append(target)
        flush(tr, "new data")
    history, source = target._history, value.detach()
    target._take(source)
    target._meta = target._meta.variant(requires_grad=True, leaf=False)
    target._history, target._detached = history, source._detached
    target._gen = -1  # not the slot of the new memory, which has no history


def _part(target: Tensor, value: Tensor) -> None:
    """No history of the memory's becomes `target`'s: neither what `value` has, nor what later writes to it may give.

    Where there is none yet, `value` begins a family (Storage): it is mostly gone at once, while parameters are written to at every step.
    """
    storage: Any = target._storage
    if value.requires_grad or is_view(value) or storage.family or storage.others or storage.cut >= 0 or storage.source() is not None:
        target._detached = next(FAMILIES)
    elif not value._detached:
        value._detached = next(FAMILIES)


@upward
def freed_outputs(path: list[State]) -> set[int]:
    """The results of a path whose gradients have been given up (autograd/differentiate.py)."""
    raise NotImplementedError


@upward
def refuse_one_of_many(target: Tensor, name: str) -> None:
    """RuntimeError if a view is one of several of a call, or a custom function's (autograd/one_of_many.py)."""
    raise NotImplementedError


@upward
def agreeing(x: Tensor, result: Tensor, again: Callable[[Any], Any] | None = None) -> Tensor:
    """A result in which elements that are one place of x agree; most often the result itself (ops/expanded_writes.py)."""
    raise NotImplementedError


@upward
def resize_(self: Tensor, *sizes: Any) -> Tensor:
    """Give a tensor another shape, in its storage where that has the room (ops/more.py)."""
    raise NotImplementedError


@upward
def become_view(self: Tensor, view: Callable[[Tensor], Tensor], name: str) -> Tensor:
    """Let a tensor be a view of what it was (ops/more.py)."""
    raise NotImplementedError


def _uncounted(target: Tensor) -> bool:
    """Whether writes to it do not count: it was made by `.data`, or is a view of such a tensor."""
    return target._detached > 1 and target._detached % 2 == 0


def _is_kept(tr: Trace, root: int) -> bool:
    """Whether what this trace has recorded of gradients, and has not given up, may ask for the value `root`."""
    path = tr.state.path()
    freed = freed_outputs(path)
    for state in path:
        for node in state.nodes:
            outputs = node.outputs
            if not state.requires.isdisjoint(outputs) and outputs[0] not in freed:
                for slot in node.inputs:
                    if slot == root or tr.value(slot).base == root:
                        return True
    return False


def replace(function: Callable[..., Tensor], target: Tensor, args: Sequence[Any], kwargs: Mapping[str, Any], name: str) -> Tensor:
    """Overwrite `target` with the new value `function(target, *args, **kwargs)`, whose gradient may use the old one."""
    if hasattr(target, "_become"):
        if target.requires_grad and target.is_leaf and local.trace.grad_enabled:
            raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
        return into_sparse(target, function(target, *args, **kwargs))
    refuse_unlike(target, (*args, *kwargs.values()), name, lambda: function(target, *args, **kwargs))
    given = (*args, *kwargs.values())
    ready = make_ready(target, given, name, lambda t, *given: function(t, *given[: len(args)], **dict(zip(kwargs, given[len(args) :], strict=True))))
    if ready is not given:
        args, kwargs = ready[: len(args)], dict(zip(kwargs, ready[len(args) :], strict=True))
    tr, read = local.trace, target
    if type(tr) is not Trace and not isinstance(tr, Fragment):
        read = tr.before_write(target)
        args, kwargs = [read if a is target else a for a in args], {k: read if a is target else a for k, a in kwargs.items()}
    _ends_round(tr, getattr(function, "operation", None))
    # Held: what the result needs of the old values must be known before they are written over.
    result = while_set(tr, "held", True, function, read, *args, **kwargs)
    if hasattr(result, "_become"):  # of a dense tensor and a sparse one
        result = result.to_dense()
    again = (lambda t: function(t, *args, **kwargs)) if name in PARTIAL else None
    return assign(target, result, name, fresh=True, again=again)


def into_sparse(target: Any, result: Any) -> Tensor:
    """A sparse tensor with the values of a result instead of its own: it takes over what the result has."""
    if not can_cast(result.dtype, target.dtype):
        raise RuntimeError(f"result type {result.dtype.name} can't be cast to the desired output type {target.dtype.name}")
    if not hasattr(result, "_become"):
        raise RuntimeError(f"a tensor of layout {target.layout} cannot take a result of layout {result.layout}: use to_dense() first")
    return target._become(result if result.dtype is target.dtype else result.to(target.dtype))  # type: ignore[no-any-return]


def _ends_round(tr: Any, op: Any) -> bool:
    """Whether a write that is not known here has ended the trace, as it begins another round of a loop of writes."""
    return type(tr) is Trace and tr.state.depth >= FAR and all(key[0] is not op for key in tr.state.children) and ends_round(tr, op, FAR)


def assign_all(targets: Sequence[Tensor], sources: Sequence[Tensor], name: str = "copy_") -> None:
    """`assign(target, source, name, fresh=True)` for each pair, in one look at the trace: what an optimizer's step ends with.

    The edges are those of the single assignments; a second name of the last one leads past all of them at once.
    """
    if native_writes is not None and native_writes(targets, sources, True):
        return
    tr = local.trace
    if type(tr) is not Trace:
        for target, source in zip(targets, sources, strict=True):
            assign(target, source, name, fresh=True)
        return
    if len(TRACES) > 1:
        make_ours(tr, targets)
    gen = tr.gen
    slots = tuple([slot if (slot := t._slot) is not None and t._gen == gen else tr.resolve(t) for t in targets])
    made = tuple([slot if (slot := s._slot) is not None and s._gen == gen else tr.resolve(s) for s in sources])
    storages = {t._storage or storage_of(t): t for t in targets}
    if len(TRACES) > 1:
        with SHARING:
            make_own(tr, storages)
            _assign_all(tr, targets, sources, name, slots, made, storages)
    else:
        _assign_all(tr, targets, sources, name, slots, made, storages)


def _assign_all(
    tr: Trace, targets: Sequence[Tensor], sources: Sequence[Tensor], name: str, slots: tuple[int, ...], made: tuple[int, ...], storages: dict[Storage, Tensor]
) -> None:  # fmt: skip
    """`assign_all`, by a trace, while no other one gets to know the storages."""
    gen = tr.gen
    key = (ASSIGN, slots, made, tuple([s.slot for s in storages]), tuple([t._meta for t in targets]))
    before = tr.state
    state = before.children.get(key)
    plain = len(storages) == len(targets) and not tr.state.external and not any(t._detached or s.family or s.history is not None for s, t in storages.items())
    # at once: a walk over the whole trace for each of some hundred writes takes its time
    if plain and _make_stale(tr, storages, tr.grad_enabled):
        _keep_views(tr)
        assign_all(targets, sources, name)
        return
    if state is None or not plain or tr.grad_enabled:
        chain = []
        for target, source in zip(targets, sources, strict=True):
            assign(target, source, name, fresh=True, settled=plain and tr.gen == gen)
            chain.append(tr.state)
        if plain and not before.grad_enabled and tr.gen == gen:
            tr.state.info.chain = tuple(chain)
            before.children[key] = tr.state
            path = tr.state.path()[len(before.path()) :]
            if before.sizes and all(s.model is not None for s in path):
                remember(before, key, path, partial(_give_name, key))
        return
    steps = [(step, step.info.root_after, step.info.keeps_history) for step in state.info.chain]
    before.writes = (*key[1:], tuple(steps), True)
    bound = list(zip(state.info.chain, storages.items(), strict=True))
    try:
        tr.state = state
        for step, (storage, target) in bound:
            _bind(tr, target, storage, step)
    except BaseException:
        if next(iter(storages)).slot != steps[0][1]:
            tr.state = before  # nothing is written
        else:
            for step, (storage, target) in bound:
                _bind(tr, target, storage, step)
        raise


def _give_name(key: Any, path: list[State]) -> None:
    """Let the second name of many writes lead past them at other sizes, too."""
    before, end = path[0], path[-1]
    chain = tuple([s for s in path[1:] if s.edge[0] == ASSIGN])
    if len(chain) == len(key[1]):
        end.info.chain = chain
        before.children[key] = end
        before.writes = (*key[1:], tuple([(step, step.info.root_after, step.info.keeps_history) for step in chain]), True)


def _make_stale(tr: Trace, written: dict[Storage, Tensor], recorded: bool) -> bool:
    """Tensors on storages that are being written, other than those written to, no longer know their value's slot.

    True, and nothing done, if gradients do not see the write (not `recorded`) and some of them have no other history than that slot.
    """
    gen = tr.gen
    listed = set()
    stale: list[Tensor] = []
    keep = False
    for t in tr.tensors:
        target = written.get(t._storage)  # type: ignore[arg-type]
        if target is not None:
            if t is target:
                listed.add(id(t))
            else:
                if t._gen == gen and not recorded:
                    m = t._meta
                    if m.requires_grad and not m.leaf:
                        keep = keep or (t._history is None and getrefcount(t) > HELD)
                        stale.append(t)
                t._gen = -1
    if keep:
        for t in stale:
            t._gen = gen
        return True
    for t in tr.resolved:
        target = written.get(t._storage)  # type: ignore[arg-type]
        if target is not None and t is not target and t._gen == gen:
            t._gen = -1
    for target in written.values():
        if id(target) not in listed:
            tr.tensors.append(target)
    return False


def _keep_views(tr: Trace) -> None:
    """Before a write that gradients do not see: what views of the memory came from must be a segment's, for they will have new values."""
    from flambeau.trace.evaluate import flush

    flush(tr, "write without gradients")


def _bind(tr: Trace, target: Tensor, storage: Storage, state: State) -> None:
    """The tensor and its storage after the assignment edge that leads to `state`."""
    if storage.slot != state.info.root_after:  # else an interrupt came in the middle, and this is the second time
        storage.slot, storage.version = state.info.root_after, storage.version + (not _uncounted(target))
    target._gen = tr.gen
    target._slot = state.slot
    assert state.meta is not None
    target._meta = state.meta
    if state.info.keeps_history:
        boundary = tr.boundaries[state.slot] = Boundary(target, target._history)
        boundary.version = storage.version
    else:
        target._history = None


@untraced
def _slow(tr: Trace, key: Any, target: Tensor, source: Tensor, root_slot: int, face: int, name: str, fresh: bool, viewed: bool) -> State:
    """Make the edge of an assignment. `face`: the slot that stands for the storage's old content in gradients. `viewed`: the target is a view, which is
    known as an alias of the content even where it is all of it: gradients tell the two apart (arrival.py)."""
    counters.slow_path_entries += 1
    prim = fragments.primitives
    m, sm = tr.layout(target._slot, target._meta), tr.layout(source._slot, source._meta)
    bits, m = m.bits, m.with_bits(0)  # conjugates and negatives are written as such: what follows is of memory
    _refuse_source(m, sm, name)
    detached = target._detached != target._storage.family  # type: ignore[union-attr]
    fragment = Fragment(tr, tr.grad_enabled)
    fragment.device = m.device
    root = tr.value(root_slot)
    view = tr.value(target._slot)
    keeps = m.requires_grad and not tr.grad_enabled
    result: dict[str, Any] = {}
    replaced = -1

    def body(t: Any, s: Any, base: Any) -> None:
        nonlocal replaced
        shape, have = tuple(t._meta.shape), tuple(s._meta.shape)
        if have != shape:
            assigned = _assigned_shape(have, len(shape), name)
            s = prim.expand(s if assigned == have else prim.reshape(s, shape=assigned), shape=shape)
        value = prim.cast(s, dtype=m.dtype) if s._meta.dtype is not m.dtype else s
        if bits or value._meta.bits:
            value = fragment.resolved(fragment.placeholder(value._slot, value._meta.with_bits(bits ^ value._meta.bits)))
        whole = m.numel == root.numel and m.offset == 0 and not view.dynamic and root.dtype is m.dtype and is_dense(m.shape, m.strides)
        if whole:
            is_new = fresh or value is not s
            v = fragment.value(value._slot)
            is_new = is_new and v.device is m.device
            if base._meta.requires_grad and tr.grad_enabled and not detached:
                replaced = face
            if m.requires_grad and not value._meta.requires_grad and tr.grad_enabled:
                is_new = False  # the flag that it keeps needs a slot of its own
            if not is_new or v.base is not None or not same_layout(m.shape, v.strides, m.strides):
                value = prim.copy(value, strides=_normal_strides(m.shape, dense_strides(m.shape, m.strides)))
            result["root"], result["target"] = value._slot, value
            if viewed or tuple(fragment.value(value._slot).strides) != m.strides:
                result["target"] = prim.as_strided(value, shape=tuple(m.shape), strides=m.strides, offset=m.offset)
        else:
            if base._meta.dtype is not m.dtype:  # that of what stands for the memory in gradients, whatever view of it was known first
                base = prim.copy(prim.flat_in(base, m.dtype), strides=(1,))
            written = prim.scatter_view(base, value, t)
            result["root"] = written._slot
            offsets = [fragment.at(slot) for slot, _ in view.dynamic]
            result["target"] = prim.as_strided_dynamic(
                written, offsets, {"shape": tuple(m.shape), "strides": m.strides, "offset": m.offset},
                tuple([mult for _, mult in view.dynamic]),
            )  # fmt: skip
        if keeps or detached:
            result["target"] = prim.detach(result["target"])

    base = root if face == root_slot else tr.value(face)
    base_meta = meta(base.shape, base.strides, base.dtype, 0, tr.needs(face), False, device=base.device)
    placeholders = [
        fragment.placeholder(target._slot, m),
        fragment.placeholder(source._slot, sm),
        fragment.placeholder(face, base_meta),
    ]
    run_in(fragment, body, placeholders)
    new = result["target"]
    state = State(tr.state, key)
    state.nodes = tuple(fragment.nodes)
    state.values = fragment.values
    state.value_count = state.first_value + len(fragment.values)
    if keeps:
        fragment.requires.add(new._slot)
    state.requires = frozenset(fragment.requires)
    state.slot = new._slot
    if keeps:
        state.meta = m.with_bits(bits)
    else:
        # as in PyTorch, what has required gradients goes on doing so, also where a constant has been written over it
        needs = new._meta.requires_grad or (m.requires_grad and tr.grad_enabled and not detached)
        if needs and not new._meta.requires_grad:
            state.requires |= {new._slot, result["root"]}
        state.meta = m.variant(requires_grad=needs, leaf=not needs).with_bits(bits)
    operation: State | None = tr.state
    while fresh and operation is not None and operation.edge is not None and operation.edge[0] in (IN, ALIAS):
        operation = operation.parent
    own = operation.first_value if fresh and operation is not None else state.first_value
    state.info = Assignment(root_slot, result["root"], keeps, own, target._slot, replaced)
    state.external = tr.state.external
    state.place = here()
    state.depth += 1
    tr.publish(state, key)
    return state


def _normal_strides(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a dense layout with those of size-1 dimensions made regular."""
    order = sorted(range(len(shape)), key=lambda d: (strides[d], shape[d] != 1, -d))
    out = [0] * len(shape)
    step = 1
    for d in order:
        out[d] = step
        step *= max(shape[d], 1)
    return tuple(out)


def _refuse_source(m: Meta, sm: Meta, name: str) -> None:
    """RuntimeError if a source (`sm`) cannot be written to a target (`m`): no value, no cast, or a shape that does not expand to the target's."""
    if sm.device is META and m.device is not META:
        raise no_data()
    if not can_cast(sm.dtype, m.dtype) and name not in ("copy_", "fill_", "__setitem__"):
        raise RuntimeError(
            f"{name}: result type {sm.dtype.name} can't be cast to the desired output type {m.dtype.name}; "
            "use the out-of-place form, or convert the target with .to(...) first"
        )
    shape = tuple(m.shape)
    have = _assigned_shape(tuple(sm.shape), len(shape), name)
    lead = len(shape) - len(have)
    if lead < 0 or any(a != b and a != 1 for a, b in zip(have, shape[lead:], strict=True)):
        if name.endswith("_") and not name.startswith("_") and name not in ("copy_",):
            raise RuntimeError(
                f"{name}: output with shape {list(shape)} doesn't match the broadcast shape {list(have)}: an in-place "
                "operation cannot change the shape of its first argument"
            )
        raise RuntimeError(
            f"{name}: The expanded size of the tensor {shape} must match the existing size {have}; each dimension of the "
            "source, counted from the last, must equal the target's or be 1"
        )


def _assigned_shape(have: tuple[int, ...], ndim: int, name: str) -> tuple[int, ...]:
    """An assignment leaves out leading sizes of 1 that are too many."""
    while name == "__setitem__" and len(have) > ndim and have[0] == 1:
        have = have[1:]
    return have


def can_cast(source: dtypes.dtype, target: dtypes.dtype) -> bool:
    """Whether an in-place result may be cast: never complex to real, float to integer, or anything but bool to bool."""
    return source.category <= target.category or (source.category == 2 and target.category == 2)


# Functions that write some elements and leave the others alone.
PARTIAL = frozenset(
    "index_put_ index_fill_ index_copy_ index_add_ index_reduce_ masked_fill_ masked_scatter_ scatter_ scatter_add_ scatter_reduce_ put_ fill_diagonal_".split()
)

# Functions whose `out=` must have the result's dtype; elsewhere the result is cast to it, as far as `can_cast` allows. PyTorch has no rule
# for which is which: these are what 2.13 does (the operators of its own test database, called with a wider dtype).
_EXACT = frozenset(
    "cumsum cumprod unbind_copy split_copy "
    "addmm addmv addbmm baddbmm dot vdot bmm mv mm matmul tensordot bitwise_not ceil floor trunc round frac neg sign sgn signbit conj_physical complex "
    "polar cross cummax cummin diff diag diagonal_copy alias_copy expand_copy frexp frexp_parts isin kthvalue linspace logspace arange lu_unpack lu_solve "
    "masked_select max_over min_over quantile nanquantile heaviside softmax log_softmax aminmax as_strided_copy topk mode narrow_copy view_copy "
    "ormqr permute_copy float_power qr slice_scatter triangular_solve nan_to_num isposinf isneginf svd gather index_copy index_select index_add "
    "index_reduce sort msort take scatter scatter_add scatter_reduce randn ones zeros full empty eye normal bernoulli histogram histc bucketize "
    "searchsorted unfold_copy renorm squeeze_copy take_along_dim unsqueeze_copy transpose_copy t_copy tril triu logcumsumexp where nonzero amax amin "
    "argmax argmin norm det linalg.cholesky cholesky_ex vecdot eigh eigvalsh ldl_factor ldl_solve multi_dot matrix_norm slogdet vector_norm lu_factor "
    "lu_factor_ex ldl_factor_ex inv inv_ex solve solve_ex solve_triangular svdvals avg_pool2d avg_pool3d linear hardshrink split_with_sizes_copy".split()
)


# Transforms whose results are real: they are cast to floats only.
_REAL = frozenset(f"fft_{name}{dims}" for name in ("hfft", "irfft") for dims in ("", "2", "n"))
# Constructors, which resize their `out` without a warning, and those of them that leave its shape where it has as many elements.
_QUIET = frozenset("zeros ones full eye arange linspace logspace range randperm".split())
_COUNTED = frozenset("arange linspace logspace range".split())


def write_over(target: Tensor, source: Tensor, name: str) -> None:
    """The `out=` rule: resize `target` to the result's shape if it differs, then overwrite it."""
    for each in (target, source):
        if hasattr(each, "_take_result"):  # a tensor of another kind, which sees to it
            each._take_result(target, source, name)
            return
    if not hasattr(target, "_meta"):
        refuse((target,), f"{name}() (as out=)")
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(target).__name__}")
    if (name in _EXACT or name.rsplit(".", 1)[-1].removeprefix("linalg_") in _EXACT) and source._meta.dtype is not target._meta.dtype:
        raise RuntimeError(f"{name}(): Expected out tensor to have dtype {source._meta.dtype.name}, but got {target._meta.dtype.name} instead")
    if name in _REAL and target._meta.dtype.category != 2:
        raise RuntimeError(f"{name}(): expects a floating point output tensor, but got {target._meta.dtype.name}")
    if name in ("any", "all") and target._meta.dtype not in (dtypes.bool_, dtypes.uint8):
        raise RuntimeError(f"{name} only supports bool tensor for result, got: {target._meta.dtype.name}")
    if not can_cast(source._meta.dtype, target._meta.dtype):
        raise (TypeError if name == "cat" else RuntimeError)(
            f"{name}: result type {source._meta.dtype.name} can't be cast to the desired output type {target._meta.dtype.name}; give an `out` of a wider dtype"
        )
    if source._meta.device is not target._meta.device:
        raise RuntimeError(
            f"{name}(): Attempting to copy from device {source._meta.device} to device {target._meta.device}, but cross-device copies are not allowed! "
            f"The result has shape {tuple(source._meta.shape)}, `out` {tuple(target._meta.shape)}: both must be on one device"
        )
    if type(local.trace) is not Trace:
        local.trace.check_out(target, source, name)
    if local.trace.grad_enabled and (target._meta.requires_grad or source._meta.requires_grad):
        raise RuntimeError(f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the arguments requires grad.")
    if name in _COUNTED and target._meta.numel == source._meta.numel:
        source = source.reshape(tuple(target._meta.shape))
    if tuple(target._meta.shape) != tuple(source._meta.shape):
        check_writable(target, name)
        if target._meta.numel and name == "arange":
            warn_here(
                f"The number of elements in the out tensor of shape {list(target._meta.shape)} is {target._meta.numel} which does not match the "
                f"computed number of elements {source._meta.numel}. Note that this may occur as a result of rounding error. The out tensor will be "
                f"resized to a tensor of shape ({source._meta.numel},).",
            )  # fmt: skip
        elif target._meta.numel and name not in _QUIET:
            warn_here(
                f"{name}(): An output with one or more elements was resized since it had shape {list(target._meta.shape)}, which does not match "
                f"the required output shape {list(source._meta.shape)}. This behavior is deprecated, and in a future PyTorch release outputs will "
                "not be resized unless they have zero elements. You can explicitly reuse an out tensor t by resizing it, inplace, to zero elements "
                "with t.resize_(0).",
            )  # fmt: skip
        shape, strides, version = tuple(source._meta.shape), source._meta.strides, target._version
        resize_(target, shape)  # in its storage, where that has the room
        if not same_layout(shape, target._meta.strides, strides) and is_dense(shape, strides):
            become_view(target, lambda x: x.as_strided(shape, strides, x.storage_offset()), name)
        count_as(storage_of(target), version)  # the write alone counts
    assign(target, source, name, fresh=False)


def into(out: Any, result: Any, name: str, keeps: bool = False) -> Any:
    """What a function with `out=` returns: its result where `out` is None, else `out` with it; of several results a tuple of as many.

    `keeps`: `out` is an operand, too, and so keeps its shape.
    """
    if out is None:
        return result
    if keeps and tuple(out._meta.shape) != tuple(result._meta.shape):
        raise RuntimeError(f"{name}: output with shape {list(out._meta.shape)} doesn't match the broadcast shape {list(result._meta.shape)}")
    if isinstance(result, tuple):
        if not isinstance(out, (tuple, list)) or len(out) != len(result):
            raise TypeError(f"{name}(): argument 'out' must be a tuple of {len(result)} tensors, not {type(out).__name__}")
        memory = [t._storage for t in out if hasattr(t, "_meta")]
        sources = [s.clone() if s._storage is not None and s._storage in memory else s for s in result]  # an input that is a result, too
        for target, source in zip(out, sources, strict=True):
            write_over(target, source, name)
        return type(result)(*out) if hasattr(result, "_fields") else tuple(out)
    if hasattr(out, "_become"):
        return into_sparse(out, result)
    write_over(out, result, name)
    return out


__all__ = ["ASSIGN", "Assignment", "assign", "assign_all", "can_cast", "check_writable", "into", "into_sparse", "write_over"]
