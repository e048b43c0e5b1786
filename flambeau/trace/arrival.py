"""Where the gradient of a tensor comes together: the trace or the segment of an earlier one, and the slot there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.compiler.graph import may_repeat
from flambeau.trace.look_up import state_behind
from flambeau.trace.objects import is_view, twin
from flambeau.trace.recorder import Trace

if TYPE_CHECKING:
    from flambeau.tensor import Tensor


def has_own_alias(t: Tensor) -> bool:
    """Whether `t` is one way to read its memory, not the memory's content: a view, or what an in-place view has made of it, until the next write."""
    return is_view(t) or (t._became is not None and t._storage is not None and t._became == t._storage.cut)


def arrival(tr: Trace, t: Tensor) -> tuple[Any, int]:
    """The owner (the trace, or a segment) and the slot in it at which all of the gradient of `t` arrives.

    After a write with gradients every tensor on the memory is read again as an alias of the new content. The tensor that the memory was made for is
    that content itself, as in PyTorch: what its views and later writes hand on is part of its gradient. A view has its own alias alone.
    """
    m = t._fresh_meta()
    storage = t._storage
    if storage is not None and not (m.leaf or has_own_alias(t)):
        ours = t._detached == storage.family
        if not ours and storage.others is not None and (former := storage.others.get(t._detached)) is not None and former[2] >= 0 and former[0] is not None:
            return former[0]  # type: ignore[no-any-return]
        if ours and storage.cut >= 0:
            source = storage.source()
            if source is not None:
                return source  # type: ignore[no-any-return]
            if storage.gen == tr.gen and tr.needs(slot := tr.custom_face(storage.slot)):
                return tr, slot
    owner: Any
    owner, slot = tr, -1 if t._history is not None else tr.slot_of(t)
    if t._history is not None:  # maybe since then: another thread had it pending
        owner, slot = t._history
    if storage is not None and not (m.leaf or has_own_alias(t)):
        root = value_at(owner, slot).base  # a result that its operation made as a view of a value that nobody else sees
        if root is not None and slot not in owner.custom and (owner.needs(root) if owner is tr else root in owner.tape.requires):
            return owner, root
    return owner, slot


def loses_gradients(tr: Trace, t: Tensor) -> bool:
    """Whether `t` comes from an `as_strided` of a view: what lies outside of that one gets no gradient, as in PyTorch, until a write."""
    owner: Any = tr
    if t._gen == tr.gen:
        slot = t._slot
    elif t._history is not None:
        owner, slot = t._history
    else:
        return False
    while True:
        boundary = owner.boundaries.get(slot)
        if boundary is not None:
            if not boundary.settled or boundary.history is None:
                return False
            owner, slot = boundary.history
            continue
        node = _producer(owner, slot)
        base = value_at(owner, slot).base
        if node is None or base is None:
            return False
        slot = node.inputs[0]
        v = value_at(owner, slot)
        if node.op == "as_strided" and v.base is not None and (v.numel != value_at(owner, base).numel or may_repeat(v.shape, v.strides)):
            return True


def _producer(owner: Any, slot: int) -> Any:
    """The node that has made a slot of a trace or of a segment; None of inputs."""
    if type(owner) is not Trace:
        return owner.tape.producer.get(slot)
    state = state_behind(owner.state, slot)
    return None if state is None else next((node for node in owner.nodes((state,)) if slot in node.outputs), None)


def leave_hooks(t: Tensor, *places: dict[int, Tensor]) -> None:
    """The hooks of `t` stay with what it is now, by a twin in these dictionaries of hooked tensors; that it keeps its gradient goes with `t`."""
    before = twin(t)
    before._retains_grad = False
    for hooked in places:
        for slot in [slot for slot, other in hooked.items() if other is t]:
            if t._hooks:
                hooked[slot] = before
            else:
                del hooked[slot]
    t._hooks = None


def value_at(owner: Any, slot: int) -> Any:
    """The value of a slot of a trace or of a segment."""
    return owner.value(slot) if type(owner) is Trace else owner.tape.values[slot]
