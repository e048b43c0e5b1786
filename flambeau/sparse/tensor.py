"""Sparse tensors: index tensors and a tensor of values, over which all operations are recorded compositions.

A SparseTensor has no memory of its own. An operation that is given one finds no storage in it, and the error that says so carries
the call to `dispatch.py` (see `ops/wrapper.py`), so dense calls pay nothing. `_data` holds the values of shape (nnz, *dense sizes) with
their history: gradients with respect to a sparse tensor are gradients of its values.

    COO                 `_index`: int64 (sparse dims, nnz), in any order, duplicates add up; `_coalesced`: sorted and without duplicates
    CSR (CSC)           `_crow`: (rows + 1,) where each row (column) starts in `_col`, the columns (rows), and in `_data`
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import flambeau as torch
from flambeau import layouts
from flambeau.ops.wrapper import NotStrided
from flambeau.tensor import Tensor
from flambeau.trace.meta import Meta, meta
from flambeau.trace.mutation import into_sparse
from flambeau.trace.storage import Storage

_METAS: dict[tuple[Any, ...], Meta] = {}  # apart from those of strided tensors, so that no known call mistakes one for the other


def _meta_of(shape: tuple[int, ...], d: torch.dtype, requires_grad: bool = False, leaf: bool = True) -> Meta:
    key = (shape, d, requires_grad, leaf)
    found = _METAS.get(key)
    if found is None:
        like = meta(shape, None, d, 0, requires_grad, leaf)
        found = Meta()
        for name in Meta.__slots__:
            setattr(found, name, getattr(like, name))
        found.is_contiguous = False
        found.kind = object()  # no call of strided tensors is one of these
        found = _METAS.setdefault(key, found)
    return found


_IN_PLACE = "add sub mul div neg t transpose sqrt abs relu sin tanh pow square asin atan sinh log1p expm1 floor ceil round trunc sign".split()


class SparseTensor(Tensor):
    """What the layouts share. Values are shared by aliases (`detach`, `_values`), as in PyTorch."""

    _gen = _slot = -1  # no trace has it
    _immediate = None
    _data: Tensor
    _leaf: bool = False
    is_sparse_csr = False
    is_sparse_csc = False

    # -- what a strided tensor has and this one has not -----------------------------------------------------------
    @property
    def _storage(self) -> Storage | None:  # type: ignore[override]
        raise NotStrided(self)

    def _fresh_meta(self) -> Meta:
        m = self._meta
        needs = self._data.requires_grad
        return m if m.requires_grad == needs else _meta_of(tuple(m.shape), m.dtype, needs, not needs or self._leaf)

    @property
    def is_leaf(self) -> bool:
        """Whether gradients stop here."""
        return self._leaf or not self._data.requires_grad

    @property
    def requires_grad(self) -> bool:
        """Whether the values require gradients."""
        return self._data.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Make this a leaf whose `.grad` is a sparse tensor with the same indices."""
        if not requires_grad and not self.is_leaf:
            raise RuntimeError("you can only change requires_grad flags of leaf variables.")
        if requires_grad and self._data.requires_grad:
            return self
        self._data = self._data.detach().requires_grad_(requires_grad)
        self._leaf = requires_grad
        return self

    @property
    def grad(self) -> Tensor | None:
        """The accumulated gradient of a leaf: sparse, with this tensor's indices."""
        g = self._data.grad if self._leaf else None
        return None if g is None else self._with(g)

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        self._data.grad = None if value is None else value._data  # type: ignore[attr-defined]

    @property
    def grad_fn(self) -> Any:
        """A handle on the history of the values."""
        return None if self.is_leaf else self._data.grad_fn

    def backward(self, gradient: Tensor | None = None, *args: Any, **kwargs: Any) -> None:
        """As of a dense tensor; the gradient is sparse with this tensor's indices, or dense."""
        if gradient is None:
            raise RuntimeError(f"grad can be implicitly created only for scalar outputs, got a sparse tensor of shape {tuple(self.shape)}")
        given = gradient if isinstance(gradient, SparseTensor) else gradient.sparse_mask(self)
        self._data.backward(given._data, *args, **kwargs)

    @property
    def _version(self) -> int:
        return self._data._version

    def stride(self, dim: int | None = None) -> Any:
        """PyTorch gives zeros for COO; a compressed tensor has no strides."""
        return (0,) * self.ndim if dim is None else 0

    def storage_offset(self) -> int:
        """0: there is no storage."""
        return 0

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """False: there are no strides."""
        return False

    def data_ptr(self) -> int:
        """RuntimeError: the elements lie in several tensors."""
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage: use _values() or to_dense()")

    def tolist(self) -> Any:
        """RuntimeError: use to_dense()."""
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage: use to_dense().tolist()")

    def untyped_storage(self) -> Any:
        """NotImplementedError: the elements lie in several tensors."""
        raise NotImplementedError("Cannot access storage of SparseTensorImpl: use _indices() and _values()")

    def numpy(self, *, force: bool = False) -> Any:
        """TypeError: use to_dense()."""
        raise TypeError(f"can't convert {self._kind} layout tensor to numpy. Use Tensor.to_dense() first.")

    @property
    def nbytes(self) -> int:
        """RuntimeError: add the bytes of the indices and of the values."""
        raise RuntimeError(
            "nbytes is not defined for sparse tensors.  If you want the size of the constituent tensors, add the nbytes of the indices "
            "and values.  If you want the size of the  equivalent dense tensor, multiply numel() by element_size()"
        )

    def item(self) -> Any:
        """The value of a one-element tensor as a Python number."""
        if self.numel() != 1:
            raise RuntimeError(f"a Tensor with {self.numel()} elements cannot be converted to Scalar")
        return self.to_dense().item()

    def __iter__(self) -> Iterator[Tensor]:
        return iter([self.select(0, i) for i in range(len(self))])

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        from flambeau.printing import sparse_repr

        return sparse_repr(self)

    __hash__ = Tensor.__hash__

    # -- copies ---------------------------------------------------------------------------------------------------
    _kind = "Sparse"

    def _parts(self) -> tuple[Tensor, ...]:
        """The index tensors."""
        raise NotImplementedError

    def _with(self, data: Tensor) -> SparseTensor:
        """The same indices with other values (one for each)."""
        raise NotImplementedError

    def _become(self, other: Tensor) -> SparseTensor:
        """In place: everything of `other`, which has the same layout and shape."""
        if type(other) is not type(self):
            raise RuntimeError(f"in-place operation: the result has layout {other.layout}, not {self.layout}; use the out-of-place form")
        self._meta = other._meta
        self.__dict__.update(other.__dict__)
        self._leaf = False
        return self

    def detach(self) -> Tensor:
        """The same indices and values without history."""
        return self._with(self._data.detach())

    def detach_(self) -> Tensor:
        """Forget the values' history, in place."""
        self._data = self._data.detach()
        self._leaf = False
        return self

    @property
    def data(self) -> Tensor:
        """The same values without history."""
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        self._become(value)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if id(self) in memo:
            return memo[id(self)]  # type: ignore[no-any-return]
        if not self.is_leaf:
            raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment")
        copied = self.detach().clone()
        if self.requires_grad:
            copied.requires_grad_()
        memo[id(self)] = copied
        return copied  # type: ignore[no-any-return]

    def __reduce_ex__(self, protocol: Any) -> Any:
        from flambeau.sparse.construct import rebuild

        return rebuild, self._state()

    def _state(self) -> tuple[Any, ...]:
        """(layout, (parts...)) as PyTorch's files have it: the arguments of torch._utils._rebuild_sparse_tensor."""
        raise NotImplementedError

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        """Another dtype, as of a dense tensor."""
        args = tuple(a._data if isinstance(a, SparseTensor) else a for a in args)
        data = self._data.to(*args, **kwargs)
        return self if data is self._data else self._with(data)

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The name of the type, or a tensor of another dtype."""
        if dtype is None:
            return self._data.type().replace("torch.", "torch.sparse." if self.is_sparse else "torch.sparse_csr.")
        if isinstance(dtype, str):
            dtype = dtype.replace("sparse.", "")
        data = self._data.type(dtype)
        return self if data is self._data else self._with(data)

    def type_as(self, other: Tensor) -> Tensor:
        """The dtype of `other`."""
        return self.to(other.dtype)

    @property
    def T(self) -> Tensor:
        """The matrix transposed."""
        return self.t()  # type: ignore[no-any-return]

    def _nnz(self) -> int:
        """How many elements (of the sparse dims) are kept."""
        return self._data.shape[0]

    def dense_dim(self) -> int:
        """How many of the last dims are dense."""
        return self._data.ndim - 1

    def sparse_dim(self) -> int:
        """How many of the first dims are addressed by indices."""
        return self.ndim - self.dense_dim()

    def _values(self) -> Tensor:
        """The values, without history; they share memory with this tensor."""
        return self._data.detach()

    def is_shared(self) -> bool:
        """Whether the values lie in shared memory."""
        return self._data.is_shared()

    def __getitem__(self, index: Any) -> Any:
        """By integers, slices of step 1, `...`, None, or one index tensor or mask."""
        from flambeau.sparse.indexing import getitem

        return getitem(self, index)

    def select(self, dim: int, index: int) -> Tensor:
        """One slice along a dim, without the dim."""
        from flambeau.sparse.structure import as_coo, selected

        return selected(as_coo(self), dim, int(index))

    def narrow(self, dim: int, start: Any, length: int) -> Tensor:
        """`length` slices along a dim from `start` on (a copy)."""
        from flambeau.sparse.structure import as_coo, cut

        return cut(as_coo(self), dim, int(start), length)

    narrow_copy = narrow

    def permute(self, *dims: Any) -> Tensor:
        """Dims in another order; sparse ones stay first."""
        from flambeau.sparse.structure import as_coo, permuted

        return permuted(as_coo(self), dims[0] if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else dims)

    def norm(self, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
        """The norm of all values of the coalesced tensor."""
        from flambeau.sparse.reductions import norm

        return norm(self, p, dim, keepdim, dtype)

    def softmax(self, dim: int, dtype: Any = None) -> Tensor:
        """torch.sparse.softmax."""
        from flambeau.sparse.reductions import softmax

        return softmax(self, dim, dtype=dtype)

    def log_softmax(self, dim: int, dtype: Any = None) -> Tensor:
        """torch.sparse.log_softmax."""
        from flambeau.sparse.reductions import log_softmax

        return log_softmax(self, dim, dtype=dtype)

    def copy_(self, src: Tensor, non_blocking: bool = False) -> SparseTensor:
        """Become a copy of a sparse tensor of the same layout."""
        if not isinstance(src, SparseTensor):
            raise RuntimeError(f"copy_() between dense and sparse Tensors is not implemented! Found self type = {self.type()} and src type = {src.type()}")
        return self._become(src.clone().to(self.dtype))

    def new(self, *args: Any) -> Tensor:
        """Legacy constructor of COO tensors with this dtype: (), (sizes...), (indices, values[, size])."""
        import flambeau.sparse as sparse

        name = next(n for n in dir(sparse) if n.endswith("Tensor") and getattr(getattr(sparse, n), "dtype", None) is self.dtype)
        return getattr(sparse, name)(*args)  # type: ignore[no-any-return]

    def zero_(self) -> SparseTensor:
        """Forget all elements (COO); a compressed tensor keeps its indices."""
        raise NotImplementedError


def _named(name: str) -> Any:
    def method(self: SparseTensor, *args: Any, **kwargs: Any) -> SparseTensor:
        if self.requires_grad and self.is_leaf and torch.is_grad_enabled():
            raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
        return into_sparse(self, getattr(self, name)(*args, **kwargs))  # type: ignore[return-value]

    method.__name__ = method.__qualname__ = name + "_"
    method.__doc__ = f"In-place form of `{name}`."
    return method


for _name in _IN_PLACE:
    setattr(SparseTensor, _name + "_", _named(_name))
for _symbol, _name in (("iadd", "add"), ("isub", "sub"), ("imul", "mul"), ("itruediv", "div")):
    setattr(SparseTensor, f"__{_symbol}__", getattr(SparseTensor, _name + "_"))


def _cast(name: str) -> Any:
    def method(self: SparseTensor, memory_format: Any = None) -> Tensor:
        return self.to(getattr(torch, name))

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"to(torch.{name})."
    return method


for _name in "float double half bfloat16 int long short bool cfloat cdouble".split():
    setattr(SparseTensor, _name, _cast(_name))


class CooTensor(SparseTensor):
    """Coordinate format."""

    is_sparse = True  # type: ignore[assignment]
    layout = layouts.sparse_coo  # type: ignore[assignment]
    _index: Tensor
    _coalesced: bool

    def _parts(self) -> tuple[Tensor, ...]:
        return (self._index,)

    def _with(self, data: Tensor) -> SparseTensor:
        return coo(self._index, data, tuple(self.shape), self._coalesced)

    def _state(self) -> tuple[Any, ...]:
        return self.layout, (self._index, self._data.detach(), self.shape, self._coalesced)

    def is_coalesced(self) -> bool:
        """Whether the indices are sorted and all different."""
        return self._coalesced

    def _coalesced_(self, coalesced: bool) -> Tensor:
        self._coalesced = coalesced
        return self

    def _indices(self) -> Tensor:
        """The indices, (sparse dims, nnz), in whatever order they are."""
        return self._index

    def indices(self) -> Tensor:
        """The indices of a coalesced tensor, (sparse dims, nnz)."""
        self._check("indices")
        return self._index

    def values(self) -> Tensor:
        """The values of a coalesced tensor, (nnz, *dense sizes), with gradients."""
        self._check("values")
        return self._data.view(self._data.shape) if self._leaf else self._data  # type: ignore[no-any-return]

    def _check(self, what: str) -> None:
        if not self._coalesced:
            raise RuntimeError(f"Cannot get {what} on an uncoalesced tensor, please call .coalesce() first")

    def zero_(self) -> SparseTensor:
        """Forget all elements."""
        return self._become(coo(self._index[:, :0], self._data.detach()[:0], tuple(self.shape), True))

    def sparse_resize_(self, size: Any, sparse_dim: int, dense_dim: int) -> Tensor:
        """Another shape, of the same numbers of dims, that has room for all elements."""
        if (sparse_dim, dense_dim) != (self.sparse_dim(), self.dense_dim()):
            raise RuntimeError("changing the number of sparse or dense dimensions is not supported: make a new tensor")
        if any(new < old for new, old in zip(size, self.shape, strict=True)) and self._nnz():
            raise RuntimeError("shrinking the size of dimensions on a non-empty sparse tensor is not supported.")
        self._meta = _meta_of(tuple(size), self.dtype)
        return self

    def resize_as_sparse_(self, the_template: Tensor) -> Tensor:
        """sparse_resize_ to the shape of another tensor."""
        return self.sparse_resize_(tuple(the_template.shape), the_template.sparse_dim(), the_template.dense_dim())


class CompressedTensor(SparseTensor):
    """Compressed rows (CSR) or columns (CSC) of a matrix."""

    is_sparse_csr = True
    layout = layouts.sparse_csr  # type: ignore[assignment]
    _kind = "SparseCsr"
    _crow: Tensor
    _col: Tensor
    _rows: Tensor | None = None  # the row of each element, once it has been asked for

    def _parts(self) -> tuple[Tensor, ...]:
        return (self._crow, self._col)

    def _with(self, data: Tensor) -> SparseTensor:
        made = compressed(self.layout, self._crow, self._col, data, tuple(self.shape))
        made._rows = self._rows
        return made

    def _state(self) -> tuple[Any, ...]:
        return self.layout, (self._crow, self._col, self._data.detach(), self.shape)

    def stride(self, dim: int | None = None) -> NoReturn:  # type: ignore[override]
        """RuntimeError: there are no strides."""
        raise RuntimeError("Sparse CSR tensors do not have strides")

    def values(self) -> Tensor:
        """The values, with gradients."""
        return self._data.view(self._data.shape) if self._leaf else self._data  # type: ignore[no-any-return]

    def _demand(self, layout: layouts.layout, name: str) -> None:
        if self.layout is not layout:
            major = "row" if layout is layouts.sparse_csr else "column"
            raise RuntimeError(f"{name} expected sparse {major} compressed tensor layout but got {self._kind}")

    def crow_indices(self) -> Tensor:
        """CSR: where each row starts, (rows + 1,)."""
        self._demand(layouts.sparse_csr, "crow_indices")
        return self._crow

    def col_indices(self) -> Tensor:
        """CSR: the column of each element."""
        self._demand(layouts.sparse_csr, "col_indices")
        return self._col

    def ccol_indices(self) -> Tensor:
        """CSC: where each column starts, (columns + 1,)."""
        self._demand(layouts.sparse_csc, "ccol_indices")
        return self._crow

    def row_indices(self) -> Tensor:
        """CSC: the row of each element."""
        self._demand(layouts.sparse_csc, "row_indices")
        return self._col

    def major(self) -> Tensor:
        """The row (CSC: column) of each element."""
        if self._rows is None:
            count = self._crow.shape[0] - 1
            lengths = self._crow[1:] - self._crow[:-1]
            self._rows = torch.repeat_interleave(torch.arange(count), lengths, output_size=self._nnz())
        return self._rows

    def zero_(self) -> SparseTensor:
        """Set all values to zero."""
        return self._become(self._with(torch.zeros_like(self._data, requires_grad=False)))


class CscTensor(CompressedTensor):
    """Compressed columns."""

    is_sparse_csr = False
    is_sparse_csc = True
    layout = layouts.sparse_csc  # type: ignore[assignment]
    _kind = "SparseCsc"


def coo(index: Tensor, data: Tensor, shape: tuple[int, ...], coalesced: bool = False) -> CooTensor:
    """A COO tensor over these very tensors, unchecked: index (sparse dims, nnz) int64, data (nnz, *dense sizes)."""
    t: CooTensor = object.__new__(CooTensor)
    t._index, t._data, t._coalesced = index, data, coalesced or index.shape[1] == 0
    t._meta = _meta_of(tuple(shape), data.dtype)
    return t


def compressed(layout: layouts.layout, crow: Tensor, col: Tensor, data: Tensor, shape: tuple[int, ...]) -> CompressedTensor:
    """A CSR or CSC tensor over these very tensors, unchecked."""
    t: CompressedTensor = object.__new__(CscTensor if layout is layouts.sparse_csc else CompressedTensor)
    t._crow, t._col, t._data = crow, col, data
    t._meta = _meta_of(tuple(shape), data.dtype)
    return t
