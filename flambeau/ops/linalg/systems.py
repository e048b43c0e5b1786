"""Linear systems: inverses, solutions, determinants, least squares, and functions of a matrix."""

from __future__ import annotations

from math import prod as product_of
from typing import TYPE_CHECKING, Any

from flambeau import dtypes
from flambeau.ops import primitives as prim
from flambeau.ops.linalg.checks import (
    common_batch,
    contiguous_copy,
    identity,
    public,
    raise_failures,
    require_floating,
    require_matrix,
    require_same_dtype,
    require_square,
)
from flambeau.ops.linalg.gradients import permutation_matrix, solve_triangular_with
from flambeau.ops.linear import matmul_of
from flambeau.ops.primitive import broadcast_shapes, laid_out
from flambeau.ops.primitives.host import call_host
from flambeau.ops.primitives.move import expected
from flambeau.ops.promotion import convert
from flambeau.ops.registry import operation
from flambeau.ops.results import return_type
from flambeau.ops.shape import as_shape
from flambeau.ops.tied import tied, tied_to
from flambeau.trace.strides import column_major_strides

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

inv_ex_result = return_type("linalg_inv_ex", "inverse", "info")
solve_ex_result = return_type("linalg_solve_ex", "result", "info")
slogdet_result = return_type("linalg_slogdet", "sign", "logabsdet")
lstsq_result = return_type("linalg_lstsq", "solution", "residuals", "rank", "singular_values")


def batch_of(x: Any) -> tuple[int, ...]:
    """The leading dims of a batch of matrices."""
    return tuple(x._meta.shape[:-2])


# -- inverses and solutions ---------------------------------------------------------------------------------------
@operation(name="linalg_inv_ex", public=False)
def _inv(A: Tensor, name: str) -> tuple[Tensor, Tensor]:
    require_square(name, A)
    return inv_ex_result(*call_host("inv", (A,), (tuple(A._meta.shape), A.dtype), (batch_of(A), dtypes.int32)))  # type: ignore[no-any-return]


@public("linalg.inv")
def inv(A: Tensor) -> Any:
    """The inverse of each square matrix, (*, n, n); LinAlgError if one is singular."""
    inverse, info = _inv(A, "linalg.inv")
    raise_failures("linalg.inv", info, "inverse")
    return inverse


@public("linalg.inv_ex")
def inv_ex(A: Tensor, *, check_errors: bool = False) -> Any:
    """(inverse, info): info is the position from 1 of the zero pivot of a singular matrix, whose inverse is NaN, else 0."""
    result = _inv(A, "linalg.inv_ex")
    if check_errors:
        raise_failures("linalg.inv_ex", result.info, "inverse")
    return result


def _is_vector(A: Any, B: Any) -> bool:
    """PyTorch's rule for a right-hand side: one vector, or a batch of vectors shaped as A without its last dim."""
    a, b = tuple(A._meta.shape), tuple(B._meta.shape)
    return len(b) == 1 or (len(a) - 1 == len(b) and a[:-1] == b)


@operation(name="linalg_solve", public=False)
def _solve(A: Tensor, B: Tensor, left: bool, name: str) -> tuple[Tensor, Tensor]:
    require_square(name, A)
    require_same_dtype(name, A, B)
    vector = _is_vector(A, B)
    b: Any = as_shape(B, (*B._meta.shape, 1)) if vector else B
    if not vector:
        require_matrix(name, B, "B")
    elif not left:
        raise RuntimeError(
            f"{name}: Vector broadcasting of the left hand side is not supported for left=False. In this case linalg.solve is equivalent to B / A.squeeze(-1)"
        )
    n, side = A._meta.shape[-1], -2 if left else -1
    if b._meta.shape[side] != n:
        raise RuntimeError(
            f"{name}: Incompatible shapes of A and B for the equation {'AX = B' if left else 'XA = B'} "
            f"({n}x{n} and {b._meta.shape[-2]}x{b._meta.shape[-1]}; shapes {tuple(A.shape)} and {tuple(B.shape)})"
        )
    a, b = common_batch(name, A, b)
    if not left:
        a, b = a.mT, b.mT
    x, info = call_host("solve", (a, b), (tuple(b._meta.shape), A.dtype), (batch_of(b), dtypes.int32))
    if not left:
        x = x.mT
    if vector:
        x = as_shape(x, tuple(x._meta.shape[:-1]))
    return solve_ex_result(x, info)  # type: ignore[no-any-return]


