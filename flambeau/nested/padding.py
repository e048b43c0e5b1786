"""Nested tensors as padded ones, and back."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.nested.ragged import Ragged
from flambeau.nested.tensor import NestedTensor, jagged
from flambeau.tensor import Tensor


def rows_of(values: Tensor, structure: Ragged, padding: Any, width: int | None = None) -> Tensor:
    """(rows, width, ...) of values whose rows lie along dim 0; `width`: by default the longest row's."""
    width = structure.longest() if width is None else width
    shape = (structure.rows, width, *values.shape[1:])
    if 0 in shape or not values.shape[0]:
        return torch.full(shape, padding, dtype=values.dtype)
    places = structure.offsets[:-1, None] + torch.arange(width)
    mask = structure.mask(width)
    filled = values[torch.where(mask, places, 0).reshape(-1)].reshape(shape)
    return torch.where(mask.reshape(*mask.shape, *[1] * (values.ndim - 1)), filled, torch.full((), padding, dtype=values.dtype))


def back(padded: Tensor, structure: Ragged) -> Tensor:
    """The filled places of (rows, width, ...), the rows along dim 0."""
    return padded[structure.row_of(), structure.place_of()]


def to_padded(t: NestedTensor, padding: float, output_size: Any = None) -> Tensor:
    """See NestedTensor.to_padded_tensor."""
    if t._ragged is None:
        parts = list(t.unbind())
        most = [max(sizes) for sizes in zip(*[p.shape for p in parts], strict=True)]
        shape = [len(parts), *most] if output_size is None else list(output_size)
        if len(shape) != 1 + len(most) or any(n < m for n, m in zip(shape[1:], most, strict=True)):
            raise RuntimeError(f"to_padded_tensor: output_size {shape} must be at least {[len(parts), *most]}")
        rows = []
        for p in parts:
            margins = [x for have, want in zip(reversed(p.shape), reversed(shape[1:]), strict=True) for x in (0, want - have)]
            rows.append(torch.nn.functional.pad(p, margins, value=padding))
        return torch.stack(rows)
    along = t._ragged_idx - 1
    values = t.values().movedim(along, 0)
    width = None
    if output_size is not None:
        width = int(output_size[t._ragged_idx])
        if width < t._ragged.longest():
            raise RuntimeError(f"to_padded_tensor: output_size {tuple(output_size)} has no room for the longest row of {t._ragged.longest()}")
    return rows_of(values, t._ragged, padding, width).movedim(1, t._ragged_idx)


def from_padded(padded: Tensor, structure: Ragged, ragged_idx: int) -> NestedTensor:
    """The filled places of a padded tensor as a nested one."""
    values = back(padded.movedim(ragged_idx, 1), structure)
    return jagged(values.movedim(0, ragged_idx - 1), structure, ragged_idx)


def packed(t: NestedTensor) -> NestedTensor:
    """The same rows one after another, without gaps."""
    if t._ragged is None or t._ragged.lengths is None:
        return t
    from flambeau.nested.ragged import of_sizes

    values = torch.cat(list(t.unbind()), dim=t._ragged_idx - 1)
    return jagged(values, of_sizes(t._ragged.sizes()), t._ragged_idx)
