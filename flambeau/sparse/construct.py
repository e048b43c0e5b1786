"""Sparse tensors from index and value tensors (or lists), and what files make them from."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import flambeau as torch
from flambeau import layouts
from flambeau.sparse.tensor import SparseTensor, compressed, coo
from flambeau.tensor import Tensor

_CHECK = [False]


class check_sparse_tensor_invariants(AbstractContextManager["check_sparse_tensor_invariants"]):
    """A switch (context manager, decorator, `enable()`): whether constructors look at the values of indices. Off, as in PyTorch."""

    def __init__(self, enable: bool = True) -> None:
        self._wanted = enable
        self._before: list[bool] = []

    @staticmethod
    def is_enabled() -> bool:
        """Whether constructors check."""
        return _CHECK[0]

    @staticmethod
    def enable() -> None:
        """Check from now on."""
        _CHECK[0] = True

    @staticmethod
    def disable() -> None:
        """Do not check from now on."""
        _CHECK[0] = False

    def __enter__(self) -> check_sparse_tensor_invariants:
        before = _CHECK[0]
        try:
            self._before.append(before)
            _CHECK[0] = self._wanted
            return self
        except BaseException:  # no `__exit__` will come
            _CHECK[0] = before
            raise

    def __exit__(self, *error: Any) -> None:
        _CHECK[0] = self._before.pop()

    def __call__(self, function: Any) -> Any:
        def checked(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self._wanted):
                return function(*args, **kwargs)

        return checked


def _index_tensor(name: str, value: Any) -> Tensor:
    t = value if isinstance(value, Tensor) else torch.as_tensor(value)
    if t.dtype.is_floating_point and t.numel() == 0:
        t = t.to(torch.int64)
    if t.dtype not in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        raise RuntimeError(f"{name} must be an integer tensor, but got {t.dtype}")
    return t.detach()


def _value_tensor(values: Any, dtype: Any, requires_grad: bool) -> Tensor:
    t = values if isinstance(values, Tensor) else torch.as_tensor(values)
    if isinstance(t, SparseTensor):
        raise RuntimeError(f"expected values to be a strided tensor, got layout {t.layout}")
    if dtype is not None:
        t = t.to(dtype)
    return t.detach() if requires_grad else t


def _device(device: Any) -> None:
    if device is not None:
        from flambeau import devices

        if devices.is_meta(device):
            raise NotImplementedError("sparse tensors on the device meta are not there: make it on the CPU, or a strided one on meta")


def sparse_coo_tensor(
    indices: Any = None, values: Any = None, size: Any = None, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
    check_invariants: bool | None = None, is_coalesced: bool | None = None, pin_memory: bool | None = None,
) -> Tensor:  # fmt: skip
    """A COO tensor: `indices` (sparse dims, nnz), `values` (nnz, *dense sizes); equal indices add up.

    Without `size`, the least that holds all indices. `sparse_coo_tensor(size)` has no elements. TypeError without indices and size.
    """
    _device(device)
    if indices is None and (size is None or values is not None):
        raise TypeError("sparse_coo_tensor() got no indices: give (indices, values), (indices, values, size) or (size)")
    if values is None and (size is None or not isinstance(indices, (Tensor, list)) or isinstance(indices, torch.Size)):
        shape = tuple(int(n) for n in (size if size is not None else indices))
        index = torch.zeros((len(shape), 0), dtype=torch.int64)
        made: SparseTensor = coo(index, torch.zeros((0,), dtype=dtype), shape, True)
        return made.requires_grad_() if requires_grad else made
    given = indices if isinstance(indices, Tensor) else torch.as_tensor(indices)  # of any dtype, as in PyTorch: [[0.0, 1.7]] is [[0, 1]]
    index, data = (given.real if given.is_complex() else given).detach().to(torch.int64), _value_tensor(values, dtype, requires_grad)
    if data is values:  # an alias: the program may change its tensor's shape in place
        data = data.view_as(data) if data.requires_grad else data.detach()
    if index.ndim == 1 and index.numel() == 0:
        index = index.reshape(len(size) if size is not None else 0, 0)
    if index.ndim != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(index.shape)}")
    if data.ndim == 0:
        data = data.expand(index.shape[1])
    n = index.shape[0]
    if index.shape[1] != data.shape[0]:
        raise RuntimeError(f"indices and values must have same nnz, but got nnz from indices: {index.shape[1]}, nnz from values: {data.shape[0]}")
    if size is None:
        if index.shape[1] == 0:
            sizes: tuple[int, ...] = (0,) * n
        else:
            if int(index.min()) < 0:
                raise RuntimeError(f"found negative index {int(index.min())} for some dim of indices")
            sizes = tuple(int(x) + 1 for x in index.amax(1).tolist())
        shape = sizes + tuple(data.shape[1:])
    else:
        shape = tuple(int(x) for x in size)
    if n + data.ndim - 1 != len(shape):
        raise RuntimeError(f"number of dimensions must be sparse_dim ({n}) + dense_dim ({data.ndim - 1}), but got {len(shape)}")
    if shape[n:] != tuple(data.shape[1:]):
        raise RuntimeError(f"values has incorrect size, expected {[data.shape[0], *shape[n:]]}, got {list(data.shape)}")
    if (check_invariants if check_invariants is not None else _CHECK[0]) and index.shape[1]:
        low, high = index.amin(1).tolist(), index.amax(1).tolist()
        for d in range(n):
            if low[d] < 0:
                raise RuntimeError(f"found negative index {low[d]} for dim {d}")
            if high[d] >= shape[d]:
                raise RuntimeError(f"size is inconsistent with indices: for dim {d}, size is {shape[d]} but found index {high[d]}")
    made = coo(index, data, shape, bool(is_coalesced))
    return made.requires_grad_() if requires_grad else made


def sparse_compressed_tensor(
    compressed_indices: Any, plain_indices: Any, values: Any, size: Any = None, *, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, check_invariants: bool | None = None, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A CSR or CSC matrix: where each row (column) starts, the columns (rows) of the elements, and their values (nnz, *dense sizes)."""
    _device(device)
    if layout is None:
        layout = layouts.sparse_csr
    if layout not in (layouts.sparse_csr, layouts.sparse_csc):
        raise NotImplementedError(f"sparse_compressed_tensor: layout {layout} is not there; use torch.sparse_csr or torch.sparse_csc")
    crow, col = _index_tensor("compressed_indices", compressed_indices), _index_tensor("plain_indices", plain_indices)
    data = _value_tensor(values, dtype, requires_grad)
    if crow.ndim != col.ndim:
        raise RuntimeError(f"compressed_indices and plain_indices dimensionalities must be equal but got {crow.ndim} and {col.ndim}, respectively")
    if crow.ndim != 1:
        raise NotImplementedError(
            f"sparse_compressed_tensor: batches of matrices are not there: indices must be vectors, got shapes {tuple(crow.shape)} and "
            f"{tuple(col.shape)}; use COO"
        )
    if data.ndim < 1:
        raise RuntimeError("values must have dimensionality > sum of batch and block dimensionalities (=0 + 0) but got 0")
    if col.shape[0] != data.shape[0]:
        raise RuntimeError(f"number of plain_indices ({col.shape[0]}) must equal the number of values ({data.shape[0]})")
    major = crow.shape[0] - 1
    if size is None:
        minor = int(col.max()) + 1 if col.numel() else 0
        shape: tuple[int, ...] = ((major, minor) if layout is layouts.sparse_csr else (minor, major)) + tuple(data.shape[1:])
    else:
        shape = tuple(int(x) for x in size)
    if len(shape) != 1 + data.ndim or shape[2:] != tuple(data.shape[1:]):
        raise RuntimeError(f"values of shape {list(data.shape)} need a size of 2 and then {list(data.shape[1:])}, got {list(shape)}")
    if shape[0 if layout is layouts.sparse_csr else 1] != major:
        raise RuntimeError(f"compressed_indices must have one element more than the compressed dim: got {crow.shape[0]} for size {list(shape)}")
    crow, col = crow.to(torch.int64), col.to(torch.int64)
    if check_invariants if check_invariants is not None else _CHECK[0]:
        _check_compressed(crow, col, shape[1 if layout is layouts.sparse_csr else 0])
    made = compressed(layout, crow, col, data, shape)
    return made.requires_grad_() if requires_grad else made


