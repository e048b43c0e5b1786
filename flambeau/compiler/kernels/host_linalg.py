"""Host calls: dense decompositions on batches of matrices, by NumPy (LAPACK) and by our own blocked algorithms.

Arrays are (..., rows, columns) and only read. No function raises for what the values are: a matrix that is singular, not
positive-definite, or for which an iteration fails gets NaN and a code above 0 in `info` (int32, one for each matrix), as
LAPACK's info, so that a plan always runs to its end and the caller decides what is an error. Pivots are indices: one that names
no row is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from flambeau.compiler.kernel import IndexRangeError

Array = np.ndarray[Any, Any]
LinAlgError = np.linalg.LinAlgError


def adjoint(a: Array) -> Array:
    """The conjugate transpose of each matrix."""
    swapped = np.swapaxes(a, -1, -2)
    return np.conj(swapped) if np.iscomplexobj(a) else swapped


def with_info(compute: Callable[..., tuple[Array, ...]], diagnose: Callable[[Array], int], *arrays: Array) -> tuple[Array, ...]:
    """compute(*arrays) for the whole batch, and info; if a matrix fails, one by one, and those that fail get NaN."""
    batch = arrays[0].shape[:-2]
    info = np.zeros(batch, np.int32)
    try:
        return (*compute(*arrays), info)
    except LinAlgError:
        template = compute(*[np.eye(*x.shape[-2:], dtype=x.dtype) for x in arrays])
    outs = [np.full(batch + t.shape, np.nan, t.dtype) for t in template]
    for index in np.ndindex(batch):
        try:
            results = compute(*[x[index] for x in arrays])
        except LinAlgError:
            info[index] = diagnose(arrays[0][index])
            continue
        for out, result in zip(outs, results, strict=True):
            out[index] = result
    return (*outs, info)


def _finite(a: Array) -> Array:
    """The argument, if it is finite: LAPACK's iterations may not end for others."""
    if not np.isfinite(a).all():
        raise LinAlgError("not finite")
    return a


# -- triangular systems and LU ---------------------------------------------------------------------------------------
_ROWS: Final = 16  # below this order, substitution by rows: a product costs a call whatever its size


def substitute(a: Array, b: Array, upper: bool, unit: bool) -> Array:
    """Solve a x = b for triangular a; halves, so that most of the work is matrix products. Reads one triangle only."""
    n = a.shape[-1]
    if n > _ROWS:
        h = n // 2
        first, last = slice(0, h), slice(h, n)
        if upper:
            first, last = last, first
        x = np.empty(b.shape, b.dtype)
        x[..., first, :] = substitute(a[..., first, first], b[..., first, :], upper, unit)
        rest = b[..., last, :] - a[..., last, first] @ x[..., first, :]
        x[..., last, :] = substitute(a[..., last, last], rest, upper, unit)
        return x
    x = np.array(b)
    for i in reversed(range(n)) if upper else range(n):
        done = slice(i + 1, n) if upper else slice(0, i)
        row = x[..., i, :] - (a[..., i, None, done] @ x[..., done, :])[..., 0, :]
        x[..., i, :] = row if unit else row / a[..., i, i, None]
    return x


def solve_triangular(a: Array, b: Array, upper: bool = False, left: bool = True, unit: bool = False) -> Array:
    """Solve a x = b (or x a = b) for triangular a; a zero on the diagonal gives infinities or NaN."""
    if not left:
        return np.swapaxes(substitute(np.swapaxes(a, -1, -2), np.swapaxes(b, -1, -2), not upper, unit), -1, -2)
    return substitute(a, b, upper, unit)


