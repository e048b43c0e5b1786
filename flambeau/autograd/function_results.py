"""Results of custom functions that are more than new tensors: inputs that forward has written to in place, and results that it saves for its backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import ref

from flambeau.trace.mutation import refuse_leaf
from flambeau.trace.objects import from_storage, is_view
from flambeau.trace.once import warn_here
from flambeau.trace.recorder import Trace, local, storage_of

if TYPE_CHECKING:
    from flambeau.tensor import Tensor


class Result:
    """A result in the place of a saved tensor. Its context does not keep it alive, as it leads to that context: `value` is over its memory."""

    __slots__ = ("result", "slot", "value")

    def __init__(self, result: Tensor, slot: int) -> None:
        self.result, self.slot = ref(result), slot
        self.value = result.detach()

    def tensor(self, context: Any) -> Tensor:
        """The result, or where that is gone a tensor like it, whose history leads through the function."""
        found = self.result()
        if found is not None:
            return found
        owner = context._owner
        if owner is None or not local.trace.grad_enabled:
            return self.value
        if type(owner) is Trace:
            from flambeau.autograd.node import owner_of

            return owner_of(owner).tensor(self.slot) or self.value
        value = self.value
        made = from_storage(storage_of(value), value._meta.variant(requires_grad=True, leaf=False), offset=value._offset)
        made._history = (owner, self.slot)
        return made


def saved_results(saved: Sequence[Any], outputs: Sequence[Any], results: Sequence[Any], slots: Sequence[int | None]) -> tuple[Any, ...]:
    """What was saved, with those that are results by way of their Result."""
    places = {id(t): i for i, (t, slot) in enumerate(zip(outputs, slots, strict=True)) if slot is not None}
    return tuple([Result(results[places[id(t)]], slots[places[id(t)]]) if id(t) in places else t for t in saved])  # type: ignore[arg-type]


def check_written(name: str, written: Sequence[Any], args: Sequence[Any], outputs: Sequence[Any], track: bool) -> None:
    """PyTorch's rules for what a function marks as written in place."""
    for t in written:
        if not any(t is o for o in outputs):
            raise RuntimeError(
                f"{name}: Some elements marked as dirty during the forward method were not returned as output. The inputs that are modified inplace must "
                "all be outputs of the Function."
            )
        if not any(t is a for a in args):
            warn_here(
                f"{name}: Only input Tensors should be given to ctx.mark_dirty(). If a Tensor is not an input, there is no need to pass it to mark_dirty().",
            )
        elif track:
            refuse_leaf(t, name)
            if len(outputs) > 1 and is_view(t):
                raise RuntimeError(
                    f"{name}: If your Function modifies inplace an input that is a view of another Tensor, your Function cannot return more than one "
                    "Tensor. This is not supported by the current autograd engine. You should either make sure the input is not a view (using .clone() "
                    "for example) or make your Function only return one Tensor (potentially splitting it into two Functions: one doing the inplace that "
                    "returns a single Tensor and a second one that does the other operations)."
                )


def write_again(context: Any, written: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Let inputs that forward has written to come from the function: each is written once more, with what it holds (with a history that leads through the
    function), as an operation under autograd. So views of it and what it is a view of know, too."""
    saved = context._saved if context._unpack is None else ()
    fresh = [i for i, (kept, version) in enumerate(zip(saved, context._versions, strict=False)) if kept is not None and kept._version == version]
    for t, source in written:
        t.copy_(source)
    versions = list(context._versions)
    for i in fresh:
        versions[i] = saved[i]._version
    context._versions = tuple(versions)
