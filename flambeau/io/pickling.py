"""Tensors under Python's own pickle and copy: the elements in row-major order; sharing is not kept (io.save keeps it)."""

from __future__ import annotations

from typing import Any

from flambeau.io.storage_bytes import NAMED, contiguous_bytes, tensor_from_bytes
from flambeau.tensor import Tensor


def reduce_tensor(t: Tensor) -> Any:
    """What Tensor.__reduce_ex__ returns."""
    return restore_tensor, (contiguous_bytes(t), t.dtype.name, tuple(t.shape), t.requires_grad)


def restore_tensor(data: bytes, name: str, shape: tuple[int, ...], requires_grad: bool) -> Tensor:
    """The inverse of reduce_tensor."""
    t = tensor_from_bytes(data, NAMED[name], shape)
    return t.requires_grad_() if requires_grad else t
