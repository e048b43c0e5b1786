"""torch.distributed.algorithms._checkpoint.checkpoint_wrapper: modules that compute their activations again in the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum, auto
from functools import partial
from typing import Any

from flambeau.nn.modules.module import Module
from flambeau.utils.checkpoint import checkpoint

_CHECKPOINT_WRAPPED_MODULE = "_checkpoint_wrapped_module"
_CHECKPOINT_PREFIX = _CHECKPOINT_WRAPPED_MODULE + "."


class CheckpointImpl(Enum):
    """Which form of torch.utils.checkpoint."""

    REENTRANT = auto()
    NO_REENTRANT = auto()


class ActivationWrapper(Module):
    """A module around another, whose names in state_dict and named_parameters are those of the other."""

    def __init__(self, mod: Any) -> None:
        super().__init__()
        self._checkpoint_wrapped_module = mod
        self.register_state_dict_post_hook(self._without_prefix)
        self.register_load_state_dict_pre_hook(self._with_prefix)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._checkpoint_wrapped_module, name)

    def __getitem__(self, key: int) -> Any:
        return self._checkpoint_wrapped_module[key]

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        """Names as without the wrapper."""
        for name, parameter in super().named_parameters(*args, **kwargs):
            yield name.replace(_CHECKPOINT_PREFIX, ""), parameter

    @staticmethod
    def _without_prefix(module: Any, state_dict: Any, prefix: str, *_: Any) -> None:
        for name in [n for n in state_dict if n.startswith(prefix + _CHECKPOINT_PREFIX)]:
            state_dict[prefix + name[len(prefix + _CHECKPOINT_PREFIX) :]] = state_dict.pop(name)

    @staticmethod
    def _with_prefix(module: Any, state_dict: Any, prefix: str, *_: Any) -> None:
        for name in [n for n in state_dict if n.startswith(prefix)]:
            state_dict[prefix + _CHECKPOINT_PREFIX + name[len(prefix) :]] = state_dict.pop(name)


class OffloadWrapper(ActivationWrapper):
    """A module whose saved activations are kept in the CPU's memory, where they are."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's result."""
        return self._checkpoint_wrapped_module(*args, **kwargs)


class CheckpointWrapper(ActivationWrapper):
    """A module called through torch.utils.checkpoint."""

    def __init__(self, mod: Any, checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT, checkpoint_fn: Any = None, **options: Any) -> None:
        super().__init__(mod)
        self.checkpoint_impl = checkpoint_impl
        self.checkpoint_fn = checkpoint_fn or partial(checkpoint, use_reentrant=checkpoint_impl is CheckpointImpl.REENTRANT)
        self._options = options

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's result, without its activations."""
        return self.checkpoint_fn(partial(self._checkpoint_wrapped_module, **kwargs), *args, **self._options)


def offload_wrapper(module: Any) -> Any:
    """See OffloadWrapper."""
    return OffloadWrapper(module)


def checkpoint_wrapper(module: Any, checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT, checkpoint_fn: Any = None, **options: Any) -> Any:
    """See CheckpointWrapper."""
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **options)


def apply_activation_checkpointing(
    model: Any, checkpoint_wrapper_fn: Callable[[Any], Any] = checkpoint_wrapper, check_fn: Callable[[Any], bool] = lambda _: True,
    auto_wrap_policy: Any = None,
) -> None:  # fmt: skip
    """Wrap the submodules for which the function says True, in place."""
    for name, child in list(model.named_children()):
        apply_activation_checkpointing(child, checkpoint_wrapper_fn, check_fn, auto_wrap_policy)
        chosen = auto_wrap_policy(module=child, recurse=False, nonwrapped_numel=0) if auto_wrap_policy is not None else check_fn(child)
        if chosen:
            model._modules[name] = checkpoint_wrapper_fn(child)
