"""Scans along a dim: every operation, dtype and layout against the reference; the same bits for any split."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau import dtypes
from tests.kernels.move_runner import LAYOUTS, Move, close, numbers

SHAPES = [(), (1,), (37,), (3, 50), (50, 70), (3, 20, 5), (2, 3, 100), (4, 1, 6), (300, 2)]
KINDS = {
    "cumsum": [d for d in dtypes.ALL if d is not dtypes.bool_],
    "cumprod": [d for d in dtypes.ALL if d is not dtypes.bool_],
    "cummax": [d for d in dtypes.ALL if not d.is_complex and d is not dtypes.bool_],
    "cummin": [d for d in dtypes.ALL if not d.is_complex and d is not dtypes.bool_],
    "logcumsumexp": [d for d in dtypes.ALL if d.is_floating_point],
}


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(SHAPES), st.sampled_from(sorted(KINDS)), st.data())
def test_scan(shape: tuple[int, ...], op: str, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    d = data.draw(st.sampled_from(KINDS[op]))
    dim = data.draw(st.integers(0, max(len(shape) - 1, 0)))
    if op == "cumprod" and shape and shape[dim] > 60:
        return  # long products leave the range of the narrow types, sooner in float32 than in the reference's float64
    special = 0.1 if op in ("cummax", "cummin") else 0.0
    x = numbers(rng, shape, d, special)
    outputs = [(shape, d), (shape, dtypes.int64)] if op in ("cummax", "cummin") else [(shape, d)]
    if not shape and op != "cumsum":
        return  # NumPy's accumulate has no 0-d meaning; cumsum and cumprod of one number are the same code
    m = Move(op, [(x, d, data.draw(st.sampled_from(LAYOUTS)))], outputs, dim=dim)
    got, want = m.run(), m.expected()
    assert close(got[0], want[0], d, 0.0 if op in ("cummax", "cummin") else 20.0)
    if len(got) == 2:
        assert np.array_equal(got[1], want[1])
    assert all(a.tobytes() == b.tobytes() for a, b in zip(got, m.run(3), strict=True))


@pytest.mark.parametrize("op", ["cumsum", "cumprod", "logcumsumexp"])
@pytest.mark.parametrize("shape,dim", [((2000,), 0), ((30, 70), 0), ((30, 70), 1)])
def test_scan_agrees_with_pytorch(op: str, shape: tuple[int, ...], dim: int) -> None:
    """float32 results are those of a double accumulator, rounded: PyTorch's, but for the last place of a few."""
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    got = Move(op, [(x, dtypes.float32, "contiguous")], [(shape, dtypes.float32)], dim=dim).run()[0]
    want = getattr(torch, op)(torch.from_numpy(x), dim).numpy()
    assert np.allclose(got, want, rtol=3e-7, atol=1e-6)
    assert (got == want).mean() > 0.99


@pytest.mark.parametrize("start", [-np.inf, np.inf, 0.0])
def test_logcumsumexp_of_infinities(start: float) -> None:
    x = np.array([start, -np.inf, -np.inf, 1.0, np.inf, 2.0, np.nan, 0.0], np.float32)
    m = Move("logcumsumexp", [(x, dtypes.float32, "contiguous")], [((8,), dtypes.float32)], dim=0)
    assert close(m.run()[0], m.expected()[0], dtypes.float32, 2.0)
