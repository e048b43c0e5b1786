"""The extension `fft`: discrete Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau.tensor import Tensor


def _one(name: str) -> Callable[..., Tensor]:
    function = getattr(torch.fft, name)

    def call(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
        return function(x, n, axis, norm)  # type: ignore[no-any-return]

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"`torch.fft.{name}` along an axis."
    return call


def _several(name: str) -> Callable[..., Tensor]:
    function = getattr(torch.fft, name)

    def call(x: Tensor, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Tensor:
        return function(x, s, axes, norm)  # type: ignore[no-any-return]

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"`torch.fft.{name}` over axes."
    return call


fft, ifft, rfft, irfft, hfft, ihfft = (_one(name) for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"))
fftn, ifftn, rfftn, irfftn = (_several(name) for name in ("fftn", "ifftn", "rfftn", "irfftn"))


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of a transform of n samples at steps of d."""
    return torch.fft.fftfreq(n, d, dtype=dtype, device=device)  # type: ignore[no-any-return]


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of a transform of n real samples at steps of d."""
    return torch.fft.rfftfreq(n, d, dtype=dtype, device=device)  # type: ignore[no-any-return]


def fftshift(x: Tensor, /, *, axes: Any = None) -> Tensor:
    """The zero frequency moved to the middle."""
    return torch.fft.fftshift(x, axes)  # type: ignore[no-any-return]


def ifftshift(x: Tensor, /, *, axes: Any = None) -> Tensor:
    """The zero frequency moved back."""
    return torch.fft.ifftshift(x, axes)  # type: ignore[no-any-return]


__all__ = ["fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft", "irfftn", "rfft", "rfftfreq", "rfftn"]
