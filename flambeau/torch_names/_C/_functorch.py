"""torch._C._functorch: what packages ask of the tensors of torch.func's transforms."""

from __future__ import annotations

from typing import Any

from flambeau.func.batch import BatchedTensor, wrap
from flambeau.func.levels import Level, LevelTensor, levels
from flambeau.func.mapping import vmap_level
from flambeau.ops.shape import expand, movedim
from flambeau.tensor import Tensor


def is_batchedtensor(tensor: Any) -> bool:
    """Whether a tensor is a sample of a vmap."""
    return isinstance(tensor, BatchedTensor)


def is_gradtrackingtensor(tensor: Any) -> bool:
    """Whether a tensor belongs to a derivative."""
    return isinstance(tensor, LevelTensor) and not isinstance(tensor, BatchedTensor)


def is_functorch_wrapped_tensor(tensor: Any) -> bool:
    """Whether a tensor belongs to any transform."""
    return isinstance(tensor, LevelTensor)


def get_unwrapped(tensor: Tensor) -> Tensor:
    """The tensor inside of one of a transform."""
    if not isinstance(tensor, LevelTensor):
        raise RuntimeError(f"get_unwrapped: expected a tensor of a transform, got one of shape {tuple(tensor.shape)}")
    return tensor._inner  # type: ignore[no-any-return]


def maybe_get_level(tensor: Any) -> int:
    """The number of a tensor's transform, or -1."""
    return tensor._level.number if isinstance(tensor, LevelTensor) else -1


def maybe_get_bdim(tensor: Any) -> int:
    """Where the samples are, or -1: always in front."""
    return 0 if isinstance(tensor, BatchedTensor) else -1


def maybe_current_level() -> int | None:
    """The number of the innermost active transform."""
    found: Level | None = next(levels(), None)
    return None if found is None else found.number


def _add_batch_dim(tensor: Tensor, in_dim: int, level: int) -> Any:
    """One sample, whichever, of the active vmap of this number: its samples lie along a dim."""
    active = vmap_level(level)
    return wrap(active, active.call_below(movedim, tensor, in_dim, 0))


def _remove_batch_dim(tensor: Tensor, level: int, batch_size: int, out_dim: int) -> Tensor:
    """All samples of a result of the active vmap of this number, along a dim; repeated if the vmap did not make it."""
    active = vmap_level(level)
    if active.mine(tensor):
        return active.call_below(movedim, tensor._inner, 0, out_dim)  # type: ignore[attr-defined, no-any-return]
    return active.call_below(lambda: movedim(expand(tensor, (batch_size, *tensor.shape)), 0, out_dim))  # type: ignore[no-any-return]
