"""Spectra: eigenvalues and singular values. Gradients of vectors need values that are apart (ops/linalg/gradients.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau import dtypes
from flambeau.ops import primitives as prim
from flambeau.ops.linalg.checks import identity, public, raise_failures, require_floating, require_matrix, require_square
from flambeau.ops.linalg.systems import batch_of
from flambeau.ops.primitive import laid_out
from flambeau.ops.primitives.host import call_host
from flambeau.ops.registry import operation
from flambeau.ops.results import return_type
from flambeau.ops.tied import tied
from flambeau.trace.recorder import local
from flambeau.trace.strides import column_major_strides

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

eigh_result = return_type("linalg_eigh", "eigenvalues", "eigenvectors")
eig_result = return_type("linalg_eig", "eigenvalues", "eigenvectors")
svd_result = return_type("linalg_svd", "U", "S", "Vh")


def _differentiable(x: Any) -> bool:
    """Values alone are cheaper, but their gradients need the vectors."""
    return x._meta.requires_grad and (local.trace.grad_enabled or getattr(local.trace, "forward_mode", False))


def _uplo(name: str, UPLO: str) -> str:
    if UPLO.upper() not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO} ({name})")
    return UPLO.upper()


@operation(name="linalg_eigh", public=False)
def _eigh(A: Tensor, UPLO: str) -> tuple[Tensor, Tensor, Tensor]:
    require_square("linalg.eigh", A)
    shape, batch = tuple(A._meta.shape), batch_of(A)
    return call_host(  # type: ignore[no-any-return]
        "eigh", (A,), (shape[:-1], A.dtype.to_real()), (shape, A.dtype), (batch, dtypes.int32), uplo=_uplo("linalg.eigh", UPLO)
    )


@operation(name="linalg_eigvalsh", public=False)
def _eigvalsh(A: Tensor, UPLO: str) -> tuple[Tensor, Tensor]:
    require_square("linalg.eigvalsh", A)
    if _differentiable(A):
        w, _, info = _eigh(A, UPLO)
        return w, info
    return call_host(  # type: ignore[no-any-return]
        "eigvalsh", (A,), (tuple(A._meta.shape[:-1]), A.dtype.to_real()), (batch_of(A), dtypes.int32), uplo=_uplo("linalg.eigvalsh", UPLO)
    )


@operation(name="linalg_eig", public=False)
def _eig(A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    require_square("linalg.eig", A)
    shape, d = tuple(A._meta.shape), A.dtype.to_complex()
    return call_host("eig", (A,), (shape[:-1], d), (shape, d), (batch_of(A), dtypes.int32))  # type: ignore[no-any-return]


@operation(name="linalg_eigvals", public=False)
def _eigvals(A: Tensor) -> tuple[Tensor, Tensor]:
    require_square("linalg.eigvals", A)
    if _differentiable(A):
        w, _, info = _eig(A)
        return w, info
    return call_host("eigvals", (A,), (tuple(A._meta.shape[:-1]), A.dtype.to_complex()), (batch_of(A), dtypes.int32))  # type: ignore[no-any-return]


@operation(name="linalg_svd", public=False)
def _svd(A: Tensor, full_matrices: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    require_matrix("linalg.svd", A)
    require_floating("linalg.svd", A)
    m, n = A._meta.shape[-2:]
    k, batch, d = min(m, n), batch_of(A), A.dtype
    left, right = (m, n) if full_matrices else (k, k)
    if k == 0:
        u = prim.expand(identity(m, d).narrow(1, 0, left), shape=(*batch, m, left))
        vh = prim.expand(identity(n, d).narrow(0, 0, right), shape=(*batch, right, n))
        info = prim.zeros_of(batch, dtypes.int32)
        u, vh = (tied(laid_out(x, column_major_strides(tuple(x._meta.shape))), A) for x in (u, vh))
        return u, tied(prim.zeros_of((*batch, 0), d.to_real()), A), vh, info  # type: ignore[return-value]
    return call_host(  # type: ignore[no-any-return]
        "svd", (A,), ((*batch, m, left), d), ((*batch, k), d.to_real()), ((*batch, right, n), d), (batch, dtypes.int32),
        full_matrices=full_matrices,
    )  # fmt: skip


@operation(name="linalg_svdvals", public=False)
def _svdvals(A: Tensor) -> tuple[Tensor, Tensor]:
    if _differentiable(A) or 0 in A._meta.shape[-2:] or A._meta.ndim < 2:
        _, s, _, info = _svd(A, False)
        return s, info
    require_floating("linalg.svdvals", A)
    m, n = A._meta.shape[-2:]
    batch = batch_of(A)
    return call_host("svdvals", (A,), ((*batch, min(m, n)), A.dtype.to_real()), (batch, dtypes.int32))  # type: ignore[no-any-return]


@public("linalg.eigh")
def eigh(input: Tensor, UPLO: str = "L") -> Any:
    """(eigenvalues, eigenvectors) of Hermitian matrices, ascending; one triangle is read. Vectors are columns."""
    w, v, info = _eigh(input, UPLO)
    raise_failures("linalg.eigh", info, "converge")
    return eigh_result(w, v)


@public("linalg.eigvalsh")
def eigvalsh(input: Tensor, UPLO: str = "L") -> Any:
    """The eigenvalues of Hermitian matrices, ascending."""
    w, info = _eigvalsh(input, UPLO)
    raise_failures("linalg.eigvalsh", info, "converge")
    return w


@public("linalg.eig")
def eig(input: Tensor) -> Any:
    """(eigenvalues, eigenvectors) of square matrices, complex; vectors are columns of norm 1."""
    w, v, info = _eig(input)
    raise_failures("linalg.eig", info, "converge")
    return eig_result(w, v)


@public("linalg.eigvals")
def eigvals(input: Tensor) -> Any:
    """The eigenvalues of square matrices, complex."""
    w, info = _eigvals(input)
    raise_failures("linalg.eigvals", info, "converge")
    return w


@public("linalg.svd")
def svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> Any:
    """(U, S, Vh) with A = U diag(S) Vh, S descending. U (*, m, m), Vh (*, n, n); without full_matrices (*, m, k), (*, k, n)."""
    if driver is not None:
        raise RuntimeError("torch.linalg.svd: keyword argument `driver=` is only supported on CUDA inputs with cuSOLVER backend.")
    u, s, vh, info = _svd(A, full_matrices)
    raise_failures("linalg.svd", info, "converge")
    return svd_result(u, s, vh)


@public("linalg.svdvals")
def svdvals(A: Tensor, *, driver: str | None = None) -> Any:
    """The singular values of each matrix, descending."""
    if driver is not None:
        raise RuntimeError("torch.linalg.svdvals: keyword argument `driver=` is only supported on CUDA inputs with cuSOLVER backend.")
    s, info = _svdvals(A)
    raise_failures("linalg.svdvals", info, "converge")
    return s
