"""torch.distributed.fsdp.wrap: which submodules are wrapped: policies, as functions of a module."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from flambeau.distributed.several import refuse
from flambeau.nn.modules.container import ModuleDict, ModuleList

_EXCLUDED = (ModuleList, ModuleDict)


def always_wrap_policy(*args: Any, **kwargs: Any) -> bool:
    """True."""
    return True


def lambda_auto_wrap_policy(module: Any, recurse: bool, nonwrapped_numel: int, lambda_fn: Callable[[Any], bool]) -> bool:
    """Go on into every module, and wrap those for which the function says True."""
    return True if recurse else lambda_fn(module)


def transformer_auto_wrap_policy(module: Any, recurse: bool, nonwrapped_numel: int, transformer_layer_cls: set[type]) -> bool:
    """Go on into every module, and wrap those of these classes."""
    return True if recurse else isinstance(module, tuple(transformer_layer_cls))


_module_wrap_policy = transformer_auto_wrap_policy


def size_based_auto_wrap_policy(
    module: Any, recurse: bool, nonwrapped_numel: int, min_num_params: int = 100_000_000, force_leaf_modules: Any = None,
    exclude_wrap_modules: Any = None,
) -> bool:  # fmt: skip
    """Wrap what has this many parameters that no submodule's wrapper has."""
    excluded = _EXCLUDED if exclude_wrap_modules is None else tuple(exclude_wrap_modules)
    large = nonwrapped_numel >= min_num_params
    if recurse:
        return large and not isinstance(module, tuple(force_leaf_modules or ()))
    return large and not isinstance(module, excluded)


def _or_policy(module: Any, recurse: bool, nonwrapped_numel: int, policies: Sequence[Callable[..., bool]]) -> bool:
    """Whether one of the policies says True."""
    return any(policy(module=module, recurse=recurse, nonwrapped_numel=nonwrapped_numel) for policy in policies)


class ModuleWrapPolicy:
    """Wrap modules of these classes."""

    def __init__(self, module_classes: Iterable[type]) -> None:
        self._module_classes = set(module_classes)

    def __call__(self, module: Any, recurse: bool, *args: Any, **kwargs: Any) -> bool:
        return transformer_auto_wrap_policy(module, recurse, -1, self._module_classes)


class CustomPolicy:
    """Wrap modules for which the function says True, or the options that it returns."""

    def __init__(self, lambda_fn: Callable[[Any], bool | dict[str, Any]]) -> None:
        self._lambda_fn = lambda_fn


def enable_wrap(*, wrapper_cls: Any, **wrapper_kwargs: Any) -> Any:
    """NotImplementedError: within, `wrap` would wrap by this class, which needs several processes."""
    refuse("enable_wrap")


def wrap(module: Any, **overrides: Any) -> Any:
    """The module itself: outside of enable_wrap nothing is wrapped."""
    return module