@public("linalg.solve")
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Any:
    """X with A X = B, or X A = B; A (*, n, n), B (*, n, k) or vectors (*, n). LinAlgError if A is singular."""
    x, info = _solve(A, B, left, "linalg.solve")
    raise_failures("torch.linalg.solve", info, "solve")
    return x


@public("linalg.solve_ex")
def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> Any:
    """(result, info): as solve, but a singular A gives NaN and an info above 0."""
    result = _solve(A, B, left, "linalg.solve_ex")
    if check_errors:
        raise_failures("torch.linalg.solve_ex", result.info, "solve")
    return result


@operation(name="linalg_solve_triangular", public=False)
def _solve_triangular(A: Tensor, B: Tensor, upper: bool, left: bool, unitriangular: bool) -> Tensor:
    name = "linalg.solve_triangular"
    require_square(name, A)
    require_matrix(name, B, "B")
    require_same_dtype(name, A, B)
    if B._meta.shape[-2 if left else -1] != A._meta.shape[-1]:
        raise RuntimeError(
            f"{name}: Incompatible shapes of A and B for the equation {'AX = B' if left else 'XA = B'} "
            f"({A._meta.shape[-2]}x{A._meta.shape[-1]} and {B._meta.shape[-2]}x{B._meta.shape[-1]})"
        )
    a, b = common_batch(name, A, B)
    return solve_triangular_with(a, b, upper, left, unitriangular)  # type: ignore[no-any-return]


@public("linalg.solve_triangular")
def solve_triangular(input: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    """X with A X = B (or X A = B) for triangular A, of which one triangle is read; a zero on the diagonal gives inf or NaN."""
    return _solve_triangular(input, B, upper, left, unitriangular)


@operation(name="lu_solve", public=False)
def _lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, left: bool, adjoint: bool) -> Tensor:
    name = "linalg.lu_solve"
    require_square(name, LU, "LU")
    require_matrix(name, B, "B")
    require_same_dtype(name, LU, B)
    n = LU._meta.shape[-1]
    if pivots.dtype is not dtypes.int32:
        raise RuntimeError(f"{name}: pivots should be a Tensor of scalar type torch.int32. Got {pivots.dtype}")
    if tuple(pivots._meta.shape) != tuple(LU._meta.shape[:-1]):
        raise RuntimeError(f"{name}: pivots has shape {tuple(pivots.shape)}, must be {tuple(LU.shape[:-1])} for LU of shape {tuple(LU.shape)}")
    if B._meta.shape[-2 if left else -1] != n:
        raise RuntimeError(
            f"{name}: Incompatible shapes of A and B for the equation {'AX = B' if left else 'XA = B'} ({n}x{n} and {B._meta.shape[-2]}x{B._meta.shape[-1]})"
        )
    expected(pivots, 1, n + 1, pivots._meta.ndim - 1, what="pivot")
    order = call_host("permutation", (pivots,), (tuple(pivots._meta.shape), dtypes.int64), rows=n)
    p = permutation_matrix(order, LU.dtype)
    lu, p, b = common_batch(name, LU, p, B)
    if not left:  # X A = B is A^H X^H = B^H
        b, adjoint = b.mH, not adjoint
    if adjoint:
        x = solve_triangular_with(lu.mH, b, False)
        x = p @ solve_triangular_with(lu.mH, x, True, unit=True)
    else:
        x = solve_triangular_with(lu, p.mT @ b, False, unit=True)
        x = solve_triangular_with(lu, x, True)
    x = x if left else x.mH
    return laid_out(x, column_major_strides(tuple(x._meta.shape)))  # type: ignore[no-any-return]


@public("linalg.lu_solve")
def lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False) -> Any:
    """X with A X = B (X A = B, or A^H for A with `adjoint`) from the factors that lu_factor gives."""
    return _lu_solve(LU, pivots, B, left, adjoint)


