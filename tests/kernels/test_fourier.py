"""Fourier transforms: every length, kind, layout and dtype against NumPy; errors against long double and PyTorch; the same bits on any number of threads."""

from __future__ import annotations

import math
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as ft
from flambeau.compiler.kernel import Table
from flambeau.compiler.kernels import fourier_tables as tables
from flambeau.compiler.tables import memory

EPSILON = {"float32": 2.0**-23, "float64": 2.0**-52}
LONG = [1 << 15, 3 << 14, 6000, 10007, 2 * 5003, 5**6]  # two passes over a temporary, or a convolution of such
LENGTHS = st.one_of(st.integers(1, 200), st.sampled_from([2**k for k in range(8, 13)] + [243, 1000, 1009, 1331, 2 * 499, 4095]))


def numbers(seed: int, shape: tuple[int, ...], real: str, whole: bool) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    return x.astype(real) if whole else (x + 1j * rng.normal(size=shape)).astype("complex64" if real == "float32" else "complex128")


def close(got: Any, want: Any, real: str, n: int) -> bool:
    got = np.asarray(got)
    size = np.sqrt((np.abs(want) ** 2).mean()) if want.size else 0.0
    return bool(got.shape == want.shape and (not want.size or np.abs(got - want).max() <= 4 * EPSILON[real] * (1 + math.log2(n)) * max(size, 1e-300) * 2))


