"""What the primitives `recurrent` and `recurrent_gradient` compute, row by row, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _steps(node: Any, rows: int, batch: int, sizes: Array | None) -> list[tuple[int, int]]:
    """(first row, sequences) of each step, in the order in which they are taken."""
    each = [batch] * (rows // batch) if sizes is None else [int(n) for n in sizes]
    steps = [(sum(each[:t]), n) for t, n in enumerate(each)]
    return steps[::-1] if node.attr("reverse") else steps


def recurrent(node: Any, xs: list[Array], d: Any) -> tuple[Array, ...]:
    """See compiler/graph.py."""
    mode, given = node.attr("mode"), list(xs)
    sizes = given.pop() if node.attr("packed") else None
    wide = [x.astype(np.float64) for x in given]
    gates, h = wide[0], wide[1].copy()
    c = wide[2].copy() if mode == "lstm" else None
    w, bias = wide[3 if mode == "lstm" else 2], wide[-1] if mode == "gru" else 0.0
    hidden = h.shape[1]
    y, all_c, saved = np.zeros((len(gates), hidden)), np.zeros((len(gates), hidden)), np.zeros((len(gates), 4 * hidden))
    for first, count in _steps(node, len(gates), len(h), sizes):
        for b in range(count):
            row = first + b
            x, z = gates[row], w @ h[b] + bias
            if mode == "lstm":
                i, f, n, o = np.split(x + z, 4)
                i, f, n, o = _sigmoid(i), _sigmoid(f), np.tanh(n), _sigmoid(o)
                c[b] = all_c[row] = f * c[b] + i * n
                saved[row] = np.concatenate([i, f, n, o])
                h[b] = o * np.tanh(c[b])
            elif mode == "gru":
                (xr, xu, xn), (hr, hu, hn) = np.split(x, 3), np.split(z, 3)
                r, u = _sigmoid(xr + hr), _sigmoid(xu + hu)
                n = np.tanh(xn + r * hn)
                saved[row] = np.concatenate([r, u, n, hn])
                h[b] = n + u * (h[b] - n)
            else:
                h[b] = np.tanh(x + z) if mode == "tanh" else np.maximum(x + z, 0)
            y[row] = h[b]
    results = [y, h, *[c] * (mode == "lstm")]
    if node.attr("keep"):
        results += [all_c] * (mode == "lstm") + [saved] * (mode in ("lstm", "gru"))
    return tuple(x.astype(xs[0].dtype) for x in results)


def recurrent_gradient(node: Any, xs: list[Array], d: Any) -> tuple[Array, ...]:
    """See compiler/graph.py."""
    mode, given = node.attr("mode"), list(xs)
    sizes = given.pop() if node.attr("packed") else None
    lstm, wide = mode == "lstm", [x.astype(np.float64) for x in given]
    g, dh, dc = wide[0], wide[1].copy(), wide[2].copy() if lstm else None
    y, start, w = wide[2 + lstm], wide[3 + lstm], wide[-1]
    first_c, all_c = (wide[5], wide[6]) if lstm else (None, None)
    rows, hidden = y.shape
    to_gates, to_hidden, before = np.zeros((rows, len(w))), np.zeros((rows, len(w))), np.zeros((rows, hidden))
    steps = _steps(node, rows, len(start), sizes)
    for number in reversed(range(len(steps))):
        first, count = steps[number]
        earlier, known = steps[number - 1] if number else (0, 0)
        for b in range(count):
            row = first + b
            h = y[earlier + b] if b < known else start[b]
            before[row], delta = h, g[row] + dh[b]
            if lstm:
                i, f, n, o = np.split(wide[-2][row], 4)
                c = all_c[earlier + b] if b < known else first_c[b]
                top = np.tanh(all_c[row])
                slope = dc[b] + delta * o * (1 - top * top)
                parts = [slope * n * i * (1 - i), slope * c * f * (1 - f), slope * i * (1 - n * n), delta * top * o * (1 - o)]
                to_gates[row] = to_hidden[row] = np.concatenate(parts)
                dc[b], rest = slope * f, 0.0
            elif mode == "gru":
                r, u, n, hn = np.split(wide[-2][row], 4)
                dn = delta * (1 - u) * (1 - n * n)
                dr, du = dn * hn * r * (1 - r), delta * (h - n) * u * (1 - u)
                to_gates[row], to_hidden[row] = np.concatenate([dr, du, dn]), np.concatenate([dr, du, dn * r])
                rest = delta * u
            else:
                to_gates[row] = to_hidden[row] = delta * (1 - y[row] ** 2 if mode == "tanh" else y[row] > 0)
                rest = 0.0
            dh[b] = to_hidden[row] @ w + rest
    results = [to_gates, *[to_hidden] * (mode == "gru"), before, dh, *[dc] * lstm]
    return tuple(x.astype(xs[0].dtype) for x in results)
