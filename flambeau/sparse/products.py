"""Products of sparse and dense matrices: rows of the dense operand, scaled by the values and added up by row (recorded, so differentiable)."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau import layouts
from flambeau.sparse.structure import as_compressed, as_coo, at, coalesce, merge, pointers, ranges, recorded
from flambeau.sparse.tensor import CompressedTensor, SparseTensor, coo
from flambeau.tensor import Tensor


@recorded
def scatter_rows(rows: Tensor, columns: Tensor, data: Tensor, dense: Tensor, count: int) -> Tensor:
    """sum over elements e with rows[e] = i of data[e] * dense[columns[e]], for each of `count` rows; dense (columns, k)."""
    taken = dense.index_select(0, columns) * data.unsqueeze(1)
    return torch.zeros((count, dense.shape[1]), dtype=dense.dtype).index_add(0, rows, taken)  # type: ignore[no-any-return]


def coordinates(t: SparseTensor) -> tuple[Tensor, Tensor]:
    """(row of each element, column of each element) of a matrix, in the order of its values."""
    if isinstance(t, CompressedTensor):
        return (t.major(), t._col) if t.layout is layouts.sparse_csr else (t._col, t.major())
    index = as_coo(t)._index
    return index[0], index[1]


def _matrix(t: SparseTensor, name: str) -> None:
    if t.ndim != 2 or t.dense_dim():
        raise RuntimeError(f"{name}: expected a sparse matrix (2 sparse dims, no dense ones), got shape {tuple(t.shape)} with {t.dense_dim()} dense dims")


def _same_dtype(name: str, a: Tensor, b: Tensor) -> None:
    if a.dtype is not b.dtype:
        raise RuntimeError(f"{name}: expected both operands to have the same dtype, got {a.dtype} and {b.dtype}; cast one with .to()")


def matmul(input: Tensor, other: Tensor, name: str = "matmul") -> Tensor:
    """The product where at least one operand is sparse: sparse @ sparse is sparse, the others are dense."""
    _same_dtype(name, input, other)
    if isinstance(input, SparseTensor):
        if input.ndim == 3 and other.ndim == 3:
            return _batched(input, other, name)
        _matrix(input, name)
        if isinstance(other, SparseTensor):
            return _sparse_sparse(input, other, name)
        if other.ndim == 1:
            if input.shape[1] != other.shape[0]:
                raise RuntimeError(f"mv: expected self.size(-1) == vec.size(-1), got {tuple(input.shape)} and {tuple(other.shape)}")
            return matmul(input, other.unsqueeze(1), name).squeeze(1)  # type: ignore[no-any-return]
        if other.ndim != 2:
            raise RuntimeError(f"{name}: a sparse matrix is multiplied by a dense vector or matrix, got shape {tuple(other.shape)}")
        if input.shape[1] != other.shape[0]:
            raise RuntimeError(f"addmm: Argument #3 (dense): Expected dim 0 size {input.shape[1]}, got {other.shape[0]}")
        rows, columns = coordinates(input)
        return scatter_rows(rows, columns, input._data, other, input.shape[0])  # type: ignore[no-any-return]
    assert isinstance(other, SparseTensor)
    _matrix(other, name)
    if input.ndim not in (1, 2):
        raise RuntimeError(f"{name}: a sparse matrix is multiplied by a dense vector or matrix, got shape {tuple(input.shape)}")
    if input.shape[-1] != other.shape[0]:
        raise RuntimeError(f"{name}: mat1 and mat2 shapes cannot be multiplied ({tuple(input.shape)} and {tuple(other.shape)})")
    rows, columns = coordinates(other)
    wide = input if input.ndim == 2 else input.unsqueeze(0)
    result = scatter_rows(columns, rows, other._data, wide.t(), other.shape[1]).t()
    return result if input.ndim == 2 else result.squeeze(0)  # type: ignore[no-any-return]


def _batched(input: SparseTensor, other: Tensor, name: str) -> Tensor:
    """bmm: a batch of sparse matrices is one matrix with blocks on its diagonal."""
    c = as_coo(input)
    if c.dense_dim() or isinstance(other, SparseTensor):
        raise RuntimeError(f"{name}: expected a sparse batch without dense dims and a dense batch")
    b, n, m = c.shape
    if tuple(other.shape[:2]) != (b, m):
        raise RuntimeError(f"{name}: expected the second batch to have shape ({b}, {m}, k), got {tuple(other.shape)}")
    batch, rows, columns = c._index.unbind(0)
    flat = other.reshape(b * m, other.shape[2])
    return scatter_rows(batch * n + rows, batch * m + columns, c._data, flat, b * n).reshape(b, n, other.shape[2])  # type: ignore[no-any-return]


def _sparse_sparse(input: SparseTensor, other: SparseTensor, name: str) -> Tensor:
    """Each element (i, k) of the first meets row k of the second; products at equal places add up (Gustavson, 1978)."""
    _matrix(other, name)
    if input.shape[1] != other.shape[0]:
        raise RuntimeError(f"mm: Argument #2: Expected dim 0 size {input.shape[1]}, got {other.shape[0]}")
    a, b = coalesce(as_coo(input)), coalesce(as_coo(other))
    shape = (input.shape[0], other.shape[1])
    starts = pointers(b._index[0], b.shape[0])
    first = starts.index_select(0, a._index[1])
    left, right = ranges(first, starts.index_select(0, a._index[1] + 1) - first)
    index = torch.stack((a._index[0].index_select(0, left), b._index[1].index_select(0, right)))
    data = a._data.index_select(0, left) * b._data.index_select(0, right)
    result = merge(index, data, shape, 2)
    return as_compressed(result, input.layout) if isinstance(input, CompressedTensor) else result


def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2)."""
    product: Any = matmul(mat1, mat2, "addmm")
    scaled = product if alpha == 1 else product * alpha
    if beta == 0:
        return scaled  # type: ignore[no-any-return]
    return scaled + input if beta == 1 and isinstance(input, SparseTensor) else (input if beta == 1 else input * beta) + scaled


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """nn.functional.linear with a sparse input or a sparse weight."""
    weight_t: Any = weight.t()
    product = matmul(input, weight_t, "linear")
    return product if bias is None else product + bias  # type: ignore[no-any-return]


