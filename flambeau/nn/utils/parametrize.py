"""Parametrisation: a parameter becomes a property computed from `parametrizations.<name>.original` by modules.

Keys in state_dict are PyTorch's: parametrizations.weight.original (original0, original1 where right_inverse gives several).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import flambeau as torch
from flambeau.nn.modules.container import ModuleDict, ModuleList
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter
from flambeau.tensor import Tensor

_CACHE: dict[tuple[int, str], Tensor] | None = None


class ParametrizationList(ModuleList):
    """The modules applied in order to the original tensor or tensors."""

    is_tensor: bool

    def __init__(self, modules: list[Module], original: Tensor, unsafe: bool = False) -> None:
        if not modules:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        value: Any = original
        with torch.no_grad():
            for module in reversed(modules):
                inverse = getattr(module, "right_inverse", None)
                if inverse is not None:
                    value = inverse(value)
        self.is_tensor = isinstance(value, Tensor)
        self.ntensors = 1 if self.is_tensor else len(value)
        parts = [value] if self.is_tensor else list(value)
        for i, part in enumerate(parts):
            name = "original" if self.is_tensor else f"original{i}"
            if isinstance(original, Parameter):
                self.register_parameter(name, Parameter(part.detach(), original.requires_grad))
            else:
                self.register_buffer(name, part)

    def right_inverse(self, value: Tensor) -> None:
        """Set the originals so that the parametrised tensor is `value`."""
        with torch.no_grad():
            inner: Any = value
            for module in reversed(list(self)):
                inner = module.right_inverse(inner)
            names = ["original"] if self.is_tensor else [f"original{i}" for i in range(self.ntensors)]
            for name, part in zip(names, [inner] if self.is_tensor else inner, strict=True):
                getattr(self, name).copy_(part)

    def forward(self) -> Tensor:
        if self.is_tensor:
            x = self[0](self.original)
        else:
            x = self[0](*(getattr(self, f"original{i}") for i in range(self.ntensors)))
        for i in range(1, len(self)):
            x = self[i](x)
        return x  # type: ignore[no-any-return]


@contextmanager
def cached() -> Iterator[None]:
    """Inside, each parametrised tensor is computed once."""
    global _CACHE
    before, _CACHE = _CACHE, {} if _CACHE is None else _CACHE
    try:
        yield
    finally:
        _CACHE = before


def _inject(module: Module, name: str) -> None:
    """Give the instance a class of its own with a property `name`."""
    cls = type(module)
    if not getattr(cls, "_parametrized", False):
        cls = type(f"Parametrized{cls.__name__}", (cls,), {"_parametrized": True, "__module__": cls.__module__})
        module.__class__ = cls

    def get(self: Module) -> Tensor:
        parametrization = self.parametrizations[name]
        if _CACHE is None:
            return parametrization()  # type: ignore[no-any-return]
        key = (id(self), name)
        if key not in _CACHE:
            _CACHE[key] = parametrization()
        return _CACHE[key]

    def set_(self: Module, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    setattr(cls, name, property(get, set_))


def register_parametrization(module: Any, tensor_name: str, parametrization: Module, *, unsafe: bool = False) -> Any:
    """Make `tensor_name` the result of `parametrization` of an original tensor; several are applied in order."""
    if is_parametrized(module, tensor_name):
        existing = module.parametrizations[tensor_name]
        existing.append(parametrization)
        return module
    if tensor_name not in module._parameters and tensor_name not in module._buffers:
        raise ValueError(f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name '{tensor_name}'")
    original = getattr(module, tensor_name)
    entries = ParametrizationList([parametrization], original, unsafe)
    if not unsafe:
        with torch.no_grad():
            shape = tuple(entries().shape)
        if shape != tuple(original.shape):
            raise ValueError(
                f"Registering a parametrization may not change the shape of the tensor, unless `unsafe` flag is enabled.\n"
                f"Module dtype: {original.dtype}; shapes {tuple(original.shape)} and {shape}"
            )
    delattr(module, tensor_name)
    if "parametrizations" not in module._modules:
        module.parametrizations = ModuleDict()
    module.parametrizations[tensor_name] = entries
    _inject(module, tensor_name)
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether the module, or this tensor of it, is parametrised."""
    entries = module._modules.get("parametrizations")
    if not isinstance(entries, ModuleDict):
        return False
    return len(entries) > 0 if tensor_name is None else tensor_name in entries


def remove_parametrizations(module: Any, tensor_name: str, leave_parametrized: bool = True) -> Any:
    """Make the tensor plain again: with its present value, or with the original's."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    entries = module.parametrizations[tensor_name]
    if not leave_parametrized and not entries.is_tensor:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of a sequence of tensors."
        )
    with torch.no_grad():
        value = entries() if leave_parametrized else entries.original
    trainable = isinstance(entries._parameters.get("original", entries._parameters.get("original0")), Parameter)
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    if trainable:
        module.register_parameter(tensor_name, Parameter(value.detach()))
    else:
        module.register_buffer(tensor_name, value.detach())
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module