def _lu_in_place(a: Array) -> tuple[Array, Array]:
    """Partial pivoting over (batch, m, n), by halves of the columns (Toledo 1997, "Locality of reference in LU").

    Returns the permutation (row i of the factors was row permutation[i]) and the exchanges, both from 0."""
    b, m, n = a.shape
    if m == 1 or n == 1:
        size = np.abs(a.real) + np.abs(a.imag) if np.iscomplexobj(a) else np.abs(a)  # LAPACK's i?amax
        p = np.argmax(size[:, :, 0], axis=1) if m > 1 else np.zeros(b, np.int64)
        every = np.arange(b)
        permutation = np.tile(np.arange(m), (b, 1))
        permutation[every, p] = 0
        permutation[every, 0] = p
        if m > 1:
            top = a[every, p, 0]
            a[every, p, 0] = a[:, 0, 0]
            a[:, 0, 0] = top
            a[:, 1:, 0] /= np.where(top != 0, top, 1)[:, None]
        return permutation, p[:, None]
    k = min(m, n) // 2
    left, right = a[:, :, :k], a[:, :, k:]
    permutation, exchanges = _lu_in_place(left)
    right[...] = np.take_along_axis(right, permutation[:, :, None], 1)
    right[:, :k] = substitute(left[:, :k], right[:, :k], False, True)
    right[:, k:] -= left[:, k:] @ right[:, :k]
    lower, more = _lu_in_place(right[:, k:])
    left[:, k:] = np.take_along_axis(left[:, k:], lower[:, :, None], 1)
    permutation[:, k:] = np.take_along_axis(permutation[:, k:], lower, 1)
    return permutation, np.concatenate([exchanges, more + k], 1)


def lu(a: Array) -> tuple[Array, ...]:
    """(L below U, 1-based int32 row exchanges, the int64 permutation they make, info: the first zero of U's diagonal)."""
    m, n = a.shape[-2:]
    batch, k = a.shape[:-2], min(a.shape[-2:])
    if a.size == 0:
        order = np.broadcast_to(np.arange(m), (*batch, m))
        return np.array(a), np.broadcast_to(np.arange(1, k + 1, dtype=np.int32), (*batch, k)), order, np.zeros(batch, np.int32)
    factors = np.array(a, order="C").reshape(-1, m, n)
    permutation, exchanges = _lu_in_place(factors)
    zero = np.einsum("bii->bi", factors[:, :k, :k]) == 0
    info = np.where(zero.any(1), zero.argmax(1) + 1, 0).astype(np.int32)
    return (
        factors.reshape(a.shape), (exchanges + 1).astype(np.int32).reshape(*batch, k), permutation.reshape(*batch, m), info.reshape(batch),
    )  # fmt: skip


def _first_zero_pivot(a: Array) -> int:
    return int(lu(a)[3]) or a.shape[-1]


def permutation_of_exchanges(pivots: Array, rows: int) -> Array:
    """The permutation of `rows` rows that LAPACK's 1-based exchanges make, one after the other."""
    batch, k = pivots.shape[:-1], pivots.shape[-1]
    order = np.tile(np.arange(rows), (*batch, 1)).reshape(-1, rows)
    flat = pivots.reshape(len(order), k).astype(np.int64) - 1  # of no pivots NumPy cannot tell how many rows there are
    outside = flat[(flat < 0) | (flat >= rows)]
    if outside.size:  # as a kernel that finds an index does
        raise IndexRangeError(f"pivot {outside[0] + 1} is out of bounds: every pivot must be at least 1 and at most {rows}, the number of rows")
    every = np.arange(order.shape[0])
    for i in range(k):
        p = flat[:, i]
        moved = order[every, p]
        order[every, p] = order[:, i]
        order[:, i] = moved
    return order.reshape(*batch, rows)


def inverse(a: Array) -> tuple[Array, ...]:
    """(inverse, info)."""
    return with_info(lambda x: (np.linalg.inv(x),), _first_zero_pivot, a)


def solve(a: Array, b: Array) -> tuple[Array, ...]:
    """(x with a x = b, info)."""
    return with_info(lambda x, y: (np.linalg.solve(x, y),), _first_zero_pivot, a, b)


