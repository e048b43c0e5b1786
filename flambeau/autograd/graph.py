"""torch.autograd.graph: hooks on what is kept for the backward pass and on several gradients, and handles on histories."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ContextDecorator, nullcontext
from functools import partial
from typing import Any, Literal, NamedTuple

from flambeau.autograd import hooks as _hooks
from flambeau.autograd.hooks import RemovableHandle
from flambeau.autograd.node import Node, accumulation, edge_of
from flambeau.tensor import Tensor
from flambeau.trace.blocks import Block
from flambeau.trace.recorder import local, storage_of
from flambeau.trace.saved_hooks import mutable as _mutable

__all__ = [
    "GradientEdge", "Node", "allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks", "get_gradient_edge", "increment_version",
    "region_activation_memory_budget", "register_multi_grad_hook", "save_on_cpu", "saved_tensors_hooks", "set_override_stale_capture_stream",
    "set_warn_on_accumulate_grad_stream_mismatch",
]  # fmt: skip


class GradientEdge(NamedTuple):
    """A place in a history to which gradients can be asked, or from which they start, in the place of a tensor. `ownership_token` keeps the history alive."""

    node: Node
    output_nr: int
    ownership_token: Any = None


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The place of a tensor in its history; RuntimeError where it requires no gradient."""
    if not tensor.requires_grad:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    node, number = (accumulation(tensor), 0) if tensor.is_leaf else edge_of(tensor)
    return GradientEdge(node, number, tensor)  # type: ignore[arg-type]


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Count an in-place write that the engine did not see."""
    for t in (tensor,) if isinstance(tensor, Tensor) else tensor:
        storage_of(t).version += 1


# -- what is kept for the backward pass -------------------------------------------------------------------------------------
class saved_tensors_hooks(Block):
    """A block in which what is kept for gradients is given to `pack_hook(tensor)`; what that returns is kept in its place, and
    `unpack_hook` makes a tensor of it again when the backward pass needs it.

    What is kept is known when a trace ends, at the latest at the end of the block: values that are cheap to compute again are not
    among it. The hooks must not change the tensor, and what is unpacked must have its shape and dtype.
    """

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook

    gives_itself = False

    def _now(self) -> Any:
        """The entry of this block: an object of its own, which is known again."""
        return (self.pack_hook, self.unpack_hook)

    def _begin(self) -> None:
        if _disabled.message is not None:
            raise RuntimeError(_disabled.message)
        self._cut()
        _hooks.saved.append(self._before[-1])

    def _end(self, before: Any) -> None:
        if not any(entry is before for entry in _hooks.saved):  # a hook has entered the block once more, which ended with its backward pass
            mine = [entry for entry in _hooks.saved if any(entry is own for own in self._before)]
            before = mine[-1] if mine else before
        try:
            self._cut()
            _hooks.saved[:] = [entry for entry in _hooks.saved if entry is not before]
        except BaseException:
            _hooks.saved[:] = [entry for entry in _hooks.saved if entry is not before]
            raise

    def __exit__(self, *details: Any) -> None:
        if self._before:
            super().__exit__(*details)
            return
        # A hook of a backward pass has left the block; what it did ended with that pass.
        self._cut()
        entries = [i for i, entry in enumerate(_hooks.saved) if entry == (self.pack_hook, self.unpack_hook)]
        if entries:
            del _hooks.saved[entries[-1]]

    @staticmethod
    def _cut() -> None:
        """End the trace: what it keeps belongs to one side of the block's edge."""
        from flambeau.trace.evaluate import flush

        flush(local.main, "saved-tensor hooks")
        _hooks.pack_saved()


