"""Factorizations: Cholesky, QR and its reflectors, LU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau import dtypes
from flambeau.compiler.graph import contiguous_strides
from flambeau.ops import primitives as prim
from flambeau.ops.linalg.checks import (
    common_batch,
    identity,
    public,
    raise_failures,
    require_floating,
    require_matrix,
    require_same_dtype,
    require_square,
)
from flambeau.ops.linalg.gradients import permutation_matrix, solve_triangular_with
from flambeau.ops.linalg.systems import batch_of
from flambeau.ops.primitive import laid_out
from flambeau.ops.primitives.host import call_host
from flambeau.ops.primitives.move import expected
from flambeau.ops.registry import operation
from flambeau.ops.results import return_type
from flambeau.ops.tied import tied
from flambeau.trace.strides import column_major_strides

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

cholesky_ex_result = return_type("linalg_cholesky_ex", "L", "info")
qr_result = return_type("linalg_qr", "Q", "R")
lu_factor_result = return_type("linalg_lu_factor", "LU", "pivots")
lu_factor_ex_result = return_type("linalg_lu_factor_ex", "LU", "pivots", "info")
lu_result = return_type("linalg_lu", "P", "L", "U")
geqrf_result = return_type("geqrf", "a", "tau")


# -- Cholesky -----------------------------------------------------------------------------------------------------
@operation(name="linalg_cholesky_ex", public=False)
def _cholesky(A: Tensor, upper: bool, name: str) -> tuple[Tensor, Tensor]:
    require_square(name, A)
    results = call_host("cholesky", (A,), (tuple(A._meta.shape), A.dtype), (batch_of(A), dtypes.int32), upper=upper)
    return cholesky_ex_result(*results)  # type: ignore[no-any-return]


def cholesky_named(A: Any, upper: bool, name: str) -> Any:
    """The factor; LinAlgError, which says `name`, if a matrix is not positive-definite."""
    factor, info = _cholesky(A, upper, name)
    raise_failures(name, info, "cholesky")
    return factor


@public("linalg.cholesky")
def cholesky(input: Tensor, *, upper: bool = False) -> Any:
    """L with A = L L^H (U with A = U^H U), (*, n, n); LinAlgError if a matrix is not positive-definite.

    Reads the lower triangle of A, the upper one with `upper`."""
    return cholesky_named(input, upper, "linalg.cholesky")


@public("linalg.cholesky_ex")
def cholesky_ex(input: Tensor, *, upper: bool = False, check_errors: bool = False) -> Any:
    """(L, info): info is the order of the first leading minor that is not positive-definite (L is NaN then), else 0."""
    result = _cholesky(input, upper, "linalg.cholesky_ex")
    if check_errors:
        raise_failures("linalg.cholesky_ex", result.info, "cholesky")
    return result


@operation(name="cholesky_solve", public=False)
def _cholesky_solve(B: Tensor, L: Tensor, upper: bool) -> Tensor:
    name = "cholesky_solve"
    require_square(name, L, "L")
    require_matrix(name, B, "B")
    require_same_dtype(name, L, B)
    if B._meta.shape[-2] != L._meta.shape[-1]:
        raise RuntimeError(
            f"{name}: Incompatible matrix sizes for cholesky_solve: each A matrix is {L._meta.shape[-1]} by {L._meta.shape[-1]} "
            f"but each b matrix is {B._meta.shape[-2]} by {B._meta.shape[-1]}"
        )
    factor, b = common_batch(name, L, B)
    lower = factor.mH if upper else factor
    x = solve_triangular_with(lower, b, False)
    return solve_triangular_with(lower.mH, x, True)  # type: ignore[no-any-return]


@operation(name="cholesky_inverse", public=False)
def _cholesky_inverse(L: Tensor, upper: bool) -> Tensor:
    require_square("cholesky_inverse", L, "L")
    unit = prim.expand(identity(L._meta.shape[-1], L.dtype), shape=tuple(L._meta.shape))
    x = solve_triangular_with(L.mH if upper else L, unit, False)
    return _in_columns(x.mH @ x)  # type: ignore[no-any-return]


def _in_columns(x: Any) -> Any:
    """A result with its columns one after the other, as LAPACK leaves it, in memory of its own."""
    return laid_out(x, column_major_strides(tuple(x._meta.shape)))


# -- QR -----------------------------------------------------------------------------------------------------------
@operation(name="linalg_qr", public=False)
def _qr(A: Tensor, mode: str, result: Any) -> tuple[Tensor, Tensor]:
    name = "linalg.qr"
    require_matrix(name, A)
    require_floating(name, A)
    m, n = A._meta.shape[-2:]
    batch, d = batch_of(A), A.dtype
    k = m if mode == "complete" else min(m, n)
    if mode == "r":
        r = call_host("qr", (A,), ((*batch, k, n), d), mode=mode)
        return result(prim.zeros_of((0,), d), r)  # type: ignore[no-any-return]
    if mode not in ("reduced", "complete"):
        raise RuntimeError(f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'")
    if 0 in (m, n):  # nothing to factor: R is empty, Q the first columns of the unit matrix
        q = prim.expand(identity(m, d).narrow(1, 0, k), shape=(*batch, m, k))
        return result(*[tied(_in_columns(x), A) for x in (q, prim.zeros_of((*batch, k, n), d))])  # type: ignore[no-any-return]
    return result(*call_host("qr", (A,), ((*batch, m, k), d), ((*batch, k, n), d), mode=mode))  # type: ignore[no-any-return]


@public("linalg.qr")
def qr(A: Tensor, mode: str = "reduced") -> Any:
    """(Q, R) with A = Q R: Q (*, m, k), R (*, k, n); k = min(m, n), or m for mode "complete"; mode "r" leaves Q empty."""
    return _qr(A, mode, qr_result)


@operation(name="geqrf", public=False)
def geqrf(input: Tensor) -> tuple[Tensor, Tensor]:
    """(a, tau): R above Householder's reflectors, and their factors, in LAPACK's layout."""
    require_matrix("geqrf", input, "input")
    require_floating("geqrf", input)
    m, n = input._meta.shape[-2:]
    results = call_host("geqrf", (input,), (tuple(input._meta.shape), input.dtype), ((*batch_of(input), min(m, n)), input.dtype))
    return geqrf_result(*results)  # type: ignore[no-any-return]


def _reflectors(name: str, A: Any, tau: Any) -> list[tuple[Any, Any]]:
    """(v, tau) of each reflector I - tau v v^H, as columns (*, m, 1) and (*, 1, 1)."""
    require_matrix(name, A, "input")
    require_floating(name, A)
    require_same_dtype(name, A, tau)
    if tau._meta.ndim != A._meta.ndim - 1 or tau._meta.shape[:-1] != A._meta.shape[:-2]:
        raise RuntimeError(
            f"{name}: Expected tau to have one dimension less than input, and its batch dimensions, but got shapes {tuple(tau.shape)} and {tuple(A.shape)}"
        )
    m, n = A._meta.shape[-2:]
    k = tau._meta.shape[-1]
    if name == "ormqr":  # of a wide matrix, too
        if min(m, n) < k:
            raise RuntimeError(f"ormqr: input of shape {tuple(A.shape)} must have at least as many rows and columns as the {k} factors")
        A = A.narrow(-1, 0, k)
    elif m < n or n < k:
        raise RuntimeError(f"{name}: input of shape {tuple(A.shape)} must have at least as many rows as columns, and as many columns as the {k} factors")
    lower = A.tril(-1).narrow(-1, 0, k) + identity(m, A.dtype).narrow(1, 0, k)
    return [(lower.narrow(-1, i, 1), tau.narrow(-1, i, 1).unsqueeze(-1)) for i in range(k)]


@operation(name="linalg_householder_product", public=False)
def _householder_product(A: Tensor, tau: Tensor) -> Tensor:
    m, n = A._meta.shape[-2:]
    reflectors = _reflectors("linalg.householder_product", A, tau)
    q: Any = prim.expand(identity(m, A.dtype).narrow(1, 0, n), shape=tuple(A._meta.shape))
    for v, t in reversed(reflectors):
        q = q - (t * v) @ (v.mH @ q)
    return _in_columns(q) if reflectors else tied(_in_columns(q), A, tau)  # type: ignore[no-any-return]


@public("linalg.householder_product")
def householder_product(input: Tensor, tau: Tensor) -> Any:
    """The first n columns of the product of the reflectors below the diagonal of A (*, m, n) with factors tau (*, k)."""
    return _householder_product(input, tau)


@operation(name="ormqr", public=False)
def ormqr(input: Tensor, input2: Tensor, input3: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    """Q C, C Q, or with Q^H, for C = input3 and the full Q of the reflectors `input` with factors `input2` that geqrf gives."""
    reflectors = _reflectors("ormqr", input, input2)
    x: Any = input3
    if not reflectors:
        return tied(_in_columns(x), input, input2)  # type: ignore[no-any-return]
    # Q = H_1 ... H_k: Q x applies H_k first, x Q applies H_1 first; the adjoint turns the order around.
    order = reflectors if left == transpose else reflectors[::-1]
    for v, t in order:
        scale = t.conj() if transpose else t
        x = x - (scale * v) @ (v.mH @ x) if left else x - (x @ v) @ (scale * v.mH)
    return _in_columns(x)  # type: ignore[no-any-return]


# -- LU -----------------------------------------------------------------------------------------------------------
def _lu_call(A: Any, pivot: bool, name: str) -> Any:
    require_matrix(name, A)
    require_floating(name, A)
    if not pivot:
        raise RuntimeError(f"{name}: LU without pivoting is not implemented on the CPU")
    m, n = A._meta.shape[-2:]
    batch = batch_of(A)
    return call_host("lu", (A,), (tuple(A._meta.shape), A.dtype), ((*batch, min(m, n)), dtypes.int32), ((*batch, m), dtypes.int64), (batch, dtypes.int32))


@operation(name="linalg_lu_factor", public=False)
def _lu_factor(A: Tensor, pivot: bool, name: str) -> tuple[Tensor, Tensor, Tensor]:
    packed, pivots, _, info = _lu_call(A, pivot, name)
    return lu_factor_ex_result(packed, pivots, info)  # type: ignore[no-any-return]


@public("linalg.lu_factor")
def lu_factor(A: Tensor, *, pivot: bool = True) -> Any:
    """(LU, pivots): L below U in one matrix, and LAPACK's 1-based int32 row exchanges. LinAlgError if U is singular."""
    packed, pivots, info = _lu_factor(A, pivot, "linalg.lu_factor")
    raise_failures("torch.linalg.lu_factor", info, "lu")
    return lu_factor_result(packed, pivots)


