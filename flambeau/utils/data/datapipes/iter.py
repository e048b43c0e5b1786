"""torch.utils.data.datapipes.iter: pipes by iteration."""

from __future__ import annotations

import copy
import fnmatch
import os
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import flambeau as torch
from flambeau.utils.data.collate import default_collate
from flambeau.utils.data.datapipes.datapipe import DataChunk, IterDataPipe, functional_datapipe
from flambeau.utils.data.sampler import SequentialSampler

_END = object()


class _OfOne(IterDataPipe[Any]):
    """A pipe that reads from one and gives as many."""

    datapipe: Any

    def __len__(self) -> int:
        return _length(self, self.datapipe)


def _length(pipe: Any, *sources: Any) -> int:
    try:
        return sum(len(source) for source in sources)
    except (TypeError, NotImplementedError):
        raise TypeError(f"{type(pipe).__name__} instance doesn't have valid length") from None


class IterableWrapper(IterDataPipe[Any]):
    """Any iterable as a pipe; each pass goes over a deep copy, unless deepcopy=False."""

    def __init__(self, iterable: Iterable[Any], deepcopy: bool = True) -> None:
        self.iterable = iterable
        self.deepcopy = deepcopy

    def __iter__(self) -> Iterator[Any]:
        yield from copy.deepcopy(self.iterable) if self.deepcopy else self.iterable

    def __len__(self) -> int:
        return _length(self, self.iterable)


@functional_datapipe("map")
class Mapper(_OfOne):
    """`fn` of each item, or of some of its columns (`input_col`), whose result goes to `output_col` (-1: a new one)."""

    def __init__(self, datapipe: Any, fn: Callable[..., Any], input_col: Any = None, output_col: Any = None) -> None:
        if input_col is None and output_col is not None:
            raise ValueError("`output_col` must be None when `input_col` is None.")
        if isinstance(output_col, (list, tuple)):
            if len(output_col) > 1:
                raise ValueError("`output_col` must be a single-element list or tuple")
            output_col = output_col[0]
        self.datapipe = datapipe
        self.fn = fn
        self.input_col = input_col
        self.output_col = output_col

    def _apply(self, item: Any) -> Any:
        columns, target = self.input_col, self.output_col
        if columns is None:
            return self.fn(item)
        several = isinstance(columns, (list, tuple))
        result = self.fn(*(item[c] for c in columns)) if several else self.fn(item[columns])
        changed = list(item) if isinstance(item, tuple) else item
        if target is None:
            changed[columns[0] if several else columns] = result
            for c in sorted(columns[1:], reverse=True) if several else ():
                del changed[c]
        elif target == -1:
            changed.append(result)
        else:
            changed[target] = result
        return tuple(changed) if isinstance(item, tuple) else changed

    def __iter__(self) -> Iterator[Any]:
        for item in self.datapipe:
            yield self._apply(item)


@functional_datapipe("collate")
class Collator(Mapper):
    """Batches of samples as tensors: default_collate, or a function of the user's."""

    def __init__(self, datapipe: Any, conversion: Any = default_collate, collate_fn: Any = None) -> None:
        super().__init__(datapipe, conversion if collate_fn is None else collate_fn)


@functional_datapipe("filter")
class Filter(IterDataPipe[Any]):
    """The items (or columns) for which `filter_fn` is True."""

    def __init__(self, datapipe: Any, filter_fn: Callable[..., Any], input_col: Any = None) -> None:
        self.datapipe = datapipe
        self.filter_fn = filter_fn
        self.input_col = input_col

    def __iter__(self) -> Iterator[Any]:
        for item in self.datapipe:
            c = self.input_col
            args = (item,) if c is None else [item[i] for i in c] if isinstance(c, (list, tuple)) else (item[c],)
            kept = self.filter_fn(*args)
            if not isinstance(kept, bool):
                raise ValueError(f"Boolean output is required for `filter_fn` of FilterIterDataPipe, got {type(kept)}")
            if kept:
                yield item


