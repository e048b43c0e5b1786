"""Linear algebra: the extension `linalg`, and the four products of the main namespace."""

from __future__ import annotations

from typing import Any, NamedTuple

import flambeau as torch
from flambeau.tensor import Tensor

Axes = tuple[int, int]
_linalg = torch.linalg

cholesky_ = _linalg.cholesky
det, inv, matrix_power, svdvals, eigvalsh = _linalg.det, _linalg.inv, _linalg.matrix_power, _linalg.svdvals, _linalg.eigvalsh


class Eigh(NamedTuple):
    """Eigenvalues in ascending order and eigenvectors as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class QR(NamedTuple):
    """x = Q R."""

    Q: Tensor
    R: Tensor


class Slogdet(NamedTuple):
    """The determinant's sign and the logarithm of its absolute value."""

    sign: Tensor
    logabsdet: Tensor


class SVD(NamedTuple):
    """x = U diag(S) Vh."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Products of matrices and vectors."""
    kind = torch.result_type(x1, x2)
    return torch.matmul(x1.to(kind), x2.to(kind))


def matrix_transpose(x: Tensor, /) -> Tensor:
    """A view with the last two axes exchanged. ValueError for fewer than two."""
    if x.ndim < 2:
        raise ValueError(f"matrix_transpose: x must have two dimensions at least, got shape {tuple(x.shape)}")
    return x.mT


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: Any = 2) -> Tensor:
    """Sums of products over axes of both."""
    kind = torch.result_type(x1, x2)
    return torch.tensordot(x1.to(kind), x2.to(kind), axes)


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Sums of conj(x1) * x2 along an axis."""
    kind = torch.result_type(x1, x2)
    return _linalg.vecdot(x1.to(kind), x2.to(kind), dim=axis)  # type: ignore[no-any-return]


def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """The triangular factor of positive definite matrices."""
    return cholesky_(x, upper=upper)  # type: ignore[no-any-return]


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Cross products of vectors of three elements."""
    return _linalg.cross(x1, x2, dim=axis)  # type: ignore[no-any-return]


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """The diagonals of matrices, as a view."""
    return torch.diagonal(x, offset, -2, -1)


def eigh(x: Tensor, /) -> Eigh:
    """Eigenvalues and eigenvectors of Hermitian matrices."""
    return Eigh(*_linalg.eigh(x))


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """Norms of matrices."""
    return _linalg.matrix_norm(x, ord, (-2, -1), keepdims)  # type: ignore[no-any-return]


def matrix_rank(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """How many singular values are above rtol times the largest."""
    return _linalg.matrix_rank(x, rtol=rtol)  # type: ignore[no-any-return]


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """All products of two vectors' elements."""
    kind = torch.result_type(x1, x2)
    return torch.outer(x1.to(kind), x2.to(kind))


def pinv(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """Pseudo-inverses (Moore and Penrose)."""
    return _linalg.pinv(x, rtol=rtol)  # type: ignore[no-any-return]


def qr(x: Tensor, /, *, mode: str = "reduced") -> QR:
    """An orthogonal and an upper triangular factor."""
    return QR(*_linalg.qr(x, mode=mode))


def slogdet(x: Tensor, /) -> Slogdet:
    """Determinants by sign and logarithm."""
    return Slogdet(*_linalg.slogdet(x))


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The x of x1 x = x2; x2 is one vector only if it has one dimension."""
    return _linalg.solve(x1, x2.unsqueeze(-1)).squeeze(-1) if x2.ndim == 1 else _linalg.solve(x1, x2)  # type: ignore[no-any-return]


def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVD:
    """Singular values and vectors."""
    return SVD(*_linalg.svd(x, full_matrices=full_matrices))


def trace(x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """Sums of diagonals."""
    return torch.sum(torch.diagonal(x, offset, -2, -1), -1, dtype=dtype)


def vector_norm(x: Tensor, /, *, axis: Any = None, keepdims: bool = False, ord: float = 2) -> Tensor:
    """Norms over axes, by default over all."""
    if axis == ():  # of each element alone
        return torch.where(x.ne(0), 1, 0).to(x.abs().dtype) if ord == 0 else x.abs()
    return _linalg.vector_norm(x, ord, axis, keepdims)  # type: ignore[no-any-return]


__all__ = [
    "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul", "matrix_norm", "matrix_power", "matrix_rank",
    "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip
