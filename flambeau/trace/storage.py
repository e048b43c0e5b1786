"""A Storage is the memory that one or several tensors share: a buffer, or the slot of a value that is still pending."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from flambeau.runtime.buffers import Buffer


ORDER = itertools.count()  # numbers segments and differentiable writes in the order in which they happen
FAMILIES = itertools.count(3, 2)  # see Storage; one less than such a number: made by `.data`


def changed_shape(storage: Storage) -> None:
    """Count a change of shape in place of a tensor over this memory: in `_version` it is a write; to gradients, which have the values, it is none."""
    RESHAPED[storage] = RESHAPED.get(storage, 0) + 1


def count_as(storage: Storage, version: int) -> None:
    """Let `_version` of the tensors over this memory be this from now on, with what is written later on top of it."""
    RESHAPED[storage] = version - storage.version


class Storage:
    """`gen`, `slot`: the pending value in the trace of that generation; else `buffer` holds the bytes.

    `origin` is the slot under which the storage first appeared in that trace. `version` counts in-place writes.
    `external`: True or a weak reference that is alive while the outside world sees the memory (NumPy, DLPack): then nothing
    about it is ever left pending.
    `history`: where the whole content came from, (segment, slot), if gradients can be asked of it. `result`: the same where a tensor that is
    the whole content has it, too; the segment's reference is weak, so that a detached tensor does not keep it. `cut`: the number of the last
    differentiable write; what a tensor remembers of earlier segments does not lead to its values any more.
    `family`: whose histories these three are: those of the tensors with this number in `_detached`. 0: of all that was never
    detached. Each detach() begins a family, which has no history until values with gradients are written to one of its tensors.
    `others`: (history, result, cut) of families that had it before.
    `extent`: the least and greatest of the integers of one layout of it, for one version (bounds.py).
    """

    # At fixed places: native code reads and makes them (edge_code.py).
    __slots__ = ("__weakref__", "buffer", "cut", "extent", "external", "family", "gen", "history", "origin", "others", "result", "slot", "version")
    buffer: Buffer | None
    gen: int
    extent: tuple[Any, ...] | None
    external: Any
    cut: int
    slot: int
    origin: int
    version: int
    history: Any
    result: Any
    family: int
    others: dict[int, tuple[Any, Any, int]] | None

    def __init__(self, buffer: Buffer | None = None, gen: int = -1, slot: int = -1) -> None:
        self.buffer = buffer
        self.external = self.extent = self.history = self.result = self.others = None
        self.cut = -1
        self.gen = gen
        self.slot = self.origin = slot
        self.version = self.family = 0

    def has_value(self) -> bool:
        """Whether its bytes are there, and no write to them is pending."""
        return self.buffer is not None and (self.gen < 0 or self.slot == self.origin)

    def source(self) -> Any:
        """Where the whole content came from, (segment, slot), or None."""
        if self.history is not None or self.result is None:
            return self.history
        segment = self.result[0]()
        return None if segment is None else (segment, self.result[1])


RESHAPED: Final[WeakKeyDictionary[Storage, int]] = WeakKeyDictionary()  # how many changes of shape there were, where there were any