@public("linalg.lu_factor_ex")
def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> Any:
    """(LU, pivots, info): as lu_factor; info is the position from 1 of the first zero on U's diagonal, or 0."""
    result = _lu_factor(A, pivot, "linalg.lu_factor_ex")
    if check_errors:
        raise_failures("torch.linalg.lu_factor_ex", result.info, "lu")
    return result


def _unpack(packed: Any, order: Any, result: Any) -> Any:
    m, n = packed._meta.shape[-2:]
    k = min(m, n)
    lower = packed.narrow(-1, 0, k).tril(-1) + identity(m, packed.dtype).narrow(1, 0, k)
    upper = packed.narrow(-2, 0, k).triu()
    return result(*[laid_out(x, contiguous_strides(tuple(x._meta.shape))) for x in (permutation_matrix(order, packed.dtype), lower, upper)])


@operation(name="linalg_lu", public=False)
def _lu(A: Tensor, pivot: bool) -> tuple[Tensor, Tensor, Tensor]:
    packed, _, order, _ = _lu_call(A, pivot, "linalg.lu")
    return _unpack(packed, order, lu_result)  # type: ignore[no-any-return]


@public("linalg.lu")
def lu(A: Tensor, *, pivot: bool = True) -> Any:
    """(P, L, U) with A = P L U, by partial pivoting."""
    return _lu(A, pivot)


