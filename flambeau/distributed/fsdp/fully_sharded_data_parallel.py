"""torch.distributed.fsdp.fully_sharded_data_parallel: the wrapper itself, which needs several processes."""

from __future__ import annotations

from typing import Any

from flambeau.distributed.fsdp.api import *  # noqa: F403
from flambeau.distributed.several import refuse
from flambeau.nn.modules.module import Module


class FullyShardedDataParallel(Module):
    """Cannot be made: it spreads a module over processes, and there is one."""

    def __init__(self, module: Any, *args: Any, **kwargs: Any) -> None:
        refuse("FullyShardedDataParallel")

    @staticmethod
    def fsdp_modules(module: Any, root_only: bool = False) -> list[Any]:
        """[]: no module is sharded."""
        return []

    @staticmethod
    def state_dict_type(module: Any, *args: Any, **kwargs: Any) -> Any:
        """NotImplementedError."""
        refuse("FullyShardedDataParallel.state_dict_type")

    @staticmethod
    def summon_full_params(module: Any, *args: Any, **kwargs: Any) -> Any:
        """NotImplementedError."""
        refuse("FullyShardedDataParallel.summon_full_params")

    @staticmethod
    def optim_state_dict(model: Any, optim: Any, *args: Any, **kwargs: Any) -> Any:
        """NotImplementedError."""
        refuse("FullyShardedDataParallel.optim_state_dict")

    @staticmethod
    def optim_state_dict_to_load(model: Any, optim: Any, *args: Any, **kwargs: Any) -> Any:
        """NotImplementedError."""
        refuse("FullyShardedDataParallel.optim_state_dict_to_load")

    @staticmethod
    def rekey_optim_state_dict(optim_state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        """NotImplementedError."""
        refuse("FullyShardedDataParallel.rekey_optim_state_dict")


class FSDPModule:
    """What fully_shard makes of a module's class; no module is one here."""


class UnshardHandle:
    """A gathering that is on its way; none is."""


def fully_shard(module: Any, **options: Any) -> Any:
    """NotImplementedError: it spreads a module over processes, and there is one."""
    refuse("fully_shard")


def register_fsdp_forward_method(module: Any, method_name: str) -> None:
    """Nothing to do for a module that is not sharded."""