@functional_datapipe("batch")
class Batcher(IterDataPipe[Any]):
    """Lists of `batch_size` items; a shorter last one unless drop_last."""

    def __init__(self, datapipe: Any, batch_size: int, drop_last: bool = False, wrapper_class: Any = DataChunk) -> None:
        if batch_size <= 0:
            raise AssertionError("Batch size is required to be larger than 0!")
        self.datapipe = datapipe
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.wrapper_class = wrapper_class

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
        count = _length(self, self.datapipe)
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


@functional_datapipe("unbatch")
class UnBatcher(IterDataPipe[Any]):
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
class Grouper(IterDataPipe[Any]):
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


@functional_datapipe("shuffle")
class Shuffler(_OfOne):
    """A buffer of items in random order: reservoir sampling."""

    def __init__(self, datapipe: Any, *, buffer_size: int = 10000, unbatch_level: int = 0) -> None:
        if buffer_size <= 0:
            raise AssertionError("buffer_size should be larger than 0")
        self.datapipe = datapipe if unbatch_level == 0 else datapipe.unbatch(unbatch_level=unbatch_level)
        self.buffer_size = buffer_size
        self._enabled = True
        self._seed: int | None = None
        self._rng = random.Random()

    def set_shuffle(self, shuffle: bool = True) -> Shuffler:
        """Turn it on or off."""
        self._enabled = shuffle
        return self

    def set_seed(self, seed: int) -> Shuffler:
        """The seed of the next pass."""
        self._seed = seed
        return self

    def reset(self) -> None:
        if self._enabled:
            if self._seed is None:
                self._seed = int(torch.empty((), dtype=torch.int64).random_().item())
            self._rng.seed(self._seed)
            self._seed = None

    def __iter__(self) -> Iterator[Any]:
        if not self._enabled:
            yield from self.datapipe
            return
        buffer: list[Any] = []
        for item in self.datapipe:
            if len(buffer) < self.buffer_size:
                buffer.append(item)
                continue
            at = self._rng.randint(0, len(buffer) - 1)
            chosen, buffer[at] = buffer[at], item
            yield chosen
        while buffer:
            yield buffer.pop(self._rng.randint(0, len(buffer) - 1))


class Sampler(IterDataPipe[Any]):
    """The items of a pipe by index in a sampler's order."""

    def __init__(self, datapipe: Any, sampler: Any = SequentialSampler, sampler_args: Any = None, sampler_kwargs: Any = None) -> None:
        self.datapipe = datapipe
        self.sampler = sampler(*(sampler_args or ()), data_source=datapipe, **(sampler_kwargs or {}))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.sampler)

    def __len__(self) -> int:
        return _length(self, self.sampler)


@functional_datapipe("sharding_filter")
class ShardingFilter(IterDataPipe[Any]):
    """Every n-th item, where n is the number of workers."""

    def __init__(self, source_datapipe: Any, sharding_group_filter: Any = None) -> None:
        self.source_datapipe = source_datapipe
        self.num_of_instances = 1
        self.instance_id = 0

    def apply_sharding(self, num_of_instances: int, instance_id: int, sharding_group: Any = None) -> None:
        """Say which share is its own."""
        if instance_id >= num_of_instances:
            raise ValueError(f"instance_id({instance_id}) should be smaller than num_of_instances({num_of_instances})")
        self.num_of_instances = num_of_instances
        self.instance_id = instance_id

    def is_shardable(self) -> bool:
        """True."""
        return True

    def __iter__(self) -> Iterator[Any]:
        for i, item in enumerate(self.source_datapipe):
            if i % self.num_of_instances == self.instance_id:
                yield item

    def __len__(self) -> int:
        return len(range(self.instance_id, _length(self, self.source_datapipe), self.num_of_instances))