def _check_compressed(crow: Tensor, col: Tensor, minor: int) -> None:
    if int(crow[0]) != 0 or int(crow[-1]) != col.shape[0] or bool((crow[1:] < crow[:-1]).any()):
        raise RuntimeError(f"compressed_indices must start at 0, never decrease, and end at the number of elements, {col.shape[0]}")
    if col.numel() and (int(col.min()) < 0 or int(col.max()) >= minor):
        raise RuntimeError(f"plain_indices must be in [0, {minor})")


def _only(name: str, layout: Any, own: layouts.layout) -> None:
    if layout is not None and layout is not own:
        raise RuntimeError(f"torch.{name}: layout must be {own}, got {layout}")


def sparse_csr_tensor(
    crow_indices: Any, col_indices: Any, values: Any, size: Any = None, *, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, check_invariants: bool | None = None, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A CSR matrix: `crow_indices` (rows + 1,), `col_indices` and `values` (nnz,)."""
    _only("sparse_csr_tensor", layout, layouts.sparse_csr)
    return sparse_compressed_tensor(
        crow_indices, col_indices, values, size, dtype=dtype, layout=layouts.sparse_csr, device=device, requires_grad=requires_grad,
        check_invariants=check_invariants,
    )  # fmt: skip


def sparse_csc_tensor(
    ccol_indices: Any, row_indices: Any, values: Any, size: Any = None, *, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, check_invariants: bool | None = None, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A CSC matrix: `ccol_indices` (columns + 1,), `row_indices` and `values` (nnz,)."""
    _only("sparse_csc_tensor", layout, layouts.sparse_csc)
    return sparse_compressed_tensor(
        ccol_indices, row_indices, values, size, dtype=dtype, layout=layouts.sparse_csc, device=device, requires_grad=requires_grad,
        check_invariants=check_invariants,
    )  # fmt: skip


def sparse_bsr_tensor(
    crow_indices: Any, col_indices: Any, values: Any, size: Any = None, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: bool = False,
    requires_grad: bool = False, check_invariants: bool | None = None,
) -> Tensor:  # fmt: skip
    """NotImplementedError: blocks are not there."""
    _only("sparse_bsr_tensor", layout, layouts.sparse_bsr)
    return sparse_compressed_tensor(crow_indices, col_indices, values, size, layout=layouts.sparse_bsr)


def sparse_bsc_tensor(
    ccol_indices: Any, row_indices: Any, values: Any, size: Any = None, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: bool = False,
    requires_grad: bool = False, check_invariants: bool | None = None,
) -> Tensor:  # fmt: skip
    """NotImplementedError: blocks are not there."""
    _only("sparse_bsc_tensor", layout, layouts.sparse_bsc)
    return sparse_compressed_tensor(ccol_indices, row_indices, values, size, layout=layouts.sparse_bsc)


def without_elements(shape: tuple[int, ...], layout: layouts.layout, dtype: Any, requires_grad: bool = False) -> Tensor:
    """A sparse tensor of zeros: torch.zeros(..., layout=torch.sparse_coo)."""
    if layout is layouts.sparse_coo:
        return sparse_coo_tensor(torch.Size(shape), dtype=dtype, requires_grad=requires_grad)
    major = shape[0 if layout is layouts.sparse_csr else 1]
    none = torch.zeros(0, dtype=torch.int64)
    return sparse_compressed_tensor(
        torch.zeros(major + 1, dtype=torch.int64), none, torch.zeros(0, dtype=dtype), shape, layout=layout, requires_grad=requires_grad
    )


def rebuild(layout: layouts.layout, parts: Sequence[Any]) -> Tensor:
    """torch._utils._rebuild_sparse_tensor: what files and pickles call."""
    if layout is layouts.sparse_coo:
        index, values, size, *coalesced = parts
        return sparse_coo_tensor(index, values, size, check_invariants=True, is_coalesced=bool(coalesced and coalesced[0]))
    crow, col, values, size = parts
    return sparse_compressed_tensor(crow, col, values, size, layout=layout, check_invariants=True)


def spdiags(diagonals: Tensor, offsets: Tensor, shape: tuple[int, int], layout: Any = None) -> Tensor:
    """A matrix with the rows of `diagonals` on its diagonals `offsets`; element j of a row lies in column j."""
    from flambeau.sparse.structure import as_compressed

    rows = diagonals if diagonals.ndim == 2 else diagonals.unsqueeze(0)
    where = offsets.reshape(-1)
    if rows.shape[0] != where.shape[0]:
        raise RuntimeError(f"Number of diagonals ({rows.shape[0]}) does not match the number of offsets ({where.shape[0]})")
    if len(set(where.tolist())) != where.shape[0]:
        raise RuntimeError("Offset tensor contains duplicate values")
    n, m = shape
    column = torch.arange(rows.shape[1]).expand(rows.shape)
    row = column - where.unsqueeze(1)
    kept = torch.nonzero(((row >= 0) & (row < n) & (column < m)).reshape(-1)).view(-1)
    index = torch.stack((row.reshape(-1).index_select(0, kept), column.reshape(-1).index_select(0, kept)))
    made = coo(index, rows.reshape(-1).index_select(0, kept), (n, m))
    if layout in (None, layouts.sparse_coo):
        return made
    if layout in (layouts.sparse_csr, layouts.sparse_csc):
        return as_compressed(made, layout)
    raise RuntimeError(f"Only output layouts (Sparse, SparseCsc, SparseCsr) are supported, got {layout}")
