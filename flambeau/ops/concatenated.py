"""cat and stack: tensors one after the other, in PyTorch's memory format: channels last where all of them are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flambeau.ops import primitives as prim
from flambeau.ops.primitive import laid_out
from flambeau.ops.promotion import convert, result_type
from flambeau.ops.registry import operation
from flambeau.ops.shape import as_shape, dim_of
from flambeau.ops.tied import tied
from flambeau.trace.strides import channels_last_strides, suggests_channels_last

if TYPE_CHECKING:
    from flambeau.tensor import Tensor


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


@operation(name="cat", aliases=("concat", "concatenate"), out=True)
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The tensors one after the other along `dim`; the other sizes must be equal (legacy empty tensors are skipped)."""
    if not tensors:
        raise ValueError("cat(): expected a non-empty list of Tensors")
    for i, x in enumerate(tensors):
        if x is None:
            raise TypeError(f"cat(): expected Tensor as element {i} in argument 'tensors' (position 1), but got NoneType")
    parts = [x for x in tensors if tuple(x._meta.shape) != (0,)]
    if not parts:
        return tied(prim.copy(convert(tensors[0], result_type(*tensors)), strides=(1,)), *tensors)
    first = parts[0]._meta
    if first.ndim == 0:
        raise RuntimeError("zero-dimensional tensor (at position 0) cannot be concatenated: use stack, or unsqueeze it")
    d = dim_of(dim, first.ndim)
    for i, x in enumerate(parts):
        if x._meta.ndim != first.ndim:
            raise RuntimeError(
                f"cat: Tensors must have same number of dimensions: got {first.ndim} and {x._meta.ndim} (shapes {tuple(first.shape)} and {tuple(x.shape)})"
            )
        for axis in range(first.ndim):
            if axis != d and x._meta.shape[axis] != first.shape[axis]:
                raise RuntimeError(
                    f"Sizes of tensors must match except in dimension {d}. Expected size {first.shape[axis]} but got size "
                    f"{x._meta.shape[axis]} for tensor number {i} in the list."
                )
    kind = result_type(*tensors)
    whole = concatenated([convert(x, kind) for x in parts], d, are_channels_last(tensors))
    return whole if len(parts) == len(tensors) else tied(whole, *[x for x in tensors if tuple(x._meta.shape) == (0,)])  # type: ignore[no-any-return]


@operation(out=True)
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors of one shape along a new dimension."""
    if not tensors:
        raise RuntimeError("stack expects a non-empty TensorList")
    shape = tuple(tensors[0]._meta.shape)
    for i, x in enumerate(tensors):
        if tuple(x._meta.shape) != shape:
            raise RuntimeError(f"stack expects each tensor to be equal size, but got {list(shape)} at entry 0 and {list(x._meta.shape)} at entry {i}")
    d = dim_of(dim, len(shape) + 1)
    wide = (*shape[:d], 1, *shape[d:])
    kind = result_type(*tensors)
    if d < len(shape) and are_channels_last(tensors):
        return as_shape(concatenated([convert(x, kind) for x in tensors], d, True), (*shape[:d], len(tensors), *shape[d:]))
    return prim.concatenate(*[as_shape(convert(x, kind), wide) for x in tensors], dim=d)