@functional_datapipe("concat")
class Concater(IterDataPipe[Any]):
    """Pipes one after another."""

    def __init__(self, *datapipes: Any) -> None:
        if not datapipes:
            raise ValueError("Expected at least one DataPipe, but got nothing")
        self.datapipes = datapipes

    def __iter__(self) -> Iterator[Any]:
        for pipe in self.datapipes:
            yield from pipe

    def __len__(self) -> int:
        return _length(self, *self.datapipes)


@functional_datapipe("zip")
class Zipper(IterDataPipe[Any]):
    """Tuples of one item from each pipe, until the shortest ends."""

    def __init__(self, *datapipes: Any) -> None:
        self.datapipes = datapipes

    def __iter__(self) -> Iterator[Any]:
        return zip(*self.datapipes, strict=False)

    def __len__(self) -> int:
        return min(_length(self, pipe) for pipe in self.datapipes)


@functional_datapipe("mux")
class Multiplexer(IterDataPipe[Any]):
    """One item from each pipe in turn, until the shortest ends."""

    def __init__(self, *datapipes: Any) -> None:
        self.datapipes = datapipes

    def __iter__(self) -> Iterator[Any]:
        for row in zip(*self.datapipes, strict=False):
            yield from row

    def __len__(self) -> int:
        return len(self.datapipes) * min(_length(self, pipe) for pipe in self.datapipes)


class _Branches:
    """What several child pipes read from one: each item goes to the queues of the children that `route` names."""

    def __init__(self, datapipe: Any, count: int, route: Callable[[Any], Iterable[int]], buffer_size: int) -> None:
        self.main_datapipe = datapipe
        self.count = count
        self.route = route
        self.buffer_size = buffer_size
        self.source: Iterator[Any] | None = None
        self.queues: list[deque[Any]] = []
        self.begun: set[int] = set()

    def begin(self, child: int) -> None:
        """A child begins a pass; the first to begin again begins it for all."""
        if self.source is None or child in self.begun:
            self.source = iter(self.main_datapipe)
            self.queues = [deque() for _ in range(self.count)]
            self.begun = set()
        self.begun.add(child)

    def next(self, child: int) -> Any:
        """The child's next item, or _END."""
        queue = self.queues[child]
        while not queue:
            item = next(self.source, _END)  # type: ignore[arg-type]
            if item is _END:
                return _END
            for target in self.route(item):
                self.queues[target].append(item)
            if self.buffer_size >= 0 and sum(map(len, self.queues)) - len(queue) > self.buffer_size:
                raise BufferError(f"buffer overflow, buffer size {self.buffer_size} is insufficient.")
        return queue.popleft()


class _Branch(IterDataPipe[Any]):
    def __init__(self, branches: _Branches, index: int) -> None:
        self.branches = branches
        self.index = index

    def __iter__(self) -> Iterator[Any]:
        self.branches.begin(self.index)
        while (item := self.branches.next(self.index)) is not _END:
            yield item


class Forker(IterDataPipe[Any]):
    """`num_instances` pipes, each with all items."""

    def __new__(cls, datapipe: Any, num_instances: int, buffer_size: int = 1000, copy: str | None = None) -> Any:
        """`copy`: None (the same objects), "shallow" or "deep"."""
        if num_instances < 1:
            raise ValueError(f"Expected `num_instances` larger than 0, but {num_instances} is found")
        branches = _Branches(datapipe, num_instances, lambda item: range(num_instances), buffer_size)
        pipes = [_Branch(branches, i) for i in range(num_instances)]
        if copy is None:
            return pipes
        from copy import copy as shallow
        from copy import deepcopy

        return [Mapper(pipe, {"shallow": shallow, "deep": deepcopy}[copy]) for pipe in pipes]


IterDataPipe.register_datapipe_as_function("fork", Forker)


