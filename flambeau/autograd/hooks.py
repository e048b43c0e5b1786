"""Hooks on tensors: called with the gradient, or after its accumulation."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flambeau.trace.arrival import arrival, has_own_alias, leave_hooks
from flambeau.trace.recorder import local
from flambeau.trace.saved_hooks import saved as saved

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

_ids = itertools.count()
unpacked: list[tuple[Any, tuple[Callable[[Any], Any], Callable[[Any], Any]]]] = []  # (segment, hooks) that have not been called for it yet


class Pass:
    """What hooks know of one backward pass: `notes` of theirs, which end with it however it ends, and `ends`, called when it has gone through."""

    __slots__ = ("ends", "notes")

    def __init__(self) -> None:
        self.ends: list[Callable[[], None]] = []
        self.notes: dict[Any, Any] = {}


class _Current(threading.local):
    under_way: Pass | None = None  # the backward pass of this thread, the innermost one


current = _Current()


class RemovableHandle:
    """Removes its hook from a dictionary by number, and its marks from others; usable as a context manager. See torch.utils.hooks.RemovableHandle."""

    def __init__(self, hooks_dict: dict[int, Any], *, extra_dict: Any = None) -> None:
        self.hooks, self.extra = hooks_dict, (extra_dict,) if isinstance(extra_dict, dict) else tuple(extra_dict or ())
        self.id = next(_ids)

    def hooks_dict_ref(self) -> dict[int, Any]:
        """The dictionary."""
        return self.hooks

    def remove(self) -> None:
        """Take the hook away; a second call does nothing."""
        for entries in (self.hooks, *self.extra):
            entries.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *_: Any) -> None:
        self.remove()


def packed_by(pack: Callable[[Any], Any], t: Tensor) -> Any:
    """What a pack hook makes of a tensor. RuntimeError if it writes to it: the tensor is the program's, too."""
    before = t._version
    made = pack(t)
    if t._version != before:
        raise RuntimeError(
            "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook can not be modified by in-place operations as "
            "this can lead to unexpected side-effects: clone() it first."
        )
    return made


def pack_saved() -> None:
    """Call the pack hooks (autograd.graph.saved_tensors_hooks) for what ended traces have kept."""
    while unpacked:
        segment, (pack, unpack) = unpacked.pop(0)
        segment.pack(pack, unpack)


def keep(t: Tensor, gradient: Tensor) -> None:
    """Add to the gradient that a tensor which is no leaf retains. It is the tensor's own: hooks and `autograd.grad` hand out the other one."""
    t._grad = gradient.clone() if t._grad is None else t._grad + gradient


def leave_to_what_it_was(t: Tensor) -> None:
    """Before an in-place view: hooks of `t`, and the gradient that it retains, are of what it has been until now, as in PyTorch."""
    if t._retains_grad:
        me = weakref.ref(t)

        def keep_former(gradient: Tensor) -> None:
            if (now := me()) is not None:
                keep(now, gradient)

        t._retains_grad = False
        t._hooks = t._hooks if t._hooks is not None else {}
        t._hooks[next(_ids)] = keep_former
    if t._hooks:
        tr = local.trace
        owner, slot = arrival(tr, t)
        owner.hooked[slot] = t
        leave_hooks(t, owner.hooked)


def _watch(t: Tensor) -> None:
    """Make the backward pass stop at this non-leaf tensor."""
    from flambeau.autograd.leaf_views import expect_writes

    expect_writes(t)
    owner, slot = arrival(local.trace, t)
    owner.hooked[slot] = t
    if owner is local.trace and t._hooks and has_own_alias(t):
        owner.mark_hooked(slot)


def register_hook(t: Tensor, hook: Callable[[Tensor], Tensor | None], of_node: bool = False) -> RemovableHandle:
    """See Tensor.register_hook. Those `of_node` are called after the tensor's own, whenever these were registered."""
    if not t.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    if t._hooks is None:
        t._hooks = {}
    handle = RemovableHandle(t._hooks)
    t._hooks[handle.id] = OfNode(hook) if of_node else hook
    if not t.is_leaf:
        _watch(t)
    return handle


class OfNode:
    """A hook that was registered with the node behind a tensor."""

    def __init__(self, hook: Callable[[Tensor], Tensor | None]) -> None:
        self.hook, self.__name__ = hook, getattr(hook, "__name__", "<unknown>")

    def __call__(self, gradient: Tensor) -> Tensor | None:
        return self.hook(gradient)


def register_post_accumulate_grad_hook(t: Tensor, hook: Callable[[Tensor], None]) -> RemovableHandle:
    """See Tensor.register_post_accumulate_grad_hook."""
    if not t.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    if not t.is_leaf:
        raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    if t._post_hooks is None:
        t._post_hooks = {}
    handle = RemovableHandle(t._post_hooks)
    t._post_hooks[handle.id] = hook
    return handle


def retain_grad(t: Tensor) -> None:
    """See Tensor.retain_grad."""
    if not t.requires_grad:
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    if t.is_leaf:
        return
    t._retains_grad = True
    _watch(t)
