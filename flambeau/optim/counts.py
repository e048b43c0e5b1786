"""Numbers that optimizers keep as tensors without dims, as PyTorch does ("step", "mu_product"): a step reads and writes them where they lie.

Recorded, they would be a kernel for each parameter. Where each of them lies is kept from step to step (`counts_of`), and looked at anew where a user has put
another tensor in its place, or has written to it; one with something pending on it is read and written as any tensor is.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

import flambeau as torch
from flambeau.dtypes import dtype
from flambeau.runtime.buffers import allocate
from flambeau.tensor import Tensor
from flambeau.trace.meta import meta
from flambeau.trace.objects import from_storage
from flambeau.trace.storage import Storage

_CELLS: Final[dict[dtype, Any]] = {torch.float32: ctypes.c_float, torch.float64: ctypes.c_double}
_METAS: Final = {d: meta((), (), d) for d in _CELLS}


def kept_dtype(is_fused: Any = None) -> dtype:
    """The dtype of such a number: float64 where that is the default, and nothing is fused; else float32."""
    return torch.float64 if torch.get_default_dtype() is torch.float64 and not is_fused else torch.float32


def count(value: float = 0.0, fused: Any = None) -> Tensor:
    """A tensor of one number, for a state."""
    d = kept_dtype(fused)
    buffer = allocate(d.itemsize)
    _CELLS[d].from_address(buffer.address).value = value
    return from_storage(Storage(buffer), _METAS[d])  # type: ignore[no-any-return]


def _cell(t: Tensor) -> Any:
    """Where the number of a tensor lies; None if something is pending on it, or it is of another dtype."""
    m, storage = t._meta, t._storage
    if storage is None or storage.gen >= 0 or storage.buffer is None or not (m.one_number and m.dtype in _CELLS) or m.dynamic:
        return None
    return _CELLS[m.dtype].from_address(storage.buffer.address + m.offset * m.dtype.itemsize)


class Counts:
    """The numbers that some states keep under one name, where they lie (`_cells`), or as tensors that have to be asked."""

    __slots__ = ("_buffers", "_cells", "_storages", "_tensors", "name", "numbers")
    _cells: list[Any] | None
    _storages: list[Any]
    _buffers: list[Any]
    numbers: list[float]

    def __init__(self, states: Sequence[dict[str, Any]], name: str) -> None:
        self.name = name
        for state in states:
            if not isinstance(state[name], Tensor):
                state[name] = count(float(state[name]))  # of a state that was filled by hand
        self._tensors = tensors = [s[name] for s in states]
        self._cells = [_cell(t) for t in tensors]
        if None in self._cells:
            self._cells = None
            self.numbers = [float(t.item()) for t in tensors]
            return
        self._storages = [t._storage for t in tensors]
        self.numbers = [c.value for c in self._cells]
        self._buffers = [s.buffer for s in self._storages]

    def still(self, states: Sequence[dict[str, Any]]) -> bool:
        """Whether tensors over the same memory stand there, with the numbers that were written to them, and nothing pending."""
        name, storages = self.name, self._storages
        try:
            if [s[name]._storage for s in states] != storages:
                return False
        except AttributeError:  # a number, of a state that was filled by hand
            return False
        return (
            max([s.gen for s in storages]) < 0
            and [s.buffer for s in storages] == self._buffers
            and [c.value for c in self._cells] == self.numbers  # type: ignore[union-attr]
        )  # fmt: skip

    def of(self, at: Sequence[int]) -> Counts:
        """Those at some places."""
        some = object.__new__(Counts)
        some.name = self.name
        some._tensors, some.numbers = [self._tensors[i] for i in at], [self.numbers[i] for i in at]
        some._cells = None
        if self._cells is not None:
            some._cells, some._storages = [self._cells[i] for i in at], [self._storages[i] for i in at]
        return some

    def set(self, value: float) -> None:
        """Write one number to all of them."""
        if self._cells is None:
            for t in self._tensors:
                t.fill_(value)
            return
        for cell, storage in zip(self._cells, self._storages, strict=True):
            cell.value = value
            storage.version += 1
        self.numbers[:] = [self._cells[0].value] * len(self._cells)

    def add_one(self) -> None:
        """Count on, each from where it is."""
        if self._cells is None:
            for t in self._tensors:
                t.add_(1)
            return
        first, *others = {*self.numbers}
        if not others:
            return self.set(first + 1.0)
        for cell, storage in zip(self._cells, self._storages, strict=True):
            cell.value += 1.0
            storage.version += 1
        self.numbers[:] = [cell.value for cell in self._cells]


def counts_of(known: dict[tuple[str, int], Counts], states: Sequence[dict[str, Any]], name: str) -> tuple[Counts, bool]:
    """The numbers of states under a name, and whether they are all the same; `known`: those of earlier steps, by the first state."""
    key = name, id(states[0])
    found = known.get(key)
    if found is not None and found.still(states):
        return found, True
    found = Counts(states, name)
    same = found.numbers.count(found.numbers[0]) == len(states)
    if same and found._cells is not None:
        known[key] = found
    else:
        known.pop(key, None)
    return found, same
