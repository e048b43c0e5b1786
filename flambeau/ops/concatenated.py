"""Tensors one after the other, in PyTorch's memory format: channels last where all of them are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.ops import primitives as prim
from flambeau.ops.primitive import laid_out
from flambeau.trace.strides import channels_last_strides, suggests_channels_last


def are_channels_last(tensors: Sequence[Any]) -> bool:
    """Whether what is put together from these tensors is channels last."""
    return all(suggests_channels_last(x._meta) for x in tensors)


def concatenated(parts: Sequence[Any], dim: int, channels_last: bool) -> Any:
    """Tensors of one dtype along a dim. Channels last, they are rows of pixels whose last dim the channels are: what is contiguous stays so."""
    if not channels_last:
        return prim.concatenate(*parts, dim=dim)
    ndim = parts[0]._meta.ndim
    order = (0, *range(2, ndim), 1)
    whole = prim.concatenate(*[prim.permute(x, dims=order) for x in parts], dim=order.index(dim))
    result = prim.permute(whole, dims=(0, ndim - 1, *range(1, ndim - 1)))
    return laid_out(result, channels_last_strides(tuple(result._meta.shape)))
