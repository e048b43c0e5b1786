"""torch.distributed.fsdp._fully_shard: fully_shard, which spreads a module's parameters over processes."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from flambeau.distributed.device_mesh import DeviceMesh, init_device_mesh
from flambeau.distributed.fsdp._state import State
from flambeau.distributed.fsdp.api import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy
from flambeau.distributed.group import default_group, init_process_group, is_initialized
from flambeau.nn.modules.container import ModuleDict, ModuleList
from flambeau.nn.modules.module import Module


class UnshardHandle:
    """A gathering that is on its way: `wait()` ends it. It is done at once."""

    def wait(self) -> None:
        """Nothing is left to wait for."""


class FSDPModule:
    """What fully_shard makes of a module's class."""

    _fsdp_state: State

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """A new module of the class that was there before."""
        return cls.__mro__[2](*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        state = self._fsdp_state
        args, kwargs = state.cast_inputs(args, kwargs)
        with state.unsharded():
            return state.cast_outputs(super().__call__(*args, **kwargs))  # type: ignore[misc]

    def _states(self, recurse: bool = True) -> list[State]:
        found: list[State] = []
        for module in self.modules() if recurse else [self]:  # type: ignore[attr-defined]
            state = module.__dict__.get("_fsdp_state")
            if state is not None and state not in found:
                found.append(state)
        return found

    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        """Gather this module's parameters until `reshard()`."""
        self._fsdp_state.open()
        return UnshardHandle() if async_op else None

    def reshard(self) -> None:
        """Free the whole parameters of this module."""
        self._fsdp_state.close()

    def set_requires_gradient_sync(self, requires_gradient_sync: bool, *, recurse: bool = True) -> None:
        """Whether backward passes add up gradients over processes; those of passes that did not are added at the next that does."""
        for state in self._states(recurse):
            state.synchronizes = requires_gradient_sync

    def set_requires_all_reduce(self, requires_all_reduce: bool, *, recurse: bool = True) -> None:
        """NotImplementedError for False on meshes with replicas: gradients are added up at once."""
        if not requires_all_reduce and any(state.replicas is not None for state in self._states(recurse)):
            raise NotImplementedError("set_requires_all_reduce(False) is not there; set_requires_gradient_sync(False) leaves out both collectives")

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Whether whole parameters are freed between forward and backward."""
        for state in self._states(recurse):
            state.reshard = reshard_after_forward

    def set_gradient_divide_factor(self, factor: float) -> None:
        """What the sum of gradients is divided by, instead of the number of processes."""
        self._fsdp_state.divisor = float(factor)

    set_reduce_scatter_divide_factor = set_gradient_divide_factor

    def set_reshard_after_backward(self, reshard_after_backward: bool, *, recurse: bool = True) -> None:
        """Accepted: whole parameters are freed after the backward pass."""

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Accepted: nothing waits for the last backward pass."""

    def set_unshard_in_backward(self, unshard_in_backward: bool) -> None:
        """Accepted: parameters are gathered in the backward pass where it needs them."""

    def set_modules_to_forward_prefetch(self, modules: Any) -> None:
        """Accepted: nothing is gathered in advance."""

    set_modules_to_backward_prefetch = set_modules_to_forward_prefetch


_CLASSES: dict[type, type] = {}


def _sharded_class(cls: type) -> type:
    if cls not in _CLASSES:
        _CLASSES[cls] = type(f"FSDP{cls.__name__}", (FSDPModule, cls), {"__module__": cls.__module__})
    return _CLASSES[cls]


def _mesh(mesh: DeviceMesh | None) -> DeviceMesh:
    if mesh is None:
        if not is_initialized():
            init_process_group("gloo")
        return init_device_mesh("cpu", (default_group().size(),))
    if mesh.ndim not in (1, 2):
        raise ValueError(f"fully_shard expects a 1D or 2D DeviceMesh but got {mesh}")
    return mesh


def fully_shard(
    module: Any, *, mesh: DeviceMesh | None = None, reshard_after_forward: bool | int | None = None, shard_placement_fn: Callable[..., Any] | None = None,
    mp_policy: MixedPrecisionPolicy | None = None, offload_policy: OffloadPolicy | None = None, ignored_params: set[Any] | None = None, **_: Any,
) -> Any:  # fmt: skip
    """Spread a module's parameters over processes, in place: its class becomes an FSDPModule. All processes call it, with the same parameters.

    Each process keeps a part of each parameter, of its gradient and of the optimizer's state. Parameters that calls on submodules have taken stay theirs.
    `mesh`: of one dim, or (replicate, shard). `reshard_after_forward`: whether whole parameters are freed between forward and backward. Parameters that are
    tensor parallel (`parallelize_module` over another dim of the same mesh) are cut once more. `shard_placement_fn(parameter)`: `Shard(dim)`, along which dim
    it is cut; None means the first.
    """
    modules = list(module) if isinstance(module, (list, tuple)) else [module]
    for each in modules:
        if isinstance(each, (ModuleList, ModuleDict)) and type(each).forward is Module.forward:
            raise ValueError(f"fully_shard does not support containers that do not implement forward: {each}")
        if isinstance(each, FSDPModule):
            raise AssertionError("Each distinct module can only be wrapped by fully_shard once")
    managed = {id(p) for each in modules for m in each.modules() if "_fsdp_state" in m.__dict__ for p in m._fsdp_state.parameters}
    reshard = True if reshard_after_forward is None else bool(reshard_after_forward)
    state = State(modules, _mesh(mesh), reshard, mp_policy or MixedPrecisionPolicy(), offload_policy, set(ignored_params or ()), managed, shard_placement_fn)
    for each in modules:
        each.__dict__["_fsdp_state"] = state
        each.__class__ = _sharded_class(type(each))
    return module


def register_fsdp_forward_method(module: Any, method_name: str) -> None:
    """Let a method gather the parameters as `forward` does. Nothing to do for a module that is not sharded."""
    if not isinstance(module, FSDPModule):
        return
    if not hasattr(module, method_name):
        raise ValueError(f"{type(module)} does not have a method {method_name}")
    method, state = getattr(module, method_name), module._fsdp_state

    @wraps(method)
    def run(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = state.cast_inputs(args, kwargs)
        with state.unsharded():
            return state.cast_outputs(method(*args, **kwargs))

    module.__dict__[method_name] = run


__all__ = [
    "CPUOffloadPolicy", "FSDPModule", "MixedPrecisionPolicy", "OffloadPolicy", "UnshardHandle", "fully_shard", "register_fsdp_forward_method",
]  # fmt: skip
