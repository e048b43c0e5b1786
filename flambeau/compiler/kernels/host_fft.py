"""Host calls: discrete Fourier transforms, by NumPy (pocketfft).

Three kinds, as in FFT libraries: complex to complex, real to half of the spectrum (or all of it), half a spectrum to real.
`scale` says how the result is scaled: "none", "ortho" (1 / sqrt(n)), "full" (1 / n), n the number of transformed points.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]

# NumPy's `norm` of transforms that are not scaled: it would scale, and round, once an axis.
_FORWARD: Final[Any] = "backward"
_BACKWARD: Final[Any] = "forward"


def _scaled(y: Array, scale: str, count: int) -> Array:
    """The transform of so many points, scaled at once."""
    if scale != "none":
        y *= 1 / math.sqrt(count) if scale == "ortho" else 1 / count
    return y


def complex_to_complex(x: Array, axes: tuple[int, ...], forward: bool, scale: str) -> Array:
    """The transform of a complex (or real) array; forward has exp(-i ...)."""
    if x.size == 0:
        return x.astype(np.result_type(x.dtype, np.complex64))
    y = np.fft.fftn(x, axes=axes, norm=_FORWARD) if forward else np.fft.ifftn(x, axes=axes, norm=_BACKWARD)
    return _scaled(y, scale, math.prod([x.shape[d] for d in axes]))


def real_to_complex(x: Array, axes: tuple[int, ...], scale: str) -> Array:
    """The forward transform of a real array: the first n // 2 + 1 points along the last of the axes."""
    if x.size == 0:
        return np.zeros([n // 2 + 1 if d == axes[-1] else n for d, n in enumerate(x.shape)], np.result_type(x.dtype, np.complex64))
    return _scaled(np.fft.rfftn(x, axes=axes, norm=_FORWARD), scale, math.prod([x.shape[d] for d in axes]))


def complex_to_real(x: Array, axes: tuple[int, ...], size: int, scale: str) -> Array:
    """The backward transform of half a spectrum to `size` real points along the last of the axes."""
    if x.size == 0:
        return np.zeros([size if d == axes[-1] else n for d, n in enumerate(x.shape)], x.real.dtype)
    lengths = [size if d == axes[-1] else x.shape[d] for d in axes]
    return _scaled(np.fft.irfftn(x, s=lengths, axes=axes, norm=_BACKWARD), scale, math.prod(lengths))


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "fft_c2c": complex_to_complex,
    "fft_r2c": real_to_complex,
    "fft_c2r": complex_to_real,
}