@operation(name="linalg_tensorinv", public=False)
def _tensorinv(A: Tensor, ind: int) -> tuple[Tensor, Tensor]:
    shape = tuple(A._meta.shape)
    if ind <= 0:
        raise RuntimeError("Expected a strictly positive integer for 'ind'")
    if ind > len(shape):
        raise RuntimeError(f"linalg.tensorinv: ind = {ind} must not exceed the number of dims of the input, whose shape is {shape}")
    rows = product_of(shape[:ind])
    if rows != product_of(shape[ind:]):
        raise RuntimeError(
            f"Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got {product_of(shape[ind:])} != {rows}"
        )
    inverse, info = _inv(as_shape(A, (rows, rows)), "linalg.tensorinv")
    return as_shape(inverse, (*shape[ind:], *shape[:ind])), info


@public("linalg.tensorinv")
def tensorinv(input: Tensor, ind: int = 2) -> Any:
    """The inverse of a tensor as a map from its last dims to its first `ind` dims."""
    inverse, info = _tensorinv(input, ind)
    raise_failures("linalg.tensorinv", info, "inverse")
    return inverse


@public("linalg.tensorsolve")
def tensorsolve(input: Tensor, other: Tensor, dims: Any = None) -> Any:
    """X with tensordot(A, X, X.ndim) = B; `dims` of A are moved to its end first."""
    if dims is not None:
        moved = [d % input.ndim for d in dims]
        input = input.permute([d for d in range(input.ndim) if d not in moved] + moved)
    shape = tuple(input.shape[other.ndim :])
    rows = product_of(shape)
    if rows != product_of(input.shape[: other.ndim]):
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim]), "
            f"but got {rows} != {product_of(input.shape[: other.ndim])}"
        )
    return solve(input.reshape(rows, rows), other.reshape(rows)).reshape(shape)


# -- determinants -------------------------------------------------------------------------------------------------
@operation(name="linalg_det", public=False)
def _det(A: Tensor) -> Tensor:
    require_square("linalg.det", A)
    return call_host("det", (A,), (batch_of(A), A.dtype))  # type: ignore[no-any-return]


@public("linalg.det")
def det(A: Tensor) -> Any:
    """The determinant of each square matrix; it has a gradient for singular matrices, too."""
    return _det(A)


@operation(name="linalg_slogdet", public=False)
def _slogdet(A: Tensor, result: Any) -> tuple[Tensor, Tensor]:
    require_square("linalg.slogdet", A)
    batch = batch_of(A)
    return result(*call_host("slogdet", (A,), (batch, A.dtype), (batch, A.dtype.to_real())))  # type: ignore[no-any-return]


@public("linalg.slogdet")
def slogdet(A: Tensor) -> Any:
    """(sign, logabsdet) of the determinant of each square matrix; (0, -inf) for a singular one."""
    return _slogdet(A, slogdet_result)


@operation(name="logdet", public=False)
def logdet(input: Tensor) -> Tensor:
    """log(det(A)) of each square matrix: -inf for a singular one, NaN where a real determinant is negative."""
    sign, size = _slogdet(input, slogdet_result)
    if sign.dtype.is_complex:
        return prim.log(sign) + size
    return prim.where(prim.lt(sign, 0.0), float("nan"), size)  # type: ignore[no-any-return]


# -- pseudoinverses and least squares -----------------------------------------------------------------------------
def tolerances(A: Any, atol: Any, rtol: Any) -> tuple[Any, Any]:
    """(atol, rtol) as tensors or numbers; where neither is given, rtol is max(m, n) * eps."""
    default = max(A.shape[-2:], default=0) * _epsilon(A.dtype)
    if rtol is None:
        rtol = default if atol is None else (atol <= 0).to(A.dtype.to_real()) * default if hasattr(atol, "_meta") else (0.0 if atol > 0 else default)
    return 0.0 if atol is None else atol, rtol


def one_tolerance(function: str, name: str, old: Any, atol: Any, rtol: Any) -> None:
    """TypeError where the older name of a tolerance is given beside the newer ones."""
    if old is not None and not (atol is None and rtol is None):
        raise TypeError(f"linalg_{function}() received an invalid combination of arguments: `{name}` stands for `atol` and `rtol`; give one of them")


def _epsilon(d: Any) -> float:
    return 2.0**-52 if d.to_real() is dtypes.float64 else 2.0**-23


