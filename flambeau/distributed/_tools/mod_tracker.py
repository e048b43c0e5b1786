"""torch.distributed._tools.mod_tracker: in which modules a program is, forward and backward."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any

from flambeau.autograd import hooks as _hooks
from flambeau.autograd.graph import register_multi_grad_hook
from flambeau.tensor import Tensor
from flambeau.trace.once import warn_here
from flambeau.utils._pytree import tree_leaves
from flambeau.utils.module_tracker import ModuleTracker

UserHook = Callable[[Any, Any], None]


class ModTracker(ModuleTracker):
    """A block in which `parents` has the names of the modules whose forward or backward is running, and `is_bw` says which of the two.

    In a backward pass a module is under way from the first gradient of its outputs until those of all its inputs are there.
    """

    def __init__(self) -> None:
        super().__init__()
        self._active: dict[str, int] = {}
        self._left: list[Callable[[], None]] = []  # what ends with the next backward pass: modules whose inputs get no gradients
        self._user: dict[str, Any] = dict.fromkeys(("pre_fw_hook", "post_fw_hook", "pre_bw_hook", "post_bw_hook"))

    @property
    def is_bw(self) -> bool:
        """Whether a backward pass is under way."""
        return _hooks.current.under_way is not None

    def get_known_fqn(self, mod: Any) -> str | None:
        """The name of a module that has been met, else None."""
        return self._names.get(mod)

    def register_user_hooks(
        self, pre_fw_hook: UserHook | None = None, post_fw_hook: Any = None, pre_bw_hook: UserHook | None = None, post_bw_hook: UserHook | None = None
    ) -> None:
        """Functions that are called with each module before and after its forward (and what it is given, and gives), and around its backward.

        AssertionError where there is one already: `clear_user_hooks()` first.
        """
        given = {"pre_fw_hook": pre_fw_hook, "post_fw_hook": post_fw_hook, "pre_bw_hook": pre_bw_hook, "post_bw_hook": post_bw_hook}
        for name, hook in given.items():
            if hook is not None and self._user[name] is not None:
                raise AssertionError(
                    f"Only one {name} can be registered at a time Clear the existing hook by calling ``clear_user_hooks`` before registering a new one"
                )
        self._user.update({name: hook for name, hook in given.items() if hook is not None})

    def clear_user_hooks(self) -> None:
        """Forget these functions."""
        self._user = dict.fromkeys(self._user)

    # -- under way, and no longer ---------------------------------------------------------------------------------
    def _enter(self, name: str) -> None:
        if name in self.parents and not self.is_bw:
            warn_here(f"ModTracker: the module {name} is called inside of itself, so where it ends cannot be told")
        self._active[name] = self._active.get(name, 0) + 1 if name in self.parents else 1
        self.parents.add(name)

    def _leave(self, name: str) -> None:
        if name in self.parents:
            self._active[name] -= 1
            if not self._active[name]:
                self.parents.remove(name)

    def _backward_begins(self, module: weakref.ref[Any], name: str) -> Callable[..., None]:
        def begin(gradient: Any) -> None:
            task = _hooks.current.under_way
            assert task is not None  # hooks are called by passes
            if self not in task.notes:
                task.notes[self] = True
                task.ends += [*reversed(self._left), self._all_end]
                self._left = []
            self._enter(name)
            if self._user["pre_bw_hook"] is not None:
                self._user["pre_bw_hook"](module(), gradient)

        return begin

    def _backward_ends(self, module: weakref.ref[Any], name: str) -> Callable[..., None]:
        def end(gradients: Any = ()) -> None:
            if self._user["post_bw_hook"] is not None:
                self._user["post_bw_hook"](module(), gradients)
            self._leave(name)

        return end

    def _all_end(self) -> None:
        self.parents = {"Global"}

    def _begin(self, module: Any, inputs: Any) -> None:
        name = self._name(module)
        self._enter(name)
        if self._user["pre_fw_hook"] is not None:
            self._user["pre_fw_hook"](module, inputs)
        self._watch_inputs(module, name, inputs)

    def _watch_inputs(self, module: Any, name: str, inputs: Any) -> None:
        """See to it that a module's backward ends with the gradients of what it was given."""
        if self.is_bw:
            return
        end = self._backward_ends(weakref.ref(module), name)
        tensors = _with_gradients(inputs)
        if tensors:
            register_multi_grad_hook(tensors, end)
        else:
            self._left.append(end)

    def _end(self, module: Any, inputs: Any, output: Any) -> None:
        name = self._name(module)
        if self._user["post_fw_hook"] is not None:
            self._user["post_fw_hook"](module, inputs, output)
        self._leave(name)
        tensors = _with_gradients(output)
        if tensors and not self.is_bw:
            register_multi_grad_hook(tensors, self._backward_begins(weakref.ref(module), name), mode="any")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._forget_hooks()  # the names stay until the backward pass has ended


def _with_gradients(values: Any) -> list[Tensor]:
    return [t for t in tree_leaves(values) if isinstance(t, Tensor) and t.requires_grad]
