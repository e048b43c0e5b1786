"""torch.distributed.algorithms.ddp_comm_hooks: what DistributedDataParallel does to gradients on their way, by name."""

from __future__ import annotations

from enum import Enum
from typing import Any

from flambeau.distributed.algorithms.ddp_comm_hooks import debugging_hooks, default_hooks, powerSGD_hook, quantization_hooks


class BuiltinCommHookType(Enum):
    """The hooks that need no state."""

    ALLREDUCE = "allreduce_hook"
    FP16_COMPRESS = "fp16_compress_hook"

    def __str__(self) -> str:
        return f"BuiltinCommHookType.{self.name}"


class DDPCommHookType(Enum):
    """The hooks."""

    ALLREDUCE = "allreduce_hook"
    FP16_COMPRESS = "fp16_compress_hook"
    BF16_COMPRESS = "bf16_compress_hook"
    QUANTIZE_PER_TENSOR = "quantization_pertensor_hook"
    QUANTIZE_PER_CHANNEL = "quantization_perchannel_hook"
    POWER_SGD = "powerSGD_hook"
    BATCHED_POWER_SGD = "batched_powerSGD_hook"
    NOOP = "noop_hook"


def register_ddp_comm_hook(comm_hook_type: DDPCommHookType, model: Any, state: Any = None) -> None:
    """model.register_comm_hook with a hook by name."""
    hook = next(vars(module)[comm_hook_type.value] for module in _MODULES if comm_hook_type.value in vars(module))
    model.register_comm_hook(state, hook)


_MODULES = (default_hooks, powerSGD_hook, quantization_hooks, debugging_hooks)
