"""Short-time Fourier transforms and their inverse: values, gradients, errors against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as ft
from tests.ops.oracle import check

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")

SIGNAL = np.random.default_rng(0).normal(size=(2, 64))
WINDOW = np.hanning(17)[:16] + 0.1
CASES: dict[str, Any] = {
    "plain": lambda m, x, w: m.stft(x, 16, return_complex=True),
    "window": lambda m, x, w: m.stft(x, 16, 4, window=w, return_complex=True),
    "short window, pairs": lambda m, x, w: x.stft(20, 4, 16, window=w, return_complex=False, normalized=True, center=False),
    "two-sided": lambda m, x, w: m.stft(x[0], 16, 5, window=w, return_complex=True, onesided=False, pad_mode="constant"),
    "inverse": lambda m, x, w: m.istft(m.stft(x, 16, 4, window=w, return_complex=True), 16, 4, window=w),
    "inverse, shorter": lambda m, x, w: m.istft(m.stft(x, 16, 4, window=w, return_complex=True), 16, 4, window=w, length=60),
    "inverse, longer": lambda m, x, w: m.istft(m.stft(x, 16, 4, window=w, return_complex=True), 16, 4, window=w, length=80),
    "inverse, short window": lambda m, x, w: m.istft(
        m.stft(x, 20, 4, 16, window=w, return_complex=True, normalized=True), 20, 4, 16, window=w, normalized=True
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_real(name: str) -> None:
    check(CASES[name], [SIGNAL, WINDOW], strides=False)


def test_complex() -> None:
    x = SIGNAL + 1j * SIGNAL[::-1]
    check(lambda m, a, w: m.stft(a, 16, 5, window=w), [x, WINDOW], strides=False)
    check(lambda m, a, w: m.istft(m.stft(a[0], 16, 4, window=w), 16, 4, window=w, return_complex=True), [x, WINDOW], strides=False)


def test_the_inverse_gives_the_signal_back() -> None:
    x, w = ft.tensor(SIGNAL), ft.hann_window(16, dtype=ft.float64)
    back = ft.istft(ft.stft(x, 16, 4, window=w, return_complex=True), 16, 4, window=w, length=64)
    np.testing.assert_allclose(back.numpy(), SIGNAL, atol=1e-12)


ERRORS: dict[str, tuple[Any, str]] = {
    "return_complex": (lambda m: m.stft(m.ones(32), 16), "return_complex"),
    "hop": (lambda m: m.stft(m.ones(32), 16, 0, return_complex=True), "hop_length > 0"),
    "window": (lambda m: m.stft(m.ones(32), 16, window=m.ones(15), return_complex=True), "window"),
    "length": (lambda m: m.stft(m.ones(8), 16, center=False, return_complex=True), "n_fft"),
    "onesided": (lambda m: m.stft(m.ones(32, dtype=m.complex64), 16, onesided=True), "onesided"),
    "real spectrum": (lambda m: m.istft(m.ones(9, 4), 16), "complex"),
    "vanishing window": (lambda m: m.istft(m.ones(9, 4, dtype=m.complex64), 16, window=m.zeros(16)), "window overlap add min"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    call, words = ERRORS[name]
    with pytest.raises(RuntimeError):
        call(torch)
    with pytest.raises(RuntimeError, match=words):
        call(ft)
