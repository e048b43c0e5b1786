"""torch._functorch.make_functional: a module as a function of a tuple of its parameters, as functorch had it before functional_call."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import flambeau
from flambeau.func.modules import check_ensemble
from flambeau.nn.modules.module import Module
from flambeau.nn.utils.stateless import _functional_call
from flambeau.tensor import Tensor

Names = dict[str, list[str]]


def _names(entries: Iterable[tuple[str, Tensor]]) -> tuple[tuple[Tensor, ...], tuple[str, ...], Names]:
    """The tensors, each once, under their first names; and all names of each by its first: what is tied stays tied."""
    first: dict[int, str] = {}
    tensors, names = list[Tensor](), Names()
    for name, t in entries:
        if id(t) not in first:
            first[id(t)] = name
            tensors.append(t)
        names.setdefault(first[id(t)], []).append(name)
    return tuple(tensors), tuple(names), names


def _parameters(model: Module, detach: bool) -> tuple[tuple[Tensor, ...], tuple[str, ...], Names]:
    tensors, names, all_names = _names(model.named_parameters(remove_duplicate=False))
    for t in tensors if detach else ():
        t.requires_grad_(False)
    return tensors, names, all_names


def _call(model: Module, names: Names, values: Sequence[Tensor], args: tuple[Any, ...], kwargs: dict[str, Any], what: str) -> Any:
    """The module with these values in place of its own."""
    if len(values) != len(names):
        raise RuntimeError(f"{what}: expected {len(names)} parameters and buffers of {type(model).__name__}, got {len(values)}")
    given = {name: value for known, value in zip(names.values(), values, strict=True) for name in known}
    return _functional_call(model, given, args, kwargs, tie_weights=False)


class FunctionalModuleWithBuffers(Module):
    """func(params, buffers, *args): what make_functional_with_buffers gives."""

    def __init__(
        self, stateless_model: Module, param_names: tuple[str, ...], buffer_names: tuple[str, ...], param_names_map: Names, buffer_names_map: Names,
    ) -> None:  # fmt: skip
        super().__init__()
        self.stateless_model, self.param_names, self.buffer_names = stateless_model, param_names, buffer_names
        self.all_names_map = param_names_map | buffer_names_map

    def forward(self, params: Iterable[Tensor], buffers: Iterable[Tensor], *args: Any, **kwargs: Any) -> Any:
        """The module's result with these parameters and buffers."""
        return _call(self.stateless_model, self.all_names_map, [*params, *buffers], args, kwargs, "FunctionalModuleWithBuffers")


class FunctionalModule(Module):
    """func(params, *args): what make_functional gives."""

    def __init__(self, stateless_model: Module, param_names: tuple[str, ...], names_map: Names) -> None:
        super().__init__()
        self.stateless_model, self.param_names, self.names_map = stateless_model, param_names, names_map

    def forward(self, params: Iterable[Tensor], *args: Any, **kwargs: Any) -> Any:
        """The module's result with these parameters."""
        return _call(self.stateless_model, self.names_map, list(params), args, kwargs, "FunctionalModule")


def _without_values(model: Module) -> Module:
    """A copy whose parameters and buffers hold no memory: calls bring their own."""
    return copy.deepcopy(model).to("meta")


def make_functional(model: Module, disable_autograd_tracking: bool = False) -> tuple[FunctionalModule, tuple[Tensor, ...]]:
    """(func, params) with `func(params, *args)`: a module without buffers as a function of copies of its parameters, in their order.

    RuntimeError if the module has buffers (make_functional_with_buffers). `disable_autograd_tracking`: the parameters require no gradient.
    """
    if any(True for _ in model.buffers()):
        raise RuntimeError("make_functional(model): `model` has buffers. Please use make_functional_with_buffers(model) instead.")
    params, names, all_names = _parameters(copy.deepcopy(model), disable_autograd_tracking)
    return FunctionalModule(_without_values(model), names, all_names), params


def make_functional_with_buffers(
    model: Module, disable_autograd_tracking: bool = False,
) -> tuple[FunctionalModuleWithBuffers, tuple[Tensor, ...], tuple[Tensor, ...]]:  # fmt: skip
    """(func, params, buffers) with `func(params, buffers, *args)`: a module as a function of copies of its parameters and buffers."""
    copied = copy.deepcopy(model)
    params, names, all_names = _parameters(copied, disable_autograd_tracking)
    buffers, buffer_names, all_buffer_names = _names(copied.named_buffers(remove_duplicate=False))
    return FunctionalModuleWithBuffers(_without_values(model), names, buffer_names, all_names, all_buffer_names), params, buffers


def combine_state_for_ensemble(models: Sequence[Module]) -> tuple[FunctionalModuleWithBuffers, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """(func, params, buffers) of several modules of one class, the tensors stacked along a new first dim: for `vmap(func)`."""
    check_ensemble(models, "combine_state_for_ensemble")
    made = [make_functional_with_buffers(model) for model in models]

    def stacked(state: list[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        return tuple(flambeau.stack(parts).detach() for parts in zip(*state, strict=True))

    return made[0][0], stacked([params for _, params, _ in made]), stacked([buffers for _, _, buffers in made])
