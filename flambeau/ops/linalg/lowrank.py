"""Randomised decompositions of low rank (Halko, Martinsson and Tropp 2011, algorithms 4.4 and 5.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.ops.linalg.checks import require_matrix
from flambeau.ops.linalg.factors import qr
from flambeau.ops.linalg.spectra import svd

if TYPE_CHECKING:
    from flambeau.tensor import Tensor


def _range(a: Any, q: int, niter: int) -> Any:
    """An orthonormal basis of q columns that nearly spans the range of each matrix."""
    from flambeau.ops.random import randn

    basis = qr(a @ randn(a.shape[-1], q, dtype=a.dtype, device=a.device))[0]
    for _ in range(niter):
        basis = qr(a.mH @ basis)[0]
        basis = qr(a @ basis)[0]
    return basis


def svd_lowrank(A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None) -> Any:
    """(U, S, V) of A (minus M, if given), about its first q singular values; exact where the rank is at most q.

    The random matrix comes from the default generator, as in PyTorch."""
    require_matrix("svd_lowrank", A)
    a: Any = A if M is None else A - M
    columns, steps = 6 if q is None else q, 2 if niter is None else niter
    if a.shape[-2] < a.shape[-1]:
        v, s, u = _lowrank(a.mH, columns, steps)
        return u, s, v
    return _lowrank(a, columns, steps)


def _lowrank(a: Any, q: int, niter: int) -> tuple[Any, Any, Any]:
    basis = _range(a, q, niter)
    u, s, vh = svd(basis.mH @ a, full_matrices=False)
    return basis @ u, s, vh.mH


def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> Any:
    """(U, S, V) of the principal components: svd_lowrank of A with the mean of each column taken off."""
    m, n = A.shape[-2:]
    columns = min(6, m, n) if q is None else q
    if not 0 <= columns <= min(m, n):
        raise ValueError(f"q(={columns}) must be non-negative integer and not greater than min(m, n)={min(m, n)}")
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    return svd_lowrank(A - A.mean(-2, keepdim=True) if center else A, columns, niter)
