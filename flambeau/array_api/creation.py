"""Arrays from nothing, from data, of constants and ranges."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.tensor import Tensor


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Tensor:
    """An array with the values of `obj`; `copy=False` raises ValueError where the memory cannot be shared."""
    if isinstance(obj, Tensor):
        if copy:
            return obj.clone() if dtype is None else obj.to(dtype, copy=True)
        if copy is False and dtype is not None and dtype is not obj.dtype:
            raise ValueError(f"asarray: copy=False, but dtype {dtype} needs a copy of an array of {obj.dtype}")
        return obj if dtype is None else obj.to(dtype)
    if copy is False and not (hasattr(obj, "__array__") or hasattr(obj, "__dlpack__")):
        raise ValueError(f"asarray: copy=False, but the memory of a {type(obj).__name__} cannot be shared")
    made = torch.as_tensor(obj, dtype=dtype, device=device)
    return made.clone() if copy else made


def arange(start: float, /, stop: float | None = None, step: float = 1, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Numbers from start up to stop, without it; empty where the step leads away from stop."""
    first, last = (0, start) if stop is None else (start, stop)
    if (last - first) * step < 0:
        kind = dtype or (torch.int64 if all(isinstance(v, int) for v in (first, last, step)) else torch.get_default_dtype())
        return torch.empty(0, dtype=kind, device=device)
    return torch.arange(first, last, step, dtype=dtype, device=device)


def empty(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """An array of any values."""
    return torch.empty(shape, dtype=dtype, device=device)


def empty_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """An array of any values with the shape and dtype of x."""
    return torch.empty_like(x, dtype=dtype, device=device)


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones on the k-th diagonal of a matrix of zeros."""
    columns = n_rows if n_cols is None else n_cols
    made = torch.zeros((n_rows, columns), dtype=dtype, device=device)
    if -n_rows < k < columns:
        made.diagonal(k).fill_(1)
    return made


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """An array over the memory of `x`, or a copy of it."""
    made = torch.from_dlpack(x)
    return made.clone() if copy else made


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """An array of one value."""
    return torch.full((shape,) if isinstance(shape, int) else tuple(shape), fill_value, dtype=dtype, device=device)


def full_like(x: Tensor, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """An array of one value with the shape and dtype of x."""
    return torch.full_like(x, fill_value, dtype=dtype, device=device)


def linspace(start: Any, stop: Any, /, num: int, *, dtype: Any = None, device: Any = None, endpoint: bool = True) -> Tensor:
    """`num` numbers from start to stop; without stop if not `endpoint`."""
    kind = dtype or (torch.complex64 if isinstance(start, complex) or isinstance(stop, complex) else torch.get_default_dtype())
    if kind.is_complex and (isinstance(start, complex) or isinstance(stop, complex)):
        real = linspace(complex(start).real, complex(stop).real, num, dtype=kind.to_real(), endpoint=endpoint)
        return torch.complex(real, linspace(complex(start).imag, complex(stop).imag, num, dtype=kind.to_real(), endpoint=endpoint))
    return torch.linspace(start, stop, num, dtype=kind) if endpoint else torch.linspace(start, stop, num + 1, dtype=kind)[:-1].clone()


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Coordinate matrices of coordinate vectors; "xy" (the first varies along columns) or "ij"."""
    return list(torch.meshgrid(*arrays, indexing=indexing))


def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """An array of ones."""
    return torch.ones(shape, dtype=dtype, device=device)


def ones_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones in the shape and dtype of x."""
    return torch.ones_like(x, dtype=dtype, device=device)


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The lower triangles of matrices."""
    return torch.tril(x, k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The upper triangles of matrices."""
    return torch.triu(x, k)


def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """An array of zeros."""
    return torch.zeros(shape, dtype=dtype, device=device)


def zeros_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Zeros in the shape and dtype of x."""
    return torch.zeros_like(x, dtype=dtype, device=device)


__all__ = [
    "arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like", "linspace", "meshgrid", "ones", "ones_like", "tril",
    "triu", "zeros", "zeros_like",
]  # fmt: skip
