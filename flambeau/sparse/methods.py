"""Tensor's methods about layouts, of dense and of sparse tensors. Loaded at the first call (see flambeau/__init__.py)."""

from __future__ import annotations

from typing import Any

from flambeau import layouts
from flambeau.ops.named import public
from flambeau.sparse import products, structure
from flambeau.sparse.tensor import CooTensor, SparseTensor, coo
from flambeau.tensor import Tensor


def to_sparse(self: Tensor, sparse_dim: Any = None, *, layout: Any = None, blocksize: Any = None, dense_dim: int | None = None) -> Tensor:
    """COO by default, or another sparse layout. `sparse_dim`: how many of the first dims get indices; the others stay dense."""
    if isinstance(sparse_dim, layouts.layout):
        sparse_dim, layout = None, sparse_dim
    if layout is None or layout is layouts.sparse_coo:
        if not isinstance(self, SparseTensor):
            return structure.from_dense(self, sparse_dim)
        if sparse_dim is not None and sparse_dim != self.sparse_dim():
            raise RuntimeError(f"to_sparse: the tensor has {self.sparse_dim()} sparse dims, not {sparse_dim}; use to_dense().to_sparse({sparse_dim})")
        return structure.as_coo(self)
    if layout is layouts.strided:
        return to_dense(self)
    if layout not in (layouts.sparse_csr, layouts.sparse_csc):
        raise NotImplementedError(f"to_sparse: layout {layout} is not there (blocks); use torch.sparse_csr")
    t = self if isinstance(self, SparseTensor) else structure.from_dense(self)
    return structure.as_compressed(t, layout)


def to_sparse_coo(self: Tensor) -> Tensor:
    """As COO."""
    return to_sparse(self)


def _dense_dims(self: Tensor, dense_dim: int | None, name: str) -> Tensor:
    """COO with so many dense dims (None: as many as there are) and two sparse ones."""
    if dense_dim is None or isinstance(self, SparseTensor):
        if dense_dim not in (None, self.dense_dim() if isinstance(self, SparseTensor) else None):
            raise RuntimeError(f"{name}: conversion of a sparse tensor keeps its dense dims; got dense_dim={dense_dim}")
        return self
    if not 0 <= dense_dim == self.ndim - 2:
        raise RuntimeError(f"{name}: expected two sparse dims and {dense_dim} dense dims, got shape {tuple(self.shape)}; batches of matrices are not there")
    return structure.from_dense(self, 2)


def to_sparse_csr(self: Tensor, dense_dim: int | None = None) -> Tensor:
    """A matrix (with `dense_dim`, one of dense tensors) as CSR."""
    return to_sparse(_dense_dims(self, dense_dim, "to_sparse_csr"), layout=layouts.sparse_csr)


def to_sparse_csc(self: Tensor, dense_dim: int | None = None) -> Tensor:
    """A matrix (with `dense_dim`, one of dense tensors) as CSC."""
    return to_sparse(_dense_dims(self, dense_dim, "to_sparse_csc"), layout=layouts.sparse_csc)


def to_sparse_bsr(self: Tensor, blocksize: Any, dense_dim: int | None = None) -> Tensor:
    """NotImplementedError: blocks are not there."""
    return to_sparse(self, layout=layouts.sparse_bsr)


def to_sparse_bsc(self: Tensor, blocksize: Any, dense_dim: int | None = None) -> Tensor:
    """NotImplementedError: blocks are not there."""
    return to_sparse(self, layout=layouts.sparse_bsc)


