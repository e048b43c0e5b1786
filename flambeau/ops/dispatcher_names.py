"""Operators that only torch.ops.aten has: PyTorch's public functions under their dispatcher's names, and what those are made of."""

from __future__ import annotations

import builtins
from typing import Any

import flambeau as torch


def _to_copy(
    self: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None, non_blocking: bool = False, memory_format: Any = None
) -> Any:
    """A copy with this dtype and memory format."""
    made = self.to(device=device, dtype=dtype, non_blocking=non_blocking, copy=True)
    return made if memory_format is None else made.contiguous(memory_format=memory_format)


def alias(self: Any) -> Any:
    """A view of all of it."""
    return self.view(self.shape)


def _unsafe_view(self: Any, size: Any) -> Any:
    """A view of another shape."""
    return self.view(size)


def slice(self: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    """self[start:end:step] along a dim."""
    size = self.shape[dim]
    low = 0 if start is None else min(max(start + size if start < 0 else start, 0), size)
    high = size if end is None else min(max(end + size if end < 0 else end, low), size)
    index = [builtins.slice(None)] * self.ndim
    index[dim] = builtins.slice(low, high, step)
    return self[tuple(index)]


def index(self: Any, indices: Any) -> Any:
    """self[indices], None for a dim that stays."""
    return self[tuple([builtins.slice(None) if i is None else i for i in indices])]


def _unique2(self: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> tuple[Any, Any, Any]:
    """torch.unique of all elements, always with three results: those that were not asked for are empty."""
    return _three(torch.unique(self, sorted, return_inverse, return_counts), return_inverse, return_counts)


def unique_dim(
    self: Any, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Any, Any, Any]:  # fmt: skip
    """torch.unique along a dim, always with three results: those that were not asked for are empty."""
    return _three(torch.unique(self, sorted, return_inverse, return_counts, dim), return_inverse, return_counts)


def _three(found: Any, inverse: bool, counts: bool) -> tuple[Any, Any, Any]:
    rest = list(found if isinstance(found, tuple) else (found,))
    first, nothing = rest.pop(0), torch.empty(0, dtype=torch.int64)
    return first, rest.pop(0) if inverse else nothing, rest.pop(0) if counts else nothing


def lift_fresh(self: Any) -> Any:
    """The tensor itself: what torch.tensor has made."""
    return self


def embedding(weight: Any, indices: Any, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False) -> Any:
    """The rows of `weight` at `indices`."""
    padding = None if padding_idx < 0 else padding_idx
    return torch.nn.functional.embedding(indices, weight, padding, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)


def sym_size(self: Any, dim: int | None = None) -> Any:
    """The shape, or one of its sizes."""
    return self.size() if dim is None else self.size(dim)


def sym_numel(self: Any) -> int:
    """How many elements."""
    return int(self.numel())


def sym_stride(self: Any, dim: int | None = None) -> Any:
    """The strides, or one of them."""
    return self.stride() if dim is None else self.stride(dim)


def _pin_memory(self: Any, device: Any = None) -> Any:
    """See Tensor.pin_memory."""
    return self.pin_memory()


def _sparse_addmm(self: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """torch.sparse.addmm."""
    return torch.sparse.addmm(self, mat1, mat2, beta=beta, alpha=alpha)


def _sparse_mm_reduce_impl(self: Any, other: Any, reduce: str) -> tuple[Any, Any]:
    """(torch.sparse.mm with a reduction, an empty tensor in place of the places that its gradient needs in PyTorch)."""
    return torch.sparse.mm(self, other, reduce), torch.empty(0, dtype=torch.int64)


def _local_scalar_dense(self: Any) -> Any:
    """The one element as a number."""
    return self.item()


def _conj(self: Any) -> Any:
    """The complex conjugate."""
    return self.conj()


def _is_all_true(self: Any) -> Any:
    """Whether all elements are True, as a tensor."""
    return self.all()


def _is_any_true(self: Any) -> Any:
    """Whether some element is True, as a tensor."""
    return self.any()


def _assert_async(self: Any, assert_msg: str = "") -> None:
    """RuntimeError unless the one element is not zero."""
    torch._assert_async(self, assert_msg)


def _assert_scalar(self: Any, assert_msg: str) -> None:
    """RuntimeError unless the number is not zero."""
    if not self:
        raise RuntimeError(assert_msg)


def _assert_tensor_metadata(a: Any, size: Any = None, stride: Any = None, dtype: Any = None, *, device: Any = None, layout: Any = None) -> None:
    """RuntimeError unless the tensor is like this, as far as it is said."""
    for name, found, wanted in (("sizes", tuple(a.shape), size), ("strides", a.stride(), stride)):
        if wanted is not None and tuple(wanted) != tuple(found):
            raise RuntimeError(f"Tensor {name} mismatch! Expected: {tuple(wanted)}, Got: {tuple(found)}")
    for name, found, wanted in (("dtype", a.dtype, dtype), ("device", a.device, device), ("layout", a.layout, layout)):
        if wanted is not None and wanted != found:
            raise RuntimeError(f"Tensor {name} mismatch! Expected: {wanted}, Got: {found}")
