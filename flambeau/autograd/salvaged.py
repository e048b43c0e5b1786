"""The histories of what a failed run has left: those of values that could be computed go on; others end in an error, not in silence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from weakref import ref

from flambeau.autograd.segment import History, NoTape, Segment, Tape, save
from flambeau.trace.meta import meta
from flambeau.trace.state import State
from flambeau.trace.storage import Storage

if TYPE_CHECKING:
    from flambeau.compiler.graph import Graph
    from flambeau.runtime.buffers import Buffer
    from flambeau.tensor import Tensor
    from flambeau.trace.salvage import Salvage


class Lost:
    """The node of a value whose history is lost: what the engine asks of a custom function's context (autograd/function.py)."""

    kind: Final = "LostBackward0"
    input_slots: Final[list[int | None]] = []
    output_slots: Final = [1]

    def run_backward(self, grads: Sequence[Any], retain: bool, create: bool, owner: Any = None) -> list[Any]:
        """RuntimeError."""
        raise RuntimeError("backward: a tensor has no history any more: a computation of the run that made it failed earlier")


def _lost(like: Any) -> tuple[Segment, int]:
    """A history that says that it is lost. `like`: has shape, strides, dtype and offset."""
    segment = Segment(NoTape(1, meta(tuple(like.shape), like.strides, like.dtype, like.offset)))
    segment.custom = {1: Lost()}
    return segment, 1


def keep_salvaged(
    made: Salvage, state: State, tensors: Sequence[Tensor], inputs: Sequence[Storage], contents: Mapping[int, Buffer], before: Mapping[int, Buffer],
    reached: Mapping[int, int | None],
) -> None:  # fmt: skip
    """Hang what a failed run has left on a segment. `contents`: what has been computed, by root; `before`: copies of inputs as they were, by root, where
    gradients need them; `reached`: of each input that the trace writes to (its index), the root that it holds now, None: what it held before."""
    if made.history is not None:
        _keep(made, made.history, state, tensors, inputs, contents, before, reached)
    for t in tensors:
        storage, m = t._storage, t._meta
        nothing = m.requires_grad and not m.leaf and t._history is None
        if nothing and storage is not None and storage.gen < 0 and storage.buffer is not None and storage.source() is None and not storage.others:
            t._history = _lost(m)


def _keep(
    made: Salvage, history: History, state: State, tensors: Sequence[Tensor], inputs: Sequence[Storage], contents: Mapping[int, Buffer],
    before: Mapping[int, Buffer], reached: Mapping[int, int | None],
) -> None:  # fmt: skip
    values = made.graph.values
    if any(index >= 0 and slot in made.graph.inputs and slot not in before for slot, index in history.saved):
        _lose(made, history, tensors, inputs)
        return
    tape = Tape(state)
    tape.preserved = history.preserved
    segment = Segment(tape)
    segment.state = state
    segment.boundaries = {slot: b for slot, b in made.boundaries.items() if slot in history.boundaries}
    segment.custom, segment.hooked = made.custom or {}, made.hooked or {}
    segment.params = [made.params[tape.parameters[slot]] for slot in tape.entered]
    living = {_root(values, tensors[position]._slot): tensors[position]._storage for position, _ in history.results}
    living |= {root: inputs[i] for i, root in reached.items() if root is not None}

    def holder(slot: int, index: int) -> tuple[Storage, bool] | None:
        """What holds a saved value, and whether others can write to it; None: it could not be computed."""
        if index < 0 and slot == made.graph.inputs[-1 - index]:
            return inputs[-1 - index], True
        storage = living.get(slot)
        if storage is not None and storage.buffer is not None and (storage.buffer is contents.get(slot) or slot in reached.values()):
            return storage, True
        buffer = before.get(slot, contents.get(slot))
        return None if buffer is None else (Storage(buffer), False)

    save(history, segment, holder, made.graph.inputs)
    for position, slot in history.tensors:
        t = tensors[position]
        if _is_there(t, values, slot, contents, reached, made.graph):
            t._history = (segment, slot)
        elif t._storage is not None and t._storage.buffer is not None:
            t._history = _lost(t._meta)
    for is_input, index, slot in history.storages:
        owner = inputs[index] if is_input else tensors[index]._storage
        if owner is None or owner.buffer is None:
            continue
        root = reached.get(index) if is_input else slot
        if root == slot or (root is not None and root in tape.requires):
            owner.history = (segment, root)
        elif is_input:
            owner.history = _lost(values[slot])
    for position, slot in history.results:
        owner = tensors[position]._storage
        if owner is not None and owner.buffer is not None:
            owner.result = (ref(segment), slot)


def _lose(made: Salvage, history: History, tensors: Sequence[Tensor], inputs: Sequence[Storage]) -> None:
    """Let each history of a failed run say that it is lost."""
    for position, _ in history.tensors:
        tensors[position]._history = _lost(tensors[position]._meta)
    for is_input, index, slot in history.storages:
        owner = inputs[index] if is_input else tensors[index]._storage
        if owner is not None:
            owner.history = _lost(made.graph.values[slot])


def _root(values: Sequence[Any], slot: int) -> int:
    base = values[slot].base
    return slot if base is None else base


def _is_there(t: Tensor, values: Sequence[Any], slot: int, contents: Mapping[int, Buffer], reached: Mapping[int, int | None], graph: Graph) -> bool:
    """Whether the memory of a tensor holds what its slot says."""
    if t._storage is None or t._storage.buffer is None:
        return False
    root = _root(values, slot)
    updated = {last: i for i, last in graph.updates}
    if root in updated:
        return reached.get(updated[root]) == root
    return root in contents or root in graph.inputs
