"""Signals: Fourier transforms, windows, mel weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import flambeau
from flambeau.onnx.importing import values
from flambeau.onnx.importing.registry import Call, operator


def _complex(x: Any) -> Any:
    """A complex tensor of one whose last dim has a real part, and an imaginary one or none."""
    return flambeau.complex(x[..., 0].contiguous(), x[..., 1].contiguous() if x.shape[-1] == 2 else flambeau.zeros_like(x[..., 0]))


def _parts(z: Any) -> Any:
    return flambeau.stack([z.real, z.imag], -1)


@operator("DFT")
def dft(n: Call, x: Any, length: Any = None, axis: Any = None) -> Any:
    """A discrete Fourier transform along a dim, forwards or back, of one side or both."""
    at = int(values.number(axis)) if axis is not None else n.get("axis", 1 if n.version < 20 else -2)
    at = at + x.ndim if at < 0 else at
    count = int(values.number(length)) if length is not None else None
    inverse, one = bool(n.get("inverse", 0)), bool(n.get("onesided", 0))
    z = _complex(x.double())  # the format's own tests want zeros where terms cancel: rounded once, at the end
    if inverse:
        if one:
            count = count if count is not None else 2 * (z.shape[at] - 1)
            return flambeau.fft.irfft(z, n=count, dim=at).unsqueeze(-1).to(x.dtype)
        return _parts(flambeau.fft.ifft(z, n=count, dim=at)).to(x.dtype)
    made = flambeau.fft.fft(z, n=count, dim=at)
    return _parts(made.narrow(at, 0, made.shape[at] // 2 + 1) if one else made).to(x.dtype)


@operator("STFT")
def stft(n: Call, x: Any, step: Any, window: Any = None, length: Any = None) -> Any:
    """Fourier transforms of windows of a signal."""
    hop = int(values.number(step))
    size = int(values.number(length)) if length is not None else window.shape[0]
    z = _complex(x) if x.shape[-1] == 2 else x[..., 0] if x.ndim == 3 else x
    frames = z.contiguous().unfold(1, size, hop)
    if window is not None:
        frames = frames * window
    made = flambeau.fft.fft(frames, dim=-1)
    return _parts(made[..., : size // 2 + 1] if n.get("onesided", 1) else made)


def _window(coefficients: list[float]) -> Any:
    def run(n: Call, size: Any) -> Any:
        count = int(values.number(size))
        whole = count if n.get("periodic", 1) else count - 1
        turn = flambeau.arange(count, dtype=flambeau.float64) * (2 * math.pi / whole)
        made: Any = 0.0
        for i, c in enumerate(coefficients):
            made = made + c * flambeau.cos(turn * i)
        return made.to(n.dtype("output_datatype", 1))

    return run


operator("HannWindow")(_window([0.5, -0.5]))
operator("HammingWindow")(_window([25 / 46, -21 / 46]))
operator("BlackmanWindow")(_window([0.42, -0.5, 0.08]))


@operator("MelWeightMatrix")
def mel_weight_matrix(n: Call, bins: Any, length: Any, rate: Any, low: Any, high: Any) -> Any:
    """Triangles over frequencies, evenly spaced on the mel scale."""
    count, size, per_second, first, last = [values.number(v) for v in (bins, length, rate, low, high)]

    def mel(hertz: Any) -> Any:
        return 2595 * np.log10(1 + hertz / 700)

    edges = mel(first) + (mel(last) - mel(first)) / (count + 2) * np.arange(count + 2)
    places = np.floor((size + 1) * (700 * (np.power(10.0, edges / 2595) - 1)) / per_second).astype(int)
    made = np.zeros((size // 2 + 1, count), np.float64)
    for i in range(count):
        left, middle, right = places[i : i + 3]
        if middle == left:
            made[middle, i] = 1
        for j in range(left, middle + 1):
            if middle > left:
                made[j, i] = (j - left) / (middle - left)
        for j in range(middle, right):
            if right > middle:
                made[j, i] = (right - j) / (right - middle)
    return values.own(made).to(n.dtype("output_datatype", 1))
