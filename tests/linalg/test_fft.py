"""torch.fft: values, gradients and gradients of gradients against PyTorch, for every norm, length and dim."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as ft
from tests.ops.oracle import check, compare

torch = pytest.importorskip("torch")


def numbers(*shape: int, kind: str = "float64") -> np.ndarray:
    generator = np.random.default_rng(0)
    x = generator.normal(size=shape)
    return (x + 1j * generator.normal(size=shape) if kind.startswith("complex") else x).astype(kind)


def hermitian(name: str) -> str:
    """The dtype of the usual argument."""
    return "float64" if name.startswith(("rfft", "ihfft")) else "complex128"


ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
MANY = ("fftn", "ifftn", "rfftn", "irfftn", "hfftn", "ihfftn")
TWO = ("fft2", "ifft2", "rfft2", "irfft2", "hfft2", "ihfft2")


@pytest.mark.parametrize("norm", [None, "forward", "backward", "ortho"])
@pytest.mark.parametrize("name", ONE)
def test_one_dim(name: str, norm: str | None) -> None:
    for n, dim in ((None, -1), (4, 1), (5, -1), (9, 0)):
        check(lambda m, x, n=n, d=dim: getattr(m.fft, name)(x, n, d, norm), [numbers(3, 6, kind=hermitian(name))], strides=False)


@pytest.mark.parametrize("norm", [None, "forward", "ortho"])
@pytest.mark.parametrize("name", MANY)
def test_all_dims(name: str, norm: str | None) -> None:
    for s, dim in ((None, None), ((4, 5), None), (None, (0, 2)), ((3, 7), (2, 0)), ((-1, 4), (1, 2))):
        check(lambda m, x, s=s, d=dim: getattr(m.fft, name)(x, s, d, norm), [numbers(2, 3, 6, kind=hermitian(name))], strides=False)


@pytest.mark.parametrize("name", TWO)
def test_two_dims(name: str) -> None:
    check(lambda m, x: getattr(m.fft, name)(x), [numbers(2, 3, 5, kind=hermitian(name))], strides=False)
    check(lambda m, x: getattr(m.fft, name)(x, dim=(1, 0)), [numbers(2, 3, 5, kind=hermitian(name))], strides=False)


@pytest.mark.parametrize("name", ["fft", "ifft", "fftn", "irfft", "hfft"])
def test_real_arguments_of_complex_transforms(name: str) -> None:
    check(lambda m, x: getattr(m.fft, name)(x), [numbers(3, 6)], strides=False)


def test_chains() -> None:
    """Real to complex to real, as spectral losses and convolutions by FFT have it."""
    x, y = numbers(2, 8), numbers(8)
    check(lambda m, a: m.fft.rfft(a).abs(), [x], strides=False)
    check(lambda m, a: (m.fft.rfft(a).abs() ** 2 + 1).log().mean(), [x], strides=False)
    check(lambda m, a, b: m.fft.irfft(m.fft.rfft(a, 16) * m.fft.rfft(b, 16), 16), [x, y], strides=False)
    check(lambda m, a: m.fft.fft(a).angle().sin(), [x], strides=False, second=False)
    check(lambda m, a: m.view_as_real(m.fft.fft2(a)), [x], strides=False)
    check(lambda m, a: m.fft.ifft(m.fft.fft(a)).real, [x], strides=False)


def test_dtypes() -> None:
    for kind in ("float32", "complex64"):
        compare(ft.fft.fft(ft.tensor(numbers(7, kind=kind))), torch.fft.fft(torch.tensor(numbers(7, kind=kind))), 1e-5)
    compare(ft.fft.rfft(ft.arange(6)), torch.fft.rfft(torch.arange(6)), 1e-5)
    compare(ft.fft.fft(ft.tensor([True, False])), torch.fft.fft(torch.tensor([True, False])), 1e-5)
    assert tuple(ft.fft.fft(ft.zeros(0, 4)).shape) == (0, 4)
    assert tuple(ft.fft.irfft(ft.zeros(0, 4)).shape) == (0, 6)
    compare(ft.fft.fft(ft.tensor(numbers(4, 6)).t(), dim=0), torch.fft.fft(torch.tensor(numbers(4, 6)).t(), dim=0), strides=False)


def test_helpers() -> None:
    for n in (1, 4, 5):
        compare(ft.fft.fftfreq(n, 0.5), torch.fft.fftfreq(n, 0.5), 1e-6)
        compare(ft.fft.rfftfreq(n, d=2.0, dtype=ft.float64), torch.fft.rfftfreq(n, d=2.0, dtype=torch.float64))
    for x in (numbers(5), numbers(4, 3)):
        for dim in (None, 0, (0,)):
            check(lambda m, a, d=dim: m.fft.fftshift(a, d), [x])
            check(lambda m, a, d=dim: m.fft.ifftshift(a, d), [x])


CASES: dict[str, tuple[Any, str]] = {
    "points": (lambda m: m.fft.fft(m.ones(3), 0), "Invalid number of data points"),
    "irfft of one": (lambda m: m.fft.irfft(m.ones(1)), "Invalid number of data points"),
    "norm": (lambda m: m.fft.fft(m.ones(3), norm="x"), "Invalid normalization mode"),
    "complex": (lambda m: m.fft.rfft(m.ones(3, dtype=m.complex64)), "expects a real input"),
    "half": (lambda m: m.fft.fft(m.ones(3, dtype=m.float16)), "Half"),
    "unique": (lambda m: m.fft.fftn(m.ones(3, 3), dim=(0, 0)), "unique"),
    "lengths": (lambda m: m.fft.fftn(m.ones(3, 3), s=(2,), dim=(0, 1)), "same length"),
    "too many": (lambda m: m.fft.fftn(m.ones(3), s=(2, 2)), "only has 1 dimensions"),
}


@pytest.mark.parametrize("name", CASES)
def test_errors(name: str) -> None:
    call, words = CASES[name]
    with pytest.raises(RuntimeError):
        call(torch)
    with pytest.raises(RuntimeError, match=words):
        call(ft)
