"""state_dict and load_state_dict of a Module, with PyTorch's keys, hooks and error texts."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import flambeau as torch
from flambeau.foreign import refuse
from flambeau.nn.modules.hooks import Hook, RemovableHandle, register
from flambeau.nn.parameter import Parameter, UninitializedTensorMixin
from flambeau.tensor import Tensor
from flambeau.trace.once import warn_here

if TYPE_CHECKING:
    from flambeau.nn.modules.module import Module

EXTRA_STATE = "_extra_state"


class IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """What load_state_dict returns."""

    __slots__ = ()

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__().replace("IncompatibleKeys(", "_IncompatibleKeys(", 1)

    __str__ = __repr__


class StateMixin:
    """Saving and loading of a module's parameters, persistent buffers and extra state."""

    _version: int
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]
    _non_persistent_buffers_set: set[str]
    _state_dict_hooks: OrderedDict[int, Hook]
    _state_dict_pre_hooks: OrderedDict[int, Hook]
    _load_state_dict_pre_hooks: OrderedDict[int, Hook]
    _load_state_dict_post_hooks: OrderedDict[int, Hook]

    # -- hooks ----------------------------------------------------------------------------------------------------
    def register_state_dict_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Run `hook(module, prefix, keep_vars)` before state_dict."""
        return register(self._state_dict_pre_hooks, hook, [], False)

    def register_state_dict_post_hook(self, hook: Hook) -> RemovableHandle:
        """Run `hook(module, state_dict, prefix, local_metadata)` after state_dict; it may change the dict in place."""

        def checked(*args: Any) -> None:
            if hook(*args) is not None:
                raise RuntimeError("state_dict post-hook must return None")

        return register(self._state_dict_hooks, checked, [], False)

    def _register_state_dict_hook(self, hook: Hook) -> RemovableHandle:
        return register(self._state_dict_hooks, hook, [], False)

    def register_load_state_dict_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Run `hook(module, state_dict, prefix, local_metadata, strict, missing, unexpected, errors)` before loading."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(self, hook: Hook, with_module: bool = False) -> RemovableHandle:
        return register(self._load_state_dict_pre_hooks, _WithModule(hook) if with_module else hook, [], False)

    def register_load_state_dict_post_hook(self, hook: Hook) -> RemovableHandle:
        """Run `hook(module, incompatible_keys)` after loading; it may change the lists in place."""
        return register(self._load_state_dict_post_hooks, hook, [], False)

    # -- extra state ----------------------------------------------------------------------------------------------
    def get_extra_state(self) -> Any:
        """Override together with set_extra_state to save more than tensors."""
        raise RuntimeError("Reached a code path in Module.get_extra_state() that should never be called.")

    def set_extra_state(self, state: Any) -> None:
        """Called by load_state_dict with what get_extra_state gave."""
        raise RuntimeError("Reached a code path in Module.set_extra_state() that should never be called.")

    # -- saving ---------------------------------------------------------------------------------------------------
    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        for name, p in self._parameters.items():
            if p is not None:
                destination[prefix + name] = p if keep_vars else p.detach()
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = buffer if keep_vars else buffer.detach()
        if type(self).get_extra_state is not StateMixin.get_extra_state:
            destination[prefix + EXTRA_STATE] = self.get_extra_state()

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """All parameters and persistent buffers by path, detached unless `keep_vars`; they share memory with the module."""
        if args:
            destination = args[0] if destination is None else destination
            prefix = args[1] if len(args) > 1 and not prefix else prefix
            keep_vars = args[2] if len(args) > 2 and not keep_vars else keep_vars
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        local_metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local_metadata
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            replaced = hook(self, destination, prefix, local_metadata)
            if replaced is not None:
                destination = replaced
        return destination

    # -- loading --------------------------------------------------------------------------------------------------
    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Copy what belongs to this module (not to its children); errors are gathered in the lists."""
        for hook in self._load_state_dict_pre_hooks.values():
            if isinstance(hook, _WithModule):
                hook.hook(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
            else:
                hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        assign = local_metadata.get("assign_to_params_buffers", False)
        local: dict[str, Tensor] = {name: p for name, p in self._parameters.items() if p is not None}
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                local[name] = buffer
        for name, target in local.items():
            key = prefix + name
            if key in state_dict:
                error = self._load_one(name, key, target, state_dict[key], assign)
                if error is not None:
                    error_msgs.append(error)
            elif strict:
                missing_keys.append(key)
        extra = prefix + EXTRA_STATE
        if type(self).set_extra_state is not StateMixin.set_extra_state:
            if extra in state_dict:
                self.set_extra_state(state_dict[extra])
            elif strict:
                missing_keys.append(extra)
        elif strict and extra in state_dict:
            unexpected_keys.append(extra)
        if strict:
            for key in state_dict:
                if key.startswith(prefix) and key != extra:
                    name, dot, _ = key[len(prefix) :].partition(".")
                    if name not in (self._modules if dot else local):
                        unexpected_keys.append(key)

    def _load_one(self, name: str, key: str, target: Any, source: Any, assign: bool) -> str | None:
        """Copy (or assign) one tensor; the error text if it does not fit."""
        if not isinstance(source, Tensor):
            refuse((source,), f"load_state_dict() (as '{key}')")
            return f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like object from checkpoint but received {type(source)}'
        lazy = isinstance(target, UninitializedTensorMixin)  # it has no shape that could differ
        if not lazy and target.ndim == 0 and tuple(source.shape) == (1,):
            source = source[0]  # files of PyTorch 0.3 have no 0-d tensors
        if not lazy and source.shape != target.shape:
            return f"size mismatch for {key}: copying a param with shape {source.shape} from checkpoint, the shape in current model is {target.shape}."
        if target.is_meta and not source.is_meta and not assign:
            warn_here(
                f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter in the current model, which is a no-op. (Did you "
                "mean to pass `assign=True` to assign items in the state dictionary to their corresponding key in the module instead of copying them "
                "in place?)",
            )  # fmt: skip
        try:
            with torch.no_grad():
                if not assign:
                    target.copy_(source)
                elif not isinstance(target, Parameter):
                    setattr(self, name, source)
                elif isinstance(source, Parameter):
                    setattr(self, name, source.requires_grad_(target.requires_grad))
                else:
                    setattr(self, name, Parameter(source, target.requires_grad))
        except Exception as error:
            return (
                f'While copying the parameter named "{key}", whose dimensions in the model are {target.size()} and whose '
                f"dimensions in the checkpoint are {source.size()}, an exception occurred : {error.args}."
            )
        return None

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> IncompatibleKeys:
        """Copy tensors of `state_dict` into this module and its descendants (`assign`: put them in the place of the old).

        With `strict` (the default) missing and unexpected keys raise RuntimeError; wrong shapes always do.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        missing: list[str] = []
        unexpected: list[str] = []
        errors: list[str] = []
        metadata = getattr(state_dict, "_metadata", None)
        copied: Any = OrderedDict(state_dict)
        if metadata is not None:
            copied._metadata = metadata

        def load(module: StateMixin, entries: Any, prefix: str) -> None:
            local_metadata = {} if metadata is None else metadata.get(prefix[:-1], {})
            if assign:
                local_metadata["assign_to_params_buffers"] = True
            module._load_from_state_dict(entries, prefix, local_metadata, True, missing, unexpected, errors)
            for name, child in module._modules.items():
                if child is not None:
                    start = f"{prefix}{name}."
                    load(child, {k: v for k, v in entries.items() if k.startswith(start)}, start)
            keys = IncompatibleKeys(missing, unexpected)
            for hook in module._load_state_dict_post_hooks.values():
                if hook(module, keys) is not None:
                    raise AssertionError(
                        "Hooks registered with ``register_load_state_dict_post_hook`` are not expected to return new "
                        "values, if incompatible_keys need to be modified, it should be done inplace."
                    )

        load(self, copied, "")
        if strict:
            if unexpected:
                errors.insert(0, f"Unexpected key(s) in state_dict: {_quoted(unexpected)}. ")
            if missing:
                errors.insert(0, f"Missing key(s) in state_dict: {_quoted(missing)}. ")
        if errors:
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t" + "\n\t".join(errors))
        return IncompatibleKeys(missing, unexpected)


class _WithModule:
    """A load_state_dict pre-hook that is given the module first."""

    def __init__(self, hook: Callable[..., Any]) -> None:
        self.hook = hook

    def __call__(self, *args: Any) -> Any:
        return self.hook(*args)


def _quoted(keys: list[str]) -> str:
    return ", ".join(f'"{k}"' for k in keys)
