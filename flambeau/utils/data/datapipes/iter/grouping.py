"""torch.utils.data.datapipes.iter.grouping: items together in batches and groups, and apart again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from flambeau.utils.data.datapipes.datapipe import DataChunk, IterDataPipe, functional_datapipe
from flambeau.utils.data.datapipes.iter.utils import _length
from flambeau.utils.data.datapipes.shared import Batches


@functional_datapipe("batch")
class BatcherIterDataPipe(Batches, IterDataPipe[Any]):
    """Lists of `batch_size` items; a shorter last one unless drop_last."""

    def __iter__(self) -> Iterator[Any]:
        batch: list[Any] = []
        for item in self.datapipe:
            batch.append(item)
            if len(batch) == self.batch_size:
                yield self.wrapper_class(batch)
                batch = []
        if batch and not self.drop_last:
            yield self.wrapper_class(batch)

    def __len__(self) -> int:
        return self.batches_of(_length(self, self.datapipe))


@functional_datapipe("unbatch")
class UnBatcherIterDataPipe(IterDataPipe[Any]):
    """The items of nested lists, `unbatch_level` levels deep (-1: all)."""

    def __init__(self, datapipe: Any, unbatch_level: int = 1) -> None:
        self.datapipe = datapipe
        self.unbatch_level = unbatch_level

    def _dive(self, item: Any, level: int) -> Iterator[Any]:
        if level < -1:
            raise ValueError("unbatch_level must be -1 or >= 0")
        if level == 0 or (level == -1 and not isinstance(item, (list, DataChunk))):
            yield item
        elif isinstance(item, (list, DataChunk)):
            for inner in item:
                yield from self._dive(inner, level if level == -1 else level - 1)
        else:
            raise IndexError(f"unbatch_level {self.unbatch_level} exceeds the depth of the DataPipe")

    def __iter__(self) -> Iterator[Any]:
        for item in self.datapipe:
            yield from self._dive(item, self.unbatch_level)


@functional_datapipe("groupby")
class GrouperIterDataPipe(IterDataPipe[Any]):
    """Items with the same key as lists, gathered in a buffer."""

    def __init__(
        self, datapipe: Any, group_key_fn: Callable[[Any], Any], *, keep_key: bool = False, buffer_size: int = 10000,
        group_size: int | None = None, guaranteed_group_size: int | None = None, drop_remaining: bool = False,
    ) -> None:  # fmt: skip
        if group_size is not None and not 0 < group_size <= buffer_size:
            raise AssertionError("group_size must be > 0 and <= buffer_size")
        if guaranteed_group_size is None:
            guaranteed_group_size = group_size
        elif not (group_size is not None and 0 < guaranteed_group_size <= group_size):
            raise AssertionError("guaranteed_group_size must be > 0 and <= group_size and group_size must be set")
        self.datapipe = datapipe
        self.group_key_fn = group_key_fn
        self.keep_key = keep_key
        self.max_buffer_size = buffer_size
        self.group_size = group_size
        self.guaranteed_group_size = guaranteed_group_size
        self.drop_remaining = drop_remaining

    def _made(self, key: Any, items: list[Any]) -> Any:
        chunk = DataChunk(items)
        return (key, chunk) if self.keep_key else chunk

    def __iter__(self) -> Iterator[Any]:
        groups: OrderedDict[Any, list[Any]] = OrderedDict()
        held = 0
        for item in self.datapipe:
            key = self.group_key_fn(item)
            group = groups.setdefault(key, [])
            group.append(item)
            held += 1
            if self.group_size is not None and self.group_size == len(group):
                yield self._made(key, groups.pop(key))
                held -= len(group)
            if held == self.max_buffer_size:  # the largest group gives way
                largest = max(groups, key=lambda k: len(groups[k]))
                if self.guaranteed_group_size is not None and len(groups[largest]) < self.guaranteed_group_size and not self.drop_remaining:
                    raise RuntimeError(f"Failed to group items: {groups[largest]}")
                items = groups.pop(largest)
                held -= len(items)
                if self.guaranteed_group_size is None or len(items) >= self.guaranteed_group_size:
                    yield self._made(largest, items)
        while groups:
            yield self._made(*groups.popitem(last=False))
