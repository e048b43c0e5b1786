"""Where views of a leaf come from: a node that a write without gradients leads them to anew, past the hooks of what they were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flambeau.autograd.segment import NoTape, Segment
from flambeau.trace.objects import is_view
from flambeau.trace.recorder import Boundary

if TYPE_CHECKING:
    from flambeau.tensor import Tensor


class Leaf:
    """The node of a leaf's whole content: what the engine asks of a custom function's context (autograd/function.py)."""

    kind = "ViewBackward0"
    input_slots, output_slots = (0,), (1,)

    def run_backward(self, grads: Sequence[Any], retain: bool, create: bool, owner: Any = None) -> list[Any]:
        """The gradient as it is."""
        return list(grads)


def expect_writes(t: Tensor) -> None:
    """A view is watched (by a hook, or its gradient is kept): if it is one of a leaf, writes to the memory must know where views come from."""
    from flambeau.trace.mutation import leaf_of

    storage = t._storage
    if storage is None or t._meta.leaf or not is_view(t):
        return
    ours = t._detached == storage.family
    if (storage.source() is not None) if ours else (t._detached in (storage.others or ())):
        return
    leaf = leaf_of(t, storage)
    if leaf is None:
        return
    m = leaf._meta
    segment = Segment(NoTape(1, m))
    boundary = segment.boundaries[0] = Boundary(leaf, None)
    boundary.version = storage.version
    segment.custom = {1: Leaf()}
    if ours:
        storage.history = (segment, 1)
    else:
        storage.others = {**(storage.others or {}), t._detached: ((segment, 1), None, -1)}
        storage.cut = max(storage.cut, 0)  # its tensors are looked at before they are used


def forget_leaf(leaf: Tensor) -> None:
    """Before a leaf is one no more, or another one: its views lead nowhere."""
    storage = leaf._storage
    source = None if storage is None else storage.source()
    if source is not None and any(type(node) is Leaf for node in source[0].custom.values()):
        storage.history, storage.cut = None, -1  # type: ignore[union-attr]
