"""Memory that a write and what it reads have in common: what PyTorch refuses, and where elements of one tensor repeat."""

from __future__ import annotations

from typing import Any

from flambeau.trace.meta import Meta

_seen: dict[tuple[Any, ...], bool] = {}  # whether two views overlap in part, by metadata and distance
_MOST_SEEN = 4096


def may_repeat(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether several elements may be one place of memory (as PyTorch sees it: by the strides in their order)."""
    reach = 0
    for stride, size in sorted((stride, size) for stride, size in zip(strides, shape, strict=True) if size > 1):
        if stride <= reach:
            return 0 not in shape
        reach += (size - 1) * stride
    return False


def overlaps_in_part(target: Any, source: Any) -> bool:
    """Whether two tensors of one storage have some elements in common, but are not the same elements in the same order.

    As in PyTorch, only of tensors without gaps; of others it is not known.
    """
    a, b = target._meta, source._meta
    first, second = target.storage_offset(), source.storage_offset()
    key = (a, b, first - second) if a.dtype is b.dtype else (a, b, first, second)
    found = _seen.get(key)
    if found is None:
        if len(_seen) >= _MOST_SEEN:
            _seen.clear()
        found = _seen[key] = _overlap(a, b, first * a.dtype.itemsize, second * b.dtype.itemsize)
    return found


def _overlap(a: Meta, b: Meta, first: int, second: int) -> bool:
    """`overlaps_in_part` by metadata and the bytes at which the two begin."""
    if not (a.numel and b.numel and a.is_dense and b.is_dense):
        return False
    end, other_end = first + a.numel * a.dtype.itemsize, second + b.numel * b.dtype.itemsize
    if (first, end) == (second, other_end):
        return a.strides != b.strides
    return first < other_end and second < end


def refuse_overlap(target: Any, source: Any, name: str) -> None:
    """RuntimeError, as PyTorch's, if what a function reads is only in part what it writes to. Both are of one storage."""
    if source is not target and overlaps_in_part(target, source):
        m, s = target._meta, source._meta
        raise RuntimeError(
            f"{name}: unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location. "
            f"Please clone() the tensor before performing the operation. (Input: shape {list(s.shape)}, strides {list(s.strides)}, offset "
            f"{source.storage_offset()}; written to: shape {list(m.shape)}, strides {list(m.strides)}, offset {target.storage_offset()}.)"
        )
