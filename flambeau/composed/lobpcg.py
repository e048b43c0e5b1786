"""torch.lobpcg: some of the largest or smallest eigenvalues of a symmetric matrix (Knyazev, 2001).

Each step takes the best approximations from the space of the last ones, their preconditioned residuals and the directions of the last
step; an orthonormal basis of that space in B's scalar product makes it stable (the "ortho" method; Stathopoulos and Wu, 2002).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from flambeau.ops.linalg.spectra import eigh

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

_MOST_STEPS: Final = 1001


def lobpcg(
    A: Tensor, k: int | None = None, B: Tensor | None = None, X: Tensor | None = None, n: int | None = None, iK: Tensor | None = None,
    niter: int | None = None, tol: float | None = None, largest: bool | None = None, method: str | None = None,
    tracker: Callable[[Iteration], Any] | None = None,
    ortho_iparams: dict[str, int] | None = None, ortho_fparams: dict[str, float] | None = None, ortho_bparams: dict[str, bool] | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(E, X): the `k` largest (or smallest) eigenvalues (*, k) of A x = lambda B x, and eigenvectors (*, m, k) with X^T B X = 1.

    A, B: symmetric (*, m, m), dense or sparse, B positive-definite. X: first approximations (*, m, n), random by default. iK: the
    preconditioner. It ends when every residual is at most tol * |X| * (|A| + |lambda| |B|), or after `niter` steps, the first of which is the
    best of the space of X. Both methods, "basic" and "ortho", are the second; the parameters `ortho_*` change nothing. `tracker` is called
    after each step, of each matrix of a batch by itself, with the state (`Iteration`), and may end the iteration. Eigenvalues have
    gradients, eigenvectors none. ValueError if m < 3 n.
    """
    import flambeau as torch

    if method not in (None, "basic", "ortho"):
        raise ValueError(f"lobpcg: method must be 'basic' or 'ortho', got {method!r}")
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
    settings = {"k": wanted, "niter": -1 if niter is None else niter}, {"tol": _tolerance(A.dtype, tol)}, {"largest": largest is not False}
    with torch.no_grad():
        if tracker is None or A.ndim == 2:
            found = _iterate(a, b, preconditioner, start, *settings, tracker)
        else:  # one matrix after the other
            flat = [None if t is None else t.reshape(-1, *t.shape[-2:]) for t in (a, b, preconditioner, start)]
            parts = [_iterate(*[None if t is None else t[i] for t in flat], *settings, tracker) for i in range(flat[0].shape[0])]  # type: ignore[union-attr]
            found = torch.stack(parts).reshape(start.shape)
        vectors = found[..., :wanted]
    return (vectors * (a @ vectors)).sum(-2), vectors  # Rayleigh quotients: their gradients are those of the eigenvalues


def _tolerance(dtype: Any, tol: float | None) -> float:
    import flambeau as torch

    return {torch.float32: 1.2e-7, torch.float64: 2.23e-16}[dtype] ** 0.5 if tol is None else tol


class Iteration:
    """What a tracker sees: `A`, `B`, `iK`, the approximations `E` and `X`, the residual `R`, the basis `S` of the space that they were taken from,
    `iparams`, `fparams` and `bparams` as given, `ivars` (`istep`, `iterations_left`, `converged_count`), `tvars` (`rerr`: residuals that should
    come below `tol`), `fvars`, and `bvars`, where `force_stop` ends the iteration."""

    def __init__(self, A: Any, B: Any, iK: Any, X: Any, ints: dict[str, int], floats: dict[str, float], bools: dict[str, bool]) -> None:
        self.A, self.B, self.iK, self.X, self.S = A, B, iK, X, X
        self.iparams, self.fparams, self.bparams = {"m": A.shape[-1], "n": X.shape[-1], **ints}, floats, bools
        self.ivars: dict[str, int] = {"istep": 0, "iterations_left": ints["niter"], "converged_count": 0}
        self.fvars: dict[str, float] = {}
        self.bvars: dict[str, bool] = {}
        self.tvars: dict[str, Any] = {}
        self.E: Any = None
        self.R: Any = None

    def step(self, E: Any, X: Any, R: Any, S: Any, errors: Any) -> None:
        """Take over what a step has given."""
        self.E, self.X, self.R, self.S, self.tvars["rerr"] = E, X, R, S, errors
        small = (errors <= self.fparams["tol"]).reshape(-1, errors.shape[-1]).all(0).tolist()
        self.ivars["converged_count"] = next((i for i, done in enumerate(small) if not done), len(small))
        self.ivars["istep"] += 1
        self.ivars["iterations_left"] -= 1

    def ends(self) -> bool:
        """Whether this was the last step."""
        wanted = self.iparams["n"]
        return self.bvars.get("force_stop", False) or self.ivars["iterations_left"] == 0 or self.ivars["converged_count"] >= wanted


def _iterate(
    A: Any, B: Any, iK: Any, X: Any, ints: dict[str, int], floats: dict[str, float], bools: dict[str, bool], tracker: Callable[[Iteration], Any] | None
) -> Any:
    """The eigenvectors, best first."""
    import flambeau as torch

    columns, largest = X.shape[-1], bools["largest"]
    norm_a = torch.linalg.norm(A, dim=(-2, -1))[..., None]
    norm_b = 1.0 if B is None else torch.linalg.norm(B, dim=(-2, -1))[..., None]
    state, basis, directions = Iteration(A, B, iK, X, ints, floats, bools), X, None
    for _ in range(_MOST_STEPS):
        before = X
        values, X = _best(A, B, basis, columns, largest)
        directions = None if basis is before else X - before @ (before.mT @ (X if B is None else B @ X))
        residual = A @ X - (X if B is None else B @ X) * values.unsqueeze(-2)
        scale = torch.linalg.vector_norm(X, dim=-2) * (norm_a + values.abs() * norm_b)
        norms = torch.linalg.vector_norm(residual, dim=-2)
        state.step(values, X, residual, basis, torch.where(norms == 0, norms, norms / scale))
        if tracker is not None:
            tracker(state)
        if state.ends():
            break
        better = residual if iK is None else iK @ residual
        basis = torch.cat([X, better] if directions is None else [X, better, directions], dim=-1)
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
