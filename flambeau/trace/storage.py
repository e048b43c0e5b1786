"""A Storage is the memory that one or several tensors share: a buffer, or the slot of a value that is still pending."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flambeau.runtime.buffers import Buffer


class Storage:
    """`gen`, `slot`: the pending value in the trace of that generation; else `buffer` holds the bytes.

    `origin` is the slot under which the storage first appeared in that trace. `version` counts in-place writes.
    `external`: True or a weak reference that is alive while the outside world sees the memory (NumPy, DLPack): then nothing
    about it is ever left pending.
    """

    __slots__ = ("__weakref__", "buffer", "external", "gen", "origin", "slot", "version")

    def __init__(self, buffer: Buffer | None = None, gen: int = -1, slot: int = -1) -> None:
        self.buffer = buffer
        self.gen = gen
        self.slot = slot
        self.origin = slot
        self.version = 0
        self.external: Any = None
