"""Norms of vectors and matrices, what is told by singular values, and products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flambeau import dtypes
from flambeau.ops import numeric
from flambeau.ops import primitives as prim
from flambeau.ops.creation import check_memory
from flambeau.ops.dtype_rules import refuse_dtype
from flambeau.ops.linalg.checks import public, require_floating, require_matrix
from flambeau.ops.linalg.spectra import eigvalsh, svdvals
from flambeau.ops.linalg.systems import inv_ex, one_tolerance, tolerances
from flambeau.ops.promotion import promote
from flambeau.ops.reductions import need_identity, vector_norm_op
from flambeau.ops.registry import operation
from flambeau.ops.remembered import remembered_with_axis
from flambeau.ops.shape import dim_of, one_of
from flambeau.ops.tied import tied_to
from flambeau.ops.wrapper import MISSING
from flambeau.trace.recorder import local

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

INFINITY = float("inf")


# -- norms --------------------------------------------------------------------------------------------------------
def _need_real_order(name: str, ord: Any) -> None:
    """PyTorch's errors for an order that is no real number of 64 bits."""
    if isinstance(ord, complex):
        raise RuntimeError(f"{name}: Expected a non-complex scalar as the order of norm, got {ord}")
    if isinstance(ord, int) and not -(2**63) <= ord < 2**63:
        raise OverflowError(f"{name}(): the order {ord} is an int too big to convert: it must lie within 64 bits")


@public("linalg.vector_norm")
@remembered_with_axis
def vector_norm(x: Tensor | Any = MISSING, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, input: Tensor | Any = MISSING) -> Any:
    """The p-norm over dims (all by default), the tensor counting as a vector; `ord` any number, inf, -inf or 0."""
    if x is MISSING or input is not MISSING:
        x = one_of("linalg.vector_norm", x=x, input=input)
    require_floating("linalg.vector_norm", x, low=True)
    _need_real_order("linalg.vector_norm", ord)
    dims = tuple(dim) if isinstance(dim, (list, tuple)) else dim
    need_identity(x, ord, dims)
    return vector_norm_op(x, float(ord), dims, keepdim, dtype)


@public("linalg.matrix_norm")
@remembered_with_axis
def matrix_norm(input: Tensor, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None) -> Any:
    """The norm of the matrices in two dims: "fro", "nuc" (singular values summed), 2, -2 (largest, smallest singular value),
    1, -1, inf, -inf (largest, smallest sum of a column, of a row)."""
    name = "linalg.matrix_norm"
    require_matrix(name, input)
    require_floating(name, input, low=ord not in ("nuc", 2, -2))
    _need_real_order(name, ord)
    if not isinstance(dim, (tuple, list)) or len(dim) != 2:
        raise RuntimeError(f"{name}: dim must be a 2-tuple. Got {dim}")
    row, column = dim_of(dim[0], input.ndim), dim_of(dim[1], input.ndim)
    if row == column:
        raise RuntimeError(f"{name}: dims must be different. Got ({dim[0]}, {dim[1]})")
    x = input if dtype is None else input.to(dtype)
    if ord == "fro":
        return vector_norm_op(x, 2.0, (row, column), keepdim, None)
    if ord in ("nuc", 2, -2):
        s = svdvals(x.movedim((row, column), (-2, -1)))
        result = s.sum(-1) if ord == "nuc" else _greatest(s, -1) if ord == 2 else s.amin(-1)
        return result.unsqueeze(min(row, column)).unsqueeze(max(row, column)) if keepdim else result
    if ord not in (1, -1, INFINITY, -INFINITY):
        raise RuntimeError(f"{name}: Order {ord} not supported; it must be 'fro', 'nuc', 1, -1, 2, -2, inf or -inf")
    if abs(ord) == INFINITY:
        row, column = column, row
    sums = x.abs().sum(row, keepdim=True)
    extreme = _greatest(sums, column, True) if ord > 0 else sums.amin(column, keepdim=True)
    return extreme if keepdim else extreme.squeeze((row, column))


def _greatest(x: Any, dim: int, keepdim: bool = False) -> Any:
    """The greatest of norms along a dim; 0 where there are none."""
    return x.amax(dim, keepdim=keepdim) if x._meta.shape[dim] else x.sum(dim, keepdim=keepdim)


