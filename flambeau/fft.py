"""torch.fft: discrete Fourier transforms. The functions are in ops/fft.py."""

from __future__ import annotations

from typing import Any

from flambeau.ops.fft import (
    fft,
    fft2,
    fftfreq,
    fftn,
    fftshift,
    hfft,
    hfft2,
    hfftn,
    ifft,
    ifft2,
    ifftn,
    ifftshift,
    ihfft,
    ihfft2,
    ihfftn,
    irfft,
    irfft2,
    irfftn,
    rfft,
    rfft2,
    rfftfreq,
    rfftn,
)
from flambeau.tensor import Tensor as Tensor

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "hfft2", "hfftn", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft", "ihfft2",
    "ihfftn", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    from flambeau.names import otherwise

    return otherwise("torch.fft", name, __all__)


from flambeau.documentation import document as _document  # noqa: E402
from flambeau.ops.guard import guard as _guard  # noqa: E402 - all public names are there now

_guard("fft", globals())
_document("torch.fft", globals())
