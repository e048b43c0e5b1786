"""Functions of the torch namespace with an underscore that packages call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as torch


def _shape_as_tensor(self: Any) -> Any:
    """The shape as an int64 vector."""
    return torch.tensor(list(self.shape), dtype=torch.int64)


def _assert_async(self: Any, assert_msg: str = "Expected Tensor with single nonzero value, but got zero") -> None:
    """RuntimeError unless the one element is not zero."""
    if self.numel() != 1:
        raise RuntimeError(f"Boolean value of Tensor with {'no values' if self.numel() == 0 else 'more than one value'} is ambiguous")
    if not self.item():
        raise RuntimeError(assert_msg)


def _check_with(error_type: type[Exception], cond: Any, message: Callable[[], str] | None) -> None:
    """Raise the error unless the condition holds."""
    if not cond:
        raise error_type("Expected cond to be True, but got False" if message is None else message())


def _check_tensor_all_with(error_type: type[Exception], cond: Any, message: Callable[[], str] | None = None) -> None:
    """Raise the error unless all elements are True; TypeError unless they are bools."""
    if not isinstance(cond, torch.Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    if cond.dtype is not torch.bool:
        raise TypeError(f"cond tensor must have dtype torch.bool, but got {cond.dtype}")
    _check_with(error_type, cond.all().item(), message)


def _check_tensor_all(cond: Any, message: Callable[[], str] | None = None) -> None:
    """RuntimeError unless all elements are True."""
    _check_tensor_all_with(RuntimeError, cond, message)


def _int_mm(self: Any, mat2: Any, *, out: Any = None) -> Any:
    """The product of two int8 matrices, in int32; RuntimeError for another dtype."""
    for name, t in (("self", self), ("mat2", mat2)):
        if t.dtype is not torch.int8:
            raise RuntimeError(f"_int_mm: expected {name} to be of type int8, got {t.dtype}")
    product = self.to(torch.int32) @ mat2.to(torch.int32)
    return product if out is None else out.copy_(product)


def _convert_indices_from_coo_to_csr(input: Any, size: int, *, out_int32: bool = False, out: Any = None) -> Any:
    """Sorted row numbers as the places where each row starts: a vector of size + 1."""
    starts = torch.zeros(size + 1, dtype=torch.int64)
    starts[1:] = torch.bincount(input, minlength=size).cumsum(0)
    return starts.to(torch.int32 if out_int32 else input.dtype)


def _convert_indices_from_csr_to_coo(crow_indices: Any, col_indices: Any, *, out_int32: bool = False, transpose: bool = False, out: Any = None) -> Any:
    """The other way round: (2, number) indices, rows first (`transpose`: columns first)."""
    rows = torch.repeat_interleave(torch.arange(crow_indices.numel() - 1), crow_indices.diff())
    kind = torch.int32 if out_int32 else crow_indices.dtype
    pair = [rows.to(kind), col_indices.to(kind)]
    return torch.stack(pair[::-1] if transpose else pair)


def _softmax_backward_data(grad_output: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    """The gradient of softmax, from its result."""
    product = grad_output * output
    return (product - output * product.sum(dim, keepdim=True)).to(input_dtype)
