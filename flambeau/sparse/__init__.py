"""torch.sparse: COO and CSR (CSC) tensors as graph networks use them.

What operations do with sparse tensors is in `dispatch.py`; the tensors themselves in `tensor.py`.
"""

from __future__ import annotations

from typing import Any

from flambeau import dtypes as _dtypes
from flambeau.ops.dispatch import Dispatched
from flambeau.sparse.construct import check_sparse_tensor_invariants as check_sparse_tensor_invariants
from flambeau.sparse.construct import spdiags as spdiags
from flambeau.sparse.products import addmm as _addmm
from flambeau.sparse.products import matmul as _matmul
from flambeau.sparse.products import sampled_addmm as sampled_addmm
from flambeau.sparse.reductions import log_softmax as log_softmax
from flambeau.sparse.reductions import softmax as softmax
from flambeau.sparse.reductions import sum as sum
from flambeau.sparse.tensor import SparseTensor as _SparseTensor
from flambeau.tensor import Tensor


def mm(mat1: Tensor, mat2: Tensor, reduce: str | None = None, *, out: Any = None) -> Tensor:
    """The product of two matrices, of which the first or both are sparse, with gradients. Two sparse ones give a sparse one."""
    if mat1.ndim != 2 or mat2.ndim != 2:
        raise RuntimeError(f"sparse.mm: expected two matrices, got shapes {tuple(mat1.shape)} and {tuple(mat2.shape)}")
    if not (isinstance(mat1, _SparseTensor) or isinstance(mat2, _SparseTensor)):
        if isinstance(mat1, Dispatched) or isinstance(mat2, Dispatched):
            return _below(mat1, mat2, reduce)
        raise RuntimeError("sparse.mm: expected at least one sparse matrix; use torch.mm")
    if reduce is not None and reduce != "sum":
        return _reduced(mat1, mat2, reduce)
    return _matmul(mat1, mat2, "sparse.mm")


def _below(mat1: Any, mat2: Any, reduce: str | None) -> Any:
    """The product where a class with `__torch_dispatch__` says what it is."""
    import flambeau as torch
    from flambeau.ops.below import run

    if reduce is not None:
        return run("_sparse_mm_reduce_impl", "default", (mat1, mat2, reduce))[0]
    return run("_sparse_addmm", "default", (torch.zeros(mat1.shape[0], mat2.shape[1], dtype=mat1.dtype), mat1, mat2), {"beta": 0})


def _reduced(mat1: Tensor, mat2: Tensor, reduce: str) -> Tensor:
    """The product with another reduction of the terms of each row: mean, amax or amin of those that are there (0 of none)."""
    import flambeau as torch
    from flambeau.sparse.products import coordinates

    reduce = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    if reduce not in ("mean", "amax", "amin") or not isinstance(mat1, _SparseTensor) or isinstance(mat2, _SparseTensor):
        raise RuntimeError(f"sparse.mm: reduce must be one of sum, mean, amax, amin, of a sparse and a dense matrix; got {reduce!r}")
    rows, columns = coordinates(mat1)
    terms = mat2.index_select(0, columns) * mat1._data.unsqueeze(1)
    start = torch.zeros((mat1.shape[0], mat2.shape[1]), dtype=mat2.dtype)
    return start.scatter_reduce(0, rows.unsqueeze(1).expand(terms.shape), terms, reduce, include_self=False)  # type: ignore[no-any-return]


def addmm(mat: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1.0, alpha: Any = 1.0) -> Tensor:
    """beta * mat + alpha * (mat1 @ mat2), mat1 sparse; with gradients."""
    return _addmm(mat, mat1, mat2, beta, alpha)


def as_sparse_gradcheck(gradcheck: Any) -> Any:
    """gradcheck of functions of sparse tensors: here it is called with their values, so the function is returned as it is."""
    return gradcheck


def spsolve(input: Tensor, other: Tensor, *, left: bool = True) -> Tensor:
    """NotImplementedError: PyTorch has it on CUDA only."""
    raise NotImplementedError("spsolve: there is no sparse solver on the CPU; use torch.linalg.solve(A.to_dense(), b)")


class _Legacy(type):
    """torch.sparse.FloatTensor and its like: constructors, and classes for isinstance."""

    dtype: _dtypes.dtype

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        from flambeau.sparse.construct import sparse_coo_tensor

        if not args or not isinstance(args[0], Tensor):
            sizes = args[0] if args and not isinstance(args[0], int) else args or (0,)
            return sparse_coo_tensor(tuple(sizes), dtype=cls.dtype)
        index, values, *size = args
        if values.dtype is not cls.dtype:
            raise TypeError(f"expected values of {cls.dtype} for torch.sparse.{cls.__name__}, got {values.dtype}")
        return sparse_coo_tensor(index, values, size[0] if size else None, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _SparseTensor) and instance.is_sparse and instance.dtype is cls.dtype


def _legacy(name: str, d: _dtypes.dtype) -> Any:
    return _Legacy(name, (), {"dtype": d, "__module__": "torch.sparse", "__doc__": f"Legacy constructor of COO tensors of {d}: (indices, values, size)."})


FloatTensor = _legacy("FloatTensor", _dtypes.float32)
DoubleTensor = _legacy("DoubleTensor", _dtypes.float64)
HalfTensor = _legacy("HalfTensor", _dtypes.float16)
BFloat16Tensor = _legacy("BFloat16Tensor", _dtypes.bfloat16)
LongTensor = _legacy("LongTensor", _dtypes.int64)
IntTensor = _legacy("IntTensor", _dtypes.int32)
ShortTensor = _legacy("ShortTensor", _dtypes.int16)
CharTensor = _legacy("CharTensor", _dtypes.int8)
ByteTensor = _legacy("ByteTensor", _dtypes.uint8)


_SEMI_STRUCTURED = (
    "SparseSemiStructuredTensor", "SparseSemiStructuredTensorCUSPARSELT", "SparseSemiStructuredTensorCUTLASS", "to_sparse_semi_structured",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _SEMI_STRUCTURED:  # a class that answers below autograd, which is prepared for when there is one
        from flambeau.sparse import semi_structured

        globals().update({own: getattr(semi_structured, own) for own in _SEMI_STRUCTURED})
        return globals()[name]
    from flambeau.names import otherwise

    return otherwise("torch.sparse", name, globals())


def __dir__() -> list[str]:
    return sorted({*globals(), *_SEMI_STRUCTURED, "semi_structured"})
