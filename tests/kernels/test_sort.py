"""sort and topk: stable, NaN the largest, every dtype and layout, short and long rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau import dtypes
from flambeau.compiler.kernels import sort
from tests.kernels.move_runner import LAYOUTS, Move, close, numbers

ORDERED = [d for d in dtypes.ALL if not d.is_complex]
SHAPES = [(), (1,), (40,), (65,), (700,), (3, 50), (4, 90, 3), (2, 1500), (1300, 2), (9000,)]


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(SHAPES), st.sampled_from(ORDERED), st.booleans(), st.data())
def test_sort(shape: tuple[int, ...], d: dtypes.dtype, descending: bool, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    dim = data.draw(st.integers(0, max(len(shape) - 1, 0)))
    x = numbers(rng, shape, d, special=data.draw(st.sampled_from([0.0, 0.3])))
    m = Move("sort", [(x, d, data.draw(st.sampled_from(LAYOUTS)))], [(shape, d), (shape, dtypes.int64)],
             dim=dim, descending=descending)  # fmt: skip
    values, indices = m.run(data.draw(st.sampled_from([1, 2])))
    want_values, want_indices = m.expected()
    assert np.array_equal(indices, want_indices)
    assert close(values, want_values, d, 0.0)


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(SHAPES), st.sampled_from(ORDERED), st.booleans(), st.data())
def test_topk(shape: tuple[int, ...], d: dtypes.dtype, largest: bool, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    dim = data.draw(st.integers(0, max(len(shape) - 1, 0)))
    size = shape[dim] if shape else 1
    k = data.draw(st.sampled_from([0, 1, min(3, size), min(60, size), size])) if shape else 1
    out = tuple(k if i == dim else s for i, s in enumerate(shape))
    x = numbers(rng, shape, d, special=data.draw(st.sampled_from([0.0, 0.3])))
    m = Move("topk", [(x, d, data.draw(st.sampled_from(LAYOUTS)))], [(out, d), (out, dtypes.int64)],
             dim=dim, k=k, largest=largest)  # fmt: skip
    values, indices = m.run()
    want_values, want_indices = m.expected()
    assert np.array_equal(indices, want_indices)
    assert close(values, want_values, d, 0.0)


@pytest.mark.parametrize("largest", [False, True])
def test_topk_of_a_row_that_keeps_improving(largest: bool) -> None:
    """Every element enters the buffer: it is cut again and again."""
    x = np.arange(20000, dtype=np.int32)
    x = x if largest else x[::-1].copy()
    m = Move("topk", [(x, dtypes.int32, "contiguous")], [((10,), dtypes.int32), ((10,), dtypes.int64)],
             dim=0, k=10, largest=largest)  # fmt: skip
    values, indices = m.run()
    assert np.array_equal(values, m.expected()[0]) and np.array_equal(indices, m.expected()[1])


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("kind", ["short range", "full range", "shared heads", "one outlier", "special"])
@pytest.mark.parametrize("d", [dtypes.int64, dtypes.float64], ids=str)
def test_eight_byte_elements(d: dtypes.dtype, kind: str, descending: bool) -> None:
    """The 32 leading bits decide; or neighbours are mended; or (one outlier) the row is sorted by whole keys."""
    rng = np.random.default_rng(len(kind))
    size = 3000
    bits = {
        "short range": rng.integers(1 << 40, (1 << 40) + 500, size),
        "full range": rng.integers(-(1 << 63), (1 << 63) - 1, size),
        "shared heads": (rng.integers(0, 1000, size) << 50) | rng.integers(0, 4, size),
        "one outlier": np.where(np.arange(size) == 7, 1 << 62, rng.integers(0, 1 << 20, size)[::-1]),
        "special": rng.integers(-3, 3, size),
    }[kind]
    x = bits if d is dtypes.int64 else bits.view(np.float64)
    if kind == "special" and d is dtypes.float64:
        x = np.where(bits == 0, np.nan, np.where(bits == 1, -0.0, bits * 1.0))
    m = Move("sort", [(x, d, "contiguous")], [((size,), d), ((size,), dtypes.int64)], dim=0, descending=descending)
    values, indices = m.run()
    want_values, want_indices = m.expected()
    assert np.array_equal(indices, want_indices)
    assert close(values, want_values, d, 0.0)


@pytest.mark.parametrize("layout", ["contiguous", "stepped"])
@pytest.mark.parametrize("d", [dtypes.float32, dtypes.int32, dtypes.float16, dtypes.uint8], ids=str)
def test_one_long_row_on_many_threads(d: dtypes.dtype, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sample sort: the same result, however the units are dealt; few distinct elements do not overfill a bucket."""
    monkeypatch.setattr(sort, "THREADS", 0)
    size = 150_001
    x = numbers(np.random.default_rng(0), (size,), d, special=0.05)
    m = Move("sort", [(x, d, layout)], [((size,), d), ((size,), dtypes.int64)], dim=0, descending=d is dtypes.int32)
    assert [k.name for k in m.kernels] == ["sort_sample", "sort_classify", "sort_deal", "sort_finish"]
    want_values, want_indices = m.expected()
    for splits in (1, 3):
        values, indices = m.run(splits)
        assert np.array_equal(indices, want_indices)
        assert close(values, want_values, d, 0.0)