class save_on_cpu(saved_tensors_hooks):
    """A block in which what is kept for gradients is kept on the CPU, as it is anyway."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        super().__init__(lambda t: t, lambda t: t)


class _Disabled(threading.local):
    message: str | None = None


_disabled = _Disabled()


class disable_saved_tensors_hooks(Block, ContextDecorator):
    """A block (or, as a decorator, a function) in which saved_tensors_hooks raises a RuntimeError with this message."""

    gives_itself = False

    def __init__(self, error_message: str) -> None:
        super().__init__()
        self.error_message = error_message

    def _now(self) -> Any:
        return _disabled.message

    def _begin(self) -> None:
        if _hooks.saved:
            raise RuntimeError(self.error_message)
        _disabled.message = self.error_message

    def _end(self, before: Any) -> None:
        _disabled.message = before


class allow_mutation_on_saved_tensors(saved_tensors_hooks):
    """A block in which tensors may be written over in place that gradients of what was computed in it need. The backward pass must be in the block, too.

    Within a trace the former values are there anyway. What an ended trace keeps is copied.
    """

    gives_itself = True

    def __init__(self) -> None:
        self._on = False
        super().__init__(self._copy, self._copied)

    @staticmethod
    def _copy(t: Tensor) -> Tensor:
        return t.clone()

    def _copied(self, copy: Tensor) -> Tensor:
        if not self._on:
            raise AssertionError("Trying to backward outside of the 'allow_mutation_on_saved_tensors' context in which the graph was originally recorded.")
        return copy

    def _begin(self) -> None:
        if _mutable[0]:
            raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
        super()._begin()
        self._on = _mutable[0] = True

    def _end(self, before: Any) -> None:
        try:
            super()._end(before)
        finally:
            self._on = _mutable[0] = False


# -- several gradients ------------------------------------------------------------------------------------------------------
def register_multi_grad_hook(
    tensors: Sequence[Tensor], fn: Callable[[Sequence[Tensor | None]], None] | Callable[[Tensor], None], *, mode: Literal["all", "any"] = "all"
) -> RemovableHandle:
    """Call `fn` once in each backward pass that reaches one of the tensors.

    mode="all": with all gradients, None for tensors that the pass does not reach, when all are there or the pass ends.
    mode="any": with the first gradient. The handle's `remove()` takes the hook away.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of 'all', 'any' but got {mode}")
    key = object()

    def finish(note: _Gathered) -> None:
        if note.called:
            return
        note.called = True
        fn(list(note.found) if mode == "all" else next(g for g in note.found if g is not None))  # type: ignore[arg-type, misc]

    def one(index: int) -> Callable[[Tensor], None]:
        def hook(gradient: Tensor) -> None:
            task = _hooks.current.under_way
            assert task is not None  # hooks are called by passes
            note = task.notes.get(key)
            if note is None:
                note = task.notes[key] = _Gathered([None] * len(tensors))
                task.ends.append(partial(finish, note))
            note.found[index] = gradient
            note.count += 1
            if mode == "any" or note.count == len(tensors):
                finish(note)

        return hook

    handles = [t.register_hook(one(i)) for i, t in enumerate(tensors)]
    return _MultiHandle(handles)


class _Gathered:
    """The gradients that one pass has brought to the tensors of a hook on several."""

    __slots__ = ("called", "count", "found")

    def __init__(self, found: list[Tensor | None]) -> None:
        self.found, self.count, self.called = found, 0, False


class _MultiHandle(RemovableHandle):
    """Several handles as one."""

    def __init__(self, handles: list[Any]) -> None:
        super().__init__({})
        self.handles = handles

    def remove(self) -> None:
        """Take the hooks away."""
        for handle in self.handles:
            handle.remove()


# -- settings of devices ----------------------------------------------------------------------------------------------------
def region_activation_memory_budget(budget: float) -> AbstractContextManager[None]:
    """Accepted: what is kept for gradients follows from what is cheap to compute again."""
    if not 0 <= budget <= 1:
        raise ValueError(f"region_activation_memory_budget: the budget is a share between 0 and 1, got {budget}")
    return nullcontext()


def set_warn_on_accumulate_grad_stream_mismatch(enabled: bool) -> None:
    """Accepted: there are no streams."""


def set_override_stale_capture_stream(enabled: bool) -> None:
    """Accepted: there are no streams."""


from flambeau.ops.guard import guard as _guard  # noqa: E402 - all public names are there now

_guard("autograd.graph", globals())

from flambeau.names import answering as _answering  # noqa: E402

__getattr__ = _answering("torch.autograd.graph", globals())
