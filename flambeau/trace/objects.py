"""Tensors as objects: the Tensor class as recording knows it, and tensors that no call made."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flambeau.trace.meta import Meta
from flambeau.trace.storage import Storage

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

_TENSOR: list[Any] = [None]  # the Tensor class, set by tensor.py

_new: Callable[[type], Any] = object.__new__


def bare(cls: type) -> Any:
    """A tensor without metadata, values or a name in a trace."""
    t = _new(cls)
    t._gen = t._slot = -1
    t._storage = t._immediate = None
    return t


def from_storage(storage: Storage, m: Meta, cls: type | None = None, offset: int = 0) -> Any:
    """A tensor (of class `cls`) over memory that exists."""
    t = bare(cls or _TENSOR[0])
    t._meta = m
    t._storage = storage
    if m.dynamic:
        t._offset = offset
    return t


def inner_dict(t: Tensor) -> dict[str, Any]:
    """All that an instance has beside its slots."""
    return _TENSOR[0].__dict__["__dict__"].__get__(t)  # type: ignore[no-any-return]


def twin(t: Tensor) -> Tensor:
    """A plain tensor with all that `t` has, names in a trace included."""
    made: Tensor = _new(_TENSOR[0])
    made._gen, made._slot, made._meta, made._storage, made._immediate = t._gen, t._slot, t._meta, t._storage, t._immediate
    made.__dict__.update(inner_dict(t))
    made._view = is_view(t)
    return made


def is_view(t: Tensor) -> bool:
    """Whether `t` was made as a view of another tensor, not as a value of its own or by detach(), which begin a family (storage.py)."""
    return getattr(t, "_view", False)