@settings(max_examples=200, deadline=None)
@given(LENGTHS, st.sampled_from(["fft", "ifft", "rfft", "irfft", "real fft", "real ifft"]), st.sampled_from(["float32", "float64"]), st.data())
def test_every_length_layout_and_kind(n: int, kind: str, real: str, data: st.DataObject) -> None:
    """Dims in any order in memory, some repeated; from one signal to several vectors of them."""
    most = max(1, min(40, 40_000 // n))
    others = data.draw(st.lists(st.sampled_from([1, 2, 3, 5, most]), max_size=2))
    dim = data.draw(st.integers(0, len(others)))
    points = n // 2 + 1 if kind == "irfft" else n
    shape = (*others[:dim], points, *others[dim:])
    order = data.draw(st.permutations(range(len(shape))))
    x = numbers(n, tuple(shape[d] for d in order), real, kind in ("rfft", "real fft", "real ifft"))
    back = np.argsort(order)
    given_, x = ft.from_numpy(x).permute(*back.tolist()), x.transpose(back)
    if data.draw(st.booleans()):
        given_, x = given_.unsqueeze(0).expand(2, *shape), np.broadcast_to(x, (2, *shape))
        dim += 1
    name = kind.split()[-1]
    norm = data.draw(st.sampled_from([None, "ortho", "forward"]))
    arguments = (n, dim, norm)
    with np.errstate(all="ignore"):
        wide = x.astype("float64" if x.dtype.kind == "f" else "complex128")
        want = getattr(np.fft, name)(wide, *arguments)
    assert close(getattr(ft.fft, name)(given_, *arguments), want, real, n)


@pytest.mark.parametrize("n", LONG)
def test_long_signals(n: int) -> None:
    for real in ("float32", "float64"):
        for batch in ((), (2,)):
            x, whole = numbers(n, (*batch, n), real, False), numbers(n + 1, (*batch, n), real, True)
            half = x[..., : n // 2 + 1]
            assert close(ft.fft.fft(ft.from_numpy(x)), np.fft.fft(x.astype(complex)), real, n)
            assert close(ft.fft.ifft(ft.from_numpy(x)), np.fft.ifft(x.astype(complex)), real, n)
            assert close(ft.fft.rfft(ft.from_numpy(whole)), np.fft.rfft(whole.astype(float)), real, n)
            assert close(ft.fft.irfft(ft.from_numpy(half.copy()), n), np.fft.irfft(half.astype(complex), n), real, n)


def _exact(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The definition, in long double."""
    n = x.shape[-1]
    w = tables.roots(np.arange(n), n, "longdouble")
    place = np.multiply.outer(np.arange(n), np.arange(n)) % n
    return x.astype(np.clongdouble) @ (w[:, 0] + 1j * w[:, 1])[place]


@pytest.mark.parametrize("real", ["float32", "float64"])
def test_errors_are_not_greater_than_those_of_pytorch(real: str) -> None:
    """In the mean over lengths; of single short lengths up to 1.4 times, where each rounding counts."""
    torch = pytest.importorskip("torch")
    if real == "float64" and np.finfo(np.longdouble).eps > 1e-18:
        pytest.skip("no wider type than float64 here")
    ratios = []
    for n in (4, 5, 9, 16, 25, 30, 49, 64, 97, 100, 101, 127, 128, 162, 211, 256, 360, 499):
        x = numbers(n, (20, n), real, False)
        want = _exact(x)
        found = [np.asarray(m.fft.fft(m.from_numpy(x))) for m in (ft, torch)]
        ours, theirs = (float(np.sqrt((np.abs(y - want) ** 2).mean())) for y in found)
        ratios.append(ours / theirs)
    assert math.exp(float(np.mean(np.log(ratios)))) < 1.0 and max(ratios) < 1.4, ratios


def test_bits_do_not_depend_on_threads() -> None:
    before = ft.get_num_threads()
    try:
        for shape in ((100, 384), (40, 1009), (1, 1 << 15), (3, 30, 50)):
            x = ft.from_numpy(numbers(0, shape, "float32", False))
            found = []
            for threads in (1, 2, 3):
                ft.set_num_threads(threads)
                found.append(np.asarray(ft.fft.fftn(x, dim=(-2, -1))).tobytes())
            assert len(set(found)) == 1
    finally:
        ft.set_num_threads(before)


def test_a_signal_does_not_depend_on_those_beside_it() -> None:
    """NaN and infinities stay in their rows."""
    x = numbers(0, (37, 96), "float32", False)
    clean = np.asarray(ft.fft.fft(ft.from_numpy(x)))
    x[5], x[20] = np.nan, np.inf
    spoiled = np.asarray(ft.fft.fft(ft.from_numpy(x)))
    rest = [i for i in range(37) if i not in (5, 20)]
    assert spoiled[rest].tobytes() == clean[rest].tobytes() and np.isnan(spoiled[5]).all()


def test_a_new_length_compiles_nothing() -> None:
    from flambeau.runtime import jit

    x = numbers(0, (20, 640), "float32", False)
    ft.fft.fft(ft.from_numpy(x[:, :60].copy())).sum().item()
    before = set(jit._addresses)
    for n in (61, 72, 85, 96, 110, 128, 343):
        np.asarray(ft.fft.fft(ft.from_numpy(x[:, :n].copy())))
    assert {key for key in set(jit._addresses) - before if "fourier" in str(key)} == set()


# -- tables -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("n", [1, 2, 3, 8, 12, 100, 1023, 1024])
def test_roots_are_rounded_once(n: int) -> None:
    mpmath = pytest.importorskip("mpmath")
    mpmath.mp.dps = 40
    places = np.arange(-3, 2 * n, max(1, n // 40))
    for real in ("float32", "float64"):
        for k, pair in zip(places.tolist(), tables.roots(places, n, real), strict=True):
            exact = mpmath.expjpi(-mpmath.mpf(2 * k) / n)
            for got, want in zip(pair.tolist(), (exact.real, exact.imag), strict=True):
                assert abs(got - want) <= 0.51 * float(np.spacing(np.dtype(real).type(abs(float(want))))) + 1e-25


@settings(deadline=None)
@given(st.integers(1, 100_000))
def test_radices_and_lengths(n: int) -> None:
    found = tables.radices(n)
    assert (found is None) == (max(_primes(n), default=1) > tables.LARGEST_RADIX)
    assert found is None or math.prod(found) == n
    length = tables.convolution_length(n)
    assert length >= 2 * n - 1 and max(_primes(length), default=1) <= 5
    assert length < 2 * (2 * n - 1)
    parts = tables.split(n)
    assert parts is None or (parts[0] * parts[1] == n and 1 < parts[0] <= parts[1])


def _primes(n: int) -> list[int]:
    found, p = [], 2
    while p * p <= n:
        while n % p == 0:
            found.append(p)
            n //= p
        p += 1
    return found + [n] * (n > 1)


def test_tables_are_shared_aligned_and_freed() -> None:
    name = Table("stages", (96, "float64"))
    first = memory(name)
    assert memory(Table("stages", (96, "float64"))) is first and first.address % 64 == 0
    gone = weakref.ref(first)
    del first
    assert gone() is None
