"""torch.utils.checkpoint: functions whose intermediate values are computed again in the backward pass (autograd/checkpoint.py)."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from flambeau.autograd.checkpoint import DEBUG as _debug
from flambeau.autograd.checkpoint import checkpoint, checkpoint_sequential
from flambeau.autograd.checkpoint_results import CheckpointError
from flambeau.autograd.function import Function
from flambeau.trace.once import warn_here

__all__ = [
    "SAC_IGNORED_OPS",
    "CheckpointError",
    "CheckpointFunction",
    "CheckpointPolicy",
    "DefaultDeviceType",
    "GraphExecGroup",
    "SelectiveCheckpointContext",
    "check_backward_validity",
    "checkpoint",
    "checkpoint_sequential",
    "create_selective_checkpoint_contexts",
    "detach_variable",
    "get_device_states",
    "noop_context_fn",
    "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
    "set_device_states",
]  # fmt: skip

SAC_IGNORED_OPS: set[Any] = set()


class CheckpointFunction(Function):
    """`apply(run_function, preserve_rng_state, *args)`: checkpoint as an autograd.Function."""

    @classmethod
    def apply(cls, run_function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:  # type: ignore[override]
        """checkpoint(run_function, *args)."""
        return checkpoint(run_function, *args, use_reentrant=True, preserve_rng_state=preserve_rng_state)


class CheckpointPolicy(enum.Enum):
    """What a policy wants of an operation's result: kept, or computed again."""

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4


class SelectiveCheckpointContext:
    """What a policy is told: whether the function is run again."""

    def __init__(self, *, is_recompute: bool, **_: Any) -> None:
        self.is_recompute = is_recompute


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Any, allow_cache_entry_mutation: bool = False
) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Two blocks that change nothing: everything is computed again, whatever the policy; operations are fused, not kept one by one."""
    if not callable(policy_fn_or_list) and not isinstance(policy_fn_or_list, list):
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    for op in policy_fn_or_list if isinstance(policy_fn_or_list, list) else ():
        if not hasattr(op, "_schema"):
            more = " Please update the OpOverloadPacket to a specific OpOverload (torch.ops.aten.mm.default for torch.ops.aten.mm)." * hasattr(op, "overloads")
            raise ValueError(f"Expected op in `op_list` to be an OpOverload but got: {op} of type {type(op)}.{more}")
    return nullcontext(), nullcontext()


def noop_context_fn() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Two blocks that change nothing: for the first run, and for the run in the backward pass."""
    return nullcontext(), nullcontext()


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warn where no input requires a gradient."""
    if not any(getattr(x, "requires_grad", False) for x in inputs):
        warn_here("None of the inputs have requires_grad=True. Gradients will be None")


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The tensors as leaves with the same requires_grad, the rest as it is; RuntimeError unless a tuple is given."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"Only tuple of tensors is supported. Got Unsupported input type: {type(inputs).__name__}")
    return tuple(x.detach().requires_grad_(x.requires_grad) if hasattr(x, "_meta") else x for x in inputs)


def get_device_states(*args: Any) -> tuple[list[int], list[Any]]:
    """No devices, no states: the CPU's random state is kept by checkpoint itself."""
    return [], []


def set_device_states(devices: Any, states: Any, *, device_type: str | None = None) -> None:
    """Nothing to set."""


class DefaultDeviceType:
    """The kind of device that checkpoint takes where no tensor tells: remembered, "cuda" before, as in PyTorch."""

    _kind = "cuda"

    @staticmethod
    def set_device_type(device: str = "cuda") -> None:
        """Remember it."""
        DefaultDeviceType._kind = device

    @staticmethod
    def get_device_type() -> str:
        """What is remembered."""
        return DefaultDeviceType._kind


class GraphExecGroup:
    """A block whose checkpoints share what they compute again: accepted, each has its own."""

    def __enter__(self) -> GraphExecGroup:
        return self

    def __exit__(self, *_: Any) -> None:
        return None


@contextmanager
def set_checkpoint_early_stop(enable: bool) -> Any:
    """Accepted: what is not needed is not computed again anyway."""
    yield


@contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Any:
    """Say in the block, or not, that what a checkpoint computes again differs because of `debug`, whatever `debug` is at the call."""
    before = _debug[0]
    _debug[0] = enabled
    try:
        yield
    finally:
        _debug[0] = before


from flambeau.ops.guard import guard as _guard  # noqa: E402 - all public names are there now

_guard("utils.checkpoint", globals())

from flambeau.names import answering as _answering  # noqa: E402

__getattr__ = _answering("torch.utils.checkpoint", globals())
