"""The strides of results: PyTorch's rules, one for each kind of result.

- Pointwise results, and what else PyTorch computes by its TensorIterator: `iterator_strides`, from all operands.
- Copies, `*_like` and what keeps the layout of one tensor: `like_strides`.
- What is asked for in a memory format: `format_strides`. What chooses between row-major and channels last by its input:
  `suggested_strides`.

Strides are told as PyTorch tells them, those of dims of size 1 and of empty tensors too: programs print and compare them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flambeau.compiler.graph import contiguous_strides
from flambeau.trace.meta import is_dense

if TYPE_CHECKING:
    from flambeau.trace.meta import Meta

Strides = tuple[int, ...]
CHANNELS_LAST, CHANNELS_LAST_3D = "channels_last", "channels_last_3d"
_NDIM = {CHANNELS_LAST: 4, CHANNELS_LAST_3D: 5}


def _fastest_first(shape: Sequence[int], operands: Sequence[Strides]) -> list[int]:
    """The dims from the fastest to the slowest: the last is the fastest, unless the strides of the first operand that tells two dims
    apart say otherwise. A stride of 0 tells nothing; of equal strides the longer dim is the slower one."""
    order = list(range(len(shape) - 1, -1, -1))

    def compare(a: int, b: int) -> int:
        """> 0 where dim `a`, which stands before `b`, must come after it."""
        for strides in operands:
            x, y = strides[a], strides[b]
            if x == 0 or y == 0:
                continue
            if x != y:
                return 1 if x > y else -1
            if shape[a] > shape[b]:
                return 1
        return 0

    for i in range(1, len(order)):  # an insertion sort, as pairs that nothing tells apart must keep their order
        at = i
        for j in range(i - 1, -1, -1):
            found = compare(order[j], order[at])
            if found > 0:
                order[j], order[at] = order[at], order[j]
                at = j
            elif found < 0:
                break
    return order


def _broadcast(m: Meta, shape: tuple[int, ...]) -> Strides:
    """The strides with which an operand is read over `shape`."""
    new = len(shape) - m.ndim
    return (0,) * new + tuple([0 if n == 1 and shape[new + d] != 1 else s for d, (n, s) in enumerate(zip(m.shape, m.strides, strict=True))])


def iterator_strides(operands: Sequence[Meta], shape: tuple[int, ...]) -> Strides:
    """Strides of a new result over `shape` of operands that broadcast to it, as PyTorch's TensorIterator chooses them."""
    if all(m.is_contiguous for m in operands) and all(m.shape == shape for m in operands):
        return contiguous_strides(shape)
    if all(m.shape == shape for m in operands):
        if len(shape) == 4 and all(is_channels_last(m.shape, m.strides) for m in operands):
            return channels_last_strides(shape)
        first = operands[0]
        if first.is_dense and all(m.strides == first.strides for m in operands):
            return first.strides
    if len(shape) < 2:
        return contiguous_strides(shape)
    order = _fastest_first(shape, [_broadcast(m, shape) for m in operands])
    if order == list(range(len(shape) - 1, -1, -1)):
        return contiguous_strides(shape)
    strides = [0] * len(shape)
    step = 1
    for d in order:
        strides[d] = step
        step *= shape[d]
    return tuple(strides)


def like_strides(shape: Sequence[int], strides: Strides) -> Strides:
    """Strides of a new tensor that keeps the layout of one: its own where it is dense, else the dims in the same order without gaps."""
    if is_dense(tuple(shape), strides):
        return strides
    if len(shape) < 2:
        return contiguous_strides(tuple(shape))
    out = [0] * len(shape)
    step = 1
    for d in _fastest_first(shape, [strides]):
        out[d] = step
        step *= max(shape[d], 1)
    return tuple(out)


def channels_last_strides(shape: Sequence[int]) -> Strides:
    """Strides in which the dim 1 of (N, C, ...) is the fastest one, the others in their order."""
    out = [0] * len(shape)
    step = 1
    for d in (1, *range(len(shape) - 1, 1, -1), 0):
        out[d] = step
        step *= shape[d]
    return tuple(out)


