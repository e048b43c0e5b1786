"""What distributions share: numbers and tensors brought to one shape, probabilities and logits, lazily computed attributes, triangles."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import update_wrapper
from numbers import Real
from typing import Any, Final

import flambeau as torch
from flambeau.nn.functional import softmax
from flambeau.tensor import Tensor

euler_constant: Final = 0.57721566490153286061  # Euler and Mascheroni's
__all__ = [
    "broadcast_all", "clamp_probs", "lazy_property", "logits_to_probs", "probs_to_logits", "tril_matrix_to_vec", "vec_to_tril_matrix",
]  # fmt: skip


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor) or hasattr(type(value), "__torch_function__")


def broadcast_all(*values: Any) -> Any:
    """Tensors of one shape. Numbers become tensors of the first tensor's dtype, or of the default dtype where there is no tensor.

    ValueError for anything else."""
    if not all(_is_tensor(v) or isinstance(v, Real) for v in values):
        kinds = ", ".join([type(v).__name__ for v in values])
        raise ValueError(f"Input arguments must all be instances of Number, torch.Tensor or objects implementing __torch_function__. Got {kinds}.")
    d = next((v.dtype for v in values if isinstance(v, Tensor)), torch.get_default_dtype())
    return torch.broadcast_tensors(*(v if _is_tensor(v) else torch.tensor(v, dtype=d) for v in values))


def _standard_normal(shape: Any, dtype: Any, device: Any = None) -> Any:
    """Standard normal numbers."""
    return torch.empty(shape, dtype=dtype).normal_()


def _sum_rightmost(value: Any, dim: int) -> Any:
    """The sum over the last `dim` dims."""
    return value if dim == 0 else value.reshape((*value.shape[:-dim], -1)).sum(-1)


def _filled(like: Any, shape: Any, value: float) -> Any:
    """A constant of the dtype of `like`."""
    return torch.full(tuple(shape), value, dtype=like.dtype)


def logits_to_probs(logits: Any, is_binary: bool = False) -> Any:
    """Probabilities from log odds (`is_binary`), or from unnormalised log probabilities of categories in the last dim."""
    return torch.sigmoid(logits) if is_binary else softmax(logits, dim=-1)


def clamp_probs(probs: Any) -> Any:
    """Probabilities kept away from 0 and 1 by the dtype's eps."""
    eps = torch.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs: Any, is_binary: bool = False) -> Any:
    """Log odds (`is_binary`), or log probabilities of the categories; probabilities are first kept away from 0 and 1."""
    inside = clamp_probs(probs)
    return inside.log() - torch.log1p(-inside) if is_binary else inside.log()


class lazy_property:
    """A property that is computed once, with gradients, and then kept as an attribute. On the class it is itself a property."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        update_wrapper(self, wrapped)  # type: ignore[arg-type]

    def __get__(self, instance: Any, obj_type: Any = None) -> Any:
        if instance is None:
            return _lazy_property_and_property(self.wrapped)
        with torch.enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


class _lazy_property_and_property(lazy_property, property):
    """What the class shows: documentation tools know properties."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        property.__init__(self, wrapped)


def _lower(n: int, diag: int) -> tuple[Any, Any]:
    """Rows and columns of an n x n matrix's elements up to the diagonal `diag`, row after row."""
    rows, columns = torch.tril_indices(n, n, diag)
    return rows, columns


def tril_matrix_to_vec(mat: Any, diag: int = 0) -> Any:
    """The elements of (..., n, n) up to the diagonal `diag`, row after row. ValueError for a diagonal outside the matrix."""
    n = mat.shape[-1]
    if diag < -n or diag >= n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    rows, columns = _lower(n, diag)
    return mat[..., rows, columns]


def vec_to_tril_matrix(vec: Any, diag: int = 0) -> Any:
    """The matrices (..., n, n) whose elements up to the diagonal `diag` are the last dim of `vec`, others 0.

    ValueError where no n has as many elements there."""
    # length = (n + diag) (n + diag + 1) / 2 for diag <= 0, n^2 - (n - diag - 1) (n - diag) / 2 above, solved for n.
    length = vec.shape[-1]
    n = (-(1 + 2 * diag) + math.sqrt((1 + 2 * diag) ** 2 + 8 * length + 4 * abs(diag) * (diag + 1))) / 2
    if round(n) - n > torch.finfo(vec.dtype).eps:
        raise ValueError(f"The size of last dimension is {length} which cannot be expressed as the lower triangular part of a square D x D matrix.")
    n = round(n)
    rows, columns = _lower(n, diag)
    places = rows * n + columns
    if places.numel() != length:
        count = places.numel()
        raise RuntimeError(f"vec_to_tril_matrix: shape mismatch: {length} elements do not fill the {count} places of a triangle of {n} x {n} (diag {diag})")
    flat = vec.new_zeros((*vec.shape[:-1], n * n))
    return flat.index_copy(-1, places, vec).reshape((*vec.shape[:-1], n, n))
