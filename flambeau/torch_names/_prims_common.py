"""torch._prims_common: questions about tensors that packages ask by this name."""

from __future__ import annotations

from typing import Any


def is_contiguous_or_false(a: Any) -> bool:
    """Whether a tensor is known to be contiguous; strides are always known here."""
    return bool(a.is_contiguous())


def is_contiguous(a: Any, false_if_dde: bool = False) -> bool:
    """Whether a tensor is contiguous."""
    return bool(a.is_contiguous())