@public("linalg.norm")
@remembered_with_axis
def norm(input: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """A vector norm over one dim, a matrix norm over two; without `ord` the 2-norm of all elements (of all given dims)."""
    name = "linalg.norm"
    if dim is not None:
        dims = (dim,) if isinstance(dim, int) else tuple(dim)
        if ord is not None and len(dims) not in (1, 2):
            raise RuntimeError(f"{name}: If dim is specified, it must be of length 1 or 2. Got {list(dims)}")
    elif ord is not None:
        if input.ndim not in (1, 2):
            raise RuntimeError(f"{name}: If dim is not specified but ord is, the input must be 1D or 2D. Got {input.ndim}D.")
        dims = tuple(range(input.ndim))
    else:
        return vector_norm(input, 2, None, keepdim, dtype=dtype)
    if ord is None:
        return vector_norm(input, 2, dims, keepdim, dtype=dtype)
    if len(dims) == 1:
        if isinstance(ord, str):
            raise RuntimeError(f"{name}: Order {ord} not supported for vectors: it must be a number")
        return vector_norm(input, ord, dims, keepdim, dtype=dtype)
    return matrix_norm(input, ord, dims, keepdim, dtype=dtype)


@public("linalg.cond")
def cond(input: Tensor, p: Any = None) -> Any:
    """The condition number of each matrix in a norm (2 by default): norm(A) * norm(inverse), inf for a singular matrix."""
    require_matrix("linalg.cond", input)
    if not (input.shape[-1] and input.shape[-2]):  # PyTorch's convention; there is no norm to divide by
        return tied_to(input.new_zeros(input.shape[:-2], dtype=input.dtype.to_real()), input)
    if p is None or p in (2, -2):
        s = svdvals(input)
        return s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]
    if input.shape[-1] != input.shape[-2]:
        raise RuntimeError(f"linalg.cond(ord={p}): A must be batches of square matrices, but they are {input.shape[-2]} by {input.shape[-1]} matrices")
    inverse, info = inv_ex(input)
    singular = info != 0
    inverse = inverse.masked_fill(singular.unsqueeze(-1).unsqueeze(-1), 0.0)
    return (matrix_norm(input, p) * matrix_norm(inverse, p)).masked_fill(singular, INFINITY)


