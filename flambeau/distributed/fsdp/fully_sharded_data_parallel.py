"""torch.distributed.fsdp.fully_sharded_data_parallel: the wrapper FullyShardedDataParallel, over fully_shard."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import flambeau
from flambeau.distributed.device_mesh import DeviceMesh
from flambeau.distributed.fsdp._common_utils import FSDP_PREFIX, FSDP_WRAPPED_MODULE, name_without_wrappers
from flambeau.distributed.fsdp._fully_shard import FSDPModule, UnshardHandle, fully_shard, register_fsdp_forward_method
from flambeau.distributed.fsdp.api import *  # noqa: F403
from flambeau.distributed.fsdp.api import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardingStrategy,
    StateDictSettings,
    StateDictType,
)
from flambeau.distributed.fsdp.wrap import CustomPolicy
from flambeau.distributed.group import default_group, get_rank
from flambeau.distributed.tensor.api import DTensor, distribute_tensor, inner
from flambeau.nn.modules.module import Module


def _policy(mixed: MixedPrecision | None) -> MixedPrecisionPolicy:
    if mixed is None:
        return MixedPrecisionPolicy()
    return MixedPrecisionPolicy(mixed.param_dtype, mixed.reduce_dtype, cast_forward_inputs=mixed.cast_forward_inputs or mixed.cast_root_forward_inputs)


def _wrapped(module: Any, policy: Any) -> list[Any]:
    """The submodules that a policy wants wrapped, innermost first."""
    found: list[Any] = []

    def visit(each: Any) -> None:
        for child in each.children():
            visit(child)
            numel = sum(p.numel() for p in child.parameters())
            wanted = policy._lambda_fn(child) if isinstance(policy, CustomPolicy) else policy(module=child, recurse=False, nonwrapped_numel=numel)
            if wanted and not isinstance(child, FSDPModule):
                found.append(child)

    visit(module)
    return found


class FullyShardedDataParallel(Module):
    """A module whose parameters, gradients and optimizer states are spread over processes. Parameters keep their names and shapes; they are DTensors.

    `auto_wrap_policy`: which submodules gather their parameters by themselves. ShardingStrategy.FULL_SHARD frees whole parameters between forward
    and backward, SHARD_GRAD_OP keeps them. Prefetching and limits of it are accepted; nothing is gathered in advance.
    """

    def __init__(
        self, module: Any, process_group: Any = None, sharding_strategy: ShardingStrategy | None = None, cpu_offload: Any = None, auto_wrap_policy: Any = None,
        backward_prefetch: Any = None, mixed_precision: MixedPrecision | None = None, ignored_modules: Any = None, param_init_fn: Any = None,
        device_id: Any = None, sync_module_states: bool = False, forward_prefetch: bool = False, limit_all_gathers: bool = True,
        use_orig_params: bool = False, ignored_states: Any = None, device_mesh: DeviceMesh | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        strategy = sharding_strategy or ShardingStrategy.FULL_SHARD
        if strategy in (ShardingStrategy.NO_SHARD, ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2) and device_mesh is None:
            raise NotImplementedError(f"FullyShardedDataParallel: {strategy} needs a device_mesh (replicate, shard); or use FULL_SHARD or SHARD_GRAD_OP")
        if process_group is not None and device_mesh is not None:
            raise ValueError("Cannot pass both process_group and device_mesh at the same time. Please just pass only one of them.")
        mesh = device_mesh or (DeviceMesh.from_group(process_group, "cpu") if process_group is not None else None)
        if sync_module_states:
            from flambeau.distributed.utils import _sync_module_states

            _sync_module_states(module, process_group or default_group(), 0, 0)
        ignored = {p for m in ignored_modules or () for p in m.parameters()} | {p for p in ignored_states or () if isinstance(p, flambeau.Tensor)}
        options: dict[str, Any] = {
            "mesh": mesh, "mp_policy": _policy(mixed_precision), "ignored_params": ignored,
            "reshard_after_forward": strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.HYBRID_SHARD),
        }  # fmt: skip
        for each in _wrapped(module, auto_wrap_policy) if auto_wrap_policy is not None else ():
            fully_shard(each, **options)
        self._fsdp_wrapped_module: Any = module if isinstance(module, FSDPModule) else fully_shard(module, **options)
        self.register_load_state_dict_pre_hook(self._with_prefix)
        self._settings = StateDictSettings(StateDictType.FULL_STATE_DICT, FullStateDictConfig(), FullOptimStateDictConfig())

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's."""
        return self.module(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__(FSDP_WRAPPED_MODULE), name)

    def __getitem__(self, key: int) -> Any:
        """That of a wrapped Sequential."""
        return self.module[key]

    @property
    def module(self) -> Any:
        """The wrapped module."""
        return self._fsdp_wrapped_module

    @staticmethod
    def _with_prefix(module: Any, state_dict: Any, prefix: str, *_: Any) -> None:
        """Of a wrapper inside of the module that loads: its keys are those without the wrapper."""
        for name in [n for n in state_dict if n.startswith(prefix)]:
            state_dict[prefix + FSDP_PREFIX + name[len(prefix) :]] = state_dict.pop(name)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """A block whose gradients are not added up over processes; they are at the next backward pass outside of it."""
        self.module.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            self.module.set_requires_gradient_sync(True)

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Any:
        """Scale the gradients so that their norm over all processes is `max_norm` at most; the norm before is returned."""
        total = flambeau.nn.utils.clip_grad_norm_(self.parameters(), max_norm, norm_type)
        return total.full_tensor() if isinstance(total, DTensor) else total

    # -- states -----------------------------------------------------------------------------------------------------
    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Names as the module has them without wrappers; whole tensors, or DTensors as `state_dict_type` says."""
        state = self.module.state_dict(*args, **kwargs)
        if self._settings.state_dict_type is not StateDictType.FULL_STATE_DICT:
            return state
        whole = {name: t.full_tensor() if isinstance(t, DTensor) else t for name, t in state.items()}
        return {} if getattr(self._settings.state_dict_config, "rank0_only", False) and get_rank() else whole

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        """From whole tensors or DTensors."""
        own = self.module.state_dict()
        given = {
            name: distribute_tensor(t.detach(), own[name].device_mesh, own[name].placements, src_data_rank=None)
            if isinstance(own.get(name), DTensor) and not isinstance(t, DTensor) else t
            for name, t in state_dict.items()
        }  # fmt: skip
        return self.module.load_state_dict(given, strict=strict)

    @staticmethod
    def fsdp_modules(module: Any, root_only: bool = False) -> list[Any]:
        """The wrappers in a module."""
        found = [m for m in module.modules() if isinstance(m, FullyShardedDataParallel)]
        return found[:1] if root_only else found

    @staticmethod
    def set_state_dict_type(
        module: Any, state_dict_type: StateDictType, state_dict_config: Any = None, optim_state_dict_config: Any = None
    ) -> StateDictSettings:
        """Which tensors state_dict gives; what was set before is returned."""
        before = FullyShardedDataParallel.get_state_dict_type(module)
        if state_dict_type is StateDictType.LOCAL_STATE_DICT:
            raise NotImplementedError("StateDictType.LOCAL_STATE_DICT is not there; SHARDED_STATE_DICT gives DTensors, whose to_local() is this process's part")
        for each in FullyShardedDataParallel.fsdp_modules(module):
            each._settings = StateDictSettings(
                state_dict_type, state_dict_config or FullStateDictConfig(), optim_state_dict_config or FullOptimStateDictConfig()
            )
        return before

    @staticmethod
    def get_state_dict_type(module: Any) -> StateDictSettings:
        """Which tensors state_dict gives."""
        found = FullyShardedDataParallel.fsdp_modules(module)
        return found[0]._settings if found else StateDictSettings(StateDictType.FULL_STATE_DICT)

    @staticmethod
    @contextmanager
    def state_dict_type(module: Any, state_dict_type: StateDictType, state_dict_config: Any = None, optim_state_dict_config: Any = None) -> Iterator[None]:
        """A block in which state_dict gives these tensors."""
        before = FullyShardedDataParallel.set_state_dict_type(module, state_dict_type, state_dict_config, optim_state_dict_config)
        try:
            yield
        finally:
            for each in FullyShardedDataParallel.fsdp_modules(module):
                each._settings = before

    @staticmethod
    @contextmanager
    def summon_full_params(
        module: Any, recurse: bool = True, writeback: bool = True, rank0_only: bool = False, offload_to_cpu: bool = False, with_grads: bool = False
    ) -> Iterator[None]:
        """A block in which the modules have whole parameters; with `writeback` what is written to them stays."""
        states = {id(m._fsdp_state): m._fsdp_state for m in module.modules() if isinstance(m, FSDPModule)}
        with flambeau.no_grad():
            for state in states.values():
                state.open()
        try:
            yield
        finally:
            for state in states.values():
                wholes = [module._parameters[name] for ((module, name), *_) in state.places]
                state.close()
                for p, how, whole in zip(state.parameters, state.cuts, wholes, strict=True) if writeback else ():
                    with flambeau.no_grad():
                        inner(p).copy_(how.part(inner(whole), state.group.rank()))

    @staticmethod
    def optim_state_dict(model: Any, optim: Any, optim_state_dict: Any = None, group: Any = None) -> dict[str, Any]:
        """The optimizer's state by the parameters' names, in whole tensors unless state_dict_type says otherwise."""
        from flambeau.distributed.checkpoint.state_dict import get_optimizer_state_dict

        found = get_optimizer_state_dict(model.module if isinstance(model, FullyShardedDataParallel) else model, optim)
        if FullyShardedDataParallel.get_state_dict_type(model).state_dict_type is StateDictType.FULL_STATE_DICT:
            found["state"] = {name: {k: v.full_tensor() if isinstance(v, DTensor) else v for k, v in state.items()} for name, state in found["state"].items()}
        return found

    @staticmethod
    def optim_state_dict_to_load(
        model: Any, optim: Any, optim_state_dict: Any, is_named_optimizer: bool = False, load_directly: bool = False, group: Any = None
    ) -> Any:
        """What `optim.load_state_dict` takes, of what `optim_state_dict` gave."""
        inside: Any = model.module if isinstance(model, FullyShardedDataParallel) else model
        own = {name_without_wrappers(inside, name): p for name, p in inside.named_parameters()}
        numbers = {id(p): i for i, p in enumerate(p for g in optim.param_groups for p in g["params"])}
        names = {name: numbers[id(p)] for name, p in own.items() if id(p) in numbers}

        def part(p: Any, value: Any) -> Any:
            plain = isinstance(value, flambeau.Tensor) and not isinstance(value, DTensor)
            spread = plain and isinstance(p, DTensor) and tuple(value.shape) == tuple(p.shape)
            return distribute_tensor(value.detach(), p.device_mesh, p.placements, src_data_rank=None) if spread else value

        state = {names[n]: {k: part(own[n], v) for k, v in s.items()} for n, s in optim_state_dict["state"].items()}
        found = {"state": state, "param_groups": [{**g, "params": [names[n] for n in g["params"]]} for g in optim_state_dict["param_groups"]]}
        if load_directly:
            optim.load_state_dict(found)
        return found

    @staticmethod
    def rekey_optim_state_dict(optim_state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        """NotImplementedError: optim_state_dict and optim_state_dict_to_load change the keys."""
        raise NotImplementedError("rekey_optim_state_dict is not there: use optim_state_dict and optim_state_dict_to_load")


__all__ = ["FSDPModule", "FullyShardedDataParallel", "UnshardHandle", "fully_shard", "register_fsdp_forward_method"]
