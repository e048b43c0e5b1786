"""Parametrisation: a parameter becomes a property computed from `parametrizations.<name>.original` by modules.

Keys in state_dict are PyTorch's: parametrizations.weight.original (original0, original1 where right_inverse gives several).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from typing import Any

import flambeau as torch
from flambeau.nn.modules.container import ModuleDict, ModuleList
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter
from flambeau.tensor import Tensor

_CACHE: dict[tuple[int, str], Tensor] | None = None


def _take_over(target: Tensor, value: Tensor) -> None:
    """Give a parameter or buffer another tensor's memory and shape: the object, which an optimizer may hold, stays the same."""
    if value is not target:
        with torch.no_grad():  # a leaf's memory may not be exchanged where gradients are recorded
            target.set_(value.detach())


def _register(module: Module, name: str, tensor: Tensor) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


def _check_result(what: str, value: Any, like: Tensor) -> None:
    """ValueError unless a parametrisation keeps dtype and shape."""
    if not isinstance(value, Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(value).__name__}.")
    if value.dtype is not like.dtype:
        raise ValueError(
            f"Registering a parametrization may not change the dtype of the tensor, unless `unsafe` flag is enabled.\n{what} dtype: {like.dtype}\n"
            f"parametrized dtype: {value.dtype}"
        )
    if value.shape != like.shape:
        raise ValueError(
            f"Registering a parametrization may not change the shape of the tensor, unless `unsafe` flag is enabled.\n{what} shape: {like.shape}\n"
            f"parametrized shape: {value.shape}"
        )


class ParametrizationList(ModuleList):
    """The modules applied in order to the original tensor or tensors (`original`, or `original0`, `original1`, ...)."""

    is_tensor: bool

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if not modules:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        before = original.detach()
        value: Any = original
        with torch.no_grad():
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    with suppress(NotImplementedError):
                        value = module.right_inverse(value)
        if not isinstance(value, (Tensor, Sequence)):
            raise ValueError(f"'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got {type(value).__name__}")
        self.is_tensor = isinstance(value, Tensor)
        self.ntensors = 1 if self.is_tensor else len(value)
        if isinstance(value, Tensor):
            if value.dtype is not original.dtype:
                raise ValueError(
                    f"When `right_inverse` outputs one tensor, it may not change the dtype.\noriginal.dtype: {original.dtype}\n"
                    f"right_inverse(original).dtype: {value.dtype}"
                )
            _take_over(original, value)
            _register(self, "original", original)
        else:
            for i, part in enumerate(value):
                if not isinstance(part, Tensor):
                    raise ValueError(
                        "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                        f"Got element {i} of the sequence with type {type(part).__name__}."
                    )
                if isinstance(original, Parameter):
                    part = Parameter(part.detach(), original.requires_grad)
                _register(self, f"original{i}", part.requires_grad_(original.requires_grad))
        if not unsafe:
            _check_result("unparametrized", self(), before)

    def _originals(self) -> list[Tensor]:
        return [self.original] if self.is_tensor else [getattr(self, f"original{i}") for i in range(self.ntensors)]

    def right_inverse(self, value: Tensor) -> None:
        """Set the originals so that the parametrised tensor is `value`."""
        with torch.no_grad():
            inner: Any = value
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
                inner = module.right_inverse(inner)
            if self.is_tensor and not isinstance(inner, Tensor):
                raise ValueError(f"`right_inverse` should return a tensor. Got {type(inner).__name__}")
            if not self.is_tensor and not isinstance(inner, Sequence):
                raise ValueError(f"'right_inverse' must return a sequence of tensors. Got {type(inner).__name__}.")
            parts: list[Any] = [inner] if self.is_tensor else list(inner)
            if len(parts) != self.ntensors:
                raise ValueError(f"'right_inverse' must return a sequence of tensors of length {self.ntensors}. Got a sequence of length {len(parts)}.")
            for original, part in zip(self._originals(), parts, strict=True):
                if part.dtype is not original.dtype:
                    raise ValueError(f"The tensor returned by `right_inverse` has dtype {part.dtype} while `original` has dtype {original.dtype}")
                _take_over(original, part)

    def forward(self) -> Tensor:
        x = self[0](*self._originals())
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


