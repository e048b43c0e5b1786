"""torch.utils.data.datapipes.iter.combining: several pipes as one, and one as several."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from flambeau.utils.data.datapipes.datapipe import IterDataPipe, functional_datapipe
from flambeau.utils.data.datapipes.iter.callable import MapperIterDataPipe
from flambeau.utils.data.datapipes.iter.utils import _length

_END = object()


@functional_datapipe("concat")
class ConcaterIterDataPipe(IterDataPipe[Any]):
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
class ZipperIterDataPipe(IterDataPipe[Any]):
    """Tuples of one item from each pipe, until the shortest ends."""

    def __init__(self, *datapipes: Any) -> None:
        self.datapipes = datapipes

    def __iter__(self) -> Iterator[Any]:
        return zip(*self.datapipes, strict=False)

    def __len__(self) -> int:
        return min(_length(self, pipe) for pipe in self.datapipes)


@functional_datapipe("mux")
class MultiplexerIterDataPipe(IterDataPipe[Any]):
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


class ForkerIterDataPipe(IterDataPipe[Any]):
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

        return [MapperIterDataPipe(pipe, {"shallow": shallow, "deep": deepcopy}[copy]) for pipe in pipes]


IterDataPipe.register_datapipe_as_function("fork", ForkerIterDataPipe)


class DemultiplexerIterDataPipe(IterDataPipe[Any]):
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


IterDataPipe.register_datapipe_as_function("demux", DemultiplexerIterDataPipe)
