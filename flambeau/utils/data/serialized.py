"""A list of many small objects that worker processes share instead of copying.

A list of Python objects grows with every forked worker that reads it: reading changes reference counts, and so each page becomes a copy
(Y. Wu, "Demystify RAM Usage in Multi-Process Data Loaders", 2022, whose TorchSerializedList this is). Here the pickles of all objects
lie one after another in shared memory, whose pages no reader changes; an object is made anew each time that it is asked for.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, overload

import flambeau as torch

T = TypeVar("T")


class SerializedList(Sequence[T]):
    """A read-only list. Data: `_bytes` (uint8, all pickles), `_ends` (int64, where each ends), both in shared memory."""

    def __init__(self, items: Iterable[T]) -> None:
        """`items`: any objects that pickle. They are copied: changes of an object that was asked for are not kept."""
        data = bytearray()
        ends = []
        for item in items:
            data += pickle.dumps(item, pickle.HIGHEST_PROTOCOL)
            ends.append(len(data))
        self._bytes = (torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)).share_memory_()
        self._ends = torch.tensor(ends, dtype=torch.int64).share_memory_()
        self._views: Any = None

    def __len__(self) -> int:
        return self._ends.numel()

    @property
    def nbytes(self) -> int:
        """Bytes of shared memory."""
        return self._bytes.nbytes + self._ends.nbytes

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        count = len(self)
        index = int(index)
        if not -count <= index < count:
            raise IndexError(f"SerializedList index {index} out of range: it has {count} objects")
        if self._views is None:
            self._views = memoryview(self._bytes.numpy()), self._ends.numpy()
        data, ends = self._views
        index %= count
        return pickle.loads(data[int(ends[index - 1]) if index else 0 : int(ends[index])])

    def __getstate__(self) -> dict[str, Any]:
        return {"_bytes": self._bytes, "_ends": self._ends, "_views": None}

    def __repr__(self) -> str:
        return f"SerializedList of {len(self)} objects in {self.nbytes} bytes of shared memory"
