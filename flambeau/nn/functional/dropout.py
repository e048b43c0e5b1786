"""Dropout in its forms, over a counter-based stream: reproducible from the seed, independent of the number of threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import flambeau as torch
from flambeau.nn.functional.engine import Number, Tensor, functional, primitives, replace
from flambeau.ops.random import next_stream


def _keep(seed: Number, offset: Number, shape: Sequence[int], p: float) -> Tensor:
    """A bool mask that is true with probability 1 - p."""
    return primitives().random_uniform(seed, offset, shape=tuple(shape)) >= p  # type: ignore[no-any-return]


@functional
def _dropout(input: Tensor, seed: Number, offset: Number, p: float, dims: int) -> Tensor:
    """Zero with probability p, scale what stays by 1 / (1 - p); the mask spans the first `dims` dimensions."""
    shape = tuple(input.shape[:dims]) + (1,) * (input.ndim - dims)
    if p == 1.0:
        return input * 0
    return torch.where(_keep(seed, offset, shape, p), input * (1.0 / (1.0 - p)), 0)


@functional
def _alpha_dropout(input: Tensor, seed: Number, offset: Number, p: float, dims: int) -> Tensor:
    """Dropout that keeps mean and variance of SELU activations. Klambauer et al., 2017."""
    shape = tuple(input.shape[:dims]) + (1,) * (input.ndim - dims)
    if p == 1.0:
        return input * 0
    alpha = 1.7580993408473766  # minus the limit of SELU at minus infinity: its scale times its alpha
    a = 1.0 / ((alpha * alpha * p + 1) * (1 - p)) ** 0.5
    keep = _keep(seed, offset, shape, p)
    return torch.where(keep, input * a + alpha * a * p, -alpha * a * (1 - p))


def _check(p: float) -> None:
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """While training, zero each element with probability p and divide the others by 1 - p."""
    return _apply(_dropout, input, p, training, inplace, input.ndim)


def _apply(function: Callable[..., Tensor], input: Tensor, p: float, training: bool, inplace: bool, dims: int) -> Tensor:
    _check(p)
    if not training or p == 0.0:
        return input
    seed, offset = next_stream(input.numel())
    if inplace:
        return replace(function, input, (seed, offset, p, dims), {}, function.__name__.lstrip("_") + "_")
    return function(input, seed, offset, p, dims)


def _channels(name: str, input: Tensor, p: float, training: bool, inplace: bool, unbatched: int) -> Tensor:
    """Whole channels: the mask spans batch and channel (only the channel for an input without a batch)."""
    if input.ndim not in (unbatched, unbatched + 1):
        raise RuntimeError(
            f"{name}: Expected {unbatched}D or {unbatched + 1}D input, but received a {input.ndim}D input of shape "
            f"{tuple(input.shape)}"
        )
    return _apply(_dropout, input, p, training, inplace, 1 if input.ndim == unbatched else 2)


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero whole channels of (N, C, L) or (C, L)."""
    return _channels("dropout1d", input, p, training, inplace, 2)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero whole channels of (N, C, H, W); as in PyTorch the first two dimensions share the mask, also of a 3-D input."""
    return _apply(_dropout, input, p, training, inplace, min(2, input.ndim))


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero whole channels of (N, C, D, H, W) or (C, D, H, W)."""
    return _channels("dropout3d", input, p, training, inplace, 4)


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout for SELU networks."""
    return _apply(_alpha_dropout, input, p, training, inplace, input.ndim)


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Alpha dropout of whole channels."""
    return _apply(_alpha_dropout, input, p, training, inplace, min(2, input.ndim))


__all__ = ["alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"]
