"""Host calls: L D L^T of symmetric or Hermitian matrices that need not be definite, and systems solved by it.

Bunch and Kaufman 1977, "Some stable methods for calculating inertia and solving symmetric linear systems", in the layout of LAPACK's
?sytrf and ?hetrf with uplo "L": D and the columns of L below the diagonal, exchanges as 1-based int32, negative in pairs for a
2 by 2 block of D. Only the lower triangle is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]

_ALPHA: Final = (1 + 17**0.5) / 8  # the bound of pivots that keeps the growth of elements least


def _size(x: Any) -> Any:
    return np.abs(x.real) + np.abs(x.imag) if np.iscomplexobj(x) else np.abs(x)


def _pivot(a: Array, k: int) -> tuple[int, int]:
    """(row that comes to the pivot, 1 or 2: the order of the pivot)."""
    n = len(a)
    here = _size(a[k, k])
    if k == n - 1:
        return k, 1
    i = k + 1 + int(np.argmax(_size(a[k + 1 :, k])))
    column = _size(a[i, k])
    if here >= _ALPHA * column:
        return k, 1
    row = max(_size(a[i, k:i]).max(), _size(a[i + 1 :, i]).max(initial=0))
    if here * row >= _ALPHA * column * column:
        return k, 1
    return (i, 1) if _size(a[i, i]) >= _ALPHA * row else (i, 2)


def _exchange(a: Array, k: int, kk: int, p: int, hermitian: bool) -> None:
    """Rows and columns kk < p of what is left, in the lower triangle."""
    a[p + 1 :, [kk, p]] = a[p + 1 :, [p, kk]]
    between = slice(kk + 1, p)
    column, row = a[between, kk].copy(), a[p, between].copy()
    a[between, kk], a[p, between] = (np.conj(row), np.conj(column)) if hermitian else (row, column)
    if hermitian:
        a[p, kk] = np.conj(a[p, kk])
    a[kk, kk], a[p, p] = a[p, p], a[kk, kk]
    if kk > k:
        a[kk, k], a[p, k] = a[p, k], a[kk, k]


def _factor(a: Array, hermitian: bool) -> tuple[Array, int]:
    """In place; (pivots, info)."""
    n = len(a)
    pivots = np.zeros(n, np.int32)
    info = 0
    k = 0
    while k < n:
        if hermitian:
            a[k, k] = a[k, k].real
        if not _size(a[k:, k]).any():
            info = info or k + 1
            pivots[k] = k + 1
            k += 1
            continue
        p, order = _pivot(a, k)
        kk = k + order - 1
        if p != kk:
            _exchange(a, k, kk, p, hermitian)
        end = k + order
        below = a[end:, k:end].copy()
        d = a[k:end, k:end].copy()
        if order == 2:
            d[0, 1] = np.conj(d[1, 0]) if hermitian else d[1, 0]
        factor = below / d[0, 0] if order == 1 else np.linalg.solve(d.T, below.T).T
        a[end:, end:] -= factor @ (np.conj(below.T) if hermitian else below.T)
        a[end:, k:end] = factor
        pivots[k:end] = p + 1 if order == 1 else -(p + 1)
        k = end
    return pivots, info


def ldl(a: Array, hermitian: bool = False) -> tuple[Array, ...]:
    """(LD, pivots, info: the position from 1 of the first zero block of D)."""
    batch, n = a.shape[:-2], a.shape[-1]
    packed = np.tril(a).reshape(math.prod(batch), n, n)
    pivots, info = np.zeros((len(packed), n), np.int32), np.zeros(len(packed), np.int32)
    for i, matrix in enumerate(packed):
        pivots[i], info[i] = _factor(matrix, hermitian and np.iscomplexobj(a))
    return np.tril(packed).reshape(a.shape), pivots.reshape(*batch, n), info.reshape(batch)


def _solve(a: Array, pivots: Array, x: Array, hermitian: bool) -> None:
    """In place: through the columns of L and D forward, through L^T (or L^H) backward."""
    n = len(a)
    k = 0
    while k < n:
        order = 1 if pivots[k] > 0 else 2
        end = k + order
        p = abs(int(pivots[k])) - 1
        x[[end - 1, p]] = x[[p, end - 1]]
        x[end:] -= a[end:, k:end] @ x[k:end]
        d = a[k:end, k:end].copy()
        if order == 2:
            d[0, 1] = np.conj(d[1, 0]) if hermitian else d[1, 0]
        x[k:end] = x[k:end] / d[0, 0] if order == 1 else np.linalg.solve(d, x[k:end])
        k = end
    while k > 0:
        order = 1 if pivots[k - 1] > 0 else 2
        start = k - order
        above = a[k:, start:k].T
        x[start:k] -= (np.conj(above) if hermitian else above) @ x[k:]
        p = abs(int(pivots[start])) - 1
        x[[k - 1, p]] = x[[p, k - 1]]
        k = start


def ldl_solve(packed: Array, pivots: Array, b: Array, hermitian: bool = False) -> Array:
    """x with a x = b from the factors, batches alike."""
    x = np.array(b)
    n = packed.shape[-1]
    count = math.prod(packed.shape[:-2])
    matrices, orders = packed.reshape(count, n, n), pivots.reshape(count, n)
    if orders.size and np.abs(orders).max() > n:
        return np.full_like(x, np.nan)
    for matrix, order, part in zip(matrices, orders, x.reshape(count, *x.shape[-2:]), strict=True):
        _solve(matrix, order, part, hermitian and np.iscomplexobj(packed))
    return x


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {"ldl": ldl, "ldl_solve": ldl_solve}