def to_dense(self: Tensor, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
    """All elements, zeros included; a dense tensor itself."""
    made = structure.to_dense(self) if isinstance(self, SparseTensor) else self
    return made if dtype is None else made.to(dtype)  # type: ignore[no-any-return]


def sparse_mask(self: Tensor, mask: Tensor) -> Tensor:
    """The elements at the places that `mask`, a sparse tensor of the same shape, keeps."""
    if not isinstance(mask, SparseTensor):
        raise TypeError(f"sparse_mask(): expected the mask to be sparse, got layout {mask.layout}")
    return structure.masked(self, mask)


def coalesce(self: Tensor) -> Tensor:
    """Indices sorted, values of equal indices added up; the tensor itself if it is coalesced."""
    return structure.coalesce(self)


def smm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of a sparse and a dense matrix, as a sparse tensor."""
    product = products.matmul(input, mat2, "smm")
    return product if isinstance(product, SparseTensor) else structure.from_dense(product)


def dsmm(input: Tensor, mat2: Tensor) -> Tensor:
    """torch.mm: one operand may be sparse."""
    return input.mm(mat2)  # type: ignore[no-any-return]


hsmm = dsmm


def hspmm(mat1: Tensor, mat2: Tensor, *, out: Any = None) -> Tensor:
    """A sparse by a dense matrix, as a tensor with one sparse dim: only the rows that are not empty."""
    import flambeau as torch

    left = structure.coalesce(structure.as_coo(mat1)) if isinstance(mat1, SparseTensor) else None
    if left is None:
        raise RuntimeError(f"hspmm: expected mat1 to be sparse, got layout {mat1.layout}")
    rows = torch.unique(left._index[0])
    product = products.matmul(left, mat2, "hspmm")
    return coo(rows.unsqueeze(0), product.index_select(0, rows), (mat1.shape[0], mat2.shape[1]), True)


def sspaddmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1, out: Any = None) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2), all sparse but mat2."""
    if not isinstance(input, SparseTensor):
        raise RuntimeError(f"sspaddmm: expected input to be sparse, got layout {input.layout}")
    product: Any = structure.from_dense(products.matmul(mat1, mat2, "sspaddmm"))
    return input * beta + product * alpha  # type: ignore[no-any-return]


def resize_as_sparse_(input: Tensor, the_template: Tensor) -> Tensor:
    """sparse_resize_ to the shape of another tensor."""
    if not isinstance(input, CooTensor):
        raise RuntimeError("resize_as_sparse_ expected sparse coordinate tensor layout")
    return input.resize_as_sparse_(the_template)


def _copy_of(name: str) -> Any:
    def copy(input: Tensor) -> Tensor:
        return getattr(input, name)().clone()  # type: ignore[no-any-return]

    copy.__doc__ = f"A copy of {name}()."
    return public(f"{name}_copy")(copy)


crow_indices_copy, col_indices_copy, ccol_indices_copy, row_indices_copy, indices_copy, values_copy = map(
    _copy_of, ("crow_indices", "col_indices", "ccol_indices", "row_indices", "indices", "values")
)


def sparse_dim(self: Tensor) -> int:
    """0 of a dense tensor."""
    return 0


def dense_dim(self: Tensor) -> int:
    """All dims of a dense tensor."""
    return self.ndim


def _demands(name: str, wanted: str) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"{name} expected {wanted} tensor layout but got {self._kind if isinstance(self, SparseTensor) else 'Strided'}")

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"RuntimeError: of tensors of {wanted} layout only."
    return method


is_coalesced = _demands("is_coalesced", "sparse coordinate")
indices = _demands("indices", "sparse coordinate")
_indices = _demands("_indices", "sparse coordinate")
values = _demands("values", "sparse")
_values = _demands("_values", "sparse")
_nnz = _demands("_nnz", "sparse")
crow_indices = _demands("crow_indices", "sparse row compressed")
col_indices = _demands("col_indices", "sparse row compressed")
ccol_indices = _demands("ccol_indices", "sparse column compressed")
row_indices = _demands("row_indices", "sparse column compressed")
sparse_resize_ = _demands("sparse_resize_", "sparse coordinate")


def sparse_resize_and_clear_(self: Any, size: Any, sparse_dim: int, dense_dim: int) -> Tensor:
    """A tensor without elements of another shape, in place."""
    from flambeau.sparse.construct import sparse_coo_tensor

    if not isinstance(self, CooTensor):
        raise RuntimeError("sparse_resize_and_clear_ expected sparse coordinate tensor layout")
    import flambeau as torch

    index = torch.zeros((sparse_dim, 0), dtype=torch.int64)
    data = torch.zeros((0, *tuple(size)[sparse_dim:]), dtype=self.dtype)
    return self._become(sparse_coo_tensor(index, data, tuple(size)))
