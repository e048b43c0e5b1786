"""torch._prims_common: questions about tensors and shapes that packages ask by this name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau.compiler.graph import contiguous_strides


def is_contiguous_or_false(a: Any) -> bool:
    """Whether a tensor is known to be contiguous; strides are always known here."""
    return bool(a.is_contiguous())


def is_contiguous(a: Any, false_if_dde: bool = False) -> bool:
    """Whether a tensor is contiguous."""
    return bool(a.is_contiguous())


def make_contiguous_strides_for(shape: Sequence[int], row_major: bool = True) -> tuple[int, ...]:
    """The strides of a contiguous tensor; with `row_major=False` of one whose matrices lie column by column. ValueError for a negative size."""
    sizes = tuple([int(n) for n in shape])
    if any(n < 0 for n in sizes):
        raise ValueError(f"make_contiguous_strides_for(): sizes must not be negative, got {sizes}")
    strides = tuple(contiguous_strides(sizes))
    return strides if row_major or len(sizes) < 2 else (*strides[:-2], 1, max(sizes[-2], 1))


def suggest_memory_format(x: Any) -> Any:
    """channels_last or channels_last_3d of a tensor that lies so, and not otherwise contiguous; else contiguous_format."""
    if x.layout is torch.strided and x.ndim in (4, 5) and not x.is_contiguous():
        found = torch.channels_last if x.ndim == 4 else torch.channels_last_3d
        if x.is_contiguous(memory_format=found):
            return found
    return torch.contiguous_format