@operation(name="lu_unpack_op", public=False)
def _lu_unpack(LU_data: Tensor, LU_pivots: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    require_matrix("torch.lu_unpack", LU_data, "LU_data")
    if LU_pivots.dtype is not dtypes.int32:
        raise RuntimeError(f"torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype, got {LU_pivots.dtype}")
    m = LU_data._meta.shape[-2]
    expected(LU_pivots, 1, m + 1, LU_pivots._meta.ndim - 1, what="pivot")
    order = call_host("permutation", (LU_pivots,), ((*LU_pivots._meta.shape[:-1], m), dtypes.int64), rows=m)
    return _unpack(LU_data, order, return_type("lu_unpack", "P", "L", "U"))  # type: ignore[no-any-return]


@public("lu_unpack")
def lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
    """(P, L, U) from packed factors and pivots; the parts that are not asked for are empty."""
    made = _lu_unpack(LU_data, LU_pivots)
    empty = LU_data.new_empty((0,))
    return type(made)(made.P if unpack_pivots else empty, made.L if unpack_data else empty, made.U if unpack_data else empty)


# -- LDL ----------------------------------------------------------------------------------------------------------
ldl_factor_result = return_type("linalg_ldl_factor", "LD", "pivots")
ldl_factor_ex_result = return_type("linalg_ldl_factor_ex", "LD", "pivots", "info")


@operation(name="linalg_ldl_factor_ex", public=False)
def _ldl_factor(input: Tensor, hermitian: bool, name: str) -> tuple[Tensor, Tensor, Tensor]:
    require_square(name, input)
    shape, batch = tuple(input._meta.shape), batch_of(input)
    results = call_host("ldl", (input,), (shape, input.dtype), (shape[:-1], dtypes.int32), (batch, dtypes.int32), hermitian=hermitian)
    return ldl_factor_ex_result(*results)  # type: ignore[no-any-return]


@public("linalg.ldl_factor")
def ldl_factor(input: Tensor, *, hermitian: bool = False) -> Any:
    """(LD, pivots) of symmetric (Hermitian) matrices in LAPACK's layout, by the lower triangle. Without gradient, as in PyTorch."""
    packed, pivots, info = _ldl_factor(input, hermitian, "linalg.ldl_factor")
    raise_failures("torch.linalg.ldl_factor", info, "ldl")
    return ldl_factor_result(packed, pivots)


@public("linalg.ldl_factor_ex")
def ldl_factor_ex(input: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> Any:
    """(LD, pivots, info): as ldl_factor; info is the position from 1 of the first zero block of D, or 0."""
    result = _ldl_factor(input, hermitian, "linalg.ldl_factor_ex")
    if check_errors:
        raise_failures("torch.linalg.ldl_factor_ex", result.info, "ldl")
    return result


@operation(name="linalg_ldl_solve", public=False)
def _ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, hermitian: bool) -> Tensor:
    name = "torch.linalg.ldl_solve"
    require_square(name, LD, "LD")
    require_matrix(name, B, "B")
    require_same_dtype(name, LD, B)
    if tuple(pivots._meta.shape) != tuple(LD._meta.shape[:-1]):
        raise RuntimeError(f"{name}: Expected LD.shape[:-1] and pivots.shape to be the same, but got pivots with shape {tuple(pivots.shape)}")
    if pivots.dtype.category != 1:
        raise RuntimeError(f"{name}: Expected pivots to be integers. Got {pivots.dtype}")
    if B._meta.shape[-2] != LD._meta.shape[-1]:
        raise RuntimeError(f"{name}: Incompatible shapes of LD and B: {tuple(LD.shape)} and {tuple(B.shape)}")
    ld, b = common_batch(name, LD, B)
    order = prim.expand(pivots, shape=tuple(ld._meta.shape[:-1])) if tuple(pivots._meta.shape) != tuple(ld._meta.shape[:-1]) else pivots
    return call_host("ldl_solve", (ld, order, b), (tuple(b._meta.shape), B.dtype), hermitian=hermitian)  # type: ignore[no-any-return]


@public("linalg.ldl_solve")
def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> Any:
    """X with A X = B from the factors that ldl_factor gives."""
    return _ldl_solve(LD, pivots, B, hermitian)
