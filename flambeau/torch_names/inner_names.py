"""Functions of the torch namespace with an underscore that packages call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as torch


def _shape_as_tensor(self: Any) -> Any:
    """The shape as an int64 vector."""
    return torch.tensor(list(self.shape), dtype=torch.int64)


def _has_compatible_shallow_copy_type(input: Any, from_: Any) -> Any:
    """Whether `input.data = from_` can be: both are strided, or both of one sparse layout. Classes with `__torch_function__` say it themselves."""
    if torch.overrides.has_torch_function((input, from_)):
        return torch.overrides.handle_torch_function(_has_compatible_shallow_copy_type, (input, from_), input, from_)
    return input.layout is from_.layout


def _is_functional_tensor(t: Any) -> bool:
    """False: no tensor here is a wrapper that makes functions of writes."""
    return False


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
    """The product of an int8 or uint8 matrix (n, k) with an int8 matrix (k, m), in int32; RuntimeError for other dims, sizes and dtypes."""
    if self.ndim != 2 or mat2.ndim != 2 or self.shape[1] != mat2.shape[0]:
        raise RuntimeError(f"_int_mm: self must be (n, k) and mat2 (k, m), got {tuple(self.shape)} and {tuple(mat2.shape)}")
    for name, t, kinds in (("self", self, (torch.int8, torch.uint8)), ("mat2", mat2, (torch.int8,))):
        if t.dtype not in kinds:
            raise RuntimeError(f"_int_mm: expected {name} to be of type int8{' or uint8' * (len(kinds) - 1)}, got {t.dtype}")
    from flambeau.ops.linear import integer_product

    product = integer_product(self, mat2) if self.dtype is mat2.dtype else self.to(torch.int32) @ mat2.to(torch.int32)
    return product if out is None else out.copy_(product)


def _scaled_mm(
    self: Any, mat2: Any, scale_a: Any, scale_b: Any, bias: Any = None, scale_result: Any = None, out_dtype: Any = None, use_fast_accum: bool = False,
    *, out: Any = None,
) -> Any:  # fmt: skip
    """The product of two float8 matrices (n, k) and (k, m), times the scales of both, plus `bias` (m).

    `scale_a`, `scale_b`: one float32 number each, or one for each row (n, 1) and column (1, m). `out_dtype`: of the result, by default that of `self`;
    a result of float8 is multiplied by `scale_result`. The products are summed in float32. `use_fast_accum` changes nothing.
    RuntimeError for shapes that do not fit, ValueError for other dtypes and scales.
    """
    if self.ndim != 2 or mat2.ndim != 2 or self.shape[1] != mat2.shape[0]:
        raise RuntimeError(f"_scaled_mm: mat_a and mat_b shapes cannot be multiplied ({'x'.join(map(str, self.shape))} and {'x'.join(map(str, mat2.shape))})")
    by_rows = tuple(scale_a.shape) == (self.shape[0], 1) and tuple(scale_b.shape) == (1, mat2.shape[1]) and scale_a.is_contiguous() and scale_b.is_contiguous()
    scales = all(s.dtype is torch.float32 for s in (scale_a, scale_b)) and (by_rows or (scale_a.numel() == 1 and scale_b.numel() == 1))
    if not scales or any(t.dtype not in (torch.float8_e4m3fn, torch.float8_e5m2) for t in (self, mat2)):
        raise ValueError(
            f"_scaled_mm: Invalid scaling configuration: the matrices must be float8_e4m3fn or float8_e5m2, the scales float32 and either one number each, "
            f"or ({self.shape[0]}, 1) and (1, {mat2.shape[1]}), got matrices of {self.dtype} and {mat2.dtype}, scales of {scale_a.dtype}, "
            f"{tuple(scale_a.shape)} and {scale_b.dtype}, {tuple(scale_b.shape)}"
        )
    kind = self.dtype if out_dtype is None else out_dtype
    product = self.to(torch.float32) @ mat2.to(torch.float32)
    product = product * scale_a * scale_b if by_rows else product * (scale_a * scale_b).reshape(())
    if bias is not None:
        product = product + bias.to(torch.float32)
    if scale_result is not None and kind.itemsize == 1:
        product = product * scale_result
    return product.to(kind) if out is None else out.copy_(product.to(kind))


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
    """The gradient of softmax, from its result, in the dtype of both; `input_dtype` would matter on a GPU only."""
    if grad_output.dtype is not output.dtype:
        raise RuntimeError(f"_softmax_backward_data(): grad_output and output must have one dtype, got {grad_output.dtype} and {output.dtype}")
    if not output.dtype.is_floating_point:
        raise NotImplementedError(f"_softmax_backward_data(): output must be of a floating dtype, got {output.dtype}; convert it first, with .float()")
    product = grad_output * output
    return product - output * product.sum(dim, keepdim=True)


def _grouped_mm(self: Any, mat2: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """nn.functional.grouped_mm, by position too."""
    return torch.nn.functional.grouped_mm(self, mat2, offs=offs, bias=bias, out_dtype=out_dtype)