def cofactor(a: Array) -> Array:
    """det(a) * inverse(a)^T, also for singular matrices: from the singular values, where the inverse does not exist."""
    determinant = np.linalg.det(a)
    inverted, info = inverse(a)
    if not info.any() and np.all(determinant != 0):
        return np.asarray(determinant)[..., None, None] * np.swapaxes(inverted, -1, -2)
    u, s, vh, _ = svd(a)
    others = np.stack([np.prod(np.delete(s, i, -1), -1) for i in range(s.shape[-1])], -1)
    phase = np.asarray(np.linalg.det(u) * np.linalg.det(vh))[..., None, None]
    return phase * (np.conj(u) * others[..., None, :].astype(u.dtype)) @ np.conj(vh)


# -- factorizations ---------------------------------------------------------------------------------------------------
def _factor(a: Array) -> tuple[Array]:
    """Cholesky's factor; LAPACK lets NaN pass, which is not positive-definite."""
    factor = np.linalg.cholesky(a)
    if not np.isfinite(np.diagonal(factor, axis1=-2, axis2=-1)).all():
        raise LinAlgError("not positive-definite")
    return (factor,)


def _first_minor(a: Array) -> int:
    """The order of the first leading minor that is not positive-definite: Cholesky fails from there on, so by bisection."""
    low, high = 0, a.shape[-1]
    while high - low > 1:
        middle = (low + high) // 2
        try:
            _factor(a[:middle, :middle])
            low = middle
        except LinAlgError:
            high = middle
    return high


def cholesky(a: Array, upper: bool = False) -> tuple[Array, ...]:
    """(factor, info: the order of the first leading minor that is not positive-definite). Reads one triangle only."""
    if upper:
        factor, info = with_info(_factor, _first_minor, adjoint(a))
        return adjoint(factor), info
    return with_info(_factor, _first_minor, a)


def qr(a: Array, mode: Any = "reduced") -> Any:
    """(Q, R), or R alone for mode "r"."""
    result = np.linalg.qr(a, mode)
    return result if mode == "r" else tuple(result)


def geqrf(a: Array) -> tuple[Array, Array]:
    """Householder's reflectors below R, and their factors tau (LAPACK's layout)."""
    reflectors, tau = np.linalg.qr(a, "raw")
    return np.swapaxes(reflectors, -1, -2), tau


def svd(a: Array, full_matrices: bool = False) -> tuple[Array, ...]:
    """(U, S, Vh, info)."""
    return with_info(lambda x: tuple(np.linalg.svd(_finite(x), full_matrices)), lambda x: 1, a)


def singular_values(a: Array) -> tuple[Array, ...]:
    """(S, info)."""
    return with_info(lambda x: (np.linalg.svd(_finite(x), compute_uv=False),), lambda x: 1, a)


def eigh(a: Array, uplo: Any = "L") -> tuple[Array, ...]:
    """(eigenvalues, eigenvectors, info) of Hermitian matrices; reads one triangle only."""
    return with_info(lambda x: tuple(np.linalg.eigh(_finite(x), uplo)), lambda x: 1, a)


def eigenvalues_hermitian(a: Array, uplo: Any = "L") -> tuple[Array, ...]:
    """(eigenvalues, info) of Hermitian matrices."""
    return with_info(lambda x: (np.linalg.eigvalsh(_finite(x), uplo),), lambda x: 1, a)


def _complex(x: Array) -> Array:
    return x.astype(np.result_type(x.dtype, np.complex64))


def eig(a: Array) -> tuple[Array, ...]:
    """(eigenvalues, eigenvectors, info), complex."""
    return with_info(lambda x: tuple([_complex(r) for r in np.linalg.eig(x)]), lambda x: 1, a)


def eigenvalues(a: Array) -> tuple[Array, ...]:
    """(eigenvalues, info), complex."""
    return with_info(lambda x: (_complex(np.linalg.eigvals(x)),), lambda x: 1, a)


