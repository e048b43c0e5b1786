"""torch.distributed._composable.replicate: DistributedDataParallel as a function of a module, which stays itself and keeps its names."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, NoReturn

import flambeau
from flambeau.distributed._composable.contract import _get_registry, contract
from flambeau.nn.modules.container import ParameterList
from flambeau.nn.modules.module import Module


class _ReplicateState:
    """What `replicate` keeps of a module. Its DistributedDataParallel is made before the first forward pass, when there is a process group."""

    _ddp_weakref: Any = None

    def __init__(self) -> None:
        self._ddp: Any = None
        self._no_sync = False
        self._wanted: tuple[Module, set[Module], dict[str, Any]] | None = None
        self._hooks: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def _make(self) -> None:
        from flambeau.nn.parallel.distributed import DistributedDataParallel

        assert self._wanted is not None
        module, ignored, settings = self._wanted
        left_out = {id(p) for each in ignored for p in each.parameters()}
        left_out |= {id(p) for each in module.modules() if _is_fully_sharded(each) for p in each.parameters()}
        parameters = [p for p in module.parameters() if id(p) not in left_out]
        device = settings.pop("device_id", None)
        if device is not None and flambeau.device(device).type != "cpu":
            settings["device_ids"] = [device]
        self._ddp = DistributedDataParallel(ParameterList(parameters), **settings)
        if self._ddp.reducer is not None:
            sparse = {id(w) for w in self._ddp._sparse_weights(module)}
            self._ddp.reducer.sparse = {i for i, p in enumerate(self._ddp.reducer.parameters) if id(p) in sparse}
        self._ddp_weakref = weakref.ref(self._ddp)
        for args, kwargs in self._hooks:
            self._ddp.register_comm_hook(*args, **kwargs)
        self._hooks.clear()

    def before(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Before the module's forward pass."""
        if self._ddp is None:
            self._make()
        self._ddp.require_backward_grad_sync = not self._no_sync
        return self._ddp._pre_forward(*args, **kwargs)

    def after(self, module: Module, args: Any, output: Any) -> Any:
        """After it."""
        return self._ddp._post_forward(output)


def _no_copy(*args: Any, **kwargs: Any) -> NoReturn:
    raise AssertionError("DDP does not support deepcopy. Please use state dict for serialization.")


class DDP:
    """The first base of the class of a module that `replicate` was given."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """One of the module's own class: a part of a container is a plain one."""
        own: Any = cls.__mro__[2]
        return own(*args, **kwargs)

    def set_requires_gradient_sync(self, requires_gradient_sync: bool) -> None:
        """Whether backward passes exchange gradients from now on."""
        replicate.state(self)._no_sync = not requires_gradient_sync

    def register_comm_hook(self, *args: Any, **kwargs: Any) -> None:
        """DistributedDataParallel.register_comm_hook."""
        state = replicate.state(self)
        if state._ddp is None:
            state._hooks.append((args, kwargs))
        else:
            state._ddp.register_comm_hook(*args, **kwargs)


@contract(state_cls=_ReplicateState)
def replicate(module: Module, ignored_modules: Iterable[Module] | None = None, **kwargs: Any) -> Module:
    """The gradients of a module become their mean over all ranks after each backward pass, and its parameters those of rank 0 at the start.

    The module is changed in place and returned. Other arguments are DistributedDataParallel's; `device_id` is one device.
    """
    if "device_id" in kwargs and not isinstance(kwargs["device_id"], (int, flambeau.device)):
        raise RuntimeError(f"Expected device_id to be int or torch.device, but got {type(kwargs['device_id'])}")
    if _is_fully_sharded(module):
        raise RuntimeError("Cannot apply `replicate()` on a Module already managed by `fully_shard`")
    state = replicate.state(module)
    state._wanted = (module, set(ignored_modules or ()), dict(kwargs))
    module.register_forward_pre_hook(state.before, with_kwargs=True)
    module.register_forward_hook(state.after)
    own = type(module)
    module.__class__ = type(f"DDP{own.__name__}", (DDP, own), {"__deepcopy__": _no_copy})
    return module


def _is_fully_sharded(module: Module) -> bool:
    registry = _get_registry(module)
    return registry is not None and "fully_shard" in registry
