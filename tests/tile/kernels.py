"""Kernels of the tests: written for them, in the shapes that users' kernels have."""

from __future__ import annotations

import flambeau.tile as tl


@tl.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@tl.jit
def softmax(out, x, row_step, rows, columns, BLOCK: tl.constexpr):
    start, step = tl.program_id(0), tl.num_programs(0)
    for row in tl.range(start, rows, step):
        at = tl.arange(0, BLOCK)
        inside = at < columns
        values = tl.load(x + row * row_step + at, mask=inside, other=-float("inf"))
        powers = tl.exp(values - tl.max(values, axis=0))
        tl.store(out + row * row_step + at, powers / tl.sum(powers, axis=0), mask=inside)


@tl.jit
def relu(x):
    return tl.where(x >= 0, x, 0.0)


@tl.jit
def matmul(a, b, c, M, N, K, am, ak, bk, bn, cm, cn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, ACTIVATION: tl.constexpr):
    pid = tl.program_id(axis=0)
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    in_group = GROUP * columns
    group = pid // in_group
    first = group * GROUP
    size = min(rows - first, GROUP)
    pm = first + ((pid % in_group) % size)
    pn = (pid % in_group) // size
    at_m = (pm * BM + tl.arange(0, BM)) % M
    at_n = (pn * BN + tl.arange(0, BN)) % N
    at_k = tl.arange(0, BK)
    pa = a + (at_m[:, None] * am + at_k[None, :] * ak)
    pb = b + (at_k[:, None] * bk + at_n[None, :] * bn)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        left = tl.load(pa, mask=at_k[None, :] < K - k * BK, other=0.0)
        right = tl.load(pb, mask=at_k[:, None] < K - k * BK, other=0.0)
        total = tl.dot(left, right, total)
        pa += BK * ak
        pb += BK * bk
    if ACTIVATION == "relu":
        total = relu(total)
    result = total.to(c.dtype.element_ty)
    to_m = pm * BM + tl.arange(0, BM)
    to_n = pn * BN + tl.arange(0, BN)
    tl.store(c + cm * to_m[:, None] + cn * to_n[None, :], result, mask=(to_m[:, None] < M) & (to_n[None, :] < N))


@tl.jit
def layer_norm(x, y, w, b, mean, scale, step, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x += row * step
    y += row * step
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, n, BLOCK):
        at = off + tl.arange(0, BLOCK)
        total += tl.load(x + at, mask=at < n, other=0.0).to(tl.float32)
    m = tl.sum(total, axis=0) / n
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, n, BLOCK):
        at = off + tl.arange(0, BLOCK)
        v = tl.load(x + at, mask=at < n, other=0.0).to(tl.float32)
        v = tl.where(at < n, v - m, 0.0)
        squares += v * v
    r = 1 / tl.sqrt(tl.sum(squares, axis=0) / n + eps)
    tl.store(mean + row, m)
    tl.store(scale + row, r)
    for off in range(0, n, BLOCK):
        at = off + tl.arange(0, BLOCK)
        inside = at < n
        v = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        result = (v - m) * r * tl.load(w + at, mask=inside) + tl.load(b + at, mask=inside)
        tl.store(y + at, result, mask=inside)


@tl.jit
def attention(q, k, v, out, scale, S, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr):
    start, head = tl.program_id(0), tl.program_id(1)
    base = head * S * D
    at_m = start * BM + tl.arange(0, BM)
    at_d = tl.arange(0, D)
    query = tl.load(q + base + at_m[:, None] * D + at_d[None, :])
    top = tl.full([BM], -float("inf"), dtype=tl.float32)
    weight = tl.full([BM], 0.0, dtype=tl.float32)
    total = tl.zeros([BM, D], dtype=tl.float32)
    end = (start + 1) * BM if CAUSAL else S
    for n in range(0, end, BN):
        at_n = n + tl.arange(0, BN)
        key = tl.load(k + base + at_n[:, None] * D + at_d[None, :])
        scores = tl.dot(query, tl.trans(key)) * scale
        if CAUSAL:
            scores = tl.where(at_m[:, None] >= at_n[None, :], scores, -1.0e6)
        new = tl.maximum(top, tl.max(scores, 1))
        powers = tl.exp(scores - new[:, None])
        alpha = tl.exp(top - new)
        weight = weight * alpha + tl.sum(powers, 1)
        total = total * alpha[:, None]
        value = tl.load(v + base + at_n[:, None] * D + at_d[None, :])
        total = tl.dot(powers.to(value.dtype), value, total)
        top = new
    tl.store(out + base + at_m[:, None] * D + at_d[None, :], (total / weight[:, None]).to(out.dtype.element_ty))