def sampled_addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1.0, alpha: Any = 1.0, out: Any = None) -> Tensor:
    """The product of two dense matrices at the places of a CSR matrix only: alpha * (mat1 @ mat2) there + beta * input."""
    if not isinstance(input, CompressedTensor) or input.layout is not layouts.sparse_csr:
        raise RuntimeError(f"sampled_addmm: Expected self to have SparseCsr layout, but got {input.layout}")
    rows, columns = coordinates(input)
    if (mat1.shape[0], mat2.shape[1]) != tuple(input.shape) or mat1.shape[1] != mat2.shape[0]:
        raise RuntimeError(f"sampled_addmm: shapes do not fit: {tuple(input.shape)}, {tuple(mat1.shape)}, {tuple(mat2.shape)}")
    product = (mat1.index_select(0, rows) * mat2.t().index_select(0, columns)).sum(1)
    made = input._with(product * alpha + input._data * beta)
    return made if out is None else out._become(made)  # type: ignore[no-any-return]


def hadamard(input: Tensor, other: Tensor) -> Tensor:
    """The elementwise product with a sparse tensor: sparse, where both have elements."""
    if isinstance(input, SparseTensor) and isinstance(other, SparseTensor):
        return _both_sparse(input, other)
    sparse, dense = (input, other) if isinstance(input, SparseTensor) else (other, input)
    assert isinstance(sparse, SparseTensor)
    if dense.ndim == 0:
        return sparse._with(sparse._data * dense)
    shape = torch.broadcast_shapes(tuple(sparse.shape), tuple(dense.shape))
    if tuple(shape) != tuple(sparse.shape):
        raise RuntimeError(f"mul(sparse, dense): the result's shape {tuple(shape)} must be the sparse tensor's {tuple(sparse.shape)}")
    c = as_coo(sparse)
    return sparse._with(c._data * at(dense.expand(tuple(shape)), c._index))


def _both_sparse(input: SparseTensor, other: SparseTensor) -> Tensor:
    from flambeau.sparse.structure import look_up

    if tuple(input.shape) != tuple(other.shape):
        raise RuntimeError(f"mul operands have incompatible sizes: {tuple(input.shape)} and {tuple(other.shape)}")
    a, b = coalesce(as_coo(input)), coalesce(as_coo(other))
    found, where = look_up(b, a._index)
    kept = torch.nonzero(found).view(-1)
    data = a._data.index_select(0, kept) * b._data.index_select(0, where.index_select(0, kept))
    made = coo(a._index.index_select(1, kept), data, tuple(input.shape), True)
    return as_compressed(made, input.layout) if isinstance(input, CompressedTensor) else made
