"""Clipping of gradients: the norm of all, and the scaled gradients, are two recorded edges."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from types import GeneratorType

import flambeau as torch
from flambeau.foreign import refuse
from flambeau.nn.functional.engine import Number, Tensor, functional, overwrite
from flambeau.trace.once import warn_here

Parameters = Tensor | Iterable[Tensor]


def _listed(parameters: Parameters) -> list[Tensor]:
    items = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    if not items and isinstance(parameters, GeneratorType):
        warn_here("`parameters` is an empty generator, no gradient clipping will occur.")
    return items


def _gradients(parameters: Parameters) -> list[Tensor]:
    items = _listed(parameters)
    refuse(items, "clip_grad")
    return [p.grad for p in items if p.grad is not None]


@functional
def _total_norm(tensors: Sequence[Tensor], norm_type: float) -> Tensor:
    """The p-norm of all elements of all tensors."""
    if norm_type == math.inf:
        return torch.stack([torch.abs(t).amax() for t in tensors]).amax()
    if norm_type == 2.0:
        return torch.sqrt(torch.stack([(t * t).sum() for t in tensors]).sum())
    return torch.pow(torch.stack([torch.pow(torch.abs(t), norm_type).sum() for t in tensors]).sum(), 1.0 / norm_type)


@functional
def _scaled(tensors: Sequence[Tensor], total: Tensor, max_norm: Number) -> tuple[Tensor, ...]:
    """Each tensor times min(1, max_norm / (total + 1e-6)); the 1e-6 is PyTorch's."""
    factor = (max_norm / (total + 1e-6)).clamp(max=1.0)
    return tuple(t * factor.to(t.dtype) for t in tensors)


@functional
def _clamped(tensors: Sequence[Tensor], bound: float) -> tuple[Tensor, ...]:
    return tuple(t.clamp(-bound, bound) for t in tensors)


def get_total_norm(tensors: Parameters, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None) -> Tensor:
    """The p-norm of all elements of all tensors, 0-d."""
    items = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    norm_type = float(norm_type)
    if not items:
        return torch.tensor(0.0)
    with torch.no_grad():
        total = _total_norm(items, norm_type)
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be clipped. "
            "To disable this error and scale the gradients by the non-finite norm anyway, set `error_if_nonfinite=False`"
        )
    return total


def clip_grads_with_norm_(parameters: Parameters, max_norm: float, total_norm: Tensor, foreach: bool | None = None) -> None:
    """Scale gradients in place by max_norm / total_norm, where that is below 1."""
    grads = _gradients(parameters)
    bound = float(max_norm)
    if grads:
        with torch.no_grad():
            overwrite(grads, _scaled(grads, total_norm, bound))


def clip_grad_norm_(
    parameters: Parameters, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:  # fmt: skip
    """Scale all gradients in place so that their total norm is `max_norm` at most; the norm before is returned (0-d)."""
    items = _listed(parameters)
    total = get_total_norm(_gradients(items), norm_type, error_if_nonfinite)
    clip_grads_with_norm_(items, max_norm, total)
    return total


def clip_grad_norm(*args: object, **kwargs: object) -> Tensor:
    """The old name of clip_grad_norm_."""
    warn_here(
        "`torch.nn.utils.clip_grad_norm` is now deprecated in favor of `torch.nn.utils.clip_grad_norm_`.",
        FutureWarning,
    )
    return clip_grad_norm_(*args, **kwargs)  # type: ignore[arg-type]


def clip_grad_value_(parameters: Parameters, clip_value: float, foreach: bool | None = None) -> None:
    """Clamp all gradients in place to [-clip_value, clip_value]."""
    bound = float(clip_value)
    grads = _gradients(parameters)
    if grads:
        with torch.no_grad():
            overwrite(grads, _clamped(grads, bound))
