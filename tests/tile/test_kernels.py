"""Whole kernels: compiled, interpreted, and against the framework's own functions."""

from __future__ import annotations

import pytest

import flambeau
import flambeau.nn.functional as F
import flambeau.tile as tl
from tests.tile import kernels


@pytest.fixture(params=["compiled", "interpreted"])
def way(request, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_TILE_INTERPRET", "1" if request.param == "interpreted" else "")
    return request.param


def close(a, b, tolerance=1e-5):
    flambeau.testing.assert_close(a.float(), b.float(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("n", [1, 15, 1024, 2500])
def test_add(way, n):
    x, y, out = flambeau.randn(n), flambeau.randn(n), flambeau.full((n + 3,), 7.0)
    kernels.add[lambda meta: (tl.cdiv(n, meta["BLOCK"]),)](x, y, out, n, BLOCK=256)
    assert flambeau.equal(out[:n], x + y)
    assert (out[n:] == 7.0).all()


@pytest.mark.parametrize("columns", [1, 17, 64, 781])
def test_softmax(way, columns):
    x = flambeau.randn(6, columns)
    out = flambeau.empty_like(x)
    kernels.softmax[(3,)](out, x, x.stride(0), 6, columns, BLOCK=tl.next_power_of_2(columns))
    close(out, F.softmax(x, 1), 1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("transposed", [False, True])
def test_matmul(way, dtype, transposed):
    M, N, K = 50, 37, 45
    d = getattr(flambeau, dtype)
    if dtype == "float64":
        d = flambeau.float32
    a, b = flambeau.randn(M, K).to(d), flambeau.randn(K, N).to(d)
    if transposed:
        a, b = a.t().contiguous().t(), b.t().contiguous().t()
    c = flambeau.empty(M, N, dtype=d)
    grid = lambda meta: (tl.cdiv(M, meta["BM"]) * tl.cdiv(N, meta["BN"]),)
    kernels.matmul[grid](
        a, b, c, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), c.stride(0), c.stride(1), BM=32, BN=32, BK=16, GROUP=2, ACTIVATION="relu"
    )
    close(c, F.relu(a.float() @ b.float()), 1e-4 if dtype in ("float32", "float64") else 2e-2)


@pytest.mark.parametrize("n", [64, 100, 300])
def test_layer_norm(way, n):
    x, w, b = flambeau.randn(5, n), flambeau.rand(n), flambeau.rand(n)
    y, mean, scale = flambeau.empty_like(x), flambeau.empty(5), flambeau.empty(5)
    kernels.layer_norm[(5,)](x, y, w, b, mean, scale, n, n, 1e-5, BLOCK=128)
    close(y, F.layer_norm(x, (n,), w, b, 1e-5))
    close(mean, x.mean(1))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_attention(way, causal, dtype):
    q, k, v = (flambeau.randn(2, 64, 16).to(getattr(flambeau, dtype)) for _ in range(3))
    out = flambeau.empty_like(q)
    kernels.attention[(64 // 32, 2)](q, k, v, out, 0.25, 64, D=16, BM=32, BN=16, CAUSAL=causal)
    close(out, F.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=causal, scale=0.25), 1e-5 if dtype == "float32" else 1e-2)


def test_same_bits_compiled_and_interpreted(monkeypatch):
    """Where the order of sums is defined."""
    x = flambeau.randn(4, 1000)
    results = []
    for setting in ("", "1"):
        monkeypatch.setenv("FLAMBEAU_TILE_INTERPRET", setting)
        out, y, mean, scale = flambeau.empty_like(x), flambeau.empty_like(x), flambeau.empty(4), flambeau.empty(4)
        kernels.softmax[(2,)](out, x, 1000, 4, 1000, BLOCK=1024)
        kernels.layer_norm[(4,)](x, y, x[0], x[1], mean, scale, 1000, 1000, 1e-5, BLOCK=256)
        results.append([t.clone() for t in (out, y, mean, scale)])
    for a, b in zip(*results, strict=True):
        assert flambeau.equal(a, b)
