"""Modules and tensors by their names, and the parametrisation that multiplies a weight by a mask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flambeau.nn.modules.module import Module
from flambeau.nn.utils.parametrize import is_parametrized, type_before_parametrizations
from flambeau.tensor import Tensor


def module_contains_param(module: Module, parametrization: type[Module]) -> bool:
    """Whether one of a module's tensors has a parametrisation of this class."""
    if not is_parametrized(module):
        return False
    return any(isinstance(p, parametrization) for entries in module.parametrizations.values() for p in entries)


def swap_module(mod: Module, mapping: Mapping[type[Module], Any]) -> Module:
    """What `mapping[class].from_dense(mod)` makes of a module, with its hooks; the module itself where the mapping has no class for it."""
    made = mapping.get(type_before_parametrizations(mod))
    if made is None:
        return mod
    new: Module = made.from_dense(mod)
    for pre in mod._forward_pre_hooks.values():
        new.register_forward_pre_hook(pre)
    for hook in mod._forward_hooks.values():
        new.register_forward_hook(hook)
    return new


def module_to_fqn(model: Module, module: Module, prefix: str = "") -> str | None:
    """The path of a module in a model ("" for the model itself, with `prefix` before it); None if it is not there."""
    if module is model:
        return ""
    for name, child in model.named_children():
        below = module_to_fqn(child, module, ".")
        if below is not None:
            return prefix + name + below
    return None


def fqn_to_module(model: Module | None, path: str) -> Any:
    """What lies at a path of a model, a module or a tensor; None if there is nothing."""
    found: Any = model
    for name in path.split(".") if path else ():
        found = getattr(found, name, None)
    return found


def get_arg_info_from_tensor_fqn(model: Module, tensor_fqn: str) -> dict[str, Any]:
    """The parts of a tensor's name: the module's path, the module, the name of the tensor in it, and the whole."""
    module_fqn, _, tensor_name = tensor_fqn.rpartition(".")
    return {"module_fqn": module_fqn, "module": fqn_to_module(model, module_fqn), "tensor_name": tensor_name, "tensor_fqn": tensor_fqn}


class FakeSparsity(Module):
    """The parametrisation mask * weight. The mask's values may change, the tensor stays; it is not saved with the module."""

    mask: Tensor

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        if self.mask.shape != x.shape:
            raise AssertionError(f"FakeSparsity: mask shape ({self.mask.shape}) must match x shape ({x.shape})")
        return self.mask * x

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Nothing: the sparsifier saves the mask."""
        return {}