@public("linalg.matrix_rank")
def matrix_rank(input: Tensor, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Any:
    """How many singular values (or |eigenvalues|) of each matrix exceed max(atol, rtol * largest); int64."""
    one_tolerance("matrix_rank", "tol", tol, atol, rtol)
    require_matrix("linalg.matrix_rank", input, "input")
    if tol is None and input.dtype.to_real() not in (dtypes.float32, dtypes.float64) and getattr(local.trace, "autocast", None) is None:
        raise RuntimeError(f"linalg.matrix_rank(): input must be float32, float64, complex64 or complex128 where tol is not given, got {input.dtype}")
    absolute, relative = (tol, 0.0) if tol is not None else tolerances(input, atol, rtol)
    s = eigvalsh(input.detach()).abs() if hermitian else svdvals(input.detach())
    if s.shape[-1] == 0:
        return s.new_zeros(s.shape[:-1], dtype=dtypes.int64)
    cut = s.amax(-1) * relative
    cut = cut.maximum(absolute.to(s.dtype) if hasattr(absolute, "_meta") else cut.new_full((), absolute))
    return (s > cut.unsqueeze(-1)).sum(-1)


# -- products -----------------------------------------------------------------------------------------------------
@public("linalg.multi_dot")
def multi_dot(tensors: Sequence[Tensor]) -> Any:
    """The product of two or more matrices in the order that costs least; the first and the last may be vectors."""
    name = "multi_dot()"
    if hasattr(tensors, "_meta"):
        raise TypeError(f"linalg_{name}: argument 'tensors' (position 1) must be tuple of Tensors, not Tensor")
    if len(tensors) < 2:
        raise RuntimeError(f"{name}: expected at least 2 tensors but got {len(tensors)}")
    xs = list(tensors)
    first, last = xs[0].ndim == 1, xs[-1].ndim == 1
    for i, x in enumerate(xs):
        if x.ndim != 2 and not (x.ndim == 1 and i in (0, len(xs) - 1)):
            raise RuntimeError(f"{name}: tensor {i} must be 2D{' or 1D' if i in (0, len(xs) - 1) else ''} but got {x.ndim}D")
    for i, (a, b) in enumerate(zip(xs, xs[1:], strict=False)):
        if a.shape[-1] != b.shape[0]:
            raise RuntimeError(f"{name}: tensors {i} and {i + 1} with shapes {list(a.shape)} and {list(b.shape)} cannot be multiplied")
    if first:
        xs[0] = xs[0].unsqueeze(0)
    if last:
        xs[-1] = xs[-1].unsqueeze(1)
    result = _chain(xs, _cheapest([x.shape[0] for x in xs] + [xs[-1].shape[1]]), 0, len(xs) - 1)
    if first:
        result = result.squeeze(0)
    return result.squeeze(-1) if last else result


def _cheapest(sizes: list[int]) -> dict[tuple[int, int], int]:
    """Where to cut each run of factors (Cormen et al., "Introduction to Algorithms", chapter 15.2)."""
    n = len(sizes) - 1
    cost = {(i, i): 0 for i in range(n)}
    cut = {}
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            cost[i, j], cut[i, j] = min((cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j))
    return cut


def _chain(xs: list[Any], cut: dict[tuple[int, int], int], i: int, j: int) -> Any:
    if i == j:
        return xs[i]
    return _chain(xs, cut, i, cut[i, j]) @ _chain(xs, cut, cut[i, j] + 1, j)


@operation(name="linalg_vecdot", public=False)
def _vecdot(x: Tensor, y: Tensor, dim: int) -> Tensor:
    a, b = promote(x, y)
    require_floating("linalg.vecdot", a, low=True)
    product = prim.mul(prim.conj_physical(a) if a.dtype.is_complex else a, b)
    d = dim_of(dim, product._meta.ndim)
    return prim.sum(product, dims=(d,)) if product._meta.ndim else product  # type: ignore[no-any-return]


@public("linalg.vecdot")
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Any:
    """Dot products along a dim, the first argument conjugated; other dims broadcast."""
    if x.dtype is not y.dtype:
        raise RuntimeError(f"linalg.vecdot: Expected x and y to have the same dtype, but found x of type {x.dtype} and y of type {y.dtype} instead")
    if x.ndim == y.ndim == 1 and x.shape != y.shape:
        raise RuntimeError(f"linalg.vecdot: vectors do not broadcast, they must have the same number of elements, got {x.shape[0]} and {y.shape[0]}")
    return _vecdot(x, y, dim)


@public("linalg.cross")
def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Any:
    """Cross products along a dim of size 3."""
    refuse_dtype("cross", input.dtype)
    if input.ndim != other.ndim:
        raise RuntimeError(f"linalg.cross: inputs must have the same number of dimensions, got shapes {tuple(input.shape)} and {tuple(other.shape)}")
    d = dim_of(dim, input.ndim)
    if input.shape[d] != 3 or other.shape[d] != 3:
        raise RuntimeError(f"linalg.cross: inputs dimension {dim} must have length 3. Got {input.shape[d]} and {other.shape[d]}")
    return numeric.cross(input, other, dim)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    """The diagonals of matrices: a view."""
    return A.diagonal(offset, dim1, dim2)


@public("linalg.vander")
def vander(x: Tensor, *, N: int | None = None) -> Any:
    """x ** 0, x ** 1, ..., x ** (N - 1) as a new last dim; N is the length of x by default."""
    refuse_dtype("linalg.vander", x.dtype)
    if x.ndim == 0:
        x = x.reshape(1)
    if (x.shape[-1] if N is None else N) <= 1:
        raise RuntimeError(f"linalg.vander(): N must be greater than 1, got {x.shape[-1] if N is None else N}")
    kind = dtypes.int64 if x.dtype.category < 2 else x.dtype
    columns = x.shape[-1] if N is None else N
    check_memory((*x.shape, columns), kind)
    return x.to(kind).unsqueeze(-1).pow(x.new_tensor(list(range(columns)), dtype=kind if kind.category < 3 else kind.to_real()))
