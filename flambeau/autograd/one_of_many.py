"""Views that must not be written to with gradients: PyTorch refuses those of functions that give several, and those that a custom function has made.

Where a view comes from is looked up in the history when such a write is new: nothing is kept for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flambeau.autograd.node import _Owner, owner_of
from flambeau.autograd.node_names import name_of_call
from flambeau.trace.objects import is_view
from flambeau.trace.recorder import local

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

# Operations that give several views of one tensor. `tensor_split` and its kin are as many slices, which may be written to, in PyTorch too.
MANY: Final = frozenset(("split", "unbind", "unbind_one"))


def refuse_one_of_many(target: Tensor, name: str) -> None:
    """RuntimeError if a tensor that is about to be written to with gradients is one of several views of one call, a view of one, or a custom function's."""
    if not is_view(target):
        return
    tr = local.main
    history = target._history
    if history is None or (target._gen == tr.gen and target._slot not in tr.boundaries):
        if target._gen != tr.gen:
            return
        found = _origin(owner_of(tr), target._slot)
    else:
        found = _origin(owner_of(history[0]), history[1])
    if found is None:
        return
    node, number, alone = found
    if alone:
        raise RuntimeError(
            f"{name}: Output {number} of {node} is a view and is being modified inplace. This view was created inside a custom Function (or because an "
            "input was returned as-is) and the autograd logic to handle view+inplace would override the custom backward associated with the custom "
            "Function, leading to incorrect gradients. This behavior is forbidden. You can fix this by cloning the output of the custom Function."
        )
    raise RuntimeError(
        f"{name}: Output {number} of {node} is a view and is being modified inplace. This view is the output of a function that returns multiple views. "
        "Such functions do not allow the output views to be modified inplace. You should replace the inplace operation by an out-of-place one, or take "
        "the part by its index (x[i], narrow), which may be written to."
    )


def _origin(owner: _Owner, slot: int) -> tuple[str, int, bool] | None:
    """Of a slot that is a view: the node of the call that forbids writes to it, which of its results it is (a view of), and whether that is its only one."""
    while True:
        boundary = owner.boundaries.get(slot)
        if boundary is not None:
            if boundary.history is None:
                return None
            owner, slot = owner_of(boundary.history[0]), boundary.history[1]
            continue
        context = owner.custom.get(slot)
        if context is not None:
            made_views = getattr(context, "_views", ())
            if slot not in made_views:
                return None
            return f"{context._function.__name__}Backward", context.output_slots.index(slot), len(context.output_slots) == 1
        call = owner.call(slot)
        if call is not None:
            key, _, number = call
            if key[0].name in MANY:
                return name_of_call(key, slot, owner.values), number, False
            if owner.values[slot].base is None:
                return None
            source = next((a for a, kind in zip(key[1:], key[0].kinds, strict=False) if kind == "tensor" and type(a) is int), None)
        else:
            node = owner.producer.get(slot)
            source = node.inputs[0] if node is not None and node.inputs and node.op != "scatter_view" else None
        if source is None or source == slot:
            return None
        slot = source
