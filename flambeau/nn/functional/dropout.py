"""Dropout in its forms, over the masks of ops/dropout_masks.py: PyTorch's masks for the same seed."""

from __future__ import annotations

from collections.abc import Callable

import flambeau as torch
from flambeau.dtypes import held
from flambeau.nn.functional.engine import Tensor, functional, primitives, replace, root
from flambeau.ops.dropout_masks import kept
from flambeau.ops.promotion import convert
from flambeau.trace.once import warn_here
from flambeau.trace.recorder import Trace, local
from flambeau.trace.strides import like_strides


def kept_scale(p: float, d: torch.dtype) -> Tensor:
    """1 / (1 - p), 0-d, as PyTorch divides: in double for float64, else in float32. Inside a body."""
    if p == 1.0:
        return convert(0.0, d)  # type: ignore[no-any-return]
    if isinstance(p, Tensor):
        wide = torch.float64 if d == torch.float64 else torch.float32
        return convert(primitives().div(convert(1.0, wide), convert(1.0 - p, wide)), d)  # type: ignore[no-any-return]
    return convert(1.0 / (1.0 - p) if d == torch.float64 else held(1.0 / held(1.0 - p, torch.float32), torch.float32), d)  # type: ignore[no-any-return]


def noise(keep: Tensor, p: float, d: torch.dtype) -> Tensor:
    """What dropout multiplies elements of dtype `d` by, inside a body."""
    return torch.where(keep, kept_scale(p, d), convert(0.0, d))


@functional
def _dropout(input: Tensor, keep: Tensor, p: float) -> Tensor:
    """Zero where `keep` is false, scale the rest by 1 / (1 - p)."""
    return input * noise(keep, p, input.dtype)


@functional
def _alpha_dropout(input: Tensor, keep: Tensor, p: float) -> Tensor:
    """Dropout that keeps mean and variance of SELU activations. Klambauer et al., 2017."""
    alpha = 1.7580993408473766  # minus the limit of SELU at minus infinity: its scale times its alpha
    a = 1.0 / root((alpha * alpha * p + 1) * (1 - p))
    mask = keep.to(input.dtype)
    return input * (mask * a) + ((mask - 1) * (alpha * a) + alpha * a * p)


@functional
def _nothing(input: Tensor) -> Tensor:
    return input * 0


def _refusal(d: torch.dtype) -> Exception:
    if d.is_complex:
        return NotImplementedError(f'"bernoulli_scalar_cpu_" not implemented for {d.name}: dropout needs real floating numbers')
    return RuntimeError(f"dropout: result type Float can't be cast to the desired output type {d.name}: give it floating numbers")


def mask_of(input: Tensor, p: float) -> Tensor:
    """Which elements of `input` dropout keeps: drawn in the order of the addresses that a tensor like it has."""
    m = input._meta
    row_major = m.is_contiguous or type(local.trace) is not Trace
    return kept(m.shape, p, None if row_major else like_strides(m.shape, m.strides), device=m.device)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """While training, zero each element with probability p and divide the others by 1 - p."""
    return _apply(_dropout, input, p, training, inplace, False)


def _apply(function: Callable[..., Tensor], input: Tensor, p: float, training: bool, inplace: bool, channels: bool) -> Tensor:
    if not 0.0 <= p <= 1.0:
        raise (ValueError if p == p else RuntimeError)(f"dropout probability has to be between 0 and 1, but got {p}")
    m = input._meta
    if not training or p == 0.0 or not m.numel:
        return input
    if p == 1.0:
        return replace(_nothing, input, (), {}, _in_place_name(function)) if inplace else _nothing(input)
    if not m.dtype.is_floating_point:
        raise _refusal(m.dtype)
    if channels:
        shape = m.shape
        if len(shape) < 2:
            raise RuntimeError(f"Feature dropout requires at least 2 dimensions in the input, got shape {tuple(shape)}")
        keep = kept((*shape[:2], *[1] * (len(shape) - 2)), p, device=input.device)
    else:
        keep = mask_of(input, p)
    return replace(function, input, (keep, p), {}, _in_place_name(function)) if inplace else function(input, keep, p)


def _in_place_name(function: Callable[..., Tensor]) -> str:
    return f"{function.__name__.lstrip('_')}_"


def _channels(input: Tensor, p: float, training: bool, inplace: bool, batched: int) -> Tensor:
    """Whole channels: the mask spans batch and channel (only the channel for an input without a batch)."""
    if input.ndim == batched:
        return _apply(_dropout, input, p, training, inplace, True)
    result = _apply(_dropout, input.unsqueeze(0), p, training, inplace, True)
    return input if inplace else result.squeeze(0)


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero whole channels of (N, C, L) or (C, L)."""
    if input.ndim not in (2, 3):
        raise RuntimeError(f"dropout1d: Expected 2D or 3D input, but received a {input.ndim}D input of shape {tuple(input.shape)}")
    return _channels(input, p, training, inplace, 3)


def _warn(text: str) -> None:
    warn_here(text)


def _warn_of_dims(name: str, ndim: int, spatial: int) -> None:
    _warn(
        f"{name}: Received a {ndim}-D input to {name}, which is deprecated and will result in an error in a future release. To retain the behavior and "
        f"silence this warning, please use dropout instead. Note that {name} exists to provide channel-wise dropout on inputs with {spatial} spatial "
        f"dimensions, a channel dimension, and an optional batch dimension (i.e. {spatial + 1}D or {spatial + 2}D inputs)."
    )


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero whole channels of (N, C, H, W); as in PyTorch the first two dimensions share the mask, also of a 3-D input, with its warning."""
    if input.ndim == 3:
        _warn(
            "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout behavior is desired - input is interpreted as shape "
            "(N, C, L), where C is the channel dim. This behavior will change in a future release to interpret the input as one without a batch dimension, "
            "i.e. shape (C, H, W). To maintain the 1D channel-wise dropout behavior, please switch to using dropout1d instead."
        )
    elif input.ndim != 4:
        _warn_of_dims("dropout2d", input.ndim, 2)
    return channels_dropped(input, p, training, inplace)


def channels_dropped(input: Tensor, p: float, training: bool, inplace: bool = False) -> Tensor:
    """Zero whole channels of (N, C, ...)."""
    return _apply(_dropout, input, p, training, inplace, True)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero whole channels of (N, C, D, H, W) or (C, D, H, W)."""
    if input.ndim not in (4, 5):
        _warn_of_dims("dropout3d", input.ndim, 3)
    return _channels(input, p, training, inplace, 5)


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout for SELU networks."""
    return _apply(_alpha_dropout, input, p, training, inplace, False)


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Alpha dropout of whole channels."""
    return _apply(_alpha_dropout, input, p, training, inplace, True)


__all__ = ["alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"]