def _no_pickle(self: Module) -> Any:
    raise RuntimeError(
        "Serialization of parametrized modules is only supported through state_dict(). See:\n"
        "https://pytorch.org/tutorials/beginner/saving_loading_models.html"
        "#saving-loading-a-general-checkpoint-for-inference-and-or-resuming-training"
    )


def _copied(self: Module, memo: dict[int, Any]) -> Module:
    """deepcopy of a parametrised module, which __getstate__ does not allow."""
    if id(self) not in memo:
        replica = memo[id(self)] = self.__new__(type(self))
        replica.__dict__ = deepcopy(self.__dict__, memo)
    return memo[id(self)]  # type: ignore[no-any-return]


def _inject(module: Module, name: str) -> None:
    """Give the instance a class of its own with a property `name`."""
    cls = type(module)
    if not is_parametrized(module):
        members: dict[str, Any] = {"__getstate__": _no_pickle, "__module__": cls.__module__}
        if not hasattr(cls, "__deepcopy__"):
            members["__deepcopy__"] = _copied
        cls = type(f"Parametrized{cls.__name__}", (cls,), members)
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
    """Make `tensor_name` the result of `parametrization` of an original tensor; several are applied in order.

    Unless `unsafe`, the result must have the tensor's dtype and shape (ValueError).
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        if not unsafe:
            before = getattr(module, tensor_name)
            after = parametrization(before)
            _check_result(f"module.{tensor_name}", after, before)
            if hasattr(parametrization, "right_inverse"):
                with suppress(NotImplementedError):
                    _check_result(f"module.{tensor_name}", parametrization.right_inverse(after), before)
        entries = module.parametrizations[tensor_name]
        entries.append(parametrization)
        entries.unsafe |= unsafe
        return module
    if tensor_name not in module._parameters and tensor_name not in module._buffers:
        raise ValueError(f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name '{tensor_name}'")
    made = ParametrizationList([parametrization], getattr(module, tensor_name), unsafe)
    delattr(module, tensor_name)
    _inject(module, tensor_name)
    if "parametrizations" not in module._modules:
        module.parametrizations = ModuleDict()
    module.parametrizations[tensor_name] = made
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether the module, or this tensor of it, is parametrised."""
    entries = getattr(module, "_modules", {}).get("parametrizations")
    if not isinstance(entries, ModuleDict):
        return False
    return len(entries) > 0 if tensor_name is None else tensor_name in entries


def remove_parametrizations(module: Any, tensor_name: str, leave_parametrized: bool = True) -> Any:
    """Make the tensor plain again: with its present value, or with the original's."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    entries = module.parametrizations[tensor_name]
    if not leave_parametrized and not entries.is_tensor:
        raise ValueError("Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of a sequence of tensors.")
    if not entries.is_tensor:
        value = getattr(module, tensor_name)
        original = Parameter(value.detach()) if value.requires_grad else value
    else:
        original = entries.original
        if leave_parametrized:
            with torch.no_grad():
                _take_over(original, getattr(module, tensor_name))
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _register(module, tensor_name, original)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """The module's class, without parametrisations."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(from_module: Module, to_module: Any, tensor_name: str | None = None) -> Any:
    """Give `to_module` the parametrisations of `from_module` and the tensors under them: all, or those of one name."""
    if not is_parametrized(from_module):
        return to_module
    for name in list(from_module.parametrizations) if tensor_name is None else [tensor_name]:
        source = from_module.parametrizations[name]
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name)))
        for parametrization in source:
            register_parametrization(to_module, name, parametrization)
        target = to_module.parametrizations[name]
        for key in ["original"] if source.is_tensor else [f"original{i}" for i in range(source.ntensors)]:
            setattr(target, key, getattr(source, key))
    return to_module


from flambeau.ops.guard import guard as _guard  # noqa: E402 - all public names are there now

_guard("nn.utils.parametrize", globals())

from flambeau.names import answering as _answering  # noqa: E402

__getattr__ = _answering("torch.nn.utils.parametrize", globals())
