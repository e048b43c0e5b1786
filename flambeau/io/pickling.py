"""Tensors and generators under Python's own pickle: tensors that share a storage do so again if they are in one pickle."""

from __future__ import annotations

from typing import Any

from flambeau.io.storage_bytes import tensor_over
from flambeau.ops.dispatch import Dispatched, marked, named_class
from flambeau.tensor import Attributes, Tensor
from flambeau.trace.recorder import _PARAMETER


def attributes(t: Tensor) -> dict[str, Any]:
    """What a user has set on a tensor object."""
    return dict(Attributes(t))


def reduce_tensor(t: Tensor) -> Any:
    """What Tensor.__reduce_ex__ returns."""
    if isinstance(t, Dispatched):
        return restore_wrapper, (named_class(t), *wrapper_layout(t), attributes(t))
    storage = t.untyped_storage()
    layout = t.dtype, t.storage_offset(), tuple(t.shape), tuple(t.stride())
    return restore_tensor, (named_class(t), storage, *layout, t.requires_grad, attributes(t), *bits_of(t))


def bits_of(t: Tensor) -> tuple[int, ...]:
    """What a pickle says beside all else of a view of conjugates or negatives."""
    return (t._meta.bits,) if t._meta.bits else ()


def restore_tensor(
    cls: type, storage: Any, d: Any, offset: int, size: tuple[int, ...], stride: tuple[int, ...], requires_grad: bool, state: dict[str, Any], bits: int = 0
) -> Tensor:  # fmt: skip
    """The inverse of reduce_tensor."""
    t = tensor_over(storage._storage, d, size, stride, offset, storage.device, bits)
    if cls is not Tensor:
        t = Tensor._make_subclass(cls, t)
    t.__dict__.update(state)
    marked(t, _PARAMETER[0])
    return t.requires_grad_() if requires_grad else t


def wrapper_layout(t: Tensor) -> tuple[Any, ...]:
    """What there is to a tensor of a class with `__torch_dispatch__` beside its attributes."""
    return t.dtype, tuple(t.shape), tuple(t.stride()), t.storage_offset(), t.layout, t.device, t.requires_grad


def restore_wrapper(
    cls: Any, d: Any, size: Any, stride: Any, offset: int, layout: Any, device: Any, requires_grad: bool, state: dict[str, Any] | None = None
) -> Any:  # fmt: skip
    """The inverse: torch._utils._rebuild_wrapper_subclass, and the attributes."""
    made = Tensor._make_wrapper_subclass(cls, size, strides=stride, storage_offset=offset, dtype=d, layout=layout, device=device, requires_grad=requires_grad)
    made.__dict__.update(state or {})
    return marked(made, _PARAMETER[0])


def reduce_generator(generator: Any) -> Any:
    """What Generator.__reduce__ returns."""
    return restore_generator, (generator.state.get_state(),)


def restore_generator(state: bytes) -> Any:
    """A generator in a state that was pickled."""
    from flambeau.ops.random import Generator

    made = Generator()
    made.state.set_state(state)
    return made
