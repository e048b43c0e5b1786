"""torch.lobpcg: some of the largest or smallest eigenvalues of a symmetric matrix (Knyazev, 2001).

Each step takes the best approximations from the space of the last ones, their preconditioned residuals and the directions of the last
step; an orthonormal basis of that space in B's scalar product makes it stable (the "ortho" method; Stathopoulos and Wu, 2002).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.ops.linalg.spectra import eigh

if TYPE_CHECKING:
    from flambeau.tensor import Tensor


def lobpcg(
    A: Tensor, k: int | None = None, B: Tensor | None = None, X: Tensor | None = None, n: int | None = None, iK: Tensor | None = None,
    niter: int | None = None, tol: float | None = None, largest: bool | None = None, method: str | None = None, tracker: None = None,
    ortho_iparams: dict[str, int] | None = None, ortho_fparams: dict[str, float] | None = None, ortho_bparams: dict[str, bool] | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(E, X): the `k` largest (or smallest) eigenvalues (*, k) of A x = lambda B x, and eigenvectors (*, m, k) with X^T B X = 1.

    A, B: symmetric (*, m, m), dense or sparse, B positive-definite. X: first approximations (*, m, n), random by default. iK: the
    preconditioner. It ends when every residual is at most tol * |X| * (|A| + |lambda| |B|), or after `niter` steps. Both methods,
    "basic" and "ortho", are the second; the parameters `ortho_*` change nothing. Eigenvalues have gradients, eigenvectors none.
    ValueError if m < 3 n, NotImplementedError for a tracker.
    """
    import flambeau as torch

    if method not in (None, "basic", "ortho"):
        raise ValueError(f"lobpcg: method must be 'basic' or 'ortho', got {method!r}")
    if tracker is not None:
        raise NotImplementedError("lobpcg: a tracker is not there; call lobpcg with niter=1 and its last X")
    if A.ndim < 2 or A.shape[-1] != A.shape[-2]:
        raise AssertionError(f"lobpcg: A must be a batch of square matrices, got shape {tuple(A.shape)}")
    m = A.shape[-1]
    wanted = (1 if X is None else X.shape[-1]) if k is None else k
    columns = (wanted if X is None else X.shape[-1]) if n is None else n
    if m < 3 * columns:
        raise ValueError(
            f"LOBPCG algorithm is not applicable when the number of A rows (={m}) is smaller than 3 x the number of requested eigenpairs (={columns})"
        )
    a, b, preconditioner = [t if t is None or not t.is_sparse else t.to_dense() for t in (A, B, iK)]
    start = torch.randn((*A.shape[:-2], m, columns), dtype=A.dtype, device=A.device) if X is None else X
    with torch.no_grad():
        vectors = _iterate(a, b, preconditioner, start, -1 if niter is None else niter, _tolerance(A.dtype, tol), largest is not False)[..., :wanted]
    return (vectors * (a @ vectors)).sum(-2), vectors  # Rayleigh quotients: their gradients are those of the eigenvalues


def _tolerance(dtype: Any, tol: float | None) -> float:
    import flambeau as torch

    return {torch.float32: 1.2e-7, torch.float64: 2.23e-16}[dtype] ** 0.5 if tol is None else tol


def _iterate(A: Any, B: Any, iK: Any, X: Any, niter: int, tol: float, largest: bool) -> Any:
    """The eigenvectors, best first."""
    import flambeau as torch

    columns = X.shape[-1]
    norm_a = torch.linalg.norm(A, dim=(-2, -1))[..., None]
    norm_b = 1.0 if B is None else torch.linalg.norm(B, dim=(-2, -1))[..., None]
    values, X = _best(A, B, X, columns, largest)
    steps, directions = niter if niter >= 0 else 1000, None
    for _ in range(steps):
        residual = A @ X - (X if B is None else B @ X) * values.unsqueeze(-2)
        limit = tol * torch.linalg.vector_norm(X, dim=-2) * (norm_a + values.abs() * norm_b)
        if bool((torch.linalg.vector_norm(residual, dim=-2) <= limit).all()):
            break
        residual = residual if iK is None else iK @ residual
        basis = torch.cat([X, residual] if directions is None else [X, residual, directions], dim=-1)
        before = X
        values, X = _best(A, B, basis, columns, largest)
        directions = X - before @ (before.mT @ (X if B is None else B @ X))
    return X


def _best(A: Any, B: Any, basis: Any, columns: int, largest: bool) -> tuple[Any, Any]:
    """The best eigenvalues and eigenvectors in the space of a basis (Rayleigh and Ritz)."""
    import flambeau as torch

    q = torch.linalg.qr(basis)[0]
    if B is not None:  # orthonormal in B's scalar product
        q = q @ torch.linalg.inv(torch.linalg.cholesky(q.mT @ B @ q)).mT
    values, vectors = eigh(q.mT @ A @ q)
    chosen = slice(-columns, None) if largest else slice(None, columns)
    values, vectors = values[..., chosen], q @ vectors[..., chosen]
    return (values.flip(-1), vectors.flip(-1)) if largest else (values, vectors)