def is_channels_last(shape: Sequence[int], strides: Strides) -> bool:
    """Whether a tensor of 4 or 5 dims is contiguous in the format channels_last (channels_last_3d)."""
    if len(shape) not in (4, 5):
        return False
    step = 1
    for d in (1, *range(len(shape) - 1, 1, -1), 0):
        if shape[d] != 1:
            if strides[d] != step:
                return False
            step *= shape[d]
    return True


def format_strides(shape: tuple[int, ...], strides: Strides | None, memory_format: Any) -> Strides:
    """Strides of a new tensor in a memory format; None and preserve_format keep the layout of `strides`, of which None is row-major.

    RuntimeError where the format wants another number of dims.
    """
    name = getattr(memory_format, "name", "preserve_format")
    if name == "preserve_format":
        return contiguous_strides(shape) if strides is None else like_strides(shape, strides)
    if name in _NDIM:
        if len(shape) != _NDIM[name]:
            raise RuntimeError(f"required rank {_NDIM[name]} tensor to use {name} format, but the shape is {tuple(shape)}")
        return channels_last_strides(shape)
    return contiguous_strides(shape)


def has_format(m: Meta, memory_format: Any) -> bool:
    """Whether a tensor is contiguous in a memory format (None: row-major)."""
    name = getattr(memory_format, "name", "contiguous_format")
    return m.is_contiguous if name not in _NDIM else m.ndim == _NDIM[name] and is_channels_last(m.shape, m.strides)


def suggests_channels_last(m: Meta) -> bool:
    """Whether PyTorch would compute channels last with this tensor (its `suggest_memory_format`): by the order of the strides, which dims
    of size 1 take part in."""
    if m.ndim not in (4, 5) or m.strides[1] == 0:
        return False
    least = 0
    for d in (1, *range(m.ndim - 1, 1, -1), 0):
        if m.shape[d] == 0 or m.strides[d] < least or (d == 0 and least == m.strides[1]):
            return False
        least = m.strides[d] * (m.shape[d] if m.shape[d] > 1 else 1)
    return True


def suggested_strides(m: Meta, shape: tuple[int, ...]) -> Strides:
    """Strides of a result that is channels last where this tensor is, else row-major."""
    return channels_last_strides(shape) if suggests_channels_last(m) else contiguous_strides(shape)


def column_major_strides(shape: tuple[int, ...]) -> Strides:
    """The last but one dim the fastest, the others row-major."""
    if len(shape) < 2:
        return contiguous_strides(shape)
    *batch, columns, rows = contiguous_strides((*shape[:-2], shape[-1], shape[-2]))
    return (*batch, rows, columns)


def expanded_strides(sizes: Sequence[int], steps: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of what has `sizes` and the strides `steps` as it is expanded to `shape`."""
    new = len(shape) - len(sizes)
    strides = [0] * len(shape)
    for d in range(len(shape) - 1, -1, -1) if sizes else ():  # one element without dims has strides 0 only, as in PyTorch
        if d >= new:
            size, stride = sizes[d - new], steps[d - new]
        else:  # a new dimension counts as one of size 1 around what follows it
            size, stride = 1, shape[d + 1] * strides[d + 1] if d + 1 < len(shape) else 1
        strides[d] = stride if size == shape[d] else 0
    return tuple(strides)


def view_strides(m: Meta, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Strides under which the elements of `m` read as `shape` without a copy, or None (PyTorch's computeStride)."""
    if m.numel == 0:
        return m.strides if tuple(m.shape) == tuple(shape) else contiguous_strides(shape)
    strides = [0] * len(shape)
    at = len(shape) - 1
    chunk_stride = m.strides[-1] if m.ndim else 1
    chunk = 1
    viewed = 1
    for d in range(m.ndim - 1, -1, -1):
        chunk *= m.shape[d]
        if d == 0 or (m.shape[d - 1] != 1 and m.strides[d - 1] != chunk * chunk_stride):
            while at >= 0 and (viewed < chunk or shape[at] == 1):
                strides[at] = viewed * chunk_stride
                viewed *= shape[at]
                at -= 1
            if viewed != chunk:
                return None
            if d > 0:
                chunk_stride = m.strides[d - 1]
                chunk = viewed = 1
    if at >= 0:
        if m.ndim:
            return None
        for i in range(at, -1, -1):
            strides[i] = 1
    return tuple(strides)