# -- made of them -----------------------------------------------------------------------------------------------------
def pseudoinverse(a: Array, atol: Array, rtol: Array, hermitian: bool = False) -> Array:
    """V diag(1/s) U^H over the singular values (or eigenvalues) larger than max(atol, rtol * largest)."""
    if hermitian:
        w, v, _ = eigh(a)
        size = np.abs(w)
        left, right = v, adjoint(v)
    else:
        right, w, left, _ = svd(a)
        size, left, right = w, adjoint(left), adjoint(right)
    largest = size.max(-1, initial=0)
    keep = size > np.maximum(atol, rtol * largest)[..., None]
    with np.errstate(divide="ignore"):
        scale = np.where(keep, 1 / np.where(keep, w, 1), 0).astype(a.dtype)
    return (left * scale[..., None, :]) @ right


def least_squares(a: Array, b: Array, rcond: float) -> tuple[Array, ...]:
    """(the solution of least norm, int64 rank, singular values): singular values up to rcond * largest count as zero."""
    u, s, vh, _ = svd(a)
    keep = s > rcond * s.max(-1, initial=0, keepdims=True)
    scale = np.where(keep, 1 / np.where(keep, s, 1), 0).astype(a.dtype)
    return adjoint(vh) @ (scale[..., :, None] * (adjoint(u) @ b)), keep.sum(-1), s


# The coefficients of the [13/13] Pade approximant of exp, and the largest 1-norm for which its backward error is below
# the unit roundoff of double (Higham 2005, "The scaling and squaring method for the matrix exponential revisited", table 2.3).
_PADE: Final = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0, 10559470521600.0,
    670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
_PADE_NORM: Final = 5.371920351148152


def matrix_exponential(a: Array) -> Array:
    """exp of each matrix by scaling and squaring, in double precision."""
    if a.shape[-1] == 0:
        return np.array(a)
    x = a.astype(np.result_type(a.dtype, np.float64))
    norm = np.abs(x).sum(-2).max(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.ceil(np.log2(norm / _PADE_NORM))
    steps = np.where(np.isfinite(steps) & (steps > 0), steps, 0)
    x = x / (2.0**steps)[..., None, None]
    one = np.eye(x.shape[-1], dtype=x.dtype)
    c = _PADE
    x2 = x @ x
    x4 = x2 @ x2
    x6 = x4 @ x2
    odd = x @ (x6 @ (c[13] * x6 + c[11] * x4 + c[9] * x2) + c[7] * x6 + c[5] * x4 + c[3] * x2 + c[1] * one)
    even = x6 @ (c[12] * x6 + c[10] * x4 + c[8] * x2) + c[6] * x6 + c[4] * x4 + c[2] * x2 + c[0] * one
    result = solve(even - odd, even + odd)[0]
    for i in range(int(np.max(steps, initial=0))):
        again = (i < steps)[..., None, None]
        result = np.where(again, result @ np.where(again, result, 0), result)
    return result.astype(a.dtype)


def determinant(a: Array) -> Array:
    """The determinant of each matrix."""
    return np.asarray(np.linalg.det(a))


def log_determinant(a: Array) -> tuple[Array, Array]:
    """(sign, log |det|)."""
    sign, logarithm = np.linalg.slogdet(a)
    return np.asarray(sign), np.asarray(logarithm)


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "cholesky": cholesky,
    "cofactor": cofactor,
    "det": determinant,
    "eig": eig,
    "eigh": eigh,
    "eigvals": eigenvalues,
    "eigvalsh": eigenvalues_hermitian,
    "geqrf": geqrf,
    "inv": inverse,
    "lstsq": least_squares,
    "lu": lu,
    "matrix_exp": matrix_exponential,
    "permutation": permutation_of_exchanges,
    "pinv": pseudoinverse,
    "qr": qr,
    "slogdet": log_determinant,
    "solve": solve,
    "solve_triangular": solve_triangular,
    "svd": svd,
    "svdvals": singular_values,
}
"""By the name that a `host_call` node has. Each gives one array for each of the node's results."""
