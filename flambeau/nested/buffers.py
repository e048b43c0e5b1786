"""Nested tensors over memory that is there: where contiguous components lie, and a nested tensor of what lies there."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import flambeau as torch
from flambeau.tensor import Tensor

if TYPE_CHECKING:
    from flambeau.nested.tensor import NestedTensor


def _rows(name: str, nested_size: Tensor) -> list[list[int]]:
    if nested_size.ndim != 2 or nested_size.dtype is not torch.int64:
        raise RuntimeError(
            f"{name}: nested_size needs a row of int64 sizes for each component, got shape {tuple(nested_size.shape)} and dtype {nested_size.dtype}"
        )
    return nested_size.tolist()  # type: ignore[no-any-return]


def _nested_compute_contiguous_strides_offsets(nested_size: Tensor) -> tuple[Tensor, Tensor]:
    """(a row of strides for each component, where each begins) of components that lie one after the other."""
    strides, offsets, start = [], [], 0
    for sizes in _rows("_nested_compute_contiguous_strides_offsets", nested_size):
        strides.append([prod(sizes[d + 1 :]) for d in range(len(sizes))])
        offsets.append(start)
        start += prod(sizes)
    return torch.tensor(strides, dtype=torch.int64).reshape(nested_size.shape), torch.tensor(offsets, dtype=torch.int64)


def _nested_view_from_buffer(self: Tensor, nested_size: Tensor, nested_strides: Tensor, offsets: Tensor) -> NestedTensor:
    """A nested tensor of what lies in the vector `self`: its memory where the components lie one after the other, else a copy. RuntimeError outside of it."""
    from flambeau.nested.tensor import strided  # which asks for all names of the namespace, these too

    name = "_nested_view_from_buffer"
    sizes, strides, starts = _rows(name, nested_size), nested_strides.tolist(), offsets.tolist()
    if self.ndim != 1 or not self.is_contiguous():
        raise RuntimeError(f"{name}: the buffer must be a contiguous vector, got shape {tuple(self.shape)} and strides {self.stride()}")
    if not len(sizes) == len(strides) == len(starts):
        raise RuntimeError(f"{name}: {len(sizes)} rows of sizes need as many of strides and offsets, got {len(strides)} and {len(starts)}")
    for shape, stride, start in zip(sizes, strides, starts, strict=True):
        last = start + sum([(n - 1) * s for n, s in zip(shape, stride, strict=True)])
        if prod(shape) and (start < 0 or last >= self.numel()):
            raise RuntimeError(f"{name}: a component of sizes {shape} with strides {stride} from {start} lies outside of a buffer of {self.numel()} elements")
    plain, begins = _nested_compute_contiguous_strides_offsets(nested_size)
    begin = self.storage_offset()
    components = [self.as_strided(tuple(shape), tuple(stride), begin + start) for shape, stride, start in zip(sizes, strides, starts, strict=True)]
    whole = plain.tolist() == strides and begins.tolist() == starts and sum(map(prod, sizes)) == self.numel()
    return strided(components, self if whole else None)