@operation(name="linalg_pinv", public=False)
def _pinv(A: Tensor, atol: Tensor, rtol: Tensor, hermitian: bool) -> Tensor:
    kind = A.dtype.to_real()
    batch = broadcast_shapes("linalg.pinv", [batch_of(A), tuple(atol._meta.shape), tuple(rtol._meta.shape)])
    if batch != batch_of(A):  # a matrix for each tolerance
        A = A.expand((*batch, *A._meta.shape[-2:]))  # type: ignore[attr-defined]
    cut = [prim.detach(prim.cast(t, dtype=kind) if t.dtype is not kind else t) for t in (atol, rtol)]
    m, n = A._meta.shape[-2:]
    return call_host("pinv", (A, *cut), ((*batch, n, m), A.dtype), hermitian=hermitian)  # type: ignore[no-any-return]


@public("linalg.pinv")
def pinv(input: Tensor, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Any:
    """The pseudoinverse (*, n, m) of each matrix: singular values up to max(atol, rtol * largest) count as zero."""
    from flambeau.ops.creation import full

    name = "linalg.pinv"
    one_tolerance("pinv", "rcond", rcond, atol, rtol)
    if hermitian:
        require_square(name, input)
    else:
        require_matrix(name, input)
        require_floating(name, input)
    absolute, relative = tolerances(input, atol, rcond if rtol is None else rtol)
    kind = input.dtype.to_real()
    given = [t if hasattr(t, "_meta") else full((), float(t), dtype=kind) for t in (absolute, relative)]
    return _pinv(input, *given, hermitian)


@operation(name="linalg_lstsq", public=False)
def _lstsq(A: Tensor, B: Tensor, rcond: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    name = "torch.linalg.lstsq"
    require_matrix(name, A, "input")
    require_floating(name, A)
    require_same_dtype(name, A, B)
    vector = _is_vector(A, B)
    b: Any = as_shape(B, (*B._meta.shape, 1)) if vector else B
    m, n = A._meta.shape[-2:]
    if b._meta.ndim < 2 or b._meta.shape[-2] != m:
        raise RuntimeError(f"{name}: input.size(-2) should match other.size({'-1' if vector else '-2'}), got {m} and shape {tuple(B.shape)}")
    a, b = common_batch(name, A, b)
    batch, k = batch_of(a), b._meta.shape[-1]
    x, rank, s = call_host(
        "lstsq", (a, b), ((*batch, n, k), A.dtype), (batch, dtypes.int64), ((*batch, min(m, n)), A.dtype.to_real()), rcond=rcond
    )  # fmt: skip
    size = prim.abs(matmul_of(a, x) - b)
    residuals = prim.sum(size * size, dims=(size._meta.ndim - 2,))
    if m > n:  # LAPACK solves in the place of B: its columns keep their distance
        rest = prim.zeros_of((*batch, m - n, k), A.dtype)
        tall = prim.concatenate(x, rest, dim=len(batch))
        x = laid_out(tall, column_major_strides(tuple(tall._meta.shape))).narrow(-2, 0, n)
    return as_shape(x, tuple(x._meta.shape[:-1])) if vector else x, residuals, rank, s


def _cut(A: Tensor, rcond: Any, driver: str) -> float:
    """The share of the largest singular value up to which others count as zero: what LAPACK's drivers make of `rcond`."""
    epsilon = _epsilon(A.dtype)
    if rcond is None or driver == "gels":  # which takes no `rcond`
        return epsilon * max(A.shape[-2:], default=0)
    cut = float(rcond)
    if driver == "gelsy":  # keeps one at least
        return min(cut, 1 - epsilon)
    if driver == "gelsd":
        return cut if 0 < cut < 1 else epsilon / 2
    return cut if cut >= 0 else epsilon


@public("linalg.lstsq")
def lstsq(input: Tensor, b: Tensor, rcond: Any = None, *, driver: str | None = None) -> Any:
    """(solution, residuals, rank, singular_values) of min ||A X - B||, the solution of least norm.

    A (*, m, n), B (*, m, k) or vectors. Every driver is the singular value decomposition here; the results that PyTorch leaves
    empty for a driver are empty. residuals (*, k) are empty for gelsy, the default, and unless m > n and every matrix has full rank.
    """
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError(f"torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss), got {driver!r}")
    driver = driver or "gelsy"
    if not b.ndim:
        raise RuntimeError("torch.linalg.lstsq: other must have at least 1 dimension, got a tensor of shape ()")
    if not 0 <= input.ndim - b.ndim <= 1:
        raise RuntimeError(
            "torch.linalg.lstsq: input.dim() must be greater or equal to other.dim() and (input.dim() - other.dim()) <= 1, "
            f"got shapes {tuple(input.shape)} and {tuple(b.shape)}"
        )
    cut = _cut(input, rcond, driver)
    solution, residuals, rank, singular = _lstsq(input, b, cut)
    if 0 in rank.shape and input.numel():  # of matrices that no column of b asks for
        _, _, rank, singular = _lstsq(input, input.new_empty((*input.shape[:-1], 0)), cut)
    for d, (n, of_all) in enumerate(zip(reversed(input.shape[:-2]), reversed(rank.shape), strict=False), start=1):
        if n != of_all:  # b has more batches than input, which has one rank each
            rank, singular = rank.narrow(-d, 0, 1), singular.narrow(-d - 1, 0, 1)
    m, n = input.shape[-2:]
    if m <= n or driver == "gelsy" or (driver != "gels" and bool((rank.detach() < n).any())):
        residuals = tied_to(input.new_empty((0,), dtype=input.dtype.to_real()), input, b)
    return lstsq_result(
        solution, residuals,
        rank if driver != "gels" else input.new_empty((0,), dtype=dtypes.int64),
        singular.detach() if driver in ("gelsd", "gelss") else input.new_empty((0,), dtype=input.dtype.to_real()),
    )  # fmt: skip


# -- functions of a matrix ----------------------------------------------------------------------------------------
@operation(name="linalg_matrix_exp", public=False)
def matrix_exp(input: Tensor) -> Tensor:
    """The exponential of each square matrix: scaling and squaring of a Pade approximant, in double precision inside."""
    require_matrix("linalg.matrix_exp", input)
    require_floating("linalg.matrix_exp", input, low=True)
    if input._meta.shape[-1] != input._meta.shape[-2]:
        raise RuntimeError(f"linalg.matrix_exp: A must be batches of square matrices, but they are {input._meta.shape[-2]} by {input._meta.shape[-1]} matrices")
    if input.dtype.itemsize == 2:
        wide = convert(input, dtypes.float32)
        return convert(call_host("matrix_exp", (wide,), (tuple(input._meta.shape), dtypes.float32)), input.dtype)  # type: ignore[no-any-return]
    return call_host("matrix_exp", (input,), (tuple(input._meta.shape), input.dtype))  # type: ignore[no-any-return]


@operation(name="linalg_matrix_power", public=False)
def _matrix_power(A: Tensor, n: int) -> Tensor:
    """By squaring; n > 0."""
    square: Any = A
    result: Any = None
    while n:
        if n & 1:
            result = square if result is None else matmul_of(result, square)
        n >>= 1
        if n:
            square = matmul_of(square, square)
    return result if result is not A else contiguous_copy(A)  # type: ignore[no-any-return]


@public("linalg.matrix_power", exact=lambda input, n: n not in (0, 1))  # else the last step is a product or an inverse, which ask for their dtype
def matrix_power(input: Tensor, n: int) -> Any:
    """The n-th power of each square matrix; negative powers are those of the inverse."""
    name = "linalg.matrix_power"
    require_matrix(name, input)
    if input.shape[-1] != input.shape[-2]:
        raise RuntimeError(f"{name}: input must be batches of square matrices, but they are {input.shape[-2]} by {input.shape[-1]} matrices")
    if n == 0:
        return _unit_like(input)
    return inv(input) if n == -1 else _matrix_power(inv(input) if n < 0 else input, abs(n))


@operation(name="linalg_unit_like", public=False)
def _unit_like(A: Tensor) -> Tensor:
    shape = tuple(A._meta.shape)
    return tied(contiguous_copy(prim.expand(identity(shape[-1], A.dtype), shape=shape)), A)  # type: ignore[no-any-return]