class Demultiplexer(IterDataPipe[Any]):
    """`num_instances` pipes; `classifier_fn` of an item says to which it goes."""

    def __new__(
        cls, datapipe: Any, num_instances: int, classifier_fn: Callable[[Any], int | None], drop_none: bool = False, buffer_size: int = 1000
    ) -> Any:  # fmt: skip
        """With `drop_none`, items whose class is None go nowhere."""
        if num_instances < 1:
            raise ValueError(f"Expected `num_instances` larger than 0, but {num_instances} is found")

        def route(item: Any) -> list[int]:
            target = classifier_fn(item)
            if target is None and drop_none:
                return []
            if target is None or not 0 <= target < num_instances:
                raise ValueError(f"Output of the classification fn should be between 0 and {num_instances - 1}. {target} is returned.")
            return [target]

        branches = _Branches(datapipe, num_instances, route, buffer_size)
        return [_Branch(branches, i) for i in range(num_instances)]


IterDataPipe.register_datapipe_as_function("demux", Demultiplexer)


@functional_datapipe("list_files")
class FileLister(IterDataPipe[Any]):
    """The paths of files in folders, whose names fit one of the masks."""

    def __init__(
        self, root: Any = ".", masks: str | list[str] = "", *, recursive: bool = False, abspath: bool = False, non_deterministic: bool = False,
        length: int = -1,
    ) -> None:  # fmt: skip
        self.datapipe = [root] if isinstance(root, str) else root
        self.masks = [masks] if isinstance(masks, str) else masks
        self.recursive = recursive
        self.abspath = abspath
        self.length = length

    def _fits(self, name: str) -> bool:
        return self.masks in ([], [""]) or any(fnmatch.fnmatch(name, mask) for mask in self.masks)

    def __iter__(self) -> Iterator[str]:
        for root in self.datapipe:
            if os.path.isfile(root):
                if self._fits(os.path.basename(root)):
                    yield os.path.abspath(root) if self.abspath else root
                continue
            for path, folders, files in os.walk(root):
                folders.sort()
                for name in sorted(files):
                    if self._fits(name):
                        yield os.path.join(os.path.abspath(path) if self.abspath else path, name)
                if not self.recursive:
                    break

    def __len__(self) -> int:
        if self.length == -1:
            raise TypeError(f"{type(self).__name__} instance doesn't have valid length")
        return self.length


@functional_datapipe("open_files")
class FileOpener(IterDataPipe[Any]):
    """(path, open file) of each path."""

    def __init__(self, datapipe: Iterable[str], mode: str = "r", encoding: str | None = None, length: int = -1) -> None:
        if mode not in ("b", "t", "rb", "rt", "r"):
            raise ValueError(f"Invalid mode {mode}")
        if "b" in mode and encoding is not None:
            raise ValueError("binary mode doesn't take an encoding argument")
        self.datapipe = datapipe
        self.mode = f"r{mode}" if mode in ("b", "t") else mode
        self.encoding = encoding
        self.length = length

    def __iter__(self) -> Iterator[Any]:
        for path in self.datapipe:
            yield path, open(path, self.mode, encoding=self.encoding)  # noqa: SIM115

    def __len__(self) -> int:
        if self.length == -1:
            raise TypeError(f"{type(self).__name__} instance doesn't have valid length")
        return self.length


@functional_datapipe("read_from_stream")
class StreamReader(IterDataPipe[Any]):
    """(path, content) of (path, open file), whole or in chunks of `chunk` bytes; the files are closed."""

    def __init__(self, datapipe: Any, chunk: int | None = None) -> None:
        self.datapipe = datapipe
        self.chunk = chunk

    def __iter__(self) -> Iterator[Any]:
        for name, stream in self.datapipe:
            with stream:
                while data := stream.read(self.chunk):
                    yield name, data


__all__ = [
    "Batcher", "Collator", "Concater", "Demultiplexer", "FileLister", "FileOpener", "Filter", "Forker", "Grouper", "IterableWrapper", "Mapper",
    "Multiplexer", "Sampler", "ShardingFilter", "Shuffler", "StreamReader", "UnBatcher", "Zipper",
]  # fmt: skip
