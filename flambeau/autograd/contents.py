"""Gradients of a memory's whole content as those of the tensor that the memory was made for, and back: the two may be laid out differently."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flambeau.trace.meta import CONJ, NEG, Meta, meta, same_layout

if TYPE_CHECKING:
    from flambeau.compiler.graph import Value
    from flambeau.tensor import Tensor


def is_whole(v: Value, m: Meta) -> bool:
    """Whether a tensor with the metadata `m` is the content `v` as it is, or as conjugates or negatives."""
    return v.dtype is m.dtype and tuple(v.shape) == tuple(m.shape) and v.offset == m.offset and same_layout(m.shape, v.strides, m.strides)


def within(t: Tensor, v: Value) -> Meta:
    """The metadata of a tensor that is the content `v` or a part of it, with its own offset as a number."""
    m = t._meta
    if not m.dynamic or is_whole(v, m):
        return m
    return meta(m.shape, m.strides, m.dtype, t.storage_offset(), m.requires_grad, m.leaf, m.wrapped, device=m.device, bits=m.bits)


def part(gradient: Tensor, v: Value, m: Meta) -> Tensor:
    """The gradient of a tensor with the metadata `m`, of the gradient of the content `v` (dense) that it is read from."""
    return exchanged(gradient if is_whole(v, m) else _flat(gradient, v, m).as_strided(tuple(m.shape), m.strides, m.offset), m)  # type: ignore[no-any-return]


def replaced(gradient: Tensor, v: Value, m: Meta, function: Callable[[Tensor], Tensor]) -> Tensor:
    """The gradient of the content `v` after `function` has looked at the part of it that is a tensor's, and has perhaps given another."""
    if is_whole(v, m) and not m.bits:
        return function(gradient)
    before = part(gradient, v, m)
    version = before._version
    after = function(before)
    if after is before and before._version == version:  # nor has it been written to
        return gradient
    if is_whole(v, m):
        return exchanged(after, m)  # type: ignore[no-any-return]
    flat: Any = _flat(gradient, v, m).as_strided_scatter(exchanged(after, m), tuple(m.shape), m.strides, m.offset)
    if v.dtype is not m.dtype:
        flat = _other(flat)
    order = _order(v)
    back = sorted(range(len(order)), key=order.__getitem__)
    return flat.reshape([v.shape[d] for d in order]).permute(back)  # type: ignore[no-any-return]


def exchanged(gradient: Any, m: Meta) -> Any:
    """The gradient of a tensor with the metadata `m` of the gradient of what is in memory, and the reverse: the tensor may be its conjugate or negative."""
    if m.bits & CONJ:
        gradient = gradient.conj_physical()
    return gradient.neg() if m.bits & NEG else gradient


def _order(v: Value) -> list[int]:
    """The dims from the outermost in memory to the innermost."""
    return sorted(range(len(v.shape)), key=lambda d: (-v.strides[d], d))


def _flat(gradient: Any, v: Value, m: Meta) -> Any:
    """The gradient in the order of the content's memory, in the dtype of `m`, in memory of its own: offsets count from there."""
    flat = gradient.permute(_order(v)).reshape(-1).clone()
    return flat if v.dtype is m.dtype else _other(flat)


def _other(flat: Any) -> Any:
    """Complex numbers as pairs of real ones, or the reverse."""
    from flambeau.ops.elementwise import view_as_complex, view_as_real

    return view_as_real(flat).reshape(-1) if flat._meta.dtype.is_complex else view_as_complex(flat.reshape(-1, 2))
