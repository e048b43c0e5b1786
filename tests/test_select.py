"""Results whose size depends on the data, against NumPy: nonzero, masked_select, unique, bincount, histc, repeats."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from flambeau import dtypes
from flambeau.runtime import select
from flambeau.runtime.buffers import Buffer
from tests import reference

Array = np.ndarray[Any, Any]
SHAPES = [(0,), (1,), (100,), (7, 33), (3, 4, 50), (), (2, 0, 3), (1000,), (5, 1, 17)]


def content(b: Buffer, shape: tuple[int, ...], kind: Any) -> Array:
    """The buffer as an array; it must have exactly that size."""
    out = np.empty(shape, kind)
    assert b.nbytes == out.nbytes
    ctypes.memmove(out.ctypes.data, b.address, b.nbytes)
    return out


def memory(x: Array, d: dtypes.dtype) -> Array:
    """Whole numbers as they are in memory."""
    if d is dtypes.bfloat16:
        return reference.to_bfloat16(x.astype(np.float32)).reshape(x.shape)
    return np.ascontiguousarray(x.astype(d.numpy_name)).reshape(x.shape)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("d", dtypes.ALL, ids=str)
def test_nonzero_and_masked_select(shape: tuple[int, ...], d: dtypes.dtype) -> None:
    rng = np.random.default_rng(len(shape))
    x = memory(rng.integers(0, 3, shape), d)
    at, n = select.nonzero(x.ctypes.data, d, shape)
    want = np.argwhere(x)
    assert n == len(want) == select.count_nonzero(x.ctypes.data, d, x.size)
    assert np.array_equal(content(at, (len(shape), n), np.int64).T, want)  # column by column, as PyTorch's
    mask = np.asarray(rng.random(shape) < 0.4)
    chosen, n = select.masked_rows(x.ctypes.data, mask.ctypes.data, d.itemsize, x.size)
    assert np.array_equal(content(chosen, (n,), x.dtype), x[mask])


def test_nonzero_sees_nan_and_imaginary_parts() -> None:
    x = np.array([0.0, np.nan, -0.0, 1e-45], np.float32)
    assert select.count_nonzero(x.ctypes.data, dtypes.float32, 4) == 2
    z = np.array([0, 1j, 1, 0], np.complex64)
    assert select.count_nonzero(z.ctypes.data, dtypes.complex64, 4) == 2


@pytest.mark.parametrize("rows", [0, 1, 2, 63, 64, 65, 1000])
@pytest.mark.parametrize("d", [d for d in dtypes.ALL if not d.is_complex and d is not dtypes.bfloat16], ids=str)
def test_unique(rows: int, d: dtypes.dtype) -> None:
    x = memory(np.random.default_rng(rows).integers(-20 if d.is_signed else 0, 20, rows), d)
    u = select.unique(x.ctypes.data, d, rows)
    values, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
    assert np.array_equal(content(u.values, (u.n,), x.dtype), values)
    assert np.array_equal(content(u.inverse, (rows,), np.int64), inverse)
    assert np.array_equal(content(u.counts, (u.n,), np.int64), counts)


@pytest.mark.parametrize("columns", [1, 2, 5])
@pytest.mark.parametrize("consecutive", [False, True])
def test_unique_rows(columns: int, consecutive: bool) -> None:
    x = np.random.default_rng(columns).integers(-1, 2, (200, columns)).astype(np.float32)
    rows = x.tolist()
    if consecutive:
        u = select.unique_consecutive(x.ctypes.data, dtypes.float32, 200, columns)
        want = [r for i, r in enumerate(rows) if not i or r != rows[i - 1]]
    else:
        u = select.unique(x.ctypes.data, dtypes.float32, 200, columns)
        want = sorted({tuple(r): r for r in rows}.values())
    values = content(u.values, (u.n, columns), np.float32)
    inverse, counts = content(u.inverse, (200,), np.int64), content(u.counts, (u.n,), np.int64)
    assert values.tolist() == want
    assert values[inverse].tolist() == rows
    assert np.array_equal(counts, np.bincount(inverse, minlength=u.n))


def test_every_nan_is_unique_and_zeros_are_one() -> None:
    x = np.array([np.nan, 0.0, -0.0, np.nan, 1.0], np.float64)
    u = select.unique(x.ctypes.data, dtypes.float64, 5)
    assert np.array_equal(content(u.values, (4,), np.float64), [0.0, 1.0, np.nan, np.nan], equal_nan=True)
    assert content(u.counts, (4,), np.int64).tolist() == [2, 1, 1, 1]


@pytest.mark.parametrize("minlength", [0, 10, 80])
def test_bincount(minlength: int) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.integers(0, 50, 1000), rng.random(1000)
    counts, n = select.bincount(x.ctypes.data, 1000, minlength)
    assert np.array_equal(content(counts, (n,), np.int64), np.bincount(x, minlength=minlength))
    sums, n = select.bincount(x.ctypes.data, 1000, minlength, w.ctypes.data, dtypes.float64)
    assert np.array_equal(content(sums, (n,), np.float64), np.bincount(x, w, minlength))
    assert select.bincount(x.ctypes.data, 0, minlength)[1] == minlength
    x[3] = -1
    with pytest.raises(RuntimeError, match="non-negative"):
        select.bincount(x.ctypes.data, 1000)


@pytest.mark.parametrize("d", [dtypes.float32, dtypes.float64], ids=str)
@pytest.mark.parametrize("bins,low,high", [(1, 0.0, 1.0), (7, -0.3, 0.77), (100, -3.0, 3.0)])
def test_histogram(d: dtypes.dtype, bins: int, low: float, high: float) -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(bins).standard_normal(50_000).astype(d.numpy_name)
    x[:4] = low, high, np.nan, np.inf
    got = content(select.histogram(x.ctypes.data, d, x.size, bins, low, high), (bins,), x.dtype)
    assert np.array_equal(got, torch.histc(torch.from_numpy(x), bins, low, high).numpy())


def test_repeat_interleave() -> None:
    repeats = np.random.default_rng(0).integers(0, 5, 100)
    indices, n = select.repeat_interleave(repeats.ctypes.data, 100)
    assert np.array_equal(content(indices, (n,), np.int64), np.repeat(np.arange(100), repeats))
    assert select.repeat_interleave(repeats.ctypes.data, 0)[1] == 0
    repeats[7] = -1
    with pytest.raises(RuntimeError, match="negative"):
        select.repeat_interleave(repeats.ctypes.data, 100)
