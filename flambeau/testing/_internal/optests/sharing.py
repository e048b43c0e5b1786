"""Which tensors share memory, for the checks of operators."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flambeau.tensor import Tensor
from flambeau.utils._pytree import tree_leaves


def memory_of(values: Any) -> set[int]:
    """The addresses of the memory of the tensors in a tree; an empty tensor has none."""
    found = set()
    for t in tree_leaves(values):
        if isinstance(t, Tensor) and not t.is_sparse and t.numel():
            found.add(t.untyped_storage().data_ptr())
    return found


def tensors(values: Any) -> list[Tensor]:
    """The tensors in a tree."""
    return [t for t in tree_leaves(values) if isinstance(t, Tensor)]


def each_other(values: Iterable[Any]) -> bool:
    """Whether two tensors in a tree share memory."""
    found = [memory_of(t) for t in tensors(list(values))]
    return sum(map(len, found)) > len(set().union(*found))
