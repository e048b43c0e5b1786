"""The linear algebra of the torch namespace and of Tensor's methods: older signatures of the functions of torch.linalg."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.ops.dtype_rules import refuse_dtype
from flambeau.ops.linalg import systems
from flambeau.ops.linalg.checks import public
from flambeau.ops.linalg.factors import _cholesky_inverse, _cholesky_solve, cholesky_named, householder_product, lu_factor_ex
from flambeau.ops.linalg.factors import geqrf as _geqrf
from flambeau.ops.linalg.factors import lu_unpack as lu_unpack
from flambeau.ops.linalg.factors import ormqr as _ormqr
from flambeau.ops.linalg.factors import qr as _qr
from flambeau.ops.linalg.norms import matrix_norm, multi_dot, vector_norm
from flambeau.ops.linalg.spectra import svd as _svd
from flambeau.ops.linalg.spectra import svdvals
from flambeau.ops.linalg.systems import logdet as logdet
from flambeau.ops.linalg.systems import matrix_exp as matrix_exp
from flambeau.ops.linalg.systems import matrix_power as matrix_power
from flambeau.ops.named import renamed
from flambeau.ops.results import return_type
from flambeau.ops.tied import tied_to
from flambeau.queries import contiguous_format
from flambeau.trace.mutation import into

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

inverse = renamed(systems.inv, A="input")
inverse.__name__ = inverse.__qualname__ = "inverse"
det = renamed(systems.det, A="input")
orgqr = renamed(householder_product, tau="input2")
orgqr.__name__ = orgqr.__qualname__ = "orgqr"
geqrf = public("geqrf")(_geqrf)
ormqr = public("ormqr")(_ormqr)


@public("slogdet")
def slogdet(input: Tensor) -> Any:
    """(sign, logabsdet) of the determinant of each square matrix."""
    return systems._slogdet(input, return_type("slogdet", "sign", "logabsdet"))


@public("svd")
def svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> Any:
    """(U, S, V) with A = U diag(S) V^H; `some`: the reduced form; without compute_uv U and V are zeros."""
    result = return_type("svd", "U", "S", "V")
    if not compute_uv:
        batch, (m, n) = tuple(input.shape[:-2]), tuple(input.shape[-2:])
        return result(input.new_zeros((*batch, m, m)), svdvals(input), input.new_zeros((*batch, n, n)))
    u, s, vh = _svd(input, not some)
    return result(u, s, vh.mH)


@public("qr")
def qr(input: Tensor, some: bool = True) -> Any:
    """(Q, R), reduced if `some`, else complete."""
    return return_type("qr", "Q", "R")(*_qr(input, "reduced" if some else "complete"))


@public("cholesky")
def cholesky(input: Tensor, upper: bool = False) -> Any:
    """L with A = L L^H, or U with A = U^H U; LinAlgError if a matrix is not positive-definite."""
    refuse_dtype("cholesky", input.dtype)
    return cholesky_named(input, upper, "cholesky")


@public("cholesky_solve")
def cholesky_solve(input: Tensor, input2: Tensor, upper: bool = False) -> Any:
    """X with A X = input for A = L L^H (A = L^H L with `upper`); L is `input2`."""
    return _cholesky_solve(input, input2, upper)


@public("cholesky_inverse")
def cholesky_inverse(input: Tensor, upper: bool = False) -> Any:
    """The inverse of A = L L^H (A = L^H L with `upper`); L is `input`."""
    return _cholesky_inverse(input, upper)


@public("triangular_solve")
def triangular_solve(input: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False) -> Any:
    """(solution, cloned_coefficient) of A X = input, or A^T X = input, for triangular A."""
    a, side = (A.mT, not upper) if transpose else (A, upper)
    solution = systems.solve_triangular(a, input, upper=side, unitriangular=unitriangular)
    cloned = A.expand(*solution.shape[:-2], *A.shape[-2:]).mT.clone(memory_format=contiguous_format).mT
    return return_type("triangular_solve", "solution", "cloned_coefficient")(solution, tied_to(cloned, input))


def lu(A: Tensor, pivot: bool = True, get_infos: bool = False, out: Any = None) -> Any:
    """(LU, pivots), and infos if asked for; takes singular matrices either way. The tensors of `out` may have any shape and dtype."""
    factors = lu_factor_ex(A, pivot=pivot)
    made = return_type("_lu_with_info", "LU", "pivots", "info")(*factors) if get_infos else tuple(factors[:2])
    if out is None:
        return made
    if not isinstance(out, (tuple, list)):
        raise TypeError(f"lu(): argument 'out' must be tuple of Tensors, not {type(out).__name__}")
    if len(out) != len(made):
        raise TypeError(f"lu(): expected tuple of {len(made)} elements but got {len(out)}")
    for target, source in zip(out, made, strict=True):
        target.resize_as_(source).copy_(source)
    return out


@public("lu_solve")
def lu_solve(input: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Any:
    """X with A X = input from the factors of A."""
    return systems.lu_solve(LU_data, LU_pivots, input)


@public("pinverse")
def pinverse(input: Tensor, rcond: float = 1e-15) -> Any:
    """The pseudoinverse; singular values up to rcond * largest count as zero."""
    from flambeau.ops.autocast_lists import float32_under_autocast

    return systems.pinv(float32_under_autocast(input), rcond)


def chain_matmul(*matrices: Tensor, out: Any = None) -> Any:
    """The product of matrices in the order that costs least."""
    for i, matrix in enumerate(matrices):
        if matrix.ndim != 2:
            raise RuntimeError(f"chain_matmul(): Tensor dimension is {matrix.ndim}, expected 2 instead (matrix {i} has shape {tuple(matrix.shape)})")
    return into(out, matrices[0].clone(), "chain_matmul") if len(matrices) == 1 else multi_dot(matrices, out=out)


def nuclear_norm(input: Tensor, dim: Any = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """The sum of the singular values; also `nuclear_norm(input, keepdim)`."""
    if isinstance(dim, bool):
        dim, keepdim = None, dim
    return matrix_norm(input, "nuc", (-2, -1) if dim is None else dim, keepdim, out=out)


def frobenius_norm(input: Tensor, dim: Any, keepdim: bool = False, *, out: Any = None) -> Any:
    """The 2-norm over the dims; of all elements without any."""
    return vector_norm(input, 2, dim, keepdim, out=out)
